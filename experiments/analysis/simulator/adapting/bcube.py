"""BSR over time (hosts/bcube/selection.py and bsr.py): every flow is probed for itself.

A flow begins on its default path, a shortest one. When the answers are in, it takes the path with
the most bandwidth left, where a longer one, and one that is not in use, has to have more; what the
flow itself sends counts as left on its own.
"""

from __future__ import annotations

from typing import Any

import numpy
from numpy.random import Generator

from experiments.analysis.simulator.adapting import Times
from experiments.analysis.simulator.around.bcube import path_sets
from experiments.analysis.simulator.compiled import native
from experiments.analysis.simulator.failures import Bools
from experiments.analysis.simulator.hops import Ints
from experiments.analysis.simulator.probing import PathSets, Probed
from hosts.base.probing import best_of
from hosts.base.rules import NONE
from hosts.bcube.bsr import HOP_COST, MOVE_GAIN
from topos.bcube import BCube


class Bsr(Probed):
    """Flows of BSR; see `Probed`."""

    def __init__(self, *network: Any, **options: Any) -> None:
        super().__init__(*network, **options)
        self._rate = numpy.zeros(len(self.path))  # of each flow, when it was probed last

    def choose(self) -> None:
        """Let flows begin, and choose for those whose answers are in."""
        begin = numpy.flatnonzero((self.path == NONE) & (self.starts_s <= self.now_s))
        self.move(begin, self.default[begin])
        flows, free = self.answers
        ways = self.hops[flows], self.path[flows], self._rate[flows] + MOVE_GAIN
        self.move(flows, _best_of_each(free, *ways, HOP_COST))
        self.answers = flows[:0], free[:0]

    def ask(self) -> None:
        """Probe all paths of the flows whose time has come."""
        flows = self.due()
        self._rate[flows] = self.rates(flows)
        self.answers = flows, self.measured(flows)
        self.probe_s[flows] = self.now_s + self.pauses_s(len(flows))


@native
def _best_of_each(free: Any, hops: Any, using: Any, own: Any, slack: float) -> Any:
    """Return the number of the best path of each flow."""
    found = numpy.empty(len(free), numpy.int64)
    for flow in range(len(free)):
        # A path that does not work has no hops.
        ways = free[flow], hops[flow], hops[flow]
        found[flow] = best_of(*ways, using[flow], own[flow], slack)
    return found


def _bsr(
    bcube: BCube,
    sources: Ints,
    destinations: Ints,
    random: Generator,
    works: Bools | None,
    times: Times,
) -> Bsr:
    return Bsr(
        bcube, PathSets(bcube.k + 1, path_sets(bcube, works)), sources, destinations, random, times
    )


ADAPTING = {"bsr": _bsr}
