"""Flows that probe their paths, again and again, and move to the one with the most bandwidth left.

So do BSR's (Guo 2009, sections 4.1 and 4.3) and those of traffic-aware DPillarMP (Liao 2012,
section 4.5.2). What a routing decides is in `analysis.simulator.adapting`; here is the time that
goes by, in steps of how often a server reads its ports' counters. In each step

    flows choose                  by the answers that are in
    flows send                    at max-min fair rates over their paths
    sources probe                 those whose time has come; the answers are in by the next step
    servers read their counters   and keep a mean, half of it the newest (hosts/base/bandwidth.py)

So a flow begins on a shortest path, which it has while it is probed for the first time, and what
probes see is a little out of date. The next ones come after an interval and a random part.

The links of all paths of a pair are found anew whenever it is probed; what is kept is the present
path of each flow. Bandwidths are shares of a link's rate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy
from numpy.typing import NDArray

from experiments.analysis.fluid.links import Routes, link_count
from experiments.analysis.fluid.rates import link_loads, max_min
from experiments.analysis.simulator.adapting import Times
from experiments.analysis.simulator.hops import Ints, in_blocks
from hosts.base.bandwidth import mean
from hosts.base.rules import NONE
from hosts.base.timers import timers_for
from topos.base.topology import Topology

if TYPE_CHECKING:
    Floats = NDArray[numpy.float64]

BLOCK = 1 << 12  # pairs that are probed, handled at once


class PathSets(NamedTuple):
    """The paths among which a routing chooses: so many for each pair of servers."""

    size: int
    # The links of all paths of some pairs, a set after the other. What has failed, or is the same
    # as an earlier one, has none. Of equally long paths the routing prefers the first.
    find: Callable[[Ints, Ints], Routes]


class Probed:
    """Flows on the paths that they chose last; a routing says how, in a class of its own.

    Parameters
    ----------
    topology : Topology
        The network.
    sets : PathSets
        Of the routing.
    sources, destinations : arrays
        Of the flows; the two ends of a flow differ.
    random : Generator
        Draws the random parts of the times between probes.
    times : Times
        When flows begin, and whether the times between probes have a random part.
    """

    def __init__(
        self,
        topology: Topology,
        sets: PathSets,
        sources: Ints,
        destinations: Ints,
        random: numpy.random.Generator,
        times: Times,
    ) -> None:
        self.topology, self.sets, self.random = topology, sets, random
        self.timers = timers_for(topology, "paper")
        if not times.random_part:
            self.timers = replace(self.timers, probe_jitter_s=0.0)
        flows, last_s = len(sources), 0.0
        if not times.at_once:
            last_s = self.timers.probe_interval_s - self.timers.heart_beat_s
        self.starts_s = random.random(flows) * last_s
        self.now_s, self.moves = 0.0, 0
        # Which are probed together: here each flow for itself.
        self.sources, self.destinations = sources, destinations
        self.pair: Ints = numpy.arange(flows)
        self._join_pairs()
        pairs = len(self.sources)
        self.probe_s = numpy.full(pairs, numpy.inf)  # when each is probed next
        numpy.minimum.at(self.probe_s, self.pair, self.starts_s)
        self.hops = numpy.zeros((pairs, sets.size), numpy.int16)  # 0 where there is no path
        self.default = self._default()
        self.answers: tuple[Ints, Floats] = (numpy.arange(0), numpy.zeros((0, sets.size)))
        # Of each flow: the number of its path, and what it has sent since when.
        self.path = numpy.full(flows, NONE, numpy.int64)
        self.sent, self.since_s = numpy.zeros(flows), self.starts_s.copy()
        # The links of its path, in the order of the way, and what is behind them.
        self._links = numpy.full((flows, 0), NONE, numpy.int32)
        self._used = numpy.zeros(link_count(topology))

    # -- for a user ------------------------------------------------------------------------------

    def probe(self) -> None:
        """Let the time go by that is between two probes, but for the random part: a round."""
        end_s = self.now_s + self.timers.probe_interval_s
        while self.now_s < end_s:
            self.step()

    def step(self) -> None:
        """Let flows choose, send and probe, and servers read their counters."""
        tick_s = self.timers.heart_beat_s
        self.choose()
        routes = self.routes()
        sent = numpy.nan_to_num(max_min(routes, 1.0, len(self._used)))
        self.ask()
        loads = link_loads(routes, sent, len(self._used))
        self._used = mean(self._used, loads)
        self.sent += sent * tick_s
        self.now_s += tick_s

    def routes(self) -> Routes:
        """Return the links of the present paths; flows that have not begun have none."""
        there = self._links != NONE
        starts = numpy.zeros(len(there) + 1, numpy.int64)
        numpy.cumsum(there.sum(axis=1), out=starts[1:])
        return Routes(starts, self._links[there])

    # -- what a routing decides ------------------------------------------------------------------

    def choose(self) -> None:
        """Choose paths, those of flows that begin included, by `answers`, and `move` to them."""
        raise NotImplementedError

    def ask(self) -> None:
        """Probe the pairs whose time has come, and set the next one."""
        raise NotImplementedError

    def joined(self) -> Ints | None:
        """Return a number for each flow, the same for those that are probed together."""
        return None

    # -- for a routing to use --------------------------------------------------------------------

    def due(self) -> Ints:
        """Return the pairs whose time has come."""
        found: Ints = numpy.flatnonzero(self.probe_s <= self.now_s)
        return found

    def pauses_s(self, count: int) -> Floats:
        """Draw so many times until something is to be done again."""
        timers = self.timers
        found: Floats = timers.probe_interval_s + self.random.random(count) * timers.probe_jitter_s
        return found

    def rates(self, flows: Ints) -> Floats:
        """Return what flows have sent on average since the last time, and count anew."""
        since = self.now_s - self.since_s[flows]
        found = numpy.divide(self.sent[flows], since, out=numpy.zeros(len(flows)), where=since > 0)
        self.sent[flows], self.since_s[flows] = 0.0, self.now_s
        return found

    def measured(self, pairs: Ints) -> Floats:
        """Return what is free on each path of these pairs: on its fullest link."""
        free = numpy.maximum(0.0, 1.0 - self._used)
        found = numpy.zeros((len(pairs), self.sets.size))
        for part in in_blocks(len(pairs), BLOCK):
            routes = self._paths(pairs[part])
            there = numpy.diff(routes.starts) > 0
            if there.any():
                least = numpy.minimum.reduceat(free[routes.links], routes.starts[:-1][there])
                numpy.place(found[part], there.reshape(-1, self.sets.size), least)
        return found

    def move(self, flows: Ints, paths: Ints) -> None:
        """Let flows take these paths of theirs from now on."""
        other = self.path[flows] != paths
        flows, paths = flows[other], paths[other]
        self.moves += int(numpy.count_nonzero(self.path[flows] != NONE))
        self.path[flows] = paths
        for part in in_blocks(len(flows), BLOCK):
            self._write(flows[part], paths[part])

    # -- paths -----------------------------------------------------------------------------------

    def _join_pairs(self) -> None:
        numbers = self.joined()
        if numbers is not None:
            _, first, self.pair = numpy.unique(numbers, return_index=True, return_inverse=True)
            self.sources, self.destinations = self.sources[first], self.destinations[first]

    def _paths(self, pairs: Ints) -> Routes:
        return self.sets.find(self.sources[pairs], self.destinations[pairs])

    def _default(self) -> Ints:
        """Note how long all paths are; return the first of the shortest of each pair."""
        ports = self.topology.servers * self.topology.ports  # links by which servers send
        for part in in_blocks(len(self.hops), BLOCK):
            routes = self._paths(numpy.arange(len(self.hops))[part])
            before = numpy.concatenate([[0], numpy.cumsum(routes.links < ports)])
            hops = numpy.diff(before[routes.starts])
            self.hops[part] = hops.reshape(-1, self.sets.size)
        length = numpy.where(self.hops > 0, self.hops, numpy.iinfo(numpy.int16).max)
        found: Ints = numpy.where(self.hops.any(axis=1), length.argmin(axis=1), NONE)
        return found

    def _write(self, flows: Ints, paths: Ints) -> None:
        """Write down the links of these flows' paths."""
        found = self._paths(self.pair[flows])
        rows = numpy.arange(len(flows)) * self.sets.size + numpy.maximum(paths, 0)
        first = found.starts[rows]
        count = numpy.where(paths == NONE, 0, found.starts[rows + 1] - first)
        more = int(count.max(initial=0)) - self._links.shape[1]
        if more > 0:
            self._links = numpy.pad(self._links, ((0, 0), (0, more)), constant_values=NONE)
        place = numpy.arange(self._links.shape[1])
        written = place < count[:, None]
        links = numpy.full(written.shape, NONE, numpy.int32)
        links[written] = found.links[(first[:, None] + place)[written]]
        self._links[flows] = links
