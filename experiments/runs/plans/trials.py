"""Order of an experiment's trials: blocks of all systems, shuffled within each block.

Systems that are measured one after another differ by the machine's state at each time. So every
block has each system once, in random order, and systems are compared within a block. All trials of
a block have the same seed: the same flows, and the same faults at the same times where the networks
have the same servers and cables.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from pillarbox.experiments.runs.plans.experiment import Experiment, System


class Trial(NamedTuple):
    """A trial: one run of one system, with its number, repeat (block) and seed."""

    number: int
    system: System
    repeat: int
    seed: int


def blocks(experiment: Experiment) -> Iterator[list[Trial]]:
    """Yield blocks of trials, up to the maximum number of repeats; a block has every system."""
    number = 0
    for repeat in range(most_repeats(experiment)):
        draw = Random(f"{experiment.seed} {repeat}")
        seed = draw.getrandbits(31)
        systems = draw.sample(experiment.systems, len(experiment.systems))
        yield [Trial(number + at, system, repeat, seed) for at, system in enumerate(systems)]
        number += len(systems)


def most_repeats(experiment: Experiment) -> int:
    """Return the maximum number of repeats (blocks of trials) of an experiment."""
    if experiment.precision is None:
        return experiment.repeats
    return max(experiment.repeats, experiment.most_repeats)
