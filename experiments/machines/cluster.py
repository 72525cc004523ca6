"""The machines of a lab as a Dask cluster: who is there, who is lost, and calls to their parts.

Dask's scheduler runs in the lab's own process, a worker on each machine, and an actor on each
worker (`agent`). They speak TLS, with keys made for this lab, and listen on the machines' own
network only: who has no key of this lab's can say nothing to them. Workers run as root, since what
they start makes namespaces.

A worker that was killed is noticed at once, by its connection; one that is stopped, or cut off,
when Dask has not heard from it for `SILENCE_S`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from experiments.machines.computer import LAB, Computer
from topos.base.errors import PillarboxError, require

PORT = 8786  # Dask's usual one: the network is the lab's own
SILENCE_S = 30
JOIN_S, START_S, ANSWER_S, END_S = 60.0, 120.0, 120.0, 10.0
LOOK_S = 0.1  # between two looks at whether who is asked is still there
TOO_LATE = (TimeoutError, asyncio.TimeoutError)  # one, from Python 3.11 on
GONE = (OSError, RuntimeError, *TOO_LATE)  # what Dask raises of a worker that is
REMOVED, ADDED = "remove-worker", "add-worker"  # as Dask calls a worker's loss, and its coming
CONFIG = {
    "distributed.scheduler.worker-ttl": f"{SILENCE_S}s",
    "distributed.worker.profile.enabled": False,
    "distributed.admin.system-monitor.gil.enabled": False,
    "distributed.comm.retry.count": 0,
}

News = Callable[[int, dict[str, Any]], None]


class Cluster:
    """Workers on machines, and calls to their agents.

    Parameters
    ----------
    folder : Path
        The lab's; keys and logs are below it.
    on_news : callable
        Called with a machine and what happened there, ``{"event": "lost"}`` when it is lost; from
        a thread of its own, one after the other.
    """

    def __init__(self, folder: Path, on_news: News) -> None:
        self._folder, self._on_news = folder, on_news
        self._workers: list[subprocess.Popen[bytes]] = []
        self._agents: dict[int, Any] = {}
        self._machine_at: dict[str, int] = {}
        self._news: SimpleQueue[tuple[int, dict[str, Any]] | None] = SimpleQueue()
        self._reader = threading.Thread(target=self._read_news, daemon=True)
        self._scheduler: Any = None
        self._client: Any = None
        self._topics: list[str] = []
        self._closing = False

    def start(self, computer: Computer, orders: list[dict[str, Any]]) -> None:
        """Start a worker on each machine, and with each order that machine's part."""
        import dask
        from distributed import Client, LocalCluster
        from distributed.security import Security

        logging.getLogger("distributed").setLevel(logging.CRITICAL)  # what is lost we say ourselves
        dask.config.set(CONFIG)
        security = Security.temporary()
        keys = self._write_keys(security)
        self._scheduler = LocalCluster(
            n_workers=0,
            host=LAB,
            scheduler_port=PORT,
            protocol="tls://",
            security=security,
            dashboard_address=None,
            silence_logs=logging.CRITICAL,
        )
        address = self._scheduler.scheduler_address
        for machine in range(len(orders)):
            self._workers.append(self._worker(computer, machine, address, keys))
        self._client = Client(address, security=security, timeout=JOIN_S, direct_to_workers=True)
        self._reader.start()
        at = self._joined(len(orders))
        self._machine_at = {address: machine for machine, address in at.items()}
        self._subscribe("all", self._hear_of_workers)
        self._start_parts(at, orders)

    def ask(self, machine: int, **request: Any) -> Any:
        """Return the answer of a machine's part."""
        return self.ask_all({machine: request})[machine]

    def ask_all(
        self, requests: Mapping[int, dict[str, Any]], least: int | None = None
    ) -> dict[int, Any]:
        """Ask several machines at the same time; return their answers.

        Where one does not answer this raises its error, unless at least so many others do.
        """
        asked: dict[int, Any] = {}
        found: dict[int, Any] = {}
        failed: list[PillarboxError] = []
        for machine, request in requests.items():
            with _collected(failed), _no_answer_from(machine):
                require(machine in self._agents, f"machine {machine} is lost")
                asked[machine] = self._agents[machine].ask(request)
        for machine, answer in asked.items():
            with _collected(failed), _no_answer_from(machine):
                found[machine] = self._answer(machine, answer)
        if failed and (least is None or len(found) < least):
            raise failed[0]
        return found

    def _answer(self, machine: int, asked: Any) -> Any:
        """Return an answer; Dask itself would wait for that of a lost machine for ever."""
        deadline = time.monotonic() + ANSWER_S
        while True:
            try:
                return asked.result(timeout=LOOK_S)
            except TOO_LATE:
                require(machine in self._agents, f"machine {machine} is lost")
                if time.monotonic() > deadline:
                    raise

    def pid(self, machine: int) -> int:
        """Return the process of a machine's worker."""
        return self._workers[machine].pid

    def close(self) -> None:
        """End all parts, and then the cluster."""
        self._closing = True
        ends = []
        for agent in list(self._agents.values()):
            with suppress(*GONE):
                ends.append(agent.end())
        for end in ends:
            with suppress(*GONE):
                end.result(timeout=END_S)
        self._agents.clear()
        for worker in self._workers:
            worker.kill()
            worker.wait()
        if self._client is not None:
            for topic in self._topics:
                self._client.unsubscribe_topic(topic)
            self._client.close(timeout=END_S)
        if self._scheduler is not None:
            self._scheduler.close(timeout=END_S)
        if self._reader.is_alive():
            self._news.put(None)
            self._reader.join(END_S)

    # -- how -----------------------------------------------------------------------------------

    def _write_keys(self, security: Any) -> list[str]:
        """Write the workers' keys where only root reads; return how a worker is told of them."""
        words = []
        contents = security.get_tls_config_for_role("worker")
        for kind in ("ca_file", "cert", "key"):
            file = self._folder / f"tls-{kind}.pem"
            file.touch(0o600)
            file.write_text(contents[kind])
            words += [f"--tls-{kind.replace('_', '-')}", str(file)]
        return words

    def _worker(
        self, computer: Computer, machine: int, address: str, keys: list[str]
    ) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "distributed.cli.dask_worker", address, *keys]
        here = computer.addresses[machine]
        command += ["--name", str(machine), "--host", here, "--nthreads", "1", "--no-nanny"]
        # Without a dashboard there is its server still, which else listens everywhere.
        command += ["--no-dashboard", "--dashboard-address", f"{here}:0", "--memory-limit", "0"]
        command += ["--death-timeout", f"{JOIN_S:.0f}", "--local-directory", str(self._folder)]
        places = [str(Path(place).absolute()) for place in sys.path]
        told = {
            f"DASK_{key.upper().replace('.', '__')}": str(value) for key, value in CONFIG.items()
        }
        with computer.namespaces[machine], self._log(machine).open("wb") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=True,  # Ctrl-C is for the prompt
                env={**os.environ, **told, "PYTHONPATH": os.pathsep.join(places)},
            )

    def _log(self, machine: int) -> Path:
        return self._folder / f"machine{machine}.log"

    def _joined(self, machines: int) -> dict[int, str]:
        """Wait until all workers are there; return their addresses by machine."""
        deadline = time.monotonic() + JOIN_S
        while True:
            workers = self._client.scheduler_info(n_workers=-1)["workers"]
            at = {int(worker["name"]): address for address, worker in workers.items()}
            if len(at) == machines:
                return at
            ended = [m for m, worker in enumerate(self._workers) if worker.poll() is not None]
            missing = ended or [m for m in range(machines) if m not in at]
            require(
                not ended and time.monotonic() < deadline,
                f"the worker of machine {missing[0]} did not join: {self._last_words(missing[0])}",
            )
            time.sleep(0.02)

    def _last_words(self, machine: int) -> str:
        lines = self._log(machine).read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it left no message"

    def _start_parts(self, at: dict[int, str], orders: list[dict[str, Any]]) -> None:
        from experiments.machines.agent import NEWS, Agent

        self._subscribe(NEWS, self._hear_of_parts)
        futures = [
            self._client.submit(
                Agent, order, actor=True, workers=[at[machine]], pure=False, retries=0
            )
            for machine, order in enumerate(orders)
        ]
        for machine, future in enumerate(futures):
            try:
                self._agents[machine] = future.result(timeout=START_S)
            except GONE as error:
                raise PillarboxError(
                    f"the part of machine {machine} did not start: "
                    f"{str(error) or self._last_words(machine)}"
                ) from None

    # -- news ----------------------------------------------------------------------------------

    def _subscribe(self, topic: str, hear: Callable[[tuple[float, dict[str, Any]]], None]) -> None:
        self._client.subscribe_topic(topic, hear)
        self._topics.append(topic)

    def _hear_of_workers(self, event: tuple[float, dict[str, Any]]) -> None:
        _, said = event
        machine = self._machine_at.get(said.get("worker", ""))
        if said.get("action") == REMOVED and machine is not None and not self._closing:
            self._agents.pop(machine, None)
            self._news.put((machine, {"event": "lost"}))
        elif said.get("action") == ADDED and machine is not None:
            self._news.put((machine, {"event": "back"}))

    def _hear_of_parts(self, event: tuple[float, dict[str, Any]]) -> None:
        said = dict(event[1])
        self._news.put((said.pop("machine"), said))

    def _read_news(self) -> None:
        while (one := self._news.get()) is not None:
            self._on_news(*one)


@contextmanager
def _collected(errors: list[PillarboxError]) -> Iterator[None]:
    try:
        yield
    except PillarboxError as error:
        errors.append(error)


@contextmanager
def _no_answer_from(machine: int) -> Iterator[None]:
    """Say in a sentence that a machine was lost while it was asked."""
    try:
        yield
    except GONE as error:
        raise PillarboxError(f"machine {machine} does not answer: {error}") from None
