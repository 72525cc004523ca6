"""Worker process of one trial: starts a lab, sends the traffic, injects faults, and measures.

The worker is a fresh process, because a parent with threads must not be forked. It dies with its
parent, and all processes in its sandbox die with it.
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

from pillarbox.experiments.lab.traffic.collective_tool import Collective
from pillarbox.experiments.models.workloads.flows import Tool
from pillarbox.experiments.runs.trials.manifest import moment
from pillarbox.experiments.runs.trials.order import TrialMeasurements, TrialOrder
from pillarbox.hosts.linux.calls import die_with_parent
from pillarbox.topos.base.errors import PillarboxError, require

if TYPE_CHECKING:
    from pillarbox.experiments.lab.emulation.lab import Lab
    from pillarbox.experiments.lab.emulation.packet_log import PacketRecorder
    from pillarbox.experiments.runs.trials.recorded_paths import PathSampler
    from pillarbox.experiments.runs.trust.watch import TrialWatch

LOOK_S = 0.05  # Interval between two checks of the flows' progress, in seconds.
TELL_S = 0.25  # Interval between two progress messages, in seconds.
# Niceness of a trial's programs. At high packet rates the kernel forwards packets in a thread
# (ksoftirqd), which programs must not delay.
NICENESS = 10
# Time after a tool's time limit in which the tool must report its flows as failed, in seconds.
GRACE_S = 10.0


Run = Callable[[TrialOrder, Any, Path], TrialMeasurements]


def main(descriptor: int, parent: int, run: Run | None = None) -> None:
    """Run the worker process: receive an order, run the trial, and send the measurements."""
    die_with_parent(signal.SIGKILL)
    if os.getppid() != parent:  # The parent died before this process asked to die with it.
        return
    connection = Connection(descriptor)
    order: TrialOrder = connection.recv()
    try:
        from pillarbox.experiments.lab.emulation import lab_registry
        from pillarbox.experiments.lab.linux import sandbox

        place = lab_registry.create_lab_folder()
        if not order.trial.system.cluster:  # A cluster's lab has no node on this machine.
            sandbox.enter()
        os.nice(NICENESS)
        with ExitStack() as stack:
            stack.callback(lab_registry.remove_lab_folder, place)
            outcome: tuple[str, Any] = (
                "measured",
                (run or run_trial)(order, connection, place.folder),
            )
    except PillarboxError as error:
        outcome = ("failed", str(error))
    except KeyboardInterrupt:
        outcome = ("stopped", None)
    except Exception as error:  # noqa: BLE001 - a trial that fails is a result, not a crash
        # The trial's log gets the traceback, the record gets one sentence.
        sys.excepthook(*sys.exc_info())
        outcome = ("failed", f"{type(error).__name__}: {error}")
    connection.send(outcome)


def run_trial(order: TrialOrder, connection: Any, folder: Path) -> TrialMeasurements:
    """Run one trial of an experiment in this process; return its measurements."""
    from pillarbox.experiments.lab.emulation.local_fabric import running

    trial = order.trial
    connection.send(("phase", "starting servers"))
    with running(order.topology, trial.system, folder, trial.seed) as lab:
        connection.send(("phase", "servers find their neighbours"))
        lab.wait_converged()
        return measured_in(lab, order, connection.send)


def measured_in(
    lab: Lab,
    order: TrialOrder,
    send: Callable[[tuple[Any, ...]], object],
    begun: Callable[[Tool, TrialWatch, PathSampler, float], object] = lambda *_: None,
) -> TrialMeasurements:
    """Send the flows of a trial in a running lab, inject its faults, and return measurements.

    `begun` is called with the tool, the watch, the path sampler and the time of the barrier when
    flows begin, so that the caller can observe the trial.
    """
    from pillarbox.experiments.runs.trials.recorded_paths import PathSampler, live_paths
    from pillarbox.experiments.runs.trials.trial_backend import backend_of
    from pillarbox.experiments.runs.trials.trial_faults import FaultInjector

    backend = backend_of(lab)
    with ExitStack() as stack:
        send(("phase", "connecting"))
        facts = backend.prepare()
        tool = stack.enter_context(closing(backend.tool(order)))
        tool.prepare()
        recorder = stack.enter_context(_recorder(lab, order)) if order.log_packets else None
        come_and_go = order.workload.arrivals is not None
        watch = stack.enter_context(backend.watch(come_and_go=come_and_go))
        # Events come from a thread, and only this thread may use the connection.
        event_lines: SimpleQueue[str] = SimpleQueue()
        faulting = FaultInjector(lab, order.faults, event_lines.put)
        sampler = PathSampler(lab, () if come_and_go else order.flows)
        began = moment()
        at_s = began["monotonic_s"] = began["monotonic_s"] + backend.lead_s
        watch.begin(at_s)
        faulting.begin(at_s)
        tool.start(at_s)
        send(("phase", "sending"))
        begun(tool, watch, sampler, at_s)
        try:
            _wait_for_flows(tool, event_lines, sampler, at_s, order.workload.timeout_s, send)
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
            packets=recorder.sightings() if recorder else None,
            log=tuple((lab.folder / "events.jsonl").read_text().splitlines()),
        )


def _recorder(lab: Lab, order: TrialOrder) -> PacketRecorder:
    """Return the started recorder of a trial's packets, with memory for its flows."""
    from pillarbox.experiments.lab.emulation.packet_log import PacketRecorder

    rate_bytes_s, mtu = (lab.settings.rate_mbit or 0.0) * 125_000, lab.settings.mtu
    sent = (
        one.volume_bytes if one.volume_bytes is not None else (one.duration_s or 0.0) * rate_bytes_s
        for one in order.flows
    )
    return PacketRecorder(lab, sum(1 + int(volume / mtu) for volume in sent))


def _wait_for_flows(
    tool: Tool,
    events: SimpleQueue[str],
    sampler: PathSampler,
    at_s: float,
    timeout_s: float,
    send: Callable[[tuple[Any, ...]], object],
) -> None:
    """Wait until all flows of a tool have ended, and send progress messages."""
    next_report_s = at_s
    while not tool.ended():
        now = time.monotonic()
        require(
            now < at_s + timeout_s + GRACE_S,
            f"{tool.name} did not end within {timeout_s:g} s, nor {GRACE_S:g} s later: the machine "
            "is too slow for these flows; choose a lower rate or fewer flows",
        )
        while not events.empty():
            send(("event", events.get()))
        sampler.look(now - at_s)
        if now >= next_report_s:
            send(("progress", now - at_s, list(tool.progress())))
            next_report_s = now + TELL_S
        time.sleep(LOOK_S)
    send(("progress", time.monotonic() - at_s, list(tool.progress())))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
