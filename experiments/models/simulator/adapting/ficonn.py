"""FiConn's traffic-aware routing: `analysis.simulator.tar`, in which each probe is a step."""

from __future__ import annotations

from functools import partial

from numpy.random import Generator

from experiments.models.simulator.adapting import ProbeTimes
from experiments.models.simulator.compiled_tar import TarFlows
from experiments.models.simulator.failure_sets import Bools
from experiments.models.simulator.hops import Ints
from topos.ficonn import FiConn


def _tar(
    ficonn: FiConn,
    sources: Ints,
    destinations: Ints,
    random: Generator,
    works: Bools | None,
    _times: ProbeTimes,
    *,
    far_side: bool = False,
) -> TarFlows:
    return TarFlows(ficonn, sources, destinations, random, works, far_side=far_side)


ADAPTING = {"tar": _tar, "tar-far-side": partial(_tar, far_side=True)}
