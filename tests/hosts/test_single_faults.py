"""New flows after a single fault: once servers know of it, no packet of theirs is lost.

Every network with the routing that a lab runs by default, and the routings that go further than
it where that one has no path: as soon as neighbours have noticed the fault, each connected pair
exchanges a packet and an answer, three times, each time as a new flow.
"""

import random
from collections.abc import Iterator

import pytest

from pillarbox import topos
from pillarbox.experiments.lab.emulation.defaults import usual_routing
from pillarbox.hosts.base.algorithms import algorithms, route
from pillarbox.hosts.base.failures import Failures
from pillarbox.hosts.base.router import Router
from pillarbox.hosts.base.shortest import shortest_path
from pillarbox.hosts.base.timers import timers_for
from pillarbox.hosts.memory.memory_network import MemoryNetwork, Trip
from pillarbox.topos.base.spec import small

KINDS = ("cut", "silent cut", "one-way cut", "server", "switch")
LARGER = ["dpillar,4,3", "dcell,2,2", "bcube,3,2", "ficonn,4,2"]
# Routings that reach every connected pair, whatever fails alone.
EVERY_PAIR = {"dcell": ["dfr"], "bcube": ["bsr"], "dpillar": ["mp-far-side"]}
SETTLE_S = 0.2  # for the news to reach others than the neighbours
ANSWER_S = 1.0  # for the trip of a packet: probes, one that is lost and tried again, returns
MOST_PAIRS = 120


def redundant() -> Iterator[tuple[str, str]]:
    """Yield the small networks in which servers relay, each with its default routing."""
    for spec in [*small(), *LARGER]:
        network = topos.parse(spec)
        if network.ports > 1:
            yield spec, usual_routing(network)
            others = EVERY_PAIR.get(network.kind, [])
            yield from ((spec, name) for name in others if name != usual_routing(network))


CASES = list(redundant())


def faults(network: topos.Topology, kind: str) -> list[tuple[int, ...]]:
    """Return all faults of a kind, each by its nodes."""
    if kind == "server":
        return [(server,) for server in range(network.servers)]
    if kind == "switch":
        return [(network.servers + switch,) for switch in range(network.switches)]
    return [(cable.a, cable.b) for cable in network.links()]


def strike(net: MemoryNetwork, kind: str, nodes: tuple[int, ...]) -> None:
    if kind == "server":
        net.kill(*nodes)
    elif kind == "switch":
        net.stop_switch(nodes[0] - net.topology.servers)
    elif kind == "one-way cut":
        net.cut_one_way(*nodes)
    else:
        net.cut(*nodes, silent=kind == "silent cut")


def connected(net: MemoryNetwork, name: str) -> list[tuple[int, int]]:
    """Return the pairs of servers that work for which the routing has a path, and a way back."""
    network, failures = net.topology, net.known_failures()
    alive = [server for server in range(network.servers) if server not in failures.nodes]
    pairs = [(a, b) for a in alive for b in alive if a != b]
    some = random.Random(5).sample(pairs, min(MOST_PAIRS, len(pairs)))
    return [
        (a, b)
        for a, b in some
        if route(network, name, a, b, failures).paths and route(network, name, b, a, failures).paths
    ]


def exchanged(net: MemoryNetwork, pairs: list[tuple[int, int]], port: int) -> list[Trip]:
    """Return the trips of a packet between each pair, and of the answers."""
    trips = [net.send_udp(a, b, source_port=port) for a, b in pairs]
    net.run(ANSWER_S)
    trips += [net.send_udp(b, a, source_port=port + 1) for a, b in pairs]
    net.run(ANSWER_S)
    return trips


def attempts(net: MemoryNetwork, name: str, port: int) -> None:
    """Send packets from working servers to dead servers, and to others that no path reaches."""
    network, failures = net.topology, net.known_failures()
    servers = range(network.servers)
    pairs = [(a, b) for a in servers if a not in failures.nodes for b in servers if a != b]
    useless = [(a, b) for a, b in pairs if b in failures.nodes]
    some = random.Random(7).sample(pairs, min(MOST_PAIRS, len(pairs)))
    useless += [(a, b) for a, b in some if not route(network, name, a, b, failures).paths]
    for a, b in useless[:MOST_PAIRS]:
        net.send_udp(a, b, source_port=port)


def assert_no_new_flow_is_lost(
    spec: str, name: str, timers_name: str, kind: str, nodes: tuple[int, ...], seed: int
) -> None:
    network = topos.parse(spec)
    found = algorithms(network)[name].router
    assert found is not None
    make: type[Router] = found
    timers = timers_for(network, timers_name)
    net = MemoryNetwork(network, lambda net, server: make(net, server, timers=timers, seed=seed))
    net.run(timers.heartbeat_s)
    everyone = connected(net, name)
    exchanged(net, everyone, 3000)  # some destinations are known from before
    strike(net, kind, nodes)
    net.run(timers.neighbour_timeout_s + timers.heartbeat_s + SETTLE_S)
    pairs = connected(net, name)
    for round_ in range(3):
        attempts(net, name, 4000 + 10 * round_)
        trips = exchanged(net, pairs, 4000 + 10 * round_)
        lost = [trip for trip in trips if not trip.arrived_s]
        assert not lost, (spec, name, kind, nodes, round_, lost[:3])
        assert all(len(trip.arrived_s) == 1 for trip in trips)
        if round_ == 1:  # what was overheard of the fault is forgotten
            net.run(timers.failed_link_timeout_s)


@pytest.mark.few
@pytest.mark.parametrize("timers_name", ["fast", "paper"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("spec", "name"), CASES)
def test_new_flows_after_a_fault(spec: str, name: str, kind: str, timers_name: str) -> None:
    found = faults(topos.parse(spec), kind)
    if not found:
        pytest.skip(f"{spec} has no {kind}")
    seed = CASES.index((spec, name))
    nodes = random.Random(seed).choice(found)
    assert_no_new_flow_is_lost(spec, name, timers_name, kind, nodes, seed)


@pytest.mark.long
@pytest.mark.parametrize("timers_name", ["fast", "paper"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("spec", "name"), [case for case in CASES if case[0] in small()])
def test_new_flows_after_each_fault(spec: str, name: str, kind: str, timers_name: str) -> None:
    for seed, nodes in enumerate(faults(topos.parse(spec), kind)):
        assert_no_new_flow_is_lost(spec, name, timers_name, kind, nodes, seed)


@pytest.mark.parametrize("spec", ["dpillar,4,2", "dpillar,6,2", "dpillar,4,3", "bcube,4,1"])
def test_some_routing_reaches_every_connected_pair(spec: str) -> None:
    network = topos.parse(spec)
    (name,) = EVERY_PAIR[network.kind]
    pairs = [(a, b) for a in range(network.servers) for b in range(network.servers) if a != b]
    some = random.Random(5).sample(pairs, min(MOST_PAIRS, len(pairs)))
    for kind in ("cut", "server", "switch"):
        for nodes in random.Random(6).sample(faults(network, kind), 6 if kind != "switch" else 4):
            whole = Failures(links=frozenset([frozenset(nodes)]))
            failures = whole if kind == "cut" else Failures(nodes=frozenset(nodes))
            for a, b in some:
                if not failures.nodes & {a, b} and shortest_path(network, a, b, failures):
                    assert route(network, name, a, b, failures).paths, (kind, nodes, a, b)


@pytest.mark.few
@pytest.mark.parametrize("timers_name", ["fast", "paper"])
@pytest.mark.parametrize("kind", ["server", "switch"])
@pytest.mark.parametrize("spec", [spec for spec, _ in CASES if spec in small()])
def test_what_was_repaired_serves_at_the_next_fault(spec: str, kind: str, timers_name: str) -> None:
    """A path that failed in one fault, and was not probed since, is tried when the others fail."""
    network = topos.parse(spec)
    name = usual_routing(network)
    found = algorithms(network)[name].router
    assert found is not None
    make: type[Router] = found
    timers = timers_for(network, timers_name)
    noticed_s = timers.neighbour_timeout_s + timers.heartbeat_s + SETTLE_S
    net = MemoryNetwork(network, lambda net, server: make(net, server, timers=timers))
    net.run(timers.heartbeat_s)
    some = faults(network, kind)
    for round_, (node,) in enumerate(random.Random(3).sample(some, min(4, len(some)))):
        strike(net, kind, (node,))
        # Servers notice the fault, and reports on the fault before it are old.
        net.run(max(noticed_s, timers.unreachable_hold_s))
        pairs = connected(net, name)
        attempts(net, name, 4000 + 10 * round_)
        trips = exchanged(net, pairs, 4000 + 10 * round_)
        lost = [trip for trip in trips if not trip.arrived_s]
        assert not lost, (node, round_, lost[:3])
        if kind == "server":
            net.revive(node)
        else:
            net.start_switch(node - network.servers)
        net.run(2 * timers.heartbeat_s + SETTLE_S)
