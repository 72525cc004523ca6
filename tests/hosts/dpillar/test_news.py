"""What DPillarMP's servers tell unasked when a link goes down."""

from dataclasses import replace

import pytest

from pillarbox import topos
from pillarbox.hosts.base.actions import Drop, Send
from pillarbox.hosts.base.neighbours import Neighbours
from pillarbox.hosts.base.path import Step
from pillarbox.hosts.base.timers import FAST
from pillarbox.hosts.dpillar import tunnel
from pillarbox.hosts.dpillar.multipath import BothWays, FaultTolerant
from pillarbox.hosts.dpillar.paths import mp_tunnels
from pillarbox.hosts.memory.memory_network import MemoryNetwork, Trip
from pillarbox.hosts.wire.dcn import Protocol
from pillarbox.hosts.wire.frame import ETH_IP, Frame
from pillarbox.hosts.wire.ipv4 import UDP, Ipv4Header, Tunnel, encapsulate
from pillarbox.hosts.wire.messages import CableCut

BEAT_S, TIMEOUT_S = FAST.heartbeat_s, FAST.neighbour_timeout_s


def network(spec: str) -> MemoryNetwork:
    return MemoryNetwork(topos.parse(spec), lambda net, at: BothWays(net, at, timers=FAST))


def cables(net: MemoryNetwork, trip: Trip) -> list[tuple[int, int]]:
    """Return each cable of the way that a packet took, the server's end first."""
    ends = zip(nodes := trip.path.nodes(net.topology), nodes[1:], strict=False)
    return [(min(pair), max(pair)) for pair in ends]


HEAD_ON = [
    ("dpillar,4,2", 5, range(2)),
    ("dpillar,4,3", 10, range(4)),
    ("dpillar,4,3", 17, range(4)),
]


@pytest.mark.parametrize(
    ("spec", "b", "place"), [(spec, b, place) for spec, b, places in HEAD_ON for place in places]
)
def test_a_cut_cable_is_known_at_both_its_ends_before_a_heartbeat_is_missed(
    spec: str, b: int, place: int
) -> None:
    net, a = network(spec), 0
    there = net.stream(a, b, every_s=0.001, seconds=0.3, source_port=4000)
    back = net.stream(b, a, every_s=0.001, seconds=0.3, source_port=4001)
    net.run(0.1005)
    cut = cables(net, there[-3])[place]
    assert cut in cables(net, back[-3]), "both ways use it: one of them meets it from the switch"
    net.cut(*cut)
    net.run(0.04)
    sent = [trip for trip in there + back if 0.102 < trip.sent_s < net.now - 0.001]
    assert len(sent) > 70
    assert all(trip.arrived_s for trip in sent)
    net.heal(*cut)
    net.run(3.0)
    assert all(router.down() == [] for router in net.routers)
    for trip in net.trips:
        assert len(trip.arrived_s) <= 1 and (trip.arrived_s or trip.lost), trip


@pytest.mark.parametrize("fault", ["cut", "server"])
def test_who_sent_that_way_is_told_when_a_silence_is_noticed(fault: str) -> None:
    net = network("dpillar,4,3")
    first = net.send_udp(0, 11)
    net.run(0.1)
    path = first.path
    assert len(path) >= 3
    if fault == "cut":
        net.cut(path.servers[2], path.nodes(net.topology)[3], silent=True)
    else:
        net.kill(path.servers[2])
    net.run(TIMEOUT_S + 2 * BEAT_S)
    after = net.send_udp(0, 11)
    net.run(0.01)
    assert after.arrived_s, after.lost
    assert after.path != path


def test_the_ends_of_a_dead_switch_tell_one_another_and_nobody_else_minds() -> None:
    net = network("dpillar,4,2")
    net.run(0.1)
    net.stop_switch(0)
    net.run(0.01)
    told = {server: r.counters["cut cables told"] for server, r in enumerate(net.routers)}
    around = {
        server
        for server in told
        if any(p.node == net.topology.servers for _, p in plugs(net, server))
    }
    assert {server for server, times in told.items() if times} == around
    assert set(told.values()) == {0, net.topology.n - 1}
    down = {server for server, router in enumerate(net.routers) if router.down()}
    assert down == around


def plugs(net: MemoryNetwork, server: int) -> list:
    return list(net.topology.neighbours(server))


# -- what one server does --------------------------------------------------------------------------


def test_heartbeats_that_waited_in_a_switch_bring_no_link_back() -> None:
    net = topos.parse("dpillar,4,2")
    here = Neighbours(net, 0, FAST, 0.0)
    peer = net.peers(0, 1)[0]
    step = Step(1, peer)
    assert here.lose(step, 1.0) == step
    assert here.lose(step, 1.0) is None
    assert here.hear(step, True, 1.0 + BEAT_S / 2) is None
    assert not here.works(step)
    assert here.hear(step, True, 1.0 + 1.1 * BEAT_S) == step
    assert here.works(step)


def news(net: topos.Topology, sender: int, to: int, body: bytes) -> Frame:
    """Return a message as its last relay hands it over, out of its tunnel."""
    return Frame(ETH_IP, Ipv4Header(net.ipv4(sender), net.ipv4(to), Protocol.CABLE_CUT).pack(body))


def test_news_of_a_cable_are_taken_from_neighbours_about_their_own_only() -> None:
    net = topos.parse("dpillar,4,3")
    here, relay = FaultTolerant(net, 0), net.peers(0, 0)[0]
    peer = net.peers(0, 1)[0]
    stranger = next(
        s for s in range(1, net.servers) if not any(s in net.peers(0, p) for p in (0, 1))
    )
    far_port = next(p for p in (0, 1) if 0 in net.peers(peer, p))

    def reasons(sender: int, body: bytes) -> list[str]:
        actions = here.receive(0, relay, news(net, sender, 0, body), 1.0)
        return [action.reason for action in actions if isinstance(action, Drop)]

    assert reasons(stranger, CableCut(0).pack()) == ["news of no neighbour's cable"]
    assert reasons(peer, CableCut(1 - far_port).pack()) == ["news of no neighbour's cable"]
    assert reasons(peer, CableCut(9).pack()) == ["news of no neighbour's cable"]
    assert reasons(peer, CableCut(0).pack()[:-1]) != []
    assert here.down() == []
    assert reasons(peer, CableCut(far_port).pack()) == []
    assert here.down() == [(0, Step(1, peer))]
    assert reasons(peer, CableCut(far_port).pack()) == [], "twice is no fault"


def test_a_relay_remembers_whose_packets_it_sent_on_within_bounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tunnel, "PASSING", 3)
    net = topos.parse("dpillar,4,3")
    relay = 0
    here = FaultTolerant(net, relay, timers=replace(FAST))
    passed = []
    for source in range(net.servers):
        for destination in range(net.servers):
            if source in (destination, relay) or destination == relay:
                continue
            for path, by in mp_tunnels(net, source, destination, 0).items():
                if relay in path.servers[:-2]:
                    passed.append((source, destination, path, by))
    assert len(passed) > 10
    for source, destination, path, by in passed:
        packet = Ipv4Header(net.ipv4(source), net.ipv4(destination), UDP).pack(bytes(20))
        outer = Tunnel(net.ipv4(by.source), net.ipv4(by.destination), by.port)
        before = path.servers[path.servers.index(relay) - 1]
        here.receive(1, before, Frame(ETH_IP, encapsulate(packet, outer, 9, 1)), 0.0)
    assert len(here.passing) == 3
    actions = here.carrier(0, up=False, now=1.0)
    told = [a for a in actions if isinstance(a, Send)]
    assert len(told) == here.counters["path failures sent"] + here.counters["cut cables told"]
    assert here.counters["path failures sent"] == 3
    assert len(here.passing) == 0, "each is told once"
