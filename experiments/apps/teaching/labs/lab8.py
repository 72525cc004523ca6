"""Lab 8: a student's own network and a router for it, tested against the contracts of both."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from functools import partial
from typing import Any

from pillarbox.experiments.apps.teaching.child import StudentError
from pillarbox.experiments.apps.teaching.grading_engine import (
    RIGHT,
    GradedCase,
    GradedPart,
    Judgement,
    Work,
    all_or_nothing,
)
from pillarbox.experiments.apps.teaching.recorded_network import RecordedNetwork
from pillarbox.experiments.apps.teaching.routed_packets import (
    failures_text,
    path_text,
    routed_trips,
)
from pillarbox.experiments.apps.teaching.sealed_router import arrived_path
from pillarbox.experiments.models.comparison.path_metrics import diameter, disjoint_paths
from pillarbox.hosts.base.failures import NONE, Failures
from pillarbox.hosts.base.path import Path
from pillarbox.hosts.base.shortest import shortest_path
from pillarbox.hosts.base.timers import FAST
from pillarbox.hosts.memory.memory_network import Trip
from pillarbox.topos.base.topology import Topology

TITLE = "Design your own network"
FOLDER = "8-own-network"
MODULES = (
    "pillarbox.topos.base.errors",
    "pillarbox.topos.base.layout",
    "pillarbox.topos.base.polymorphic",
    "pillarbox.topos.base.topology",
    "pillarbox.hosts.base.hop_by_hop",
    "pillarbox.hosts.base.path",
)
NETWORKS: tuple[str, ...] = ()

SERVER_PORTS, SWITCH_PORTS, DISJOINT = 2, 4, 2
# Requirements for the student's topology: minimum and maximum number of servers, and maximum number
# of hops. No network of Pillarbox has such a size with as few hops and ports.
BRIEFS = ((25, 30, 3), (26, 30, 3), (33, 40, 4), (34, 40, 4), (36, 44, 4))
SPEC = re.compile(r"[a-z]\w{0,20}(,(\w{1,20}=)?\d{1,6}){1,8}", re.ASCII)
MOST_SIZES = 3  # maximum number of graded network sizes of the student's class
PACKETS, OTHER_PACKETS, FAULTY_PACKETS = 160, 40, 8
APART = "not all servers reach one another"
# Time for neighbours to detect a failed server and to notify others, in seconds.
HEARD_S = FAST.neighbour_timeout_s + 4 * FAST.heartbeat_s

Pair = tuple[int, int]


def values(draw: random.Random) -> dict[str, Any]:
    """Draw the requirements that the topology of a student's class has to meet."""
    least, most, hops = draw.choice(BRIEFS)
    return {
        "servers at least": least,
        "servers at most": most,
        "hops at most": hops,
        "ports of a server at most": SERVER_PORTS,
        "ports of a switch at most": SWITCH_PORTS,
        "disjoint paths at least": DISJOINT,
        "cables between switches": 0,
    }


# -- the network ---------------------------------------------------------------------------------


def example_networks(work: Work) -> list[RecordedNetwork]:
    """Return the example networks of the student's class, recorded once for all checks."""
    if "sizes" not in work.kept:
        examples = work.attribute("examples")
        specs = list(dict.fromkeys(map(str, examples))) if isinstance(examples, list) else []
        if len(specs) < 2 or not all(map(SPEC.fullmatch, specs)):
            wanted = "two sizes or more, the sheet's first, like mine,4,2"
            raise StudentError(f"`examples` is {examples!r:.60}: return {wanted}")
        work.kept["sizes"] = [RecordedNetwork(work, spec) for spec in specs[:MOST_SIZES]]
    found: list[RecordedNetwork] = work.kept["sizes"]
    return found


def requirement_cases(work: Work) -> list[GradedCase]:
    """Test cases that compare the first example network with the lab sheet's requirements."""
    first, *others = example_networks(work)
    sheet = work.values
    apart, hops = disjoint_paths_and_diameter(first)
    wrong_of = {
        "ports of a server": _maximum_error(first.ports, sheet["ports of a server at most"]),
        "ports of a switch": _maximum_error(first.switch_ports, sheet["ports of a switch at most"]),
        "servers": _minimum_error(first.servers, sheet["servers at least"])
        or _maximum_error(first.servers, sheet["servers at most"]),
        "hops": _maximum_error(hops, sheet["hops at most"]) if hops else APART,
        "disjoint paths": _minimum_error(apart, sheet["disjoint paths at least"]),
    }
    given = [network.servers for network in (first, *others)]
    same = (
        f"the examples have {given} servers: all sizes have to differ"
        if len(set(given)) < len(given)
        else ""
    )
    cases = [_decided_case(f"{first.spec}, {name}", wrong) for name, wrong in wrong_of.items()]
    return [*cases, _decided_case("examples", same)]


def disjoint_paths_and_diameter(network: RecordedNetwork) -> tuple[int, int]:
    """Return a network's fewest disjoint paths of any pair and its diameter (both 0 if split)."""
    hops = diameter(network).value if network.cables else None
    return (disjoint_paths(network).least or 0, hops) if hops else (0, 0)


def _maximum_error(value: int, most: int) -> str:
    return f"{value}, at most {most} are allowed" if value > most else ""


def _minimum_error(value: int, least: int) -> str:
    return f"{value}, at least {least} are required" if value < least else ""


def _decided_case(asked: str, wrong: str) -> GradedCase:
    """Return a test case with a known result: right if the error text `wrong` is empty."""
    return GradedCase(asked, lambda: all_or_nothing(not wrong, wrong))


def cable_cases(work: Work) -> list[GradedCase]:
    """Test cases that check each cable of the student's class from both ends."""
    return [case for network in example_networks(work) for case in _wiring_cases(network)]


def _wiring_cases(network: RecordedNetwork) -> Iterator[GradedCase]:
    for node in range(network.nodes):
        lonely = "" if any(network.neighbours(node)) else f"{network.node_name(node)} has no cable"
        yield _decided_case(f"{network.spec}, wiring", network.contradictions.get(node, lonely))
    agree = network.cables == network.claimed_cables
    wrong = f"cables is {network.claimed_cables}, {network.cables} are wired and agree"
    yield _decided_case(f"{network.spec}, number of cables", "" if agree else wrong)


def address_cases(work: Work) -> list[GradedCase]:
    """Test cases for the address digits of every server, and for the server with these digits."""
    return [
        _decided_case(f"{network.spec}, addresses", network.misaddressed.get(server, ""))
        for network in example_networks(work)
        for server in range(network.servers)
    ]


def claimed_bound_cases(work: Work) -> list[GradedCase]:
    """Test cases that compare the bounds claimed by the student's class with a search."""
    cases = []
    for network in example_networks(work):
        apart, hops = disjoint_paths_and_diameter(network)
        asked = (("diameter_bound", hops, True), ("disjoint_paths", apart, False))
        for name, found, upper in asked:
            judge = partial(_judged_bound, work, network, name, found, upper)
            cases.append(GradedCase(f"{network.spec}, {name}()", judge))
    return cases


def claimed_bound(work: Work, network: RecordedNetwork, name: str) -> float:
    """Return the value of a bound that the student's class claims."""
    bound = work.attribute(name, network=network.spec)
    value = bound[0] if isinstance(bound, list) and bound else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
        raise StudentError(f"{bound!r:.60} is not a Bound with a value above 0")
    return float(value)


def _judged_bound(
    work: Work, network: RecordedNetwork, name: str, found: int, upper: bool
) -> Judgement:
    """Judge a claimed bound: no points if violated, half of them if twice as wide as needed."""
    value = claimed_bound(work, network, name)
    if not found:
        return Judgement(0.0, APART)
    share = found / value if upper else value / found
    return Judgement(share if share <= 1 else 0.0, f"it says {value:g}, a search finds {found}")


# -- packets -------------------------------------------------------------------------------------


def packet_cases(work: Work) -> list[GradedCase]:
    """Test cases with packets between servers, each within the hops that the class claims."""
    cases: list[GradedCase] = []
    for network, many in zip(example_networks(work), (PACKETS, OTHER_PACKETS), strict=False):
        try:
            hops = claimed_bound(work, network, "diameter_bound")
        except StudentError:
            hops = (
                0.0  # Without a bound from the student's class, no packet gets points for its hops.
            )
        pairs = _sampled_pairs(network, work.draw(f"packets {network.spec}"), many)
        found = routed_trips(work, network, NONE, pairs)
        paths = work.kept.setdefault(network.spec, [])
        cases += [_packet_case(network, found, pair, hops, paths) for pair in pairs]
    return cases


def _sampled_pairs(network: Topology, draw: random.Random, many: int) -> list[Pair]:
    servers = range(network.servers)
    every = [(a, b) for a in servers for b in servers if a != b]
    return draw.sample(every, min(many, len(every)))


def _packet_case(
    network: RecordedNetwork, found: Iterator[Trip], pair: Pair, hops: float, paths: list[Path]
) -> GradedCase:
    """Return the test case of one packet: half of the points are for its arrival."""

    def judge() -> Judgement:
        trip = next(found)
        path, lost = arrived_path(trip)
        if path is None:
            return Judgement(0.0, f"{lost}; so far {path_text(network, trip.path)}")
        paths.append(path)
        said = f"{len(path)} hops, {hops:g} are claimed: {path_text(network, path)}"
        return RIGHT if len(path) <= hops else Judgement(0.5, said)

    ends = " to ".join(map(network.address, pair))
    return GradedCase(f"{network.spec}, packet from {ends}", judge)


# -- faults --------------------------------------------------------------------------------------


def failure_cases(work: Work) -> list[GradedCase]:
    """Test cases in which a relay, switch or cable fails on a path that packets have taken."""
    network, *_ = example_networks(work)
    draw = work.draw("faults")
    paths: list[Path] = work.kept.get(network.spec, [])
    cases: list[GradedCase] = []
    for kind in ("relay", "switch", "cable"):
        choices = [
            failures for path in paths if (failures := _failure_on(network, path, kind, draw))
        ]
        if choices:
            cases += _detour_cases(work, network, draw.choice(choices), paths)
        else:
            wrong = "no packet that arrived passed a {kind}"
            cases.append(_decided_case(f"{network.spec}, a {kind} fails", wrong))
    return cases


def _failure_on(
    network: RecordedNetwork, path: Path, kind: str, draw: random.Random
) -> Failures | None:
    """Return the failure of a random node or cable of one kind on a path, None without any."""
    nodes = path.nodes(network)
    if kind == "cable":
        place = draw.randrange(len(nodes) - 1)
        return Failures(links=frozenset([frozenset(nodes[place : place + 2])]))
    inner = [node for node in nodes[1:-1] if (node < network.servers) == (kind == "relay")]
    return Failures(frozenset([draw.choice(inner)])) if inner else None


def _detour_cases(
    work: Work, network: RecordedNetwork, failures: Failures, paths: list[Path]
) -> list[GradedCase]:
    """Return test cases of packets whose earlier path contained the failed node or cable."""
    alive = [path for path in paths if not failures.nodes & {path.source, path.destination}]
    hit = [path for path in alive if failures.first_on(network, path)][:FAULTY_PACKETS]
    pairs = [(path.source, path.destination) for path in hit]
    found = routed_trips(work, network, failures, pairs, HEARD_S)
    return [_rerouted_packet_case(network, found, pair, failures) for pair in pairs]


def _rerouted_packet_case(
    network: RecordedNetwork, found: Iterator[Trip], pair: Pair, failures: Failures
) -> GradedCase:
    ends = " to ".join(map(network.address, pair))

    def judge() -> Judgement:
        trip = next(found)
        path, lost = arrived_path(trip)
        if path is None and not shortest_path(network, *pair, failures):
            lost = "the network has no path around the failure"
        return all_or_nothing(path is not None, f"{lost}; so far {path_text(network, trip.path)}")

    return GradedCase(
        f"{network.spec}, packet from {ends}{failures_text(network, failures)}", judge
    )


CHECKS = (
    GradedPart("requirements of the sheet", 20, requirement_cases),
    GradedPart("both ends of each cable agree", 20, cable_cases),
    GradedPart("addresses and server numbers match", 10, address_cases),
    GradedPart("bounds that the class claims", 15, claimed_bound_cases),
    GradedPart("packets arrive", 20, packet_cases),
    GradedPart("packets after failures", 15, failure_cases),
)
