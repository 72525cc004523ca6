"""Shortest paths in server-to-server hops: breadth-first search from 64 sources simultaneously.

A server has one word of 64 bits: bit i says that source i has reached it. One step passes all words
to the neighbours, over every cable and through switches, so a step costs the same for one source as
for 64. Neighbours are computed, one port at a time; only the far ends of the servers' ports are
stored during the search.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TypeAlias

import numba
import numpy
from numpy.typing import NDArray

from pillarbox.experiments.models.arrays import Bools, Ints
from pillarbox.experiments.models.fluid.directed_links import link_at
from pillarbox.topos.base.polymorphic import NOTHING
from pillarbox.topos.base.topology import Topology

SOURCES = 64  # number of source servers per search: one per bit of a 64-bit word
# largest count in a byte lane of a 64-bit word; mask of each byte's lowest bit
MOST_HELD, LOWEST = 255, numpy.uint64(0x0101010101010101)
Words: TypeAlias = "NDArray[numpy.uint64]"


def distances(topology: Topology, sources: Ints, works: Bools | None = None) -> Ints:
    """Return the number of servers by distance: ``[i, h]`` servers are h hops away from source i.

    Parameters
    ----------
    topology : Topology
        The network.
    sources : array
        The servers to search from.
    works : array, optional
        Whether each link works, by link number (see `FailedNodes.works`).

    Examples
    --------
    >>> from pillarbox import topos
    >>> distances(topos.parse("bcube,4,1"), numpy.array([0, 5])).tolist()
    [[1, 6, 9], [1, 6, 9]]
    """
    found: list[Ints] = []
    far = [_far_ends(topology, port, works) for port in range(topology.ports)]
    for first in range(0, len(sources), SOURCES):
        found += list(
            _breadth_first_counts(
                topology, numpy.asarray(sources[first : first + SOURCES]), far, works
            )
        )
    table = numpy.zeros((len(found), max(map(len, found), default=0)), numpy.int64)
    for row, counts in zip(table, found, strict=True):
        row[: len(counts)] = counts
    return table


def mean_and_deviation(counts: Ints) -> tuple[float, float]:
    """Return the mean path length and its standard deviation, over pairs of different servers.

    >>> mean_and_deviation(numpy.array([[1, 6, 9]]))[0]
    1.6
    """
    total = counts.sum(axis=0)[1:]
    hops = numpy.arange(1, len(total) + 1)
    mean = float((total * hops).sum() / total.sum())
    return mean, float(((total * (hops - mean) ** 2).sum() / total.sum()) ** 0.5)


def _breadth_first_counts(
    topology: Topology, sources: Ints, far: list[Ints], works: Bools | None
) -> Ints:
    words = numpy.zeros(topology.servers, numpy.uint64)
    for bit, server in enumerate(sources.tolist()):
        words[server] |= numpy.uint64(1 << bit)
    seen, counts = words.copy(), [_bit_counts(words)]
    switched = [ends for ends in far if (ends >= topology.servers).any()]
    while counts[-1].any():
        onward = numpy.zeros_like(words)
        switches = numpy.zeros(topology.switches, numpy.uint64)
        for ends in far:
            _spread_from_servers(ends, words, onward, switches)
        if topology.switches_interconnect:
            switches = _through_fabric(topology, switches, works)
        for ends in switched:
            _spread_from_switches(ends, switches, onward)
        words = onward & ~seen
        seen |= words
        counts.append(_bit_counts(words))
    return numpy.array(counts)[:-1, : len(sources)].T


def _far_ends(topology: Topology, port: int, works: Bools | None) -> Ints:
    """Return the node at the far end of each server's port, NOTHING if no cable works there."""
    far = _cabled_ends(topology, port)
    if works is None:
        return far
    links = link_at(topology, numpy.arange(topology.servers), port)
    return numpy.where(works[links], far, NOTHING).astype(far.dtype)


@lru_cache(maxsize=8)  # cached, since a network is searched many times with different failures
def _cabled_ends(topology: Topology, port: int) -> Ints:
    servers = numpy.arange(topology.servers)
    far = numpy.broadcast_to(topology.server_plug(servers, port).node, servers.shape)
    return far.astype(numpy.int32 if topology.nodes < 2**31 else numpy.int64)


def _through_fabric(topology: Topology, words: Words, works: Bools | None) -> Words:
    """Return the word of each switch after words have spread over the cables between switches."""
    switches = numpy.arange(topology.switches)
    while True:
        heard = words.copy()
        for port in range(topology.switch_ports):
            far = numpy.broadcast_to(topology.switch_plug(switches, port).node, switches.shape)
            cabled = far >= topology.servers
            if works is not None:
                cabled &= works[link_at(topology, switches + topology.servers, port)]
            heard[cabled] |= words[far[cabled] - topology.servers]
        if (heard == words).all():
            return words
        words = heard


@numba.njit(cache=True)
def _spread_from_servers(far: Ints, words: Words, onward: Words, switches: Words) -> None:
    """Spread each server's word of reached sources to the server or switch at its far end."""
    servers = len(words)
    for server in range(servers):
        # most servers' words are 0 at the search's start and end: skip them
        if not words[server]:
            continue
        end = far[server]
        if end >= servers:
            switches[end - servers] |= words[server]
        elif end >= 0:
            onward[end] |= words[server]


@numba.njit(cache=True)
def _spread_from_switches(far: Ints, switches: Words, onward: Words) -> None:
    """Spread each switch's word of reached sources to its servers."""
    servers = len(onward)
    for server in range(servers):
        if far[server] >= servers:
            onward[server] |= switches[far[server] - servers]


@numba.njit(cache=True)
def _flush_lanes_to_totals(lanes: Words, counts: Ints) -> None:
    """Add the bit lanes' partial counts to the totals and clear the lanes."""
    for bit in range(64):
        counts[bit] += (lanes[bit % 8] >> numpy.uint64(bit // 8 * 8)) & numpy.uint64(MOST_HELD)
    lanes[:] = 0


@numba.njit(cache=True)
def _bit_counts(words: Words) -> Ints:
    """Return for each source's bit the number of servers' words that have it set.

    Eight bits are counted in parallel: byte b of lane i counts bit 8 b + i, for up to 255 words.
    """
    counts, held = numpy.zeros(64, numpy.int64), 0
    lanes = numpy.zeros(8, numpy.uint64)
    for word in words:
        if word:
            for i in range(8):
                lanes[i] += (word >> numpy.uint64(i)) & LOWEST
            held += 1
        if held == MOST_HELD:
            _flush_lanes_to_totals(lanes, counts)
            held = 0
    _flush_lanes_to_totals(lanes, counts)
    return counts
