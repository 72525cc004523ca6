"""Packets that a relay sends back to their source because the next hop is down."""

import pytest

from pillarbox import topos
from pillarbox.experiments.lab.emulation.defaults import usual_routing
from pillarbox.hosts.base.actions import Drop
from pillarbox.hosts.base.algorithms import algorithms
from pillarbox.hosts.base.router import RETURNED_BURST, RETURNED_BYTES, RETURNED_PER_S
from pillarbox.hosts.base.timers import PAPER
from pillarbox.hosts.memory.memory_network import MemoryNetwork
from pillarbox.hosts.wire.marks import udp_packet

NETWORKS = [("bcube,4,1", "0.0", "1.3"), ("dpillar,4,3", "0.0.0.0", "0.1.1.1")]


def failed_behind_a_relay(spec: str, a: str, b: str) -> tuple[MemoryNetwork, int, int]:
    """Return a network in which the relay's cable to the next switch is cut, and two ends."""
    topology = topos.parse(spec)
    router = algorithms(topology)[usual_routing(topology)].router
    assert router is not None
    net = MemoryNetwork(topology, lambda net, server: router(net, server, timers=PAPER))
    source, destination = topology.server(a), topology.server(b)
    trip = net.send_udp(source, destination)
    net.run(0.1)
    relay, switch = trip.path.servers[1], trip.path.nodes(topology)[3]
    net.cut(relay, switch)
    # As a source that has heard nothing of it: what its relays told is undone.
    net.routers[source] = router(topology, source, timers=PAPER, now=net.now)
    return net, source, destination


@pytest.mark.parametrize(("spec", "a", "b"), NETWORKS)
def test_a_packet_comes_back_once_and_arrives(spec: str, a: str, b: str) -> None:
    net, source, destination = failed_behind_a_relay(spec, a, b)
    trip = net.send_udp(source, destination, size=RETURNED_BYTES)
    net.run(0.1)
    assert len(trip.arrived_s) == 1
    assert net.routers[source].counters["packets sent again"] == 1
    again = net.send_udp(source, destination)
    net.run(0.1)
    assert len(again.arrived_s) == 1
    assert net.routers[source].counters["packets sent again"] == 1, "the source has learned"


@pytest.mark.parametrize(("spec", "a", "b"), NETWORKS)
def test_a_large_packet_does_not_come_back(spec: str, a: str, b: str) -> None:
    net, source, destination = failed_behind_a_relay(spec, a, b)
    trip = net.send_udp(source, destination, size=RETURNED_BYTES + 1)
    net.run(0.1)
    assert trip.lost == "next hop is down"


@pytest.mark.parametrize(("spec", "a", "b"), NETWORKS)
def test_a_relay_returns_no_more_than_its_allowance(spec: str, a: str, b: str) -> None:
    net, source, destination = failed_behind_a_relay(spec, a, b)
    trips = [net.send_udp(source, destination) for _ in range(RETURNED_BURST + 100)]
    net.run(0.1)
    arrived = sum(bool(trip.arrived_s) for trip in trips)
    assert RETURNED_BURST <= arrived <= RETURNED_BURST + 0.1 * RETURNED_PER_S
    assert {trip.lost for trip in trips if not trip.arrived_s} == {"next hop is down"}


@pytest.mark.parametrize(("spec", "a", "b"), NETWORKS)
def test_each_return_takes_one_from_the_ttl(spec: str, a: str, b: str) -> None:
    topology = topos.parse(spec)
    router = algorithms(topology)[usual_routing(topology)].router
    assert router is not None
    here = router(topology, topology.server(a))
    packet = bytearray(udp_packet(topology, here.server, topology.server(b)))
    ttl, checksum = 8, 10
    packet[ttl], packet[checksum : checksum + 2] = 1, bytes(2)
    words = [int.from_bytes(packet[i : i + 2], "big") for i in range(0, 20, 2)]
    total = sum(words)
    total = (total & 0xFFFF) + (total >> 16)
    packet[checksum : checksum + 2] = (~total & 0xFFFF).to_bytes(2, "big")
    assert here.send_again(bytes(packet), 0.0) == [Drop("TTL expired", bytes(packet))]
