"""DPillarSP and DPillarMP for arrays of flows (hosts/dpillar/paths.py)."""

from __future__ import annotations

from functools import partial
from typing import Any

import numba

from experiments.analysis.simulator.paths import Compiled, Walk
from topos.dpillar import CLOCKWISE, COUNTER_CLOCKWISE, DPillar


@numba.njit(cache=True, nogil=True)
def _neighbour(k: int, half: int, column_size: int, server: int, port: int, symbol: int) -> int:
    """Return the server one column on whose free symbol is that one."""
    column, label = server // column_size, server % column_size
    weight = half ** ((column - port) % k)
    label += (symbol - label // weight % half) * weight
    return (column + 1 - 2 * port) % k * column_size + label


@numba.njit(cache=True, nogil=True)
def _symbol(half: int, column_size: int, server: int, position: int) -> int:
    return server % column_size // half**position % half


@numba.njit(cache=True, nogil=True)
def _single(
    k: int,
    half: int,
    column_size: int,
    here: int,
    destination: int,
    port: int,
    peers: Any,
    hops: int,
) -> int:
    """Append the hops of DPillarSP; return how many there are then."""
    while here != destination:
        position = (here // column_size - port) % k
        symbol = _symbol(half, column_size, destination, position)
        here = _neighbour(k, half, column_size, here, port, symbol)
        peers[hops] = here
        hops += 1
    return hops


@numba.njit(cache=True, nogil=True)
def _fill_one(
    k: int,
    half: int,
    column_size: int,
    port: int,
    sources: Any,
    destinations: Any,
    ports: Any,
    peers: Any,
    counts: Any,
) -> None:
    for flow in range(len(sources)):
        ports[flow, :] = port
        counts[flow] = _single(
            k, half, column_size, sources[flow], destinations[flow], port, peers[flow], 0
        )


@numba.njit(cache=True, nogil=True)
def _paired(number: int, special: int) -> int:
    """Return the symbol of the pair with that number: the special one first, then the others."""
    if number == 0:
        return special
    return number - 1 if number <= special else number


@numba.njit(cache=True, nogil=True)
def _fill_set(
    k: int,
    half: int,
    column_size: int,
    port_of_first: int,
    choice: Any,
    sources: Any,
    destinations: Any,
    ports: Any,
    peers: Any,
    counts: Any,
) -> None:
    """Write the path of pair ``choice % half`` of Algorithm 2, cut where it passes an end twice."""
    for flow in range(len(sources)):
        source, destination = sources[flow], destinations[flow]
        number = choice[flow] % half
        port = (port_of_first + choice[flow] // half) % 2
        first = (source // column_size - port) % k
        last = (destination // column_size - (1 - port)) % k
        near_symbol = far_symbol = number
        if first != last:
            near_special = _symbol(half, column_size, destination, first)
            far_special = _symbol(half, column_size, source, last)
            near_symbol = _paired(number, near_special)
            far_symbol = _paired(number, far_special)
        near = _neighbour(k, half, column_size, source, port, near_symbol)
        far = _neighbour(k, half, column_size, destination, 1 - port, far_symbol)
        row = peers[flow]
        row[0] = near
        hops = _single(k, half, column_size, near, far, port, row, 1)
        row[hops] = destination
        end = 0
        while row[end] != destination:
            end += 1
        begin = 0
        for i in range(end):
            if row[i] == source:
                begin = i + 1
        for i in range(begin, end + 1):
            row[i - begin] = row[i]
        counts[flow] = end + 1 - begin
        ports[flow, :] = port


def _one(port: int, dpillar: DPillar) -> Walk:
    fill = partial(_fill_one, dpillar.k, dpillar.half, dpillar.column_servers, port)
    return Walk(lambda _: fill, 2 * dpillar.k - 1, (COUNTER_CLOCKWISE, CLOCKWISE))


def _set(port: int, dpillar: DPillar) -> Walk:
    fill = partial(_fill_set, dpillar.k, dpillar.half, dpillar.column_servers, port)
    return Walk(
        lambda choice: partial(fill, choice), 2 * dpillar.k + 1, (COUNTER_CLOCKWISE, CLOCKWISE)
    )


def _half(dpillar: DPillar) -> int:
    return dpillar.half


ALGORITHMS = {
    "sp-cw": Compiled(partial(_one, CLOCKWISE)),
    "sp-ccw": Compiled(partial(_one, COUNTER_CLOCKWISE)),
    "mp": Compiled(partial(_set, CLOCKWISE), choices=_half),
    "mp-ccw": Compiled(partial(_set, COUNTER_CLOCKWISE), choices=_half),
    # The first half of the numbers is clockwise.
    "mp-both": Compiled(partial(_set, CLOCKWISE), choices=lambda dpillar: 2 * dpillar.half),
}
