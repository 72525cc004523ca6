"""BSR over time (hosts/bcube/selection.py, bsr.py and pairs.py): every flow has its own probes.

A flow starts on its default path, a shortest one. When the answers of its probes arrive, it takes
the path with the most available bandwidth, where a longer path, and a path not in use, must have a
margin; the flow's own rate counts as available on its current path. Large flows of a pair probe
once ahead of their time, one flow of the pair in each step.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy
from numpy.random import Generator

from experiments.models.simulator.adapting import ProbeTimes
from experiments.models.simulator.adapting.probing_flows import CandidatePaths, ProbingFlows
from experiments.models.simulator.around.bcube import path_sets
from experiments.models.simulator.compiled import native
from experiments.models.simulator.failure_sets import Bools
from experiments.models.simulator.hops import Ints
from hosts.base.probing import best_of
from hosts.base.rules import NONE
from hosts.bcube.bsr import HOP_COST, MOVE_GAIN
from hosts.bcube.rules import LATELY_S, crowded, equal_share, is_large
from topos.bcube import BCube


class BsrFlows(ProbingFlows):
    """BSR flows that probe their paths and move to the best (see `ProbingFlows`)."""

    def __init__(self, *network: Any, **options: Any) -> None:
        super().__init__(*network, **options)
        flows = len(self.path)
        ends = self.sources.astype(numpy.int64) * self.topology.servers + self.destinations
        different, pair = numpy.unique(ends, return_inverse=True)
        beside = numpy.zeros((len(different), self.sets.size), numpy.int32)
        self._pairs = FlowPairs(pair, self.path, numpy.full(flows, -numpy.inf), beside)
        self._rate = numpy.zeros(flows)  # rate of each flow at its last probe
        self._looked_ahead = numpy.zeros(flows, bool)
        self._gain = numpy.full(flows, MOVE_GAIN)  # minimum gain in bandwidth for a change of path

    def choose(self) -> None:
        """Start BSR flows, and choose paths for flows whose probe responses have arrived."""
        begin = numpy.flatnonzero((self.path == NONE) & (self.starts_s <= self.now_s))
        self.move(begin, self.default[begin])
        flows, free = self.answers
        known = flows, free, self.hops, self._rate, self._gain, self._pairs, self.now_s
        self.move(flows, _chosen_paths(*known))
        self.answers = flows[:0], free[:0]

    def ask(self) -> None:
        """Probe all paths of the BSR flows that are due, and of flows that probe early."""
        due = self.due()
        asking = numpy.zeros(len(self.path), bool)
        asking[due] = True
        self._gain[due] = MOVE_GAIN
        done = self._looked_ahead, asking, self._gain
        _probe_early(self.sent, self.since_s, self.hops, *done, self._pairs, self.now_s)
        flows = numpy.flatnonzero(asking)
        self._rate[flows] = self.rates(flows)
        self.answers = flows, self.measured(flows)
        self.probe_s[flows] = self.now_s + self.pauses_s(len(flows))


class FlowPairs(NamedTuple):
    """Pairs of servers with their large flows, as in `hosts.bcube.pairs`."""

    pair: Any  # pair of servers of each flow
    path: Any  # current path of each flow
    large_s: Any  # simulated time at which each flow was last large
    beside: Any  # number of large flows by pair and path


@native
def _chosen_paths(
    flows: Any, free: Any, hops: Any, rate: Any, gain: Any, pairs: FlowPairs, now_s: float
) -> Any:
    """Return the number of the best path of each flow; flows choose one after the other."""
    _count_large(pairs, now_s)
    found = numpy.empty(len(flows), numpy.int64)
    for i in range(len(flows)):
        flow = flows[i]
        beside, using = pairs.beside[pairs.pair[flow]], pairs.path[flow]
        large = _recently_large(pairs, flow, now_s)
        if large:
            beside[using] -= 1
        for path in range(len(beside)):
            own = rate[flow] if path == using else 0.0
            free[i, path] = min(free[i, path], equal_share(1.0, beside[path], own))
        # A path with a failed node or cable has 0 hops in the table.
        ways = free[i], hops[flow], hops[flow]
        found[i] = best_of(*ways, using, rate[flow] + gain[flow], HOP_COST)
        if large:
            beside[found[i]] += 1
    return found


@native
def _probe_early(
    sent: Any,
    since_s: Any,
    hops: Any,
    looked: Any,
    asking: Any,
    gain: Any,
    pairs: FlowPairs,
    now_s: float,
) -> None:
    """Record large flows; let one flow of each pair probe early if others crowd its path."""
    probing = numpy.zeros(len(pairs.beside), numpy.bool_)
    large = numpy.zeros(len(sent), numpy.bool_)
    for flow in range(len(sent)):
        large[flow] = is_large(sent[flow], 1.0, now_s - since_s[flow])
        if large[flow]:
            pairs.large_s[flow] = now_s
        if asking[flow] and _recently_large(pairs, flow, now_s):
            probing[pairs.pair[flow]] = True
    _count_large(pairs, now_s)
    for flow in range(len(sent)):
        pair = pairs.pair[flow]
        if not large[flow] or looked[flow] or asking[flow] or probing[pair]:
            continue
        beside = pairs.beside[pair]
        if crowded(beside, hops[flow], beside[pairs.path[flow]] - 1):
            looked[flow] = asking[flow] = probing[pair] = True
            gain[flow] = (
                0.0  # no minimum gain for a move, since no other flow of the pair moves now
            )


def _count_large(pairs: FlowPairs, now_s: float) -> None:
    pairs.beside[:] = 0
    for flow in range(len(pairs.pair)):
        if _recently_large(pairs, flow, now_s):
            pairs.beside[pairs.pair[flow], pairs.path[flow]] += 1


def _recently_large(pairs: FlowPairs, flow: int, now_s: float) -> bool:
    return now_s - pairs.large_s[flow] < LATELY_S


def _bsr(
    bcube: BCube,
    sources: Ints,
    destinations: Ints,
    random: Generator,
    works: Bools | None,
    times: ProbeTimes,
) -> BsrFlows:
    return BsrFlows(
        bcube,
        CandidatePaths(bcube.k + 1, path_sets(bcube, works)),
        sources,
        destinations,
        random,
        times,
    )


ADAPTING = {"bsr": _bsr}
