"""DPillarMP's light-weight variant: random tries (Liao 2012, section 4.5.1)."""

from collections import Counter

import pytest

from pillarbox import topos
from pillarbox.hosts.base.timers import PAPER
from pillarbox.hosts.dpillar import light_weight
from pillarbox.hosts.dpillar.tunnel_choices import tunnels
from pillarbox.hosts.memory.memory_network import MemoryNetwork, Trip
from pillarbox.hosts.wire.ipv4 import (
    TCP,
    Ipv4Header,
)
from pillarbox.hosts.wire.marks import udp_packet
from tests.hosts.dpillar.running import EAGER, assert_each_ended_once, network, strike

SYN = 0x02
ACK = 0x10


def tcp_packet(net: topos.Topology, a: int, b: int, flags: int, port: int, serial: int) -> bytes:
    mark = udp_packet(net, a, b, serial=serial)[28:]
    head = port.to_bytes(2, "big") + (80).to_bytes(2, "big") + bytes(8) + bytes([0x50, flags])
    return Ipv4Header(net.ipv4(a), net.ipv4(b), TCP).pack(head + bytes(6) + mark)


def send_tcp(net: MemoryNetwork, a: int, b: int, flags: int, port: int) -> Trip:
    trip = Trip(a, b, net.now)
    net.trips.append(trip)
    net.send(a, tcp_packet(net.topology, a, b, flags, port, len(net.trips) - 1))
    return trip


def dead_share(net: MemoryNetwork, a: int, b: int, share: float) -> float:
    """Kill a relay of so many of the paths; return how many are dead."""
    every = list(tunnels(net.topology, a, b, (0, 1)))
    for path in every[: round(share * len(every))]:
        net.kill(path.servers[len(path) // 2])
    return sum(bool(net.failures.first_on(net.topology, path)) for path in every) / len(every)


def test_tries_find_a_working_path_among_dead_ones() -> None:
    # Nobody knows yet that they are dead: with the paper's timers neighbours notice after 5 s.
    net = network("dpillar,8,3", light_weight.RandomPath, timers=PAPER)
    a, b = 0, net.topology.server("1.3.3.3")
    dead = dead_share(net, a, b, 0.3)
    assert 0.2 < dead < 0.45
    tries: Counter[int] = Counter()
    for port in range(2000, 2400):
        for count in range(1, 12):
            trip = send_tcp(net, a, b, SYN, port)
            net.run(0.001)
            if trip.arrived_s:
                tries[count] += 1
                break
    assert tries.total() == 400, "every connection comes about"
    assert tries[1] / 400 == pytest.approx(1 - dead, abs=0.07)
    assert sum(tries[count] for count in range(1, 5)) > 0.97 * 400
    assert_each_ended_once(net.trips)


def test_a_flow_stays_on_its_path_and_a_repeated_syn_draws_again() -> None:
    net = network("dpillar,8,3", light_weight.RandomPath)
    a, b = 0, net.topology.server("1.3.3.3")
    drawn = []
    for _ in range(40):
        flags = [SYN, ACK, ACK, ACK]
        trips = [send_tcp(net, a, b, flag, port=2000) for flag in flags]
        net.run(0.001)
        assert len({trip.path for trip in trips}) == 1
        drawn.append(trips[0].path)
    assert len(set(drawn)) >= 7, "all of the 8 paths are drawn, or nearly"
    answers = [send_tcp(net, b, a, SYN | ACK, port=80) for _ in range(40)]
    net.run(0.001)
    assert len({trip.path for trip in answers}) >= 7, "the answer to a SYN is a try as well"
    udp = [net.send_udp(a, b, source_port=port) for port in range(40) for _ in range(3)]
    net.run(0.001)
    assert len({trip.path for trip in udp}) >= 7
    assert all(len({trip.path for trip in udp[i : i + 3]}) == 1 for i in range(0, 120, 3))


def test_told_of_a_failure_a_flow_draws_among_the_rest_until_it_may_have_been_mended() -> None:
    net = network("dpillar,4,3", light_weight.RandomPath)
    a, b = 0, 7
    every = list(tunnels(net.topology, a, b, (0, 1)))
    trips = net.stream(a, b, every_s=0.01, seconds=4.0, source_port=4000)
    net.run(0.1)
    path = trips[0].path
    strike(net, path, "cut")
    net.run(0.5)
    source = net.routers[a].counters
    assert source["packets sent again"] == 1
    assert trips[-2].path in set(every) - {path}
    # It is believed for so long, for new flows too; then a flow may draw the path again.
    new = [net.send_udp(a, b, source_port=port) for port in range(5000, 5100)]
    net.run(EAGER.failed_link_timeout_s)
    assert all(trip.arrived_s for trip in new)
    newer = [net.send_udp(a, b, source_port=port) for port in range(6000, 6100)]
    net.run(4.0)
    assert source["packets sent again"] > 1
    assert all(trip.arrived_s for trip in (*trips[:-1], *newer))
    assert_each_ended_once(net.trips)
