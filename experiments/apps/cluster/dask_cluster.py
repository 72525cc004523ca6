"""A lab's machines as a Dask cluster: live and lost machines, and calls to their parts.

Each machine has a worker, and each worker an actor (`agent`). The provider supplies the workers
(`ground`). Workers run as root, since their parts create namespaces.

The death of a worker is noticed immediately, by its closed connection; a worker that is stopped or
disconnected is noticed when Dask has not heard from it for `SILENCE_S`. Without the scheduler all
machines are lost.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from pillarbox.experiments.apps.cluster.machine_provider import MachineProvider
from pillarbox.topos.base.errors import PillarboxError, require

START_S, ANSWER_S, END_S = 120.0, 120.0, 10.0
LOOK_S = 0.1  # interval of checks that a machine is alive while it answers, in seconds
LOOK_AT_SCHEDULER_S = 1.0
TOO_LATE = (TimeoutError, asyncio.TimeoutError)  # timeouts: one class since Python 3.11
GONE = (OSError, RuntimeError, *TOO_LATE)  # exceptions of Dask for a worker that does not answer
REMOVED, ADDED = "remove-worker", "add-worker"  # Dask's event names for a worker's loss and arrival

News = Callable[[int, dict[str, Any]], None]


class Cluster:
    """Connection to Dask workers on a lab's machines, which run the lab's parts.

    Parameters
    ----------
    ground : MachineProvider
        Provider of the workers.
    on_news : callable
        Called with a machine and an event there, ``{"event": "lost"}`` when the machine is lost;
        calls come from a background thread, one at a time.
    """

    def __init__(self, ground: MachineProvider, on_news: News) -> None:
        self._ground, self._on_news = ground, on_news
        self._agents: dict[int, Any] = {}
        self._lost: set[int] = set()
        self._addresses: list[str] = []  # addresses of the Dask workers, by machine number
        self._news: SimpleQueue[tuple[int, dict[str, Any]] | None] = SimpleQueue()
        self._reader = threading.Thread(target=self._read_events, daemon=True)
        self._client: Any = None
        self._topics: list[str] = []
        self.name = secrets.token_hex(8)  # unique name of this lab on its machines
        self._closing = False

    def open(self, folder: Path, mtu: int) -> None:
        """Connect to the Dask workers of a lab's machines."""
        # the lab reports lost machines itself, not Dask's log
        logging.getLogger("distributed").setLevel(logging.CRITICAL)
        self._client, self._addresses = self._ground.open(folder, mtu)
        self._reader.start()
        self._subscribe("all", self._on_worker_event)

    def facts(self, machines: Sequence[int] | None = None) -> list[dict[str, Any]]:
        """Return hardware, kernel, network card and software version of machines (default: all)."""
        from pillarbox.experiments.apps.cluster.worker_agent import facts

        wanted = range(len(self._addresses)) if machines is None else machines
        asked = [
            self._client.submit(facts, workers=[self._addresses[machine]], pure=False)
            for machine in wanted
        ]
        found = []
        for machine, future in zip(wanted, asked, strict=True):
            with _reporting_lost_worker(machine):
                found.append(future.result(timeout=START_S))
        return found

    def start(self, orders: Mapping[int, dict[str, Any]]) -> None:
        """Start the part of a lab on each machine for which there is an order."""
        from pillarbox.experiments.apps.cluster.worker_agent import NEWS, LabPartActor

        if NEWS not in self._topics:
            self._subscribe(NEWS, self._on_part_event)
        self._lost -= orders.keys()
        futures = {
            machine: self._client.submit(
                LabPartActor,
                order,
                actor=True,
                workers=[self._addresses[machine]],
                pure=False,
                retries=0,
            )
            for machine, order in orders.items()
        }
        for machine, future in futures.items():
            try:
                agent = future.result(timeout=START_S)
                if machine not in self._lost:
                    self._agents[machine] = agent
            except GONE as error:
                raise PillarboxError(
                    f"the part of machine {machine} did not start: "
                    f"{str(error) or self._ground.last_words(machine)}"
                ) from None

    def move(self, machine: int, worker: str) -> None:
        """Assign the Dask worker of an unused machine to the number of a lost machine."""
        self._addresses[machine] = worker

    def actors(self, kind: type) -> list[Any]:
        """Create a Dask actor of a class on each machine; return all actors."""
        asked = [
            self._client.submit(kind, actor=True, workers=[address], pure=False)
            for address in self._addresses
        ]
        found = []
        for machine, future in enumerate(asked):
            with _reporting_lost_worker(machine):
                found.append(future.result(timeout=START_S))
        return found

    def worker_at(self, machine: int) -> str:
        """Return the address of a machine's worker."""
        return self._addresses[machine]

    def ask(self, machine: int, **request: Any) -> Any:
        """Send a request to the part of the lab on a machine; return its answer."""
        return self.ask_all({machine: request})[machine]

    def ask_all(
        self, requests: Mapping[int, dict[str, Any]], least: int | None = None
    ) -> dict[int, Any]:
        """Send requests to the lab's parts on several machines in parallel; return their answers.

        A failed request raises its error, unless at least `least` other machines answer.
        """
        asked: dict[int, Any] = {}
        found: dict[int, Any] = {}
        failed: list[PillarboxError] = []
        for machine, request in requests.items():
            with _errors_appended_to(failed), _reporting_lost_worker(machine):
                require(machine in self._agents, f"machine {machine} is lost")
                asked[machine] = self._agents[machine].ask(request)
        for machine, answer in asked.items():
            with _errors_appended_to(failed), _reporting_lost_worker(machine):
                found[machine] = self._answer(machine, answer)
        if failed and (least is None or len(found) < least):
            raise failed[0]
        return found

    def answer(self, machine: int, asked: Any) -> Any:
        """Wait for a Dask actor's result; raise PillarboxError if its machine is lost."""
        with _reporting_lost_worker(machine):
            return self._answer(machine, asked)

    def _answer(self, machine: int, asked: Any) -> Any:
        """Wait for a Dask actor's result, unlike Dask only until its machine is lost."""
        deadline = time.monotonic() + ANSWER_S
        while True:
            try:
                return asked.result(timeout=LOOK_S)
            except TOO_LATE:
                require(machine not in self._lost, f"machine {machine} is lost")
                if time.monotonic() > deadline:
                    raise

    def close(self) -> None:
        """End the lab's parts on all machines, then disconnect from the cluster."""
        self._closing = True
        ends = []
        for agent in list(self._agents.values()):
            with suppress(*GONE):
                ends.append(agent.end())
        for end in ends:
            with suppress(*GONE):
                end.result(timeout=END_S)
        self._agents.clear()
        if self._client is not None:
            for topic in self._topics:
                self._client.unsubscribe_topic(topic)
            self._client.close(timeout=END_S)
        self._ground.close()
        if self._reader.is_alive():
            self._news.put(None)
            self._reader.join(END_S)

    # -- events ------------------------------------------------------------------------------------

    def _subscribe(self, topic: str, hear: Callable[[tuple[float, dict[str, Any]]], None]) -> None:
        self._client.subscribe_topic(topic, hear)
        self._topics.append(topic)

    def _on_worker_event(self, event: tuple[float, dict[str, Any]]) -> None:
        _, said = event
        worker = said.get("worker", "")
        if worker not in self._addresses:
            return
        machine = self._addresses.index(worker)
        if said.get("action") == REMOVED:
            self._mark_as_lost(machine)
        elif said.get("action") == ADDED:
            self._news.put((machine, {"event": "back"}))

    def _on_part_event(self, event: tuple[float, dict[str, Any]]) -> None:
        said = dict(event[1])
        machine, lab = said.pop("machine"), said.pop("lab")
        if lab != self.name:  # event of an earlier lab on the same machines
            return
        if said["event"] == "lost":
            self._mark_as_lost(machine)
        else:
            self._news.put((machine, said))

    def _mark_as_lost(self, machine: int) -> None:
        self._agents.pop(machine, None)
        if machine not in self._lost and not self._closing:
            self._lost.add(machine)
            self._news.put((machine, {"event": "lost"}))

    def _read_events(self) -> None:
        while True:
            try:
                one = self._news.get(timeout=LOOK_AT_SCHEDULER_S)
            except Empty:
                self._check_scheduler()
                continue
            if one is None:
                return
            self._on_news(*one)

    def _check_scheduler(self) -> None:
        """Mark all machines as lost if the scheduler is gone, since its workers end as well."""
        if self._client.status != "running":
            for machine in range(len(self._addresses)):
                self._mark_as_lost(machine)


@contextmanager
def _errors_appended_to(errors: list[PillarboxError]) -> Iterator[None]:
    try:
        yield
    except PillarboxError as error:
        errors.append(error)


@contextmanager
def _reporting_lost_worker(machine: int) -> Iterator[None]:
    """Convert Dask's exception for a lost worker into PillarboxError."""
    try:
        yield
    except GONE as error:
        raise PillarboxError(f"machine {machine} does not answer: {error}") from None
