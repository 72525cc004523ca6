"""Traffic-aware DPillarMP over time (hosts/dpillar/traffic_aware.py, tunnel_choices.py).

A source probes its paths, in both directions, to each of its destinations. Every flow chooses at
its own times by the last answers, and books the bandwidth that it takes: so the flows of one source
spread over the paths, though all use the same answers. A flow starts on a shortest path.
"""

from __future__ import annotations

from typing import Any

import numpy

from pillarbox.experiments.models.arrays import Bools, Floats, Ints
from pillarbox.experiments.models.fluid.directed_links import Routes
from pillarbox.experiments.models.simulator.adapting.probing_flows import (
    CandidatePaths,
    ProbingFlows,
)
from pillarbox.experiments.models.simulator.compiled import native
from pillarbox.experiments.models.simulator.failure_sets import surviving_routes
from pillarbox.experiments.models.simulator.paths import routing_by_name
from pillarbox.experiments.models.simulator.walks import different_paths
from pillarbox.hosts.base.rules import NONE
from pillarbox.hosts.dpillar.rules import booked
from pillarbox.topos.dpillar import DPillar

PATHS = "mp-both"


class TrafficAwareFlows(ProbingFlows):
    """Flows of traffic-aware DPillarMP, which probe their paths (see `ProbingFlows`)."""

    def __init__(self, *network: Any) -> None:
        super().__init__(*network)
        self._again_s = self.starts_s.copy()  # next time at which each flow chooses its path
        # Free bandwidth by server pair and path, less bookings; NaN until the first answer.
        self._free = numpy.full(self.hops.shape, numpy.nan)

    def probe_groups(self) -> Ints:
        """Return for each flow a number that identifies its pair of servers."""
        numbers: Ints = self.sources.astype(numpy.int64) * self.topology.servers
        return numbers + self.destinations

    def candidate_paths(self, topology: DPillar, works: Bools | None) -> CandidatePaths:
        """Return DPillarMP's paths in both directions."""

        def find(sources: Ints, destinations: Ints) -> Routes:
            different = different_paths(topology, PATHS, sources, destinations)
            return different if works is None else surviving_routes(different, works)

        return CandidatePaths(routing_by_name(topology, PATHS).choices(topology), find)

    def choose(self) -> None:
        """Choose paths for the DPillar flows that are due, one after the other."""
        pairs, free = self.answers
        self._free[pairs] = free
        self.answers = pairs[:0], free[:0]
        flows = numpy.flatnonzero(self._again_s <= self.now_s)
        paths, known = self.path[flows], numpy.empty(len(flows), numpy.bool_)
        _choose_and_book(
            self._free, self.hops, self.default, self.pair[flows], self.rates(flows), paths, known
        )
        self.move(flows, paths)
        self._again_s[flows[known]] = self.now_s + self.pauses_s(int(known.sum()))
        self._again_s[flows[~known]] = self.now_s + self.timers.probe_timeout_s

    def ask(self) -> None:
        """Probe all DPillarMP paths of the server pairs whose probes are due."""
        pairs = self.due()
        self.answers = pairs, self.measured(pairs)
        self.probe_s[pairs] = self.now_s + self.pauses_s(len(pairs))


@native
def _choose_and_book(
    free: Floats,
    hops: Ints,
    default: Ints,
    pairs: Ints,
    own: Floats,
    paths: Ints,
    known: Bools,
) -> None:
    """Choose each flow's path and book its bandwidth; `known` marks flows with probe results."""
    for flow in range(len(pairs)):
        pair = pairs[flow]
        known[flow] = default[pair] != NONE and not numpy.isnan(free[pair, 0])
        if known[flow]:
            # A path with a failed node or cable has 0 hops in the table.
            ways = free[pair], hops[pair], hops[pair]
            paths[flow] = booked(*ways, paths[flow], own[flow])
        else:
            paths[flow] = default[pair]


ADAPTING = {"mp-aware": TrafficAwareFlows}
