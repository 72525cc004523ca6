"""The one way through the two-level tree, for arrays of flows."""

from __future__ import annotations

import numpy

from experiments.analysis.fluid.links import Routes, link_at
from experiments.analysis.simulator.hops import Ints
from experiments.analysis.simulator.paths import Compiled
from topos.tree import Tree


def _routes(tree: Tree, sources: Ints, destinations: Ints, _choice: Ints) -> Routes:
    near, far = sources // tree.n, destinations // tree.n
    leaf, root = tree.servers + far, numpy.broadcast_to(tree.servers + tree.m, far.shape)
    links = numpy.stack(
        [
            link_at(tree, sources, 0),
            link_at(tree, tree.servers + near, tree.n),
            link_at(tree, root, far),
            link_at(tree, leaf, destinations % tree.n),
        ],
        axis=1,
    )
    taken = numpy.ones(links.shape, bool)
    taken[:, 1:3] = (near != far)[:, None]
    starts = numpy.concatenate([[0], numpy.cumsum(taken.sum(axis=1))])
    return Routes(starts, links[taken])


ALGORITHMS = {"bridge": Compiled(routes=_routes)}
