"""DFR around failures, decided hop by hop (experiments/models/simulator/compiled_dfr.py)."""

from __future__ import annotations

from numpy.random import Generator

from pillarbox.experiments.models.arrays import Bools, Ints
from pillarbox.experiments.models.fluid.directed_links import Routes
from pillarbox.experiments.models.simulator import compiled_dfr
from pillarbox.experiments.models.simulator.around import Find
from pillarbox.experiments.models.simulator.hops import hops_of_flows, routes_of_hops
from pillarbox.hosts.dcell.dfr import TTL
from pillarbox.topos.dcell import DCell


def _dfr(dcell: DCell, works: Bools, _random: Generator) -> Find:
    fill = compiled_dfr.fill(dcell, works)

    def find(sources: Ints, destinations: Ints) -> Routes:
        hops = hops_of_flows(fill, TTL, sources, destinations)
        return routes_of_hops(dcell, sources, hops, [0, *[None] * dcell.k])

    return find


AROUND = {"dfr": _dfr}
