"""Flows of one volume that begin at once: when they end as fluids, and by TCP."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy
from numpy.typing import NDArray

from experiments.analysis.arrivals.engine import Course, course
from experiments.analysis.fluid.ideal import header_efficiency
from experiments.analysis.fluid.links import Routes, link_count, name_of
from experiments.analysis.packets.simulated import Packets, Tcp, packets
from experiments.analysis.simulator.paths import choose, routes
from topos.base.errors import require
from topos.base.topology import Topology

if TYPE_CHECKING:
    Floats = NDArray[numpy.float64]

SPREAD_S = 1e-3  # in which flows begin: no two programs do in the same moment
WHERE = 3  # links with most drops that are named


@dataclass(frozen=True)
class Bulk:
    """Flows, and their paths there and back."""

    topology: Topology
    routes: Routes
    back: Routes
    start_s: Floats
    volume_bytes: int
    tcp: Tcp
    seed: int

    def fluid(self, moments_s: Floats | None = None) -> Course:
        """Return what becomes of them if all share links max-min fairly."""
        volumes = numpy.full(len(self.start_s), 8.0 * self.volume_bytes)
        goodput_bps = self.tcp.rate_bps * header_efficiency(self.tcp.header, self.tcp.mtu)
        capacity = numpy.full(link_count(self.topology), goodput_bps)
        return course(self.routes, self.start_s, volumes, capacity, moments_s=moments_s)

    def packets(self, moments_s: Floats | None = None) -> Packets:
        """Return what becomes of them by TCP."""
        volumes = numpy.full(len(self.start_s), self.volume_bytes)
        paths = self.routes, self.back
        return packets(self.topology, *paths, self.start_s, volumes, self.tcp, moments_s, self.seed)

    def times(self, end_s: Floats) -> dict[str, float | None]:
        """Return what flows deliver together until the last one ends, and when they end."""
        known = end_s[~numpy.isnan(end_s)]
        if not len(known):
            return dict.fromkeys(("goodput_bps", "median_s", "p95_s", "last_s"))
        last_s = float(known.max())
        median_s, p95_s = map(float, numpy.quantile(known, (0.5, 0.95)))
        goodput_bps = 8.0 * self.volume_bytes * len(known) / last_s
        return {
            "goodput_bps": goodput_bps, "median_s": median_s, "p95_s": p95_s, "last_s": last_s
        }  # fmt: skip


def bulk(
    topology: Topology,
    routing: str,
    pairs: Sequence[tuple[int, int]],
    volume_bytes: int,
    tcp: Tcp,
    seed: int,
) -> Bulk:
    """Return flows between these pairs; of several paths each takes a random one, both ways.

    >>> import topos
    >>> flows = bulk(topos.parse("tree,2,1"), "", [(0, 1)], 1448, Tcp(1514 * 8, 1e6), seed=1)
    >>> 2 < flows.times(flows.packets().end_s)["last_s"] < 3  # a frame takes a second
    True
    """
    require(bool(pairs), "there is no flow: name a pattern that has one")
    source, destination = (numpy.array(column, numpy.int64) for column in zip(*pairs, strict=True))
    random = numpy.random.default_rng(seed)
    start_s = random.random(len(source)) * SPREAD_S
    choices = choose(topology, routing).choices(topology)
    number, back = random.integers(0, choices, (2, len(source)))
    return Bulk(
        topology,
        routes(topology, routing, source, destination, number),
        routes(topology, routing, destination, source, back),
        start_s,
        volume_bytes,
        tcp,
        seed,
    )


def most_dropped(topology: Topology, found: Packets) -> list[dict[str, Any]]:
    """Return the links at which most packets were dropped, the worst first."""
    worst = numpy.argsort(-found.dropped, kind="stable")[:WHERE]
    return [
        {"where": _name(topology, int(link)), "drops": int(found.dropped[link])}
        for link in worst
        if found.dropped[link]
    ]


def _name(topology: Topology, link: int) -> str:
    cables = link_count(topology)
    if link >= cables:
        return f"the processor of {topology.address(link - cables)}"
    near, far, _ = name_of(topology, link)
    return f"{near} to {far}"
