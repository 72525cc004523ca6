"""BCubeRouting and BuildPathSet for arrays of flows (hosts/bcube/paths.py)."""

from __future__ import annotations

from functools import partial
from typing import Any

import numba

from experiments.analysis.simulator.paths import Compiled, Walk
from topos.bcube import BCube


@numba.njit(cache=True, nogil=True)
def _corrected(
    n: int, here: int, destination: int, start: int, levels: int, ports: Any, peers: Any, hops: int
) -> int:
    """Correct every digit from level `start` downwards, cyclically; return how many hops it is."""
    for i in range(levels):
        level = (start - i) % levels
        weight = n**level
        wrong = destination // weight % n - here // weight % n
        if wrong:
            here += wrong * weight
            ports[hops] = level
            peers[hops] = here
            hops += 1
    return hops


@numba.njit(cache=True, nogil=True)
def _fill_one(
    n: int, k: int, sources: Any, destinations: Any, ports: Any, peers: Any, counts: Any
) -> None:
    for flow in range(len(sources)):
        counts[flow] = _corrected(
            n, sources[flow], destinations[flow], k, k + 1, ports[flow], peers[flow], 0
        )


@numba.njit(cache=True, nogil=True)
def parallel(
    n: int, k: int, top: int, level: int, source: int, destination: int, ports: Any, peers: Any
) -> int:
    """Write P_level of BuildPathSet; `top` values has the first digit. Return its hops, or 0."""
    here, weight, hops, start = source, n**level, 0, level
    digit = here // weight % n
    if digit == destination // weight % n:  # a detour over a neighbour that has it wrong
        values = top if level == k else n
        if values == 1:
            return 0
        here += ((digit + 1) % values - digit) * weight
        ports[0], peers[0] = level, here
        hops, start = 1, level - 1
    return _corrected(n, here, destination, start, k + 1, ports, peers, hops)


@numba.njit(cache=True, nogil=True)
def _fill_set(
    n: int,
    k: int,
    top: int,
    choice: Any,
    sources: Any,
    destinations: Any,
    ports: Any,
    peers: Any,
    counts: Any,
) -> None:
    """Write path number `choice`, which is P_{k - choice}."""
    for flow in range(len(sources)):
        source, destination, level = sources[flow], destinations[flow], k - choice[flow]
        counts[flow] = parallel(n, k, top, level, source, destination, ports[flow], peers[flow])


def _one(bcube: BCube) -> Walk:
    fill = partial(_fill_one, bcube.n, bcube.k)
    return Walk(lambda _: fill, bcube.k + 1, range(bcube.ports))


def _set(bcube: BCube) -> Walk:
    fill = partial(_fill_set, bcube.n, bcube.k, bcube.radices()[0])
    return Walk(lambda choice: partial(fill, choice), bcube.k + 2, range(bcube.ports))


ALGORITHMS = {
    "bcube": Compiled(_one),
    "parallel": Compiled(_set, choices=lambda bcube: bcube.k + 1),
}
