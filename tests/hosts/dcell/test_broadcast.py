"""DCellBroadcast: everybody within the scope hears it, once."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import networkx
import pytest

from pillarbox import topos
from pillarbox.hosts.base.actions import EVERYONE, Deliver, Drop, Send
from pillarbox.hosts.base.failures import NONE, Failures
from pillarbox.hosts.base.path import Step
from pillarbox.hosts.dcell import dfr
from pillarbox.hosts.dcell.router import Dfr
from pillarbox.hosts.memory.memory_network import MemoryNetwork
from pillarbox.hosts.wire.dcn import DcnHeader, Protocol, broadcast
from pillarbox.hosts.wire.frame import ETH_DCN, Frame
from pillarbox.hosts.wire.ipv4 import UDP, Ipv4Header
from pillarbox.topos.dcell import DCell
from tests.hosts.dcell.failed import alive, cabled, random_failures

HEAR = Ipv4Header(1, 2**32 - 1, UDP).pack(b"hear")
SPECS = ["dcell,4,1", "dcell,2,2", "dcell,3,2,servers=41", "dcell,2,3,servers=70"]


def shouted(dcell: DCell, source: int, scope: int, failures: Failures) -> Iterator[int]:
    """Yield each delivery of a broadcast, the newest frame first: detours overtake short ways."""
    routers = [Dfr(dcell, server) for server in range(dcell.servers)]
    actions = [(source, one) for one in routers[source].broadcasts.send(HEAR, scope, 0.0)]
    while actions:
        server, action = actions.pop()
        if isinstance(action, Deliver):
            assert action.packet == HEAR
            yield server
        elif isinstance(action, Send):
            assert action.peer == EVERYONE
            for peer in dcell.peers(server, action.port):
                if failures.of_hop(dcell, server, Step(action.port, peer)) is None:
                    heard = routers[peer].receive(action.port, server, action.frame, 0.0)
                    actions += [(peer, one) for one in heard]
        else:
            raise AssertionError(action)


@pytest.mark.parametrize("spec", SPECS)
def test_broadcast_reaches_every_server_of_its_scope_once(spec: str) -> None:
    dcell = topos.parse(spec)
    for seed in range(8):
        drawn = random.Random(seed)
        failures = random_failures(dcell, drawn) if seed else NONE
        source = drawn.choice(alive(dcell, failures))
        scope = dcell.k - seed % (dcell.k + 1)
        graph = cabled(dcell, failures)
        inside = set(dfr.members(dcell, scope, source))
        outside = {
            node
            for node in graph
            if (node if node < dcell.servers else (node - dcell.servers) * dcell.n) not in inside
        }
        graph.remove_nodes_from(outside)
        component = networkx.node_connected_component(graph, source)
        expected = {node for node in component if node < dcell.servers} - {source}
        heard = Counter(shouted(dcell, source, scope, failures))
        assert heard == dict.fromkeys(expected, 1), (seed, scope)


@pytest.mark.parametrize("address", [0xFFFFFFFF, 0x0AFFFFFF])
def test_ip_broadcast_of_an_application_reaches_everybody(address: int) -> None:
    net = MemoryNetwork(topos.parse("dcell,2,2"), Dfr)
    packet = Ipv4Header(net.topology.ipv4(3), address, UDP).pack(bytes(16))
    net.send(3, packet)
    net.run(0.01)
    delivered = [one.counters["delivered"] for one in net.routers]
    assert delivered == [server != 3 for server in range(42)]
    assert not any(one.drops for one in net.routers)


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (DcnHeader(1, broadcast(1) - 1, Protocol.IPV4), "unknown multicast group"),
        (DcnHeader(21, broadcast(1), Protocol.IPV4), "broadcast out of its scope"),
        (DcnHeader(1, broadcast(3), Protocol.IPV4), "broadcast out of its scope"),
        (DcnHeader(1, broadcast(1), Protocol.PROBE), "unknown protocol"),
    ],
)
def test_broadcasts_that_make_no_sense_go_no_further(header: DcnHeader, reason: str) -> None:
    one = Dfr(topos.parse("dcell,4,2"), 0)
    assert one.receive(0, 1, Frame(ETH_DCN, header.pack(b"packet")), 0.0) == [
        Drop(reason, b"packet")
    ]
