"""Lab 2: DPillarSP as a router (Liao 2012, section 3, Algorithm 1)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pillarbox import topos
from pillarbox.experiments.apps.teaching.grading_engine import (
    RIGHT,
    GradedCase,
    GradedPart,
    Judgement,
    Work,
    all_or_nothing,
)
from pillarbox.experiments.apps.teaching.routed_packets import (
    failures_text,
    hop_text,
    path_text,
    routed_trips,
)
from pillarbox.experiments.apps.teaching.sealed_router import arrived_path
from pillarbox.hosts.base.failures import NONE, Failures
from pillarbox.hosts.base.path import Path
from pillarbox.hosts.base.timers import FAST
from pillarbox.hosts.dpillar.paths import sp_path, sp_step
from pillarbox.hosts.memory.memory_network import Trip
from pillarbox.topos.dpillar import CLOCKWISE, COUNTER_CLOCKWISE, DPillar

if TYPE_CHECKING:
    from pillarbox.experiments.apps.teaching.live_grading import LiveWork

TITLE = "DPillarSP"
FOLDER = "2-dpillar-sp"
MODULES = (
    "pillarbox.topos.dpillar",
    "pillarbox.hosts.base.hop_by_hop",
    "pillarbox.hosts.base.path",
)
OWN = ("dpillar,8,2", "dpillar,6,2", "dpillar,4,3")
HIDDEN = ("dpillar,4,4", "dpillar,6,3", "dpillar,10,2")
NETWORKS = (*OWN, *HIDDEN)
LIVE_NETWORK = "dpillar,4,2"
DIRECTIONS = {"clockwise": CLOCKWISE, "counter-clockwise": COUNTER_CLOCKWISE}

# Time for neighbours to detect a server's failure by missing heartbeats, in seconds.
HEARD_S = FAST.neighbour_timeout_s + 2 * FAST.heartbeat_s
HOPS, PACKETS, FAULTY, LIVE_PAIRS = 60, 40, 20, 6
INTEROP_PAIRS = 10


def values(draw: random.Random) -> dict[str, Any]:
    """Draw the DPillar of a student's sheet, a routing direction, and an example pair."""
    network = dpillar_of(draw.choice(OWN))
    source, destination = draw.sample(range(network.servers), 2)
    return {
        "network": network.spec,
        "direction": draw.choice(sorted(DIRECTIONS)),
        "source": network.address(source),
        "destination": network.address(destination),
    }


def next_hop_cases(work: Work) -> list[GradedCase]:
    """Test cases for single hops of sent and relayed packets, in the student's network."""
    return random_hop_cases(work, dpillar_of(work.values["network"]), "hops")


def other_size_cases(work: Work) -> list[GradedCase]:
    """Test cases for single hops in a network that is not on the student's sheet."""
    return random_hop_cases(work, dpillar_of(work.draw("size").choice(HIDDEN)), "other hops")


def random_hop_cases(work: Work, network: DPillar, name: str) -> list[GradedCase]:
    """Return test cases for single hops in a DPillar; relayed packets come from either column."""
    draw, own = work.draw(name), DIRECTIONS[work.values["direction"]]
    return [
        _hop_case(work, network, own, _random_pair(draw, range(network.servers)), came_by)
        for came_by in (None, 0, 1)
        for _ in range(HOPS // 3)
    ]


def _hop_case(
    work: Work, network: DPillar, own: int, pair: tuple[int, int], came_by: int | None
) -> GradedCase:
    server, destination = pair
    right = sp_step(network, server, destination, own if came_by is None else 1 - came_by)
    origin = "its own packet" if came_by is None else f"a packet that came by port {came_by}"
    ends = network.address(server), network.address(destination)

    def judge() -> Judgement:
        got = work.step(network, server, destination, came_by)
        wanted = [right.port, right.peer]
        texts = hop_text(network, got), hop_text(network, wanted)
        return all_or_nothing(got == wanted, "it goes to {}, by Algorithm 1 to {}".format(*texts))

    return GradedCase(f"{network.spec}, server {ends[0]}, {origin} to {ends[1]}", judge)


def packet_cases(work: Work) -> list[GradedCase]:
    """Test cases with packets that have to arrive over the servers of DPillar's algorithm."""
    network, draw = dpillar_of(work.values["network"]), work.draw("packets")
    servers = range(network.servers)
    return sent_packet_cases(
        work, network, [_random_pair(draw, servers) for _ in range(PACKETS)], NONE
    )


def dead_server_cases(work: Work) -> list[GradedCase]:
    """Test cases with a dead server on the paths of half of the packets."""
    network, draw = dpillar_of(work.values["network"]), work.draw("faults")
    dead = draw.randrange(network.servers)
    alive = [server for server in range(network.servers) if server != dead]
    port = DIRECTIONS[work.values["direction"]]
    pairs: list[tuple[int, int]] = []
    while len(pairs) < FAULTY:
        a, b = _random_pair(draw, alive)
        inner = sp_path(network, a, b, port).servers[1:-1]
        # A packet's first relay stays alive: otherwise a router that sends nothing would be right.
        if (dead in inner[1:]) if len(pairs) % 2 else (dead not in inner):
            pairs.append((a, b))
    return sent_packet_cases(work, network, pairs, Failures(frozenset([dead])))


def _random_pair(draw: random.Random, servers: Any) -> tuple[int, int]:
    a, b = draw.sample(servers, 2)
    return a, b


def sent_packet_cases(
    work: Work, network: DPillar, pairs: list[tuple[int, int]], failures: Failures
) -> list[GradedCase]:
    """Return a test case for each of many packets through a simulated DPillar."""
    port = DIRECTIONS[work.values["direction"]]
    found = routed_trips(work, network, failures, pairs, HEARD_S)
    return [_packet_case(network, found, sp_path(network, a, b, port), failures) for a, b in pairs]


def _packet_case(
    network: DPillar, found: Iterator[Trip], right: Path, failures: Failures
) -> GradedCase:
    """Return the test case of a packet; half of the points are for hops before the first error."""
    reach = _reachable_hops(network, right, failures)
    ends = network.address(right.source), network.address(right.destination)

    def judge() -> Judgement:
        trip = next(found)
        path, lost = arrived_path(trip)
        same = _right_hops(trip.path, right, reach)
        texts = path_text(network, trip.path), path_text(network, right)
        if same == reach == len(trip.steps) and (path is None) == (reach < len(right)):
            return RIGHT
        said = f"it went {texts[0]}, by Algorithm 1 {texts[1]}" + (f"; {lost}" if lost else "")
        return Judgement(same / reach / 2, said)

    asked = f"{network.spec}, packet from {ends[0]} to {ends[1]}{failures_text(network, failures)}"
    return GradedCase(asked, judge)


def _reachable_hops(network: DPillar, path: Path, failures: Failures) -> int:
    """Return the number of hops on a path before its first failed node or link."""
    hops = zip(path.servers, path.steps, strict=False)
    stops = (i for i, hop in enumerate(hops) if failures.of_hop(network, *hop))
    return next(stops, len(path))


def _right_hops(path: Path, right: Path, reach: int) -> int:
    hops = zip(path.steps, right.steps[:reach], strict=False)
    return next((i for i, (a, b) in enumerate(hops) if a != b), min(len(path), reach))


# -- live ----------------------------------------------------------------------------------------


def live_packet_cases(work: LiveWork) -> list[GradedCase]:
    """Test cases with pings and path traces in a live network."""
    network = dpillar_of(work.lab.topology.spec)
    draw = random.Random(f"live/{work.sheet.student}")
    pairs = [_random_pair(draw, range(network.servers)) for _ in range(LIVE_PAIRS)]
    work.wait_for_pings(*pairs)  # waits until all routers have received heartbeats
    return [_live_packet_case(work, _live_path(work, network, pair)) for pair in pairs]


def interoperation_cases(work: LiveWork) -> list[GradedCase]:
    """Test cases with packets between servers of two students, over relays of both."""
    network = dpillar_of(work.lab.topology.spec)
    half = network.servers // 2
    ends = range(half), range(half, network.servers)
    draw = random.Random(f"interop/{work.sheet.student}")
    pairs = [tuple(map(draw.choice, ends[:: 1 - 2 * (i % 2)])) for i in range(INTEROP_PAIRS)]
    paths = [_live_path(work, network, (a, b)) for a, b in pairs]
    work.wait_for_pings(*((path.source, path.destination) for path in paths))
    return [_live_packet_case(work, path) for path in paths]


def live_cut_cable_cases(work: LiveWork) -> list[GradedCase]:
    """Test cases with a cut cable: only pings over the cable fail, and resume after the repair."""
    network = dpillar_of(work.lab.topology.spec)
    draw = random.Random(f"live cut/{work.sheet.student}")
    pairs = [(a, b) for a in range(network.servers) for b in range(network.servers) if a != b]
    draw.shuffle(pairs)
    over = next(path for pair in pairs if len(path := _live_path(work, network, pair)) > 2)
    server, port = over.servers[1], over.steps[1].port
    cable = server, network.server_plug(server, port).node
    failures = Failures(links=frozenset([frozenset(cable)]))

    def avoids(pair: tuple[int, int]) -> bool:
        both = _live_path(work, network, pair), _live_path(work, network, pair[::-1])
        return not any(failures.first_on(network, path) for path in both)

    other = next(pair for pair in pairs if avoids(pair))
    return _cut_cases(work, (over.source, over.destination), other, cable)


def _cut_cases(
    work: LiveWork, over: tuple[int, int], other: tuple[int, int], cable: tuple[int, int]
) -> list[GradedCase]:
    name = work.lab.name
    cut, a, b, c, d = map(name, (cable[0], *over, *other))
    faults = []

    def lost() -> Judgement:
        if not work.wait_for_pings(over):
            return Judgement(0.0, "it is not answered before the cut")
        faults.append(work.lab.cut(*cable))
        return all_or_nothing(not work.pings(*over), "it is answered over a cable that is cut")

    def unharmed() -> Judgement:
        return all_or_nothing(work.pings(*other), "it is lost, although its path is intact")

    def again() -> Judgement:
        for fault in faults:
            work.lab.end(fault)
        return all_or_nothing(
            work.wait_for_pings(over), "it is not answered when the cable is back"
        )

    at = f"cable of {cut} to {name(cable[1])}"
    return [
        GradedCase(f"ping {a} to {b}, {at} cut", lost),
        GradedCase(f"ping {c} to {d}, {at} cut", unharmed),
        GradedCase(f"ping {a} to {b}, {at} plugged in again", again),
    ]


def _live_path(work: LiveWork, network: DPillar, pair: tuple[int, int]) -> Path:
    sheet = work.sheet_at(pair[0])
    return sp_path(network, *pair, DIRECTIONS[sheet.values["direction"]])


def _live_packet_case(work: LiveWork, right: Path) -> GradedCase:
    network = work.lab.topology
    ends = right.source, right.destination
    wanted = [network.address(server) for server in right.servers]

    def judge() -> Judgement:
        if not work.pings(*ends):
            return Judgement(0.0, "the ping is not answered")
        path, lost = work.traced_path(*ends)
        said = f"it went {' '.join(path)}, by Algorithm 1 {' '.join(wanted)}"
        return all_or_nothing(path == wanted and not lost, f"{said}; {lost}")

    return GradedCase(f"{network.spec}, live, {wanted[0]} to {wanted[-1]}", judge)


def dpillar_of(spec: str) -> DPillar:
    """Return the DPillar network of a spec such as ``dpillar,4,2``."""
    network = topos.parse(spec)
    assert isinstance(network, DPillar)
    return network


CHECKS = (
    GradedPart("next hops", 40, next_hop_cases),
    GradedPart("next hops in a network of another size", 15, other_size_cases),
    GradedPart("packets arrive over the right servers", 30, packet_cases),
    GradedPart("a failed server", 15, dead_server_cases),
)
LIVE = (
    GradedPart("live: pings", 10, live_packet_cases),
    GradedPart("live: a cable is cut", 10, live_cut_cable_cases),
)
INTEROP = (GradedPart("live: with another student's router", 20, interoperation_cases),)
