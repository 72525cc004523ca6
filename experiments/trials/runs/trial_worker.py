"""The process of one trial: a lab of its own, traffic, faults, and what was seen of them.

It is a fresh process, because its parent may have threads, and a process with threads is not to be
forked. It dies with its parent, and with it everything in its sandbox.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from experiments.traffic.collectives.tool import Collective
from experiments.traffic.flows import Tool
from experiments.trials.runs.manifest import moment
from experiments.trials.runs.order import TrialMeasurements, TrialOrder
from hosts.linux.calls import die_with_parent
from topos.base.errors import PillarboxError, require
from topos.base.spec import parse

if TYPE_CHECKING:
    from experiments.emulation.lab import Lab
    from experiments.trials.runs.recorded_paths import PathSampler
    from experiments.trials.trust.watch import Watch

LOOK_S = 0.05
TELL_S = 0.25
# The kernel moves packets in a thread of its own when there are many, and programs must not keep it
# from that: a trial's are this much nicer than threads are by themselves.
NICENESS = 10
GRACE_S = 10.0  # beyond its time limit, for a tool to call its flows failed by itself


Run = Callable[[TrialOrder, Any, Path], TrialMeasurements]


def main(descriptor: int, parent: int, run: Run | None = None) -> None:
    """Take the order from a connection, carry it out, and send what came of it."""
    die_with_parent(signal.SIGKILL)
    if os.getppid() != parent:  # it died before the kernel was asked to watch
        return
    connection = Connection(descriptor)
    order: TrialOrder = connection.recv()
    try:
        from experiments.emulation import lab_registry
        from experiments.linux import sandbox

        place = lab_registry.take_place()
        if not order.trial.system.cluster:  # else nothing of the lab is on this machine
            sandbox.enter()
        os.nice(NICENESS)
        with ExitStack() as stack:
            stack.callback(lab_registry.leave, place)
            outcome: tuple[str, Any] = (
                "measured",
                (run or run_trial)(order, connection, place.folder),
            )
    except PillarboxError as error:
        outcome = ("failed", str(error))
    except KeyboardInterrupt:
        outcome = ("stopped", None)
    except Exception as error:  # noqa: BLE001 - a trial that fails is a result, not a crash
        # A sentence for the record here, the rest for the trial's log.
        sys.excepthook(*sys.exc_info())
        outcome = ("failed", f"{type(error).__name__}: {error}")
    connection.send(outcome)


def run_trial(order: TrialOrder, connection: Any, folder: Path) -> TrialMeasurements:
    """Run one trial where we are; return what was seen."""
    from experiments.emulation.lab import running

    trial = order.trial
    connection.send(("phase", "starting servers"))
    topology = parse(trial.system.network)
    with running(topology, trial.system, folder, trial.seed) as lab:
        connection.send(("phase", "servers find their neighbours"))
        lab.wait_converged()
        return measured_in(lab, order, connection.send)


def measured_in(
    lab: Lab,
    order: TrialOrder,
    tell: Callable[[tuple[Any, ...]], object],
    begun: Callable[[Tool, Watch, PathSampler, float], object] = lambda *_: None,
) -> TrialMeasurements:
    """Send the flows of a trial in a lab that runs, make its faults, and return what was seen.

    `begun` is called with the tool, the watch, the sampler of paths and the barrier when flows
    begin, so that the caller can look at them meanwhile.
    """
    from experiments.trials.runs.recorded_paths import PathSampler, live_paths
    from experiments.trials.runs.trial_backend import means_of
    from experiments.trials.runs.trial_faults import Faulting

    means = means_of(lab)
    with ExitStack() as stack:
        tell(("phase", "connecting"))
        facts = means.prepare()
        tool = stack.enter_context(closing(means.tool(order)))
        tool.prepare()
        come_and_go = order.workload.arrivals is not None
        watch = stack.enter_context(means.watch(come_and_go=come_and_go))
        news: SimpleQueue[str] = SimpleQueue()  # by a thread, and a connection has one user
        faulting = Faulting(lab, order.faults, news.put)
        sampler = PathSampler(lab, () if come_and_go else order.flows)
        began = moment()
        at_s = began["monotonic_s"] = began["monotonic_s"] + means.lead_s
        watch.begin(at_s)
        faulting.begin(at_s)
        tool.start(at_s)
        tell(("phase", "sending"))
        begun(tool, watch, sampler, at_s)
        try:
            _follow(tool, news, sampler, at_s, order.workload.timeout_s, tell)
            readings = watch.end()
        finally:
            events = faulting.end()
        results = tool.results()
        paths, back = live_paths(lab, [result.flow for result in results])
        return TrialMeasurements(
            routing=lab.routing,
            plane=lab.plane,
            tool=tool.name,
            tool_versions=tool.versions(),
            began=began,
            results=tuple(results),
            paths=paths,
            back=back,
            events=tuple(events),
            readings=readings,
            lab=facts,
            uniform=not lab.net.shapes.changed,
            steps=tuple(tool.steps()) if isinstance(tool, Collective) else (),
            sampled=tuple(sampler.samples),
            log=tuple((lab.folder / "events.jsonl").read_text().splitlines()),
        )


def _follow(
    tool: Tool,
    events: SimpleQueue[str],
    sampler: PathSampler,
    at_s: float,
    timeout_s: float,
    tell: Callable[[tuple[Any, ...]], object],
) -> None:
    """Wait until all flows have ended, and say meanwhile how far they are."""
    told_s = at_s
    while not tool.ended():
        now = time.monotonic()
        require(
            now < at_s + timeout_s + GRACE_S,
            f"{tool.name} did not end within {timeout_s:g} s, nor {GRACE_S:g} s later: the machine "
            "is too slow for these flows; choose a lower rate or fewer flows",
        )
        while not events.empty():
            tell(("event", events.get()))
        sampler.look(now - at_s)
        if now >= told_s:
            tell(("progress", now - at_s, list(tool.progress())))
            told_s = now + TELL_S
        time.sleep(LOOK_S)
    tell(("progress", time.monotonic() - at_s, list(tool.progress())))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
