"""Where the time of a training iteration went: computation, communication and waiting.

The time of each rank has three parts, which add up to the iteration's:

- computation: the rank computes, on its accelerator or CPU;
- exposed communication: the rank does not compute, and data is on its way from or to it;
- waiting: neither, since a step of another rank has to end first.

The rank that another one waits for is found on the chain of steps that delayed it: each step begins
when the latest of its dependencies, or the previous step of its connection or processor, has ended.
The chain of the iteration's last step is the *critical path*.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import NamedTuple, TypeVar

from pillarbox.experiments.models.arrays import Floats
from pillarbox.experiments.models.workloads.training.iteration_plan import IterationPlan
from pillarbox.topos.base.errors import require

Interval = tuple[float, float]
Key = TypeVar("Key", int, str)


class Moments(NamedTuple):
    """Time at which a step began, and at which it ended, in seconds."""

    begin_s: float
    end_s: float


class PathPart(NamedTuple):
    """A step on the critical path, and the time by which it extends the path."""

    step: int
    rank: int  # rank that computes or sends
    label: str
    from_s: float
    until_s: float


@dataclass(frozen=True)
class RankTime:
    """Parts of a rank's time in a training iteration, in seconds."""

    rank: int
    compute_s: float
    exposed_s: float
    waiting_s: float
    waits_for: tuple[tuple[int, float], ...]  # ranks waited for, and seconds; the longest first


@dataclass(frozen=True)
class IterationTimes:
    """Time of a training iteration, its parts on each rank, and its critical path."""

    total_s: float
    ranks: tuple[RankTime, ...]
    path: tuple[PathPart, ...]

    def mean_s(self, part: str) -> float:
        """Return the mean over ranks of a part of the time, such as ``compute_s``."""
        return float(sum(getattr(one, part) for one in self.ranks)) / len(self.ranks)

    def path_by_label(self) -> dict[str, float]:
        """Return the seconds of the critical path by class of its steps, the longest first."""
        found: dict[str, float] = defaultdict(float)
        for part in self.path:
            found[part.label] += part.until_s - part.from_s
        return _longest_first(found)


def moments_of_ends(plan: IterationPlan, ends_s: Floats) -> list[Moments]:
    """Return the begin and end of each step, given the ends that the fluid model computes.

    Raises PillarboxError if a step never ends, since its servers have no path.
    """
    missing = [number for number, end_s in enumerate(ends_s) if end_s != end_s]
    require(
        not missing,
        "the training iteration does not end: the network has no path for a transfer",
    )
    ends = [float(end_s) for end_s in ends_s]
    begins = [
        max((ends[other] for other in one.after), default=0.0) for one in plan.graph.transfers
    ]
    for queue in _queues(plan, begins, ends):
        for before, number in pairwise(queue):
            begins[number] = max(begins[number], ends[before])
    return [Moments(*both) for both in zip(begins, ends, strict=True)]


def _queues(
    plan: IterationPlan, begins: Sequence[float], ends: Sequence[float]
) -> Iterator[list[int]]:
    """Yield the steps of each connection and processor, in the order in which they ran."""
    queues: dict[int, list[int]] = defaultdict(list)
    for number, queue in enumerate(plan.flow_of):
        if queue >= 0:
            queues[queue].append(number)
    for numbers in queues.values():
        yield sorted(numbers, key=lambda number: (ends[number], begins[number], number))


class _Chains:
    """Chains of steps that delayed each other, from a step back to the iteration's begin."""

    def __init__(self, plan: IterationPlan, moments: Sequence[Moments]) -> None:
        self._plan, self._moments = plan, moments
        self._previous: dict[int, int] = {}
        begins, ends = zip(*moments, strict=True)
        for queue in _queues(plan, begins, ends):
            self._previous |= dict(zip(queue[1:], queue, strict=False))

    def parts(self, step: int | None) -> Iterator[PathPart]:
        """Yield the parts of the chain that ends with a step, the last part first."""
        while step is not None:
            one = self._plan.graph.transfers[step]
            needed: Iterable[int] = one.after
            if step in self._previous:
                needed = chain(needed, (self._previous[step],))
            before = max(needed, key=lambda other: self._moments[other].end_s, default=None)
            until_s = self._moments[step].end_s
            from_s = 0.0 if before is None else min(self._moments[before].end_s, until_s)
            label = self._plan.labels[step]
            yield PathPart(step, one.sender, label, from_s, until_s)
            step = before


def iteration_times(
    plan: IterationPlan, moments: Sequence[Moments], of_ranks: range | None = None
) -> IterationTimes:
    """Return the time of a training iteration and its parts, given the times of all steps.

    `of_ranks` are the ranks of one of several jobs, whose iteration ends with its last step; by
    default all ranks.
    """
    chains = _Chains(plan, moments)
    of_ranks = range(plan.graph.ranks) if of_ranks is None else of_ranks
    steps = [step for step, one in enumerate(plan.graph.transfers) if one.sender in of_ranks]
    last = max(steps, key=lambda step: (moments[step].end_s, step))
    total_s = moments[last].end_s
    computing, moving = _intervals_of_ranks(plan, moments)
    ranks = []
    for rank in of_ranks:
        compute = _union(computing[rank])
        busy = _union([*computing[rank], *moving[rank]])
        compute_s, busy_s = _length(compute), _length(busy)
        waits = _waits_for(plan, moments, chains, rank, _gaps(busy, total_s), last)
        ranks.append(RankTime(rank, compute_s, busy_s - compute_s, total_s - busy_s, waits))
    path = [part for part in chains.parts(last) if part.until_s > part.from_s]
    return IterationTimes(total_s, tuple(ranks), tuple(reversed(path)))


def _intervals_of_ranks(
    plan: IterationPlan, moments: Sequence[Moments]
) -> tuple[list[list[Interval]], list[list[Interval]]]:
    """Return the times in which each rank computes, and in which its data is on its way."""
    computing: list[list[Interval]] = [[] for _ in range(plan.graph.ranks)]
    moving: list[list[Interval]] = [[] for _ in range(plan.graph.ranks)]
    for one, moment in zip(plan.graph.transfers, moments, strict=True):
        if one.sender != one.receiver:
            moving[one.sender].append(moment)
            moving[one.receiver].append(moment)
        elif one.lasts_s:
            computing[one.sender].append(moment)
    return computing, moving


def _waits_for(
    plan: IterationPlan,
    moments: Sequence[Moments],
    chains: _Chains,
    rank: int,
    gaps: Sequence[Interval],
    last: int,
) -> tuple[tuple[int, float], ...]:
    """Return the ranks whose steps a rank waits for in its gaps, and the seconds of each."""
    own = sorted(
        (moment.begin_s, step)
        for step, (one, moment) in enumerate(zip(plan.graph.transfers, moments, strict=True))
        if rank in (one.sender, one.receiver) and (one.lasts_s or one.sender != one.receiver)
    )
    found: dict[int, float] = defaultdict(float)
    for begin_s, end_s in gaps:
        at = bisect_left(own, (end_s, -1))
        for part in chains.parts(own[at][1] if at < len(own) else last):
            if part.until_s <= begin_s:
                break
            overlap_s = min(part.until_s, end_s) - max(part.from_s, begin_s)
            if overlap_s > 0:
                found[part.rank] += overlap_s
    return tuple(_longest_first(found).items())


def _longest_first(times_s: dict[Key, float]) -> dict[Key, float]:
    return dict(sorted(times_s.items(), key=lambda item: (-item[1], item[0])))


def _union(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the union of intervals as separate intervals, in order of time.

    >>> _union([(0.0, 2.0), (3.0, 4.0), (1.0, 2.5)])
    [(0.0, 2.5), (3.0, 4.0)]
    """
    found: list[Interval] = []
    for begin_s, end_s in sorted(intervals):
        if found and begin_s <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end_s))
        else:
            found.append((begin_s, end_s))
    return found


def _gaps(intervals: Sequence[Interval], total_s: float) -> list[Interval]:
    """Return the intervals from 0 to `total_s` that separate intervals leave free.

    >>> _gaps([(0.0, 2.5), (3.0, 4.0)], 5.0)
    [(2.5, 3.0), (4.0, 5.0)]
    """
    edges = [0.0, *chain.from_iterable(intervals), total_s]
    pairs = zip(edges[::2], edges[1::2], strict=True)
    return [(begin_s, end_s) for begin_s, end_s in pairs if end_s > begin_s]


def _length(intervals: Iterable[Interval]) -> float:
    return sum(end_s - begin_s for begin_s, end_s in intervals)


def node_times_us(
    plan: IterationPlan, moments: Sequence[Moments]
) -> dict[tuple[int, int], tuple[int, int]]:
    """Return start and duration in microseconds of each node, by rank and the node's number."""
    found = {}
    for task in plan.tasks:
        begin_s, end_s = moments[task.first].begin_s, moments[task.last].end_s
        times_us = round(begin_s * 1e6), round((end_s - begin_s) * 1e6)
        found[task.place.rank, plan.trace.node(task.place).number] = times_us
    return found
