"""BCube's gateways to external networks (Guo 2009, section 5.3)."""

import pytest

from pillarbox import topos
from pillarbox.hosts.base.actions import Action, Deliver, Drop
from pillarbox.hosts.base.timers import FAST
from pillarbox.hosts.bcube.bsr import BSR
from pillarbox.hosts.bcube.gateways import Gateways
from pillarbox.hosts.memory.memory_network import MemoryNetwork
from pillarbox.hosts.wire.icmp import unreachable
from pillarbox.hosts.wire.ipv4 import UDP, Ipv4Header
from pillarbox.topos.base.errors import PillarboxError
from pillarbox.topos.bcube import BCube

OUTSIDE = 8 << 24 | 8 << 16 | 8 << 8 | 8


def outside_packet(source: int, destination: int, port: int) -> bytes:
    ports = bytes([port >> 8, port & 255, 0, 53, 0, 13, 0, 0])
    return Ipv4Header(source, destination, UDP).pack(ports + b"hello")


class Recorder(BSR):
    """BSR that keeps what it delivered."""

    def __init__(self, topology: BCube, server: int) -> None:
        gateways = {"0.0.0.0/0": [3, 5], "192.0.2.0/24": [9]}
        super().__init__(topology, server, gateways=gateways, timers=FAST)
        self.delivered: list[bytes] = []

    def _counted(self, actions: list[Action], now: float) -> list[Action]:
        self.delivered += [one.packet for one in actions if isinstance(one, Deliver)]
        return super()._counted(actions, now)


def delivered(network: MemoryNetwork) -> dict[int, list[bytes]]:
    return {r.server: r.delivered for r in network.routers if r.delivered}


def test_packets_leave_by_their_gateway_and_spread_over_several() -> None:
    bcube = topos.parse("bcube,4,1")
    network = MemoryNetwork(bcube, Recorder)
    packets = [outside_packet(bcube.ipv4(0), OUTSIDE, port) for port in range(200)]
    for packet in packets:
        network.send(0, packet)
    network.run(0.01)
    out = delivered(network)
    assert set(out) == {3, 5}
    assert sorted(out[3] + out[5]) == sorted(packets), "the inner packets, header stripped"
    assert 70 < len(out[3]) < 130
    assert network.routers[3].counters["to external networks"] == len(out[3])
    network.send(0, packets[0])  # a flow stays with its gateway
    network.run(0.01)
    twice = 3 if packets[0] in out[3] else 5
    assert delivered(network)[twice].count(packets[0]) == 2


def test_longest_prefix_has_its_own_gateway_and_a_gateway_needs_none() -> None:
    bcube = topos.parse("bcube,4,1")
    network = MemoryNetwork(bcube, Recorder)
    special = outside_packet(bcube.ipv4(0), 0xC0000207, 1)
    network.send(0, special)
    own = outside_packet(bcube.ipv4(5), OUTSIDE, 2)
    network.send(5, own)
    network.run(0.01)
    assert delivered(network) == {9: [special], 5: [own]}


def test_packets_from_outside_are_routed_from_the_gateway() -> None:
    bcube = topos.parse("bcube,4,1")
    network = MemoryNetwork(bcube, Recorder)
    packet = outside_packet(OUTSIDE, bcube.ipv4(14), 80)
    network.send(3, packet)
    network.run(0.01)
    assert delivered(network) == {14: [packet]}
    assert network.routers[3].counters["from external networks"] == 1


def test_flows_of_a_dead_gateway_move_to_the_other() -> None:
    bcube = topos.parse("bcube,4,1")
    network = MemoryNetwork(bcube, Recorder)
    packets = [outside_packet(bcube.ipv4(0), OUTSIDE, port) for port in range(20)]

    def send_all() -> None:
        for packet in packets:
            network.send(0, packet)

    send_all()
    network.run(0.01)
    moved = list(network.routers[3].delivered)
    stayed = list(network.routers[5].delivered)
    assert moved
    assert stayed
    network.kill(3)
    for i in range(int(FAST.neighbour_timeout_s / 0.01) + 10):
        network.at(network.now + i * 0.01, send_all)
    network.run(0.4)
    network.routers[5].delivered.clear()
    send_all()
    network.run(0.01)
    assert sorted(network.routers[5].delivered) == sorted(packets)
    assert network.routers[0].counters["gateway changes"] == len(moved)
    network.kill(5)
    network.run(0.2)
    send_all()
    network.run(0.5)
    drops = network.routers[0].drops["no path is left"]
    send_all()
    assert network.routers[0].drops["no path is left"] == drops + len(packets)
    network.revive(5)
    network.run(0.1)
    network.routers[5].delivered.clear()
    for i in range(40):
        network.at(network.now + i * 0.1, send_all)
    network.run(4.0)
    network.routers[5].delivered.clear()
    send_all()
    network.run(0.01)
    assert sorted(network.routers[5].delivered) == sorted(packets), "and back"


def test_without_a_gateway_the_destination_is_unknown() -> None:
    bcube = topos.parse("bcube,4,1")
    packet = outside_packet(bcube.ipv4(0), OUTSIDE, 1)
    told = [
        Drop("destination is no server of this network", packet),
        Deliver(unreachable(packet) or b""),
    ]
    assert BSR(bcube, 0).send(packet, 0.0) == told
    only = BSR(bcube, 0, gateways={"192.0.2.0/24": [3]})
    assert only.send(packet, 0.0) == told


@pytest.mark.parametrize(
    ("servers_of", "says"),
    [
        ({"everything": [0]}, "no prefix such as"),
        ({"192.0.2.1/24": [0]}, "no prefix such as"),
        ({"0.0.0.0/0": []}, "has no gateway"),
        ({"0.0.0.0/0": [16]}, "is no server of bcube,4,1"),
        ({"0.0.0.0/0": [-1]}, "is no server of bcube,4,1"),
    ],
)
def test_bad_gateways_are_refused(servers_of: dict[str, list[int]], says: str) -> None:
    with pytest.raises(PillarboxError, match=says):
        Gateways(BCube(4, 1), servers_of)
