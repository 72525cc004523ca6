"""FiConn's traffic-aware routing: `experiments.simulator.tar`, in which probes are the steps."""

from __future__ import annotations

from numpy.random import Generator

from experiments.simulator.adapting import Times
from experiments.simulator.failures import Bools
from experiments.simulator.hops import Ints
from experiments.simulator.tar import Tar
from topos.ficonn import FiConn


def _tar(
    ficonn: FiConn,
    sources: Ints,
    destinations: Ints,
    random: Generator,
    works: Bools | None,
    _times: Times,
) -> Tar:
    return Tar(ficonn, sources, destinations, random, works)


ADAPTING = {"tar": _tar}
