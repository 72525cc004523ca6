"""Rounds of probes over several paths to one destination, and the choice among them.

The source sends a probe along every path. Each relay lowers the probe's available bandwidth to
that of its own ports; the destination sends it back. What is not answered in time has failed
(Guo 2009, section 4.2; Liao 2012, section 4.5). How a probe travels is the network's business.

What is known of a path, and how that changes; `*` is a path whose probe is on its way, `silent` one
that has failed for no other reason than that its answer did not come in time::

    state      begin      answer    fail    give up
    untried    untried*   untried   failed  untried
    untried*   untried*   working   failed  silent
    working    working*   working   failed  working
    working*   working*   working   failed  silent
    failed     failed*    failed    failed  failed
    failed*    failed*    working   failed  silent
    silent     failed*    working   failed  silent
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Any

from hosts.base.path import Path
from hosts.base.rules import NONE

# Paths whose bandwidth is within this share of the best count as equally good: then the shorter
# one is better (it uses fewer links), and the one in use better than another (no oscillation).
NEARLY_BEST = 0.9


class State(Enum):
    """What is known of a path."""

    UNTRIED = "untried"
    WORKING = "working"
    FAILED = "failed"


@dataclass
class Candidate:
    """A path that a flow could take."""

    path: Path
    state: State = State.UNTRIED
    available_bps: float = 0.0
    waiting: bool = False  # for the answer to a probe of the present round
    silent: bool = False  # has failed for no other reason than that its answer did not come in time
    reserve: bool = False  # used only while no other candidate works


def best(
    candidates: Sequence[Candidate],
    using: int | None,
    own_bps: float = 0.0,
    slack_bps: float = 0.0,
) -> int | None:
    """Return the best of the candidates that work, None where none does.

    Parameters
    ----------
    candidates : sequence of Candidate
        The paths, each with what is known of it.
    using : int or None
        The one in use.
    own_bps : float
        What the flow that asks sends on the path in use: were it elsewhere, that would be free.
    slack_bps : float
        What a hop costs: a longer path takes bandwidth from others on every link, and is to have so
        much more for each. Paths within one such cost of the best count as equally good as well:
        where all are nearly full, what is left is chance, and no reason to move.

    >>> wide, narrow = (Candidate(Path(0, ()), State.WORKING, bps) for bps in (6e8, 4e8))
    >>> best([wide, narrow], using=1), best([wide, narrow], using=1, own_bps=3e8)
    (0, 1)
    """
    chosen = best_of(*measured(candidates), NONE if using is None else using, own_bps, slack_bps)
    return None if chosen == NONE else chosen


def measured(candidates: Sequence[Candidate]) -> tuple[list[float], list[bool], list[int]]:
    """Return the free bandwidth, usability and hops of each path: the inputs of `best_of`.

    A reserve path is usable only while no other path works.
    """
    free = [one.available_bps for one in candidates]
    works = [one.state == State.WORKING for one in candidates]
    if any(working and not one.reserve for working, one in zip(works, candidates, strict=True)):
        works = [
            working and not one.reserve for working, one in zip(works, candidates, strict=True)
        ]
    return free, works, [len(one.path) for one in candidates]


def best_of(free: Any, works: Any, hops: Any, using: int, own: float, slack: float) -> int:
    """Return the number of the best path that works, `NONE` where none does: a rule.

    `free`, `works` and `hops` have an entry for each path. What the flow itself sends, `own`, is
    free on the path in use; a hop costs `slack` (see `best`).
    """
    most = -math.inf
    for path in range(len(free)):
        if works[path]:
            most = max(most, left(free, hops, path, using, own, slack))
    enough = most - slack if slack else NEARLY_BEST * most
    chosen = NONE
    for path in range(len(free)):
        if works[path] and left(free, hops, path, using, own, slack) >= enough:
            shorter = chosen == NONE or hops[path] < hops[chosen]
            if shorter or (hops[path] == hops[chosen] and path == using):
                chosen = path
    return chosen


def left(free: Any, hops: Any, path: int, using: int, own: float, slack: float) -> float:
    """Return what the flow could have on that path, less what its hops cost."""
    available: float = free[path] + (own if path == using else 0.0) - slack * hops[path]
    return available


class Probing:
    """The candidate paths of one flow, or of all flows to one destination.

    >>> paths = [Path(0, ()), Path(1, ())]
    >>> probing = Probing(paths)
    >>> probing.begin(), probing.answer(1, 0, 1e9), probing.answer(1, 1, 5e9), probing.finished
    ([0, 1], True, True, True)
    >>> probing.choose(), probing.current
    (True, 1)
    """

    def __init__(self, paths: Iterable[Path]) -> None:
        self.candidates = [Candidate(path) for path in paths]
        self.current: int | None = 0 if self.candidates else None
        self.round = 0

    @property
    def current_path(self) -> Path | None:
        """The path in use; None when none is known to work."""
        return None if self.current is None else self.candidates[self.current].path

    @property
    def works(self) -> bool:
        """Whether there is a path in use that is known to work."""
        return self.current is not None and self.candidates[self.current].state == State.WORKING

    @property
    def lost(self) -> bool:
        """Whether there is no path in use, or one that has failed for all that is known."""
        return self.current is None or self.candidates[self.current].state == State.FAILED

    @property
    def finished(self) -> bool:
        """Whether every probe of the round was answered or given up."""
        return not any(candidate.waiting for candidate in self.candidates)

    def begin(self, paths: Iterable[Path] | None = None) -> list[int]:
        """Begin a round, with other paths if they are given; return which are to be probed.

        A path that stays a candidate keeps what is known of it; the one in use stays in use.
        """
        if paths is not None:
            known = {candidate.path: candidate for candidate in self.candidates}
            used = self.current_path
            self.candidates = [known.get(path) or Candidate(path) for path in paths]
            places = [i for i, one in enumerate(self.candidates) if one.path == used]
            self.current = places[0] if places else None
        self.round += 1
        for candidate in self.candidates:
            candidate.waiting = True
            candidate.silent = False
        return list(range(len(self.candidates)))

    def add_reserves(self, paths: Iterable[Path]) -> None:
        """Add paths that are used only while no other works; the next round probes them as well."""
        self.candidates += [Candidate(path, reserve=True) for path in paths]

    def add(self, path: Path) -> int:
        """Add a candidate in the middle of a round; return its number, to be probed."""
        self.candidates.append(Candidate(path, waiting=True))
        return len(self.candidates) - 1

    def answer(self, round_: int, index: int, available_bps: float) -> bool:
        """Take in the answer to a probe; False if it answers no probe of this round.

        One that comes late is good news all the same.
        """
        if round_ != self.round or not 0 <= index < len(self.candidates):
            return False
        candidate = self.candidates[index]
        if not (candidate.waiting or candidate.silent):
            return False
        candidate.state = State.WORKING
        candidate.available_bps = available_bps
        candidate.waiting = candidate.silent = False
        return True

    def fail(self, index: int) -> None:
        """Note that a path has failed."""
        one = self.candidates[index]
        one.state, one.waiting, one.silent = State.FAILED, False, False

    def fail_where(self, broken: Callable[[Path], bool]) -> bool:
        """Note the failure of every path for which that holds; tell whether one is in use."""
        for index, candidate in enumerate(self.candidates):
            hoped_for = candidate.silent or candidate.waiting or candidate.state != State.FAILED
            if hoped_for and broken(candidate.path):
                self.fail(index)
        return self.current is not None and self._state(self.current) == State.FAILED

    def give_up(self) -> list[int]:
        """End the round: what was not answered has failed. Return those paths."""
        silent = [i for i, candidate in enumerate(self.candidates) if candidate.waiting]
        for index in silent:
            self.fail(index)
            self.candidates[index].silent = True
        return silent

    def choose(self) -> bool:
        """Use the best of the paths that work; tell whether that is another than before.

        Without any that works, one that was never tried is used. Without that, one from which only
        no answer came: servers may be too busy to answer in time. Without that, none.
        """
        before = self.current
        self.current = best(self.candidates, before)
        if self.current is None:
            untried = (i for i, one in enumerate(self.candidates) if one.state == State.UNTRIED)
            self.current = next(untried, None)
        # Departs from the papers (Guo 2009, 4.2; Liao 2012, 4.5.1): what was not answered has
        # failed there, and a network that is only busy would be without a path.
        if self.current is None:
            silent = [i for i, one in enumerate(self.candidates) if one.silent]
            self.current = before if before in silent else next(iter(silent), None)
        return self.current != before

    def _state(self, index: int) -> State:
        return self.candidates[index].state


class Pace:
    """When a server may begin its next round of probes: on average one in so much time.

    A few may follow one another closely, and those that cannot wait (`urgent`) do not, but the
    others then wait longer. A server waits until a random moment of its turn: servers whose
    flows began together would otherwise all probe together, and be late for everything else.

    Where rounds are costly (see `Timers.probe_spacing_s`) fewer may follow one another: together
    they are worth `BURST_S` of the pace. All servers may begin their bursts at one moment.

    >>> pace = Pace(spacing_s=0.25, now=0.0, random=Random(1))
    >>> [int(4 * pace.turn(0.0)) for _ in range(10)]
    [0, 0, 0, 0, 0, 0, 0, 0, 1, 2]
    >>> pace = Pace(spacing_s=1.0, now=0.0, random=Random(1))
    >>> [int(pace.turn(0.0)) for _ in range(4)]
    [0, 0, 1, 2]
    >>> pace.turn(0.0, urgent=True), int(pace.turn(0.0))
    (0.0, 4)
    """

    TOGETHER, BURST_S = 8, 2.0

    def __init__(self, spacing_s: float, now: float, random: Random) -> None:
        self.spacing_s = spacing_s
        self._together = self.TOGETHER
        if spacing_s * self.TOGETHER > self.BURST_S:
            self._together = max(1, int(self.BURST_S / spacing_s))
        self._random = random
        self._next_s = now  # when the next one is due, had they all come at the pace

    def turn(self, now: float, *, urgent: bool = False) -> float:
        """Take a turn; return when it is."""
        due = self._next_s
        self._next_s = max(now, due) + self.spacing_s
        waits_until = due - (self._together - 1) * self.spacing_s
        if urgent or waits_until <= now:
            return now
        return waits_until + self._random.random() * self.spacing_s
