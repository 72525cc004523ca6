"""Lab 5: BCube's source routing: paths, probes and path selection (Guo 2009, sections 3.3 and 4).

Paths and choices are first tested separately, and then used in a network: see bcube_flows.py.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pillarbox.experiments.apps.teaching import cabling
from pillarbox.experiments.apps.teaching.cabling import Cabling
from pillarbox.experiments.apps.teaching.grading_engine import (
    GradedCase,
    GradedPart,
    Judgement,
    Work,
    all_or_nothing,
)
from pillarbox.experiments.apps.teaching.labs import bcube_flows
from pillarbox.experiments.apps.teaching.labs.bcube_flows import bcube_of, pair_of
from pillarbox.experiments.apps.teaching.labs.bcube_source import LiveBCubeSourceRouter
from pillarbox.experiments.apps.teaching.routed_packets import path_of, path_text
from pillarbox.hosts.base.path import Path
from pillarbox.hosts.base.probing import NEARLY_BEST, Candidate, PathState, best
from pillarbox.hosts.bcube.paths import path_set
from pillarbox.topos.bcube import BCube

TITLE = "BCube's source routing"
FOLDER = "5-bcube-probing"
MODULES = ("pillarbox.topos.bcube", "pillarbox.hosts.base.path")
OWN = ("bcube,3,2", "bcube,4,2", "bcube,3,3")
HIDDEN = ("bcube,5,2", "bcube,4,3", "bcube,2,4")
# network of the path choice cases, and number of paths per pair of servers
CHOICE, PATHS = ("bcube,3,3", 4)
NETWORKS = (*OWN, *HIDDEN)
LIVE_NETWORK = "bcube,2,2"
LIVE_ROUTER = LiveBCubeSourceRouter
PAIRS, OTHER_PAIRS, CHOICES = 24, 12, 12
MEGABIT = 10**6


def values(draw: random.Random) -> dict[str, Any]:
    """Draw the BCube of a student's sheet, two servers, and probe results of their paths."""
    bcube = bcube_of(draw.choice(OWN))
    source, destination = common_pair(bcube, draw)
    free = draw.sample(range(100, 1000, 10), bcube.k + 1)
    return {
        "network": bcube.spec,
        "source": bcube.address(source),
        "destination": bcube.address(destination),
        "probes found": " ".join(f"{mbit}" for mbit in free) + " Mbit/s",
        cabling.NAME: cabling.random_cabling(draw, bcube),
    }


def common_pair(bcube: BCube, draw: random.Random) -> tuple[int, int]:
    """Return two BCube servers with a common digit, so that one of their paths is a detour."""
    while True:
        a, b = draw.sample(range(bcube.servers), 2)
        digits = zip(bcube.digits(a), bcube.digits(b), strict=True)
        if any(x == y for x, y in digits):
            return a, b


# -- BuildPathSet --------------------------------------------------------------------------------


def path_set_cases(work: Work) -> list[GradedCase]:
    """Test cases for the parallel paths between two servers of a BCube."""
    return random_path_set_cases(work, bcube_of(work.values["network"]), "sets", PAIRS)


def other_size_cases(work: Work) -> list[GradedCase]:
    """Test cases for the parallel paths in a BCube of another size."""
    bcube = bcube_of(work.draw("size").choice(HIDDEN))
    return random_path_set_cases(work, bcube, "other sets", OTHER_PAIRS)


def random_path_set_cases(work: Work, bcube: BCube, name: str, many: int) -> list[GradedCase]:
    """Return a test case of parallel paths for each of `many` pairs of servers."""
    draw = work.draw(name)
    drawn = (pair_of(bcube, draw) if i % 3 == 0 else common_pair(bcube, draw) for i in range(many))
    return [_path_set_case(work, bcube, *pair) for pair in drawn]


def _path_set_case(work: Work, bcube: BCube, source: int, destination: int) -> GradedCase:
    wanted, ports = path_set(bcube, source, destination), cabling.cabling_of_sheet(work.values)

    def judge() -> Judgement:
        answer = work.call("path_set", source, destination, network=bcube.spec)
        if not isinstance(answer, list):
            return Judgement(0.0, f"{answer!r:.60} is not a list of paths")
        shares, wrong = 0.0, ""
        for right in wanted:
            level = right.steps[0].port
            leaves = ports.port(level, bcube.ports)
            mine = [path for path in answer if _leaves_by(path, leaves)]
            share, said = (
                _share_of_path(bcube, right, mine[0], ports) if mine else (0.0, "it is missing")
            )
            shares += share
            wrong = wrong or (f"P_{level}: {said}" if said else "")
        if len(answer) > len(wanted):
            wrong = wrong or f"{len(answer)} paths, there are {len(wanted)}"
        return Judgement(shares / max(len(answer), len(wanted)), wrong)

    ends = f"{bcube.address(source)} to {bcube.address(destination)}"
    return GradedCase(f"{bcube.spec}, paths from {ends}", judge)


def _leaves_by(steps: object, port: int) -> bool:
    first = steps[0] if isinstance(steps, list) and steps else None
    return isinstance(first, list) and bool(first) and first[0] == port


def _share_of_path(bcube: BCube, right: Path, steps: Any, ports: Cabling) -> tuple[float, str]:
    """Return a path's share of the points, half of it for the right hops, and the error."""
    same = 0
    for mine, step in zip(steps, ports.hops_in_student_ports(bcube, right), strict=False):
        if not isinstance(mine, list) or mine[:2] != step:
            break
        same += 1
    if same == len(right) == len(steps):
        return 1.0, ""
    path, wrong = path_of(bcube, right.source, right.destination, steps, ports)
    said = f"it goes {path_text(bcube, path)}" if path else wrong
    return same / len(right) / 2, f"{said}, by BuildPathSet {path_text(bcube, right)}"


# -- the choice ----------------------------------------------------------------------------------


class ProbeResults(NamedTuple):
    """Probe results of a source: bandwidth per path in Mbit/s, None if the path failed."""

    source: int
    paths: Sequence[Path]
    free: Sequence[int | None]
    using: int | None
    own: int = 0  # rate of the source's flow on its current path, in Mbit/s

    @property
    def index_of_best_path(self) -> int | None:
        """Index of the path to choose by the rule of the lab sheet (same as `probing.best`)."""
        return best(
            [
                Candidate(path, PathState.FAILED if free is None else PathState.WORKING, free or 0)
                for path, free in zip(self.paths, self.free, strict=True)
            ],
            self.using,
            self.own,
        )

    @property
    def is_unambiguous(self) -> bool:
        """True if the right choice does not depend on rounding near 90 % of the best bandwidth."""
        known = [
            free + (self.own if i == self.using else 0)
            for i, free in enumerate(self.free)
            if free is not None
        ]
        return all(abs(free - NEARLY_BEST * max(known)) > 0.02 * max(known) for free in known)


def most_bandwidth_cases(work: Work) -> list[GradedCase]:
    """Test cases for the path with the most available bandwidth, among failed paths."""

    def draw_one(draw: random.Random, number: int) -> ProbeResults:
        probed = _drawn_results(draw, draw.sample(range(50, 1000, 50), PATHS))
        dead = PATHS if number % 4 == 3 else draw.randrange(PATHS - 1)
        gone = draw.sample(range(PATHS), dead)
        free = [None if i in gone else free for i, free in enumerate(probed.free)]
        return probed._replace(free=free, using=draw.randrange(PATHS))

    return path_choice_cases(work, "most", draw_one)


def equal_bandwidth_cases(work: Work) -> list[GradedCase]:
    """Test cases for a choice among paths whose available bandwidth is within 10 % of the best."""

    def draw_one(draw: random.Random, _: int) -> ProbeResults:
        top = draw.randrange(500, 1000)
        free = [top - draw.choice((0, top // 20, top // 15, top // 3)) for _ in range(PATHS)]
        return _drawn_results(draw, free)._replace(using=draw.choice((None, *range(PATHS))))

    return path_choice_cases(work, "equal", draw_one)


def own_traffic_cases(work: Work) -> list[GradedCase]:
    """Test cases of a source whose flow uses bandwidth of the current path."""

    def draw_one(draw: random.Random, number: int) -> ProbeResults:
        probed = _drawn_results(draw, draw.sample(range(50, 600, 10), PATHS))
        probed = probed._replace(using=draw.randrange(PATHS), own=draw.randrange(100, 800, 50))
        matters = probed.index_of_best_path != probed._replace(own=0).index_of_best_path
        return probed if matters == bool(number % 2) else draw_one(draw, number)

    return path_choice_cases(work, "own", draw_one)


def path_choice_cases(
    work: Work, name: str, draw_one: Callable[[random.Random, int], ProbeResults]
) -> list[GradedCase]:
    """Return test cases of path choice with an unambiguous right answer."""
    draw = work.draw(name)
    cases: list[GradedCase] = []
    while len(cases) < CHOICES:
        probed = draw_one(draw, len(cases))
        if probed.free.count(None) == PATHS or probed.is_unambiguous:
            cases.append(_choice_case(work, probed))
    return cases


def _drawn_results(draw: random.Random, free: Sequence[int | None]) -> ProbeResults:
    """Return probe results for the paths of a random pair, whose lengths differ."""
    bcube = bcube_of(CHOICE)
    source, destination = common_pair(bcube, draw)
    return ProbeResults(source, path_set(bcube, source, destination), free, None)


def _choice_case(work: Work, probed: ProbeResults) -> GradedCase:
    ports, bcube = cabling.cabling_of_sheet(work.values), bcube_of(CHOICE)
    paths = [ports.hops_in_student_ports(bcube, path) for path in probed.paths]
    free = [None if mbit is None else mbit * MEGABIT for mbit in probed.free]

    def judge() -> Judgement:
        got = work.call("choose", paths, free, probed.using, probed.own * MEGABIT, paths=0)
        return all_or_nothing(
            _same_choice(got, probed.index_of_best_path),
            f"{got!r:.30}, by the rule {probed.index_of_best_path}",
        )

    hops = " ".join(str(len(path)) for path in probed.paths)
    asked = f"choose, hops {hops}, free Mbit/s {' '.join(map(str, probed.free))}"
    return GradedCase(f"{asked}, using {probed.using}, own {probed.own}", judge)


def _same_choice(got: object, wanted: int | None) -> bool:
    return got is None if wanted is None else got == wanted and not isinstance(got, bool)


CHECKS = (
    GradedPart("BuildPathSet", 35, path_set_cases),
    GradedPart("BuildPathSet in a network of another size", 10, other_size_cases),
    GradedPart("the path with the most available bandwidth", 10, most_bandwidth_cases),
    GradedPart("paths with equal available bandwidth", 8, equal_bandwidth_cases),
    GradedPart("a source's own traffic", 7, own_traffic_cases),
    GradedPart("packets around busy links", 15, bcube_flows.loaded_port_cases),
    GradedPart("packets around failures", 15, bcube_flows.failure_cases),
)
LIVE = (
    GradedPart("live: the best path", 10, bcube_flows.live_ping_cases),
    GradedPart("live: a busy link", 10, bcube_flows.live_load_cases),
    GradedPart("live: a cable is cut", 10, bcube_flows.live_cut_cable_cases),
)
