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

from experiments.models.workloads.flows import COMPLETED, Flow, FlowResult, Sending
from hosts.live.settings import LabSettings
from topos.base.errors import require
from topos.base.spec import parse

if TYPE_CHECKING:
    from experiments.lab.emulation.lab import Lab

SHARED = "tree,2,2,rates=2:1"
CABLES = 8  # cables of a round trip
PAIRS = ((2, 0), (3, 1))  # source and destination of each flow
RENO = "reno"
DURATION_S, SETTLED_S = 6.0, 2.0  # length of a run, and its beginning that is not counted
INTERVAL_S, LOOK_S, LEAD_S = 0.1, 0.05, 0.5
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


def measured_control(
    control: str, cable: SharedCable, hidden: SharedCable, folder: Path
) -> ControlMeasurements:
    """Run all flows of a control that is registered in the kernel, one scenario after another."""
    with _running(cable, folder / "own") as lab:
        (alone,), (reno,) = flows_in(lab, control), flows_in(lab, RENO)
        first, second = flows_in(lab, control, control)
        against, against_reno = flows_in(lab, control, RENO)
    with _running(hidden, folder / "hidden") as lab:
        (in_hidden,), (hidden_reno,) = flows_in(lab, control), flows_in(lab, RENO)
    two = first, second, against, against_reno
    return ControlMeasurements(alone, reno, *two, in_hidden, hidden_reno)


def flows_in(lab: Lab, *controls: str) -> list[FlowMeasurement]:
    """Send a flow of each control over the shared cable simultaneously, and measure the flows."""
    from experiments.lab.traffic.generator import Generator

    with ExitStack() as stack:
        tools = []
        for control, pair in zip(controls, PAIRS, strict=False):
            sending = Sending(control, INTERVAL_S, TIMEOUT_S)
            flow = Flow(0, *pair, duration_s=DURATION_S)
            tools.append(stack.enter_context(closing(Generator(lab, [flow], sending))))
            tools[-1].prepare()
        at_s = time.monotonic() + LEAD_S
        for tool in tools:
            tool.start(at_s)
        while not all(tool.ended() for tool in tools):
            require(time.monotonic() < at_s + 2 * TIMEOUT_S, "the flows of a control do not end")
            time.sleep(LOOK_S)
        return [flow_measurement(tool.results()[0]) for tool in tools]


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
    from experiments.lab.emulation.local_fabric import running

    settings = LabSettings(rate_mbit=cable.rate_mbit, delay=f"{cable.delay_ms:g}ms")
    with running(parse(SHARED), settings, folder) as lab:
        lab.wait_converged()
        yield lab
