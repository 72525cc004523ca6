"""The machines of a lab as a Dask cluster: who is there, who is lost, and calls to their parts.

There is a worker on each machine, and an actor on each worker (`agent`); where the workers are from
is the ground's to say (`ground`). Workers run as root, since what they start makes namespaces.

A worker that was killed is noticed at once, by its connection; one that is stopped, or cut off,
when Dask has not heard from it for `SILENCE_S`. Without the scheduler all machines are lost.
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

from experiments.machines.ground import Ground
from topos.base.errors import PillarboxError, require

START_S, ANSWER_S, END_S = 120.0, 120.0, 10.0
LOOK_S = 0.1  # between two looks at whether who is asked is still there
LOOK_AT_SCHEDULER_S = 1.0
TOO_LATE = (TimeoutError, asyncio.TimeoutError)  # one, from Python 3.11 on
GONE = (OSError, RuntimeError, *TOO_LATE)  # what Dask raises of a worker that is
REMOVED, ADDED = "remove-worker", "add-worker"  # as Dask calls a worker's loss, and its coming

News = Callable[[int, dict[str, Any]], None]


class Cluster:
    """Workers on machines, and calls to their agents.

    Parameters
    ----------
    ground : Ground
        What gives the workers.
    on_news : callable
        Called with a machine and what happened there, ``{"event": "lost"}`` when it is lost; from
        a thread of its own, one after the other.
    """

    def __init__(self, ground: Ground, on_news: News) -> None:
        self._ground, self._on_news = ground, on_news
        self._agents: dict[int, Any] = {}
        self._lost: set[int] = set()
        self._at: list[str] = []  # the workers' addresses, by machine
        self._news: SimpleQueue[tuple[int, dict[str, Any]] | None] = SimpleQueue()
        self._reader = threading.Thread(target=self._read_news, daemon=True)
        self._client: Any = None
        self._topics: list[str] = []
        self.name = secrets.token_hex(8)  # of this lab, among all that the machines ever carried
        self._closing = False

    def open(self, folder: Path, mtu: int) -> None:
        """Find the workers; the folder is the lab's, the MTU that of its packets."""
        logging.getLogger("distributed").setLevel(logging.CRITICAL)  # what is lost we say ourselves
        self._client, self._at = self._ground.open(folder, mtu)
        self._reader.start()
        self._subscribe("all", self._hear_of_workers)

    def facts(self, machines: Sequence[int] | None = None) -> list[dict[str, Any]]:
        """Return what there is to know of each machine, or of these."""
        from experiments.machines.agent import facts

        wanted = range(len(self._at)) if machines is None else machines
        asked = [
            self._client.submit(facts, workers=[self._at[machine]], pure=False)
            for machine in wanted
        ]
        found = []
        for machine, future in zip(wanted, asked, strict=True):
            with _no_answer_from(machine):
                found.append(future.result(timeout=START_S))
        return found

    def start(self, orders: Mapping[int, dict[str, Any]]) -> None:
        """Start with each order that machine's part."""
        from experiments.machines.agent import NEWS, Agent

        if NEWS not in self._topics:
            self._subscribe(NEWS, self._hear_of_parts)
        self._lost -= orders.keys()
        futures = {
            machine: self._client.submit(
                Agent, order, actor=True, workers=[self._at[machine]], pure=False, retries=0
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
        """Let a lost machine's worker be another one from now on."""
        self._at[machine] = worker

    def actors(self, kind: type) -> list[Any]:
        """Return an actor of a kind on each machine."""
        asked = [
            self._client.submit(kind, actor=True, workers=[address], pure=False)
            for address in self._at
        ]
        found = []
        for machine, future in enumerate(asked):
            with _no_answer_from(machine):
                found.append(future.result(timeout=START_S))
        return found

    def worker_at(self, machine: int) -> str:
        """Return where a machine's worker listens."""
        return self._at[machine]

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

    def answer(self, machine: int, asked: Any) -> Any:
        """Return what an actor on a machine answers."""
        with _no_answer_from(machine):
            return self._answer(machine, asked)

    def _answer(self, machine: int, asked: Any) -> Any:
        """Return an answer; Dask itself would wait for that of a lost machine for ever."""
        deadline = time.monotonic() + ANSWER_S
        while True:
            try:
                return asked.result(timeout=LOOK_S)
            except TOO_LATE:
                require(machine not in self._lost, f"machine {machine} is lost")
                if time.monotonic() > deadline:
                    raise

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
        if self._client is not None:
            for topic in self._topics:
                self._client.unsubscribe_topic(topic)
            self._client.close(timeout=END_S)
        self._ground.close()
        if self._reader.is_alive():
            self._news.put(None)
            self._reader.join(END_S)

    # -- news ----------------------------------------------------------------------------------

    def _subscribe(self, topic: str, hear: Callable[[tuple[float, dict[str, Any]]], None]) -> None:
        self._client.subscribe_topic(topic, hear)
        self._topics.append(topic)

    def _hear_of_workers(self, event: tuple[float, dict[str, Any]]) -> None:
        _, said = event
        worker = said.get("worker", "")
        if worker not in self._at:
            return
        machine = self._at.index(worker)
        if said.get("action") == REMOVED:
            self._lose(machine)
        elif said.get("action") == ADDED:
            self._news.put((machine, {"event": "back"}))

    def _hear_of_parts(self, event: tuple[float, dict[str, Any]]) -> None:
        said = dict(event[1])
        machine, lab = said.pop("machine"), said.pop("lab")
        if lab != self.name:  # another one's, earlier
            return
        if said["event"] == "lost":
            self._lose(machine)
        else:
            self._news.put((machine, said))

    def _lose(self, machine: int) -> None:
        self._agents.pop(machine, None)
        if machine not in self._lost and not self._closing:
            self._lost.add(machine)
            self._news.put((machine, {"event": "lost"}))

    def _read_news(self) -> None:
        while True:
            try:
                one = self._news.get(timeout=LOOK_AT_SCHEDULER_S)
            except Empty:
                self._look_at_scheduler()
                continue
            if one is None:
                return
            self._on_news(*one)

    def _look_at_scheduler(self) -> None:
        """Give up all machines when the scheduler is gone: its workers go as well."""
        if self._client.status != "running":
            for machine in range(len(self._at)):
                self._lose(machine)


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
