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
from experiments.analysis.simulator.compiled import native_in_place
from experiments.analysis.simulator.failures import Bools
from experiments.analysis.simulator.hops import Fill, Hops, Ints, routes_of_hops, walk
from hosts.base.rules import NONE
from hosts.bcube.rules import numbers, parallel, with_digit
from hosts.bcube.search import Net, Wave, joined, meeting
from hosts.bcube.selection import most_hops
from topos.bcube import BCube


class State(NamedTuple):
    """The network, and the tables of its searches.

    Marks there are numbers of searches, so that nothing has to be cleared.
    """

    numbers: tuple[int, int, int]  # of the network
    most: int  # hops
    plain: bool
    works: Any  # by server and level: whether the cable works
    weights: Any  # of digits, by level
    apart: Any  # no pair of servers is, beyond what their cables say
    # The number of the flow's first search, which marks what its paths pass, and of the last one.
    number: Any
    closed_servers: Any
    closed_switches: Any
    near: Wave
    far: Wave
    # The flow's set: hops, a row each as long as the longest path, and how many they are.
    set_ports: Any
    set_peers: Any
    lengths: Any


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
    return partial(_fill, _begun(bcube, works, plain), random)


def path_sets(bcube: BCube, works: Bools | None) -> Callable[[Ints, Ints], Routes]:
    """Return what finds the links of all paths of flows' sets, k + 1 of each, those of k first.

    Behind the paths of BuildPathSet that work stand their replacements. A set with fewer ends with
    paths that have no links.
    """
    if works is None:
        works = numpy.ones(link_count(bcube), bool)
    state, most = _begun(bcube, works, plain=False), most_hops(bcube)

    def find(sources: Ints, destinations: Ints) -> Routes:
        rows = len(sources) * bcube.ports
        ports, peers = numpy.empty((rows, most), numpy.int8), numpy.empty((rows, most), numpy.int64)
        hops = Hops(numpy.zeros(rows, numpy.int32), ports, peers)
        _fill_sets(state, sources, destinations, ports, peers, hops.counts)
        return routes_of_hops(bcube, numpy.repeat(sources, bcube.ports), hops, range(bcube.ports))

    return find


def _begun(bcube: BCube, works: Bools, plain: bool) -> State:
    """Return the network as the searches see it, and room for them."""
    levels, servers = bcube.ports, bcube.servers
    near, far = (
        Wave(
            numpy.zeros(servers, numpy.int64),
            numpy.zeros((levels, servers), numpy.int64),
            numpy.empty(servers, numpy.int32),
            numpy.empty(servers, numpy.int8),
            numpy.empty(servers, numpy.int32),
        )
        for _ in range(2)
    )
    return State(
        numbers(bcube),
        most_hops(bcube),
        plain,
        works[: servers * levels].reshape(servers, levels),
        bcube.n ** numpy.arange(levels),
        numpy.zeros((0, 0), bool),
        numpy.zeros(2, numpy.int64),
        numpy.zeros(servers, numpy.int64),
        numpy.zeros((levels, servers), numpy.int64),
        near,
        far,
        numpy.empty((levels, most_hops(bcube)), numpy.int8),
        numpy.empty((levels, most_hops(bcube)), numpy.int64),
        numpy.empty(levels, numpy.int64),
    )


@native_in_place
def _fill(
    state: State,
    random: Any,
    sources: Any,
    destinations: Any,
    ports: Any,
    peers: Any,
    counts: Any,
) -> None:
    levels = state.works.shape[1]
    set_ports, set_peers, lengths = state.set_ports, state.set_peers, state.lengths
    for flow in range(len(sources)):
        source, destination = sources[flow], destinations[flow]
        place = int(random.random() * levels)
        row_ports, row_peers = ports[flow], peers[flow]
        hops, well = _parallel(state, place, source, destination, row_ports, row_peers)
        if well:
            counts[flow] = hops
            continue
        state.number[0] = state.number[1] + 1  # no path of an earlier flow is avoided
        found, empty = 0, 0
        for other in range(levels):
            # Places before the drawn one that are empty as well take earlier replacements.
            to_ports, to_peers = set_ports[found], set_peers[found]
            hops, well = _parallel(state, other, source, destination, to_ports, to_peers)
            if well:
                _close(state, source, to_ports[:hops], to_peers[:hops])
                lengths[found] = hops
                found += 1
            elif other < place:
                empty += 1
        wanted = found + empty
        while found <= wanted:
            to_ports, to_peers = set_ports[found], set_peers[found]
            hops = _replacement(state, source, destination, to_ports, to_peers)
            if hops == 0:
                break
            _close(state, source, to_ports[:hops], to_peers[:hops])
            lengths[found] = hops
            found += 1
        counts[flow] = 0
        if found:
            chosen = wanted if found > wanted else int(random.random() * found)
            counts[flow] = lengths[chosen]
            for hop in range(counts[flow]):
                row_ports[hop], row_peers[hop] = set_ports[chosen, hop], set_peers[chosen, hop]


@native_in_place
def _fill_sets(
    state: State,
    sources: Any,
    destinations: Any,
    ports: Any,
    peers: Any,
    counts: Any,
) -> None:
    """Write each flow's set into rows of its own, as many as there are levels."""
    levels = state.works.shape[1]
    for flow in range(len(sources)):
        source, destination = sources[flow], destinations[flow]
        state.number[1] += 1
        state.number[0] = state.number[1]  # no path of an earlier flow is avoided
        row, end, wanted = flow * levels, flow * levels, 0
        for other in range(levels):
            hops, well = _parallel(state, other, source, destination, ports[end], peers[end])
            wanted += hops > 0
            if well:
                _close(state, source, ports[end, :hops], peers[end, :hops])
                counts[end] = hops
                end += 1
        while end < row + wanted:
            to_ports, to_peers = ports[end], peers[end]
            hops = _replacement(state, source, destination, to_ports, to_peers)
            if hops == 0:
                break
            _close(state, source, to_ports[:hops], to_peers[:hops])
            counts[end] = hops
            end += 1


def _parallel(
    state: State, number: int, source: int, destination: int, ports: Any, peers: Any
) -> tuple[int, bool]:
    """Write the path of that number of BuildPathSet, up to a hop of which a cable does not work.

    Return the hops, 0 if there is no path, and whether all of it works.
    """
    hops, here = 0, source
    for port, peer in parallel(*state.numbers, source, destination, number):
        ports[hops], peers[hops] = port, peer
        hops += 1
        if not (state.works[here, port] and state.works[peer, port]):
            return hops, False
        here = peer
    return hops, hops > 0


def _close(state: State, source: int, ports: Any, peers: Any) -> None:
    """Keep the flow's further searches off this path's switches, and servers but the ends."""
    here, flow = source, state.number[0]
    for hop in range(len(ports)):
        switch = with_digit(state.numbers[0], here, ports[hop], 0)
        state.closed_switches[ports[hop], switch] = flow
        here = peers[hop]
        if hop < len(ports) - 1:
            state.closed_servers[here] = flow


def _replacement(state: State, source: int, destination: int, ports: Any, peers: Any) -> int:
    """Write a shortest path that works beside those closed; return its hops, 0 if there is none."""
    state.number[1] += 1
    closed = state.closed_servers, state.closed_switches, state.number[0]
    net = Net(state.works, state.apart, *closed, state.weights, state.plain)
    near, far = state.near, state.far
    ends = source, destination
    middle = meeting(*state.numbers, net, near, far, state.number[1], state.most, *ends)
    hops = 0
    if middle != NONE:
        for port, peer in joined(near, far, source, destination, middle):
            ports[hops], peers[hops] = port, peer
            hops += 1
    return hops


def _bsr(plain: bool, bcube: BCube, works: Bools, random: Generator) -> Find:
    compiled = fill(bcube, works, random, plain=plain)

    def find(sources: Ints, destinations: Ints) -> Routes:
        hops = walk(compiled, most_hops(bcube), sources, destinations)
        return routes_of_hops(bcube, sources, hops, range(bcube.ports))

    return find


AROUND = {"bsr": partial(_bsr, False), "bsr-plain": partial(_bsr, True)}
