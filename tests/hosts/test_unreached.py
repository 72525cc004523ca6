"""Senders to a dead server get an ICMP error in every network, but not in a short failure."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from pillarbox import topos
from pillarbox.hosts.base.actions import Action, Deliver, Drop
from pillarbox.hosts.base.algorithms import algorithms
from pillarbox.hosts.base.load import router_for
from pillarbox.hosts.base.unreached import TOLD_AFTER_S
from pillarbox.hosts.memory.memory_network import MemoryNetwork
from pillarbox.hosts.wire.dcn import DcnHeader, Protocol
from pillarbox.hosts.wire.frame import ETH_DCN, Frame
from pillarbox.hosts.wire.ipv4 import ICMP, UDP, Ipv4Header
from pillarbox.topos.base.topology import Topology

HOST_UNREACHABLE = b"\x03\x01"
# The smallest example of each network whose servers relay. A single switch tells nobody.
SMALL = [
    min(relaying, key=lambda spec: topos.parse(spec).servers)
    for kind in topos.kinds()
    if (relaying := [spec for spec in topos.network(kind).examples if topos.parse(spec).ports > 1])
]
CASES = [(spec, name) for spec in SMALL for name in algorithms(topos.parse(spec))]


class Told(MemoryNetwork):
    """A network that records when each server's programs were told of an unreachable host."""

    told_s: dict[int, list[float]]

    def _execute_actions(self, server: int, actions: list[Action]) -> None:
        for action in actions:
            packet = action.packet if isinstance(action, Deliver) else b""
            if packet[9:10] == bytes([ICMP]) and packet[20:22] == HOST_UNREACHABLE:
                self.told_s.setdefault(server, []).append(self.now)
        super()._execute_actions(server, actions)


def network(topology: Topology, routing: str) -> Told:
    made = Told(topology, router_for(topology, routing))
    made.told_s = {}
    made.run(1.0)
    return made


@pytest.mark.few
@pytest.mark.parametrize(("spec", "routing"), CASES)
def test_sender_to_a_dead_server_is_told(spec: str, routing: str) -> None:
    topology = topos.parse(spec)
    net = network(topology, routing)
    dead, sender = topology.servers - 1, 0
    net.kill(dead)
    begun_s = net.now
    net.stream(sender, dead, 0.5, 6.0, source_port=4000)
    net.run(7.0)
    told = net.told_s.pop(sender, [])
    assert not net.told_s
    assert told and told[0] >= begun_s + TOLD_AFTER_S


@pytest.mark.few
@pytest.mark.parametrize(("spec", "routing"), CASES)
def test_sender_is_not_told_of_a_short_failure(spec: str, routing: str) -> None:
    topology = topos.parse(spec)
    net = network(topology, routing)
    dead, sender = topology.servers - 1, 0
    net.kill(dead)
    net.stream(sender, dead, 0.1, 4.0, source_port=4000)
    net.run(TOLD_AFTER_S - 0.2)
    net.revive(dead)
    net.run(4.0)
    assert not net.told_s


@pytest.mark.parametrize(
    "source", ["0.0.0.0", "10.0.0.9", "127.0.0.1", "224.0.0.1", "255.255.255.255"]
)
def test_relay_counts_what_it_cannot_tell_a_forged_sender(source: str) -> None:
    dcell = topos.parse("dcell,4,1")
    net = network(dcell, "dcell")
    dead, relay = dcell.server("4.3"), net.routers[dcell.server("0.3")]
    net.kill(dcell.server("4.0"))  # the relay's only next hop to the destination
    net.run(1.0)
    forged = Ipv4Header(int(ip_address(source)), dcell.ipv4(dead), UDP).pack(bytes(20))
    header = DcnHeader(dcell.uid(0), dcell.uid(dead), Protocol.IPV4, 1)
    frame = Frame(ETH_DCN, header.pack(forged))
    before = relay.drops.total()
    for _ in range(8):
        actions = relay.receive(0, 0, frame, net.now)
        drops = [action for action in actions if isinstance(action, Drop)]
        assert relay.drops.total() - before == len(drops) >= 1
        before = relay.drops.total()
        net.run(0.5)
