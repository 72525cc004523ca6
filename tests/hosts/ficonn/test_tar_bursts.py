"""Many flows that begin together, on servers that take their time for every message."""

from dataclasses import replace
from itertools import permutations

import pytest

from pillarbox.hosts.base.actions import Relayed, Send
from pillarbox.hosts.base.timers import FAST
from pillarbox.hosts.ficonn.router import Tar
from pillarbox.hosts.memory.frame_devices import FrameHop, FrameTap, OneProcessor
from pillarbox.hosts.memory.memory_network import MemoryNetwork
from pillarbox.hosts.wire.dcn import DcnHeader, Protocol
from pillarbox.hosts.wire.frame import ETH_DCN, Frame
from pillarbox.hosts.wire.header import ByHeader
from pillarbox.topos.base.topology import Topology
from pillarbox.topos.ficonn import BACKUP
from tests.hosts.ficonn.small import SMALL

# As if all servers shared two processors, each of which takes 1.7 ms for a message.
MESSAGE_S = 0.01
PORTS = range(5)  # flows between each two servers
TIMERS = replace(FAST, heartbeat_s=1.0, neighbour_timeout_s=5.0, probe_spacing_s=0.126)
SECONDS, EVERY_S = 12.0, 0.5


def cost_s(frame: Frame) -> float:
    """Return what a frame costs: a data plane forwards packets."""
    is_message = frame.ethertype == ETH_DCN and frame.data[1] not in (
        Protocol.IPV4,
        Protocol.HEARTBEAT,
    )
    return MESSAGE_S if is_message else 0.0


def burst(*, by_tor: bool) -> MemoryNetwork:
    """Return a network in which flows between all pairs of servers began at once."""

    def make(net: Topology, server: int) -> Tar:
        router = Tar(net, server, timers=TIMERS, seed=1)
        for other in [] if by_tor else range(net.servers):
            router.tor_failed.put(other, None, 1e9)
        return router

    net = MemoryNetwork(SMALL, make, [OneProcessor(cost_s)])
    net.run(0.5)
    for a, b in permutations(range(SMALL.servers), 2):
        for port in PORTS:
            net.stream(a, b, EVERY_S, SECONDS, source_port=4000 + port)
    return net


@pytest.mark.parametrize("by_tor", [True, False])
def test_a_burst_of_flows_does_not_collapse(by_tor: bool) -> None:
    net = burst(by_tor=by_tor)
    net.run(SECONDS + 10.0)
    flows = SMALL.servers * (SMALL.servers - 1) * len(PORTS)
    own = [flow for router in net.routers for flow in router.flows.values() if not flow.follows]
    assert len(own) == flows
    lost = [trip.lost for trip in net.trips if not trip.arrived_s]
    assert not lost, (len(lost), set(lost))
    assert all(flow.ready for flow in own)
    assert sum(router.counters["probes"] for router in net.routers) < 2 * flows
    assert {router.searches.window >= 1 for router in net.routers} == {True}


def test_departs_packets_go_by_tor_until_tar_has_answered() -> None:
    waits = []

    def look(hop: FrameHop, now: float) -> None:
        if hop.frame.ethertype == ETH_DCN and hop.frame.data[1] == Protocol.IPV4:
            header, _ = DcnHeader.parse(hop.frame.data)
            waits.append((now, header.proxy))

    net = MemoryNetwork(
        SMALL, lambda net, at: Tar(net, at, timers=TIMERS, seed=1), [FrameTap(look)]
    )
    trips = [net.send_udp(0, 11) for _ in range(3)]
    net.run(1.0)
    by_entry = net.send_udp(0, 11)
    net.run(1.0)
    assert all(trip.arrived_s for trip in (*trips, by_entry))
    # Only the first packet of the flow is for the router of its destination.
    hops = len(trips[0].steps)
    assert [proxy for _, proxy in sorted(waits, key=lambda one: one[0])].count(11) == hops
    assert len(waits) == len(trips) * hops
    assert net.routers[11].counters["probes"] == 0, "the other end leaves it to the first"


def test_a_packet_that_meets_a_failure_by_tor_comes_back_and_is_sent_again() -> None:
    net = MemoryNetwork(SMALL, lambda net, at: Tar(net, at, timers=FAST, seed=1))
    source, destination = SMALL.server("2.1"), SMALL.server("0.1")
    net.cut(SMALL.server("2.0"), SMALL.server("0.2"))  # a hop of TOR's path, not its first
    net.run(0.5)
    first = net.send_udp(source, destination)
    net.run(0.5)
    assert first.arrived_s
    assert net.routers[source].counters["packets sent again"] == 1
    for port in range(5):
        assert net.send_udp(source, destination, source_port=5000 + port).steps == []
    net.run(0.5)
    assert all(trip.arrived_s for trip in net.trips)
    assert net.routers[source].counters["packets sent again"] == 1, "the failure is known"


def test_what_a_relay_foresees_is_what_it_answers() -> None:
    net = MemoryNetwork(SMALL, lambda net, at: Tar(net, at, timers=FAST, seed=1))
    for router in net.routers:
        foreseen = [one for one in router.foreseen() if isinstance(one, Send)]
        assert bool(foreseen) == bool(SMALL.peers(router.server, BACKUP))
        for answer in foreseen:
            assert isinstance(answer.repeat, Relayed) and isinstance(answer.repeat.key, ByHeader)
            (uid, *proxy), port = answer.repeat.key.values, answer.repeat.key.port
            assert port is not None and port != answer.port
            packet = DcnHeader(99, uid, Protocol.IPV4, proxy=uid if proxy else None).pack(b"packet")
            peer = SMALL.peers(router.server, port)[0]
            (sent,) = router.receive(port, peer, Frame(ETH_DCN, packet), 0.0)
            assert isinstance(sent, Send)
            assert sent._replace(frame=answer.frame) == answer
