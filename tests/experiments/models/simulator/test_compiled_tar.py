"""Compiled probes are those of the routers, decision by decision, round by round."""

from collections import Counter, defaultdict

import numpy
import pytest

from pillarbox import topos
from pillarbox.experiments.models.arrays import Ints
from pillarbox.experiments.models.fluid.directed_links import link_count, routes_of
from pillarbox.experiments.models.simulator.compiled_tar import (
    TarFlows,
    Throughput,
    equal_share_rates,
    max_min_rates,
)
from pillarbox.experiments.models.simulator.failure_sets import FailedNodes, draw
from pillarbox.experiments.models.simulator.flow_arrays import all_to_all, random_flows
from pillarbox.experiments.models.simulator.paths import routes
from pillarbox.hosts.base.bandwidth import Bandwidth
from pillarbox.hosts.base.failures import NONE, Failures
from pillarbox.hosts.base.path import Path, Step
from pillarbox.hosts.base.probing import NEARLY_BEST
from pillarbox.hosts.ficonn import tar as rules
from pillarbox.hosts.ficonn.flow_table import free_bps
from pillarbox.topos.base.errors import PillarboxError
from pillarbox.topos.ficonn import BACKUP, SWITCH, FiConn

ROUNDS = 3
RATE_BPS = 1.0
SAMPLES = 30  # samples of a round: it lasts 30 s, and servers read their counters every second


class Drawn:
    """What the routers draw from, in place of a random.Random."""

    def __init__(self, seed: int) -> None:
        self.random = numpy.random.default_rng(seed)

    def randrange(self, stop: int) -> int:
        return int(self.random.random() * stop)


def failures_of(ficonn: FiConn, broken: FailedNodes) -> Failures:
    nodes = numpy.flatnonzero(numpy.concatenate([broken.servers, broken.switches]))
    cables = ficonn.cable_arrays()
    pairs = zip(cables.a[broken.cables].tolist(), cables.b[broken.cables].tolist(), strict=True)
    return Failures(frozenset(nodes.tolist()), frozenset(map(frozenset, pairs)))


class Plain:
    """The same network from the routers' own decisions, with lists and dictionaries."""

    def __init__(
        self,
        ficonn: FiConn,
        seed: int,
        reading: rules.VirtualFlows = rules.VIRTUAL_FLOWS,
        failures: Failures = NONE,
        far_side: bool = False,
        throughput: Throughput | None = None,
    ) -> None:
        self.ficonn, self.random, self.reading = ficonn, Drawn(seed), reading
        self.failures, self.far_side = failures, far_side
        self.out: Counter[tuple[int, int]] = Counter()
        self.virtual: dict[int, list[int]] = defaultdict(list)
        self.paths: dict[int, Path] = {}
        self.bypasses = self.vain = self.moved = 0
        self.throughput, self.now = throughput, 0
        # As on the live servers, rates follow from byte counters that are read at each sample.
        self.bandwidth: dict[int, Bandwidth] = {}
        self.sent: dict[int, float] = defaultdict(float)
        self.probed: dict[int, int] = {}
        self.sample()

    def sample(self) -> None:
        """Let all flows send for a second, and all servers read their byte counters."""
        if self.throughput is None:
            return
        counters: dict[tuple[int, int], float] = defaultdict(float)
        flows = sorted(self.paths)
        links = routes_of(self.ficonn, [self.paths[flow] for flow in flows])
        rates = self.throughput(links, link_count(self.ficonn)) * RATE_BPS
        for flow, rate in zip(flows, rates, strict=True):
            path, volume = self.paths[flow], float(rate) / 8
            self.sent[flow] += volume
            for server, step in zip(path.servers, path.steps, strict=False):
                counters[server, step.port] += volume
        for server in range(self.ficonn.servers):
            known = self.bandwidth.setdefault(server, Bandwidth(2, RATE_BPS))
            # Counters that begin at 0 have no rounding errors, which decide between two full links.
            known.begin_anew()
            for port in (SWITCH, BACKUP):
                known.observe(port, 0, 0, self.now - 1.0)
                known.observe(port, 0, counters[server, port], self.now)  # type: ignore[arg-type]
        if not self.now:  # an idle second comes first: measurements start from 0
            self.now = 1
            self.sample()
        else:
            self.now += 1

    def sight(self, server: int, flow: int, before: Path | None) -> rules.Sight:
        def works(step: Step) -> bool:
            return self.failures.of_hop(self.ficonn, server, step) is None

        mates = (Step(SWITCH, mate) for mate in self.ficonn.peers(server, SWITCH))
        state = works, self.random
        switch_works, virtual = any(map(works, mates)), len(self.virtual[server])
        if self.throughput is None:
            switch = self.out[server, SWITCH] + virtual
            free = [-float(flows) for flows in (self.out[server, BACKUP], switch)]
            return rules.Sight(*state, *free, switch_works)  # type: ignore[arg-type]
        own, crossing = None, self.out[server, SWITCH] + self.out[server, BACKUP]
        if before and server in before.servers[:-1]:
            port = before.steps[before.servers.index(server)].port
            own, crossing = (port, self.rate_bps(flow)), crossing + 1
        free_now = free_bps(self.bandwidth[server], own, crossing, virtual)
        return rules.Sight(*state, *free_now, switch_works, NEARLY_BEST)  # type: ignore[arg-type]

    def rate_bps(self, flow: int) -> float:
        return self.sent[flow] * 8 / max(1, self.now - self.probed[flow])

    def probe(self, flow: int, source: int, destination: int) -> None:
        before = self.paths.pop(flow, None)
        if before:
            self.weigh(before, -1)
        for tries in range(rules.PROBE_TRIES):
            for server in list(self.virtual):
                self.forget(flow, server)
            ends = source, destination
            probe = rules.first_probe(
                self.ficonn, *ends, tries, by_far_side=self.far_side and tries % 2 == 1
            )
            found = self.tried(flow, probe, before)
            if found:
                break
        self.vain += not found
        self.moved += bool(found and before and found != before)
        self.sent[flow], self.probed[flow] = 0, self.now
        if path := found or before:
            self.paths[flow] = path
            self.weigh(path, 1)

    def tried(self, flow: int, probe: rules.TarProbe, before: Path | None) -> Path | None:
        source, destination = probe.source, probe.destination
        route_entries: dict[int, rules.RouteEntry] = {}
        at, came = source, None
        for _ in range(rules.MOST_HOPS):
            self.forget(flow, at)
            seen = self.sight(at, flow, before)
            decision = rules.decide(self.ficonn, at, probe, came, route_entries.get(at), seen)
            if isinstance(decision, rules.Arrived):
                break
            if isinstance(decision, rules.Stuck):
                return None
            if isinstance(decision, rules.ForwardProbe):
                route_entries[at], step = decision.route_entry, decision.route_entry.next
                if self.reading.level_0 and step.port == SWITCH and self.virtual[at]:
                    self.virtual[at].pop(0)
            else:
                route_entries.pop(at, None)
                step = decision.step
                if decision.virtual:
                    self.virtual[at].append(flow)
                    self.bypasses += 1
            probe = probe._replace(progress=decision.progress)
            at, came = step.peer, Step(step.port, at)
        else:
            return None
        steps, at = [], source
        while at != destination:
            steps.append(route_entries[at].next)
            at = steps[-1].peer
        return Path(source, tuple(steps))

    def forget(self, flow: int, server: int) -> None:
        if flow in self.virtual[server] and self.reading.probed:
            self.virtual[server].remove(flow)

    def weigh(self, path: Path, flows: int) -> None:
        for server, step in zip(path.servers, path.steps, strict=False):
            self.out[server, step.port] += flows


def traffic(ficonn: FiConn, pattern: str, flows: int = 250) -> tuple[Ints, Ints]:
    sources, destinations = random_flows(ficonn.servers, flows, numpy.random.default_rng(6))
    if pattern == "burst":  # from one of the top level's members to another one
        below = ficonn.sizes[-2]
        sources, destinations = sources % below, below + destinations % below
    return sources, destinations


def same(ours: TarFlows, plain: Plain) -> None:
    """Probe round after round, and compare what was found and what was remembered."""
    ficonn, flows = ours.ficonn, list(zip(ours.sources, ours.destinations, strict=True))
    for _ in range(ROUNDS):
        ours.probe(0, 100)
        ours.probe(100)
        ends = [len(flows) * (sample + 1) // SAMPLES for sample in range(SAMPLES)]
        for flow, (source, destination) in enumerate(flows):
            plain.probe(flow, int(source), int(destination))
            for _ in range(ends.count(flow + 1)):
                plain.sample()
        expected = routes_of(ficonn, [plain.paths.get(flow) for flow in range(len(flows))])
        found = ours.routes()
        assert found.starts.tolist() == expected.starts.tolist()
        assert found.links.tolist() == expected.links.tolist()
        virtual = [len(plain.virtual[server]) for server in range(ficonn.servers)]
        assert ours.virtual_flows().tolist() == virtual
    assert plain.bypasses  # else nothing but TOR was compared


@pytest.mark.few
@pytest.mark.parametrize("reading", rules.READINGS)
@pytest.mark.parametrize("pattern", ["random", "burst"])
@pytest.mark.parametrize(
    "spec", ["ficonn,4,1", "ficonn,8,1", "ficonn,4,2", "ficonn,8,2", "ficonn,4,3"]
)
def test_rounds_are_those_of_the_routers(spec: str, pattern: str, reading: str) -> None:
    ficonn = topos.parse(spec)
    assert isinstance(ficonn, FiConn)
    virtual = rules.READINGS[reading]
    random = numpy.random.default_rng(9)
    ours = TarFlows(ficonn, *traffic(ficonn, pattern), random, virtual=virtual, throughput=None)
    plain = Plain(ficonn, 9, virtual)
    same(ours, plain)
    assert not plain.vain


@pytest.mark.few
@pytest.mark.parametrize("throughput", [max_min_rates, equal_share_rates])
@pytest.mark.parametrize("pattern", ["random", "burst"])
@pytest.mark.parametrize("spec", ["ficonn,8,1", "ficonn,4,2", "ficonn,4,3"])
def test_measured_bandwidth_is_that_of_the_routers(
    spec: str, pattern: str, throughput: Throughput
) -> None:
    """The routers' byte counters, moving averages and rule give the same decisions."""
    ficonn = topos.parse(spec)
    assert isinstance(ficonn, FiConn)
    random = numpy.random.default_rng(9)
    ours = TarFlows(ficonn, *traffic(ficonn, pattern), random, throughput=throughput)
    plain = Plain(ficonn, 9, throughput=throughput)
    same(ours, plain)
    assert plain.moved  # else measurements after the first round had no effect


@pytest.mark.few
@pytest.mark.parametrize("pattern", ["random", "burst"])
@pytest.mark.parametrize(
    ("spec", "far_side"),
    [(spec, False) for spec in ("ficonn,4,1", "ficonn,8,1", "ficonn,4,2", "ficonn,8,2")]
    + [("ficonn,4,2", True)],
)
def test_rounds_around_failures_are_those_of_the_routers(
    spec: str, far_side: bool, pattern: str
) -> None:
    ficonn = topos.parse(spec)
    assert isinstance(ficonn, FiConn)
    random, share = numpy.random.default_rng(3), 0.08
    broken = draw(ficonn, random, servers=share, switches=share / 2, cables=share)
    works = broken.works(ficonn)
    chance = numpy.random.default_rng(9)
    ends = traffic(ficonn, pattern, 120)
    ours = TarFlows(ficonn, *ends, chance, works, far_side=far_side, throughput=None)
    plain = Plain(ficonn, 9, failures=failures_of(ficonn, broken), far_side=far_side)
    same(ours, plain)
    assert works[ours.routes().links].all()
    assert plain.vain


def test_a_first_flow_takes_tor_and_flows_not_yet_probed_have_no_path() -> None:
    ficonn = FiConn(8, 2)
    ends = random_flows(ficonn.servers, 50, numpy.random.default_rng(2))
    flows = TarFlows(ficonn, *ends, numpy.random.default_rng(1))
    flows.probe(0, 1)
    found, expected = flows.routes(), routes(ficonn, "tor", *(end[:1] for end in ends))
    assert found.links.tolist() == expected.links.tolist()
    assert found.starts.tolist() == [0, *[len(expected.links)] * 50]


def test_flows_arrive_and_load_the_ports_of_their_paths() -> None:
    ficonn = FiConn(4, 2)
    flows = TarFlows(ficonn, *all_to_all(numpy.arange(24)), numpy.random.default_rng(1))
    for _ in range(2):
        flows.probe()
    found, loads = flows.hops(), numpy.zeros((48, 2), int)
    for source, destination, count, ports, peers in zip(
        flows.sources, flows.destinations, *found, strict=True
    ):
        assert peers[count - 1] == destination
        numpy.add.at(loads, ([source, *peers[: count - 1]], ports[:count]), 1)
    assert (flows.loads() == loads).all()


def test_a_level_0_network_is_refused() -> None:
    with pytest.raises(PillarboxError, match="no backup links"):
        TarFlows(FiConn(4, 0), numpy.array([0]), numpy.array([1]), numpy.random.default_rng(1))
