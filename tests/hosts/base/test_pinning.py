"""Packets of port addresses keep to their pinned paths, with every router of every network."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from pillarbox import topos
from pillarbox.hosts.base.actions import Action, Deliver, Drop, Pushed, Relayed, Send
from pillarbox.hosts.base.algorithms import algorithms
from pillarbox.hosts.base.path import Path
from pillarbox.hosts.base.pinned_paths import hops_of, pinned_path, ports_of_ends, reverse
from pillarbox.hosts.base.router import Router
from pillarbox.hosts.base.timers import FAST
from pillarbox.hosts.memory.memory_network import MemoryNetwork, Trip
from pillarbox.hosts.wire.dcn import Protocol
from pillarbox.hosts.wire.frame import ETH_DCN, ETH_IP, Frame
from pillarbox.hosts.wire.ipv4 import TCP, Ipv4Header
from pillarbox.hosts.wire.marks import udp_packet
from pillarbox.hosts.wire.messages import PathFailure
from pillarbox.hosts.wire.source_route import VERSION as SOURCE_ROUTE_VERSION
from pillarbox.hosts.wire.source_route import SourceRouteHeader
from pillarbox.topos.base.spec import small
from pillarbox.topos.base.topology import Topology

SPECS = [*(spec for spec in small() if topos.parse(spec).ports > 1), "dpillar,4,3", "ficonn,4,2"]
CASES = [
    (spec, name)
    for spec in SPECS
    for name, algorithm in algorithms(topos.parse(spec)).items()
    if algorithm.router
]
every_router = pytest.mark.parametrize(("spec", "name"), CASES)
# Routings that find a path around one cut cable after it is detected.
RECOVERING = [
    ("bcube,4,1", "bsr"),
    ("dcell,4,1", "dfr"),
    ("dpillar,4,2", "mp-far-side"),
    ("ficonn,4,2", "tar"),
    ("mesh,4,2", "apr"),
]
MPTCP_SYN = bytes.fromhex("9c40 1389 00000000 00000000 80 02 ffff 0000 0000 1e0c 0001") + bytes(8)


def network(spec: str, name: str, *, port_addresses: bool = True) -> MemoryNetwork:
    topology = topos.parse(spec)
    make = algorithms(topology)[name].router
    assert make is not None

    def router(net: Topology, server: int) -> Router:
        made = make(net, server, timers=FAST)
        if port_addresses:
            made.use_port_addresses()
        return made

    return MemoryNetwork(topology, router)


def pinned_pairs(topology: Topology, most: int) -> Iterator[tuple[Path, tuple[int, None]]]:
    """Yield some pinned paths, each with the port of its source."""
    pairs = [(a, b) for a in range(topology.servers) for b in range(topology.servers) if a != b]
    for source, destination in random.Random(5).sample(pairs, min(most, len(pairs))):
        for port in range(topology.ports):
            path = pinned_path(topology, source, port, destination, None)
            if path:
                yield path, (port, None)


def arrived_by(trip: Trip) -> list[int]:
    return [trip.source, *(step.peer for _, step in trip.steps)] if trip.arrived_s else []


@pytest.mark.few
@every_router
def test_packets_and_answers_keep_to_the_pinned_path(spec: str, name: str) -> None:
    net = network(spec, name)
    for path, ports in pinned_pairs(net.topology, 12):
        there = net.send_udp(path.source, path.destination, ports=ports)
        back = net.send_udp(path.destination, path.source, ports=ports[::-1])
        net.run(0.05)
        assert arrived_by(there) == list(path.servers), there
        assert arrived_by(back) == list(path.servers)[::-1], back
        assert there.path.steps[0].port == ports[0]
        assert ports_of_ends(net.topology, back.path)[1] == ports[0]


@pytest.mark.few
@every_router
def test_without_port_addresses_no_server_has_them(spec: str, name: str) -> None:
    net = network(spec, name, port_addresses=False)
    trip = net.send_udp(0, net.topology.servers - 1, ports=(None, 0))
    net.run(0.05)
    assert not trip.arrived_s


@pytest.mark.few
@every_router
def test_own_port_and_unknown_port_addresses(spec: str, name: str) -> None:
    net = network(spec, name)
    router, topology = net.routers[0], net.topology
    own = udp_packet(topology, 0, 0, ports=(None, 1))
    assert router.send(own, 0.0) == [Deliver(own)]
    assert router.server_of(topology.port_ipv4(3, 1)) == 3
    assert router.server_of(topology.port_ipv4(topology.servers - 1, 0) + 1) is None
    assert router.server_of(topology.port_ipv4(0, topology.ports)) is None


@pytest.mark.parametrize(("spec", "name"), RECOVERING)
def test_cut_on_the_path_is_routed_around_and_left(spec: str, name: str) -> None:
    net = network(spec, name)
    topology = net.topology
    tried = 0
    for path, ports in pinned_pairs(topology, 40):
        if len(path) < 3 or tried == 4:
            continue
        tried += 1
        net.send_udp(path.source, path.destination, ports=ports)
        net.run(0.05)
        # The failed cable is in the middle: the source does not see it.
        nodes = path.nodes(topology)
        at = nodes.index(path.servers[1])
        net.cut(nodes[at], nodes[at + 1])
        first = net.send_udp(path.source, path.destination, ports=ports)
        net.run(2 * FAST.neighbour_timeout_s)
        second = net.send_udp(path.source, path.destination, ports=ports)
        net.run(FAST.neighbour_timeout_s)
        assert second.arrived_s, (path, second)
        assert first.arrived_s or first.lost
        source, relay = net.routers[path.source], net.routers[path.servers[1]]
        assert relay.counters["packets off their pinned path"] >= 1
        assert source.pins
        assert source.pins.failed_links, "the source was not notified"
        net.heal(nodes[at], nodes[at + 1])
        # The source's timeout for reported links passes.
        net.run(FAST.failed_link_timeout_s + FAST.neighbour_timeout_s)
        last = net.send_udp(path.source, path.destination, ports=ports)
        net.run(0.1)
        assert arrived_by(last) == list(path.servers), last
    assert tried


@pytest.mark.few
@every_router
def test_packets_that_meet_a_cut_arrive_or_are_counted(spec: str, name: str) -> None:
    net = network(spec, name)
    topology = net.topology
    for path, ports in [one for one in pinned_pairs(topology, 20) if len(one[0]) > 1][:4]:
        nodes = path.nodes(topology)
        at = nodes.index(path.servers[1])
        net.cut(nodes[at], nodes[at + 1])
        for _ in range(3):
            trip = net.send_udp(path.source, path.destination, ports=ports)
            net.run(FAST.neighbour_timeout_s)
            assert trip.arrived_s or trip.lost, trip
            assert len(trip.arrived_s) < 2
        net.heal(nodes[at], nodes[at + 1])
        net.run(FAST.neighbour_timeout_s)


@pytest.mark.few
@every_router
def test_cut_at_the_source_uses_the_networks_routing_and_returns(spec: str, name: str) -> None:
    net = network(spec, name)
    topology = net.topology
    path, ports = next(iter(pinned_pairs(topology, 9)))
    first_node = path.nodes(topology)[1]
    router = net.routers[path.source]
    net.cut(path.source, first_node)
    trip = net.send_udp(path.source, path.destination, ports=ports)
    net.run(2 * FAST.neighbour_timeout_s)
    assert trip.arrived_s or trip.lost
    assert router.counters["packets off their pinned path"] >= 1
    net.heal(path.source, first_node)
    net.run(4 * FAST.heartbeat_s)
    before = router.own_generation, router.generation
    again = net.send_udp(path.source, path.destination, ports=ports)
    net.run(0.1)
    assert arrived_by(again) == list(path.servers)
    assert before == (router.own_generation, router.generation)


@pytest.mark.few
@every_router
def test_link_changes_invalidate_the_flows_decision(spec: str, name: str) -> None:
    net = network(spec, name)
    topology = net.topology
    path, ports = next(iter(pinned_pairs(topology, 9)))
    router, first = net.routers[path.source], path.nodes(topology)[1]
    packet = udp_packet(topology, path.source, path.destination, ports=ports)
    [sent] = router.send(packet, net.now)
    assert isinstance(sent, Send)
    assert isinstance(sent.repeat, Pushed)
    assert sent.repeat.header + packet == sent.frame.data
    generation = router.generation, router.own_generation
    net.cut(path.source, first)
    assert (router.generation, router.own_generation) != generation or path.steps[0] in router.gone
    router.gone.clear()
    generation = router.generation, router.own_generation
    net.heal(path.source, first)
    net.run(4 * FAST.heartbeat_s)
    assert (router.generation, router.own_generation) != generation


# -- Multipath TCP ---------------------------------------------------------------------------------


@pytest.mark.few
@every_router
def test_first_subflow_uses_port_0_of_its_client(spec: str, name: str) -> None:
    """The client is the server with the higher TCP port, whichever server it is."""
    net = network(spec, name)
    topology = net.topology
    answer = MPTCP_SYN[2:4] + MPTCP_SYN[:2] + MPTCP_SYN[4:]
    same_ports = MPTCP_SYN[:2] * 2 + MPTCP_SYN[4:]
    low, high = 0, topology.servers - 1
    for client, server in ((low, high), (high, low)):
        path = pinned_path(topology, client, 0, server, None)
        assert path is not None
        back = reverse(topology, path)
        sent = [(client, server, MPTCP_SYN, path), (server, client, answer, back)]
        if client == low:
            sent += [(client, server, same_ports, path), (server, client, same_ports, back)]
        for source, destination, segment, wanted in sent:
            ends = topology.ipv4(source), topology.ipv4(destination)
            packet = Ipv4Header(*ends, TCP).pack(segment)
            [action] = net.routers[source].send(packet, 0.0)
            assert isinstance(action, Send)
            assert (action.port, action.peer) == (wanted.steps[0].port, wanted.steps[0].peer)
            header, body = SourceRouteHeader.parse(action.frame.data)
            assert header.path == hops_of(topology, wanted)
            assert body == packet
    plain = Ipv4Header(topology.ipv4(low), topology.ipv4(high), TCP).pack(
        MPTCP_SYN[:12] + b"\x50" + MPTCP_SYN[13:20]
    )
    for action in net.routers[low].send(plain, 0.0):
        if isinstance(action, Send) and action.frame.ethertype == ETH_DCN:
            assert action.frame.data[0] >> 4 != SOURCE_ROUTE_VERSION


# -- malformed and forged messages -----------------------------------------------------------------

BCUBE = topos.parse("bcube,4,1")


def relay_of(path: Path) -> tuple[MemoryNetwork, Router, int, int]:
    """Return a network, the router of a path's second server, its ingress port and the source."""
    net = network(BCUBE.spec, "bsr")
    net.run(0.2)
    at = path.servers[1]
    port = ports_of_ends(BCUBE, Path(path.source, path.steps[:1]))[1]
    return net, net.routers[at], port, path.source


PATH = pinned_path(BCUBE, 0, 1, 15, None)
assert PATH is not None
HOPS = hops_of(BCUBE, PATH)
assert HOPS is not None
HEADER = SourceRouteHeader(0, 15, Protocol.IPV4, HOPS, 1)
PACKET = udp_packet(BCUBE, 0, 15, ports=(1, None))


def reasons(actions: list[Action]) -> list[str]:
    return [one.reason for one in actions if isinstance(one, Drop)]


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (HEADER._replace(path=(HOPS[0], 255)), "hop leads nowhere"),
        (HEADER._replace(path=HOPS[:1]), "path ends at another server"),
        (HEADER._replace(path=HOPS[:1], destination=PATH.servers[1], protocol=9), "unknown"),
    ],
)
def test_malformed_routes_are_dropped_with_a_reason(header, reason) -> None:
    assert PATH
    _, router, port, source = relay_of(PATH)
    found = router.receive(port, source, Frame(ETH_DCN, header.pack(PACKET)), 1.0)
    assert [drop.startswith(reason) for drop in reasons(found)] == [True]
    assert sum(router.drops.values()) == 1


def test_relay_repeats_by_the_next_hop_and_the_end_by_the_destination() -> None:
    assert PATH
    net, router, port, source = relay_of(PATH)
    [sent] = router.receive(port, source, Frame(ETH_DCN, HEADER.pack(PACKET)), 1.0)
    assert isinstance(sent, Send)
    assert sent.repeat == Relayed(HEADER.relay_key())
    in_by = ports_of_ends(BCUBE, PATH)[1]
    end = net.routers[PATH.destination]
    [came] = end.receive(in_by, PATH.servers[-2], sent.frame, 1.0)
    assert came == Deliver(PACKET, HEADER._replace(next_hop=2).relay_key())


def test_route_under_ip_or_without_port_addresses_is_refused() -> None:
    assert PATH
    _, router, port, source = relay_of(PATH)
    data = HEADER.pack(PACKET)
    assert reasons(router.receive(port, source, Frame(ETH_IP, data), 1.0))
    router.pins = None
    assert reasons(router.receive(port, source, Frame(ETH_DCN, data), 1.0)) == ["bad version"]


def test_lost_message_triggers_no_message() -> None:
    assert PATH
    net, router, port, source = relay_of(PATH)
    net.cut(*PATH.nodes(BCUBE)[2:4])
    failure = PathFailure(0, 0, 1, None).pack()
    lost = HEADER._replace(protocol=Protocol.PATH_FAILURE).pack(failure)
    found = router.receive(port, source, Frame(ETH_DCN, lost), net.now)
    assert reasons(found) == ["next hop is down"]
    assert not [one for one in found if isinstance(one, Send)]


def test_reported_link_is_left_until_the_timeout() -> None:
    assert PATH
    net = network(BCUBE.spec, "bsr")
    net.run(0.2)
    source, relay, far = PATH.source, PATH.servers[1], PATH.steps[1]
    in_by = ports_of_ends(BCUBE, Path(source, PATH.steps[:1]))[1]
    answer = SourceRouteHeader(relay, source, Protocol.PATH_FAILURE, (0,), 1)
    router = net.routers[source]

    def report(port: int, peer: int) -> list[str]:
        frame = Frame(ETH_DCN, answer.pack(PathFailure(port, relay, peer, None).pack()))
        return reasons(router.receive(PATH.steps[0].port, relay, frame, net.now))

    assert in_by == PATH.steps[0].port
    assert report(far.port, relay) == ["failure of no link"]
    generation = router.own_generation
    assert report(far.port, far.peer) == []
    assert report(far.port, far.peer) == []
    assert router.own_generation == generation + 1, "repeated reports change nothing"
    assert router.pins
    for share, pinned in ((0.9, False), (0.2, True)):
        net.run(share * FAST.failed_link_timeout_s)
        [sent] = [one for one in router.send(PACKET, net.now) if isinstance(one, Send)][:1]
        assert (sent.frame.data[0] >> 4 == SOURCE_ROUTE_VERSION) == pinned
