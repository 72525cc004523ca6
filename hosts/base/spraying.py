"""Packet spraying: the packets of one flow take several paths in turn (per-packet load balancing).

The source of a flow sprays; relays are unchanged. A flow's paths are its probed disjoint paths that
work: paths whose last probe was answered and on which no failed link is known. Until an answer
arrives, and while no path works, packets take the path that the network's multi-path routing uses.
A failed path leaves the set with the message or the timeout that reports it, and returns with its
next answered probe.

The source chooses the path of each packet, as a sender of Ultra Ethernet does by the packet's
entropy value (Hoefler 2025, arXiv 2508.08906, section 2). Paths take turns, which divides packets
more evenly than the random choice of Dixit 2013 (INFOCOM, "On the impact of packet spraying in data
center networks"). Both spray over paths of equal cost, whose symmetry keeps reordering small.
# Departs from both: the disjoint paths of a network may differ in length; all carry equal parts.

Acknowledgements are packets of a flow in the other direction, and sprayed as well. A plane with
segmentation offload sprays whole super-packets (hosts/live).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice

from pillarbox.hosts.base.path import Path
from pillarbox.hosts.base.probing import PathState, Probing

MOST_SPRAYED = 8  # upper bound for the paths of a sprayed flow, the shortest first


class SprayedPaths(Probing):
    """Probe rounds over paths that are all used while they work.

    `changed` is called when the set of working paths changes: cached actions are then invalid.

    >>> from functools import partial
    >>> log = []
    >>> three = [Path(0, ()), Path(1, ()), Path(2, ())]
    >>> paths = SprayedPaths(three, partial(log.append, "changed"))
    >>> [path.source for path in paths.used_paths()]  # no path is probed yet: the first one
    [0]
    >>> paths.begin(), paths.answer(1, 0, 1e9), paths.answer(1, 2, 1e9), log
    ([0, 1, 2], True, True, ['changed', 'changed'])
    >>> paths.fail(0)
    >>> [path.source for path in paths.used_paths()], len(log)
    ([2], 3)
    """

    def __init__(self, paths: Iterable[Path], changed: Callable[[], None] = lambda: None) -> None:
        super().__init__(paths)
        self.changed = changed

    def used_paths(self) -> list[Path]:
        """Return the paths in use: all working ones; the chosen path if none is known to work."""
        chosen = self.current_path
        return working_paths(self) or ([] if chosen is None else [chosen])

    def begin(self, paths: Iterable[Path] | None = None) -> list[int]:
        """Start a probe round; report working paths that are no candidates any more."""
        before = working_paths(self)
        probes = super().begin(paths)
        self._report_if(working_paths(self) != before)
        return probes

    def answer(self, round_: int, index: int, available_bps: float) -> bool:
        """Record a probe answer; report a path that works from now on."""
        known = 0 <= index < len(self.candidates)
        unused = known and self._state_of(index) != PathState.WORKING
        answered = super().answer(round_, index, available_bps)
        self._report_if(answered and unused)
        return answered

    def fail(self, index: int) -> None:
        """Mark a candidate path as failed; report it if it worked until now."""
        used = self._state_of(index) == PathState.WORKING
        super().fail(index)
        self._report_if(used)

    def _report_if(self, differs: bool) -> None:
        if differs:
            self.changed()


def working_paths(probing: Probing) -> list[Path]:
    """Return the candidate paths that are known to work, at most MOST_SPRAYED, in their order."""
    working = (one.path for one in probing.candidates if one.state == PathState.WORKING)
    return list(islice(working, MOST_SPRAYED))


def in_turn(paths: list[Path], turn: int) -> list[Path]:
    """Return the paths, beginning with the one whose turn it is.

    >>> [path.source for path in in_turn([Path(0, ()), Path(1, ()), Path(2, ())], turn=4)]
    [1, 2, 0]
    """
    first = turn % len(paths) if paths else 0
    return paths[first:] + paths[:first]
