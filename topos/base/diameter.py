"""Exact diameter of a network in server-to-server hops, by a search from all servers together."""

from __future__ import annotations

from functools import reduce
from operator import or_

from pillarbox.topos.base.topology import Topology

MOST_SEARCHED = 4096  # maximum number of servers: the search holds a bit for each pair


def diameter(topology: Topology) -> int | None:
    """Return the length of the longest shortest path, None if two servers are not connected.

    A set of servers is one integer with a bit per server. In each step a server reaches what the
    members of its meeting points reached before.

    >>> from pillarbox import topos
    >>> diameter(topos.parse("dcell,4,1")), diameter(topos.parse("ficonn,4,2"))
    (3, 7)
    """
    groups = _meeting_points(topology)
    groups_of: list[list[int]] = [[] for _ in range(topology.servers)]
    for number, members in enumerate(groups):
        for server in members:
            groups_of[server].append(number)
    everyone = (1 << topology.servers) - 1
    reached = [1 << server for server in range(topology.servers)]
    hops = 0
    while any(servers != everyone for servers in reached):
        met = [reduce(or_, (reached[server] for server in members)) for members in groups]
        further = [
            reduce(or_, (met[number] for number in numbers), reached[server])
            for server, numbers in enumerate(groups_of)
        ]
        if further == reached:
            return None
        reached, hops = further, hops + 1
    return hops


def _meeting_points(topology: Topology) -> list[list[int]]:
    """Return the servers of each meeting point: a fabric of switches, or a cable between servers.

    Two servers with a common meeting point are one hop apart. Switches that are cabled to one
    another are one fabric, since a path through switches only passes no server.
    """
    fabric_of = dict.fromkeys(range(topology.servers, topology.nodes), -1)
    groups: list[list[int]] = []
    for switch in fabric_of:
        if fabric_of[switch] < 0:
            fabric_of[switch] = len(groups)
            groups.append(_servers_of_fabric(topology, switch, fabric_of))
    for server in range(topology.servers):
        for _, plug in topology.neighbours(server):
            if server < plug.node < topology.servers:
                groups.append([server, plug.node])
    return [members for members in groups if members]


def _servers_of_fabric(topology: Topology, switch: int, fabric_of: dict[int, int]) -> list[int]:
    """Return the servers at a switch and at all switches that cables join to it; mark these."""
    servers, waiting = [], [switch]
    while waiting:
        for _, plug in topology.neighbours(waiting.pop()):
            if plug.node < topology.servers:
                servers.append(plug.node)
            elif fabric_of[plug.node] < 0:
                fabric_of[plug.node] = fabric_of[switch]
                waiting.append(plug.node)
    return servers
