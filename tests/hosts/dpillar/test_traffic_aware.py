"""DPillarMP's choice by bandwidth (Liao 2012, section 4.5.2)."""

from collections import Counter

import pytest

from pillarbox import topos
from pillarbox.hosts.base.path import Path, Step
from pillarbox.hosts.base.probing import Candidate, PathState
from pillarbox.hosts.dpillar import multipath, traffic_aware
from pillarbox.hosts.dpillar.tunnel_choices import schedule
from pillarbox.hosts.memory.memory_network import MemoryNetwork
from tests.hosts.dpillar.running import BRISK, EAGER, assert_each_ended_once, network


def loaded(net: MemoryNetwork, path: Path, bps: float) -> None:
    """Let other traffic leave the path's second server by the port that the path takes."""
    net.load_bps[path.servers[1], path.steps[1].port] = (0.0, bps)


def test_a_probe_brings_back_the_least_that_is_free_on_any_port_of_its_path() -> None:
    net = network("dpillar,4,3", traffic_aware.TrafficAware, timers=BRISK)
    net.send_udp(0, 7)
    net.run(0.1)
    probing = net.routers[0].destinations.get(7).probing
    for path in [candidate.path for candidate in probing.candidates]:
        for server, step in zip(path.servers, path.steps, strict=False):
            for end, load in ((server, (0.0, 6e8)), (step.peer, (6e8, 0.0))):
                net.load_bps = {(end, step.port if end == server else 1 - step.port): load}
                net.run(1.0)
                free = {one.path: one.available_bps for one in probing.candidates}
                assert free[path] == pytest.approx(4e8, rel=0.02), (end, load)


def test_without_awareness_the_shortest_path_is_used_whatever_its_load() -> None:
    net = network("dpillar,4,3", multipath.BothWays, timers=BRISK)
    trips = net.stream(0, 7, every_s=0.01, seconds=2.0, source_port=4000)
    net.run(0.1)
    loaded(net, trips[0].path, 9e8)
    net.run(2.0)
    assert {trip.path for trip in trips} == {trips[0].path}


def test_flows_avoid_a_loaded_path_and_leave_one_that_gets_loaded() -> None:
    net = network("dpillar,4,3", traffic_aware.TrafficAware)
    a, b = 0, 7
    flow = net.stream(a, b, every_s=0.01, seconds=7.0, source_port=4000)
    net.run(0.5)
    before = flow[-2].path
    loaded(net, before, 7e8)
    net.run(2 * (EAGER.probe_interval_s + EAGER.probe_jitter_s))
    assert flow[-2].path != before, "it moved at the next interval"
    assert net.routers[a].counters["flows moved"] == 1
    new = [net.send_udp(a, b, source_port=port) for port in (5000, 5001, 5002)]
    net.run(0.1)
    assert all(trip.arrived_s and trip.path != before for trip in new)
    measured = {
        tuple(map(net.topology.server, path["servers"])): path["available_bps"]
        for path in net.routers[a].state()["destinations"][0]["paths"]
    }
    assert measured.pop(before.servers) == pytest.approx(3e8, rel=0.02)
    assert min(measured.values()) > 0.9e9 / 4, "a new flow is booked with half, twice at most"
    net.run(5.0)
    assert_each_ended_once(net.trips)


def test_flows_that_begin_together_spread_and_then_stay() -> None:
    net = network("dpillar,4,3", traffic_aware.TrafficAware)
    a, b = 0, 7
    net.send_udp(a, b)
    net.run(0.1)
    flows = [
        net.stream(a, b, every_s=0.05, seconds=6.0, source_port=port) for port in range(5000, 5008)
    ]
    net.run(0.01)
    assert Counter(Counter(flow[0].path for flow in flows).values()) == {2: 4}
    net.run(6.5)
    assert net.routers[a].counters["flows moved"] <= 8, "a small load moves no flow for long"
    assert all(trip.arrived_s for flow in flows for trip in flow)


def test_a_flow_does_not_run_away_from_itself() -> None:
    net = MemoryNetwork(
        topos.parse("dpillar,4,3"),
        lambda net, server: traffic_aware.TrafficAware(net, server, timers=BRISK, rate_bps=10e6),
    )
    for i in range(1000):  # 5.6 Mbit/s of the 10 Mbit/s that there are
        net.at(i * 0.002, lambda: net.send_udp(0, 7, size=1400))
    net.run(1.99)
    free = [path["available_bps"] for path in net.routers[0].state()["destinations"][0]["paths"]]
    assert min(free) < 5e6 < max(free)
    assert len({trip.path for trip in net.trips[:-1]}) == 1


def test_flows_of_one_source_do_not_all_move_to_the_same_path() -> None:
    def candidates() -> list[Candidate]:
        free = (1e8, 9e8, 9e8, 9e8)
        return [
            Candidate(Path(0, (Step(0, i),)), PathState.WORKING, bps) for i, bps in enumerate(free)
        ]

    paths = candidates()
    assert [schedule(paths, 0, own_bps=3e8) for _ in range(3)] == [1, 2, 0]
    assert [path.available_bps for path in paths] == [7e8, 6e8, 6e8, 9e8], "what is free now"
    assert schedule(candidates(), 0, own_bps=8e8) == 0, "all that it sends would be free there"
