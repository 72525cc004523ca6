"""What switches that route have in their tables, from what the network's algorithm computes.

A table says for each server out of which ports of the switch packets to it may go. There are two
sorts of algorithms:

- One that computes one path whatever has failed (the fat-tree's two-level routing) has tables with
  one port for each server: where the path leads. They never change.
- One that goes around failures (equal-cost multi-path) has every port that begins one of the
  shortest ways that work, and the switch spreads flows over them by a hash.

Which network it is does not matter here: the tree gets tables as well as the fat-tree.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from hosts.base.algorithms import SHORTEST, algorithms, route
from hosts.base.failures import NONE, Failures
from topos.base.errors import require
from topos.base.topology import Topology

Ports = tuple[int, ...]
Table = dict[int, Ports]  # of a switch: the ports to each server that it reaches
PORT = 0  # of a server: behind switches that route it has one


def adapts(topology: Topology, routing: str) -> bool:
    """Tell whether the routing's tables change with failures."""
    return routing == SHORTEST or algorithms(topology)[routing].around is not None


def tables(topology: Topology, routing: str, failures: Failures = NONE) -> list[Table]:
    """Return the table of every switch.

    Parameters
    ----------
    topology : Topology
        A network whose servers have one port each.
    routing : str
        The name of one of its algorithms.
    failures : Failures
        What the switches know of; used only by a routing that goes around failures.

    Examples
    --------
    The two-level table of an aggregation switch of pod 0: prefixes lead down, suffixes up.

    >>> import topos
    >>> fattree = topos.parse("fattree,4")
    >>> table = tables(fattree, "two-level")[fattree.switch("s8")]
    >>> [table[fattree.server(address)] for address in ("0.0.1", "0.1.0", "2.0.0", "2.0.1")]
    [(0,), (1,), (2,), (3,)]
    >>> tables(fattree, "hashed")[fattree.switch("s8")][fattree.server("2.0.1")]
    (2, 3)
    """
    if routing == SHORTEST:
        return _equal_cost(topology, failures, failures)
    if adapts(topology, routing):
        # Like the algorithm: only ways as short as they are where nothing has failed.
        return _equal_cost(topology, NONE, failures)
    return _computed(topology, routing)


def _computed(topology: Topology, routing: str) -> list[Table]:
    """Return the tables that make packets take the computed paths."""
    found: list[Table] = [{} for _ in range(topology.switches)]
    edges = _servers_of_edges(topology)
    for servers in edges.values():
        for server in servers:
            plug = topology.server_plug(server, PORT)
            found[plug.node - topology.servers][server] = (plug.port,)
    for edge, servers in edges.items():
        for destination in range(topology.servers):
            if topology.server_plug(destination, PORT).node == edge:
                continue
            (path,) = route(topology, routing, servers[0], destination).paths
            for node, towards in pairwise(path.nodes(topology)[1:]):
                ports = (_port_to(topology, node, towards),)
                known = found[node - topology.servers].setdefault(destination, ports)
                require(
                    known == ports,
                    f"{routing} of {topology.spec} depends on more than the destination: switches "
                    "cannot route by it",
                )
    return found


def _equal_cost(topology: Topology, lasting: Failures, failures: Failures) -> list[Table]:
    """Return every port that begins a shortest way that works.

    Ways are as short as they are with the `lasting` failures, and work with all `failures`.
    """
    found: list[Table] = [{} for _ in range(topology.switches)]
    for edge, servers in _servers_of_edges(topology).items():
        ports = _ways_to(topology, edge, lasting, failures)
        for server in servers:
            if server in failures.nodes or frozenset((server, edge)) in failures.links:
                continue
            for switch, towards in ports.items():
                last = (topology.server_plug(server, PORT).port,)
                found[switch - topology.servers][server] = last if switch == edge else towards
    return found


def _ways_to(
    topology: Topology, edge: int, lasting: Failures, failures: Failures
) -> dict[int, Ports]:
    """Return the ports of each switch that begin a working way to a switch, nearest first."""
    distances = _distances(topology, edge, lasting)
    found: dict[int, Ports] = {} if edge in failures.nodes else {edge: ()}
    for switch, distance in distances.items():
        ports = tuple(
            port
            for port, far in _switches_around(topology, switch, failures)
            if far in found and distances[far] == distance - 1
        )
        if ports and switch not in failures.nodes:
            found[switch] = ports
    return found


def _distances(topology: Topology, edge: int, failures: Failures) -> dict[int, int]:
    distances = {edge: 0}
    for switch in (queue := [edge]):
        for _, far in _switches_around(topology, switch, failures):
            if far not in distances:
                distances[far] = distances[switch] + 1
                queue.append(far)
    return distances


def _switches_around(
    topology: Topology, switch: int, failures: Failures
) -> Iterator[tuple[int, int]]:
    """Yield the ports that lead to switches that work, by cables that work."""
    for port, plug in topology.neighbours(switch):
        works = plug.node not in failures.nodes and (
            frozenset((switch, plug.node)) not in failures.links
        )
        if works and plug.node >= topology.servers:
            yield port, plug.node


def _servers_of_edges(topology: Topology) -> dict[int, list[int]]:
    """Return the servers of every switch that has some, by its node."""
    edges: dict[int, list[int]] = {}
    for server in range(topology.servers):
        edges.setdefault(topology.server_plug(server, PORT).node, []).append(server)
    return edges


def _port_to(topology: Topology, node: int, towards: int) -> int:
    return next(port for port, plug in topology.neighbours(node) if plug.node == towards)
