"""Flows in BCubes whose servers call a student's file: lab 5, in memory and live.

Every server runs `Source`, which sends real probes. Loads and failures are seeded, and unknown to
all servers at first.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pillarbox import topos
from pillarbox.experiments.apps.teaching.grading_engine import (
    RIGHT,
    GradedCase,
    Judgement,
    Work,
    all_or_nothing,
)
from pillarbox.experiments.apps.teaching.labs.bcube_source import NO_PATH, BCubeSourceRouter
from pillarbox.experiments.apps.teaching.routed_packets import failures_text, path_text
from pillarbox.experiments.apps.teaching.sealed_router import arrived_path
from pillarbox.hosts.base.failures import NONE, Failures
from pillarbox.hosts.base.path import Path
from pillarbox.hosts.base.probing import NEARLY_BEST
from pillarbox.hosts.base.router import GIGABIT_BPS
from pillarbox.hosts.base.timers import FAST
from pillarbox.hosts.bcube.paths import path_set
from pillarbox.hosts.memory.memory_network import MemoryNetwork, Trip
from pillarbox.topos.bcube import BCube

if TYPE_CHECKING:
    from pillarbox.experiments.apps.teaching.live_grading import LiveWork

NETWORK = "bcube,3,2"
BUSY, FLOWS = 3, 5  # number of BCubes with loaded links, and of flows in each
# number of BCubes with faults; True if a flow keeps a path, by flow
FAULTY, LEFT = (6, (True, True, False))
MEGABIT = 10**6
LOADS_MBIT = (0, 0, 200, 400, 600, 800)
NO_LOAD = 0.0, 0.0
LEARNED_S = 0.12  # time until the ports' byte counters show the load, in seconds
PROBED_S = 2 * FAST.probe_timeout_s
HEARD_S = FAST.neighbour_timeout_s + 2 * FAST.heartbeat_s
ANSWERED_S = 0.01  # time for a BCube probe response to pass a few hops, in seconds
FIRST_PORT = 4000
LIVE_PAIRS = 4
LIVE_LOAD = 0.3  # live load as a fraction of a cable's rate; routers ignore less than 10 %

Pair = tuple[int, int]
# Background load into and out of a port in bit/s, by server and port.
Loads = dict[tuple[int, int], tuple[float, float]]


def bcube_of(spec: str) -> BCube:
    """Return the BCube network of a spec such as ``bcube,3,2``."""
    network = topos.parse(spec)
    assert isinstance(network, BCube)
    return network


def pair_of(bcube: BCube, draw: random.Random) -> Pair:
    """Return two random servers of a BCube."""
    a, b = draw.sample(range(bcube.servers), 2)
    return a, b


class FlowScene:
    """Simulated BCube with flows of the student's router, over loaded or failing links.

    Servers detect loads and failures by their probes and by the reports of relays.
    """

    def __init__(self, work: Work, pairs: Sequence[Pair], loads: Loads, failures: Failures) -> None:
        self.work, self.pairs, self.loads, self.failures = work, pairs, loads, failures
        self.bcube = bcube_of(NETWORK)

    @cached_property
    def trips(self) -> list[Trip]:
        """Path and arrival of the last packet of each simulated flow."""

        def make(bcube: Any, server: int) -> BCubeSourceRouter:
            return BCubeSourceRouter(bcube, server, student=self.work, timers=FAST)

        network = MemoryNetwork(self.bcube, make)
        network.load_bps.update(self.loads)
        network.run(LEARNED_S if self.loads else 0.0)
        self._send(network)
        network.run(PROBED_S)
        if self.failures != NONE:
            network.fail(self.failures)
            network.run(HEARD_S)
            for _ in range(
                self.bcube.k + 1
            ):  # Each packet of the flow may reveal another failed link to its source.
                self._send(network)
                network.run(ANSWERED_S)
        trips = self._send(network)
        network.run(ANSWERED_S)
        return trips

    def _send(self, network: MemoryNetwork) -> list[Trip]:
        return [
            network.send_udp(*pair, source_port=FIRST_PORT + i) for i, pair in enumerate(self.pairs)
        ]

    def case(self, number: int) -> GradedCase:
        """Return the test case of a flow, which has to use a path with the most free bandwidth."""
        bcube, (a, b) = self.bcube, self.pairs[number]
        right = best_paths(bcube, (a, b), self.loads, self.failures)

        def judge() -> Judgement:
            trip = self.trips[number]
            path, lost = arrived_path(trip)
            if not right:
                said = (
                    f"no path works; the reason given: {lost}"
                    if lost
                    else "it was sent although no path works"
                )
                return all_or_nothing(lost == NO_PATH, said)
            if path in right:
                return RIGHT
            texts = [path_text(bcube, path) for path in (trip.path, right[0])]
            said = f"it went {texts[0]}, the best is {texts[1]}" + (f"; {lost}" if lost else "")
            return Judgement(
                max(_common_hops(trip.path, one) / len(one) for one in right) / 2, said
            )

        busy = f", {_loads_text(right, self.loads)}" if self.loads else ""
        ends = f"{bcube.address(a)} to {bcube.address(b)}"
        return GradedCase(f"{bcube.spec}, {ends}{failures_text(bcube, self.failures)}{busy}", judge)


def best_paths(
    bcube: BCube,
    pair: Pair,
    loads: Loads,
    failures: Failures,
    rate_bps: float = GIGABIT_BPS,
) -> list[Path]:
    """Return the shortest working paths with the highest available bandwidth, within 10 %."""
    working = [path for path in path_set(bcube, *pair) if not failures.first_on(bcube, path)]
    if not working:
        return []
    free = {path: free_bps(path, loads, rate_bps) for path in working}
    good = [path for path in working if free[path] >= NEARLY_BEST * max(free.values())]
    return [path for path in good if len(path) == min(map(len, good))]


def free_bps(path: Path, loads: Loads, rate_bps: float = GIGABIT_BPS) -> float:
    """Return a path's available bandwidth under background load in bit/s (minimum of its ports)."""
    used = [0.0]
    for server, step in zip(path.servers, path.steps, strict=False):
        used.append(loads.get((server, step.port), NO_LOAD)[1])
        used.append(loads.get((step.peer, step.port), NO_LOAD)[0])
    return rate_bps - max(used)


def _common_hops(path: Path, other: Path) -> int:
    pairs = enumerate(zip(path.steps, other.steps, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(path), len(other)))


def _loads_text(right: Sequence[Path], loads: Loads) -> str:
    mbit = free_bps(right[0], loads) / MEGABIT
    return f"{mbit:g} Mbit/s free on the best path"


def loaded_port_cases(work: Work) -> list[GradedCase]:
    """Test cases with loaded ports: each flow's first path has less free bandwidth than another."""
    bcube, draw = bcube_of(NETWORK), work.draw("busy")
    cases: list[GradedCase] = []
    for _ in range(BUSY):
        loads: Loads = {
            (server, port): (draw.choice(LOADS_MBIT) * MEGABIT, draw.choice(LOADS_MBIT) * MEGABIT)
            for server in range(bcube.servers)
            for port in range(bcube.ports)
        }
        pairs: list[Pair] = []
        while len(pairs) < FLOWS:
            pair = pair_of(bcube, draw)
            if path_set(bcube, *pair)[0] not in best_paths(bcube, pair, loads, NONE):
                pairs.append(pair)
        scene = FlowScene(work, pairs, loads, NONE)
        cases += map(scene.case, range(FLOWS))
    return cases


def failure_cases(work: Work) -> list[GradedCase]:
    """Test cases with failed servers, switches and links on the flows' shortest paths."""
    bcube, draw = bcube_of(NETWORK), work.draw("faults")
    cases: list[GradedCase] = []
    while len(cases) < FAULTY * len(LEFT):
        pairs = [pair_of(bcube, draw) for _ in LEFT]
        failures = _failures(bcube, pairs, draw)
        # A failure on the path of one flow may break paths of other flows too.
        if tuple(bool(best_paths(bcube, pair, {}, failures)) for pair in pairs) == LEFT:
            cases += map(FlowScene(work, pairs, {}, failures).case, range(len(pairs)))
    return cases


def _failures(bcube: BCube, pairs: Sequence[Pair], draw: random.Random) -> Failures:
    """Return failures that break one path of the first flow, two paths of the second, and so on."""
    ends = {end for pair in pairs for end in pair}
    nodes, links = set(), set()
    for number, pair in enumerate(pairs, 1):
        for path in sorted(path_set(bcube, *pair), key=len)[:number]:
            if draw.random() < 0.5:
                nodes.add(draw.choice([node for node in path.nodes(bcube) if node not in ends]))
            else:
                links.add(frozenset(draw.choice(list(pairwise(path.servers)))))
    return Failures(frozenset(nodes), frozenset(links))


# -- live ----------------------------------------------------------------------------------------


def live_ping_cases(work: LiveWork) -> list[GradedCase]:
    """Test cases with pings in a live BCube; flows have to move to the best path.

    In a network without load, the best path is a shortest path.
    """
    bcube = bcube_of(work.lab.topology.spec)
    draw = random.Random(f"live/{work.sheet.student}")
    pairs = [pair_of(bcube, draw) for _ in range(LIVE_PAIRS)]
    work.wait_for_pings(*pairs)  # waits until all routers have received heartbeats
    return [_live_packet_case(work, bcube, pair) for pair in pairs]


def _live_packet_case(work: LiveWork, bcube: BCube, pair: Pair) -> GradedCase:
    def judge() -> Judgement:
        if not work.pings(*pair):
            return Judgement(0.0, "the ping is not answered")
        return _judged_settling(work, pair, best_paths(bcube, pair, {}, NONE))

    return GradedCase(f"{bcube.spec}, live, {' to '.join(map(bcube.address, pair))}", judge)


def live_load_cases(work: LiveWork) -> list[GradedCase]:
    """Test cases that load the first link of a flow's path: the flow has to use another path."""
    bcube = bcube_of(work.lab.topology.spec)
    pair = relayed_pair(bcube, random.Random(f"live busy/{work.sheet.student}"))

    def judge() -> Judgement:
        settled, used = work.wait_for_path(pair, lambda path: len(path) > 2)
        if not settled:
            return Judgement(0.0, f"before, it went {' '.join(used)}")
        source, relay = pair[0], bcube.server(used[1])
        port = next(port for port in range(bcube.ports) if relay in bcube.peers(source, port))
        rate_bps = (work.lab.settings.rate_mbit or 0) * MEGABIT
        load_bps = LIVE_LOAD * rate_bps
        loads = {(source, port): (0.0, load_bps), (relay, port): (load_bps, 0.0)}
        with work.udp_load(source, relay, load_bps):
            return _judged_settling(work, pair, best_paths(bcube, pair, loads, NONE, rate_bps))

    a, b = map(work.lab.name, pair)
    return [GradedCase(f"{a} to {b}, live, the first link of its path is busy", judge)]


def relayed_pair(bcube: BCube, draw: random.Random) -> Pair:
    """Return two random servers that no switch connects directly."""
    while True:
        pair = pair_of(bcube, draw)
        if len(best_paths(bcube, pair, {}, NONE)[0]) > 1:
            return pair


def live_cut_cable_cases(work: LiveWork) -> list[GradedCase]:
    """Test cases with a cut cable at a relay: the flow has to use the best remaining path."""
    bcube = bcube_of(work.lab.topology.spec)
    draw = random.Random(f"live cut/{work.sheet.student}")
    pair = relayed_pair(bcube, draw)
    path = best_paths(bcube, pair, {}, NONE)[0]
    cable = path.servers[1], bcube.server_plug(path.servers[1], path.steps[1].port).node
    cut = Failures(links=frozenset([frozenset(cable)]))
    faults: list[Any] = []

    def around() -> Judgement:
        if not work.wait_for_pings(pair):
            return Judgement(0.0, "it is not answered before the cut")
        faults.append(work.lab.cut(*cable))
        return _judged_settling(work, pair, best_paths(bcube, pair, {}, cut))

    def pings() -> Judgement:
        return all_or_nothing(
            work.wait_for_pings(pair), "it is not answered, although a path is left"
        )

    a, b, near, far = map(work.lab.name, (*pair, *cable))
    asked = f"{a} to {b}, live, cable of {near} to {far} cut"
    return [GradedCase(asked, around), GradedCase(f"ping, {asked}", pings)]


def _judged_settling(work: LiveWork, pair: Pair, right: Sequence[Path]) -> Judgement:
    """Judge if a live flow's packets take one of the `right` paths before the deadline."""
    name = work.lab.topology.address
    wanted = [[name(server) for server in path.servers] for path in right]
    settled, path = work.wait_for_path(pair, lambda path: path in wanted)
    return all_or_nothing(settled, f"it went {' '.join(path)}, the best is {' '.join(wanted[0])}")
