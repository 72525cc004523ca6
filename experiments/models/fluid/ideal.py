"""The ideal goodput that a live run is compared with: TCP over the routed paths, as a fluid.

A cable's rate counts Ethernet frames with their 14-byte headers (as HTB does, see
`pillarbox.experiments.lab.linux.shaping`). TCP delivers the part of each full frame after the
headers::

    14 Ethernet | header of the routing | 20 IP | 32 TCP with time stamps | up to 1448 delivered
                  0, 20 or 36           |<-------------- mtu, 1500 -------------------->|

A flow of Multipath TCP has a path for each of its subflows, and its goodput is the sum of theirs:
Linux controls the congestion of each subflow separately. Its packets carry the source route of
pinned paths in place of the routing's header, and a further TCP option (MULTIPATH_BYTES).

Acknowledgements use capacity in the other direction, on the path from the destination back to the
source. They have priority there and limit no flow: a flow whose acknowledgements pass a congested
link is not slowed down to its share of that link.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy

from pillarbox.experiments.models.arrays import Bools, Floats
from pillarbox.experiments.models.fluid.bounds import concurrent_flow, throughput
from pillarbox.experiments.models.fluid.completion import completed_s
from pillarbox.experiments.models.fluid.directed_links import (
    FlowPath,
    Routes,
    link_count,
    link_rates_bps,
    path_counts,
    routes_of,
)
from pillarbox.experiments.models.fluid.rates import MaxMin, link_loads
from pillarbox.experiments.models.workloads.flows import Flow
from pillarbox.hosts.base.algorithms import algorithms, route
from pillarbox.hosts.base.failures import NONE, Failures
from pillarbox.hosts.base.path import Path
from pillarbox.hosts.base.spraying import MOST_SPRAYED
from pillarbox.hosts.wire.source_route import SIZE as SOURCE_ROUTE_BYTES
from pillarbox.topos.base.errors import UnknownNameError, require
from pillarbox.topos.base.topology import Topology

if TYPE_CHECKING:
    from pillarbox.experiments.models.fluid.completion import RatesOf

ETHERNET_BYTES = 14
TCP_IP_BYTES = 20 + 20 + 12  # header bytes of IPv4, TCP and TCP timestamps
# Bytes of Multipath TCP's option in a data segment: mapping and acknowledgement (RFC 8684, section
# 3.3), padded.
MULTIPATH_BYTES = 24
SEGMENTS_PER_ACK = 2  # TCP segments per delayed acknowledgement (RFC 5681, section 4.2)
# Rates and the capacity that acknowledgements take depend on each other: iterations converge fast.
ROUNDS = 50
MOST_VARIABLES = 10_000  # size limit of a bound's linear program (1 to 2 seconds)
SETTLED = 1e-9


@dataclass(frozen=True)
class Ideal:
    """Ideal goodput and end time of each flow, NaN without a path."""

    paths: tuple[FlowPath, ...]
    goodput_bps: Floats  # max-min fair goodput of each flow while all flows are active
    end_s: Floats  # end time of each flow of fixed volume; NaN for other flows
    # End time of each step of a collective operation or training iteration; None without steps.
    step_end_s: Floats | None = None

    @property
    def total_bps(self) -> float:
        """Total goodput of all flows in bit/s."""
        return float(numpy.nansum(self.goodput_bps))

    @property
    def completion_s(self) -> float:
        """End time of the last flow or step that ends, in seconds; missing if none ends."""
        ends = self.end_s if self.step_end_s is None else self.step_end_s
        ended = ends[~numpy.isnan(ends)]
        return float(ended.max()) if len(ended) else float("nan")


def header_bytes(topology: Topology, routing: str) -> int:
    """Return the size of the routing's header between Ethernet and IP, in bytes.

    >>> from pillarbox import topos
    >>> header_bytes(topos.parse("bcube,4,1"), "bsr"), header_bytes(topos.parse("tree,4,4"), "")
    (36, 0)
    """
    router = algorithms(topology)[routing_or_default(topology, routing)].router
    return router.header_bytes() if router else 0


def routing_or_default(topology: Topology, routing: str) -> str:
    """Return the routing's name; an empty name means the network's default routing."""
    known = algorithms(topology)
    require(
        not routing or routing in known,
        f"{topology.spec} has no routing {routing!r}: routings are {', '.join(known)}",
        UnknownNameError,
    )
    return routing or next(iter(known))


def header_efficiency(header: int, mtu: int = 1500) -> float:
    """Return TCP's share of a cable's rate for a routing header of this size in bytes.

    >>> round(header_efficiency(0), 4), round(header_efficiency(36), 4)
    (0.9564, 0.9342)
    """
    return (mtu - TCP_IP_BYTES) / (mtu + ETHERNET_BYTES + header)


def goodput_share(
    topology: Topology, routing: str, mtu: int = 1500, *, multipath: bool = False
) -> float:
    """Return TCP's share of a cable's rate under a routing, or Multipath TCP's on pinned paths.

    >>> from pillarbox import topos
    >>> bcube = topos.parse("bcube,4,1")
    >>> [round(goodput_share(bcube, "bsr", 9000, multipath=some), 4) for some in (False, True)]
    [0.9887, 0.9856]
    """
    if multipath:
        return header_efficiency(SOURCE_ROUTE_BYTES, mtu) * (
            1 - MULTIPATH_BYTES / (mtu - TCP_IP_BYTES)
        )
    return header_efficiency(header_bytes(topology, routing), mtu)


def acknowledged_share(header: int, mtu: int = 1500, segments: float = SEGMENTS_PER_ACK) -> float:
    """Return the cable rate that acknowledgements use, relative to the acknowledged goodput."""
    return (ETHERNET_BYTES + header + TCP_IP_BYTES) / (segments * (mtu - TCP_IP_BYTES))


def static_paths(
    topology: Topology,
    routing: str,
    pairs: Sequence[tuple[int, int]],
    failures: Failures = NONE,
) -> list[Path | None]:
    """Return each server pair's path by the routing algorithm alone, None without a path."""
    name = routing_or_default(topology, routing)
    found: dict[tuple[int, int], Path | None] = {}
    for pair in pairs:
        if pair not in found:
            paths = route(topology, name, *pair, failures).paths
            found[pair] = paths[0] if paths else None
    return [found[pair] for pair in pairs]


def static_flow_paths(
    topology: Topology,
    routing: str,
    pairs: Sequence[tuple[int, int]],
    failures: Failures = NONE,
) -> list[FlowPath]:
    """Return each server pair's path by the routing algorithm alone; all paths if it sprays."""
    name = routing_or_default(topology, routing)
    if not algorithms(topology)[name].sprays:
        return [*static_paths(topology, name, pairs, failures)]
    found = {
        pair: tuple(route(topology, name, *pair, failures, several=True).paths[:MOST_SPRAYED])
        for pair in dict.fromkeys(pairs)
    }
    return [found[pair] or None for pair in pairs]


def ideal(
    topology: Topology,
    routing: str,
    flows: Sequence[Flow],
    rate_bps: float,
    mtu: int = 1500,
    paths: Sequence[FlowPath] | None = None,
    *,
    ack_paths: Sequence[FlowPath] | None = None,
    failures: Failures = NONE,
    segments_per_ack: float = SEGMENTS_PER_ACK,
    step_ends_s: Callable[[RatesOf], Floats] | None = None,
    flow_ends_s: Callable[[Floats], Floats] | None = None,
    owners: Sequence[int] | None = None,
) -> Ideal:
    """Return the ideal goodput and end times of flows on a routing's paths.

    Parameters
    ----------
    topology : Topology
        The network.
    routing : str
        Routing whose headers count, and whose paths are used if none are given; empty for the
        default routing.
    flows : sequence of Flow
        Flows that run simultaneously.
    rate_bps : float
        Rate of every cable in bit/s, in each direction; levels of cables may multiply it.
    mtu : int
        Size of the largest IP packet in bytes.
    paths, ack_paths : sequence of FlowPath, optional
        Path of each flow, and of its acknowledgements; None is a flow without a path, several paths
        carry equal parts of a sprayed flow. Paths that are not given are computed by the algorithm
        alone.
    failures : Failures
        Failed nodes and links, for the paths that are not given.
    segments_per_ack : float
        Number of full segments per acknowledgement.
    step_ends_s, flow_ends_s : callable, optional
        Functions of a collective operation: the first returns the end time of each step, and its
        argument is the function that returns the rates of active flows; the second returns the end
        time of each flow, given those of all steps. By default each flow is active from its start
        until its volume is delivered.
    owners : sequence of int, optional
        For flows of Multipath TCP, whose subflows have a path each: the flow of each path, as an
        index of `flows`. By default each flow has one path.
    """
    require(rate_bps > 0, f"ideal throughput needs a cable rate above 0 bit/s, not {rate_bps}")
    pairs = [(flow.source, flow.destination) for flow in flows]
    if paths is None:
        paths = static_flow_paths(topology, routing, pairs, failures)
    if ack_paths is None:
        back = [(destination, source) for source, destination in pairs]
        ack_paths = static_flow_paths(topology, routing, back, failures)
    for given in (paths, ack_paths):
        require(
            len(given) == len(flows if owners is None else owners),
            "ideal throughput needs one entry for each flow: its path, or None",
        )
    multipath = owners is not None
    header = SOURCE_ROUTE_BYTES if multipath else header_bytes(topology, routing)
    efficiency = goodput_share(topology, routing, mtu, multipath=multipath)
    sharing = _LinkSharing(
        MaxMin(routes_of(topology, paths), link_count(topology), path_counts(paths)),
        routes_of(topology, ack_paths),
        path_counts(ack_paths),
        link_rates_bps(topology, rate_bps) * efficiency,
        # Data and acknowledgements are in the same unit, bit/s of goodput.
        acknowledged_share(header, mtu, segments_per_ack) * efficiency,
    )
    rates_of = sharing.rates
    if owners is not None:
        rates_of = _JointRates(sharing, owners, len(flows)).rates
    everyone = numpy.ones(len(flows), bool)
    goodput = rates_of(everyone)
    if step_ends_s and flow_ends_s:
        steps = step_ends_s(rates_of)
        return Ideal(tuple(paths), goodput, flow_ends_s(steps), steps)
    return Ideal(tuple(paths), goodput, _end_times_s(flows, rates_of))


def bound_bps(
    topology: Topology,
    routing: str,
    flows: Sequence[Flow],
    rate_bps: float,
    mtu: int = 1500,
    *,
    multipath: bool = False,
) -> float | None:
    """Return the upper bound in bit/s of the total goodput of any routing without failures.

    Flows of one volume cannot all complete faster than at this rate, which is the aggregate
    bottleneck throughput of the best routing (Guo 2009, section 6); flows of fixed duration may
    divide the total in any way. Any path may be used, and acknowledgements use no capacity. The
    bound is None if the linear program is too large or if flows have different volumes.

    >>> from pillarbox import topos
    >>> bcube = topos.parse("bcube,2,1")
    >>> pairs = [(a, b) for a in range(4) for b in range(4) if a != b]
    >>> flows = [Flow(at, *pair, volume_bytes=1000) for at, pair in enumerate(pairs)]
    >>> round(bound_bps(bcube, "bsr", flows, 1.0) / header_efficiency(36), 6)  # n (N-1) / (n-1)
    6.0
    """
    pairs = tuple((flow.source, flow.destination) for flow in flows)
    if not flows or len({flow.volume_bytes for flow in flows}) > 1:
        return None
    together = flows[0].volume_bytes is not None
    most = _max_total_rate(topology, pairs, together)
    efficiency = goodput_share(topology, routing, mtu, multipath=multipath)
    return None if most is None else most * rate_bps * efficiency


@functools.lru_cache(
    maxsize=16
)  # cached, since the repeats of an experiment often have the same pairs of servers
def _max_total_rate(
    topology: Topology, pairs: tuple[tuple[int, int], ...], together: bool
) -> float | None:
    """Return the maximum total rate of these flows, in units of the network's rate."""
    if len({source for source, _ in pairs}) * 2 * topology.cables > MOST_VARIABLES:
        return None
    if together:
        return len(pairs) * concurrent_flow(topology, pairs, link_rates_bps(topology, 1.0)).at_most
    return throughput(topology, pairs, link_rates_bps(topology, 1.0)).at_most


def _end_times_s(flows: Sequence[Flow], rates_of: RatesOf) -> Floats:
    """Return the end times of flows of fixed volume; missing if any flow has no fixed volume."""
    if not flows or any(flow.volume_bytes is None for flow in flows):
        return numpy.full(len(flows), numpy.nan)
    volumes = numpy.array([8.0 * (flow.volume_bytes or 0) for flow in flows])
    starts = numpy.array([flow.start_s for flow in flows])
    return completed_s(volumes, starts, rates_of)


class _LinkSharing:
    """Max-min fair allocation of links to flows, after the capacity for acknowledgements."""

    def __init__(
        self,
        max_min: MaxMin,
        acks: Routes,
        ack_path_counts: Floats,  # number of paths of each flow's acknowledgements
        capacity_bps: float | Floats,
        ack_share: float,
    ) -> None:
        self.acks, self.ack_path_counts = acks, ack_path_counts
        self.capacity_bps, self.ack_share, self.links = capacity_bps, ack_share, max_min.links
        self._max_min = max_min

    def rates(self, active: Bools) -> Floats:
        """Return the goodput of each active flow in bit/s."""
        taken = numpy.zeros(self.links)
        rates = numpy.full(len(active), numpy.nan)
        for _ in range(ROUNDS):
            before = rates
            rates = self._max_min.rates(numpy.maximum(self.capacity_bps - taken, 0), active)
            if not self.ack_share or numpy.allclose(
                rates, before, rtol=SETTLED, atol=0, equal_nan=True
            ):
                break
            taken = self.ack_share * link_loads(self.acks, rates / self.ack_path_counts, self.links)
        return rates


class _JointRates:
    """Rates of flows that have several paths: the sum of the rates on their paths."""

    def __init__(self, sharing: _LinkSharing, owners: Sequence[int], flows: int) -> None:
        self._sharing, self._flows = sharing, flows
        self._owners = numpy.array(owners, numpy.int64)

    def rates(self, active: Bools) -> Floats:
        """Return the goodput of each active flow in bit/s; NaN for a flow without a path."""
        rates = self._sharing.rates(active[self._owners])
        known = ~numpy.isnan(rates)
        owners = self._owners[known]
        total = numpy.bincount(owners, rates[known], self._flows)
        there = numpy.bincount(owners, minlength=self._flows) > 0
        return numpy.where(there, total, numpy.nan)
