"""Ideal of a trial: an upper bound of the goodput over the paths in use (`fluid.path_bound`).

Paths change after a fault, and whenever a routing finds a better path. They are sampled at some
times (`TrialMeasurements.sampled`), so that a trial is a sequence of spans. Between two different
samples the time of the change is unknown, and a flow is bound by the cables that are on both paths.

With Multipath TCP, the subflows of all flows share the cables, each with its own bytes and on its
pinned path. No cable binds a subflow while a fault is on that path; all flows together are then
bound by the most that any routing can carry.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy

from pillarbox.experiments.models.fluid.bounds import is_small_enough, throughput
from pillarbox.experiments.models.fluid.directed_links import link_rates_bps, working_links
from pillarbox.experiments.models.fluid.ideal import goodput_share
from pillarbox.experiments.models.fluid.path_bound import PathBound
from pillarbox.experiments.models.workloads.flows import FlowResult
from pillarbox.experiments.runs.trials.order import FlowPathsAtTime, TrialMeasurements, TrialOrder
from pillarbox.experiments.runs.trials.recorded_paths import paths_of
from pillarbox.experiments.runs.trials.subflows import Subflow, working_paths
from pillarbox.hosts.base.failures import NONE, Failures

if TYPE_CHECKING:
    from pillarbox.experiments.models.arrays import Bools, Floats
    from pillarbox.experiments.models.fluid.directed_links import FlowPath

STEPS = 120  # Maximum number of time steps of a trial's ideal goodput curve.
LEAST_STEP_S = 0.1  # Shortest time step of the ideal goodput curve, in seconds.


class Span(NamedTuple):
    """A part of a trial with constant paths, and the goodput bound of these paths."""

    begin_s: float
    end_s: float
    bound: PathBound


class TrialIdeal(NamedTuple):
    """Upper bound of a trial's total goodput, if its flows keep their shares of the total."""

    goodput_bps: float  # Mean upper bound in bit/s until the last flow ended.
    completion_s: float  # Earliest completion time; NaN for flows with a duration.
    # Start time in seconds and ideal goodput in bit/s of each time step.
    steps: tuple[tuple[float, float], ...]


def trial_ideal(
    order: TrialOrder,
    found: TrialMeasurements,
    paths: Sequence[FlowPath],  # Paths of the flows at the end of the trial.
    end_s: float,
    subflows: Sequence[Subflow] = (),  # Subflows of the flows, with Multipath TCP.
) -> TrialIdeal:
    """Return the ideal of a trial whose cables all have the rate of its system."""
    spans = _spans(order, found, paths, end_s, subflows)
    delivered = _DeliveryCurves([one.result for one in subflows] or found.results)
    total = IdealTotal(order.workload.volume_bytes is not None)
    for one in spans:
        bits = delivered.bits(one.begin_s, one.end_s)
        total.add(one.bound, bits, one.end_s - one.begin_s)
    steps = tuple(_steps(spans, delivered, end_s))
    return TrialIdeal(total.ideal_bps, total.completion_s, steps)


class IdealTotal:
    """Measured goodput and its upper bound, summed over a trial's spans of constant paths.

    With a volume, the bound is the volume over the shortest time of transmission.
    """

    def __init__(self, has_volume: bool) -> None:
        self._has_volume = has_volume
        self._lasted_s = self._bits = self._ideal_bits = 0.0
        self._completion_s = 0.0

    def add(self, bound: PathBound, bits: Floats, lasted_s: float) -> None:
        """Add a span of constant paths: their bound, each flow's delivered bits, the duration."""
        self._lasted_s += lasted_s
        self._bits += float(bits.sum())
        if self._has_volume:
            self._completion_s += bound.least_s(bits)
        else:
            self._ideal_bits += float(bound.rates_bps(bits / lasted_s).sum()) * lasted_s

    @property
    def completion_s(self) -> float:
        """Shortest time of transmission in seconds; NaN without a volume."""
        return self._completion_s if self._has_volume else math.nan

    @property
    def ideal_bps(self) -> float:
        """Upper bound of the goodput; NaN if nothing was delivered."""
        bits, lasted_s = self._ideal_bits, self._lasted_s
        if self._has_volume:
            bits, lasted_s = self._bits, self._completion_s
        return bits / lasted_s if lasted_s else math.nan

    @property
    def achieved_bps(self) -> float:
        """Measured goodput in bit/s; NaN without spans."""
        return self._bits / self._lasted_s if self._lasted_s else math.nan


def _spans(
    order: TrialOrder,
    found: TrialMeasurements,
    paths: Sequence[FlowPath],
    end_s: float,
    subflows: Sequence[Subflow],
) -> list[Span]:
    """Return the spans of a trial; neighbouring spans with the same paths are merged."""
    topology, system = order.topology, order.trial.system
    pairs = [(r.flow.source, r.flow.destination) for r in found.results]
    rate_bps, mtu = (system.rate_mbit or 0.0) * 1e6, system.mtu

    multipath = bool(subflows)
    computed = {(found.paths, NONE): working_paths(topology, subflows) or list(paths)}

    def paths_at(sample: FlowPathsAtTime) -> list[FlowPath]:
        state = sample.paths, sample.failures
        if state not in computed:
            computed[state] = (
                working_paths(topology, subflows, sample.failures)
                if multipath
                else paths_of(topology, found.routing, pairs, *state)
            )
        return computed[state]

    limits = {one.failures: math.inf for one in found.sampled}
    if multipath:
        limits = {failures: _most_bps(order, pairs, failures) for failures in limits}

    def state_at(sample: FlowPathsAtTime) -> tuple[list[FlowPath], float]:
        return paths_at(sample), limits[sample.failures]

    known = [(sample.at_s, *state_at(sample)) for sample in found.sampled if sample.at_s < end_s]
    last = (computed[found.paths, NONE], math.inf)
    if known:
        # The final paths need the failures of the last sample: faults are repaired at the end.
        last = state_at(found.sampled[-1]._replace(paths=found.paths))
    known = [(0.0, *(known[0][1:] if known else last)), *known[1:], (end_s, *last)]
    merged: list[tuple[float, float, list[FlowPath], list[FlowPath], float]] = []
    for (begin_s, before, before_bps), (until_s, after, after_bps) in pairwise(known):
        same = merged and merged[-1][2] == merged[-1][3] == before == after
        most_bps = max(before_bps, after_bps)
        if same and most_bps == merged[-1][4]:
            merged[-1] = (merged[-1][0], until_s, before, after, most_bps)
        elif until_s > begin_s:
            merged.append((begin_s, until_s, before, after, most_bps))
    return [
        Span(
            *(begin_s, until_s),
            PathBound(
                *(topology, found.routing, before, rate_bps, mtu, after),
                multipath=multipath,
                most_bps=most_bps,
            ),
        )
        for begin_s, until_s, before, after, most_bps in merged
    ]


def _most_bps(order: TrialOrder, pairs: Sequence[tuple[int, int]], failures: Failures) -> float:
    """Return the most that flows can have together under these failures, by any routing.

    Without failures the pinned paths bound the flows; infinite for too large a linear program.
    """
    topology, system = order.topology, order.trial.system
    if failures == NONE or not is_small_enough(topology, pairs):
        return math.inf
    share = goodput_share(topology, "", system.mtu, multipath=True)
    capacity_bps = link_rates_bps(topology, (system.rate_mbit or 0.0) * 1e6) * share
    works = working_links(topology, failures)
    return throughput(topology, pairs, capacity_bps, works).at_most


class _DeliveryCurves:
    """Bytes that each flow had delivered over time, interpolated within its intervals."""

    def __init__(self, results: Sequence[FlowResult]) -> None:
        self._results = results
        self._curves = [_curve(one) for one in results]

    def bits(self, from_s: float, until_s: float) -> Floats:
        """Return the bits that each flow delivered between two times."""
        ends = (from_s, until_s)
        found = [numpy.interp(ends, *curve) for curve in self._curves]
        return numpy.array([8.0 * (after - before) for before, after in found])

    def active(self, from_s: float, until_s: float) -> Bools:
        """Return a mask of the flows that were active between two times."""
        return numpy.array(
            [curve[0][0] < until_s and curve[0][-1] > from_s for curve in self._curves]
        )


def _curve(result: FlowResult) -> tuple[Floats, Floats]:
    """Return a flow's delivery curve: times in seconds and the bytes delivered by each time."""
    rows = sorted(result.intervals)
    if not rows:
        begin_s = result.begin_s or 0.0
        end_s = max(result.end_s or begin_s, begin_s)
        return numpy.array([begin_s, end_s]), numpy.array([0.0, float(result.delivered_bytes)])
    moments = numpy.array([rows[0].begin_s, *(row.end_s for row in rows)])
    return moments, numpy.cumsum([0.0, *(float(row.delivered_bytes) for row in rows)])


def _steps(
    spans: Sequence[Span], delivered: _DeliveryCurves, end_s: float
) -> list[tuple[float, float]]:
    """Return the ideal goodput of the active flows over time, as steps of time and bit/s."""
    count = max(1, min(STEPS, int(end_s / LEAST_STEP_S)))
    edges = sorted({*numpy.linspace(0.0, end_s, count + 1).tolist(), *(s.begin_s for s in spans)})
    found: list[tuple[float, float]] = []
    for begin_s, until_s in pairwise(edges):
        span = next(one for one in reversed(spans) if one.begin_s <= begin_s)
        bps = delivered.bits(begin_s, until_s) / (until_s - begin_s)
        rates = span.bound.rates_bps(bps, delivered.active(begin_s, until_s))
        found.append((round(begin_s, 4), float(f"{rates.sum():.4g}")))
    return found
