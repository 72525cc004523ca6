"""The network in memory: virtual time, faults, devices that stack, and trips that all end."""

import pytest

from pillarbox import topos
from pillarbox.hosts.base.failures import parse_failures
from pillarbox.hosts.base.timers import FAST
from pillarbox.hosts.dcell.plain import DCellRouting
from pillarbox.hosts.memory.frame_devices import (
    Corrupt,
    Duplicate,
    FrameDelay,
    FrameHop,
    FrameTap,
    Loss,
    Reorder,
)
from pillarbox.hosts.memory.memory_network import HOP_DELAY_S, MemoryNetwork
from pillarbox.hosts.memory.tryout import network_of, packet_path

DCELL = topos.parse("dcell,4,1")
A, B = DCELL.server("0.0"), DCELL.server("4.3")
NEAR, FAR = DCELL.server("0.3"), DCELL.server("4.0")
TIMEOUT = FAST.neighbour_timeout_s


def network(*devices: object) -> MemoryNetwork:
    return MemoryNetwork(
        DCELL,
        lambda net, server: DCellRouting(net, server, timers=FAST),
        devices,  # type: ignore[arg-type]
    )


def test_trip_takes_virtual_time_only() -> None:
    net = network()
    trip = net.send_udp(A, B)
    net.run(1.0)
    assert trip.path.servers == (A, NEAR, FAR, B)
    assert trip.arrived_s == [pytest.approx(3 * HOP_DELAY_S)]
    assert net.now == 1.0


def test_cut_cable_is_noticed_at_once_and_heals() -> None:
    net = network()
    net.cut(NEAR, FAR)
    trip = net.send_udp(A, B)
    net.run(0.01)
    assert trip.lost == "next hop is down"
    net.heal(NEAR, FAR)
    net.run(2 * FAST.heartbeat_s)
    assert not (trip := net.send_udp(A, B)).lost
    net.run(0.01)
    assert len(trip.arrived_s) == 1


def test_silent_cut_is_noticed_by_silence() -> None:
    net = network()
    net.run(0.5)
    net.cut(NEAR, FAR, silent=True)
    lost = net.send_udp(A, B)
    net.run(0.01)
    assert lost.lost == "lost where something has failed"
    assert net.losses["lost where something has failed"] >= 1
    net.run(TIMEOUT)
    dropped = net.send_udp(A, B)
    net.run(0.01)
    assert dropped.lost == "next hop is down"


def test_dead_server_is_silent_and_returns_with_an_empty_memory() -> None:
    net = network()
    net.run(0.5)
    before = net.routers[NEAR]
    net.kill(NEAR)
    net.run(1.5 * TIMEOUT)
    assert net.send_udp(NEAR, B).lost == "source server is dead"
    trip = net.send_udp(A, B)
    net.run(0.01)
    assert trip.lost == "next hop is down"
    net.revive(NEAR)
    assert net.routers[NEAR] is not before
    net.run(3 * FAST.heartbeat_s)
    trip = net.send_udp(A, B)
    net.run(0.01)
    assert len(trip.arrived_s) == 1


@pytest.mark.parametrize("silent", [False, True])
def test_stopped_switch_takes_down_its_servers(silent: bool) -> None:
    net = network()
    net.run(0.5)
    net.stop_switch(0, silent=silent)
    net.run(2 * TIMEOUT if silent else 0.001)
    assert net.send_udp(A, NEAR).lost == "next hop is down"
    net.start_switch(0)
    net.run(3 * FAST.heartbeat_s)
    trip = net.send_udp(A, NEAR)
    net.run(0.01)
    assert trip.arrived_s


def test_devices_stack() -> None:
    seen: list[FrameHop] = []
    tap = FrameTap(lambda hop, _: seen.append(hop))
    doubled = network(Duplicate(1.0), FrameDelay(0.001), tap)
    trip = doubled.send_udp(A, NEAR)
    doubled.run(0.01)
    assert trip.arrived_s == [pytest.approx(0.001 + HOP_DELAY_S)] * 2
    assert len([hop for hop in seen if hop.server == A and hop.peer == NEAR]) >= 2
    lossy = network(Loss(1.0), tap)
    assert lossy.send_udp(A, NEAR).lost == "lost by a device"
    corrupt = network(Corrupt(1.0, within_bytes=20))
    trip = corrupt.send_udp(A, NEAR)
    corrupt.run(0.01)
    assert not trip.arrived_s
    assert trip.lost.startswith(("bad", "truncated"))


def test_late_frames_arrive_once_after_frames_sent_later() -> None:
    for share, jitter_s in ((0.1, 0.005), (0.5, 0.02)):
        net = network(Reorder(share, jitter_s, seed=1))
        trips = net.stream(A, NEAR, every_s=0.001, seconds=1.0, source_port=7)
        net.run(2.0)
        assert [len(trip.arrived_s) for trip in trips] == [1] * 1000
        delays_s = [trip.arrived_s[0] - trip.sent_s for trip in trips]
        late = [delay_s for delay_s in delays_s if delay_s > HOP_DELAY_S + jitter_s / 2]
        assert late == [pytest.approx(HOP_DELAY_S + jitter_s)] * len(late)
        assert len(late) == pytest.approx(1000 * share, abs=6 * (1000 * share * (1 - share)) ** 0.5)
        first = delays_s.index(late[0])
        assert trips[first].arrived_s > trips[first + 1].arrived_s


def test_stream_sends_at_its_rate() -> None:
    net = network()
    trips = net.stream(A, B, every_s=0.01, seconds=0.1, source_port=7)
    net.run(0.2)
    assert [round(trip.sent_s, 6) for trip in trips] == [round(i * 0.01, 6) for i in range(10)]
    assert all(len(trip.arrived_s) == 1 for trip in trips)


def test_what_failed_before_the_start_is_found_out() -> None:
    failures = parse_failures(DCELL, ["cut 0.3-4.0"])
    assert (
        packet_path(network_of(DCELL, DCellRouting, failures), A, B).dropped == "next hop is down"
    )
    assert packet_path(network_of(DCELL, DCellRouting), A, B).paths[0].servers == (A, NEAR, FAR, B)
