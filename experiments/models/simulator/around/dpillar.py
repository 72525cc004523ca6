"""DPillarMP's paths around failures, as servers that probe them choose: the shortest working path.

Among paths of equal length it is the one with the lowest number, clockwise before
counter-clockwise. A flow of `mp-random` takes a random working path, which is the simulator's
default.
"""

from __future__ import annotations

import numpy
from numpy.random import Generator

from pillarbox.experiments.models.arrays import Bools, Ints
from pillarbox.experiments.models.fluid.directed_links import Routes
from pillarbox.experiments.models.simulator.around import Around, Find
from pillarbox.experiments.models.simulator.failure_sets import surviving_routes
from pillarbox.experiments.models.simulator.paths import (
    concatenated_routes,
    routes,
    routing_by_name,
)
from pillarbox.topos.dpillar import DPillar


def _shortest_path_routing(name: str) -> Around:
    def around(dpillar: DPillar, works: Bools, _: Generator) -> Find:
        numbers = range(routing_by_name(dpillar, name).choices(dpillar))

        def find(sources: Ints, destinations: Ints) -> Routes:
            tried = [
                surviving_routes(routes(dpillar, name, sources, destinations, number), works)
                for number in numbers
            ]
            return _shortest_routes(tried)

        return find

    return around


def _shortest_routes(tried: list[Routes]) -> Routes:
    """Return each flow's candidate route with the fewest links, not empty if any is not."""
    counts = numpy.array([numpy.diff(one.starts) for one in tried])
    chosen = numpy.where(counts > 0, counts, counts.max(initial=0) + 1).argmin(axis=0)
    flows = numpy.arange(counts.shape[1])
    return concatenated_routes(tried).rows(chosen * len(flows) + flows)


AROUND = {name: _shortest_path_routing(name) for name in ("mp", "mp-ccw", "mp-both")}
