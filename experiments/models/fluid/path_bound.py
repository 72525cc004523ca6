"""Upper bound of the goodput over known paths, at the shares that TCP gave the flows.

Max-min fair rates (`fluid.ideal`) are not a bound. TCP prefers flows with short round
trip times. In networks whose servers relay, these are the flows over few cables, and a larger share
of them increases the total goodput of the same cables: up to 1.2 times the total of fair shares.

The bound therefore keeps the measured shares. All flows grow in proportion to their delivered bytes
until a cable of their path is full. The measured goodput fits the cables, so that every flow grows
at least to its measured goodput: a measured total above the bound means that the recorded paths or
cable rates are wrong. The bound equals the measured total if each flow fills a cable.

Switches that spread flows by a hash (equal-cost multi-path) do not report their choice. The bound
then counts the servers' cables only.

Acknowledgements use no capacity here: their number depends on the receiver's segment coalescing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy

from pillarbox.experiments.models.arrays import Bools, Floats, Ints
from pillarbox.experiments.models.fluid.directed_links import (
    FlowPath,
    Routes,
    link_count,
    link_rates_bps,
    links_of_flow,
    path_counts,
)
from pillarbox.experiments.models.fluid.ideal import goodput_share
from pillarbox.experiments.models.fluid.rates import MaxMin, link_loads
from pillarbox.hosts.base.algorithms import SHORTEST, algorithms
from pillarbox.topos.base.topology import Topology

# Minimum weight of a flow, relative to the mean goodput: the paths of idle flows count as well.
LEAST_SHARE = 1e-3


class PathBound:
    """Upper bound of the rates of flows that share cables, given each flow's path.

    Parameters
    ----------
    topology, routing
        The network and its routing, whose headers count.
    paths : sequence of FlowPath
        The path of each flow; None for a flow without a path, several paths of a sprayed flow.
    rate_bps : float
        The rate of every cable in bit/s, in each direction; levels of cables may multiply it.
    mtu : int
        The size of the largest IP packet in bytes.
    later : sequence of FlowPath, optional
        Paths to which flows moved at an unknown moment. Such a flow is limited by the cables that
        both of its paths share.
    multipath : bool
        True for the subflows of Multipath TCP on pinned paths.
    most_bps : float
        Upper bound of the sum of all rates, for flows of which some have unknown paths.

    >>> from pillarbox import topos
    >>> from pillarbox.experiments.models.fluid.ideal import static_paths
    >>> tree = topos.parse("tree,2,1")
    >>> bound = PathBound(tree, "", static_paths(tree, "", [(0, 1), (1, 0)]), 1514 * 8, 1500)
    >>> bound.rates_bps(numpy.array([1.0, 9.0])).tolist()  # 1 full frame per second
    [11584.0, 11584.0]
    """

    def __init__(
        self,
        topology: Topology,
        routing: str,
        paths: Sequence[FlowPath],
        rate_bps: float,
        mtu: int = 1500,
        later: Sequence[FlowPath] | None = None,
        *,
        multipath: bool = False,
        most_bps: float = math.inf,
    ) -> None:
        self._most_bps = most_bps
        share = goodput_share(topology, routing, mtu, multipath=multipath)
        self.capacity_bps = link_rates_bps(topology, rate_bps) * share
        self._links = link_count(topology)
        both = [*zip(paths, paths if later is None else later, strict=True)]
        cables = [_common_links(topology, *of_flow) for of_flow in both]
        if _switches_choose(topology, routing):
            cables = [links[[0, -1]] if len(links) else links for links in cables]
        starts = numpy.zeros(len(cables) + 1, numpy.int64)
        starts[1:] = numpy.cumsum([len(of_flow) for of_flow in cables])
        empty = numpy.empty(0, numpy.int64)
        self._routes = Routes(starts, numpy.concatenate([empty, *cables]))
        self._bound = numpy.diff(starts) > 0
        # Each link is used by at least this part of a flow, before and after a change of paths.
        later_counts = path_counts([after for _, after in both])
        self._path_counts = numpy.maximum(path_counts(paths), later_counts)
        self._max_min = MaxMin(self._routes, self._links, self._path_counts)

    def rates_bps(self, delivered_bps: Floats, active: Bools | None = None) -> Floats:
        """Return the upper bound of each flow's rate at these shares in bit/s; 0 if inactive.

        A flow that no cable limits keeps its measured rate.
        """
        if active is None:
            active = numpy.ones(len(delivered_bps), bool)
        sharing = active & self._bound
        rates = numpy.where(active, delivered_bps, 0.0)
        if sharing.any():
            mean = float(delivered_bps[sharing].mean())
            weights = numpy.maximum(delivered_bps, LEAST_SHARE * mean) if mean else None
            found = self._max_min.rates(self.capacity_bps, sharing, weights)
            rates[sharing] = found[sharing]
        total = float(rates.sum())
        return rates * (self._most_bps / total) if total > self._most_bps else rates

    def least_s(self, bits: Floats) -> float:
        """Return the transmission time of these bits over the busiest cable, in seconds."""
        loads = link_loads(self._routes, bits / self._path_counts, self._links)
        return max(
            float((loads / self.capacity_bps).max(initial=0.0)),
            float(bits.sum()) / self._most_bps,
        )


def _switches_choose(topology: Topology, routing: str) -> bool:
    """Return True if switches choose paths by a hash: only the servers' cables are known then."""
    known = algorithms(topology).get(routing)
    avoids = routing == SHORTEST or (known is not None and known.around is not None)
    return topology.ports == 1 and avoids


def _common_links(topology: Topology, path: FlowPath, later: FlowPath) -> Ints:
    """Return the links that both paths of a flow share; an empty array without a path.

    A link that several paths of a sprayed flow use occurs as often as in both sets of paths.
    """
    links = links_of_flow(topology, path)
    if later == path:
        return links
    common = Counter(links.tolist()) & Counter(links_of_flow(topology, later).tolist())
    return numpy.array([*common.elements()], numpy.int64)
