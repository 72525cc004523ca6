"""Path probing: rounds of probes over several paths to one destination, and path selection.

The source sends a probe along every path. Each relay lowers the probe's available bandwidth to
that of its own ports; the destination returns the probe. A path without an answer in time has
failed (Guo 2009, section 4.2; Liao 2012, section 4.5). Each network defines how probes travel.

States of a path and their transitions; `*` marks a path with an outstanding probe, `silent` a path
that has failed only because its answer did not arrive in time::

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

from pillarbox.hosts.base.path import Path
from pillarbox.hosts.base.rules import NONE, Values

# Paths with at least this fraction of the best path's bandwidth count as equally good.
# Of equally good paths, the shortest is chosen (fewest links), then the path in use (no
# oscillation).
NEARLY_BEST = 0.9


class PathState(Enum):
    """Probe state of a path."""

    UNTRIED = "untried"
    WORKING = "working"
    FAILED = "failed"


@dataclass
class Candidate:
    """A candidate path of a flow, with its latest probe result."""

    path: Path
    state: PathState = PathState.UNTRIED
    available_bps: float = 0.0
    waiting: bool = False  # True while a probe of the current round is outstanding
    silent: bool = False  # True if the path failed only because of a probe timeout
    reserve: bool = False  # True for a path used only while no other candidate works


def best(
    candidates: Sequence[Candidate],
    using: int | None,
    own_bps: float = 0.0,
    slack_bps: float = 0.0,
) -> int | None:
    """Return the index of the best working path by probe results, None if no path works.

    Parameters
    ----------
    candidates : sequence of Candidate
        Candidate paths with their probe states.
    using : int or None
        Index of the path in use.
    own_bps : float
        Bandwidth of this flow on the path in use; it counts as free there.
    slack_bps : float
        Bandwidth cost per hop: a longer path takes bandwidth from other flows on every link, so it
        must have this much more free bandwidth per additional hop. Paths within one hop's cost of
        the best also count as equally good: if all paths are nearly full, the remaining
        differences are random and do not justify a move.

    >>> wide, narrow = (Candidate(Path(0, ()), PathState.WORKING, bps) for bps in (6e8, 4e8))
    >>> best([wide, narrow], using=1), best([wide, narrow], using=1, own_bps=3e8)
    (0, 1)
    """
    chosen = best_of(*measured(candidates), NONE if using is None else using, own_bps, slack_bps)
    return None if chosen == NONE else chosen


def measured(candidates: Sequence[Candidate]) -> tuple[list[float], list[bool], list[int]]:
    """Return each candidate path's free bandwidth, usability and hops, as inputs of `best_of`.

    A reserve path is usable only while no other path works.
    """
    free = [candidate.available_bps for candidate in candidates]
    works = [candidate.state == PathState.WORKING for candidate in candidates]
    regular = [working and not c.reserve for working, c in zip(works, candidates, strict=True)]
    if any(regular):
        works = regular
    return free, works, [len(candidate.path) for candidate in candidates]


def best_of(
    free: Values[float],
    works: Values[object],
    hops: Values[int],
    using: int,
    own: float,
    slack: float,
) -> int:
    """Return the index of the best working path, `NONE` if no path works (a simulator rule).

    `free`, `works` and `hops` have an entry for each path. The flow's own bandwidth `own` counts as
    free on the path in use; `slack` is the bandwidth cost per hop (see `best`).
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


def left(
    free: Values[float], hops: Values[int], path: int, using: int, own: float, slack: float
) -> float:
    """Return the bandwidth that a flow would have on a path, reduced for each extra hop."""
    return free[path] + (own if path == using else 0.0) - slack * hops[path]


class Probing:
    """Probe rounds over the candidate paths of one flow, or of all flows to one destination.

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
        """The path in use; None if no path is in use."""
        return None if self.current is None else self.candidates[self.current].path

    @property
    def works(self) -> bool:
        """True if the path in use is known to work."""
        return self.current is not None and self.candidates[self.current].state == PathState.WORKING

    @property
    def lost(self) -> bool:
        """True if no path is in use, or the path in use has failed."""
        return self.current is None or self.candidates[self.current].state == PathState.FAILED

    @property
    def finished(self) -> bool:
        """True if no probe of the current round is outstanding."""
        return not any(candidate.waiting for candidate in self.candidates)

    def begin(self, paths: Iterable[Path] | None = None) -> list[int]:
        """Begin a probe round, optionally with new paths; return the indices of paths to probe.

        A path that remains a candidate keeps its state, and the path in use stays in use.
        """
        if paths is not None:
            known = {candidate.path: candidate for candidate in self.candidates}
            used = self.current_path
            self.candidates = [known.get(path) or Candidate(path) for path in paths]
            matches = [i for i, c in enumerate(self.candidates) if c.path == used]
            self.current = matches[0] if matches else None
        self.round += 1
        for candidate in self.candidates:
            candidate.waiting = True
            candidate.silent = False
        return list(range(len(self.candidates)))

    def add_reserves(self, paths: Iterable[Path]) -> None:
        """Add reserve paths, used only while no other path works; the next round probes them."""
        self.candidates += [Candidate(path, reserve=True) for path in paths]

    def add(self, path: Path) -> int:
        """Add a candidate path during a probe round; return its index, for the caller to probe."""
        self.candidates.append(Candidate(path, waiting=True))
        return len(self.candidates) - 1

    def answer(self, round_: int, index: int, available_bps: float) -> bool:
        """Record a probe answer's available bandwidth; return False if it is from another round.

        A late answer also marks the path as working.
        """
        if round_ != self.round or not 0 <= index < len(self.candidates):
            return False
        candidate = self.candidates[index]
        if not (candidate.waiting or candidate.silent):
            return False
        candidate.state = PathState.WORKING
        candidate.available_bps = available_bps
        candidate.waiting = candidate.silent = False
        return True

    def fail(self, index: int) -> None:
        """Mark a candidate path as failed."""
        candidate = self.candidates[index]
        candidate.state, candidate.waiting, candidate.silent = PathState.FAILED, False, False

    def fail_where(self, broken: Callable[[Path], bool]) -> bool:
        """Mark all paths with `broken(path)` as failed; return True if the path in use failed."""
        for index, candidate in enumerate(self.candidates):
            usable = candidate.silent or candidate.waiting or candidate.state != PathState.FAILED
            if usable and broken(candidate.path):
                self.fail(index)
        return self.current is not None and self._state_of(self.current) == PathState.FAILED

    def fail_unanswered(self) -> list[int]:
        """End the probe round: mark paths without an answer as failed; return their indices."""
        silent = [i for i, candidate in enumerate(self.candidates) if candidate.waiting]
        for index in silent:
            self.fail(index)
            self.candidates[index].silent = True
        return silent

    def choose(self) -> bool:
        """Use the best working path by probe results; return True if the path in use has changed.

        If no path works, the fallback is an untried path, then a path that failed only by probe
        timeout (servers may be too busy to answer in time), then no path.
        """
        before = self.current
        self.current = best(self.candidates, before)
        if self.current is None:
            untried = (i for i, c in enumerate(self.candidates) if c.state == PathState.UNTRIED)
            self.current = next(untried, None)
        # Departs from the papers (Guo 2009, 4.2; Liao 2012, 4.5.1): paths with unanswered probes
        # stay usable.
        # In the papers these paths have failed: an overloaded network would have no path.
        if self.current is None:
            silent = [i for i, c in enumerate(self.candidates) if c.silent]
            self.current = before if before in silent else next(iter(silent), None)
        return self.current != before

    def _state_of(self, index: int) -> PathState:
        """Return the probe state of a candidate path."""
        return self.candidates[index].state


class Pace:
    """Rate limit of a server's probe rounds: on average one round per `spacing_s` seconds.

    A burst of rounds may start without spacing, and `urgent` rounds start immediately, but later
    rounds then wait longer. A delayed round starts at a random time within its interval; otherwise
    servers whose flows began together would probe together and delay all other work.

    The burst is at most TOGETHER rounds, and smaller if rounds are expensive (see
    `Timers.probe_spacing_s`): then it is worth `BURST_S` seconds of the average rate, since all
    servers may start their bursts at the same time.

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
        self._burst = self.TOGETHER
        if spacing_s * self.TOGETHER > self.BURST_S:
            self._burst = max(1, int(self.BURST_S / spacing_s))
        self._random = random
        self._next_s = (
            now  # earliest start of the next probe round if rounds were evenly spaced, as a time
        )

    def turn(self, now: float, *, urgent: bool = False) -> float:
        """Reserve the server's next probe round under the rate limit; return its start time."""
        due = self._next_s
        self._next_s = max(now, due) + self.spacing_s
        waits_until = due - (self._burst - 1) * self.spacing_s
        if urgent or waits_until <= now:
            return now
        return waits_until + self._random.random() * self.spacing_s
