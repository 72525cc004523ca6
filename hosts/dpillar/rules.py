"""DPillar's rules (Liao 2012, sections 3 and 4), on plain numbers: see
`pillarbox.hosts.base.rules`.

A server is numbered ``column * column_servers + label``. The parameters of a network are k, `half`
(n/2, the number of values of a symbol) and `size`, the number of servers of a column. A port is a
direction.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from pillarbox.hosts.base.probing import best_of
from pillarbox.hosts.base.rules import NONE, Rule, Values
from pillarbox.topos.dpillar import CLOCKWISE, COUNTER_CLOCKWISE, DPillar

# Assumed rate of a new flow before measurement, as a share of its path's available bandwidth.
NEW_FLOW_SHARE = 0.5

Hops = Iterator[tuple[int, int]]


def numbers(dpillar: DPillar) -> tuple[int, int, int]:
    """Return a DPillar's numbers k, n/2 and servers per column, for the path rules."""
    return dpillar.k, dpillar.half, dpillar.column_servers


def symbol_set(k: int, size: int, server: int, port: int) -> int:
    """Return the position in the label of the symbol that the next hop through a port sets."""
    return (server // size - port) % k


def symbol(half: int, size: int, server: int, position: int) -> int:
    """Return the symbol at a position of the server's label."""
    weight: int = half**position
    return server % size // weight % half


def neighbour(k: int, half: int, size: int, server: int, port: int, value: int) -> int:
    """Return the server in the next column whose symbol set by this hop is `value`."""
    column, label = server // size, server % size
    weight: int = half ** symbol_set(k, size, server, port)
    label += (value - label // weight % half) * weight
    return (column + (1 if port == CLOCKWISE else -1)) % k * size + label


def sibling(k: int, half: int, size: int, server: int, port: int, value: int) -> int:
    """Return the server of the same column and switch whose symbol at this switch is `value`."""
    weight: int = half ** symbol_set(k, size, server, port)
    return server + (value - server % size // weight % half) * weight


def onward(k: int, half: int, size: int, server: int, destination: int, port: int) -> int:
    """Return the next server on DPillarSP's path from a server (Algorithm 1).

    In the ring phase the symbol to set is already correct, so both phases use the same step: to the
    next column, with the destination's symbol.
    """
    wanted = symbol(half, size, destination, symbol_set(k, size, server, port))
    return neighbour(k, half, size, server, port, wanted)


def single(
    k: int, half: int, size: int, port: int, source: int, destination: int, _choice: int
) -> Hops:
    """Yield the hops of DPillarSP's path, clockwise or counter-clockwise by `port`."""
    here = source
    while here != destination:
        here = onward(k, half, size, here, destination, port)
        yield port, here


def proxies(
    k: int, half: int, size: int, source: int, destination: int, port: int, number: int
) -> tuple[int, int]:
    """Return a neighbour s' of the source and a neighbour d' of the destination (Algorithm 2).

    The n/2 pairs give disjoint paths: the s' with the destination's symbol is paired with the d'
    with the source's symbol, and the others are paired in order.
    """
    first = symbol_set(k, size, source, port)
    last = symbol_set(k, size, destination, 1 - port)
    near = far = number
    # Departs from the paper: if a path's first and last hop set the same symbol (the destination is
    # in the next column), equal symbols are paired, as in the proof in Appendix B; with Algorithm 2
    # as printed two paths could share a server in this case.
    if first != last:
        near = paired(number, symbol(half, size, destination, first))
        far = paired(number, symbol(half, size, source, last))
    return (
        neighbour(k, half, size, source, port, near),
        neighbour(k, half, size, destination, 1 - port, far),
    )


def paired(number: int, special: int) -> int:
    """Return the symbol of a numbered pair: `special` for pair 0, then the others in order."""
    if number == 0:
        return special
    return number - 1 if number <= special else number


def tunnel(
    k: int, half: int, size: int, port: int, source: int, destination: int, choice: int
) -> Hops:
    """Yield the hops of DPillarMP's path number `choice`: s -> s' ~ DPillarSP ~> d' -> d.

    Numbers from n/2 upwards are paths of the opposite direction.
    """
    if choice >= half:
        port, choice = 1 - port, choice - half
    here, far = proxies(k, half, size, source, destination, port, choice)
    yield port, here
    while here != far:
        here = onward(k, half, size, here, far, port)
        yield port, here
    yield port, destination


def any_tunnel(
    k: int, half: int, size: int, port: int, source: int, destination: int, choice: int
) -> Hops:
    """Yield the hops of path number `choice` between any s' and any d': s -> s' ~> d' -> d.

    Footnote 3 of section 4.3 leaves open how s' and d' are paired. These are the paths of all
    pairings, n/2 x n/2 in each direction; those of one pairing are disjoint. Numbers from n/2 x n/2
    upwards are paths of the opposite direction.
    """
    if choice >= half * half:
        port, choice = 1 - port, choice - half * half
    here = neighbour(k, half, size, source, port, choice // half)
    far = neighbour(k, half, size, destination, 1 - port, choice % half)
    yield port, here
    while here != far:
        here = onward(k, half, size, here, far, port)
        yield port, here
    yield port, destination


# Departs from the paper: its paths keep one direction, so they leave the source by one port and
# enter the destination by the other. If these two ports lead to a failed switch, no path is left.
def far_side(
    k: int, half: int, size: int, port: int, source: int, destination: int, choice: int
) -> Hops:
    """Yield the hops of a path that enters the destination by its port on the far side.

    The path leads to another server of the destination's column, setting a symbol of its own at the
    first hop, and from there to the destination through the switch that both are on. From a source
    on that switch the path is one hop.
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


# Not in the paper, whose paths keep one direction: up to twice as long.
def fewest_hops(k: int, half: int, size: int, here: int, destination: int) -> int:
    """Return the number of hops on a shortest path.

    Each hop passes a switch between two columns, sets its symbol, and ends in either column. So a
    path is a walk along the circle of k switches that passes every switch whose symbol has to
    change. A shortest one turns at most twice: `ahead` switches in one direction, `back` switches
    beyond the source in the other, and then to the destination's column at `end`. At a turn the hop
    ends in the column from which it came, so that no switch is passed twice in a row.
    """
    if here == destination:
        return 0
    column, fewest = here // size, 4 * k
    for sign in (1, -1):
        offset = sign * (destination // size - column) % k
        for ahead in range(1, k + 1):
            missing = 0
            for number in range(ahead, k):
                position = (column + number if sign > 0 else column - 1 - number) % k
                if symbol(half, size, here, position) != symbol(half, size, destination, position):
                    missing = max(missing, k - number)
            for end in (offset - k, offset, offset + k):
                if end > ahead:
                    continue
                back = max(missing, -end)
                hops = ahead + max(0, ahead - 1 - end)
                if back:
                    hops = 2 * ahead - 1 + back + max(0, end + back - 1)
                fewest = min(fewest, hops)
    return fewest


def nearest(k: int, half: int, size: int, here: int, destination: int) -> tuple[int, int]:
    """Return the first hop of a shortest path: its port and the next server."""
    fewest, chosen = 4 * k, (0, here)
    for port in (CLOCKWISE, COUNTER_CLOCKWISE):
        wanted = symbol(half, size, destination, symbol_set(k, size, here, port))
        for step in (neighbour, sibling):
            server = step(k, half, size, here, port, wanted)
            hops = fewest_hops(k, half, size, server, destination)
            if hops < fewest:
                fewest, chosen = hops, (port, server)
    return chosen


def minimal(k: int, half: int, size: int, source: int, destination: int, _choice: int) -> Hops:
    """Yield the hops of a shortest path, each computed from the addresses alone."""
    here = source
    while here != destination:
        port, here = nearest(k, half, size, here, destination)
        yield port, here


class FreeBandwidth(Protocol):
    """Available bandwidth by path, which `booked` changes: a list or an array."""

    def __len__(self) -> int: ...
    def __getitem__(self, path: int, /) -> float: ...
    def __setitem__(self, path: int, bandwidth: float, /) -> None: ...


def booked(
    free: FreeBandwidth, works: Values[object], hops: Values[int], using: int, own: float
) -> int:
    """Return the best path for a flow, and subtract the flow's rate from its free bandwidth.

    All flows of a source see the same measurements, and would all take the same path until the next
    probe round. Therefore a flow's rate is subtracted on its new path and added on its old path.
    The rate of a new flow is unknown, so half of the available bandwidth is subtracted. The
    parameters are those of `pillarbox.hosts.base.probing.best_of`.
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


def _single_path_rule(port: int) -> Rule:
    return Rule(single, lambda d: (*numbers(d), port), lambda d: 2 * d.k - 1, _arrivals)


def _multi_path_rule(port: int, directions: int = 1) -> Rule:
    """Return the rule of DPillarMP's paths, beginning with those through `port`."""
    return Rule(
        tunnel,
        lambda d: (*numbers(d), port),
        lambda d: 2 * d.k + 1,
        _arrivals,
        lambda d: directions * d.half,
    )


def _arrivals(_: DPillar) -> tuple[int, int]:
    """Return the ingress port of each egress port's hops: the port of the opposite direction."""
    return COUNTER_CLOCKWISE, CLOCKWISE


def _far_side_rule(port: int) -> Rule:
    return Rule(
        far_side,
        lambda d: (*numbers(d), port),
        lambda d: 2 * d.k + 1,
        _arrivals,
        lambda d: d.half - 1,
    )


DPILLAR_SP = {port: _single_path_rule(port) for port in (CLOCKWISE, COUNTER_CLOCKWISE)}
DPILLAR_MP = {port: _multi_path_rule(port) for port in (CLOCKWISE, COUNTER_CLOCKWISE)}
ANY_PAIRING = Rule(
    any_tunnel,
    lambda d: (*numbers(d), CLOCKWISE),
    lambda d: 2 * d.k + 1,
    _arrivals,
    lambda d: 2 * d.half**2,
)
MINIMAL = Rule(minimal, numbers, lambda d: 2 * d.k - 1, _arrivals)
FAR_SIDE = {port: _far_side_rule(port) for port in (CLOCKWISE, COUNTER_CLOCKWISE)}

RULES = {
    "sp-cw": DPILLAR_SP[CLOCKWISE],
    "sp-ccw": DPILLAR_SP[COUNTER_CLOCKWISE],
    "mp": DPILLAR_MP[CLOCKWISE],
    "mp-ccw": DPILLAR_MP[COUNTER_CLOCKWISE],
    "mp-both": _multi_path_rule(CLOCKWISE, directions=2),
    "mp-any": ANY_PAIRING,
    "mp-random": _multi_path_rule(CLOCKWISE, directions=2),
}
