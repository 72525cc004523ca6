"""Large all-reduce operations as few phases of simultaneous transfers.

A ring of a thousand ranks has two million transfers, but they repeat one pattern a thousand times.
If all ranks are in the same step, the phases describe the operation completely.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from pillarbox.experiments.models.workloads.collectives.schedules import DigitSchedule


class Phase(NamedTuple):
    """Simultaneous transfers of an all-reduce, repeated `times` times one after the other."""

    pairs: tuple[tuple[int, int], ...]  # sending and receiving rank of each transfer
    share: float  # size of each transfer as a share of a rank's data
    times: int


def of_ring(ranks: int) -> list[Phase]:
    """Return the transfer phases of an all-reduce around a ring of ranks.

    >>> of_ring(3)
    [Phase(pairs=((0, 1), (1, 2), (2, 0)), share=0.3333333333333333, times=4)]
    """
    pairs = tuple((rank, (rank + 1) % ranks) for rank in range(ranks))
    return [Phase(pairs, 1 / ranks, 2 * (ranks - 1))]


def of_digits(threads: Sequence[DigitSchedule]) -> list[Phase]:
    """Return the phases of an all-reduce in threads that exchange by one address digit per step.

    >>> from pillarbox.experiments.models.workloads.collectives.schedules import bml_threads
    >>> [(len(phase.pairs), phase.share, phase.times) for phase in of_digits(bml_threads([2, 2]))]
    [(8, 0.25, 2), (8, 0.125, 2)]
    """
    depths = len(threads[0].order)
    share, found = 1 / len(threads), []
    for depth in range(depths):
        radices = {thread.radices[thread.order[depth]] for thread in threads}
        assert len(radices) == 1, "threads go together where all digits have as many values"
        share /= radices.pop()
        pairs = chain.from_iterable(thread.pairs(depth) for thread in threads)
        # two times: in reduce-scatter and in all-gather
        found.append(Phase(tuple(pairs), share, 2))
    return found
