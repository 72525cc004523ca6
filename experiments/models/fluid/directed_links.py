"""Directed links as dense integers: a link is identified by its egress port.

A cable is two links, one in each direction. Link ``first port of the node + port`` leaves a server
or switch by that port: numbers need no table, and arrays of servers and ports give arrays of links.
Ports without a cable have a number too, which no path uses.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy

from pillarbox.experiments.models.arrays import Bools, Floats, Ints
from pillarbox.hosts.base.failures import NONE, Failures
from pillarbox.hosts.base.path import Path, switches_between
from pillarbox.topos.base.errors import UnknownNameError, require
from pillarbox.topos.base.polymorphic import NOTHING
from pillarbox.topos.base.topology import Topology

# Path of a flow; the paths that a sprayed flow's packets take in turn; None without a path.
FlowPath: TypeAlias = Path | tuple[Path, ...] | None


class LinkName(NamedTuple):
    """A link in readable form; `port` distinguishes parallel links between the same two nodes."""

    from_node: str
    to_node: str
    port: int


class Routes(NamedTuple):
    """The links of many flows: those of flow i are ``links[starts[i]:starts[i + 1]]``.

    A flow that has no path has no links.
    """

    starts: Ints
    links: Ints

    @property
    def flows(self) -> int:
        """Number of flows, including flows without a path."""
        return len(self.starts) - 1

    def rows(self, flows: Ints) -> Routes:
        """Return the routes of these flows, in this order."""
        counts = numpy.diff(self.starts)[flows]
        starts = numpy.concatenate([[0], numpy.cumsum(counts)])
        offsets = numpy.repeat(self.starts[flows] - starts[:-1], counts)
        return Routes(starts, self.links[numpy.arange(starts[-1]) + offsets])


def link_count(topology: Topology) -> int:
    """Return the size of arrays indexed by directed link, unused ports included."""
    return topology.servers * topology.ports + topology.switches * topology.switch_ports


def link_at(topology: Topology, node: Any, port: Any) -> Any:
    """Return the link that leaves the node by that port; arrays of nodes or ports give arrays.

    >>> from pillarbox import topos
    >>> bcube = topos.parse("bcube,4,1")
    >>> link_at(bcube, 15, 1), link_at(bcube, 16, 0)  # the last server's, the first switch's
    (31, 32)
    """
    return link_of(*port_counts(topology), node, port)


def port_counts(topology: Topology) -> tuple[int, int, int]:
    """Return the arguments of `link_of`: servers, ports per server, and ports per switch."""
    return topology.servers, topology.ports, topology.switch_ports


def link_of(servers: int, ports: int, switch_ports: int, node: Any, port: Any) -> Any:
    """Return the link number computed from port counts alone (see `link_at`)."""
    switches = (node >= servers) * (
        node - servers
    )  # number of switches numbered before the node; 0 for a server
    return node * ports + switches * (switch_ports - ports) + port


def end_of(topology: Topology, link: int) -> tuple[int, int]:
    """Return the node and port that a link leaves by: the inverse of `link_at`."""
    of_servers = topology.servers * topology.ports
    if link < of_servers:
        return divmod(link, topology.ports)
    switch, port = divmod(link - of_servers, topology.switch_ports)
    return topology.servers + switch, port


def link_rates_bps(topology: Topology, rate_bps: float) -> float | Floats:
    """Return the rate of every link: one number, or an array if levels have rates of their own.

    >>> from pillarbox import topos
    >>> link_rates_bps(topos.parse("bcube,2,1,rates=9:1"), 10.0)[:4].tolist()  # h0 and h1
    [90.0, 10.0, 90.0, 10.0]
    """
    if not topology.factors.rates:
        return rate_bps
    return rate_bps * link_factors(topology, topology.factors.rates)


def link_factors(topology: Topology, factors: tuple[float, ...]) -> Floats:
    """Return the factor of each link by the level of its cable; 1 without a cable or factors."""
    return _factors_by_level(topology, factors) if factors else numpy.ones(link_count(topology))


@functools.lru_cache(maxsize=8)  # cached, since a trial has many spans of the same network
def _factors_by_level(topology: Topology, factors: tuple[float, ...]) -> Floats:
    found = numpy.ones(link_count(topology))
    cables = topology.cable_arrays()
    of_level = numpy.array(factors, numpy.float64)[cables.level]
    for node, port in ((cables.a, cables.a_port), (cables.b, cables.b_port)):
        found[link_at(topology, node.astype(numpy.int64), port)] = of_level
    found.flags.writeable = False
    return found


def path_minima(routes: Routes, values: Floats) -> Floats:
    """Return the smallest value of each flow's links, 1 for a flow without a path."""
    found = numpy.full(routes.flows, numpy.inf)
    flow_of = numpy.repeat(numpy.arange(routes.flows), numpy.diff(routes.starts))
    numpy.minimum.at(found, flow_of, values[routes.links])
    found[numpy.isinf(found)] = 1.0
    return found


def path_sums(routes: Routes, values: Floats) -> Floats:
    """Return the sum of the values of each flow's links; 0 for a flow without a path."""
    flow_of = numpy.repeat(numpy.arange(routes.flows), numpy.diff(routes.starts))
    found: Floats = numpy.bincount(flow_of, values[routes.links], routes.flows).astype(float)
    return found


def cabled_links(topology: Topology) -> Ints:
    """Return all links that have a cable, in numerical order."""
    return cabled_ends(topology)[0]


def cabled_ends(topology: Topology) -> tuple[Ints, Ints, Ints]:
    """Return all links that have a cable, in order, with the node at their near and far end.

    >>> from pillarbox import topos
    >>> [column.tolist() for column in cabled_ends(topos.parse("tree,2,1"))]  # nodes 2, 3: switches
    [[0, 1, 2, 3, 4, 5], [0, 1, 2, 2, 2, 3], [2, 2, 0, 1, 3, 2]]
    """
    cables = topology.cable_arrays()
    a, b = cables.a.astype(numpy.int64), cables.b.astype(numpy.int64)
    links = [link_at(topology, a, cables.a_port), link_at(topology, b, cables.b_port)]
    found, near, far = map(numpy.concatenate, (links, (a, b), (b, a)))
    order = numpy.argsort(found)
    return found[order], near[order], far[order]


def links_of(topology: Topology, path: Path) -> Ints:
    """Return the directed links of the path in order, including those between switches.

    >>> from pillarbox import topos
    >>> from pillarbox.hosts.base.algorithms import route
    >>> bcube = topos.parse("bcube,4,1")
    >>> found = links_of(bcube, route(bcube, "bcube", 0, 5).paths[0])
    >>> [tuple(name_of(bcube, link)) for link in found.tolist()]
    [('0.0', 's4', 1), ('s4', '1.0', 1), ('1.0', 's1', 0), ('s1', '1.1', 1)]
    """
    found: list[int] = []
    for server, step in zip(path.servers, path.steps, strict=False):
        found.append(link_at(topology, server, step.port))
        for switch, onward in pairwise((*switches_between(topology, server, step), step.peer)):
            found.append(link_at(topology, switch, _port_to(topology, switch, onward)))
    return numpy.array(found, numpy.int64)


def hop_counts(topology: Topology, routes: Routes) -> Ints:
    """Return the number of each flow's server-to-server hops: of its links that leave servers."""
    leaves_server = routes.links < topology.servers * topology.ports
    before = numpy.concatenate([[0], numpy.cumsum(leaves_server)])
    return numpy.diff(before[routes.starts])


def leave_relays(topology: Topology, routes: Routes) -> Bools:
    """Return a mask of the flows' links: True where a relay, not the source, sends."""
    leaves_relay = routes.links < topology.servers * topology.ports
    has_any = routes.starts[:-1] < routes.starts[1:]
    # the first link of a path leaves the source, not a relay
    leaves_relay[routes.starts[:-1][has_any]] = False
    return leaves_relay


def paths_of_flow(path: FlowPath) -> tuple[Path, ...]:
    """Return the paths that a flow's packets take in turn: one if the flow is not sprayed."""
    if isinstance(path, Path):
        return (path,)
    return path or ()


def path_counts(paths: Sequence[FlowPath]) -> Floats:
    """Return the number of paths of each flow, at least 1: each carries an equal part."""
    return numpy.array([max(1, len(paths_of_flow(path))) for path in paths], numpy.float64)


def links_of_flow(topology: Topology, path: FlowPath) -> Ints:
    """Return the directed links of all paths of a flow, one path after the other."""
    links = [links_of(topology, one) for one in paths_of_flow(path)]
    return numpy.concatenate([numpy.empty(0, numpy.int64), *links])


def routes_of(topology: Topology, paths: Sequence[FlowPath]) -> Routes:
    """Return the links of flows that take these paths; None is a flow without a path."""
    links = [links_of_flow(topology, path) for path in paths]
    starts = numpy.zeros(len(links) + 1, numpy.int64)
    starts[1:] = numpy.cumsum([len(of_flow) for of_flow in links])
    return Routes(starts, numpy.concatenate([numpy.empty(0, numpy.int64), *links]))


def name_of(topology: Topology, link: int) -> LinkName:
    """Return the link's ends, servers by their address and switches as ``s3``, and its port."""
    node, port = end_of(topology, int(link))
    far = topology.plug(node, port).node
    require(far != NOTHING, f"no cable of {topology.spec} is in port {port} of {node}")
    return LinkName(_node_name(topology, node), _node_name(topology, far), port)


def working_links(topology: Topology, failures: Failures = NONE) -> Bools:
    """Return an array by link number: True if the link has a cable and works.

    A failed link between servers must be a cable: a connection over a switch that other servers
    still use is not a link.
    """
    works = numpy.zeros(link_count(topology), bool)
    works[cabled_links(topology)] = True
    for node in failures.nodes:
        for port, plug in topology.neighbours(node):
            works[link_at(topology, node, port)] = False
            works[link_at(topology, plug.node, plug.port)] = False
    for pair in failures.links:
        a, b = sorted(pair)
        cables = [(port, plug) for port, plug in topology.neighbours(a) if plug.node == b]
        require(
            bool(cables),
            f"there is no cable between {_node_name(topology, a)} and {_node_name(topology, b)}: "
            "name a server and its switch",
            UnknownNameError,
        )
        for port, plug in cables:
            works[link_at(topology, a, port)] = False
            works[link_at(topology, b, plug.port)] = False
    return works


def _port_to(topology: Topology, switch: int, onward: int) -> int:
    """Return the switch's port that leads to the next node."""
    if onward < topology.servers:  # search the server's ports: a server has fewer than a switch
        plugs = (topology.server_plug(onward, port) for port in range(topology.ports))
        return next(int(plug.port) for plug in plugs if plug.node == switch)
    return next(port for port, plug in topology.neighbours(switch) if plug.node == onward)


def _node_name(topology: Topology, node: int) -> str:
    return topology.address(node) if node < topology.servers else topology.node_name(node)
