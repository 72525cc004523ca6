"""Distribution of an experiment's trials over a cluster: each trial runs whole on one machine.

A block of trials (each system once) goes to one machine, so that compared results come from the
same machine. The experiment requests trials in its own order and records each result; results that
are finished early wait here. The block of a lost machine is returned to the queue.

An actor on each worker owns the process of one trial. When the caller is gone, Dask releases the
actor, and the actor's finalizer kills the process with everything in its sandbox.
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

from pillarbox.experiments.apps.cluster.cluster_registry import NamedCluster
from pillarbox.experiments.apps.cluster.dask_cluster import GONE, Cluster
from pillarbox.experiments.apps.cluster.dask_process import source_hash
from pillarbox.experiments.runs.plans.trials import Trial
from pillarbox.experiments.runs.trials.order import TrialMeasurements, TrialOrder
from pillarbox.experiments.runs.trials.trial_process import TrialDisplay, TrialError, measure
from pillarbox.topos.base.errors import PillarboxError, require

LOOK_S = 0.25
GONE_OR_SAID = (*GONE, PillarboxError)
Make = Callable[[Trial], TrialOrder]


class TrialOutcome(NamedTuple):
    """Outcome of a trial: measurements or an error, the printed text and the host."""

    found: TrialMeasurements | None
    why: str
    printed: str
    host: str = ""


# -- on each machine -------------------------------------------------------------------------------


class TrialActor:
    """Dask actor that runs trials, one at a time, on its worker's machine."""

    def __init__(self) -> None:
        self._process: list[subprocess.Popen[bytes]] = []
        self._ended: list[TrialOutcome] = []
        weakref.finalize(self, _kill, self._process)

    async def begin(self, order: TrialOrder) -> None:
        """Start a trial in a thread, so that the actor can answer requests meanwhile."""
        self._process.clear()
        self._ended.clear()
        arguments = order, self._process, self._ended
        threading.Thread(target=_carry_out, args=arguments, daemon=True).start()

    async def look(self) -> TrialOutcome | None:
        """Return the outcome of the trial, None while it runs."""
        return self._ended[0] if self._ended else None

    async def end(self) -> None:
        """Kill the process of the running trial."""
        await asyncio.to_thread(_kill, self._process)


def _carry_out(
    order: TrialOrder, process: list[subprocess.Popen[bytes]], ended: list[TrialOutcome]
) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch) / "log"
        log.touch()
        found, why = None, ""
        try:
            found = measure(order, TrialDisplay(), log, process.append)
        except TrialError as error:
            why = str(error)
        except KeyboardInterrupt:
            why = "it was stopped"
        ended.append(TrialOutcome(found, why, log.read_text(errors="replace")))


def _kill(process: Sequence[subprocess.Popen[bytes]]) -> None:
    for one in process:
        if one.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(one.pid, signal.SIGKILL)


# -- in the experiment's process -------------------------------------------------------------------


class TrialDistributor:
    """Runs trials on all machines of a cluster; a context manager.

    Parameters
    ----------
    name : str
        Name of the cluster.
    blocks : iterable of lists of Trial
        Blocks of trials that are left to be run.
    make : callable
        Returns the order of a trial.
    """

    def __init__(self, name: str, blocks: Iterable[Sequence[Trial]], make: Make) -> None:
        self._ground = NamedCluster(name, partly=True)
        self._cluster = Cluster(self._ground, self._on_event)
        self._make = make
        self._blocks = deque(map(list, blocks))
        self._known = {trial.number for block in self._blocks for trial in block}
        self._ended: dict[int, TrialOutcome] = {}
        self._changed = threading.Condition()
        self._living: set[int] = set()
        self._closing = False
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> TrialDistributor:
        try:
            self._cluster.open(Path(), 0)
            facts = self._cluster.facts()
            odd = [one["host"] for one in facts if one["code"] != source_hash() or not one["root"]]
            require(
                not odd,
                f"{', '.join(odd)} has another version of Pillarbox, or Pillarbox is not root "
                "there: see `cluster status`",
            )
            benches = self._cluster.actors(TrialActor)
        except BaseException:
            self.close()
            raise
        self._living = set(range(len(benches)))
        for machine, bench in enumerate(benches):
            arguments = machine, "{host} ({address})".format(**facts[machine]), bench
            self._threads.append(
                threading.Thread(target=self._run_blocks, args=arguments, daemon=True)
            )
            self._threads[-1].start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def measure(self, order: TrialOrder, live: TrialDisplay, log: Path) -> TrialMeasurements:
        """Wait for a trial on a cluster's machines; return its measurements or raise its error."""
        number = order.trial.number
        with self._changed:
            # a trial that was added because the results are not precise enough
            if number not in self._known:
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
        """End running trials, and disconnect from the cluster."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        self._cluster.close()

    def _on_event(self, machine: int, said: dict[str, Any]) -> None:
        if said["event"] == "lost":
            with self._changed:
                self._living.discard(machine)
                self._changed.notify_all()

    def _run_blocks(self, machine: int, host: str, bench: Any) -> None:
        """Run blocks of trials on a machine until none is left; requeue an unfinished block."""
        while (block := self._next_block(machine)) is not None:
            while block and self._is_wanted(machine):
                ended = self._outcome(machine, bench, block[0])
                if ended is None:
                    break
                with self._changed:
                    self._ended[block.pop(0).number] = ended._replace(host=host)
                    self._changed.notify_all()
            if block:
                with self._changed:
                    self._blocks.appendleft(block)
                    self._changed.notify_all()

    def _next_block(self, machine: int) -> list[Trial] | None:
        with self._changed:
            while self._is_wanted(machine):
                if self._blocks:
                    return self._blocks.popleft()
                self._changed.wait()
        return None

    def _is_wanted(self, machine: int) -> bool:
        return machine in self._living and not self._closing

    def _outcome(self, machine: int, bench: Any, trial: Trial) -> TrialOutcome | None:
        """Return the outcome of a trial, None if its machine was lost or the experiment is over."""
        order = self._make(trial)
        # the machine runs the trial like a single computer
        there = trial._replace(system=replace(trial.system, cluster=""))
        answer = self._cluster.answer
        try:
            answer(machine, bench.begin(replace(order, trial=there)))
            while self._is_wanted(machine):
                found: TrialOutcome | None = answer(machine, bench.look())
                if found is not None:
                    return found
                time.sleep(LOOK_S)
            answer(machine, bench.end())
        except GONE_OR_SAID:
            self._on_event(machine, {"event": "lost"})
        return None
