"""Lab 6: FiConn's traffic-aware routing: TOR, and the greedy choice (Li 2009, III.B and IV)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from itertools import pairwise
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
from pillarbox.experiments.apps.teaching.labs.ficonn_probes import (
    ChooseArguments,
    FreeLinkBandwidths,
    LiveStudentTarRouter,
    StudentTarRouter,
    next_hop_of,
    question_text,
    right_decision,
    simulated_probe_walk,
    student_decision,
)
from pillarbox.experiments.apps.teaching.routed_packets import failures_text, path_text
from pillarbox.hosts.base.failures import NONE, Failures
from pillarbox.hosts.base.timers import FAST
from pillarbox.hosts.ficonn.paths import tor_path, tor_step
from pillarbox.hosts.ficonn.tar import Back, ForwardProbe
from pillarbox.hosts.memory.memory_network import MemoryNetwork, Trip
from pillarbox.topos.ficonn import BACKUP, SWITCH, FiConn

if TYPE_CHECKING:
    from pillarbox.experiments.apps.teaching.live_grading import LiveWork

TITLE = "FiConn's traffic-aware routing"
FOLDER = "6-ficonn-tar"
MODULES = ("pillarbox.topos.ficonn",)
OWN = ("ficonn,4,2", "ficonn,6,2")
HIDDEN = ("ficonn,8,1", "ficonn,8,2", "ficonn,4,3")
LIVE_NETWORK = MEMORY_NETWORK = "ficonn,4,1"
NETWORKS = (*OWN, *HIDDEN, MEMORY_NETWORK)
LIVE_ROUTER = LiveStudentTarRouter

HOPS, OTHER_HOPS, CHOICES, PROBES = 40, 20, 15, 30
DRAWN, DRAWS = 6, 40  # number of bypass cases, and of calls of the student's `choose` for each
BANDWIDTHS = tuple(mbit * 10**6 for mbit in (0, 200, 400, 600, 800, 1000))
BUSY, FAULTY = 8, 6  # number of test flows with a busy cable, and with a failed cable
BUSY_BPS = 0.6e9
LEARNED_S = 0.12  # time until the ports' byte counters show the load, in seconds
HEARD_S = FAST.neighbour_timeout_s + 2 * FAST.heartbeat_s
SET_UP_S = 0.05  # time for a probe, its response and the queued packet, in seconds
LIVE_PAIRS, LIVE_LOAD = 4, 0.3

Pair = tuple[int, int]


def values(draw: random.Random) -> dict[str, Any]:
    """Draw the FiConn of a student's sheet, a pair of servers, and a busy cable on its path."""
    ficonn = ficonn_of(draw.choice(OWN))
    source, destination, busy = relayed_pair_and_relay(ficonn, draw)
    far = ficonn.server_plug(busy, BACKUP).node
    return {
        "network": ficonn.spec,
        "source": ficonn.address(source),
        "destination": ficonn.address(destination),
        "busy link": f"{ficonn.address(busy)}-{ficonn.address(far)}",
    }


def ficonn_of(spec: str) -> FiConn:
    """Return the FiConn network of a spec such as ``ficonn,4,2``."""
    network = topos.parse(spec)
    assert isinstance(network, FiConn)
    return network


def relayed_pair_and_relay(ficonn: FiConn, draw: random.Random) -> tuple[int, int, int]:
    """Return two servers, and the first relay on FiConn's TOR path that uses its backup link."""
    while True:
        source, destination = draw.sample(range(ficonn.servers), 2)
        path = tor_path(ficonn, source, destination)
        for server, step in zip(path.servers[1:], path.steps[1:], strict=False):
            if step.port == BACKUP:
                return source, destination, server


# -- TOR -----------------------------------------------------------------------------------------


def next_hop_cases(work: Work) -> list[GradedCase]:
    """Test cases for single hops of FiConn's TOR in the network of the student's sheet."""
    return random_hop_cases(work, ficonn_of(work.values["network"]), "hops", HOPS)


def other_size_cases(work: Work) -> list[GradedCase]:
    """Test cases for single hops of FiConn's TOR in a network of another size."""
    ficonn = ficonn_of(work.draw("size").choice(HIDDEN))
    return random_hop_cases(work, ficonn, "other hops", OTHER_HOPS)


def random_hop_cases(work: Work, ficonn: FiConn, name: str, many: int) -> list[GradedCase]:
    """Return test cases of single hops of FiConn's TOR, half of them over backup links."""
    draw = work.draw(name)
    cases: list[GradedCase] = []
    while len(cases) < many:
        server, destination = draw.sample(range(ficonn.servers), 2)
        step = tor_step(ficonn, server, destination)
        if step.port == (SWITCH, BACKUP)[len(cases) % 2]:
            cases.append(_hop_case(work, ficonn, server, destination, step.peer))
    return cases


def _hop_case(work: Work, ficonn: FiConn, server: int, destination: int, wanted: int) -> GradedCase:
    ends = ficonn.address(server), ficonn.address(destination)

    def judge() -> Judgement:
        got = work.call("next_hop", server, destination, network=ficonn.spec)
        is_server = isinstance(got, int) and 0 <= got < ficonn.servers
        said = ficonn.address(got) if is_server else f"{got!r:.40}"
        return all_or_nothing(
            got == wanted, f"it names {said}, TOR goes to {ficonn.address(wanted)}"
        )

    return GradedCase(f"{ficonn.spec}, server {ends[0]}, to {ends[1]}", judge)


# -- single choices ------------------------------------------------------------------------------


def keep_tor_hop_cases(work: Work) -> list[GradedCase]:
    """Test cases in which a FiConn probe has to keep TOR's next hop."""
    return choose_cases(work, "switch", "backup", "kept")


def leave_by_backup_cases(work: Work) -> list[GradedCase]:
    """Test cases in which the source's backup link has more bandwidth than TOR's next hop."""
    return choose_cases(work, "leave", "straight back")


def bypass_cases(work: Work) -> list[GradedCase]:
    """Test cases in which a probe has to bypass a backup link, at a relay or at the source."""
    return choose_cases(work, "bypass", "own bypass")


def proxy_cases(work: Work) -> list[GradedCase]:
    """Test cases of probes at their proxy, and on the path to their proxy."""
    return choose_cases(work, "proxy", "to proxy")


def choose_cases(work: Work, *kinds: str) -> list[GradedCase]:
    """Return CHOICES test cases of FiConn's `choose` for each kind of question."""
    ficonn, draw = ficonn_of(work.values["network"]), work.draw(kinds[0])
    found: dict[str, list[ChooseArguments]] = {kind: [] for kind in kinds}
    for asked in random_choose_calls(ficonn, draw):
        those = found.get(choose_call_kind(ficonn, asked), [])
        if asked not in those and len(those) < CHOICES:
            those.append(asked)
        if all(len(those) == CHOICES for those in found.values()):
            break
    return [_choice_case(work, ficonn, asked) for those in found.values() for asked in those]


def random_choose_calls(ficonn: FiConn, draw: random.Random) -> Iterator[ChooseArguments]:
    """Yield an endless series of `choose` questions from probes over loaded links."""
    while True:
        source, destination = draw.sample(range(ficonn.servers), 2)
        free_of = random_bandwidths(ficonn, draw)
        yield from simulated_probe_walk(
            ficonn, (source, destination), free_of, partial(right_decision, ficonn)
        ).asked


def random_proxy_cases(work: Work) -> list[GradedCase]:
    """Test cases with many calls for the same bypass, whose random proxies have to vary."""
    ficonn, draw = ficonn_of(work.values["network"]), work.draw("drawn")
    cases: list[GradedCase] = []
    for asked in random_choose_calls(ficonn, draw):
        if choose_call_kind(ficonn, asked) == "bypass" and len(_bypasses(ficonn, asked)) > 1:
            cases.append(_varying_case(work, ficonn, asked))
        if len(cases) == DRAWN:
            break
    return cases


def _bypasses(ficonn: FiConn, asked: ChooseArguments) -> set[tuple[int, ...]]:
    """Return the PR fields of all correct bypasses for one call of the student's `choose`."""
    members = ficonn.sizes[-1] // ficonn.sizes[0]
    found = (right_decision(ficonn, asked, member) for member in range(members))
    return {one.progress for one in found if isinstance(one, Back)}


def _varying_case(work: Work, ficonn: FiConn, asked: ChooseArguments) -> GradedCase:
    def judge() -> Judgement:
        found = (student_decision(work, ficonn, asked) for _ in range(DRAWS))
        proxies = {one.progress for one in found if isinstance(one, Back)}
        return all_or_nothing(len(proxies) > 1, f"{DRAWS} times the same proxy")

    return GradedCase(question_text(ficonn, asked), judge)


def random_bandwidths(ficonn: FiConn, draw: random.Random) -> Callable[[int], FreeLinkBandwidths]:
    """Return a function that draws the links' available bandwidth at a server (0: failed link)."""
    known: dict[int, FreeLinkBandwidths] = {}

    def free_of(server: int) -> FreeLinkBandwidths:
        if server not in known:
            backup = draw.choice(BANDWIDTHS) if ficonn.level(server) else 0
            known[server] = FreeLinkBandwidths(backup, draw.choice(BANDWIDTHS[1:]))
        return known[server]

    return free_of


def choose_call_kind(ficonn: FiConn, asked: ChooseArguments) -> str:
    """Return the kind of a question about FiConn's Algorithm 3, such as "bypass"."""
    server, probe, came, free = asked
    decision = right_decision(ficonn, asked)
    if not isinstance(decision, ForwardProbe | Back):
        return ""
    if server in probe.progress:
        return "proxy"
    pending = [entry for entry in probe.progress if entry >= 0]
    target = pending[0] if pending else probe.destination
    by_tor = tor_step(ficonn, server, target).port
    level = ficonn.level(server)
    if by_tor == BACKUP:
        if (
            decision.progress[:level] != probe.progress[:level]
            and next_hop_of(decision).port == SWITCH
        ):
            return "bypass" if came else "own bypass"
        return "kept" if free.switch_bps > free.backup_bps else "backup"
    if next_hop_of(decision).port == BACKUP:
        return "leave"
    if came is None and not pending and free.backup_bps > free.switch_bps:
        return "straight back"
    return "to proxy" if pending else "switch"


def _choice_case(work: Work, ficonn: FiConn, asked: ChooseArguments) -> GradedCase:
    def judge() -> Judgement:
        student_decision(work, ficonn, asked)
        return RIGHT  # `student_decision` raises StudentError for a wrong answer.

    return GradedCase(question_text(ficonn, asked), judge)


# -- probes through a network --------------------------------------------------------------------


def probe_cases(work: Work) -> list[GradedCase]:
    """Test cases with probes over loaded and failed links; right decisions give partial points."""
    ficonn, draw = ficonn_of(work.values["network"]), work.draw("probes")
    cases: list[GradedCase] = []
    while len(cases) < PROBES:
        source, destination, busy = relayed_pair_and_relay(ficonn, draw)
        free_of = random_bandwidths(ficonn, draw)
        if free_of(busy).backup_bps < free_of(busy).switch_bps:
            cases.append(_probe_case(work, ficonn, (source, destination), free_of))
    return cases


def _probe_case(
    work: Work, ficonn: FiConn, ends: Pair, free_of: Callable[[int], FreeLinkBandwidths]
) -> GradedCase:
    def judge() -> Judgement:
        walk = simulated_probe_walk(ficonn, ends, free_of, partial(student_decision, work, ficonn))
        return Judgement(walk.right / walk.decisions / 2, walk.wrong) if walk.wrong else RIGHT

    a, b = map(ficonn.address, ends)
    return GradedCase(f"{ficonn.spec}, probe from {a} to {b} where links are loaded", judge)


class GradedFlow:
    """A flow in a simulated FiConn that runs the student's file, with one busy or cut cable."""

    def __init__(self, work: Work, ends: Pair, busy: int, *, cut: bool) -> None:
        self.work, self.ends, self.busy, self.cut = work, ends, busy, cut
        self.ficonn = ficonn_of(MEMORY_NETWORK)
        self.far = self.ficonn.server_plug(busy, BACKUP).node

    @property
    def failures(self) -> Failures:
        """Failed nodes and links in the flow's simulated network."""
        return Failures(links=frozenset([frozenset((self.busy, self.far))])) if self.cut else NONE

    @cached_property
    def trip(self) -> tuple[Trip, str]:
        """Path and arrival of the flow's first packet, and the first wrong routing decision."""

        def make(ficonn: Any, server: int) -> StudentTarRouter:
            return StudentTarRouter(ficonn, server, student=self.work, timers=FAST)

        network = MemoryNetwork(self.ficonn, make)
        if not self.cut:
            network.load_bps[self.busy, BACKUP] = 0.0, BUSY_BPS
            network.load_bps[self.far, BACKUP] = BUSY_BPS, 0.0
        network.fail(self.failures)
        network.run(HEARD_S if self.cut else LEARNED_S)
        trip = network.send_udp(*self.ends)
        network.run(SET_UP_S)
        wrong = (router.wrong for router in network.routers if isinstance(router, StudentTarRouter))
        return trip, next(filter(None, wrong), "")

    def judge(self) -> Judgement:
        """Judge the flow's first packet, which has to arrive without using the bad cable."""
        trip, wrong = self.trip
        if not trip.arrived_s:
            return Judgement(0.0, wrong or trip.lost or "its path was not set up")
        over = (self.busy, self.far) in pairwise(trip.path.servers)
        said = f"it went {path_text(self.ficonn, trip.path)}, over the cable to be bypassed"
        return all_or_nothing(not over, said)

    def case(self) -> GradedCase:
        """Return the test case that grades this flow's path."""
        name = self.ficonn.address
        cable = f"{name(self.busy)} to {name(self.far)}"
        state = "" if self.cut else f", {BUSY_BPS / 1e6:g} Mbit/s from {cable}"
        a, b = map(name, self.ends)
        return GradedCase(
            f"{MEMORY_NETWORK}, {a} to {b}{failures_text(self.ficonn, self.failures)}{state}",
            self.judge,
        )


def packet_cases(work: Work) -> list[GradedCase]:
    """Test cases of flows in simulated networks with a busy or silently cut cable on TOR's path."""
    draw, ficonn = work.draw("packets"), ficonn_of(MEMORY_NETWORK)
    flows = []
    for number in range(BUSY + FAULTY):
        source, destination, busy = relayed_pair_and_relay(ficonn, draw)
        flows.append(GradedFlow(work, (source, destination), busy, cut=number >= BUSY))
    return [flow.case() for flow in flows]


# -- live ----------------------------------------------------------------------------------------


def live_packet_cases(work: LiveWork) -> list[GradedCase]:
    """Test cases with pings in a live network without load, where flows take TOR's path."""
    ficonn = ficonn_of(work.lab.topology.spec)
    draw = random.Random(f"live/{work.sheet.student}")
    pairs = [relayed_pair_and_relay(ficonn, draw)[:2] for _ in range(LIVE_PAIRS)]
    work.wait_for_pings(*pairs)  # waits until all routers have received heartbeats

    def case(pair: Pair) -> GradedCase:
        wanted = [ficonn.address(server) for server in tor_path(ficonn, *pair).servers]

        def judge() -> Judgement:
            if not work.pings(*pair):
                return Judgement(0.0, "the ping is not answered")
            settled, path = work.wait_for_path(pair, lambda path: path == wanted)
            return all_or_nothing(settled, f"it went {' '.join(path)}, by TOR {' '.join(wanted)}")

        return GradedCase(f"{ficonn.spec}, live, {wanted[0]} to {wanted[-1]}", judge)

    return [case(pair) for pair in pairs]


def live_load_cases(work: LiveWork) -> list[GradedCase]:
    """Test cases with a loaded cable on TOR's path in a live network: a flow has to avoid it."""
    ficonn = ficonn_of(work.lab.topology.spec)
    *pair, busy = relayed_pair_and_relay(ficonn, random.Random(f"live busy/{work.sheet.student}"))
    far = ficonn.server_plug(busy, BACKUP).node
    load_bps = LIVE_LOAD * (work.lab.settings.rate_mbit or 0) * 1e6

    def judge() -> Judgement:
        with work.udp_load(busy, far, load_bps):
            return _judged_avoidance(work, ficonn, (pair[0], pair[1]), (busy, far))

    return [_live_case(ficonn, (pair[0], pair[1]), (busy, far), "busy", judge)]


def live_cut_cable_cases(work: LiveWork) -> list[GradedCase]:
    """Test cases with a cut cable on TOR's path in a live network: the flow has to avoid it."""
    ficonn = ficonn_of(work.lab.topology.spec)
    *pair, near = relayed_pair_and_relay(ficonn, random.Random(f"live cut/{work.sheet.student}"))
    far = ficonn.server_plug(near, BACKUP).node

    def judge() -> Judgement:
        if not work.wait_for_pings((pair[0], pair[1])):
            return Judgement(0.0, "it is not answered before the cut")
        work.lab.cut(near, far)
        return _judged_avoidance(work, ficonn, (pair[0], pair[1]), (near, far))

    return [_live_case(ficonn, (pair[0], pair[1]), (near, far), "cut", judge)]


def _live_case(
    ficonn: FiConn, pair: Pair, cable: Pair, state: str, judge: Callable[[], Judgement]
) -> GradedCase:
    a, b, near, far = map(ficonn.address, (*pair, *cable))
    return GradedCase(f"{ficonn.spec}, live, {a} to {b}, cable of {near} to {far} {state}", judge)


def _judged_avoidance(work: LiveWork, ficonn: FiConn, pair: Pair, cable: Pair) -> Judgement:
    near, far = map(ficonn.address, cable)

    def fits(path: list[str]) -> bool:
        return (near, far) not in pairwise(path)

    settled, path = work.wait_for_path(pair, fits, new_flows=True)
    return all_or_nothing(settled, f"it went {' '.join(path)}")


CHECKS = (
    GradedPart("TOR's next hops", 25, next_hop_cases),
    GradedPart("TOR in a network of another size", 10, other_size_cases),
    GradedPart("choices: TOR's next hop is kept", 6, keep_tor_hop_cases),
    GradedPart("choices: a source leaves by its backup link", 8, leave_by_backup_cases),
    GradedPart("choices: a backup link is bypassed", 8, bypass_cases),
    GradedPart("choices: proxies", 4, proxy_cases),
    GradedPart("choices: proxies are drawn", 4, random_proxy_cases),
    GradedPart("probes through loads and failures", 20, probe_cases),
    GradedPart("packets in a network", 15, packet_cases),
)
LIVE = (
    GradedPart("live: packets", 10, live_packet_cases),
    GradedPart("live: a busy cable", 10, live_load_cases),
    GradedPart("live: a cable is cut", 10, live_cut_cable_cases),
)
