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

from typing import TYPE_CHECKING, NamedTuple

import numpy
from numpy.typing import NDArray

from experiments.traffic.demand import (
    Requests,
    demand_of,
    draw_pairs,
    draw_together,
    requests,
    together,
)
from experiments.traffic.flows import Flow
from experiments.traffic.patterns import MOST_FLOWS
from experiments.traffic.sizes import Sizes, sizes_of
from experiments.traffic.workload import Workload, check_load
from topos.base.errors import require
from topos.base.topology import Topology

if TYPE_CHECKING:
    Floats = NDArray[numpy.float64]
    Ints = NDArray[numpy.int64]

MOST_OFF = 0.02  # maximum relative deviation from the requested load
# Maximum number of tries to draw the measured part's sizes. With more tries, a part that is too
# short would select draws without the largest flows, which no longer follow the distribution.
TRIES = 20
PAIRS, SIZES, REQUESTS = 1, 2, 3  # random streams, one for each kind of draw


class Arrivals(NamedTuple):
    """Flows by start time; the columns of a trace."""

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
    """Interval in which the measured flows start."""

    from_s: float
    until_s: float

    @property
    def lasting_s(self) -> float:
        """Length of the window in seconds."""
        return self.until_s - self.from_s


def window_of(workload: Workload, last_s: float | None = None) -> Window:
    """Return the window in which the measured flows start; a trace ends with its last flow.

    >>> window_of(Workload(arrivals="poisson", load=0.5, duration_s=30.0))
    Window(from_s=2.0, until_s=32.0)
    """
    if workload.trace is None:
        assert workload.duration_s is not None
        return Window(workload.warm_up_s, workload.warm_up_s + workload.duration_s)
    assert last_s is not None
    until_s = max(workload.warm_up_s, last_s - workload.cool_down_s)
    return Window(workload.warm_up_s, until_s)


def drawn(
    topology: Topology,
    workload: Workload,
    seed: int,
    capacity_bps: float,
    load: float | None = None,
) -> Arrivals:
    """Return the flows of a workload with Poisson arrivals, sorted by time.

    Parameters
    ----------
    topology : Topology
        The network.
    workload : Workload
        Workload, whose pattern defines the pairs (`experiments.traffic.demand`) and `sizes` the
        volumes.
    seed : int
        Seed of all random draws.
    capacity_bps : float
        Capacity to which the load refers: the total rate of all flows at a load of 1.
    load : float, optional
        Load to use instead of the workload's.

    Examples
    --------
    >>> import topos
    >>> workload = Workload(arrivals="poisson", load=0.5, duration_s=10.0, sizes="storage")
    >>> found = drawn(topos.parse("bcube,4,1"), workload, seed=1, capacity_bps=1e8)
    >>> bool((numpy.diff(found.start_s) >= 0).all())
    True
    >>> round(offered_bps(found, window_of(workload)) / 0.5e8, 2)
    1.0
    """
    load = workload.load if load is None else load
    check_load(load)
    assert load is not None and workload.duration_s is not None
    require(capacity_bps > 0, f"a load needs a capacity above 0, not {capacity_bps:g} bit/s")
    sizes = sizes_of(workload.sizes).scaled(workload.size_scale)
    draw = numpy.random.default_rng([SIZES, seed])
    starts, volumes, begin_s = [], [], 0.0
    each, small = together(topology, workload), requests(topology, workload)
    beside_bps = 8.0 * small.volume_bytes * small.per_s if small else 0.0
    background_bps = load * capacity_bps - beside_bps
    require(
        background_bps > 0,
        f"the requests alone are {beside_bps:,.0f} bit/s, more than a load of {load:g}: choose "
        "fewer or smaller ones (options.per_s, options.bytes)",
    )
    parts = (workload.warm_up_s, workload.duration_s, workload.cool_down_s)
    for lasting_s, measured in zip(parts, (False, True, False), strict=True):
        wanted_bytes = background_bps * lasting_s / 8 / each.flows
        volume = _volumes(sizes, wanted_bytes, measured, load, draw)
        moments = begin_s + numpy.sort(draw.random(len(volume))) * lasting_s
        starts.append(numpy.repeat(moments, each.flows))
        volumes.append(numpy.repeat(volume, each.flows))
        begin_s += lasting_s
    start_s, volume_bytes = numpy.concatenate(starts), numpy.concatenate(volumes)
    demand, draw = demand_of(topology, workload, seed), numpy.random.default_rng([PAIRS, seed])
    if each.flows > 1:
        pairs = draw_together(topology.servers, each, len(start_s) // each.flows, draw)
    else:
        pairs = draw_pairs(demand, len(start_s), draw)
    found = Arrivals(start_s, *pairs, volume_bytes)
    return found if small is None else _with_requests(found, small, begin_s, demand, seed)


def _with_requests(
    background: Arrivals, small: Requests, until_s: float, demand: Floats, seed: int
) -> Arrivals:
    """Return the background flows merged with answers to requests.

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


def _volumes(
    sizes: Sizes, wanted_bytes: float, measured: bool, load: float, draw: numpy.random.Generator
) -> Ints:
    """Return random flow sizes whose sum is as near to `wanted_bytes` as one flow allows."""
    expected = wanted_bytes / sizes.mean_bytes
    require(
        expected <= MOST_FLOWS * 10,
        f"a load of {load:g} is {expected:.3g} flows, more than {MOST_FLOWS * 10}: choose a "
        "shorter duration_s, or larger sizes",
    )
    for _ in range(TRIES):
        found = _sizes_up_to(sizes, wanted_bytes, draw)
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


def _sizes_up_to(sizes: Sizes, wanted_bytes: float, draw: numpy.random.Generator) -> Ints:
    """Draw sizes one after the other until their sum is nearest to `wanted_bytes`."""
    found = numpy.empty(0, numpy.int64)
    while True:
        left = wanted_bytes - float(found.sum())
        more = sizes.draw(int(1.1 * max(left, 0) / sizes.mean_bytes) + 64, draw)
        found = numpy.concatenate([found, more])
        total = numpy.cumsum(found, dtype=numpy.float64)
        if total[-1] > wanted_bytes:
            break
    # index of the first size that exceeds the sum
    over = int(numpy.searchsorted(total, wanted_bytes))
    before = total[over - 1] if over else 0.0
    nearer = total[over] - wanted_bytes < wanted_bytes - before
    return found[: over + int(nearer)]


def offered_bps(arrivals: Arrivals, window: Window) -> float:
    """Return the offered load of the flows that start within a window, in bit/s of goodput."""
    inside = (arrivals.start_s >= window.from_s) & (arrivals.start_s < window.until_s)
    return float(arrivals.volume_bytes[inside].sum()) * 8 / window.lasting_s
