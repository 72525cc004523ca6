"""Lab 11: a TCP congestion control in eBPF, compared with Reno on a live network.

The file is C and is never run by a sealed child: the kernel runs it, for the flows of one lab. So
the checks judge measurements (control_runs.py), all relative to Reno's on the same cables, except
the fairness of two flows.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pillarbox.experiments.apps.teaching.grading_engine import (
    RIGHT,
    GradedCase,
    GradedPart,
    Judgement,
)
from pillarbox.experiments.apps.teaching.labs.control_runs import (
    CABLES,
    ControlMeasurements,
    FlowMeasurement,
    SharedCable,
)

TITLE = "Your own congestion control"
FOLDER = "11-own-control"
SUFFIX = ".bpf.c"  # suffix of the student's file, and of the skeleton
MODULES: tuple[str, ...] = ()
NETWORKS: tuple[str, ...] = ()

RATES_MBIT, DELAYS_MS = (16, 20, 24), (1.0, 1.5)
# Cables of the hidden network: slower and faster ones than those of all sheets.
HIDDEN_RATES_MBIT, HIDDEN_DELAYS_MS = (10, 32), (0.5, 2.5)

# Thresholds of a measured value, each with the share of a check's points, best first.
Thresholds = Sequence[tuple[float, float]]
# Goodput as a fraction of Reno's, at least.
GOODPUT: Thresholds = ((0.90, 1.0), (0.75, 0.6), (0.50, 0.3))
# Queueing delay as a fraction of Reno's, at most.
QUEUE: Thresholds = ((0.30, 1.0), (0.60, 0.6), (0.85, 0.3))
# Jain's index of two flows of the control, at least.
FAIRNESS: Thresholds = ((0.95, 1.0), (0.85, 0.6), (0.70, 0.3))
# Goodput of a Reno flow next to the control's, as a fraction of half of Reno's goodput alone.
RENO_SHARE: Thresholds = ((0.80, 1.0), (0.60, 0.6), (0.40, 0.3))
# The same of the control's flow next to Reno's.
OWN_SHARE: Thresholds = ((0.60, 1.0), (0.30, 0.6), (0.15, 0.3))
# Fraction of Reno's goodput below which an empty queue and an equal share are worth nothing.
LEAST_GOODPUT = 0.5


def values(draw: random.Random) -> dict[str, Any]:
    """Draw the cables of a student's sheet."""
    cable = SharedCable(draw.choice(RATES_MBIT), draw.choice(DELAYS_MS))
    return {
        "rate_mbit": cable.rate_mbit,
        "delay_ms": cable.delay_ms,
        "round trip without a queue": f"{CABLES * cable.delay_ms:g} ms",
    }


def cable_of(values: dict[str, Any]) -> SharedCable:
    """Return the cables of a student's sheet."""
    return SharedCable(float(values["rate_mbit"]), float(values["delay_ms"]))


def hidden_cable(draw: random.Random) -> SharedCable:
    """Draw the cables that no sheet shows, from the grading secret."""
    return SharedCable(draw.choice(HIDDEN_RATES_MBIT), draw.choice(HIDDEN_DELAYS_MS))


class ControlWork(NamedTuple):
    """Measurements of a student's control, and the cables on which they were made."""

    found: ControlMeasurements
    cable: SharedCable
    hidden: SharedCable

    @property
    def fairness(self) -> float:
        """Jain's index of the goodput of two flows of the control; 0 without data."""
        rates = [self.found.first.goodput_bps, self.found.second.goodput_bps]
        squares = sum(rate * rate for rate in rates)
        return sum(rates) ** 2 / (len(rates) * squares) if squares else 0.0

    def share(self, flow: FlowMeasurement) -> float:
        """Return a flow's goodput next to another flow, as a fraction of half of Reno's alone."""
        return 2 * flow.goodput_bps / self.found.reno.goodput_bps

    @property
    def score(self) -> float:
        """Score for the leaderboard; Reno's own is about 1.

        The mean of both networks' power, goodput over round-trip time relative to Reno's, times the
        fairness of two flows, times Reno's share next to the control (at most 1).
        """
        found = self.found
        powers = power(found.alone, found.reno), power(found.hidden, found.hidden_reno)
        reno = min(1.0, self.share(found.against_reno))
        return sum(powers) / len(powers) * self.fairness * reno


def figures(work: ControlWork) -> dict[str, float]:
    """Return the figures of a control for the leaderboard; ratios are relative to Reno's."""
    found = work.found
    return {
        "score": work.score,
        "goodput": found.alone.goodput_bps / found.reno.goodput_bps,
        "queue": queue_ratio(found.alone, found.reno, work.cable),
        "fairness": work.fairness,
        "reno": work.share(found.against_reno),
    }


def notes(work: ControlWork) -> list[str]:
    """Return sentences with all measurements, and the score of the leaderboard."""
    found, cable, hidden = work.found, work.cable, work.hidden
    return [
        f"one flow at {cable.rate_mbit:g} Mbit/s: {_flow_text(found.alone)}; Reno: "
        f"{_flow_text(found.reno)}",
        f"two flows: {_flow_text(found.first)}, and {_flow_text(found.second)}",
        f"next to Reno: {_flow_text(found.against)}; Reno: {_flow_text(found.against_reno)}",
        f"hidden network, {hidden.rate_mbit:g} Mbit/s, {hidden.empty_ms:g} ms: "
        f"{_flow_text(found.hidden)}; Reno: {_flow_text(found.hidden_reno)}",
        f"score for the leaderboard: {work.score:.2f} (Reno: about 1)",
    ]


def _flow_text(flow: FlowMeasurement) -> str:
    return f"{flow.goodput_bps / 1e6:.1f} Mbit/s, round trip {flow.round_trip_ms:.1f} ms"


def power(flow: FlowMeasurement, reno: FlowMeasurement) -> float:
    """Return goodput over round-trip time, relative to Reno's; 0 for a flow without data.

    >>> power(FlowMeasurement(9e6, 10.0), FlowMeasurement(10e6, 40.0))
    3.6
    """
    if not flow.round_trip_ms:
        return 0.0
    goodput = flow.goodput_bps / reno.goodput_bps
    return goodput * reno.round_trip_ms / flow.round_trip_ms


def queue_ratio(flow: FlowMeasurement, reno: FlowMeasurement, cable: SharedCable) -> float:
    """Return a flow's queueing delay as a fraction of Reno's.

    >>> cable = SharedCable(20.0, 1.0)  # 8 ms without a queue
    >>> queue_ratio(FlowMeasurement(1e7, 18.0), FlowMeasurement(1e7, 48.0), cable)
    0.25
    """
    queues_ms = [max(0.0, one.round_trip_ms - cable.empty_ms) for one in (flow, reno)]
    return queues_ms[0] / queues_ms[1] if queues_ms[1] else 1.0


def share_at_least(value: float, thresholds: Thresholds) -> float:
    """Return the share of points for a value that should be large.

    >>> [share_at_least(value, GOODPUT) for value in (0.95, 0.9, 0.89, 0.3)]
    [1.0, 1.0, 0.6, 0.0]
    """
    return next((share for least, share in thresholds if value >= least), 0.0)


def share_at_most(value: float, thresholds: Thresholds) -> float:
    """Return the share of points for a value that should be small.

    >>> [share_at_most(value, QUEUE) for value in (0.1, 0.3, 0.31, 1.0)]
    [1.0, 1.0, 0.6, 0.0]
    """
    return next((share for most, share in thresholds if value <= most), 0.0)


def judged(share: float, wrong: str) -> Judgement:
    """Return the judgement of a measured value: its share, and the value unless all is right."""
    return RIGHT if share == 1.0 else Judgement(share, wrong)


def judged_goodput(flow: FlowMeasurement, reno: FlowMeasurement) -> Judgement:
    """Judge the goodput of a flow that is alone on the cable."""
    if not flow.goodput_bps:
        return Judgement(0.0, "no byte arrived")
    ratio = flow.goodput_bps / reno.goodput_bps
    said = f"{flow.goodput_bps / 1e6:.1f} Mbit/s, Reno {reno.goodput_bps / 1e6:.1f} Mbit/s"
    return judged(share_at_least(ratio, GOODPUT), said)


def judged_queue(flow: FlowMeasurement, reno: FlowMeasurement, cable: SharedCable) -> Judgement:
    """Judge the queueing delay of a flow that is alone on the cable and uses it."""
    if flow.goodput_bps < LEAST_GOODPUT * reno.goodput_bps:
        return Judgement(0.0, "too little data for a judgement of its queue")
    ratio = queue_ratio(flow, reno, cable)
    waits = [max(0.0, one.round_trip_ms - cable.empty_ms) for one in (flow, reno)]
    said = f"packets wait {waits[0]:.1f} ms in the queue, Reno's {waits[1]:.1f} ms"
    return judged(share_at_most(ratio, QUEUE), said)


def judged_fairness(work: ControlWork) -> Judgement:
    """Judge how equally two flows of the control share the cable."""
    first, second = work.found.first.goodput_bps, work.found.second.goodput_bps
    if first + second < LEAST_GOODPUT * work.found.reno.goodput_bps:
        return Judgement(0.0, "too little data for a judgement of their shares")
    said = f"{first / 1e6:.1f} and {second / 1e6:.1f} Mbit/s, Jain's index {work.fairness:.2f}"
    return judged(share_at_least(work.fairness, FAIRNESS), said)


def judged_reno_share(work: ControlWork) -> Judgement:
    """Judge the share that a Reno flow keeps next to a flow of the control."""
    own, reno = work.found.against, work.found.against_reno
    if work.found.alone.goodput_bps < LEAST_GOODPUT * work.found.reno.goodput_bps:
        return Judgement(0.0, "too little data of a flow that is alone for a judgement")
    points = share_at_least(work.share(reno), RENO_SHARE)
    said = f"Reno has {reno.goodput_bps / 1e6:.1f} Mbit/s, yours {own.goodput_bps / 1e6:.1f} Mbit/s"
    return judged(points, said if points else f"it starves Reno: {said}")


def judged_own_share(work: ControlWork) -> Judgement:
    """Judge the share that a flow of the control keeps next to a Reno flow."""
    own, reno = work.found.against, work.found.against_reno
    said = f"yours has {own.goodput_bps / 1e6:.1f} Mbit/s, Reno {reno.goodput_bps / 1e6:.1f} Mbit/s"
    return judged(share_at_least(work.share(own), OWN_SHARE), said)


def _part(
    name: str, points: float, *questions: tuple[str, Callable[[ControlWork], Judgement]]
) -> GradedPart:
    """Return a check whose cases judge measurements."""

    def cases(work: ControlWork) -> list[GradedCase]:
        return [GradedCase(asked, lambda judge=judge: judge(work)) for asked, judge in questions]  # type: ignore[misc]

    return GradedPart(name, points, cases)


CHECKS = (
    _part(
        "goodput",
        15,
        ("a single flow", lambda work: judged_goodput(work.found.alone, work.found.reno)),
    ),
    _part(
        "a short queue",
        30,
        ("a single flow", lambda work: judged_queue(work.found.alone, work.found.reno, work.cable)),
    ),
    _part("fairness of two flows", 15, ("your two flows", judged_fairness)),
    _part("fairness towards Reno", 15, ("your flow next to one of Reno", judged_reno_share)),
    _part("its own share next to Reno", 5, ("your flow next to one of Reno", judged_own_share)),
    _part(
        "a hidden network",
        20,
        (
            "a single flow",
            lambda work: judged_goodput(work.found.hidden, work.found.hidden_reno),
        ),
        (
            "its queue",
            lambda work: judged_queue(work.found.hidden, work.found.hidden_reno, work.hidden),
        ),
    ),
)
