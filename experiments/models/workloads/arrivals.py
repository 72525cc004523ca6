"""Open-loop arrivals: each flow starts at its drawn time, whatever happens to other flows.

Arrivals are a Poisson process; sizes and pairs are drawn independently. Time has three parts with
the same load: a warm-up, the measured part (`duration_s`), and a cool-down, during which the last
measured flows meet the same traffic as earlier ones.

In each part sizes are drawn until their sum matches the load, and the start times of that number of
flows are uniform: those of a Poisson process with a known number of events. So the offered load
equals the requested load, and does not depend on a few large flows; a part that is too short to
come within 2 % is refused.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy

from pillarbox.experiments.models.arrays import Floats, Ints
from pillarbox.experiments.models.workloads.demand import (
    RequestAnswers,
    demand_of,
    draw_group_flows,
    draw_pairs,
    flows_per_arrival,
    request_answers,
)
from pillarbox.experiments.models.workloads.flows import Flow
from pillarbox.experiments.models.workloads.patterns import MOST_FLOWS
from pillarbox.experiments.models.workloads.sizes import FlowSizes, sizes_of
from pillarbox.experiments.models.workloads.workload import Workload, check_load
from pillarbox.topos.base.errors import require
from pillarbox.topos.base.topology import Topology

MOST_OFF = 0.02  # maximum relative deviation of the drawn flows' load from the requested load
# Maximum number of tries to draw flow sizes whose sum matches the load. With more tries, a measured
# part that is too short would select draws without the largest flows, against the distribution.
TRIES = 20
PAIRS, SIZES, REQUESTS = 1, 2, 3  # numbers of the independent random streams, one per kind of draw


class Arrivals(NamedTuple):
    """Flows of an open loop, sorted by start time, as columns like those of a trace."""

    start_s: Floats
    source: Ints  # numbers of the source servers
    destination: Ints
    volume_bytes: Ints

    def flows(self) -> list[Flow]:
        """Return the arrivals as flows, numbered from 0."""
        columns = (one.tolist() for one in self)
        return [
            Flow(number, source, destination, volume, None, start_s)
            for number, (start_s, source, destination, volume) in enumerate(
                zip(*columns, strict=True)
            )
        ]


class Window(NamedTuple):
    """Time interval of a trial: flows that start in it are measured."""

    from_s: float
    until_s: float

    @property
    def lasting_s(self) -> float:
        """Length of the measurement window in seconds."""
        return self.until_s - self.from_s


def measurement_window(workload: Workload, last_s: float | None = None) -> Window:
    """Return the time window whose flows are measured: between warm-up and cool-down.

    A trace ends at `last_s`, with its last flow.

    >>> measurement_window(Workload(arrivals="poisson", load=0.5, duration_s=30.0))
    Window(from_s=2.0, until_s=32.0)
    """
    if workload.trace is None:
        assert workload.duration_s is not None
        return Window(workload.warm_up_s, workload.warm_up_s + workload.duration_s)
    assert last_s is not None
    until_s = max(workload.warm_up_s, last_s - workload.cool_down_s)
    return Window(workload.warm_up_s, until_s)


def poisson_arrivals(
    topology: Topology,
    workload: Workload,
    seed: int,
    capacity_bps: float,
    load: float | None = None,
) -> Arrivals:
    """Return random flows of a workload with Poisson arrivals, sorted by start time.

    Parameters
    ----------
    topology : Topology
        The network.
    workload : Workload
        Workload, whose pattern defines the pairs (`workloads.demand`) and `sizes` the volumes.
    seed : int
        Seed of all random draws.
    capacity_bps : float
        Capacity to which the load refers: the total rate of all flows at a load of 1.
    load : float, optional
        Load to use instead of the workload's.

    Examples
    --------
    >>> from pillarbox import topos
    >>> workload = Workload(arrivals="poisson", load=0.5, duration_s=10.0, sizes="storage")
    >>> found = poisson_arrivals(topos.parse("bcube,4,1"), workload, seed=1, capacity_bps=1e8)
    >>> bool((numpy.diff(found.start_s) >= 0).all())
    True
    >>> round(offered_bps(found, measurement_window(workload)) / 0.5e8, 2)
    1.0
    """
    load = workload.load if load is None else load
    check_load(load)
    assert load is not None and workload.duration_s is not None
    require(capacity_bps > 0, f"a load needs a capacity above 0, not {capacity_bps:g} bit/s")
    sizes = sizes_of(workload.sizes).scaled(workload.size_scale)
    draw = numpy.random.default_rng([SIZES, seed])
    starts, volumes, begin_s = [], [], 0.0
    each, small = flows_per_arrival(topology, workload), request_answers(topology, workload)
    beside_bps = 8.0 * small.volume_bytes * small.per_s if small else 0.0
    background_bps = load * capacity_bps - beside_bps
    require(
        background_bps > 0,
        f"the answers to requests alone are {beside_bps:,.0f} bit/s, more than a load of {load:g}: "
        "choose fewer or smaller answers (options.per_s, options.bytes)",
    )
    parts = (workload.warm_up_s, workload.duration_s, workload.cool_down_s)
    for lasting_s, measured in zip(parts, (False, True, False), strict=True):
        wanted_bytes = background_bps * lasting_s / 8 / each.flows
        volume = _flow_sizes_for_load(sizes, wanted_bytes, measured, load, draw)
        moments = begin_s + numpy.sort(draw.random(len(volume))) * lasting_s
        starts.append(numpy.repeat(moments, each.flows))
        volumes.append(numpy.repeat(volume, each.flows))
        begin_s += lasting_s
    start_s, volume_bytes = numpy.concatenate(starts), numpy.concatenate(volumes)
    demand, draw = demand_of(topology, workload, seed), numpy.random.default_rng([PAIRS, seed])
    if each.flows > 1:
        pairs = draw_group_flows(topology.servers, each, len(start_s) // each.flows, draw)
    else:
        pairs = draw_pairs(demand, len(start_s), draw)
    found = Arrivals(start_s, *pairs, volume_bytes)
    return found if small is None else _with_request_answers(found, small, begin_s, demand, seed)


def _with_request_answers(
    background: Arrivals, small: RequestAnswers, until_s: float, demand: Floats, seed: int
) -> Arrivals:
    """Return the background flows and random answers to requests, sorted by start time.

    Answers are recognized by their size: background flows of exactly that size get one more byte.
    """
    draw = numpy.random.default_rng([REQUESTS, seed])
    count = round(small.per_s * until_s)
    pairs = draw_pairs(demand, count, draw)
    volume_bytes = background.volume_bytes + (background.volume_bytes == small.volume_bytes)
    answers = draw.random(count) * until_s, *pairs, numpy.full(count, small.volume_bytes)
    columns = zip(background._replace(volume_bytes=volume_bytes), answers, strict=True)
    both = [numpy.concatenate(two) for two in columns]
    order = numpy.argsort(both[0], kind="stable")
    return Arrivals(*(column[order] for column in both))


def _flow_sizes_for_load(
    sizes: FlowSizes, wanted_bytes: float, measured: bool, load: float, draw: numpy.random.Generator
) -> Ints:
    """Return random flow sizes whose sum is nearly `wanted_bytes`, the volume of the load.

    Of the measured part the sum deviates by at most MOST_OFF.
    """
    expected = wanted_bytes / sizes.mean_bytes
    require(
        expected <= MOST_FLOWS * 10,
        f"a load of {load:g} takes {expected:.3g} flows, more than {MOST_FLOWS * 10}: choose a "
        "shorter duration_s, or larger sizes",
    )
    for _ in range(TRIES):
        found = _random_sizes_with_sum(sizes, wanted_bytes, draw)
        off = abs(found.sum() - wanted_bytes) / max(wanted_bytes, 1.0)
        if off <= MOST_OFF or not measured:
            return found
    require(
        False,
        f"no flows of {sizes.name} (up to {sizes.most_bytes:,} bytes) come within {MOST_OFF:.0%} "
        f"of a load of {load:g}, which is {wanted_bytes:,.0f} bytes: choose a longer duration_s, "
        "or smaller sizes (size_scale)",
    )
    raise AssertionError


def _random_sizes_with_sum(
    sizes: FlowSizes, wanted_bytes: float, draw: numpy.random.Generator
) -> Ints:
    """Return random flow sizes, drawn one by one until their sum is nearest to `wanted_bytes`."""
    found = numpy.empty(0, numpy.int64)
    while True:
        left = wanted_bytes - float(found.sum())
        more = sizes.draw(int(1.1 * max(left, 0) / sizes.mean_bytes) + 64, draw)
        found = numpy.concatenate([found, more])
        total = numpy.cumsum(found, dtype=numpy.float64)
        if total[-1] > wanted_bytes:
            break
    # index of the flow with which the sum exceeds wanted_bytes
    over = int(numpy.searchsorted(total, wanted_bytes))
    before = total[over - 1] if over else 0.0
    nearer = total[over] - wanted_bytes < wanted_bytes - before
    return found[: over + int(nearer)]


def offered_bps(arrivals: Arrivals, window: Window) -> float:
    """Return the offered load of all flows that start in a window, in bit/s of goodput."""
    inside = (arrivals.start_s >= window.from_s) & (arrivals.start_s < window.until_s)
    return float(arrivals.volume_bytes[inside].sum()) * 8 / window.lasting_s
