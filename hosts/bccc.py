"""Routing in BCCC: one digit after the other, with a hop through a crossbar from digit to digit.

A server can correct one digit of an address, that of its own place (Li 2014; Lu 2022, section 2.2).
So a path that corrects several digits changes its place in between, through the crossbar of servers
with equal digits. It is shortest if it begins with the source's own digit and ends with the
destination's: any order of the digits in between is equally long.

The routing knows no failures, like BCubeRouting. Labs use the link-state routing `shortest`, which
goes around them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pillarbox.hosts.base.algorithms import SHORTEST, Algorithm
from pillarbox.hosts.base.hop_by_hop import HopByHop
from pillarbox.hosts.base.network import Network
from pillarbox.hosts.base.path import Path, Step
from pillarbox.hosts.base.rules import Rule
from pillarbox.topos.bccc import BCCC

Setting = tuple[int, int]  # a digit of an address, by its level, and its new value


def digit(n: int, places: int, server: int, level: int) -> int:
    """Return the digit at a level of a BCCC server's address."""
    weight: int = places * n**level
    return server // weight % n


def with_digit(n: int, places: int, server: int, level: int, value: int) -> int:
    """Return the BCCC server of the same place whose address has one digit replaced."""
    weight: int = places * n**level
    return server + (value - digit(n, places, server, level)) * weight


def next_hop(n: int, k: int, here: int, destination: int) -> tuple[int, int]:
    """Return port and next server on a shortest path to another server.

    A server corrects its own digit first. Otherwise the packet goes to the next lower place whose
    digit is wrong, cyclically, and to the destination's place last.
    """
    places = k + 1
    place, end = here % places, destination % places
    own = digit(n, places, destination, place)
    if digit(n, places, here, place) != own:
        return min(k, 1), with_digit(n, places, here, place, own)
    onward = end
    for turn in range(1, places):
        other = (place - turn) % places
        wrong = digit(n, places, here, other) != digit(n, places, destination, other)
        if wrong and other != end:
            onward = other
            break
    return 0, here + onward - place


def by_digits(
    n: int, k: int, source: int, destination: int, _choice: int
) -> Iterator[tuple[int, int]]:
    """Yield the hops of BCCC's routing."""
    here = source
    while here != destination:
        port, here = next_hop(n, k, here, destination)
        yield port, here


BY_DIGITS = Rule(
    by_digits,
    lambda bccc: (bccc.n, bccc.k),
    lambda bccc: 2 * bccc.k + 2,
    lambda bccc: range(bccc.ports),
)


def bccc_path(bccc: BCCC, source: int, destination: int) -> Path:
    """Return the path of BCCC's routing.

    >>> bccc = BCCC(3, 1)
    >>> path = bccc_path(bccc, bccc.server("0.0.0"), bccc.server("2.1.0"))
    >>> print(*map(bccc.address, path.servers))
    0.0.0 0.1.0 0.1.1 2.1.1 2.1.0
    """
    return BY_DIGITS.path(bccc, source, destination)


def path_set(bccc: BCCC, source: int, destination: int) -> list[Path]:
    """Return two disjoint paths, the routing's own first; BCCC(n, 0) has only that one.

    >>> bccc = BCCC(3, 1)
    >>> for path in path_set(bccc, bccc.server("0.0.0"), bccc.server("2.1.0")):
    ...     print(*map(bccc.address, path.servers))
    0.0.0 0.1.0 0.1.1 2.1.1 2.1.0
    0.0.0 0.0.1 2.0.1 2.0.0 2.1.0
    """
    paths = [bccc_path(bccc, source, destination)]
    if bccc.k and source != destination:
        settings = _second_settings(bccc, source, destination)
        paths.append(_path_by_settings(bccc, source, destination, settings))
    return paths


def _second_settings(bccc: BCCC, source: int, destination: int) -> list[Setting]:
    """Return the order in which the second disjoint path sets digits.

    Where the routing's path leaves the source through its level switch, or reaches the destination
    through its level switch, this path uses the crossbar, and vice versa. So it sets the digit of
    an end's place to a third value if that digit is right, which keeps the paths apart as well.
    """
    n, places = bccc.n, bccc.places

    def right(level: int) -> Setting:
        return level, digit(n, places, destination, level)

    def changed(level: int) -> Setting:
        return level, (digit(n, places, source, level) + 1) % n

    start, end = source % places, destination % places
    levels = range(places)
    wrong = {level for level in levels if digit(n, places, source, level) != right(level)[1]}
    between = [right(level) for level in sorted(wrong - {start, end}, reverse=True)]
    leave = [] if start in wrong else [changed(start)]
    if start == end:
        if between or leave:
            return [*leave, *between, right(start)]
        detour = (start + 1) % places
        return [changed(detour), right(start), right(detour)]
    if end in wrong:
        return [*leave, right(end), *between, right(start)]
    return [*leave, changed(end), *between, right(start), right(end)]


def _path_by_settings(
    bccc: BCCC, source: int, destination: int, settings: Sequence[Setting]
) -> Path:
    """Return the path that sets digits in this order and then moves to the destination's place."""
    steps: list[Step] = []
    here = source

    def move(place: int) -> None:
        nonlocal here
        if here % bccc.places != place:
            here += place - here % bccc.places
            steps.append(Step(0, here))

    for level, value in settings:
        move(level)
        here = with_digit(bccc.n, bccc.places, here, level, value)
        steps.append(Step(1, here))
    move(destination % bccc.places)
    return Path(source, tuple(steps))


class BCCCRouting(HopByHop):
    """Router of BCCC's routing, which ignores failures; relays need only the IP destination."""

    plain_ip = True

    def next_step(self, destination: int, came_by: int | None) -> Step | None:
        """Return the hop that corrects this server's digit, or that leads to the next place."""
        return Step(*next_hop(self.topology.n, self.topology.k, self.server, destination))


NETWORK = Network(
    algorithms={
        "bccc": Algorithm(
            "digit by digit, through crossbars (Li 2014)", bccc_path, path_set, router=BCCCRouting
        ),
    },
    rules={"bccc": BY_DIGITS},
    usual=SHORTEST,
)
