"""Failures in a large network as arrays, and the flows whose paths survive them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy

from pillarbox.experiments.models.arrays import Bools, Ints
from pillarbox.experiments.models.fluid.directed_links import Routes, link_at, link_count
from pillarbox.experiments.models.simulator.compiled import native
from pillarbox.topos.base.errors import require
from pillarbox.topos.base.topology import Topology


@dataclass(frozen=True)
class FailedNodes:
    """Failed servers, switches and cables, by number (cables as in `cable_arrays`)."""

    servers: Bools
    switches: Bools
    cables: Bools

    def works(self, topology: Topology) -> Bools:
        """Return for every link number whether the link is cabled and both it and its ends work."""
        cabled = _cables_and_links(topology)
        nodes = numpy.concatenate([self.servers, self.switches])
        well = ~(self.cables | nodes[cabled.a] | nodes[cabled.b])
        works = numpy.zeros(link_count(topology), bool)
        for links in (cabled.from_a, cabled.from_b):
            works[links] = well
        return works


class CablesAndLinks(NamedTuple):
    """The cables of a network: their end nodes, and their links in both directions."""

    a: Ints
    b: Ints
    from_a: Ints
    from_b: Ints


@lru_cache(maxsize=1)  # cached, since failures are drawn many times in the same network
def _cables_and_links(topology: Topology) -> CablesAndLinks:
    cables = topology.cable_arrays()
    links = (
        link_at(topology, node.astype(numpy.int64), port)
        for node, port in ((cables.a, cables.a_port), (cables.b, cables.b_port))
    )
    return CablesAndLinks(cables.a, cables.b, *links)


def draw(
    topology: Topology,
    random: numpy.random.Generator,
    *,
    servers: float = 0.0,
    switches: float = 0.0,
    cables: float = 0.0,
    racks: float = 0.0,
    rack_servers: int | None = None,
) -> FailedNodes:
    """Return random failures: the given shares of servers, racks, switches and cables.

    A rack is `rack_servers` servers with consecutive numbers (by default as many as a switch has
    ports), and fails together with the switches that have cables to its servers only.

    >>> from pillarbox import topos
    >>> broken = draw(topos.parse("dcell,4,1"), numpy.random.default_rng(1), racks=0.2)
    >>> int(broken.servers.sum()), int(broken.switches.sum()), int(broken.cables.sum())
    (4, 1, 0)
    """
    for share in (servers, switches, cables, racks):
        require(
            0 <= share <= 1,
            f"a share of failed servers, switches or cables is from 0 to 1, not {share}",
        )
    broken = FailedNodes(
        _failed_sample(topology.servers, servers, random),
        _failed_sample(topology.switches, switches, random),
        _failed_sample(topology.cables, cables, random),
    )
    if racks:
        size = rack_servers or topology.switch_ports
        failed = _failed_sample(-(-topology.servers // size), racks, random)
        broken.servers[:] |= failed[numpy.arange(topology.servers) // size]
        broken.switches[:] |= _isolated_switches(topology, failed, size)
    return broken


def surviving_routes(routes: Routes, works: Bools) -> Routes:
    """Return the flows' links, empty for flows whose path has failed."""
    return links_of_selected_flows(routes, intact_flows(works, routes))


def links_of_selected_flows(routes: Routes, kept: Bools) -> Routes:
    """Return the flows' links, empty for flows that are not in the mask `kept`."""
    return Routes(*_links_of_kept_flows(kept, routes))


@native
def intact_flows(works: Bools, routes: Routes) -> Bools:
    """Return for each flow whether all of its links work."""
    starts, links = routes
    alive = numpy.ones(len(starts) - 1, numpy.bool_)
    for flow in range(len(alive)):
        for place in range(starts[flow], starts[flow + 1]):
            if not works[links[place]]:
                alive[flow] = False
                break
    return alive


@native
def _links_of_kept_flows(kept: Bools, routes: Routes) -> tuple[Ints, Ints]:
    starts, links = routes
    begins = numpy.zeros(len(starts), numpy.int64)
    for flow in range(len(kept)):
        count = starts[flow + 1] - starts[flow] if kept[flow] else 0
        begins[flow + 1] = begins[flow] + count
    left = numpy.empty(begins[-1], links.dtype)
    for flow in range(len(kept)):
        if kept[flow]:
            left[begins[flow] : begins[flow + 1]] = links[starts[flow] : starts[flow + 1]]
    return begins, left


def _failed_sample(count: int, share: float, random: numpy.random.Generator) -> Bools:
    failed = numpy.zeros(count, bool)
    failed[random.choice(count, round(share * count), replace=False, shuffle=False)] = True
    return failed


def _isolated_switches(topology: Topology, failed: Bools, size: int) -> Bools:
    """Return a mask of the switches whose servers are all in failed racks."""
    cables = _cables_and_links(topology)
    up = (cables.a < topology.servers) & (cables.b >= topology.servers)
    switch = cables.b[up].astype(numpy.int64) - topology.servers
    alive = numpy.bincount(switch[~failed[cables.a[up] // size]], minlength=topology.switches)
    servers = numpy.bincount(switch, minlength=topology.switches)
    dead: Bools = (alive == 0) & (servers > 0)
    return dead
