"""BSR's parallel paths around failures, for arrays of flows (hosts/bcube/selection.py).

A flow's path set consists of the working paths of BuildPathSet and, for each failed one, a
replacement that a breadth-first search finds disjoint from the others; the flow takes a random path
of the set. A search costs many times as much as a path of BuildPathSet, so only paths on which the
choice depends are searched. The flow draws one of k + 1 places. If the BuildPathSet path at that
place works, the flow takes it. Otherwise replacements fill the empty places in order, up to the
drawn place; if that stays empty, the set is complete, and the flow draws from it. So each path of
the set is equally likely.

All failures are represented by cables: a cable is dead if it, its server or its switch has failed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy
from numpy.random import Generator

from pillarbox.experiments.models.arrays import Bools, Ints
from pillarbox.experiments.models.fluid.directed_links import Routes, link_count
from pillarbox.experiments.models.simulator.around import Find
from pillarbox.experiments.models.simulator.compiled import native_in_place
from pillarbox.experiments.models.simulator.hops import Fill, Hops, hops_of_flows, routes_of_hops
from pillarbox.hosts.base.rules import NONE
from pillarbox.hosts.bcube.rules import parallel, with_digit
from pillarbox.hosts.bcube.search import Net, Wave, joined_hops, meeting_server
from pillarbox.hosts.bcube.selection import most_hops
from pillarbox.topos.base.switched_digits import SwitchedDigits


class BCubeState(NamedTuple):
    """State of path searches in a BCube: the network, and the tables of the searches.

    Marks in the tables are numbers of searches, so the tables need not be cleared between searches.
    """

    most: int  # maximum number of hops of a path
    plain: bool
    works: Bools  # whether the cable works, by server and level
    weights: Ints  # weight of each digit by level, and the number of servers, as rules take them
    apart: Bools  # empty: failures are known by cable, not by pair of servers (see `Net`)
    # Numbers of the flow's first search, which marks its paths' nodes, and of its last search.
    number: Ints
    closed_servers: Ints
    closed_switches: Ints
    near: Wave
    far: Wave
    path_set: Hops  # the flow's path set: one row per path


def fill(bcube: SwitchedDigits, works: Bools, random: Generator, *, plain: bool = False) -> Fill:
    """Return a function that writes flows' hops: at most `most_hops` each, none without a path.

    Parameters
    ----------
    bcube : SwitchedDigits
        Full or partial BCube, or a network whose levels have other sizes.
    works : array
        Whether each link works, by link number (see `FailedNodes.works`).
    random : Generator
        Random source that chooses from each path set.
    plain : bool
        Whether searches try digits in the simplest order, from 0 on. The routers start after the
        server's own digit, so that replacements do not crowd on digit 0.
    """
    return partial(_fill, _initial_state(bcube, works, plain), random)


def path_sets(bcube: SwitchedDigits, works: Bools | None) -> Callable[[Ints, Ints], Routes]:
    """Return a function that finds the links of all paths of flows' sets, k + 1 paths per flow.

    The working paths of BuildPathSet come first, followed by their replacements. A smaller set ends
    with paths that have no links.
    """
    if works is None:
        works = numpy.ones(link_count(bcube), bool)
    state, most = _initial_state(bcube, works, plain=False), most_hops(bcube)

    def find(sources: Ints, destinations: Ints) -> Routes:
        rows = len(sources) * bcube.ports
        hops = _empty_hops(rows, most)
        _fill_sets(state, sources, destinations, hops)
        return routes_of_hops(bcube, numpy.repeat(sources, bcube.ports), hops, range(bcube.ports))

    return find


def _initial_state(bcube: SwitchedDigits, works: Bools, plain: bool) -> BCubeState:
    """Return the state of path searches in a BCube, with empty tables."""
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
    return BCubeState(
        most_hops(bcube),
        plain,
        works[: servers * levels].reshape(servers, levels),
        numpy.array(bcube.weights, numpy.int64),
        numpy.zeros((0, 0), bool),
        numpy.zeros(2, numpy.int64),
        numpy.zeros(servers, numpy.int64),
        numpy.zeros((levels, servers), numpy.int64),
        near,
        far,
        _empty_hops(levels, most_hops(bcube)),
    )


def _empty_hops(rows: int, most: int) -> Hops:
    return Hops(
        numpy.zeros(rows, numpy.int32),
        numpy.empty((rows, most), numpy.int8),
        numpy.empty((rows, most), numpy.int64),
    )


@native_in_place
def _fill(
    state: BCubeState, random: Generator, sources: Ints, destinations: Ints, hops: Hops
) -> None:
    levels, path_set = state.works.shape[1], state.path_set
    for flow in range(len(sources)):
        source, destination = sources[flow], destinations[flow]
        place = int(random.random() * levels)
        count, well = _write_parallel_path(state, place, source, destination, hops, flow)
        if well:
            hops.counts[flow] = count
            continue
        # a new search number discards the marks of earlier flows' paths
        state.number[0] = state.number[1] + 1
        found, empty = 0, 0
        for other in range(levels):
            # Empty places before the drawn path take replacements found earlier.
            count, well = _write_parallel_path(state, other, source, destination, path_set, found)
            if well:
                _add_path(state, source, path_set, found, count)
                found += 1
            elif other < place:
                empty += 1
        wanted = found + empty
        found = _write_replacements(state, source, destination, path_set, found, wanted + 1)
        hops.counts[flow] = 0
        if found:
            chosen = wanted if found > wanted else int(random.random() * found)
            hops.counts[flow] = path_set.counts[chosen]
            for hop in range(hops.counts[flow]):
                hops.ports[flow, hop] = path_set.ports[chosen, hop]
                hops.peers[flow, hop] = path_set.peers[chosen, hop]


@native_in_place
def _fill_sets(state: BCubeState, sources: Ints, destinations: Ints, hops: Hops) -> None:
    """Write the hops of each flow's BCube path set to its rows: one row per level."""
    levels = state.works.shape[1]
    for flow in range(len(sources)):
        source, destination = sources[flow], destinations[flow]
        # a new search number discards the marks of earlier flows' paths
        state.number[1] += 1
        state.number[0] = state.number[1]
        row, end, wanted = flow * levels, flow * levels, 0
        for other in range(levels):
            count, well = _write_parallel_path(state, other, source, destination, hops, end)
            wanted += count > 0
            if well:
                _add_path(state, source, hops, end, count)
                end += 1
        _write_replacements(state, source, destination, hops, end, row + wanted)


def _write_parallel_path(
    state: BCubeState, number: int, source: int, destination: int, rows: Hops, row: int
) -> tuple[int, bool]:
    """Write path `number` of BuildPathSet to a row, up to the first hop with a failed cable.

    Return the number of hops, 0 if there is no such path, and whether the whole path works.
    """
    hops, here = 0, source
    for port, peer in parallel(state.weights, source, destination, number):
        rows.ports[row, hops], rows.peers[row, hops] = port, peer
        hops += 1
        if not (state.works[here, port] and state.works[peer, port]):
            return hops, False
        here = peer
    return hops, hops > 0


def _add_path(state: BCubeState, source: int, rows: Hops, row: int, count: int) -> None:
    """Store the path's number of hops; exclude its switches and relays from later searches."""
    rows.counts[row] = count
    here, flow = source, state.number[0]
    for hop in range(count):
        level = rows.ports[row, hop]
        state.closed_switches[level, with_digit(state.weights, here, level, 0)] = flow
        here = rows.peers[row, hop]
        if hop < count - 1:
            state.closed_servers[here] = flow


def _write_replacements(
    state: BCubeState, source: int, destination: int, rows: Hops, row: int, end: int
) -> int:
    """Write replacement paths, each to a row; return the row after the last one, at most `end`."""
    while row < end:
        count = _write_replacement(state, source, destination, rows, row)
        if count == 0:
            break
        _add_path(state, source, rows, row, count)
        row += 1
    return row


def _write_replacement(
    state: BCubeState, source: int, destination: int, rows: Hops, row: int
) -> int:
    """Write a shortest working path around excluded nodes; return its hops, 0 without a path."""
    state.number[1] += 1
    closed = state.closed_servers, state.closed_switches, state.number[0]
    net = Net(state.works, state.apart, *closed, state.weights, state.plain)
    near, far = state.near, state.far
    ends = source, destination
    middle = meeting_server(net, near, far, state.number[1], state.most, *ends)
    hops = 0
    if middle != NONE:
        for port, peer in joined_hops(near, far, source, destination, middle):
            rows.ports[row, hops], rows.peers[row, hops] = port, peer
            hops += 1
    return hops


def _bsr(plain: bool, bcube: SwitchedDigits, works: Bools, random: Generator) -> Find:
    compiled = fill(bcube, works, random, plain=plain)

    def find(sources: Ints, destinations: Ints) -> Routes:
        hops = hops_of_flows(compiled, most_hops(bcube), sources, destinations)
        return routes_of_hops(bcube, sources, hops, range(bcube.ports))

    return find


AROUND = {"bsr": partial(_bsr, False), "bsr-plain": partial(_bsr, True)}
