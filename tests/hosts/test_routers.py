"""The contract of a router, held by every router of every network that is found."""

import json
import random

import pytest

from pillarbox import topos
from pillarbox.hosts.base.actions import Deliver, Drop, Send
from pillarbox.hosts.base.algorithms import algorithms, route
from pillarbox.hosts.base.router import Router
from pillarbox.hosts.base.timers import FAST
from pillarbox.hosts.memory.frame_devices import (
    Corrupt,
    Duplicate,
    FrameDelay,
    FrameHop,
    FrameTap,
    Loss,
    Reorder,
)
from pillarbox.hosts.memory.memory_network import MemoryNetwork, Trip
from pillarbox.hosts.wire.frame import ETH_DCN, ETH_IP, Frame
from pillarbox.hosts.wire.marks import serial_of, udp_packet
from pillarbox.topos.base.spec import small

ODD = ["dpillar,4,3", "dcell,2,2", "dcell,3,2,servers=41", "bcube,2,3", "bcube,4,2,servers=32"]
ODD += ["ficonn,4,2", "fattree,4"]
SMALL = small()
SPECS = [*SMALL, *ODD]
CASES = [
    (spec, name)
    for spec in SPECS
    for name, algorithm in algorithms(topos.parse(spec)).items()
    if algorithm.router
]
every_router = pytest.mark.parametrize(("spec", "name"), CASES)
every_small_router = pytest.mark.parametrize(
    ("spec", "name"), [case for case in CASES if case[0] in SMALL]
)


def network(spec: str, name: str, *devices: object, seed: int = 0) -> MemoryNetwork:
    topology = topos.parse(spec)
    router = algorithms(topology)[name].router
    assert router is not None
    make: type[Router] = router
    return MemoryNetwork(
        topology,
        lambda net, server: make(net, server, timers=FAST, seed=seed),
        devices,  # type: ignore[arg-type]
    )


def some_pairs(topology: topos.Topology, most: int) -> list[tuple[int, int]]:
    pairs = [(a, b) for a in range(topology.servers) for b in range(topology.servers) if a != b]
    return random.Random(7).sample(pairs, min(most, len(pairs)))


def end(trips: list[Trip]) -> None:
    """Every packet arrived, or there is a reason why not."""
    for trip in trips:
        assert trip.arrived_s or trip.lost, trip


@pytest.mark.few
@every_router
def test_packets_arrive_once_along_cables_and_without_loops(spec: str, name: str) -> None:
    net = network(spec, name)
    pairs = some_pairs(net.topology, 80)
    for port in (4000, 4000, 4001):  # a new flow, the same again, another one
        trips = [net.send_udp(a, b, source_port=port) for a, b in pairs]
        net.run(0.6)
        for (a, b), trip in zip(pairs, trips, strict=True):
            assert len(trip.arrived_s) == 1, trip
            path = trip.path
            assert path.destination == b
            path.nodes(net.topology)  # raises where a hop follows no cable
            assert len(set(path.servers)) == len(path.servers), "a loop"
            chosen = algorithms(net.topology)[name]
            if chosen.path:
                assert path.servers == route(net.topology, name, a, b).paths[0].servers


@pytest.mark.few
@every_small_router
def test_a_network_without_traffic_stays_calm(spec: str, name: str) -> None:
    net = network(spec, name)
    net.run(3.0)
    for router in net.routers:
        assert router.counters["link down"] == 0
        assert not router.drops
        assert len(router.agenda) <= 8
        assert router.next_poll > net.now


@pytest.mark.few
@every_small_router
def test_same_seed_same_run(spec: str, name: str) -> None:
    def run() -> list[object]:
        net = network(spec, name, Loss(0.05, seed=3), FrameDelay(1e-5, 1e-5, seed=4), seed=9)
        pairs = some_pairs(net.topology, 20)
        for _ in range(3):
            for a, b in pairs:
                net.send_udp(a, b)
            net.run(0.3)
        return [(trip.steps, trip.arrived_s, trip.lost) for trip in net.trips]

    assert run() == run()


@pytest.mark.few
@every_small_router
def test_bad_cables_lose_packets_but_never_count_twice_what_they_lost(spec: str, name: str) -> None:
    devices = [Loss(0.02, seed=1), Duplicate(0.02, seed=2), Corrupt(0.02, seed=3, within_bytes=28)]
    devices.append(Reorder(0.1, 0.005, seed=4))
    net = network(spec, name, *devices)
    pairs = some_pairs(net.topology, 40)
    for _ in range(5):
        for a, b in pairs:
            net.send_udp(a, b)
        net.run(0.2)
    net.run(3.0)
    end(net.trips)
    assert sum(bool(trip.arrived_s) for trip in net.trips) > 0.5 * len(net.trips)


@pytest.mark.few
@every_router
def test_silence_of_a_server_is_noticed_and_others_go_on(spec: str, name: str) -> None:
    net = network(spec, name)
    dead = net.topology.servers // 2
    net.kill(dead)
    net.run(2 * FAST.neighbour_timeout_s)
    pairs = [(a, b) for a, b in some_pairs(net.topology, 60) if dead not in (a, b)]
    to_dead = [net.send_udp(a, dead) for a in {a for a, _ in pairs}]
    for _ in range(2):  # the first may be what tells a source of the failure
        trips = [net.send_udp(a, b) for a, b in pairs]
        net.run(1.5)
    end(net.trips)
    assert not any(trip.arrived_s for trip in to_dead)
    around = [bool(route(net.topology, name, a, b, net.failures).paths) for a, b in pairs]
    assert sum(bool(trip.arrived_s) for trip in trips) >= 0.9 * sum(around)


@pytest.mark.few
@every_small_router
def test_state_is_plain_data(spec: str, name: str) -> None:
    net = network(spec, name)
    for a, b in some_pairs(net.topology, 10):
        net.send_udp(a, b)
    net.run(0.5)
    for router in net.routers:
        state = json.loads(json.dumps(router.state()))
        assert state["server"] == net.topology.address(router.server)


@pytest.mark.few
@every_small_router
def test_packets_to_nowhere_are_dropped_with_a_reason(spec: str, name: str) -> None:
    net = network(spec, name)
    router = net.routers[0]
    foreign = bytearray(udp_packet(net.topology, 0, 1))
    foreign[16:20] = bytes([192, 0, 2, 1])
    foreign[10:12] = bytes(2)
    for packet in (b"", b"\x45", bytes(64), bytes(foreign), b"\x60" + bytes(60)):
        before = sum(router.drops.values())
        actions = router.send(packet, 0.0)
        assert [type(action) for action in actions] == [Drop]
        assert sum(router.drops.values()) == before + 1
    assert all(reason and len(reason) < 60 for reason in router.drops)


@pytest.mark.few
@every_small_router
def test_packet_to_oneself_is_delivered_at_once(spec: str, name: str) -> None:
    net = network(spec, name)
    packet = udp_packet(net.topology, 1, 1)
    assert net.routers[1].send(packet, 0.0) == [Deliver(packet)]


@pytest.mark.few
@every_small_router
def test_rubbish_is_counted_and_never_an_error(spec: str, name: str) -> None:
    frames: list[FrameHop] = []
    net = network(spec, name, FrameTap(lambda hop, now: frames.append(hop)))
    for a, b in some_pairs(net.topology, 30):
        net.send_udp(a, b)
    net.run(0.3)
    drawn = random.Random(5)
    router, now = net.routers[0], net.now
    sends = 0
    for i in range(1500):
        sample = drawn.choice(frames).frame
        data = bytearray(sample.data if i % 3 else drawn.randbytes(drawn.randrange(80)))
        for _ in range(drawn.randrange(1, 4)):
            if data:
                data[drawn.randrange(len(data))] = drawn.randrange(256)
        kind = drawn.choice([ETH_DCN, ETH_IP, sample.ethertype, drawn.randrange(65536)])
        port = drawn.randrange(net.topology.ports)
        peer = drawn.randrange(net.topology.servers)
        now += 1e-4
        for action in [*router.receive(port, peer, Frame(kind, bytes(data)), now)]:
            assert isinstance(action, Send | Deliver | Drop)
            sends += isinstance(action, Send)
        router.poll(now)
    assert sum(router.drops.values()) > 500
    assert all(reason and len(reason) < 60 for reason in router.drops)
    json.dumps(router.state())


@pytest.mark.few
@every_small_router
def test_it_knows_how_long_its_headers_are(spec: str, name: str) -> None:
    seen: list[FrameHop] = []
    net = network(spec, name, FrameTap(lambda hop, _: seen.append(hop)))
    net.run(2.0)
    seen.clear()
    far = net.topology.servers // 2 - 1  # more than one hop away where there are such
    net.send_udp(0, far)
    net.run(2.0)
    packet = udp_packet(net.topology, 0, far)
    carried = [hop.frame for hop in seen if serial_of(hop.frame.data) is not None]
    # A tunnel of DPillar's ends one hop before the destination: there the header is off already.
    longest = max(len(frame.data) for frame in carried) - len(packet)
    assert longest == type(net.routers[0]).header_bytes()
