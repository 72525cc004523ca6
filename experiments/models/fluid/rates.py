"""Rates of flows that share links: max-min fair, by equal shares, and at the bottleneck.

Everywhere `capacity_bps` is one number for all links, or an array indexed by link number (see
`directed_links`); 0 is a failed link. A flow without links has no path, and its rate
is missing (NaN), not 0.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy

from pillarbox.experiments.models.arrays import Bools, Floats, Ints
from pillarbox.experiments.models.fluid.directed_links import Routes

# Relative difference of two water-filling levels that counts as a rounding error.
ROUNDING = 1e-12


# Number of array entries that plain Python processes, per function, before Numba is loaded: loading
# Numba and its compiled code takes a process 1.3 s, and the flows of a lab are few.
PLAIN_ENTRIES = 50_000


class CompiledForMany:
    """A function in plain Python, compiled with Numba once a process has given it many entries."""

    def __init__(self, plain: Callable[..., Any]) -> None:
        self.plain = plain
        self._plain_entries_left = PLAIN_ENTRIES

    @cached_property
    def compiled(self) -> Callable[..., Any]:
        """The function compiled with Numba, or the plain function if Numba is not installed."""
        try:
            from numba import njit
        except ModuleNotFoundError:
            return self.plain
        compiled: Callable[..., Any] = njit(cache=True)(self.plain)
        return compiled

    def __call__(self, *arguments: Any) -> Any:
        """Call the plain or the compiled function: both return the same."""
        if self._plain_entries_left >= 0:
            self._plain_entries_left -= max(map(_entries, arguments))
        function = self.plain if self._plain_entries_left >= 0 else self.compiled
        return function(*arguments)


def _entries(argument: Any) -> int:
    """Return the number of entries of an array, of the largest of several arrays, or 1."""
    if isinstance(argument, Routes):
        return max(map(numpy.size, argument))
    return numpy.size(argument)


class MaxMin:
    """Max-min fair rates over fixed routes, for any of the flows and any capacities.

    Parameters
    ----------
    routes : Routes
        Links of each flow; a link that occurs twice in a flow counts twice.
    links : int
        Number of link numbers (see `link_count`).
    path_counts : array of float, optional
        Number of paths of each flow, for sprayed flows: the flow's route contains the links of all
        of its paths, and each path carries an equal part of the flow.

    >>> both = Routes(numpy.array([0, 2, 3]), numpy.array([0, 1, 1]))
    >>> MaxMin(both, 2, numpy.array([2.0, 1.0])).rates(6.0).tolist()  # 2 on link 0; 2 + 4 on link 1
    [4.0, 4.0]
    """

    def __init__(self, routes: Routes, links: int, path_counts: Floats | None = None) -> None:
        self.routes, self.links = routes, links
        self._path_counts = numpy.ones(routes.flows) if path_counts is None else path_counts
        self._by_link = Routes(*_flows_by_link(routes, links))

    def rates(
        self,
        capacity_bps: float | Floats,
        active: Bools | None = None,
        weights: Floats | None = None,
    ) -> Floats:
        """Return the rate of each flow in bit/s; missing for inactive flows.

        The rates of all flows grow equally until a link is full: the rates of its flows are then
        final, and the others keep growing (water-filling). No rate can be increased without
        decreasing the rate of a flow that is not faster. With weights, all above 0, rates grow in
        proportion to the weights.

        >>> chain = Routes(numpy.array([0, 2, 3, 4]), numpy.array([0, 1, 0, 1]))
        >>> weights = numpy.array([1.0, 5.0, 1.0])
        >>> MaxMin(chain, 2).rates(numpy.array([6.0, 10.0]), weights=weights).tolist()
        [1.0, 5.0, 9.0]
        """
        if active is None:
            active = numpy.ones(self.routes.flows, bool)
        if weights is None:
            weights = numpy.ones(self.routes.flows)
        left = numpy.full(self.links, capacity_bps, numpy.float64)
        parts = weights / self._path_counts
        rates: Floats = _max_min_rates(self.routes, self._by_link, left, active, parts)
        return rates * self._path_counts


def max_min(routes: Routes, capacity_bps: float | Floats, links: int | None = None) -> Floats:
    """Return the max-min fair rate of each flow on its route, in bit/s.

    >>> chain = Routes(numpy.array([0, 2, 3, 4]), numpy.array([0, 1, 0, 1]))
    >>> max_min(chain, numpy.array([6.0, 10.0])).tolist()
    [3.0, 3.0, 7.0]
    """
    count = _checked_link_count(routes, capacity_bps) if links is None else links
    return MaxMin(routes, count).rates(capacity_bps)


def equal_share_rates_bps(
    routes: Routes, capacity_bps: float | Floats, path_counts: Floats | None = None
) -> Floats:
    """Return each flow's rate when every link is divided equally among all the flows on it.

    The unused part of a flow's share is lost: these rates are at most the max-min fair ones. A
    sprayed flow with several `path_counts` (see `MaxMin`) counts on each path as a part of a flow.

    >>> chain = Routes(numpy.array([0, 2, 3, 4]), numpy.array([0, 1, 0, 1]))
    >>> equal_share_rates_bps(chain, numpy.array([6.0, 10.0])).tolist()
    [3.0, 3.0, 5.0]
    """
    count = _checked_link_count(routes, capacity_bps)
    flows_on = link_loads(routes, None if path_counts is None else 1 / path_counts, count)
    capacity = numpy.broadcast_to(numpy.asarray(capacity_bps, numpy.float64), flows_on.shape)
    return _smallest_equal_share(routes, flows_on, capacity)


def bottleneck_throughput(rates_bps: Floats) -> float:
    """Return the aggregate bottleneck throughput (ABT): flows times the slowest one's rate.

    Guo 2009, section 3.6: all flows have the same volume, and the last flow to end counts. Flows
    without a path are not counted: a failure that disconnects a flow does not slow the others.
    """
    found = rates_bps[~numpy.isnan(rates_bps)]
    return float(len(found) * found.min()) if len(found) else 0.0


def link_loads(routes: Routes, weights: Floats | None, links: int) -> Floats:
    """Return the sum of the flows' weights on each link, or the number of flows if None."""
    if weights is None:
        return _flows_on(routes.links, links).astype(numpy.float64)
    per_entry = numpy.repeat(numpy.nan_to_num(weights), numpy.diff(routes.starts))
    loads: Floats = numpy.bincount(routes.links, per_entry, links).astype(numpy.float64)
    return loads


def _checked_link_count(routes: Routes, capacity_bps: float | Floats) -> int:
    if isinstance(capacity_bps, numpy.ndarray):
        return len(capacity_bps)
    return int(routes.links.max(initial=-1)) + 1


@CompiledForMany
def _flows_on(links: Ints, count: int) -> Ints:
    flows = numpy.zeros(count, numpy.int32)
    for link in links:
        flows[link] += 1
    return flows


@CompiledForMany
def _flows_by_link(routes: Routes, count: int) -> tuple[Ints, Ints]:
    """Return the inverse of `Routes`: the start of each link's flows, and the flows by link."""
    starts, links = routes
    link_starts = numpy.zeros(count + 1, numpy.int64)
    for link in links:
        link_starts[link + 1] += 1
    for link in range(count):
        link_starts[link + 1] += link_starts[link]
    flows = numpy.empty(len(links), numpy.int32)
    # Filling advances each start to the start of the next link; the shift is undone at the end.
    for flow in range(len(starts) - 1):
        for link in links[starts[flow] : starts[flow + 1]]:
            flows[link_starts[link]] = flow
            link_starts[link] += 1
    for link in range(count, 0, -1):
        link_starts[link] = link_starts[link - 1]
    link_starts[0] = 0
    return link_starts, flows


@CompiledForMany
def _max_min_rates(
    routes: Routes, by_link: Routes, left: Floats, active: Bools, weights: Floats
) -> Floats:
    """Return max-min fair rates by water-filling; `left` is each link's unassigned capacity.

    The level at which a link is full only rises while flows on the link become final earlier. The
    heap may therefore hold outdated levels, if each level is recomputed when it is the lowest:
    every link becomes full once, and each of its entries is processed once.
    """
    (starts, links), (link_starts, link_flows) = routes, by_link
    rates = numpy.full(len(starts) - 1, numpy.nan)
    growing = numpy.zeros(len(left), numpy.int32)
    # for each link: total weight of the flows whose rates still grow
    weight = numpy.zeros(len(left))
    for flow in range(len(rates)):
        if active[flow]:
            for link in links[starts[flow] : starts[flow + 1]]:
                growing[link] += 1
                weight[link] += weights[flow]
    heap = [(left[link] / weight[link], link) for link in range(len(left)) if growing[link]]
    heapq.heapify(heap)
    level = 0.0
    while heap:
        key, full = heap[0]
        if growing[full] == 0:
            heapq.heappop(heap)
            continue
        now = left[full] / weight[full]
        if now > key * (1 + ROUNDING):
            heapq.heapreplace(heap, (now, full))
            continue
        heapq.heappop(heap)
        # the common rate level falls only by rounding errors, which are ignored
        level = max(level, now)
        for flow in link_flows[link_starts[full] : link_starts[full + 1]]:
            if active[flow] and numpy.isnan(rates[flow]):
                rates[flow] = level * weights[flow]
                for link in links[starts[flow] : starts[flow + 1]]:
                    left[link] -= rates[flow]
                    growing[link] -= 1
                    weight[link] -= weights[flow]
    return rates


@CompiledForMany
def _smallest_equal_share(routes: Routes, flows_on: Floats, capacity: Floats) -> Floats:
    starts, links = routes
    rates = numpy.full(len(starts) - 1, numpy.nan)
    for flow in range(len(rates)):
        for link in links[starts[flow] : starts[flow + 1]]:
            share = capacity[link] / flows_on[link]
            if not rates[flow] <= share:  # true for a rate that is NaN (not yet assigned)
                rates[flow] = share
    return rates
