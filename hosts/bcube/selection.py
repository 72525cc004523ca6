"""Which of the parallel paths a BCube source uses: PathSelection (Guo 2009, sections 4.1-4.3).

A source knows the addresses, what its probes found, and a set of failed links. From these alone
it decides; what keeps the set, sends probes and counts time is `hosts.bcube.bsr`, or a simulator.

A failed link is a pair of neighbouring servers. They share one switch (they differ in one digit),
so the pair names the hop. It is all that a path-failure message tells: whether the cable of the
one, the cable of the other or their switch is to blame, is not asked. A dead server shows itself as
many failed links, to each neighbour that was asked for a way through it; so does a dead switch, to
each pair below it. The search may propose the same dead server, or destination port, again over
another neighbour, until every link that leads there is known: at most (k + 1)(n - 1) probes for a
server, n - 1 for a port. Who knows more (`around`, for an answer with all failures learned) may
also name servers, switches and cables.

Invariants: no two paths of a set share a server or a switch; no path is longer than the header can
say; a path in use is left at once when a link of it fails, and else only at the end of a round.

Left out: weights of links, and a metric other than available bandwidth (section 4.1).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from functools import lru_cache
from itertools import pairwise, starmap

from hosts.base.algorithms import Routed
from hosts.base.failures import NONE, Failures, Pair
from hosts.base.path import Path, Step
from hosts.base.probing import Probing, State, best
from hosts.base.rules import NONE as NOWHERE
from hosts.bcube.paths import path_set
from hosts.bcube.rules import numbers, with_digit
from hosts.bcube.search import Net, Wave, joined, meeting
from hosts.wire.bcube import MOST_HOPS
from topos.bcube import BCube

# Of one round: so it ends even in a network of ruins. The next goes on with what was learned.
MOST_CANDIDATES = 32
MOST_SILENCES = 3  # of the probes of a round
REMEMBERED = 4096  # pairs of servers whose paths are remembered
SEARCH = 1  # the number of a search, with tables of its own


def parallel_paths(
    bcube: BCube, source: int, destination: int, failures: Failures = NONE
) -> list[Path]:
    """Return parallel paths around the failures, the default path (a shortest one) first.

    They are those of BuildPathSet that work, and for each other one what a breadth-first search
    finds beside them, as long as it finds any.

    >>> from hosts.base.failures import parse_failures
    >>> bcube = BCube(8, 3)  # Fig. 4, with the relay of P_1 dead
    >>> dead = parse_failures(bcube, ["kill 0.0.1.1"])
    >>> for path in parallel_paths(bcube, bcube.server("0.0.0.1"), bcube.server("1.0.1.1"), dead):
    ...     print(*map(bcube.address, path.servers))
    0.0.0.1 1.0.0.1 1.0.1.1
    0.0.0.1 0.1.0.1 0.1.1.1 1.1.1.1 1.0.1.1
    0.0.0.1 0.0.0.2 1.0.0.2 1.0.1.2 1.0.1.1
    0.0.0.1 0.0.2.1 2.0.2.1 2.0.1.1 1.0.1.1
    """
    return _around(bcube, path_set(bcube, source, destination), failures)


@lru_cache(REMEMBERED)
def _path_set(bcube: BCube, source: int, destination: int) -> Sequence[Path]:
    """Return BuildPathSet's paths: half of what a new flow costs, where they are not remembered."""
    return tuple(path_set(bcube, source, destination))


def _around(bcube: BCube, usual: Sequence[Path], failures: Failures) -> list[Path]:
    """Return parallel paths around the failures; the usual ones, where there are none."""
    if failures == NONE:
        return sorted(usual, key=len)
    found = [path for path in usual if _works(bcube, path, failures)]
    while len(found) < len(usual):
        another = replacement(bcube, usual[0].source, usual[0].destination, found, failures)
        if another is None:
            break
        found.append(another)
    return sorted(found, key=len)


def around(
    bcube: BCube, source: int, destination: int, failures: Failures, several: bool
) -> Routed:
    """Return the path that a flow takes when the failures are known, or the whole set."""
    paths = parallel_paths(bcube, source, destination, failures)
    if not paths:
        return Routed([], f"no path of {most_hops(bcube)} hops or fewer is left")
    return Routed(paths if several else paths[:1])


def most_hops(bcube: BCube) -> int:
    """Return how long a path may be: what a header holds, and in larger BCubes as much again."""
    return max(MOST_HOPS, 2 * (bcube.k + 1))


# -- the search for a replacement ----------------------------------------------------------------


def replacement(
    bcube: BCube, source: int, destination: int, kept: Iterable[Path], failures: Failures
) -> Path | None:
    """Return a shortest path that works and is parallel to those kept, None if there is none.

    Each server and switch is passed once; see `hosts.bcube.search`.
    """
    net = _net(bcube, kept, failures)
    near, far = (
        Wave(
            defaultdict(int), defaultdict(int), dict[int, int](), dict[int, int](), dict[int, int]()
        )
        for _ in range(2)
    )
    ends = source, destination
    middle = meeting(*numbers(bcube), net, near, far, SEARCH, most_hops(bcube), *ends)
    if middle == NOWHERE:
        return None
    return Path(source, tuple(starmap(Step, joined(near, far, *ends, middle))))


def _net(bcube: BCube, kept: Iterable[Path], failures: Failures) -> Net:
    """Return what a search goes by that keeps off the paths, but for their ends."""
    servers: dict[int, int] = defaultdict(int)
    switches: dict[tuple[int, int], int] = defaultdict(int)
    for path in kept:
        for server, step in zip(path.servers, path.steps, strict=False):
            switches[step.port, with_digit(bcube.n, server, step.port, 0)] = SEARCH
        for step in path.steps[:-1]:
            servers[step.peer] = SEARCH
    apart = _Apart(failures.links)
    weights = [bcube.n**level for level in range(bcube.ports)]
    return Net(_Works(bcube, failures), apart, servers, switches, SEARCH, weights, from_zero=False)


class _Works:
    """By server and level: whether the cable works, with the server and the switch at its ends."""

    def __init__(self, bcube: BCube, failures: Failures) -> None:
        self.bcube, self.failures = bcube, failures

    def __getitem__(self, cable: tuple[int, int]) -> bool:
        if self.failures == NONE:
            return True
        server, level = cable
        switch = self.bcube.server_plug(server, level).node
        if server in self.failures.nodes or switch in self.failures.nodes:
            return False
        return frozenset((server, switch)) not in self.failures.links


class _Apart:
    """By two servers: whether the link between them has failed."""

    def __init__(self, links: frozenset[Pair]) -> None:
        self.links = links

    def __len__(self) -> int:
        return len(self.links)

    def __getitem__(self, servers: tuple[int, int]) -> bool:
        return frozenset(servers) in self.links


def _inner_nodes(bcube: BCube, path: Path) -> Iterator[int]:
    """Yield every server but the ends, and every switch, of a path."""
    for server, step in zip(path.servers, path.steps, strict=False):
        yield bcube.server_plug(server, step.port).node
    for step in path.steps[:-1]:
        yield step.peer


def _works(bcube: BCube, path: Path, failures: Failures) -> bool:
    for server, step in zip(path.servers, path.steps, strict=False):
        switch = bcube.server_plug(server, step.port).node
        if switch in failures.nodes or step.peer in failures.nodes:
            return False
        if failures.links and any(
            frozenset(ends) in failures.links
            for ends in ((server, step.peer), (server, switch), (switch, step.peer))
        ):
            return False
    return True


def _turns_back(path: Path) -> bool:
    """Tell whether two hops in turn are over one switch, as from a neighbour that was not reached.

    Where that one's own cable is cut, nobody reaches it over that switch: such a path is worth a
    probe, but not the first packets.
    """
    return any(step.port == following.port for step, following in pairwise(path.steps))


# -- the choice of one flow ----------------------------------------------------------------------


class Selection(Probing):
    """PathSelection of one flow (Fig. 7), as the source sees it.

    The methods that find something out return the numbers of candidates to probe next. A path's
    number stays its own until the next round.

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
        bcube: BCube,
        source: int,
        destination: int,
        failures: Failures,
        changed: Callable[[], None] = lambda: None,
        slack_bps: float = 0.0,  # see `best`
        gain_bps: float = 0.0,  # another path is to have so much more, where flows move together
    ) -> None:
        self.bcube, self.source, self.destination = bcube, source, destination
        self._changed = changed  # called when another path comes into use, or none is left
        self._usual = _path_set(bcube, source, destination)
        super().__init__(_around(bcube, self._usual, failures))
        straight = (i for i, one in enumerate(self.candidates) if not _turns_back(one.path))
        self.current = next(straight, self.current)
        self.path = self.current_path  # the one in use; None when none is left
        self.rate_bps = 0.0  # what the flow itself sends
        self.slack_bps, self.gain_bps = slack_bps, gain_bps
        self._alone = False  # whether no other flow is to move in this round
        self.changes = 0  # of the path in use
        self._suspects: frozenset[Pair] = frozenset()
        self._silences = 0

    def begin_round(self, failures: Failures, *, alone: bool = False) -> list[int]:
        """Begin a round over the parallel paths that are not known to have failed."""
        self._alone = alone
        self._suspects = frozenset()
        self._silences = 0
        probes = self.begin(_around(self.bcube, self._usual, failures))
        for candidate in self.candidates:
            if candidate.state == State.FAILED:  # in an earlier round: it gets another chance
                candidate.state = State.UNTRIED
        return probes

    @property
    def links(self) -> set[Pair]:
        """The links of all paths that may be used."""
        paths = [self.path, *(one.path for one in self.candidates)]
        return {link for path in paths if path for link in path.links}

    @property
    def hopeless(self) -> bool:
        """Whether there is no path, or only one from which no answer came."""
        return self.current is None or self.candidates[self.current].silent

    @property
    def patience(self) -> int:
        """How many times the usual timeout to wait for answers: busy servers need more and more."""
        return 1 << self._silences

    def answer_of(self, index: int, path: Path, available_bps: float) -> bool:
        """Take in an answer that came over that path; False if it answers no probe of the round."""
        if index >= len(self.candidates) or self.candidates[index].path != path:
            return False
        answered = self.answer(self.round, index, available_bps)
        if answered and self.path is None:
            self.settle()  # nothing better to wait for
        return answered

    def lose(self, lost: Set[Pair]) -> bool:
        """Note failed links; if the path in use has one, use another at once (section 4.3).

        False if no path that was believed in has any.
        """
        failed = [
            index
            for index, one in enumerate(self.candidates)
            if (one.silent or one.state != State.FAILED) and not lost.isdisjoint(one.path.links)
        ]
        for index in failed:
            self.fail(index)
        in_use = self.path is not None and not lost.isdisjoint(self.path.links)
        if in_use:
            self.settle()
        return in_use or bool(failed)

    def replace(self, failures: Failures) -> list[int]:
        """Add a candidate for each that failed in this round, as far as there is a path.

        The path in use, found in an earlier round, is the first choice if it is not known to have
        failed; another is searched.
        """
        known = Failures(failures.nodes, failures.links | self._suspects)
        added: list[int] = []
        while len(self.candidates) < MOST_CANDIDATES:
            kept = [one.path for one in self.candidates if one.state != State.FAILED]
            if len(kept) >= len(self._usual):
                break
            path = self._path_to_keep(kept, known)
            path = path or replacement(self.bcube, self.source, self.destination, kept, known)
            if path is None:
                break
            added.append(self.add(path))
            if path == self.path:
                self.current = added[-1]
        return added

    def _path_to_keep(self, kept: Sequence[Path], failures: Failures) -> Path | None:
        """Return the path in use if it is no candidate and can be one beside those kept."""
        path = self.path
        if path is None or any(one.path == path for one in self.candidates):
            return None
        closed = {node for other in kept for node in _inner_nodes(self.bcube, other)}
        parallel = closed.isdisjoint(_inner_nodes(self.bcube, path))
        return path if parallel and _works(self.bcube, path, failures) else None

    def time_out(self, failures: Failures) -> list[int]:
        """Give up the probes that were not answered, and replace their paths, a few times a round.

        No message says which link it was: for the rest of the round, all of them are avoided. Where
        replacements are silent again and again, servers are too busy to answer in time, and yet
        more probes would keep them so.
        """
        self._silences += 1
        silent = [self.candidates[index].path for index in self.give_up()]
        self._suspects = self._suspects.union(*(path.links for path in silent))
        if self.path in silent:
            self.settle()
        return self.replace(failures) if self._silences < MOST_SILENCES else []

    def end_round(self) -> None:
        """Use what was found; of what has failed only the last are kept, for the eye."""
        self.settle()
        failed = [one for one in self.candidates if one.state == State.FAILED]
        for one in failed[: -len(self._usual)]:
            self.candidates.remove(one)
        places = [i for i, one in enumerate(self.candidates) if one.path == self.path]
        self.current = places[0] if places else None

    def settle(self) -> bool:
        """Use the best path that is known; tell whether that is another than before.

        # Departs from the paper: what the flow itself sends counts as available on the path it
        # uses. Otherwise a flow that fills its path would find any other path better, for ever.
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
