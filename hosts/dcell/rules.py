"""DCell's rules (Guo 2008): the cables of DCellRouting, and DFR's decision at one server.

Scalar functions of uids, without objects: routers call them, and simulators compile them as they
are. Why DFR decides as it does stands in `hosts.dcell.dfr`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from hosts.base.recursive import Nested, common_level, far_end, link_between

NONE = -1  # no server, no link, no port


class Works(Protocol):
    """Tells whether a server's link of a level works, for the servers of one DCell_b."""

    def __getitem__(self, link: tuple[int, int], /) -> bool: ...


class Inside(NamedTuple):
    """The ways of a server inside its DCell_b, by places: uids less the lowest one there."""

    nearest: Sequence[int]  # the places of others in reach, the nearest first, then the lowest
    ports: Sequence[int]  # the first hop to each place, NONE where there is no way
    peers: Sequence[int]  # places, too


class Hop(NamedTuple):
    """The next hop; the proxy to which the packet goes from now on; whether it was rerouted."""

    port: int
    peer: int
    proxy: int
    rerouted: bool


def nested(sizes: Sequence[int]) -> Nested:
    """Return the cables: server i of a member leads to its i-th other one (BuildDCells)."""
    return Nested(sizes, [1] * len(sizes), [0] * len(sizes), list(range(len(sizes))))


def first_link(net: Nested, b: int, here: int, target: int) -> tuple[int, int, int]:
    """Return DCellRouting's first link of a level above b: its ends and level (FirstLink).

    Without one, the target, NONE and NONE: what comes first is where the packet goes inside its
    DCell_b either way.
    """
    far, level = NONE, NONE
    while here // net.sizes[b] != target // net.sizes[b]:
        level = common_level(net.sizes, here, target)
        target, far = link_between(net, here, target, level)
    return target, far, level


def next_link(net: Nested, b: int, here: int, destination: int, proxy: int) -> tuple[int, int, int]:
    """Return the first link to where the packet goes: to its proxy, if that is not here."""
    return first_link(net, b, here, destination if proxy in (NONE, here) else proxy)


def own_link(works: Works, here: int, proxy: int, came_by: int, link: tuple[int, int, int]) -> Hop:
    """Return the hop over this server's own link, if that is the next one above b and works.

    The ways inside the DCell_b do not matter then. Without such a hop, its port is NONE.
    """
    proxy = NONE if proxy == here else proxy
    near, far, level = link
    if near == here and level != came_by and works[here, level]:
        return Hop(level, far, proxy, False)
    return Hop(NONE, NONE, NONE, False)


def choose(
    net: Nested,
    b: int,
    works: Works,
    inside: Inside,
    here: int,
    destination: int,
    proxy: int,
    came_by: int,
    link: tuple[int, int, int],
) -> Hop:
    """Return where a packet goes that has another server as its destination (Fig. 5).

    Retry count and TTL are left to the caller. Without a hop, its port is NONE.

    Parameters
    ----------
    net, b, works, inside
        What the server knows.
    here, destination : int
        Different servers.
    proxy : int
        In the packet's header, NONE without one.
    came_by : int
        The port by which the packet came, NONE where it is the server's own.
    link : tuple
        Of `next_link`.
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
        return Hop(NONE, NONE, NONE, False)
    # Departs from the paper: Fig. 5 jumps up even where the destination is in the own DCell_l,
    # into which the packet would only have to come back.
    together = here // net.sizes[level] == destination // net.sizes[level]
    wanted, top = level + (at_proxy and not together), len(net.sizes) - 1
    # Lower levels come last: in a partial DCell all upper links of a DCell_b can be missing, and
    # another DCell_b has some.
    for turn in range(top - b):
        level = wanted + turn if wanted + turn <= top else top - turn
        # Departs from the paper: Fig. 5 lets a packet turn round at its proxy, and go back over
        # the link by which it came to meet the same failure again.
        if level != came_by and works[here, level]:
            far = far_end(net, here, level)
            return Hop(level, far, far, True)
        for place in inside.nearest:
            if works[first + place, level]:
                far = far_end(net, first + place, level)
                return _towards(inside, first, place, far, True)
    return Hop(NONE, NONE, NONE, False)


def _towards(inside: Inside, first: int, place: int, proxy: int, rerouted: bool) -> Hop:
    """Return the first hop to a place."""
    # 0 + makes a plain integer of one in an array of small ones: all hops are of one type.
    return Hop(0 + inside.ports[place], first + inside.peers[place], proxy, rerouted)
