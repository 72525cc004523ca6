"""DPillar's rules (Liao 2012, sections 3 and 4), on plain numbers: see `hosts.base.rules`.

A server is ``column * column_servers + label``. The numbers of a network are k, `half` (n/2, the
values of a symbol) and `size`, the servers of a column. A port is a direction.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hosts.base.probing import best_of
from hosts.base.rules import NONE, Rule
from topos.dpillar import CLOCKWISE, COUNTER_CLOCKWISE, DPillar

# A new flow is taken to use this share of what is free on its path, until it is measured.
NEW_FLOW_SHARE = 0.5

Hops = Iterator[tuple[int, int]]


def numbers(dpillar: DPillar) -> tuple[int, int, int]:
    """Return k, `half` and `size`."""
    return dpillar.k, dpillar.half, dpillar.column_servers


def symbol_set(k: int, size: int, server: int, port: int) -> int:
    """Return which symbol the next hop through that port can set."""
    return (server // size - port) % k


def symbol(half: int, size: int, server: int, position: int) -> int:
    """Return the server's symbol at that position of its label."""
    weight: int = half**position
    return server % size // weight % half


def neighbour(k: int, half: int, size: int, server: int, port: int, value: int) -> int:
    """Return the server one column on whose free symbol is that one."""
    column, label = server // size, server % size
    weight: int = half ** symbol_set(k, size, server, port)
    label += (value - label // weight % half) * weight
    return (column + (1 if port == CLOCKWISE else -1)) % k * size + label


def sibling(k: int, half: int, size: int, server: int, port: int, value: int) -> int:
    """Return the server of the same column, on the same switch, with that free symbol."""
    weight: int = half ** symbol_set(k, size, server, port)
    return server + (value - server % size // weight % half) * weight


def onward(k: int, half: int, size: int, server: int, destination: int, port: int) -> int:
    """Return where DPillarSP goes next (Algorithm 1).

    In the ring phase the symbol that would be set is right already, so that both phases are the
    same step: one column on, with the destination's symbol.
    """
    wanted = symbol(half, size, destination, symbol_set(k, size, server, port))
    return neighbour(k, half, size, server, port, wanted)


def single(
    k: int, half: int, size: int, port: int, source: int, destination: int, _choice: int
) -> Hops:
    """Yield the hops of DPillarSP in that direction."""
    here = source
    while here != destination:
        here = onward(k, half, size, here, destination, port)
        yield port, here


def proxies(
    k: int, half: int, size: int, source: int, destination: int, port: int, number: int
) -> tuple[int, int]:
    """Return a neighbour s' of the source and d' of the destination (Algorithm 2).

    The n/2 pairs have disjoint paths: the one that sets s' as the destination needs it goes with
    the d' that the source's symbols lead to, and the others pair as they come.
    """
    first = symbol_set(k, size, source, port)
    last = symbol_set(k, size, destination, 1 - port)
    near = far = number
    # Departs from the paper: where the first and the last hop set the same symbol (the destination
    # is one column on), equal symbols are paired, as the proof in Appendix B does; Algorithm 2 as
    # printed would let two paths meet there.
    if first != last:
        near = paired(number, symbol(half, size, destination, first))
        far = paired(number, symbol(half, size, source, last))
    return (
        neighbour(k, half, size, source, port, near),
        neighbour(k, half, size, destination, 1 - port, far),
    )


def paired(number: int, special: int) -> int:
    """Return the symbol of the pair with that number: the special one first, then the others."""
    if number == 0:
        return special
    return number - 1 if number <= special else number


def tunnel(
    k: int, half: int, size: int, port: int, source: int, destination: int, choice: int
) -> Hops:
    """Yield the hops of DPillarMP's path of that number: s -> s' ~ DPillarSP ~> d' -> d.

    From number n/2 on they are those of the other direction.
    """
    if choice >= half:
        port, choice = 1 - port, choice - half
    here, far = proxies(k, half, size, source, destination, port, choice)
    yield port, here
    while here != far:
        here = onward(k, half, size, here, far, port)
        yield port, here
    yield port, destination


# Departs from the paper: its paths keep one direction, so they leave the source by one port and
# enter the destination by the other. Where these two ports lead to a failed switch, none is left.
def far_side(
    k: int, half: int, size: int, port: int, source: int, destination: int, choice: int
) -> Hops:
    """Yield the hops of a path that enters the destination by its port on the far side.

    The path of that number leads to another server of the destination's column, over any symbol of
    its own at the first hop, and to the destination through the switch that both are on. From a
    server that is on that switch itself it is one hop.
    """
    own = symbol(half, size, destination, symbol_set(k, size, destination, port))
    value = choice if choice < own else choice + 1
    far = sibling(k, half, size, destination, port, value)
    here = source
    if here != far:
        here = neighbour(k, half, size, source, port, value)
        yield port, here
    while here != far:
        here = onward(k, half, size, here, far, port)
        yield port, here
    yield port, destination


def booked(free: Any, works: Any, hops: Any, using: int, own: float) -> int:
    """Return the path for a flow, and book in `free` what the flow uses there (section 4.5.2).

    All flows of a source see the same measurements, and would all take the same path until the
    next ones. So what a flow uses is no longer free where it goes, and free again where it was.
    What a new flow will use is not known; half of what is free is booked for it. The arguments are
    those of `hosts.base.probing.best_of`.
    """
    chosen = best_of(free, works, hops, using, own, 0.0)
    if chosen in (using, NONE):
        return chosen
    if using == NONE:
        free[chosen] *= 1 - NEW_FLOW_SHARE
    else:
        free[chosen] = max(0.0, free[chosen] - own)
        free[using] += own
    return chosen


def _single(port: int) -> Rule:
    return Rule(single, lambda d: (*numbers(d), port), lambda d: 2 * d.k - 1, _arrivals)


def _tunnels(port: int, directions: int = 1) -> Rule:
    """Return the rule of the paths in that direction, of both with those of the other behind."""
    return Rule(
        tunnel,
        lambda d: (*numbers(d), port),
        lambda d: 2 * d.k + 1,
        _arrivals,
        lambda d: directions * d.half,
    )


def _arrivals(_: DPillar) -> tuple[int, int]:
    """A hop clockwise arrives by the other server's counter-clockwise port."""
    return COUNTER_CLOCKWISE, CLOCKWISE


def _far_side(port: int) -> Rule:
    return Rule(
        far_side,
        lambda d: (*numbers(d), port),
        lambda d: 2 * d.k + 1,
        _arrivals,
        lambda d: d.half - 1,
    )


DPILLAR_SP = {port: _single(port) for port in (CLOCKWISE, COUNTER_CLOCKWISE)}
DPILLAR_MP = {port: _tunnels(port) for port in (CLOCKWISE, COUNTER_CLOCKWISE)}
FAR_SIDE = {port: _far_side(port) for port in (CLOCKWISE, COUNTER_CLOCKWISE)}

RULES = {
    "sp-cw": DPILLAR_SP[CLOCKWISE],
    "sp-ccw": DPILLAR_SP[COUNTER_CLOCKWISE],
    "mp": DPILLAR_MP[CLOCKWISE],
    "mp-ccw": DPILLAR_MP[COUNTER_CLOCKWISE],
    "mp-both": _tunnels(CLOCKWISE, directions=2),
    "mp-random": _tunnels(CLOCKWISE, directions=2),
}
