"""Flows that probe their paths repeatedly and move to the path with the most available bandwidth.

This is how flows of BSR (Guo 2009, sections 4.1 and 4.3) and of traffic-aware DPillarMP (Liao 2012,
section 4.5.2) adapt. The routings' decisions are in `hosts`; this module simulates time, in steps
as long as the interval at which servers read their ports' counters. In each step

    flows choose paths            by the answers that have arrived
    flows send                    at max-min fair rates over their paths
    sources probe                 flows that are due; answers arrive by the next step
    servers read their counters   and keep a mean, half of it the newest (hosts/base/bandwidth.py)

So a flow starts on a shortest path, which it keeps during its first probes, and probe results are
slightly out of date. Later probes follow after an interval and a random part.

The links of all paths of a pair are computed again at each probe; only the current path of each
flow is stored. Bandwidths are in units of the network's rate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy

from pillarbox.experiments.models.arrays import Bools, Floats, Ints
from pillarbox.experiments.models.fluid.directed_links import (
    Routes,
    hop_counts,
    link_count,
    link_rates_bps,
    path_minima,
)
from pillarbox.experiments.models.fluid.rates import link_loads, max_min
from pillarbox.experiments.models.simulator.hops import in_blocks
from pillarbox.experiments.models.simulator.probe_times import ProbeTimes
from pillarbox.hosts.base.bandwidth import mean
from pillarbox.hosts.base.rules import NONE
from pillarbox.hosts.base.timers import timers_for
from pillarbox.topos.base.topology import Topology

BLOCK = 1 << 12  # number of server pairs whose probes are computed together


class CandidatePaths(NamedTuple):
    """Paths among which a routing chooses: `size` per pair of servers."""

    size: int
    # Function that finds the links of all paths of the given pairs, one set after the other. Paths
    # that have failed, or equal an earlier path, have no links. The first of equally long paths is
    # preferred.
    find: Callable[[Ints, Ints], Routes]


class ProbingFlows:
    """Simulated flows that probe and change paths; a routing's subclass defines the choice.

    Parameters
    ----------
    topology : Topology
        The network.
    sources, destinations : arrays
        Ends of each flow, which differ.
    random : Generator
        Random source for the random parts of probe intervals.
    works : array or None
        Whether each link works, by link number; None if all do.
    times : ProbeTimes
        Start times of flows, and whether probe intervals have a random part.
    """

    def __init__(
        self,
        topology: Topology,
        sources: Ints,
        destinations: Ints,
        random: numpy.random.Generator,
        works: Bools | None,
        times: ProbeTimes,
    ) -> None:
        self.topology, self.random = topology, random
        self.sets = self.candidate_paths(topology, works)
        self._rates = link_rates_bps(topology, 1.0)
        self.timers = timers_for(topology, "paper")
        if not times.random_part:
            self.timers = replace(self.timers, probe_jitter_s=0.0)
        flows, last_s = len(sources), 0.0
        if not times.at_once:
            last_s = self.timers.probe_interval_s - self.timers.heartbeat_s
        self.starts_s = random.random(flows) * last_s
        self.now_s, self.moves = 0.0, 0
        # Groups of flows that are probed together: by default, each flow is a group.
        self.sources, self.destinations = sources, destinations
        self.pair: Ints = numpy.arange(flows)
        self._join_pairs()
        pairs = len(self.sources)
        self.probe_s = numpy.full(pairs, numpy.inf)  # time of the next probe of each server pair
        numpy.minimum.at(self.probe_s, self.pair, self.starts_s)
        # number of hops by server pair and path; 0 where there is no path
        self.hops = numpy.zeros((pairs, self.sets.size), numpy.int16)
        # Rate of the slowest link by server pair and path; one row if all links are equal.
        self.path_rates = numpy.ones((pairs if topology.factors.rates else 1, self.sets.size))
        self.default = self._default_paths()
        self.answers: tuple[Ints, Floats] = (numpy.arange(0), numpy.zeros((0, self.sets.size)))
        # For each flow: the number of its path, the volume sent, and the time since when.
        self.path = numpy.full(flows, NONE, numpy.int64)
        self.sent, self.since_s = numpy.zeros(flows), self.starts_s.copy()
        # The links of each flow's path in order, padded with NONE; and the mean load of each link.
        self._links = numpy.full((flows, 0), NONE, numpy.int32)
        self._used = numpy.zeros(link_count(topology))

    # -- for a user ------------------------------------------------------------------------------

    def probe(self) -> None:
        """Simulate one round: the interval between two probes, without the random part."""
        end_s = self.now_s + self.timers.probe_interval_s
        while self.now_s < end_s:
            self.step()

    def step(self) -> None:
        """Simulate one step: flows choose, send and probe, and servers read their counters."""
        tick_s = self.timers.heartbeat_s
        self.choose()
        routes = self.routes()
        sent = numpy.nan_to_num(max_min(routes, self._rates, len(self._used)))
        self.ask()
        loads = link_loads(routes, sent, len(self._used))
        self._used = mean(self._used, loads)
        self.sent += sent * tick_s
        self.now_s += tick_s

    def routes(self) -> Routes:
        """Return the links of the current paths; flows that have not started have none."""
        there = self._links != NONE
        starts = numpy.zeros(len(there) + 1, numpy.int64)
        numpy.cumsum(there.sum(axis=1), out=starts[1:])
        return Routes(starts, self._links[there])

    # -- decisions of a routing ------------------------------------------------------------------

    def candidate_paths(self, topology: Any, works: Bools | None) -> CandidatePaths:
        """Return the paths among which the routing chooses, without those that have failed."""
        raise NotImplementedError

    def choose(self) -> None:
        """Choose paths from `answers`, also for flows that start, and `move` flows to them."""
        raise NotImplementedError

    def ask(self) -> None:
        """Probe the pairs of servers that are due, and schedule their next probes."""
        raise NotImplementedError

    def probe_groups(self) -> Ints | None:
        """Return a group number for each flow; flows of the same group are probed together."""
        return None

    # -- for a routing to use --------------------------------------------------------------------

    def due(self) -> Ints:
        """Return the pairs of servers whose probe time has come."""
        found: Ints = numpy.flatnonzero(self.probe_s <= self.now_s)
        return found

    def pauses_s(self, count: int) -> Floats:
        """Return `count` random times until the next probe or choice, in seconds."""
        timers = self.timers
        found: Floats = timers.probe_interval_s + self.random.random(count) * timers.probe_jitter_s
        return found

    def rates(self, flows: Ints) -> Floats:
        """Return the mean rate of flows since the last call, and reset their counters."""
        since = self.now_s - self.since_s[flows]
        found = numpy.divide(self.sent[flows], since, out=numpy.zeros(len(flows)), where=since > 0)
        self.sent[flows], self.since_s[flows] = 0.0, self.now_s
        return found

    def measured(self, pairs: Ints) -> Floats:
        """Return the available bandwidth of each path of these pairs: that of its fullest link."""
        free = numpy.maximum(0.0, self._rates - self._used)
        found = numpy.zeros((len(pairs), self.sets.size))
        for part in in_blocks(len(pairs), BLOCK):
            routes = self._paths(pairs[part])
            there = numpy.diff(routes.starts) > 0
            if there.any():
                least = numpy.minimum.reduceat(free[routes.links], routes.starts[:-1][there])
                numpy.place(found[part], there.reshape(-1, self.sets.size), least)
        return found

    def move(self, flows: Ints, paths: Ints) -> None:
        """Move flows to other paths of their path sets."""
        other = self.path[flows] != paths
        flows, paths = flows[other], paths[other]
        self.moves += int(numpy.count_nonzero(self.path[flows] != NONE))
        self.path[flows] = paths
        for part in in_blocks(len(flows), BLOCK):
            self._store_links(flows[part], paths[part])

    # -- paths -----------------------------------------------------------------------------------

    def _join_pairs(self) -> None:
        numbers = self.probe_groups()
        if numbers is not None:
            _, first, self.pair = numpy.unique(numbers, return_index=True, return_inverse=True)
            self.sources, self.destinations = self.sources[first], self.destinations[first]

    def _paths(self, pairs: Ints) -> Routes:
        return self.sets.find(self.sources[pairs], self.destinations[pairs])

    def _default_paths(self) -> Ints:
        """Compute the length of all paths; return the first of the shortest paths of each pair."""
        for part in in_blocks(len(self.hops), BLOCK):
            routes = self._paths(numpy.arange(len(self.hops))[part])
            self.hops[part] = hop_counts(self.topology, routes).reshape(-1, self.sets.size)
            if isinstance(self._rates, numpy.ndarray):
                slowest = path_minima(routes, self._rates)
                self.path_rates[part] = slowest.reshape(-1, self.sets.size)
        length = numpy.where(self.hops > 0, self.hops, numpy.iinfo(numpy.int16).max)
        found: Ints = numpy.where(self.hops.any(axis=1), length.argmin(axis=1), NONE)
        return found

    def _store_links(self, flows: Ints, paths: Ints) -> None:
        """Store the links of these adaptive flows' current paths."""
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
