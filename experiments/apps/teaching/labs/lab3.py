"""Lab 3: disjoint paths, and another path after a failure (Liao 2012, 4; Guo 2009, 3.3)."""

from __future__ import annotations

import random
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, NamedTuple

from pillarbox import topos
from pillarbox.experiments.apps.teaching import cabling
from pillarbox.experiments.apps.teaching.cabling import Link
from pillarbox.experiments.apps.teaching.child import StudentError
from pillarbox.experiments.apps.teaching.grading_engine import (
    GradedCase,
    GradedPart,
    Judgement,
    Work,
    all_or_nothing,
)
from pillarbox.experiments.apps.teaching.routed_packets import path_of, path_text
from pillarbox.experiments.apps.teaching.sealed_router import is_integer_below
from pillarbox.hosts.base import algorithms
from pillarbox.hosts.base.path import Path, disjoint
from pillarbox.topos.base.topology import Topology

TITLE = "Disjoint paths and failover"
FOLDER = "3-disjoint-paths"
MODULES = ("pillarbox.topos.dpillar", "pillarbox.topos.bcube", "pillarbox.hosts.base.path")


class NetworkFamily(NamedTuple):
    """Networks of one kind (such as BCube), and the bounds of their paper for disjoint paths."""

    own: tuple[str, ...]
    hidden: tuple[str, ...]
    detour: int  # maximum number of hops by which a disjoint path exceeds the diameter
    ends_shared: bool  # True if disjoint paths may share the first and the last switch


FAMILIES = {
    "dpillar": NetworkFamily(
        ("dpillar,8,2", "dpillar,6,3"), ("dpillar,4,4", "dpillar,10,2"), 2, True
    ),
    "bcube": NetworkFamily(("bcube,4,2", "bcube,5,1"), ("bcube,3,3", "bcube,6,1"), 1, False),
}
NETWORKS = tuple(spec for family in FAMILIES.values() for spec in (*family.own, *family.hidden))
PAIRS, FAULTS, OTHER_PAIRS = 30, 30, 12
MOST_PATHS = 64  # maximum number of paths in an answer of the student's `path_set`


def values(draw: random.Random) -> dict[str, Any]:
    """Draw the network of a student's sheet, and a pair of servers for an example by hand."""
    family = FAMILIES[draw.choice(list(FAMILIES))]
    network = topos.parse(draw.choice(family.own))
    a, b = far_pair(network, draw)
    return {
        "network": network.spec,
        "source": network.address(a),
        "destination": network.address(b),
        "disjoint paths": disjoint_path_count(network),
        "hops at most": path_length_bound(network),
        cabling.NAME: cabling.random_cabling(draw, network),
    }


def disjoint_path_count(network: Topology) -> int:
    """Return the number of disjoint paths between two servers, according to the network's paper."""
    return int(network.disjoint_paths().value or 0)


def path_length_bound(network: Topology) -> int:
    """Return the upper bound of the network's paper for the length of disjoint paths, in hops."""
    return int(network.diameter_bound().value or 0) + FAMILIES[network.kind].detour


def far_pair(network: Topology, draw: random.Random) -> tuple[int, int]:
    """Return two random servers without a common switch (DPillar has fewer paths for others)."""
    while True:
        a, b = draw.sample(range(network.servers), 2)
        if all(b not in network.peers(a, port) for port in range(network.ports)):
            return a, b


# -- the paths ---------------------------------------------------------------------------------


class PathSetAnswer(NamedTuple):
    """Result of the student's `path_set`: its valid paths, and its errors."""

    paths: list[Path]
    returned: int
    wrong: str


def path_set_answer(work: Work, network: Topology, source: int, destination: int) -> PathSetAnswer:
    """Call the student's `path_set` for two servers; return the valid paths and the errors."""
    found = work.call("path_set", source, destination, network=network.spec)
    if not isinstance(found, list) or len(found) > MOST_PATHS:
        return PathSetAnswer([], 0, f"{found!r:.60} is not a list of paths")
    paths: list[Path] = []
    wrong, ports = "", cabling.cabling_of_sheet(work.values)
    for steps in found:
        path, why = path_of(network, source, destination, steps, ports)
        if path and path in paths:
            why = f"{path_text(network, path)} occurs twice"
        elif path:
            paths.append(path)
        wrong = wrong or why
    return PathSetAnswer(paths, len(found), wrong)


def disjoint_subset(network: Topology, paths: list[Path]) -> list[Path]:
    """Return the disjoint paths; they may share only the nodes that the network's paper allows."""
    kept: list[Path] = []
    for path in paths:
        if disjoint(network, [*kept, path], shared=_shared_end_switches(network, [*kept, path])):
            kept.append(path)
    return kept


def _shared_end_switches(network: Topology, paths: list[Path]) -> set[int]:
    if not FAMILIES[network.kind].ends_shared:
        return set()
    nodes = paths[0].nodes(network)
    return {nodes[1], nodes[-2]}


# -- the checks --------------------------------------------------------------------------------


def valid_path_cases(work: Work) -> list[GradedCase]:
    """Test cases for valid paths: existing cables, no server twice, the right destination."""

    def judge(network: Topology, found: PathSetAnswer) -> Judgement:
        share = len(found.paths) / max(found.returned, disjoint_path_count(network))
        return Judgement(share, found.wrong or _path_counts_text(network, found.paths))

    return path_set_cases(work, "real", judge)


def disjointness_cases(work: Work) -> list[GradedCase]:
    """Test cases for disjoint paths: no two paths share a server or a switch."""
    return path_set_cases(work, "separate", _judged_disjointness)


def _judged_disjointness(network: Topology, found: PathSetAnswer) -> Judgement:
    kept = disjoint_subset(network, found.paths)
    meets = next((path_text(network, path) for path in found.paths if path not in kept), "")
    said = f"{meets} shares a server or switch with one before it" if meets else ""
    share = len(kept) / max(found.returned, disjoint_path_count(network))
    return Judgement(share, said or found.wrong or _path_counts_text(network, found.paths))


def path_length_cases(work: Work) -> list[GradedCase]:
    """Test cases for path lengths, which the network's paper bounds."""

    def judge(network: Topology, found: PathSetAnswer) -> Judgement:
        bound = path_length_bound(network)
        fits = [path for path in found.paths if len(path) <= bound]
        too_long = [path for path in found.paths if len(path) > bound]
        said = f"{len(too_long[0])} hops, {bound} are enough" if too_long else found.wrong
        share = len(fits) / max(found.returned, disjoint_path_count(network))
        return Judgement(share, said or _path_counts_text(network, found.paths))

    return path_set_cases(work, "short", judge)


def other_size_cases(work: Work) -> list[GradedCase]:
    """Test cases for disjoint paths in a network of another size."""
    hidden = FAMILIES[topos.parse(work.values["network"]).kind].hidden
    network = topos.parse(work.draw("size").choice(hidden))
    return path_set_cases(work, "other", _judged_disjointness, network, OTHER_PAIRS)


def _path_counts_text(network: Topology, paths: list[Path]) -> str:
    return f"{len(paths)} paths, there are {disjoint_path_count(network)}"


def path_set_cases(
    work: Work, name: str, judge: Any, network: Topology | None = None, many: int = PAIRS
) -> list[GradedCase]:
    """Return a test case of the student's `path_set` for each of `many` pairs of servers."""
    own = network or topos.parse(work.values["network"])
    draw = work.draw(name)

    def case(source: int, destination: int) -> GradedCase:
        ends = f"{own.address(source)} to {own.address(destination)}"
        return GradedCase(
            f"{own.spec}, paths from {ends}",
            lambda: judge(own, path_set_answer(work, own, source, destination)),
        )

    return [case(*far_pair(own, draw)) for _ in range(many)]


def failover_cases(work: Work) -> list[GradedCase]:
    """Test cases of path choice with failed links, in a third of the cases on all paths.

    The paths are the student's own, or the paper's if `path_set` does not find enough. So
    `choose` is marked even if `path_set` is wrong.
    """
    network, draw = topos.parse(work.values["network"]), work.draw("failover")
    many = disjoint_path_count(network)
    numbers = [many if i % 3 == 2 else 1 + draw.randrange(many - 1) for i in range(FAULTS)]
    return [_failover_case(work, network, far_pair(network, draw), n, draw) for n in numbers]


def _failover_case(
    work: Work, network: Topology, pair: tuple[int, int], failing: int, draw: random.Random
) -> GradedCase:
    places = [(draw.random(), draw.random()) for _ in range(MOST_PATHS)]
    a, b = map(network.address, pair)

    def judge() -> Judgement:
        paths: list[Path] = []
        with suppress(StudentError):  # The student's `path_set` may be missing or fail.
            paths = path_set_answer(work, network, *pair).paths
        if len(paths) < disjoint_path_count(network):
            paths = _paths_of_the_paper(network, *pair)
        order = sorted(range(len(paths)), key=lambda i: places[i][0])
        failed = {_link_at(paths[i], places[i][1]) for i in order[:failing]}
        return _judged_choices(work, network, paths, failed)

    return GradedCase(f"{network.spec}, {a} to {b}, {failing} of its paths fail", judge)


def _paths_of_the_paper(network: Topology, source: int, destination: int) -> list[Path]:
    name = algorithms.choose(network, None, several=True, opposite=False)
    return algorithms.route(network, name, source, destination, several=True).paths


def _links_of_path(path: Path) -> list[Link]:
    return [(server, *step[:2]) for server, step in zip(path.servers, path.steps, strict=False)]


def _link_at(path: Path, place: float) -> Link:
    return _links_of_path(path)[int(place * len(path))]


def _judged_choices(
    work: Work, network: Topology, paths: list[Path], failed: set[Link]
) -> Judgement:
    """Judge a student's path choices; each choice of a failed path reveals one more failed link."""
    known: list[Link] = []
    ports = cabling.cabling_of_sheet(work.values)
    plain = [ports.hops_in_student_ports(network, path) for path in paths]
    works = [not failed.intersection(_links_of_path(path)) for path in paths]
    for _ in range(len(paths) + 1):
        heard = ports.links_in_student_ports(network, known)
        choice = work.call("choose", paths[0].source, plain, heard, paths=1)
        if choice is None:
            told_of_all = all(set(known).intersection(_links_of_path(path)) for path in paths)
            return all_or_nothing(
                told_of_all, "it gave up, although a path is not known to have failed"
            )
        if not is_integer_below(choice, len(paths)):
            return Judgement(0.0, f"{choice!r:.30} is not the number of a path, nor None")
        if set(known).intersection(_links_of_path(paths[choice])):
            return Judgement(0.0, f"it chose path {choice}, which was reported as failed")
        if works[choice]:
            return all_or_nothing(True, "")
        known.append(_first_failed(failed, _links_of_path(paths[choice])))
    return Judgement(0.0, "it exceeded the number of choices")


def _first_failed(failed: set[Link], links: Iterable[Link]) -> Link:
    return next(link for link in links if link in failed)


CHECKS = (
    GradedPart("paths are real", 20, valid_path_cases),
    GradedPart("paths are disjoint", 35, disjointness_cases),
    GradedPart("paths are short", 15, path_length_cases),
    GradedPart("another path after a failure", 20, failover_cases),
    GradedPart("a network of another size", 10, other_size_cases),
)
