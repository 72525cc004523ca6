"""Live runs of a student's congestion control and of Reno, over one slow cable.

Two servers send to two others over a cable that both flows share (``tree,2,2``); the servers' own
cables are twice as fast, so that the queue is at the shared cable's port::

    1.0 ---+                   +--- 0.0
           | s1 --- s2 --- s0  |
    1.1 ---+      shared       +--- 0.1

The student's control is registered only while its flows run, in the lab's sandbox, and no server
has it as its default.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pillarbox.experiments.models.workloads.flows import COMPLETED, Flow, FlowResult, Sending
from pillarbox.hosts.live.settings import LabSettings
from pillarbox.topos.base.errors import PillarboxError, require
from pillarbox.topos.base.spec import parse

if TYPE_CHECKING:
    from pillarbox.experiments.lab.emulation.lab import Lab
    from pillarbox.experiments.runs.trust.readings import Readings

SHARED = "tree,2,2,rates=2:1"
CABLES = 8  # cables of a round trip
PAIRS = ((2, 0), (3, 1))  # source and destination of each flow
RENO = "reno"
DURATION_S, SETTLED_S = 6.0, 2.0  # length of a run, and its beginning that is not counted
INTERVAL_S, LOOK_S = 0.1, 0.05
TRIES = 3  # runs until one is valid
# Least fraction of the shared cable's payload that Reno reaches in a valid run.
LEAST_OF_RENO = 0.85
TIMEOUT_S = 20.0  # time limit of a run's flows, in seconds
PAYLOAD = 1448 / 1514  # fraction of a cable's rate that is TCP's payload, with an MTU of 1500 bytes


class SharedCable(NamedTuple):
    """Rate of the shared cable in Mbit/s, and the delay of each cable in ms."""

    rate_mbit: float
    delay_ms: float

    @property
    def payload_bps(self) -> float:
        """Largest goodput of all flows together, in bit/s."""
        return self.rate_mbit * 1e6 * PAYLOAD

    @property
    def empty_ms(self) -> float:
        """Round-trip time without a queue, in ms."""
        return CABLES * self.delay_ms


class FlowMeasurement(NamedTuple):
    """Goodput of a flow after its beginning, and the median of its round-trip time."""

    goodput_bps: float
    round_trip_ms: float


class ControlMeasurements(NamedTuple):
    """Flows of a student's control and of Reno over the sheet's cable, and over a hidden one."""

    alone: FlowMeasurement
    reno: FlowMeasurement
    first: FlowMeasurement  # two flows of the control
    second: FlowMeasurement
    against: FlowMeasurement  # a flow of the control, and one of Reno
    against_reno: FlowMeasurement
    hidden: FlowMeasurement
    hidden_reno: FlowMeasurement


class ControlRuns(NamedTuple):
    """Measurements of a control, and the reasons why a run of its flows is in doubt."""

    measurements: ControlMeasurements
    doubts: list[str]


def measured_control(
    control: str, cable: SharedCable, hidden: SharedCable, folder: Path
) -> ControlRuns:
    """Run all flows of a control that is registered in the kernel, one scenario after another.

    A run counts if its verdict is valid. If Reno's are invalid, the machine is too busy, and
    PillarboxError is raised. If only the control's are, the control itself overloads the machine:
    its runs count, with a doubt.
    """
    with _running(cable, folder / "own") as lab:
        runs = _ControlRunner(lab, cable, control)
        reno, alone = runs.of_reno(), runs.flows(control)
        first_and_second, against = runs.flows(control, control), runs.flows(control, RENO)
    with _running(hidden, folder / "hidden") as lab:
        others = _ControlRunner(lab, hidden, control)
        hidden_reno, in_hidden = others.of_reno(), others.flows(control)
    found = ControlMeasurements(
        *(*alone, *reno, *first_and_second, *against),
        *(*in_hidden, *hidden_reno),
    )
    return ControlRuns(found, [*runs.doubts, *others.doubts])


class _ControlRunner:
    """Runs of flows in a lab, repeated until their verdict is valid."""

    def __init__(self, lab: Lab, cable: SharedCable, control: str) -> None:
        self._lab, self._cable, self._control = lab, cable, control
        self.doubts: list[str] = []

    def of_reno(self) -> list[FlowMeasurement]:
        """Return a Reno flow of a valid run; raise PillarboxError if the machine is too busy."""
        reasons: list[str] = []
        for _ in range(TRIES):
            flows, reasons = flows_in(self._lab, RENO)
            share = flows[0].goodput_bps / self._cable.payload_bps
            if share < LEAST_OF_RENO:
                reasons = [*reasons, f"Reno reaches {share:.0%} of its cable"]
            if not reasons:
                return flows
        raise PillarboxError(
            f"this machine is too busy to measure ({reasons[0]}): grade again when no other "
            "program runs"
        )

    def flows(self, *controls: str) -> list[FlowMeasurement]:
        """Return the flows of a valid run, or of the last one if Reno's run is valid after it."""
        for _ in range(TRIES):
            flows, reasons = flows_in(self._lab, *controls)
            if not reasons:
                return flows
        self.of_reno()
        self.doubts += [f"a run with your control is not valid: {reason}" for reason in reasons]
        return flows


def flows_in(lab: Lab, *controls: str) -> tuple[list[FlowMeasurement], list[str]]:
    """Send a flow of each control over the shared cable simultaneously.

    Return the flows' measurements, and the reasons why the run is not valid.
    """
    from pillarbox.experiments.lab.traffic.generator import Generator
    from pillarbox.experiments.runs.trials.trial_backend import TrialBackend

    backend = TrialBackend(lab)
    backend.prepare()
    with ExitStack() as stack:
        tools = []
        for control, pair in zip(controls, PAIRS, strict=False):
            sending = Sending(control, INTERVAL_S, TIMEOUT_S)
            flow = Flow(0, *pair, duration_s=DURATION_S)
            tools.append(stack.enter_context(closing(Generator(lab, [flow], sending))))
            tools[-1].prepare()
        watch = stack.enter_context(backend.watch(come_and_go=False))
        at_s = time.monotonic() + backend.lead_s
        watch.begin(at_s)
        for tool in tools:
            tool.start(at_s)
        while not all(tool.ended() for tool in tools):
            require(time.monotonic() < at_s + 2 * TIMEOUT_S, "the flows of a control do not end")
            time.sleep(LOOK_S)
        reasons = reasons_of(watch.end())
        return [flow_measurement(tool.results()[0]) for tool in tools], reasons


def reasons_of(readings: Readings) -> list[str]:
    """Return the reasons why a run is not valid, without advice."""
    from pillarbox.experiments.runs.trust.verdict import judge

    return [reason.partition(";")[0] for reason in judge(readings).reasons]


def flow_measurement(result: FlowResult) -> FlowMeasurement:
    """Return a flow's measurement after its beginning; a flow without data has a goodput of 0."""
    counted = [one for one in result.intervals if one.begin_s >= SETTLED_S - INTERVAL_S / 2]
    trips_us = [one.rtt_us for one in counted if one.rtt_us]
    if result.status != COMPLETED or not trips_us:
        return FlowMeasurement(0.0, 0.0)
    length_s = counted[-1].end_s - counted[0].begin_s
    delivered = sum(one.delivered_bytes for one in counted)
    return FlowMeasurement(delivered * 8 / length_s, statistics.median(trips_us) / 1e3)


@contextmanager
def _running(cable: SharedCable, folder: Path) -> Iterator[Lab]:
    from pillarbox.experiments.lab.emulation.local_fabric import running

    settings = LabSettings(rate_mbit=cable.rate_mbit, delay=f"{cable.delay_ms:g}ms")
    with running(parse(SHARED), settings, folder) as lab:
        lab.wait_converged()
        yield lab
