"""BSR's parallel paths around failures, for arrays of flows (hosts/bcube/selection.py).

A flow's set is the paths of BuildPathSet that work and, for each other one, what a breadth-first
search finds beside them; the flow takes a random one of the set. A search costs many times what a
path of BuildPathSet does, so only what the choice depends on is looked for. The flow draws one of
k + 1 places. If the path of BuildPathSet that stands there works, nothing else matters. Otherwise
replacements fill the empty places, the first one first, up to the drawn one; if that stays empty,
the set is known, and the flow draws from it. So each path of the set is as likely.

All that can fail is known by the cables: one is dead if it, its server or its switch is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy
from numpy.random import Generator

from experiments.analysis.fluid.links import Routes, link_count
from experiments.analysis.simulator.around import Find
from experiments.analysis.simulator.compiled import native
from experiments.analysis.simulator.failures import Bools
from experiments.analysis.simulator.hops import Fill, Hops, Ints, routes_of_hops, walk
from hosts.bcube.rules import parallel
from hosts.bcube.selection import most_hops
from topos.bcube import BCube

NONE = -1


class Shape(NamedTuple):
    """The network as the searches see it."""

    n: int
    widths: Any  # by level: how many values its digit has
    weights: Any  # by level: what its digit counts
    digits: Any  # by server and level
    alive: Any  # by server and level: whether the cable works
    plain: bool


class Search(NamedTuple):
    """What a search needs, for two waves: that of the source and that of the destination.

    A server or switch is marked by the number of the search, so that nothing has to be cleared.
    """

    number: Any  # of the flow's first search, which marks what its paths pass, and of the last one
    closed_servers: Any  # by server: the last flow that has a path through it
    closed_switches: Any  # by level, and by the server with a 0 at that level: the same
    reached: Any  # by wave and server
    passed: Any  # by wave, level and switch
    came_from: Any  # by wave and server
    came_by: Any  # by wave and server: the level
    queue: Any  # by wave: servers in the order of the search


def fill(bcube: BCube, works: Bools, random: Generator, *, plain: bool = False) -> Fill:
    """Return what writes the hops of flows: at most `most_hops` each, none where no path is left.

    Parameters
    ----------
    bcube : BCube
        Full or partial.
    works : array
        By the number of each link, whether it works (see `analysis.simulator.failures`).
    random : Generator
        Chooses from each set.
    plain : bool
        Whether searches try the digits from 0 on, as one would without a thought. The routers
        begin behind a server's own digit, so that replacements do not crowd on digit 0.
    """
    return partial(_fill, *_begun(bcube, works, plain), most_hops(bcube), random)


def path_sets(bcube: BCube, works: Bools | None) -> Callable[[Ints, Ints], Routes]:
    """Return what finds the links of all paths of flows' sets, k + 1 of each, those of k first.

    Behind the paths of BuildPathSet that work stand their replacements. A set with fewer ends with
    paths that have no links.
    """
    if works is None:
        works = numpy.ones(link_count(bcube), bool)
    shape, search = _begun(bcube, works, plain=False)
    most = most_hops(bcube)

    def find(sources: Ints, destinations: Ints) -> Routes:
        rows = len(sources) * bcube.ports
        ports, peers = numpy.empty((rows, most), numpy.int8), numpy.empty((rows, most), numpy.int64)
        counts = numpy.zeros(rows, numpy.int64)
        _fill_sets(shape, search, most, sources, destinations, ports, peers, counts)
        written = numpy.arange(most) < counts[:, None]
        starts = numpy.concatenate([[0], numpy.cumsum(counts)])
        hops = Hops(starts, ports[written], peers[written])
        return routes_of_hops(bcube, numpy.repeat(sources, bcube.ports), hops, range(bcube.ports))

    return find


def _begun(bcube: BCube, works: Bools, plain: bool) -> tuple[Shape, Search]:
    """Return the network as the searches see it, and room for them."""
    levels, servers = bcube.ports, bcube.servers
    alive = works[: servers * levels].reshape(servers, levels)
    search = Search(
        numpy.zeros(2, numpy.int64),
        numpy.zeros(servers, numpy.int64),
        numpy.zeros((levels, servers), numpy.int64),
        numpy.zeros((2, servers), numpy.int64),
        numpy.zeros((2, levels, servers), numpy.int64),
        numpy.empty((2, servers), numpy.int32),
        numpy.empty((2, servers), numpy.int8),
        numpy.empty((2, servers), numpy.int32),
    )
    widths = numpy.array(bcube.radices()[::-1], numpy.int64)
    weights = bcube.n ** numpy.arange(levels)
    digits = (numpy.arange(servers)[:, None] // weights % bcube.n).astype(numpy.int32)
    return Shape(bcube.n, widths, weights, digits, alive, plain), search


@native
def _fill(
    shape: Any,
    search: Any,
    most: int,
    random: Any,
    sources: Any,
    destinations: Any,
    ports: Any,
    peers: Any,
    counts: Any,
) -> None:
    n, alive, levels = shape.n, shape.alive, len(shape.widths)
    k, top = levels - 1, shape.widths[levels - 1]
    # The flow's set; a row is as long as the longest path.
    set_ports = numpy.empty((levels, ports.shape[1]), numpy.int8)
    set_peers = numpy.empty((levels, ports.shape[1]), numpy.int64)
    for flow in range(len(sources)):
        source, destination = sources[flow], destinations[flow]
        place = int(random.random() * levels)
        row_ports, row_peers = ports[flow], peers[flow]
        hops = _parallel(n, k, top, place, source, destination, row_ports, row_peers)
        if _is_working(alive, source, row_ports, row_peers, hops):
            counts[flow] = hops
            continue
        search.number[0] = search.number[1] + 1  # no path of an earlier flow is avoided
        found, empty = 0, 0
        lengths = numpy.zeros(levels, numpy.int64)
        for other in range(levels):
            # Places before the drawn one that are empty as well take earlier replacements.
            to_ports, to_peers = set_ports[found], set_peers[found]
            hops = _parallel(n, k, top, other, source, destination, to_ports, to_peers)
            if _is_working(alive, source, to_ports, to_peers, hops):
                _close(shape, search, source, to_ports[:hops], to_peers[:hops])
                lengths[found] = hops
                found += 1
            elif other < place:
                empty += 1
        wanted = found + empty
        while found <= wanted:
            to_ports, to_peers = set_ports[found], set_peers[found]
            hops = _replacement(shape, most, search, source, destination, to_ports, to_peers)
            if hops == 0:
                break
            _close(shape, search, source, to_ports[:hops], to_peers[:hops])
            lengths[found] = hops
            found += 1
        counts[flow] = 0
        if found:
            chosen = wanted if found > wanted else int(random.random() * found)
            counts[flow] = lengths[chosen]
            row_ports[:] = set_ports[chosen]
            row_peers[:] = set_peers[chosen]


@native
def _fill_sets(
    shape: Any,
    search: Any,
    most: int,
    sources: Any,
    destinations: Any,
    ports: Any,
    peers: Any,
    counts: Any,
) -> None:
    """Write each flow's set into rows of its own, as many as there are levels."""
    n, alive, levels = shape.n, shape.alive, len(shape.widths)
    k, top = levels - 1, shape.widths[levels - 1]
    for flow in range(len(sources)):
        source, destination = sources[flow], destinations[flow]
        search.number[1] += 1
        search.number[0] = search.number[1]  # no path of an earlier flow is avoided
        row, end, wanted = flow * levels, flow * levels, 0
        for other in range(levels):
            hops = _parallel(n, k, top, other, source, destination, ports[end], peers[end])
            wanted += hops > 0
            if _is_working(alive, source, ports[end], peers[end], hops):
                _close(shape, search, source, ports[end, :hops], peers[end, :hops])
                counts[end] = hops
                end += 1
        while end < row + wanted:
            to_ports, to_peers = ports[end], peers[end]
            hops = _replacement(shape, most, search, source, destination, to_ports, to_peers)
            if hops == 0:
                break
            _close(shape, search, source, to_ports[:hops], to_peers[:hops])
            counts[end] = hops
            end += 1


def _parallel(
    n: int, k: int, top: int, number: int, source: int, destination: int, ports: Any, peers: Any
) -> int:
    """Write the path of that number of BuildPathSet; return its hops."""
    hops = 0
    for port, peer in parallel(n, k, top, source, destination, number):
        ports[hops], peers[hops] = port, peer
        hops += 1
    return hops


def _is_working(alive: Any, source: int, ports: Any, peers: Any, hops: int) -> bool:
    """Tell whether there is a path, and both cables of each of its hops work."""
    here = source
    for hop in range(hops):
        if not (alive[here, ports[hop]] and alive[peers[hop], ports[hop]]):
            return False
        here = peers[hop]
    return hops > 0


def _close(shape: Any, search: Any, source: int, ports: Any, peers: Any) -> None:
    """Keep the flow's further searches off this path's switches, and servers but the ends."""
    here, flow = source, search.number[0]
    for hop in range(len(ports)):
        level = ports[hop]
        switch = here - shape.digits[here, level] * shape.weights[level]
        search.closed_switches[level, switch] = flow
        here = peers[hop]
        if hop < len(ports) - 1:
            search.closed_servers[here] = flow


def _replacement(
    shape: Any, most: int, search: Any, source: int, destination: int, ports: Any, peers: Any
) -> int:
    """Write a shortest path that works beside those closed; return its hops, 0 if there is none."""
    search.number[1] += 1
    # Of each wave: where the servers that it reached last begin and end.
    begins, ends = numpy.zeros(2, numpy.int64), numpy.ones(2, numpy.int64)
    for wave, end in enumerate((source, destination)):
        search.queue[wave, 0] = end
        search.reached[wave, end] = search.number[1]
    for _ in range(most):
        wave = 0 if ends[0] - begins[0] <= ends[1] - begins[1] else 1
        begin, begins[wave] = begins[wave], ends[wave]
        ends[wave], meeting = _advance(shape, search, wave, begin, ends[wave])
        if meeting != NONE:
            return _join(search, source, destination, meeting, ports, peers)
        if begins[wave] == ends[wave]:
            return 0
    return 0


def _advance(shape: Any, search: Any, wave: int, begin: int, end: int) -> tuple[int, int]:
    """Let a wave go one hop further; return where its queue ends then, and where waves meet."""
    widths, weights, digits, alive = shape.widths, shape.weights, shape.digits, shape.alive
    flow, number = search.number
    queue, reached, other = search.queue[wave], search.reached[wave], search.reached[1 - wave]
    passed, size = search.passed[wave], end
    for server in queue[begin:end]:
        for level in range(len(widths) - 1, -1, -1):
            weight, width, own = weights[level], widths[level], digits[server, level]
            first = 0 if shape.plain else own + 1
            switch = server - own * weight
            if (
                not alive[server, level]
                or passed[level, switch] == number
                or search.closed_switches[level, switch] == flow
            ):
                continue
            passed[level, switch] = number
            for i in range(first, first + width):  # and round from the last digit to 0
                peer = switch + (i if i < width else i - width) * weight
                if (
                    reached[peer] == number
                    or not alive[peer, level]
                    or search.closed_servers[peer] == flow
                ):
                    continue
                reached[peer] = number
                search.came_from[wave, peer] = server
                search.came_by[wave, peer] = level
                if other[peer] == number:
                    return size, peer
                queue[size] = peer
                size += 1
    return size, NONE


def _join(search: Any, source: int, destination: int, meeting: int, ports: Any, peers: Any) -> int:
    """Write the way of both waves that meet at a server; return its hops."""
    hops, at = 0, meeting
    while at != source:
        hops += 1
        at = search.came_from[0, at]
    at = meeting
    for hop in range(hops - 1, -1, -1):
        ports[hop], peers[hop] = search.came_by[0, at], at
        at = search.came_from[0, at]
    at = meeting
    while at != destination:
        ports[hops] = search.came_by[1, at]
        at = search.came_from[1, at]
        peers[hops] = at
        hops += 1
    return hops


def _bsr(plain: bool, bcube: BCube, works: Bools, random: Generator) -> Find:
    compiled = fill(bcube, works, random, plain=plain)

    def find(sources: Ints, destinations: Ints) -> Routes:
        hops = walk(compiled, most_hops(bcube), sources, destinations)
        return routes_of_hops(bcube, sources, hops, range(bcube.ports))

    return find


AROUND = {"bsr": partial(_bsr, False), "bsr-plain": partial(_bsr, True)}
