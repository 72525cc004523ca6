"""Completion times of flows of equal volume that start together, as fluids and by TCP."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy

from pillarbox.experiments.models.arrays import Floats
from pillarbox.experiments.models.arrivals.fluid_events import (
    FluidSimulationResults,
    simulate_fluid_flows,
)
from pillarbox.experiments.models.fluid.directed_links import (
    Routes,
    link_count,
    link_rates_bps,
    name_of,
)
from pillarbox.experiments.models.fluid.ideal import header_efficiency
from pillarbox.experiments.models.packets.simulated_tcp import (
    TcpParameters,
    TcpSimulationResults,
    simulate_tcp_flows,
)
from pillarbox.experiments.models.packets.subflow_paths import SubflowPaths, subflow_paths
from pillarbox.experiments.models.simulator.paths import routes, routing_by_name
from pillarbox.topos.base.errors import require
from pillarbox.topos.base.topology import Topology

# Interval within which all bulk flows start, in seconds: programs never start simultaneously.
SPREAD_S = 1e-3
LISTED_LINKS = 3  # number of links in the list of those with most dropped packets


@dataclass(frozen=True)
class BulkFlows:
    """Simultaneous flows of equal volume, with their forward and return paths."""

    topology: Topology
    routes: Routes
    back: Routes
    start_s: Floats
    volume_bytes: int
    tcp: TcpParameters
    seed: int
    multipath: SubflowPaths | None = None  # paths of the flows' subflows; None for TCP

    def fluid(self, moments_s: Floats | None = None) -> FluidSimulationResults:
        """Simulate the bulk flows as fluids on one path each; they share links max-min fairly."""
        volumes = numpy.full(len(self.start_s), 8.0 * self.volume_bytes)
        goodput_bps = self.tcp.rate_bps * header_efficiency(self.tcp.header, self.tcp.mtu)
        rates_bps = link_rates_bps(self.topology, goodput_bps)
        capacity = numpy.full(link_count(self.topology), rates_bps)
        return simulate_fluid_flows(
            self.routes, self.start_s, volumes, capacity, moments_s=moments_s
        )

    def packets(self, moments_s: Floats | None = None, parts: int = 0) -> TcpSimulationResults:
        """Simulate the bulk flows by TCP or Multipath TCP, packet by packet.

        `parts` is that of `simulate_tcp_flows`.
        """
        volumes = numpy.full(len(self.start_s), self.volume_bytes)
        routes, back, subflows = self.multipath or (self.routes, self.back, None)
        flows = self.start_s, volumes, self.tcp, moments_s, self.seed
        return simulate_tcp_flows(
            self.topology, routes, back, *flows, subflows=subflows, parts=parts
        )

    def times(self, end_s: Floats) -> dict[str, float | None]:
        """Return the bulk flows' total goodput until the last flow ends, and completion times."""
        known = end_s[~numpy.isnan(end_s)]
        if not len(known):
            return dict.fromkeys(("goodput_bps", "median_s", "p95_s", "last_s"))
        last_s = float(known.max())
        median_s, p95_s = map(float, numpy.quantile(known, (0.5, 0.95)))
        goodput_bps = 8.0 * self.volume_bytes * len(known) / last_s
        return {
            "goodput_bps": goodput_bps, "median_s": median_s, "p95_s": p95_s, "last_s": last_s
        }  # fmt: skip


def bulk_flows(
    topology: Topology,
    routing: str,
    pairs: Sequence[tuple[int, int]],
    volume_bytes: int,
    tcp: TcpParameters,
    seed: int,
) -> BulkFlows:
    """Return flows between these pairs of servers, on random paths of the routing both ways.

    If the TCP parameters have subflows, packets take the paths of `subflow_paths` instead.

    >>> from pillarbox import topos
    >>> tcp = TcpParameters(1514 * 8, 1e6)
    >>> flows = bulk_flows(topos.parse("tree,2,1"), "", [(0, 1)], 1448, tcp, seed=1)
    >>> 2 < flows.times(flows.packets().end_s)["last_s"] < 3  # a frame takes a second
    True
    """
    require(bool(pairs), "the traffic pattern has no flows: choose a pattern that has at least one")
    source, destination = (numpy.array(column, numpy.int64) for column in zip(*pairs, strict=True))
    random = numpy.random.default_rng(seed)
    start_s = random.random(len(source)) * SPREAD_S
    choices = routing_by_name(topology, routing).choices(topology)
    number, back = random.integers(0, choices, (2, len(source)))
    return BulkFlows(
        topology,
        routes(topology, routing, source, destination, number),
        routes(topology, routing, destination, source, back),
        start_s,
        volume_bytes,
        tcp,
        seed,
        subflow_paths(topology, pairs, tcp.subflows) if tcp.subflows else None,
    )


def links_with_most_drops(topology: Topology, found: TcpSimulationResults) -> list[dict[str, Any]]:
    """Return the links at which most packets were dropped, the worst first."""
    worst = numpy.argsort(-found.dropped, kind="stable")[:LISTED_LINKS]
    return [
        {"where": _link_name(topology, int(link)), "drops": int(found.dropped[link])}
        for link in worst
        if found.dropped[link]
    ]


def _link_name(topology: Topology, link: int) -> str:
    cables = link_count(topology)
    if link >= cables:
        return f"the processor of {topology.address(link - cables)}"
    near, far, _ = name_of(topology, link)
    return f"{near} to {far}"
