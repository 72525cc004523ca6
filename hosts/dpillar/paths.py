"""DPillar's paths (Liao 2012, sections 3 and 4): symbol by symbol around the pillar.

A hop to the next column can set one symbol of the label: clockwise from column C symbol C,
counter-clockwise symbol C - 1. DPillarSP (Algorithm 1) sets symbols until the label is the
destination's, and then continues in the same direction to the destination's column. DPillarMP
(Algorithm 2) pairs the n/2 neighbours s' of the source with the n/2 neighbours d' of the
destination, so that the paths s -> s' ~ DPillarSP ~> d' -> d share no server and no switch except
the first and the last switch.

There are no routing tables: a server needs its own address and the addresses in the packet.
"""

from __future__ import annotations

from typing import NamedTuple

from pillarbox.hosts.base.path import Path, Step
from pillarbox.hosts.dpillar.rules import (
    ANY_PAIRING,
    DPILLAR_MP,
    DPILLAR_SP,
    FAR_SIDE,
    MINIMAL,
    neighbour,
    numbers,
    onward,
    proxies,
)
from pillarbox.topos.dpillar import DPillar


class Proxies(NamedTuple):
    """The tunnel of a DPillarMP path: proxy source s', proxy destination d', direction `port`."""

    source: int
    destination: int
    port: int


def sp_step(dpillar: DPillar, server: int, destination: int, port: int) -> Step:
    """Return DPillarSP's next hop (Algorithm 1); `port` is the direction."""
    return Step(port, onward(*numbers(dpillar), server, destination, port))


def sp_path(dpillar: DPillar, source: int, destination: int, port: int) -> Path:
    """Return DPillarSP's path in one direction, at most 2k - 1 hops long (section 3.2).

    >>> from pillarbox.topos.dpillar import CLOCKWISE
    >>> dpillar = DPillar(8, 2)
    >>> x, y = dpillar.server("1.0.0"), dpillar.server("1.1.3")
    >>> [dpillar.address(s) for s in sp_path(dpillar, x, y, CLOCKWISE).servers]  # section 4.2
    ['1.0.0', '0.1.0', '1.1.3']
    """
    return DPILLAR_SP[port].path(dpillar, source, destination)


def minimal_path(dpillar: DPillar, source: int, destination: int) -> Path:
    """Return a path with the fewest hops.

    >>> dpillar = DPillar(8, 3)
    >>> x, y = dpillar.server("0.0.0.0"), dpillar.server("1.1.0.0")
    >>> [dpillar.address(s) for s in minimal_path(dpillar, x, y).servers]  # sp-cw has four hops
    ['0.0.0.0', '2.1.0.0', '1.1.0.0']
    """
    return MINIMAL.path(dpillar, source, destination)


def mp_tunnels(dpillar: DPillar, source: int, destination: int, port: int) -> dict[Path, Proxies]:
    """Return the disjoint paths of DPillarMP in one direction, each with the proxies of its tunnel.

    There are n/2 paths of at most 2k + 1 hops, but fewer to a server on the source's first switch.
    A path that returns through the source or passes the destination early is shortened there, and
    may then equal another path. If the path returned through the source, its proxy source becomes
    the server after that visit: with the original one, Algorithm 3 would send the packet in a loop.
    """
    tunnels: dict[Path, Proxies] = {}
    if source == destination:
        return tunnels
    for number in range(dpillar.half):
        path = DPILLAR_MP[port].path(dpillar, source, destination, number)
        _, far = proxies(*numbers(dpillar), source, destination, port, number)
        tunnels.setdefault(path, Proxies(path.servers[1], far, port))
    return tunnels


def pairing_tunnels(
    dpillar: DPillar, source: int, destination: int, port: int
) -> dict[Path, Proxies]:
    """Return the paths of all pairings of s' and d' in one direction, each with its proxies.

    Footnote 3 permits other pairings than that of `mp_tunnels`. Paths of different pairings may
    share servers.

    >>> from pillarbox.topos.dpillar import CLOCKWISE
    >>> dpillar = DPillar(4, 2)
    >>> s, d = dpillar.server("0.0.0"), dpillar.server("0.1.1")
    >>> for path in pairing_tunnels(dpillar, s, d, CLOCKWISE):
    ...     print(*map(dpillar.address, path.servers))
    0.0.0 1.0.1 0.1.1
    0.0.0 1.0.0 0.1.0 1.1.1 0.1.1
    """
    tunnels: dict[Path, Proxies] = {}
    if source == destination:
        return tunnels
    number = port * dpillar.half**2  # the clockwise paths come first
    for choice in range(dpillar.half**2):
        path = ANY_PAIRING.path(dpillar, source, destination, number + choice)
        far = neighbour(*numbers(dpillar), destination, 1 - port, choice % dpillar.half)
        tunnels.setdefault(path, Proxies(path.servers[1], far, port))
    return tunnels


def far_side_tunnels(
    dpillar: DPillar, source: int, destination: int, port: int
) -> dict[Path, Proxies]:
    """Return the paths that enter the destination by its far port, each with its proxies.

    There are n/2 - 1 such paths. Their proxy destinations are on the switch at the far port.

    >>> dpillar = DPillar(4, 2)
    >>> s, d = dpillar.server("0.0.0"), dpillar.server("0.1.0")
    >>> for port in (0, 1):
    ...     for path in far_side_tunnels(dpillar, s, d, port):
    ...         print(*map(dpillar.address, path.servers))
    0.0.0 1.0.1 0.1.1 0.1.0
    0.0.0 0.1.0
    """
    if source == destination:
        return {}
    found = FAR_SIDE[port].paths(dpillar, source, destination)
    return {path: Proxies(path.servers[1], path.servers[-2], port) for path in found}


def mp_paths(dpillar: DPillar, source: int, destination: int, port: int) -> list[Path]:
    """Return the disjoint paths of DPillarMP in one direction (see `mp_tunnels`).

    >>> from pillarbox.topos.dpillar import CLOCKWISE
    >>> dpillar = DPillar(8, 2)
    >>> s, d = dpillar.server("0.0.0"), dpillar.server("0.3.3")
    >>> for path in mp_paths(dpillar, s, d, CLOCKWISE)[:2]:
    ...     print(*map(dpillar.address, path.servers))
    0.0.0 1.0.3 0.3.3
    0.0.0 1.0.0 0.1.0 1.1.3 0.3.3
    """
    return list(mp_tunnels(dpillar, source, destination, port))


def mp_step(
    dpillar: DPillar, server: int, source: int, destination: int, by: Proxies
) -> Step | None:
    """Return a tunnelled packet's next hop (Algorithm 3), None at the destination."""
    if server == destination:
        return None
    if server == source:
        return Step(by.port, by.source)
    if server == by.destination:
        return Step(by.port, destination)
    return sp_step(dpillar, server, by.destination, by.port)
