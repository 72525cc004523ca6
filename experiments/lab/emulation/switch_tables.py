"""Tables of switches that route, computed from the network's routing algorithm.

A table contains, for each server, the egress ports of the switch for packets to that server.
There are two kinds of algorithms:

- Algorithms with one path regardless of failures (the fat-tree's two-level routing) have tables
  with one port for each server, the port on the path. These tables never change.
- Algorithms that avoid failures (equal-cost multi-path) have tables with every port on a shortest
  working path, and the switch spreads flows over these ports by a hash.

The tables do not depend on the kind of network: a tree gets tables as well as a fat-tree.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from pillarbox.hosts.base.algorithms import SHORTEST, algorithms, route
from pillarbox.hosts.base.failures import NONE, Failures
from pillarbox.topos.base.errors import require
from pillarbox.topos.base.topology import Topology

Ports = tuple[int, ...]
Table = dict[int, Ports]  # forwarding table of a switch: its ports to each reachable server
PORT = 0  # number of a server's only port in networks whose switches route


def adapts(topology: Topology, routing: str) -> bool:
    """Return True if a routing's switch tables change when cables or switches fail."""
    return routing == SHORTEST or algorithms(topology)[routing].around is not None


def tables(topology: Topology, routing: str, failures: Failures = NONE) -> list[Table]:
    """Return the forwarding table of every switch under a routing.

    Parameters
    ----------
    topology : Topology
        A network whose servers have one port each.
    routing : str
        Name of one of the network's algorithms.
    failures : Failures
        Failures known to the switches; used only by a routing that avoids failures.

    Examples
    --------
    The two-level table of an aggregation switch of pod 0: prefixes lead down, suffixes up.

    >>> from pillarbox import topos
    >>> fattree = topos.parse("fattree,4")
    >>> table = tables(fattree, "two-level")[fattree.switch("s8")]
    >>> [table[fattree.server(address)] for address in ("0.0.1", "0.1.0", "2.0.0", "2.0.1")]
    [(0,), (1,), (2,), (3,)]
    >>> tables(fattree, "hashed")[fattree.switch("s8")][fattree.server("2.0.1")]
    (2, 3)
    """
    if routing == SHORTEST:
        return _ecmp_tables(topology, failures, failures)
    if adapts(topology, routing):
        # As in the routing's algorithm, a path with failures is never longer than without.
        return _ecmp_tables(topology, NONE, failures)
    return _routing_tables(topology, routing)


def _routing_tables(topology: Topology, routing: str) -> list[Table]:
    """Return the switches' forwarding tables for the paths that a routing computes."""
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
                ports = (_port_towards(topology, node, towards),)
                known = found[node - topology.servers].setdefault(destination, ports)
                require(
                    known == ports,
                    f"{routing} of {topology.spec} depends on more than the destination: switches "
                    "cannot route by it",
                )
    return found


def _ecmp_tables(topology: Topology, lasting: Failures, failures: Failures) -> list[Table]:
    """Return the switches' forwarding tables with every port on a shortest working path (ECMP).

    Paths are as short as with the `lasting` failures alone, and work with all `failures`.
    """
    found: list[Table] = [{} for _ in range(topology.switches)]
    for edge, servers in _servers_of_edges(topology).items():
        ports = _ports_to(topology, edge, lasting, failures)
        for server in servers:
            if server in failures.nodes or frozenset((server, edge)) in failures.links:
                continue
            for switch, towards in ports.items():
                last = (topology.server_plug(server, PORT).port,)
                found[switch - topology.servers][server] = last if switch == edge else towards
    return found


def _ports_to(
    topology: Topology, edge: int, lasting: Failures, failures: Failures
) -> dict[int, Ports]:
    """Return each switch's ports on working paths to an edge switch, nearest switch first."""
    distances = _distances_to_edge(topology, edge, lasting)
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


def _distances_to_edge(topology: Topology, edge: int, failures: Failures) -> dict[int, int]:
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
    """Yield those ports of a switch that lead to a working switch by a working cable."""
    for port, plug in topology.neighbours(switch):
        works = plug.node not in failures.nodes and (
            frozenset((switch, plug.node)) not in failures.links
        )
        if works and plug.node >= topology.servers:
            yield port, plug.node


def _servers_of_edges(topology: Topology) -> dict[int, list[int]]:
    """Return the attached servers of every edge switch, by the switch's node number."""
    edges: dict[int, list[int]] = {}
    for server in range(topology.servers):
        edges.setdefault(topology.server_plug(server, PORT).node, []).append(server)
    return edges


def _port_towards(topology: Topology, node: int, towards: int) -> int:
    return next(port for port, plug in topology.neighbours(node) if plug.node == towards)
