"""BSR over time (hosts/bcube/selection.py, bsr.py and pairs.py): every flow has its own probes.

A flow starts on its default path, a shortest one. When the answers of its probes arrive, it takes
the path with the most available bandwidth, where a longer path, and a path not in use, must have a
margin; the flow's own rate counts as available on its current path. Large flows of a pair probe
once ahead of their time in each interval, one flow of the pair in each step.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy

from pillarbox.experiments.models.arrays import Bools, Floats, Ints
from pillarbox.experiments.models.simulator.adapting.probing_flows import (
    CandidatePaths,
    ProbingFlows,
)
from pillarbox.experiments.models.simulator.around.bcube import path_sets
from pillarbox.experiments.models.simulator.compiled import native
from pillarbox.hosts.base.probing import best_of
from pillarbox.hosts.base.rules import NONE
from pillarbox.hosts.bcube.bsr import HOP_COST, MOVE_GAIN
from pillarbox.hosts.bcube.rules import LATELY_S, crowded, equal_share, is_large
from pillarbox.topos.bcube import BCube


class BsrFlows(ProbingFlows):
    """BSR flows that probe their paths and move to the best (see `ProbingFlows`)."""

    def __init__(self, *network: Any) -> None:
        super().__init__(*network)
        flows, slowest = len(self.path), float(min(self.topology.factors.rates, default=1))
        ends = self.sources.astype(numpy.int64) * self.topology.servers + self.destinations
        different, pair = numpy.unique(ends, return_inverse=True)
        beside = numpy.zeros((len(different), self.sets.size), numpy.int32)
        self._state = BsrState(
            pair,
            self.path,
            self.hops,
            large_s=numpy.full(flows, -numpy.inf),
            beside=beside,
            rate=numpy.zeros(flows),
            gain=numpy.full(flows, MOVE_GAIN * slowest),
            looked_ahead=numpy.zeros(flows, bool),
            path_rates=self.path_rates,
            slowest=slowest,
        )

    def candidate_paths(self, topology: BCube, works: Bools | None) -> CandidatePaths:
        """Return BSR's path sets."""
        return CandidatePaths(topology.ports, path_sets(topology, works))

    def choose(self) -> None:
        """Start BSR flows, and choose paths for flows whose probe responses have arrived."""
        begin = numpy.flatnonzero((self.path == NONE) & (self.starts_s <= self.now_s))
        self.move(begin, self.default[begin])
        flows, free = self.answers
        self.move(flows, _chosen_paths(self._state, flows, free, self.now_s))
        self.answers = flows[:0], free[:0]

    def ask(self) -> None:
        """Probe all paths of the BSR flows that are due, and of flows that probe early."""
        due = self.due()
        asking = numpy.zeros(len(self.path), bool)
        asking[due] = True
        self._state.gain[due] = MOVE_GAIN * self._state.slowest
        self._state.looked_ahead[due] = False
        _probe_early(self._state, self.sent, self.since_s, asking, self.now_s)
        flows = numpy.flatnonzero(asking)
        self._state.rate[flows] = self.rates(flows)
        self.answers = flows, self.measured(flows)
        self.probe_s[flows] = self.now_s + self.pauses_s(len(flows))


class BsrState(NamedTuple):
    """State of all flows, and of pairs of servers with large flows as in `hosts/bcube/pairs.py`."""

    pair: Ints  # pair of servers of each flow
    path: Ints  # current path of each flow
    hops: Ints  # number of hops by flow and path; 0 for a path with a failed node or cable
    large_s: Floats  # simulated time at which each flow was last large
    beside: Ints  # number of large flows by pair and path
    rate: Floats  # rate of each flow at its last probe
    gain: Floats  # minimum gain in bandwidth for a change of each flow's path
    looked_ahead: Bools  # whether each flow has probed early in its interval
    path_rates: Floats  # rate of the slowest link by flow and path; one row if links are equal
    slowest: float  # rate of the slowest link


@native
def _chosen_paths(state: BsrState, flows: Ints, free: Floats, now_s: float) -> Ints:
    """Return the number of the best path of each flow; flows choose one after the other."""
    _count_large(state, now_s)
    found = numpy.empty(len(flows), numpy.int64)
    cost = HOP_COST * state.slowest
    for i in range(len(flows)):
        flow = flows[i]
        beside, using = state.beside[state.pair[flow]], state.path[flow]
        rates = state.path_rates[flow % len(state.path_rates)]
        large = _recently_large(state, flow, now_s)
        if large:
            beside[using] -= 1
        for path in range(len(beside)):
            own = state.rate[flow] if path == using else 0.0
            free[i, path] = min(free[i, path], equal_share(rates[path], beside[path], own))
        ways = free[i], state.hops[flow], state.hops[flow]
        found[i] = best_of(*ways, using, state.rate[flow] + state.gain[flow], cost)
        if large:
            beside[found[i]] += 1
    return found


@native
def _probe_early(
    state: BsrState, sent: Floats, since_s: Floats, asking: Bools, now_s: float
) -> None:
    """Record large flows; let one flow of each pair probe early if others crowd its path."""
    probing = numpy.zeros(len(state.beside), numpy.bool_)
    large = numpy.zeros(len(sent), numpy.bool_)
    for flow in range(len(sent)):
        # A flow that has not started has no path, and has sent nothing.
        rate = state.path_rates[flow % len(state.path_rates), max(0, state.path[flow])]
        large[flow] = is_large(sent[flow], rate, now_s - since_s[flow])
        if large[flow]:
            state.large_s[flow] = now_s
        if asking[flow] and _recently_large(state, flow, now_s):
            probing[state.pair[flow]] = True
    _count_large(state, now_s)
    for flow in range(len(sent)):
        pair = state.pair[flow]
        if not large[flow] or state.looked_ahead[flow] or asking[flow] or probing[pair]:
            continue
        beside = state.beside[pair]
        if crowded(beside, state.hops[flow], beside[state.path[flow]] - 1):
            state.looked_ahead[flow] = asking[flow] = probing[pair] = True
            # no minimum gain for a move, since no other flow of the pair moves now
            state.gain[flow] = 0.0


def _count_large(state: BsrState, now_s: float) -> None:
    state.beside[:] = 0
    for flow in range(len(state.pair)):
        if _recently_large(state, flow, now_s):
            state.beside[state.pair[flow], state.path[flow]] += 1


def _recently_large(state: BsrState, flow: int, now_s: float) -> bool:
    return now_s - state.large_s[flow] < LATELY_S


ADAPTING = {"bsr": BsrFlows}
