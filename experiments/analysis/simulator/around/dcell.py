"""DFR around failures, decided hop by hop (experiments/analysis/simulator/dfr.py)."""

from __future__ import annotations

from numpy.random import Generator

from experiments.analysis.fluid.links import Routes
from experiments.analysis.simulator import dfr
from experiments.analysis.simulator.around import Find
from experiments.analysis.simulator.failures import Bools
from experiments.analysis.simulator.hops import Ints, routes_of_hops, walk
from hosts.dcell.dfr import TTL
from topos.dcell import DCell


def _dfr(dcell: DCell, works: Bools, _random: Generator) -> Find:
    fill = dfr.fill(dcell, works)

    def find(sources: Ints, destinations: Ints) -> Routes:
        hops = walk(fill, TTL, sources, destinations)
        return routes_of_hops(dcell, sources, hops, [0, *[None] * dcell.k])

    return find


AROUND = {"dfr": _dfr}
