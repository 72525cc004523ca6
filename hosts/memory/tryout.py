"""Routes that live protocols find: run routers in memory until they converge, then send packets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from pillarbox.hosts.base.algorithms import Routed
from pillarbox.hosts.base.failures import NONE, Failures
from pillarbox.hosts.base.router import Router
from pillarbox.hosts.base.timers import FAST
from pillarbox.hosts.memory.memory_network import MemoryNetwork, Trip
from pillarbox.topos.base.errors import require
from pillarbox.topos.base.topology import Topology

MOST_SERVERS = 2048  # maximum; heartbeats of more servers would take minutes of CPU time
# Seconds for heartbeats to time out and link states to be flooded. Then servers know the failures
# and report them to probes; only FiConn's probes, which search for a path, may time out.
SETTLE_S = 2 * FAST.neighbour_timeout_s + 3 * FAST.search_timeout_s
# Seconds after a flow's first packet for probing its paths, and replacements of failed paths.
PROBE_S = 6 * FAST.search_timeout_s
ARRIVAL_S = 1.0


def network_of(
    topology: Topology, router: type[Router], failures: Failures = NONE, seed: int = 0
) -> MemoryNetwork:
    """Return a network in memory whose routers have run until they know the failures.

    Servers are not notified of failures: they detect missing heartbeats.
    """
    require(
        topology.servers <= MOST_SERVERS,
        f"{topology.spec} has {topology.servers} servers: protocols run in memory up to "
        f"{MOST_SERVERS}; choose a smaller network",
    )

    def make_router(network: Topology, server: int) -> Router:
        return router(network, server, timers=FAST, seed=seed)

    network = MemoryNetwork(topology, make_router)
    network.fail(failures)
    network.run(SETTLE_S if failures != NONE else 0.0)
    return network


def packet_path(network: MemoryNetwork, source: int, destination: int) -> Routed:
    """Return the path of a flow's second packet in a network in memory, after path probing."""
    first = _send_packet(network, source, destination)
    network.run(PROBE_S)
    trip = _send_packet(network, source, destination) if first.steps else first
    return Routed([trip.path]) if trip.arrived_s else Routed([], trip.lost or "never arrived")


@dataclass
class TryoutSummary:
    """Results of packets sent between many pairs of servers: arrivals, losses and hops."""

    pairs: int = 0
    arrived: int = 0
    hops: int = 0
    most_hops: int = 0
    lost: Counter[str] = field(default_factory=Counter)  # number of lost packets, by drop reason
    worst: Trip | None = None  # recorded path of the delivered packet with the most hops


def summarize_packets(network: MemoryNetwork, pairs: Iterable[tuple[int, int]]) -> TryoutSummary:
    """Send two packets between each pair of servers; return a summary of the second packets."""
    pairs = list(pairs)
    for source, destination in pairs:
        network.send_udp(source, destination)
    network.run(PROBE_S)
    trips = [network.send_udp(source, destination) for source, destination in pairs]
    network.run(ARRIVAL_S)
    summary = TryoutSummary(pairs=len(trips))
    for trip in trips:
        if not trip.arrived_s:
            summary.lost[trip.lost or "never arrived"] += 1
            continue
        summary.arrived += 1
        summary.hops += len(trip.steps)
        if len(trip.steps) > summary.most_hops:
            summary.most_hops, summary.worst = len(trip.steps), trip
    return summary


def _send_packet(network: MemoryNetwork, source: int, destination: int) -> Trip:
    trip = network.send_udp(source, destination)
    network.run_until(network.now + ARRIVAL_S, lambda: bool(trip.arrived_s or trip.lost))
    return trip
