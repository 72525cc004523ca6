"""Trials of an experiment spread over a cluster: each whole on one machine, all machines at work.

A block of trials (each system once) goes to one machine, so that what is compared was measured by
the same one. Whoever runs the experiment asks for trials in their order, and writes each down; what
machines have finished ahead of that waits here. A machine that is lost gives its block back.

On each worker an actor has the process of one trial. When the actor goes, since its caller has
gone, the process is killed, and with it all that is in its sandbox.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import tempfile
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from experiments.machines.cluster import GONE, Cluster
from experiments.machines.joined import code
from experiments.machines.named import NamedCluster
from experiments.trials.plans.trials import Trial
from experiments.trials.runs.order import Measured, Order
from experiments.trials.runs.trial import Shown, TrialError, measure
from topos.base.errors import PillarboxError, require

LOOK_S = 0.25
GONE_OR_SAID = (*GONE, PillarboxError)
Make = Callable[[Trial], Order]


class Ended(NamedTuple):
    """What came of a trial: what was measured, or why not; what was printed; and where."""

    found: Measured | None
    why: str
    printed: str
    host: str = ""


# -- there ---------------------------------------------------------------------------------------


class Bench:
    """A Dask actor: carries out one trial after the other on its worker's machine."""

    def __init__(self) -> None:
        self._process: list[subprocess.Popen[bytes]] = []
        self._ended: list[Ended] = []
        weakref.finalize(self, _kill, self._process)

    async def begin(self, order: Order) -> None:
        """Begin a trial, in a thread that does not hold the actor."""
        self._process.clear()
        self._ended.clear()
        arguments = order, self._process, self._ended
        threading.Thread(target=_carry_out, args=arguments, daemon=True).start()

    async def look(self) -> Ended | None:
        """Return what came of the trial, None as long as it runs."""
        return self._ended[0] if self._ended else None

    async def end(self) -> None:
        """End the trial that runs."""
        await asyncio.to_thread(_kill, self._process)


def _carry_out(order: Order, process: list[subprocess.Popen[bytes]], ended: list[Ended]) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch) / "log"
        log.touch()
        found, why = None, ""
        try:
            found = measure(order, Shown(), log, process.append)
        except TrialError as error:
            why = str(error)
        except KeyboardInterrupt:
            why = "it was stopped"
        ended.append(Ended(found, why, log.read_text(errors="replace")))


def _kill(process: Sequence[subprocess.Popen[bytes]]) -> None:
    for one in process:
        if one.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(one.pid, signal.SIGKILL)


# -- here ----------------------------------------------------------------------------------------


class Spread:
    """Has trials carried out on all machines of a cluster; use it in ``with``.

    Parameters
    ----------
    name : str
        The cluster.
    blocks : iterable of lists of Trial
        What is left to be done.
    make : callable
        Returns a trial's order.
    """

    def __init__(self, name: str, blocks: Iterable[Sequence[Trial]], make: Make) -> None:
        self._ground = NamedCluster(name, partly=True)
        self._cluster = Cluster(self._ground, self._hear)
        self._make = make
        self._blocks = deque(map(list, blocks))
        self._known = {trial.number for block in self._blocks for trial in block}
        self._ended: dict[int, Ended] = {}
        self._changed = threading.Condition()
        self._living: set[int] = set()
        self._closing = False
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Spread:
        try:
            self._cluster.open(Path(), 0)
            facts = self._cluster.facts()
            odd = [one["host"] for one in facts if one["code"] != code() or not one["root"]]
            require(
                not odd,
                f"{', '.join(odd)} has another version of Pillarbox, or it is no root there: "
                "`cluster status` tells",
            )
            benches = self._cluster.actors(Bench)
        except BaseException:
            self.close()
            raise
        self._living = set(range(len(benches)))
        for machine, bench in enumerate(benches):
            arguments = machine, "{host} ({address})".format(**facts[machine]), bench
            self._threads.append(threading.Thread(target=self._work, args=arguments, daemon=True))
            self._threads[-1].start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def measure(self, order: Order, live: Shown, log: Path) -> Measured:
        """Return what came of a trial, when it is there; raise TrialError where it failed."""
        number = order.trial.number
        with self._changed:
            if number not in self._known:  # one that was not planned: a result is not precise yet
                self._known.add(number)
                self._blocks.append([order.trial])
                self._changed.notify_all()
            live.phase(f"machines at work: {len(self._living)}")
            while number not in self._ended:
                require(
                    bool(self._living),
                    f"all machines of cluster {self._ground.name!r} are lost: start it anew, and "
                    "then go on with --resume; what was finished is kept",
                )
                self._changed.wait(LOOK_S)
            ended = self._ended.pop(number)
        log.write_text(f"on {ended.host}\n{ended.printed}")
        if ended.found is None:
            raise TrialError(ended.why)
        return ended.found

    def close(self) -> None:
        """End what runs, and let go of the cluster."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        self._cluster.close()

    def _hear(self, machine: int, said: dict[str, Any]) -> None:
        if said["event"] == "lost":
            with self._changed:
                self._living.discard(machine)
                self._changed.notify_all()

    def _work(self, machine: int, host: str, bench: Any) -> None:
        """Let a machine do block after block."""
        while (block := self._next(machine)) is not None:
            while block and self._is_wanted(machine):
                ended = self._done(machine, bench, block[0])
                if ended is None:
                    break
                with self._changed:
                    self._ended[block.pop(0).number] = ended._replace(host=host)
                    self._changed.notify_all()
            if block:
                with self._changed:
                    self._blocks.appendleft(block)
                    self._changed.notify_all()

    def _next(self, machine: int) -> list[Trial] | None:
        with self._changed:
            while self._is_wanted(machine):
                if self._blocks:
                    return self._blocks.popleft()
                self._changed.wait()
        return None

    def _is_wanted(self, machine: int) -> bool:
        return machine in self._living and not self._closing

    def _done(self, machine: int, bench: Any, trial: Trial) -> Ended | None:
        """Return what came of a trial, None where its machine was lost, or it is over."""
        order = self._make(trial)
        there = trial._replace(system=replace(trial.system, cluster=""))  # a trial as any
        answer = self._cluster.answer
        try:
            answer(machine, bench.begin(replace(order, trial=there)))
            while self._is_wanted(machine):
                found: Ended | None = answer(machine, bench.look())
                if found is not None:
                    return found
                time.sleep(LOOK_S)
            answer(machine, bench.end())
        except GONE_OR_SAID:
            self._hear(machine, {"event": "lost"})
        return None
