"""DPillar's rules (Liao 2012, sections 3 and 4), on plain numbers: see
`pillarbox.hosts.base.rules`.

A server is numbered ``column * column_servers + label``. The parameters of a network are k, `half`
(n/2, the number of values of a symbol) and `size`, the number of servers of a column. A port is a
direction.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from pillarbox.hosts.base.probing import best_of
from pillarbox.hosts.base.rules import NONE, VARIES, Rule, Values
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


def weight_of(half: int, position: int) -> int:
    """Return the weight of the symbol at a position: ``half**position``.

    numba's power of integers takes several times as long as this loop.
    """
    weight = 1
    for _ in range(position):
        weight *= half
    return weight


def symbol(half: int, size: int, server: int, position: int) -> int:
    """Return the symbol at a position of the server's label."""
    return server % size // weight_of(half, position) % half


def neighbour(k: int, half: int, size: int, server: int, port: int, value: int) -> int:
    """Return the server in the next column whose symbol set by this hop is `value`."""
    column, label = server // size, server % size
    weight = weight_of(half, symbol_set(k, size, server, port))
    label += (value - label // weight % half) * weight
    return (column + (1 if port == CLOCKWISE else -1)) % k * size + label


def sibling(k: int, half: int, size: int, server: int, port: int, value: int) -> int:
    """Return the server of the same column and switch whose symbol at this switch is `value`."""
    weight = weight_of(half, symbol_set(k, size, server, port))
    return server + (value - server % size // weight % half) * weight


def onward(k: int, half: int, size: int, server: int, destination: int, port: int) -> int:
    """Return the next server on DPillarSP's path from a server (Algorithm 1)."""
    column, label = server // size, server % size
    column, label = onward_label(k, half, column, label, destination % size, port)
    return column * size + label


def onward_label(
    k: int, half: int, column: int, label: int, goal: int, port: int
) -> tuple[int, int]:
    """Return the column and label of the next server on DPillarSP's path to a label.

    In the ring phase the symbol to set is already correct, so both phases use the same step: to the
    next column, with the destination's symbol.
    """
    if port == CLOCKWISE:
        position, column = column, column + 1 if column + 1 < k else 0
    else:
        position = column = (column if column > 0 else k) - 1
    if label != goal:
        weight = weight_of(half, position)
        above = weight * half
        label += goal % above - label % above - goal % weight + label % weight
    return column, label


def single(
    k: int, half: int, size: int, port: int, source: int, destination: int, _choice: int
) -> Hops:
    """Yield the hops of DPillarSP's path, clockwise or counter-clockwise by `port`."""
    here, goal = source, destination % size
    column, label = source // size, source % size
    while here != destination:
        column, label = onward_label(k, half, column, label, goal, port)
        here = column * size + label
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
class Walk(NamedTuple):
    """A shortest path as a walk along the circle of k switches, with at most two turns.

    Columns are counted from the source, positive in the direction `port`. The walk passes `ahead`
    switches in this direction, then `back` switches on the other side of the source, and ends in
    column `end`. At a turn the hop ends in the column from which it came, so that no switch is
    passed twice in a row.
    """

    port: int
    ahead: int
    back: int
    end: int
    hops: int


def shortest_walk(k: int, half: int, size: int, here: int, destination: int) -> Walk:
    """Return the walk of a shortest path between two servers.

    A hop passes a switch, sets its symbol, and ends in either column of the switch. So a walk is a
    path if it passes all switches whose symbols differ. Of equally short walks the result is the
    clockwise one, then the one that turns last.
    """
    column, last = here // size, destination // size
    differing = differing_symbols(k, half, here % size, destination % size)
    best = Walk(CLOCKWISE, 0, 0, 0, 4 * k)
    for port in (CLOCKWISE, COUNTER_CLOCKWISE):
        offset = (last - column if port == CLOCKWISE else column - last) % k
        low = offset - k if offset > 0 else 0  # the two ends within k columns of the source
        # position of the symbol that switch number `ahead` sets
        position = column if port == CLOCKWISE else (column - 1) % k
        missing = 0  # number of switches to pass on the other side of the source
        for ahead in range(k, 0, -1):
            if ahead < k and differing >> position & 1:
                missing = k - ahead
            position = (position - 1 if port == CLOCKWISE else position + 1) % k
            for end in (low, low + k):
                back = max(missing, -end)
                hops = 2 * ahead - 1 - end if end < ahead else ahead
                if back > 0:
                    hops = 2 * ahead - 1 + back + max(0, end + back - 1)
                if end <= ahead and hops < best.hops:
                    best = Walk(port, ahead, back, end, hops)
    return best


def differing_symbols(k: int, half: int, label: int, other: int) -> int:
    """Return a bit mask of the positions at which the symbols of two labels differ."""
    differing = 0
    for position in range(k):
        if label == other:
            break
        above, other_above = label // half, other // half
        if label - above * half != other - other_above * half:
            differing |= 1 << position
        label, other = above, other_above
    return differing


def fewest_hops(k: int, half: int, size: int, here: int, destination: int) -> int:
    """Return the number of hops on a shortest path."""
    return shortest_walk(k, half, size, here, destination).hops if here != destination else 0


def nearest(k: int, half: int, size: int, here: int, destination: int) -> tuple[int, int]:
    """Return the first hop of a shortest path to another server: its port and the next server."""
    port, ahead, _, end, _ = shortest_walk(k, half, size, here, destination)
    if ahead == 1 and end != 1:
        return port, turning(k, half, size, here, destination, port)
    return port, onward(k, half, size, here, destination, port)


def turning(k: int, half: int, size: int, here: int, destination: int, port: int) -> int:
    """Return the server of the same column and switch with the destination's symbol."""
    wanted = symbol(half, size, destination, symbol_set(k, size, here, port))
    return sibling(k, half, size, here, port, wanted)


def minimal(k: int, half: int, size: int, source: int, destination: int, _choice: int) -> Hops:
    """Yield the hops of a shortest path, computed from the two addresses alone."""
    port, ahead, back, end, _ = shortest_walk(k, half, size, source, destination)
    here, column, step, limit = source, 0, 1, ahead
    while here != destination:
        turns = column + step == limit != end
        if turns:
            here = turning(k, half, size, here, destination, port)
        else:
            here = onward(k, half, size, here, destination, port)
            column += step
        yield port, here
        if turns:
            port, step = 1 - port, -step
            limit = -back if step < 0 < back else end


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
# A hop to a server of the same column arrives by the port that has its egress port's number.
MINIMAL = Rule(minimal, numbers, lambda d: 2 * d.k - 1, lambda _: (VARIES, VARIES))
FAR_SIDE = {port: _far_side_rule(port) for port in (CLOCKWISE, COUNTER_CLOCKWISE)}

RULES = {
    "sp-cw": DPILLAR_SP[CLOCKWISE],
    "sp-ccw": DPILLAR_SP[COUNTER_CLOCKWISE],
    "minimal": MINIMAL,
    "mp": DPILLAR_MP[CLOCKWISE],
    "mp-ccw": DPILLAR_MP[COUNTER_CLOCKWISE],
    "mp-both": _multi_path_rule(CLOCKWISE, directions=2),
    "mp-any": ANY_PAIRING,
    "mp-random": _multi_path_rule(CLOCKWISE, directions=2),
}
