"""Choice among a BCube source's parallel paths: PathSelection (Guo 2009, sections 4.1-4.3).

A source decides from server addresses, probe results and a set of failed links. Maintaining this
set, sending probes and running timers is left to `pillarbox.hosts.bcube.bsr`, or to a simulator.

A failed link is a pair of neighbouring servers. The two servers differ in one digit, so they share
one switch, and the pair identifies the hop. A path-failure message carries no more than that: it
does not say whether the cable of either server or their switch failed. A dead server appears as
many failed links, one to each neighbour that was probed as a relay to it; a dead switch appears as
one failed link per pair of servers below it. The search may propose the same dead server, or the
same destination port, over one neighbour after another until every link to it is known to have
failed: at most (k + 1)(n - 1) probes for a server, n - 1 for a port. A caller that knows more
(`around` gets a complete list of failures) may also name servers, switches and cables.

Invariants: no two paths of a set share a server or a switch; no path is longer than the header can
hold; a flow leaves its path immediately when a link of the path fails, and otherwise only at the
end of a probe round.

Left out: weights of links, and metrics other than available bandwidth (section 4.1).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from functools import lru_cache
from itertools import pairwise
from typing import Any, TypeAlias

from pillarbox.hosts.base.algorithms import Routed
from pillarbox.hosts.base.failures import NONE, Failures, Pair
from pillarbox.hosts.base.path import Path
from pillarbox.hosts.base.probing import PathState, Probing, best
from pillarbox.hosts.base.rules import NONE as NOWHERE
from pillarbox.hosts.bcube.paths import path_set, step_to
from pillarbox.hosts.bcube.rules import with_digit
from pillarbox.hosts.bcube.search import Net, Wave, joined_hops, meeting_server
from pillarbox.hosts.wire.bcube import MOST_HOPS
from pillarbox.topos.base.digits import DigitNetwork
from pillarbox.topos.base.polymorphic import NOTHING

# Function of a network, a source and a destination to the paths that a source chooses from.
PathSet: TypeAlias = Callable[[Any, int, int], list[Path]]
# Upper bound for candidate paths per probe round, so that a round ends in any case.
# The next probe round avoids the failures detected in this round.
MOST_CANDIDATES = 32
MOST_SILENCES = 3  # upper bound for probe timeouts per probe round
REMEMBERED = 4096  # upper bound for cached path sets, one per pair of servers
SEARCH = 1  # search number that marks visited nodes; each search has its own tables


def parallel_paths(
    bcube: DigitNetwork,
    source: int,
    destination: int,
    failures: Failures = NONE,
    path_set: PathSet = path_set,
) -> list[Path]:
    """Return parallel paths around the failures, the default path (a shortest one) first.

    They are the working paths of BuildPathSet (or another `path_set`), and for each failed path a
    replacement found by breadth-first search, as long as the search finds one.

    >>> from pillarbox.hosts.base.failures import parse_failures
    >>> from pillarbox.topos.bcube import BCube
    >>> bcube = BCube(8, 3)  # Fig. 4, with the relay of P_1 dead
    >>> dead = parse_failures(bcube, ["kill 0.0.1.1"])
    >>> for path in parallel_paths(bcube, bcube.server("0.0.0.1"), bcube.server("1.0.1.1"), dead):
    ...     print(*map(bcube.address, path.servers))
    0.0.0.1 1.0.0.1 1.0.1.1
    0.0.0.1 0.1.0.1 0.1.1.1 1.1.1.1 1.0.1.1
    0.0.0.1 0.0.0.2 1.0.0.2 1.0.1.2 1.0.1.1
    0.0.0.1 0.0.2.1 2.0.2.1 2.0.1.1 1.0.1.1
    """
    return _paths_around(bcube, path_set(bcube, source, destination), failures)


@lru_cache(REMEMBERED)
def _cached_path_set(
    path_set: PathSet, bcube: DigitNetwork, source: int, destination: int
) -> Sequence[Path]:
    """Return a pair's parallel paths, cached since they cost half of a new flow's set-up."""
    return tuple(path_set(bcube, source, destination))


def _paths_around(bcube: DigitNetwork, usual: Sequence[Path], failures: Failures) -> list[Path]:
    """Return parallel paths around the failures, shortest first; `usual` are those without."""
    if failures == NONE:
        return sorted(usual, key=len)
    found = [path for path in usual if _path_works(bcube, path, failures)]
    while len(found) < len(usual):
        another = replacement(bcube, usual[0].source, usual[0].destination, found, failures)
        if another is None:
            break
        found.append(another)
    return sorted(found, key=len)


def around(
    bcube: DigitNetwork,
    source: int,
    destination: int,
    failures: Failures,
    several: bool,
    path_set: PathSet = path_set,
) -> Routed:
    """Return BSR's path of a flow, or all parallel paths, if the source knows all failures."""
    paths = parallel_paths(bcube, source, destination, failures, path_set)
    if not paths:
        return Routed([], f"no path of {most_hops(bcube)} hops or fewer is left")
    return Routed(paths if several else paths[:1])


def most_hops(bcube: DigitNetwork) -> int:
    """Return the maximum number of hops of a path: the header's limit, or 2(k + 1) if larger."""
    return max(MOST_HOPS, 2 * (bcube.k + 1))


# -- the search for a replacement ----------------------------------------------------------------


def replacement(
    bcube: DigitNetwork, source: int, destination: int, kept: Iterable[Path], failures: Failures
) -> Path | None:
    """Return a shortest working path that is parallel to the `kept` paths, None if there is none.

    The search visits each server and switch once; see `pillarbox.hosts.bcube.search`.
    """
    net = _search_net(bcube, kept, failures)
    near, far = (
        Wave(
            defaultdict(int), defaultdict(int), dict[int, int](), dict[int, int](), dict[int, int]()
        )
        for _ in range(2)
    )
    ends = source, destination
    middle = meeting_server(net, near, far, SEARCH, most_hops(bcube), *ends)
    if middle == NOWHERE:
        return None
    servers, steps = [source], []
    for level, peer in joined_hops(near, far, *ends, middle):
        steps.append(step_to(bcube, servers[-1], level, peer))
        servers.append(peer)
    return Path(source, tuple(steps))


def _search_net(bcube: DigitNetwork, kept: Iterable[Path], failures: Failures) -> Net:
    """Return the network for a path search, in which inner nodes of `kept` paths are closed."""
    servers: dict[int, int] = defaultdict(int)
    switches: dict[tuple[int, int], int] = defaultdict(int)
    for path in kept:
        for server, step in zip(path.servers, path.steps, strict=False):
            level = bcube.level_of_port(step.port)
            if bcube.switch_of(server, level) != NOTHING:
                switches[level, with_digit(bcube.weights, server, level, 0)] = SEARCH
        for step in path.steps[:-1]:
            servers[step.peer] = SEARCH
    apart = _FailedLinks(failures.links)
    cables = _CableStates(bcube, failures)
    return Net(cables, apart, servers, switches, SEARCH, bcube.weights, from_zero=False)


class _CableStates:
    """Cable states by server and level: True if the cable, its server and its switch work."""

    def __init__(self, bcube: DigitNetwork, failures: Failures) -> None:
        self.bcube, self.failures = bcube, failures

    def __getitem__(self, cable: tuple[int, int]) -> bool:
        if self.failures == NONE:
            return True
        server, level = cable
        switch = self.bcube.switch_of(server, level)
        if server in self.failures.nodes or switch in self.failures.nodes:
            return False
        return frozenset((server, switch)) not in self.failures.links


class _FailedLinks:
    """Failed links by pair of servers: True if the link between them has failed."""

    def __init__(self, links: frozenset[Pair]) -> None:
        self.links = links

    def __len__(self) -> int:
        return len(self.links)

    def __getitem__(self, servers: tuple[int, int]) -> bool:
        return frozenset(servers) in self.links


def _inner_nodes(bcube: DigitNetwork, path: Path) -> Iterator[int]:
    """Yield the inner nodes of a path: its switches and relaying servers."""
    yield from (switch for switch in _switches(bcube, path) if switch != NOTHING)
    for step in path.steps[:-1]:
        yield step.peer


def _switches(bcube: DigitNetwork, path: Path) -> list[int]:
    """Return the switch of each hop of a path, NOTHING for a cable between two servers."""
    return [
        bcube.switch_of(server, bcube.level_of_port(step.port))
        for server, step in zip(path.servers, path.steps, strict=False)
    ]


def _path_works(bcube: DigitNetwork, path: Path, failures: Failures) -> bool:
    hops = zip(path.servers, path.steps, _switches(bcube, path), strict=False)
    for server, step, switch in hops:
        if switch in failures.nodes or step.peer in failures.nodes:
            return False
        if failures.links and any(
            frozenset(ends) in failures.links
            for ends in ((server, step.peer), (server, switch), (switch, step.peer))
        ):
            return False
    return True


def _turns_back(bcube: DigitNetwork, path: Path) -> bool:
    """Return True if two consecutive hops cross the same switch.

    Such a path avoids a failed link by a detour over another neighbour. If the next server's own
    cable is cut, no neighbour reaches that server over this switch either: the path is worth a
    probe, but should not carry a flow's first packets.
    """
    return any(one == other != NOTHING for one, other in pairwise(_switches(bcube, path)))


# -- path selection of one flow -------------------------------------------------------------------


class Selection(Probing):
    """BCube's PathSelection (Fig. 7): probes a flow's candidate paths and chooses one.

    Methods that learn of failures return the indices of the candidate paths to probe next. The
    index of a path is fixed within a probe round.

    >>> from pillarbox.topos.bcube import BCube
    >>> bcube = BCube(4, 1)  # the example of section 7.5
    >>> selection = Selection(bcube, bcube.server("0.0"), bcube.server("1.3"), NONE)
    >>> def use() -> None:
    ...     print(*map(bcube.address, selection.path.servers))
    >>> use()
    0.0 1.0 1.3
    >>> selection.begin_round(NONE)
    [0, 1]
    >>> selection.answer(1, 0, 2e8), selection.answer(1, 1, 9e8), selection.settle()
    (True, True, True)
    >>> use()
    0.0 0.3 1.3
    >>> selection.lose({frozenset([bcube.server("0.0"), bcube.server("0.3")])})
    True
    >>> use()  # without probing
    0.0 1.0 1.3
    """

    def __init__(
        self,
        bcube: DigitNetwork,
        source: int,
        destination: int,
        failures: Failures,
        changed: Callable[[], None] = lambda: None,
        slack_bps: float = 0.0,  # bandwidth that a path must offer per extra hop, in bit/s
        gain_bps: float = 0.0,  # minimum gain for leaving the path in use, in bit/s
        path_set: PathSet = path_set,
    ) -> None:
        self.bcube, self.source, self.destination = bcube, source, destination
        self._changed = changed  # function called when the path in use changes, or no path is left
        self._usual = _cached_path_set(path_set, bcube, source, destination)
        super().__init__(_paths_around(bcube, self._usual, failures))
        straight = (
            i for i, one in enumerate(self.candidates) if not _turns_back(self.bcube, one.path)
        )
        self.current = next(straight, self.current)
        self.path = self.current_path  # the path in use; None if no path is left
        self.rate_bps = 0.0  # rate of the flow's own traffic, in bit/s
        self.slack_bps, self.gain_bps = slack_bps, gain_bps
        self._alone = False  # True if no other flow is expected to change paths in this probe round
        self.changes = 0  # number of changes of the path in use
        self._suspects: frozenset[Pair] = frozenset()
        self._silences = 0

    def begin_round(self, failures: Failures, *, alone: bool = False) -> list[int]:
        """Start a probe round over the paths without known failures; return their indices."""
        self._alone = alone
        self._suspects = frozenset()
        self._silences = 0
        probes = self.begin(_paths_around(self.bcube, self._usual, failures))
        for candidate in self.candidates:
            # A path that failed in an earlier probe round is probed again.
            if candidate.state == PathState.FAILED:
                candidate.state = PathState.UNTRIED
        self._use_unprobed_path()
        return probes

    @property
    def links(self) -> set[Pair]:
        """The links of a flow's path in use and of all its candidate paths."""
        paths = [self.path, *(one.path for one in self.candidates)]
        return {link for path in paths if path for link in path.links}

    def used_paths(self) -> list[Path]:
        """Return the paths over which the flow's packets are sent now: one, or none."""
        return [] if self.path is None else [self.path]

    def paths_in_turn(self) -> list[Path]:
        """Return the paths of the flow's next packets, the path of the next packet first."""
        return self.used_paths()

    @property
    def has_no_confirmed_path(self) -> bool:
        """True if the flow has no path, or only a path whose probe was not answered."""
        return self.current is None or self.candidates[self.current].silent

    @property
    def patience(self) -> int:
        """Factor on the probe timeout, doubled at each timeout, since busy servers answer late."""
        return 1 << self._silences

    def process_answer(self, index: int, path: Path, available_bps: float) -> bool:
        """Process a probe response received over `path`; return False if it matches no probe."""
        if index >= len(self.candidates) or self.candidates[index].path != path:
            return False
        answered = self.answer(self.round, index, available_bps)
        if answered and self.path is None:
            self.settle()  # the flow has no path yet: use the probed path immediately
        return answered

    def lose(self, lost: Set[Pair]) -> bool:
        """Mark candidate paths over failed links as failed; replace the path in use (4.3).

        Return True if the path in use or any candidate not yet marked as failed has such a link.
        """
        failed = [
            index
            for index, one in enumerate(self.candidates)
            if (one.silent or one.state != PathState.FAILED) and not lost.isdisjoint(one.path.links)
        ]
        for index in failed:
            self.fail(index)
        in_use = self.path is not None and not lost.isdisjoint(self.path.links)
        if in_use:
            self.settle()
        return in_use or bool(failed)

    def replace(self, failures: Failures) -> list[int]:
        """Replace the candidate paths that failed in this probe round; return the new indices.

        The path in use, found in an earlier round, is the first choice if no failure on it is
        known; other replacements are searched for.
        """
        known = Failures(failures.nodes, failures.links | self._suspects)
        added: list[int] = []
        while len(self.candidates) < MOST_CANDIDATES:
            kept = [one.path for one in self.candidates if one.state != PathState.FAILED]
            if len(kept) >= len(self._usual):
                break
            path = self._path_to_keep(kept, known)
            path = path or replacement(self.bcube, self.source, self.destination, kept, known)
            if path is None:
                break
            added.append(self.add(path))
            if path == self.path:
                self.current = added[-1]
        self._use_unprobed_path()
        return added

    def _use_unprobed_path(self) -> None:
        """Use an unprobed candidate path without detours, if the flow has no path."""
        if self.path is not None:
            return
        for index, one in enumerate(self.candidates):
            if one.state == PathState.UNTRIED and not _turns_back(self.bcube, one.path):
                self.current, self.path = index, one.path
                self.changes += 1
                self._changed()
                return

    def _path_to_keep(self, kept: Sequence[Path], failures: Failures) -> Path | None:
        """Return the path in use if it works, is no candidate and is parallel to `kept`."""
        path = self.path
        if path is None or any(one.path == path for one in self.candidates):
            return None
        closed = {node for other in kept for node in _inner_nodes(self.bcube, other)}
        parallel = closed.isdisjoint(_inner_nodes(self.bcube, path))
        return path if parallel and _path_works(self.bcube, path, failures) else None

    def time_out(self, failures: Failures) -> list[int]:
        """Mark paths of unanswered probes as failed; return the replacements to probe, by index.

        A missing answer does not say which link failed, so all links of these paths are avoided for
        the rest of the round. After MOST_SILENCES timeouts in a round no more replacements are
        probed: the servers are too busy to answer in time, and more probes would keep them busy.
        """
        self._silences += 1
        silent = [self.candidates[index].path for index in self.fail_unanswered()]
        self._suspects = self._suspects.union(*(path.links for path in silent))
        if self.path in silent:
            self.settle()
        return self.replace(failures) if self._silences < MOST_SILENCES else []

    def end_round(self) -> None:
        """End the probe round: use the best path found, and drop older failed candidates."""
        self.settle()
        failed = [one for one in self.candidates if one.state == PathState.FAILED]
        for one in failed[: -len(self._usual)]:
            self.candidates.remove(one)
        places = [i for i, one in enumerate(self.candidates) if one.path == self.path]
        self.current = places[0] if places else None

    def settle(self) -> bool:
        """Use the best path by probe results; return True if the path in use changed.

        # Departs from the paper: the flow's own rate counts as available bandwidth on the path in
        # use. Otherwise a flow that fills its path would always find another path better.
        """
        before = self.path
        own_bps = self.rate_bps + (0.0 if self._alone else self.gain_bps)
        working = best(self.candidates, self.current, own_bps, self.slack_bps)
        if working is None:
            self.choose()
        else:
            self.current = working
        self.path = self.current_path
        if self.path == before:
            return False
        self.changes += self.path is not None
        self._changed()
        return True
