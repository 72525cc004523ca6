"""Spraying in every network that declares it: turns, failures, repairs, and the planes' tables."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from pillarbox import topos
from pillarbox.hosts.base.actions import Pushed, Send
from pillarbox.hosts.base.algorithms import algorithms, route
from pillarbox.hosts.base.path import Path, disjoint
from pillarbox.hosts.base.probing import PathState
from pillarbox.hosts.base.router import Router
from pillarbox.hosts.base.spraying import MOST_SPRAYED, SprayedPaths, in_turn, working_paths
from pillarbox.hosts.base.timers import FAST
from pillarbox.hosts.memory.memory_network import MemoryNetwork, Trip
from pillarbox.hosts.wire.marks import udp_packet
from pillarbox.topos.base.spec import small

# Rounds of probes that follow one another sooner, to spare virtual time.
EAGER = replace(FAST, probe_interval_s=1.0, probe_jitter_s=0.25)
EVERY_S = 0.005
SPECS = [spec for spec in small() if "spray" in algorithms(topos.parse(spec))]
SPECS += ["bcube,4,1", "bcube,3,2", "dpillar,4,3", "mesh,4,2", "bcube,4,2,servers=32"]
every_network = pytest.mark.parametrize("spec", SPECS)


def network(spec: str) -> MemoryNetwork:
    topology = topos.parse(spec)
    router = algorithms(topology)["spray"].router
    assert router is not None
    made: type[Router] = router
    return MemoryNetwork(topology, lambda net, server: made(net, server, timers=EAGER))


def paths_taken(trips: list[Trip]) -> Counter[tuple[int, ...]]:
    return Counter(trip.path.servers for trip in trips)


def known_paths(net: MemoryNetwork, a: int, b: int) -> set[tuple[int, ...]]:
    paths = route(net.topology, "spray", a, b, net.failures, several=True).paths
    return {path.servers for path in paths[:MOST_SPRAYED]}


def test_networks_of_the_issue_spray() -> None:
    kinds = {topos.parse(spec).kind for spec in SPECS}
    assert kinds == {"bcube", "rail", "dpillar", "mesh"}
    assert not any(
        algorithm.sprays
        for spec in small()
        for name, algorithm in algorithms(topos.parse(spec)).items()
        if name != "spray"
    )


@every_network
def test_every_disjoint_path_takes_its_turn(spec: str) -> None:
    net = network(spec)
    a, b = 0, net.topology.servers - 1
    net.send_udp(a, b, source_port=4000)
    net.run(0.3)  # until all probes are answered
    known = known_paths(net, a, b)
    trips = net.stream(a, b, EVERY_S, EVERY_S * 4 * len(known), source_port=4000)
    net.run(1.0)
    assert all(len(trip.arrived_s) == 1 for trip in trips)
    taken = paths_taken(trips)
    assert set(taken) == known
    assert max(taken.values()) - min(taken.values()) <= 1
    if net.topology.kind != "dpillar":  # paths of its other direction may cross
        used = [trip.path for trip in trips[: len(known)]]
        assert disjoint(net.topology, used)


@every_network
def test_until_probes_are_answered_packets_take_the_usual_path(spec: str) -> None:
    net = network(spec)
    a, b = 0, net.topology.servers - 1
    trips = [net.send_udp(a, b, source_port=4000) for _ in range(4)]
    net.run(0.3)
    assert len(paths_taken(trips)) == 1
    assert trips[0].path.servers in known_paths(net, a, b)


@pytest.mark.few
@every_network
@pytest.mark.parametrize("silent", [False, True])
def test_a_failed_path_leaves_and_returns(spec: str, silent: bool) -> None:
    net = network(spec)
    a, b = 0, net.topology.servers - 1
    net.send_udp(a, b, source_port=4000)
    net.run(0.3)
    trips = net.stream(a, b, EVERY_S, 5.0, source_port=4000)
    net.run(0.2)
    broken = max((trip.path for trip in trips if trip.arrived_s), key=len)
    nodes = broken.nodes(net.topology)
    begin_s = net.now
    net.cut(nodes[-2], nodes[-3], silent=silent)
    net.run(0.5)
    noticed_s = begin_s + FAST.neighbour_timeout_s + 2 * FAST.heartbeat_s
    after = [trip for trip in trips if noticed_s < trip.sent_s < net.now - 0.05]
    assert len(after) > 20
    assert all(trip.arrived_s for trip in after)
    cut = {nodes[-2], nodes[-3]}
    assert not any(cut <= set(trip.path.nodes(net.topology)) for trip in after if trip.arrived_s)
    lost = [trip for trip in trips if trip.sent_s <= noticed_s and not trip.arrived_s]
    assert len(lost) <= (noticed_s - begin_s) / EVERY_S
    net.heal(nodes[-2], nodes[-3])
    net.run(EAGER.longest_probe_interval_s + EAGER.failed_link_timeout_s + 0.5)
    last = [trip for trip in trips if net.now - 0.3 < trip.sent_s < net.now - 0.05]
    assert set(paths_taken(last)) == known_paths(net, a, b)
    assert broken.servers in paths_taken(last)


def test_the_longest_spray_has_a_limit() -> None:
    """No flow takes more entries of a plane's table than MOST_SPRAYED."""
    net = network("dpillar,20,2")
    a, b = 0, net.topology.servers - 1
    assert len(route(net.topology, "spray", a, b, several=True).paths) > MOST_SPRAYED
    net.send_udp(a, b, source_port=4000)
    net.run(0.3)
    packet = udp_packet(net.topology, a, b, source_port=4000)
    (send,) = (one for one in net.routers[a].send(packet, net.now) if isinstance(one, Send))
    assert isinstance(send.repeat, Pushed)
    assert 1 + len(send.repeat.others) == MOST_SPRAYED


@every_network
def test_flows_of_a_pair_take_turns_of_their_own(spec: str) -> None:
    net = network(spec)
    a, b = 0, net.topology.servers - 1
    for port in (4000, 4001):
        net.send_udp(a, b, source_port=port)
    net.run(0.3)
    known = known_paths(net, a, b)
    for port in (4000, 4001):
        trips = [net.send_udp(a, b, source_port=port) for _ in known]
        net.run(0.2)
        assert set(paths_taken(trips)) == known


def test_each_change_of_the_working_paths_is_reported() -> None:
    told: list[int] = []
    paths = SprayedPaths([Path(0, ()), Path(1, ())], lambda: told.append(1))
    paths.begin()
    assert paths.answer(1, 0, 1.0) and len(told) == 1
    assert not paths.answer(0, 1, 1.0) and not paths.answer(1, 7, 1.0)
    assert len(told) == 1
    assert paths.fail_unanswered() == [1] and len(told) == 1  # it did not work before
    assert paths.answer(1, 1, 1.0) and len(told) == 2  # a late answer
    assert [path.source for path in paths.used_paths()] == [0, 1]
    paths.begin([Path(1, ())])
    assert len(told) == 3 and [path.source for path in paths.used_paths()] == [1]
    paths.fail(0)
    assert len(told) == 4 and paths.candidates[0].state == PathState.FAILED
    assert working_paths(paths) == [] == in_turn([], 3)
