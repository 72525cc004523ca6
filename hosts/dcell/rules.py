"""DCell's rules (Guo 2008): the links of DCellRouting, and DFR's decision at one server.

The rules are scalar functions of uids, without objects: routers call them, and simulators compile
the same functions. `pillarbox.hosts.dcell.dfr` explains why DFR decides as it does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from pillarbox.hosts.base.recursive import Nested, common_level, far_end, link_between

NONE = -1  # number that means "no server", "no link" or "no port"


class Works(Protocol):
    """Link states of the servers of one DCell_b: maps (uid, level) to True if the link works."""

    def __getitem__(self, link: tuple[int, int], /) -> bool: ...


class InnerRoutes(NamedTuple):
    """A server's shortest paths inside its DCell_b, whose servers are numbered from 0 by uid.

    A server's number there, its place, is its uid minus the lowest uid of the DCell_b.
    """

    nearest: Sequence[int]  # indices of the reachable servers in the DCell_b, nearest first
    ports: Sequence[int]  # egress port towards each server of the DCell_b, or NONE
    peers: Sequence[int]  # next hop towards each server of the DCell_b, as an index


class DCellHop(NamedTuple):
    """DFR's decision on a packet: next hop, proxy (intermediate server), and True if rerouted."""

    port: int
    peer: int
    proxy: int
    rerouted: bool


def nested(sizes: Sequence[int]) -> Nested:
    """Return DCell's wiring: server i of a sub-DCell has a cable to the i-th other sub-DCell.

    The wiring is that of BuildDCells.
    """
    return Nested(sizes, [1] * len(sizes), [0] * len(sizes), list(range(len(sizes))))


def first_link(net: Nested, b: int, here: int, target: int) -> tuple[int, int, int]:
    """Return the ends and level of the first link above level b on DCellRouting's path (FirstLink).

    If the target is in the same DCell_b, no such link is needed, and the result is
    (target, NONE, NONE). Either way the first value is the server that the packet heads for inside
    this DCell_b.
    """
    far, level = NONE, NONE
    while here // net.sizes[b] != target // net.sizes[b]:
        level = common_level(net.sizes, here, target)
        target, far = link_between(net, here, target, level)
    return target, far, level


def next_link(net: Nested, b: int, here: int, destination: int, proxy: int) -> tuple[int, int, int]:
    """Return the first link above level b on the path to the packet's proxy, or its destination."""
    return first_link(net, b, here, destination if proxy in (NONE, here) else proxy)


def own_link(
    works: Works, here: int, proxy: int, came_by: int, link: tuple[int, int, int]
) -> DCellHop:
    """Return DFR's hop over this server's own link out of its DCell_b, if it is next and works.

    Shortest paths inside the DCell_b do not matter for this hop. Without such a hop, the port of
    the result is NONE.
    """
    proxy = NONE if proxy == here else proxy
    near, far, level = link
    if near == here and level != came_by and works[here, level]:
        return DCellHop(level, far, proxy, False)
    return DCellHop(NONE, NONE, NONE, False)


def choose(
    net: Nested,
    b: int,
    works: Works,
    inside: InnerRoutes,
    here: int,
    destination: int,
    proxy: int,
    came_by: int,
    link: tuple[int, int, int],
) -> DCellHop:
    """Return the next hop of a packet whose destination is another server (Fig. 5).

    The caller checks retry count and TTL. If there is no next hop, the port of the result is NONE.

    Parameters
    ----------
    net, b, works, inside
        The DCell, the level b, and the link states and shortest paths that this server knows.
    here, destination : int
        This server and the packet's destination, which differ.
    proxy : int
        Proxy in the packet's header, NONE without one.
    came_by : int
        Arrival port of the packet, NONE for a packet of this server's own applications.
    link : tuple
        Result of `next_link`.
    """
    own = own_link(works, here, proxy, came_by, link)
    if own.port != NONE:
        return own
    at_proxy = proxy == here
    proxy = NONE if at_proxy else proxy
    near, far, level = link
    first = here // net.sizes[b] * net.sizes[b]
    in_reach = near != here and inside.ports[near - first] != NONE
    if in_reach and (level == NONE or works[near, level]):
        return _towards(inside, first, near - first, proxy, False)
    if level == NONE:
        return DCellHop(NONE, NONE, NONE, False)
    # Departs from the paper: Fig. 5 jumps up even if the destination is in this server's own
    # DCell_l, to which the packet would have to return.
    together = here // net.sizes[level] == destination // net.sizes[level]
    wanted, top = level + (at_proxy and not together), len(net.sizes) - 1
    # Lower levels come last: in a partial DCell a DCell_b may have no upper links at all, and must
    # then use a lower level to reach another DCell_b that has some.
    for turn in range(top - b):
        level = wanted + turn if wanted + turn <= top else top - turn
        # Departs from the paper: Fig. 5 lets a packet return from its proxy over the link by which
        # it arrived, where it would meet the same failure again.
        if level != came_by and works[here, level]:
            far = far_end(net, here, level)
            return DCellHop(level, far, far, True)
        for place in inside.nearest:
            if works[first + place, level]:
                far = far_end(net, first + place, level)
                return _towards(inside, first, place, far, True)
    return DCellHop(NONE, NONE, NONE, False)


def _towards(inside: InnerRoutes, first: int, place: int, proxy: int, rerouted: bool) -> DCellHop:
    """Return DFR's decision to forward a packet on the shortest path inside the DCell_b."""
    # `0 +` converts numpy's small integers to plain ones, so that all hops have one type (Numba).
    return DCellHop(0 + inside.ports[place], first + inside.peers[place], proxy, rerouted)
