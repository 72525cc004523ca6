"""DPillar's routing (Liao 2012, sections 3 and 4): symbol by symbol, round the pillar.

A hop to the next column can set one symbol of the label: clockwise from column C symbol C, the
other way symbol C - 1. DPillarSP (Algorithm 1) sets symbols until the label is the destination's
and then goes on in the same direction to its column. DPillarMP (Algorithm 2) pairs the n/2
neighbours s' of the source with the n/2 neighbours d' of the destination, so that the paths
s -> s' ~ DPillarSP ~> d' -> d share no server and no switch, except the first and the last switch.

Nothing is looked up: a server knows its own address and those in the packet.
"""

from __future__ import annotations

from typing import NamedTuple

from hosts.base.path import Path, Step, walked
from topos.dpillar import CLOCKWISE, DPillar


class Proxies(NamedTuple):
    """The tunnel of one path of DPillarMP; the port is its direction."""

    source: int
    destination: int
    port: int


def symbol_set(dpillar: DPillar, server: int, port: int) -> int:
    """Return which symbol the next hop through that port can set."""
    column: int = server // dpillar.column_servers
    return (column - port) % dpillar.k


def neighbour(dpillar: DPillar, server: int, port: int, symbol: int) -> int:
    """Return the server one column on whose free symbol is that one."""
    column, label = divmod(server, dpillar.column_servers)
    weight: int = dpillar.half ** symbol_set(dpillar, server, port)
    onward = 1 if port == CLOCKWISE else -1
    label += (symbol - label // weight % dpillar.half) * weight
    return (column + onward) % dpillar.k * dpillar.column_servers + label


def sp_step(dpillar: DPillar, server: int, destination: int, port: int) -> Step:
    """Return DPillarSP's next hop (Algorithm 1); `port` is the direction.

    In the ring phase the symbol that would be set is right already, so that both phases are the
    same step: one column on, with the destination's symbol.
    """
    weight = dpillar.half ** symbol_set(dpillar, server, port)
    wanted = destination % dpillar.column_servers // weight % dpillar.half
    return Step(port, neighbour(dpillar, server, port, wanted))


def sp_path(dpillar: DPillar, source: int, destination: int, port: int) -> Path:
    """Return the single path of DPillarSP: at most 2k - 1 hops (section 3.2).

    >>> dpillar = DPillar(8, 2)
    >>> x, y = dpillar.server("1.0.0"), dpillar.server("1.1.3")
    >>> [dpillar.address(s) for s in sp_path(dpillar, x, y, CLOCKWISE).servers]  # section 4.2
    ['1.0.0', '0.1.0', '1.1.3']
    """

    def step(at: int, to: int) -> Step:
        return sp_step(dpillar, at, to, port)

    return walked(source, destination, step, limit=2 * dpillar.k - 1)


def proxy_pairs(dpillar: DPillar, source: int, destination: int, port: int) -> list[Proxies]:
    """Return the pairs of proxies whose paths are disjoint (Algorithm 2), in either direction.

    Departs from the paper: where the first and the last hop set the same symbol (the destination
    is one column on), equal symbols are paired, as the proof in Appendix B does; Algorithm 2 as
    printed would let two paths meet there.
    """
    first = symbol_set(dpillar, source, port)
    last = symbol_set(dpillar, destination, 1 - port)

    def pair(of_source: int, of_destination: int) -> Proxies:
        near = neighbour(dpillar, source, port, of_source)
        far = neighbour(dpillar, destination, 1 - port, of_destination)
        return Proxies(near, far, port)

    symbols = range(dpillar.half)
    if first == last:
        return [pair(symbol, symbol) for symbol in symbols]
    special_near = _symbol(dpillar, destination, first)
    special_far = _symbol(dpillar, source, last)
    near = [symbol for symbol in symbols if symbol != special_near]
    far = [symbol for symbol in symbols if symbol != special_far]
    return [
        pair(special_near, special_far),
        *(pair(a, b) for a, b in zip(near, far, strict=True)),
    ]


def mp_tunnels(dpillar: DPillar, source: int, destination: int, port: int) -> dict[Path, Proxies]:
    """Return the disjoint paths of DPillarMP in one direction, each with the proxies that make it.

    There are n/2 of at most 2k + 1 hops, but fewer to a server that shares the first switch: raw
    paths that come back through the source or pass the destination early are cut there, and can
    then be the same. Where one came back through the source, its proxy source becomes the server
    after that visit: with the raw one, Algorithm 3 would send the packet round for ever.
    """
    tunnels: dict[Path, Proxies] = {}
    if source == destination:
        return tunnels
    for proxies in proxy_pairs(dpillar, source, destination, port):
        middle = sp_path(dpillar, proxies.source, proxies.destination, port)
        raw = (Step(port, proxies.source), *middle.steps, Step(port, destination))
        path = Path(source, raw).cut()
        tunnels.setdefault(path, proxies._replace(source=path.servers[1]))
    return tunnels


def mp_paths(dpillar: DPillar, source: int, destination: int, port: int) -> list[Path]:
    """Return the disjoint paths of DPillarMP in one direction (see `mp_tunnels`).

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
    """Return where a tunnelled packet goes next (Algorithm 3), None where it has arrived."""
    if server == destination:
        return None
    if server == source:
        return Step(by.port, by.source)
    if server == by.destination:
        return Step(by.port, destination)
    return sp_step(dpillar, server, by.destination, by.port)


def shared_switches(dpillar: DPillar, source: int, destination: int, port: int) -> set[int]:
    """Return the two switches that the disjoint paths of one direction have in common."""
    first = dpillar.server_plug(source, port).node
    return {first, dpillar.server_plug(destination, 1 - port).node}


def _symbol(dpillar: DPillar, server: int, position: int) -> int:
    weight: int = dpillar.half**position
    return server % dpillar.column_servers // weight % dpillar.half
