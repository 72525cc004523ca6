"""In what order the trials of an experiment are run: in blocks, shuffled within each.

Systems that are measured one after the other "differ" by whatever the machine did meanwhile. So
every block has each system once, in random order, and what is compared stands in the same block,
with the same seed: the same flows, and the same faults at the same moments where the networks have
the same servers and cables.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from experiments.trials.plans.experiment import Experiment, System


class Trial(NamedTuple):
    """One system, once."""

    number: int
    system: System
    repeat: int
    seed: int


def blocks(experiment: Experiment) -> Iterator[list[Trial]]:
    """Yield block after block of trials, each one repeat of every system; as many as may be."""
    number = 0
    for repeat in range(most_repeats(experiment)):
        draw = Random(f"{experiment.seed} {repeat}")
        seed = draw.getrandbits(31)
        systems = draw.sample(experiment.systems, len(experiment.systems))
        yield [Trial(number + at, system, repeat, seed) for at, system in enumerate(systems)]
        number += len(systems)


def most_repeats(experiment: Experiment) -> int:
    """Return how many blocks there are at most."""
    if experiment.precision is None:
        return experiment.repeats
    return max(experiment.repeats, experiment.most_repeats)
