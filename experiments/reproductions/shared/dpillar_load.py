"""How many flows each server of a DPillar forwards: what Liao 2012, Fig. 13 and 14 share.

The two ends of a flow do not forward it. With MP, each flow takes a random one of its n/2 clockwise
paths.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy

from experiments.analysis.simulator.flows import all_to_all
from experiments.analysis.simulator.hops import Ints
from experiments.analysis.simulator.paths import choose
from experiments.analysis.simulator.walks import flows_forwarded
from experiments.reproductions.shared import dpillar_paths

ROUTINGS = {"SP": "sp-cw", "MP": "mp"}
# A share of the servers that send to one another; or half of them, each to one of the others.
HALVES = 0.0

NOTE = (
    "Sources and destinations do not count as forwarding; with MP a flow takes a random one of its "
    "clockwise paths."
)


class Task(NamedTuple):
    """One run."""

    network: str
    routing: str
    share: float  # of the servers, which send to one another; or HALVES
    seed: int
    run: int


def measure(task: Task) -> list[int]:
    """Return how many servers forward 0, 1, 2, ... flows."""
    dpillar = dpillar_paths.network(task.network)
    random = numpy.random.default_rng([task.seed, task.run])
    order = random.permutation(dpillar.servers)
    ends = all_to_all(order[: round(task.share * len(order))])
    if task.share == HALVES:
        ends = _one_to_one(order, random)
    choices = choose(dpillar, task.routing).choices(dpillar)
    choice = random.integers(0, choices, len(ends[0]))
    found: list[int] = numpy.bincount(
        flows_forwarded(dpillar, task.routing, *ends, choice)
    ).tolist()
    return found


def mean(servers: list[int]) -> float:
    """Return how many flows a server forwards, given how many forward 0, 1, 2, ...

    >>> mean([1, 0, 3])
    1.5
    """
    return float(numpy.dot(servers, numpy.arange(len(servers))) / sum(servers))


def _one_to_one(order: Ints, random: numpy.random.Generator) -> tuple[Ints, Ints]:
    """Return a flow from each of one half of the servers to a random one of the other half."""
    half = len(order) // 2
    return order[:half], order[half:][random.integers(0, len(order) - half, half)]
