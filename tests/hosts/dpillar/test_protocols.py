"""DPillarMP in use: failures, random tries, bandwidth (Liao 2012, section 4.5)."""

import json
import random
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest

import topos
from hosts.base.algorithms import route
from hosts.base.path import Path, Step
from hosts.base.probing import Candidate, State
from hosts.base.router import Router
from hosts.base.timers import FAST, PAPER, Timers
from hosts.dpillar import aware, light, multipath
from hosts.dpillar.choices import schedule, tunnels
from hosts.dpillar.paths import mp_tunnels
from hosts.dpillar.tunnel import NO_PATH, RESERVED, TTL
from hosts.memory.devices import Duplicate, Hop, Loss, Tap
from hosts.memory.network import MemoryNetwork, Trip
from hosts.wire.dcn import Protocol
from hosts.wire.frame import ETH_IP
from hosts.wire.ipv4 import (
    IP_IN_IP,
    TCP,
    UDP,
    FlowKey,
    Ipv4Header,
    Tunnel,
    decapsulate,
    flow_key,
)
from hosts.wire.marks import udp_packet
from hosts.wire.messages import PathFailure

ROUTERS = {
    "mp": multipath.FaultTolerant,
    "mp-ccw": multipath.CounterClockwise,
    "mp-both": multipath.BothWays,
    "mp-random": light.RandomPath,
    "mp-aware": aware.TrafficAware,
}
PROBED = ["mp", "mp-ccw", "mp-both", "mp-aware"]
# Rounds of probes that follow one another sooner, to spare virtual time.
EAGER = replace(FAST, probe_interval_s=1.0, probe_jitter_s=0.25)
# So that little virtual time, and few heart-beats, make a test.
BRISK = replace(
    EAGER,
    heart_beat_s=0.1,
    neighbour_timeout_s=0.21,
    probe_interval_s=0.2,
    probe_jitter_s=0.05,
    probe_timeout_s=0.01,
)
# Draws of what fails: the first always, all of them with --all.
MANY = [*range(40), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(40, 200))]
SYN = 0x02
ACK = 0x10


def network(
    spec: str, make: type[Router], *devices: object, timers: Timers = EAGER, seed: int = 0
) -> MemoryNetwork:
    return MemoryNetwork(
        topos.parse(spec),
        lambda net, server: make(net, server, timers=timers, seed=seed),
        devices,
    )


def router(spec: str, make: type[Router], server: int = 0) -> Router:
    return make(topos.parse(spec), server, timers=EAGER)


def tcp_packet(net: topos.Topology, a: int, b: int, flags: int, port: int, serial: int) -> bytes:
    mark = udp_packet(net, a, b, serial=serial)[28:]
    head = port.to_bytes(2, "big") + (80).to_bytes(2, "big") + bytes(8) + bytes([0x50, flags])
    return Ipv4Header(net.ipv4(a), net.ipv4(b), TCP).pack(head + bytes(6) + mark)


def send_tcp(net: MemoryNetwork, a: int, b: int, flags: int, port: int) -> Trip:
    trip = Trip(a, b, net.now)
    net.trips.append(trip)
    net.send(a, tcp_packet(net.topology, a, b, flags, port, len(net.trips) - 1))
    return trip


def control(hop: Hop) -> tuple[Tunnel, Ipv4Header, bytes] | None:
    """Return tunnel, inner header and body of a control message that is in its tunnel."""
    if hop.frame.ethertype != ETH_IP or Ipv4Header.parse(hop.frame.data)[0].protocol != IP_IN_IP:
        return None
    tunnel, _, packet = decapsulate(hop.frame.data)
    inner, body = Ipv4Header.parse(packet)
    return (tunnel, inner, body) if inner.protocol in RESERVED else None


def assert_each_ended_once(trips: list[Trip]) -> None:
    for trip in trips:
        assert len(trip.arrived_s) <= 1, trip
        assert trip.arrived_s or trip.lost, trip
        assert len(trip.steps) <= TTL + 1


# -- 4.5.1: failures -------------------------------------------------------------------------------

FAULTS = ["cut", "silent cut", "server", "switch", "silent switch"]


def strike(net: MemoryNetwork, path: Path, fault: str) -> object:
    """Let something in the middle of the path fail; return how to mend it."""
    nodes = path.nodes(net.topology)
    middle = len(nodes) // 2 - (len(nodes) // 2) % 2  # a server
    server, switch = nodes[middle], nodes[middle + 1]
    assert 0 < middle < len(nodes) - 2
    if "cut" in fault:
        net.cut(server, switch, silent="silent" in fault)
        return lambda: net.heal(server, switch)
    if fault == "server":
        net.kill(server)
        return lambda: net.revive(server)
    net.stop_switch(switch - net.topology.servers, silent="silent" in fault)
    return lambda: net.start_switch(switch - net.topology.servers)


@pytest.mark.few
@pytest.mark.parametrize("name", PROBED)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(("spec", "a", "b"), [("dpillar,4,2", 0, 7), ("dpillar,4,3", 0, 7)])
def test_a_stream_leaves_what_failed_and_returns(
    spec: str, a: int, b: int, fault: str, name: str
) -> None:
    net = network(spec, ROUTERS[name], timers=BRISK)
    trips = net.stream(a, b, every_s=0.005, seconds=1.5, source_port=4000)
    net.run(0.1)
    first = trips[-2].path
    mend = strike(net, first, fault)
    # Noticed by carrier at once, or after a neighbour's silence: the next packet is the news.
    noticed = 0.0 if fault in ("cut", "switch") else BRISK.neighbour_timeout_s + BRISK.heart_beat_s
    struck = net.now
    net.run(0.7)
    moved = [trip for trip in trips if struck + noticed + 0.011 < trip.sent_s < net.now - 0.001]
    assert len(moved) > 50
    assert all(trip.arrived_s for trip in moved)
    assert {trip.path for trip in moved} == {moved[0].path}, "it stays where it went"
    assert moved[0].path != first
    mend()
    net.run(0.6)  # heart-beats, a flow's interval, and two rounds of probes
    again = trips[-2].path
    shorter = len(first) < len(moved[0].path)
    assert again == (first if shorter else moved[0].path), "it returns only to what is better"
    net.run(0.2)
    assert_each_ended_once(trips)
    assert {trip.lost for trip in trips if trip.lost} <= {
        "next hop is down",
        "lost where something has failed",
    }


def test_path_failure_names_the_link_and_goes_back_over_the_path() -> None:
    seen: list[tuple[PathFailure, tuple[int, int]]] = []

    def look(hop: Hop, now: float) -> None:
        found = control(hop)
        if found and found[1].protocol == Protocol.PATH_FAILURE:
            seen.append((PathFailure.parse(found[2]), (hop.server, hop.peer)))

    net = network("dpillar,4,3", multipath.FaultTolerant, Tap(look), timers=PAPER)
    a, b = 0, 7
    net.send_udp(a, b)
    net.run(0.1)
    path = net.trips[-1].path
    last = path.servers[-2]
    net.cut(last, path.nodes(net.topology)[-2])
    lost = net.send_udp(a, b, source_port=4242)  # before any news of the cut can be here
    net.run(0.1)
    assert lost.lost == "next hop is down"
    back = list(pairwise(reversed(path.servers[:-1])))
    addresses = net.topology.ipv4(a), net.topology.ipv4(b)
    for flow in (
        FlowKey(*addresses, 0, 0, 0),
        flow_key(udp_packet(net.topology, a, b, source_port=4242)),
    ):
        told = PathFailure(path.steps[-1].port, last, b, flow)
        assert [hop for failure, hop in seen if failure == told] == back
    assert len(seen) == 2 * len(back)


def test_own_cable_is_left_at_once_and_with_none_left_packets_are_dropped_and_told() -> None:
    net = network("dpillar,4,3", multipath.BothWays)
    a, b = 0, 7
    trips = net.stream(a, b, every_s=0.001, seconds=0.5, source_port=4000)
    net.run(0.1)
    port = trips[-2].path.steps[0].port
    net.run(0.0005)
    plugs = [net.topology.server_plug(a, port).node for port in (0, 1)]
    net.cut(a, plugs[port])
    net.run(0.1)
    sent = [trip for trip in trips if trip.sent_s > 0.101]
    assert sent and all(trip.path.steps[0].port == 1 - port for trip in sent[:-1])
    other = net.send_udp(a, b + 1)
    net.run(0.001)
    assert other.arrived_s, "the first packet to a server knows as well"
    net.cut(a, plugs[1 - port])
    net.run(0.1)
    assert trips[-1].lost == NO_PATH
    probes = net.routers[a].counters["probes"]
    net.run(3.0)
    assert net.routers[a].counters["probes"] == probes, "no probes into a dead port"
    again = net.stream(a, b, every_s=0.01, seconds=1.0, source_port=4000)
    net.heal(a, plugs[port])
    net.run(1.5)
    # Up as soon as the neighbours are heard, and probed soon after that.
    late = EAGER.heart_beat_s + EAGER.probe_timeout_s + 0.01
    assert all(trip.arrived_s for trip in again if trip.sent_s > again[0].sent_s + late)
    assert_each_ended_once(net.trips)


def test_a_probe_without_answer_is_a_failed_path() -> None:
    # Neighbours are missed after five seconds only: it is the probes that tell.
    timers = replace(PAPER, probe_interval_s=0.5, probe_jitter_s=0.1, probe_timeout_s=0.05)
    net = network("dpillar,4,3", multipath.FaultTolerant, timers=timers)
    trips = net.stream(0, 7, every_s=0.01, seconds=2.0, source_port=4000)
    net.run(0.1)
    first = trips[-2].path
    strike(net, first, "server")
    struck = net.now
    net.run(2.1)
    late = struck + 0.5 + 0.1 + 0.05 + 0.001
    moved = [trip for trip in trips if trip.sent_s > late]
    assert len(moved) > 100
    assert all(trip.arrived_s and trip.path != first for trip in moved)
    assert not any(router.counters["link down"] for router in net.routers)


def test_without_any_path_probing_goes_on_and_finds_the_repaired_one() -> None:
    net = network("dpillar,4,2", multipath.FaultTolerant, timers=FAST)
    a, b = 0, 3
    relays = {path.servers[1] for path in mp_tunnels(net.topology, a, b, 0)}
    for relay in relays:
        net.kill(relay)
    trips = net.stream(a, b, every_s=0.01, seconds=4.0, source_port=4000)
    net.run(2.0)
    assert trips[-1].lost == NO_PATH
    net.revive(relays.pop())
    net.run(2.1)
    assert trips[-1].arrived_s
    assert_each_ended_once(trips)


def test_idle_destinations_are_not_probed_and_forgotten() -> None:
    net = network("dpillar,4,2", multipath.BothWays, timers=replace(EAGER, flow_idle_s=2.0))
    net.send_udp(0, 3)
    net.run(4.0)
    source = net.routers[0]
    probes = source.counters["probes"]
    assert probes >= 4
    net.run(3.0)
    assert source.counters["probes"] == probes
    assert source.state()["destinations"] == []
    assert len(source.agenda) == 2, "heart-beats and neighbours"


def test_answers_lost_or_twice_do_no_harm() -> None:
    devices = Loss(0.1, seed=1), Duplicate(0.2, seed=2)
    net = network("dpillar,4,3", multipath.BothWays, *devices, timers=BRISK)
    trips = net.stream(0, 7, every_s=0.005, seconds=2.0, source_port=4000)
    net.run(2.1)
    assert net.routers[0].drops["answer to no probe"] > 0
    arrived = sum(bool(trip.arrived_s) for trip in trips)
    assert arrived > 0.5 * len(trips)
    assert all(trip.arrived_s or trip.lost for trip in trips)


@pytest.mark.parametrize("seed", MANY)
def test_a_packet_arrives_whenever_a_disjoint_path_works(seed: int) -> None:
    chance = random.Random(seed)
    name = chance.choice(sorted(ROUTERS))
    net = network("dpillar,4,3", ROUTERS[name], timers=BRISK, seed=seed)
    servers, switches = net.topology.servers, net.topology.switches
    for _ in range(chance.randint(0, 3)):
        net.kill(chance.randrange(servers))
    for _ in range(chance.randint(0, 2)):
        net.stop_switch(chance.randrange(switches), silent=chance.random() < 0.5)
    for cable in chance.sample(list(net.topology.links()), chance.randint(0, 4)):
        net.cut(cable.a, cable.b, silent=chance.random() < 0.5)
    net.run(0.35)
    living = [server for server in range(servers) if server not in net.failures.nodes]
    pairs = [chance.sample(living, 2) for _ in range(8)]
    for _ in range(4):  # what these do not find out, the last ones may not depend on
        for a, b in pairs:
            net.send_udp(a, b)
        net.run(0.02)
    trips = [net.send_udp(a, b) for a, b in pairs]
    net.run(0.02)
    for (a, b), trip in zip(pairs, trips, strict=True):
        routed = route(net.topology, name, a, b, net.failures, several=True)
        assert bool(trip.arrived_s) == bool(routed.paths), (name, trip)
        assert trip.path in routed.paths or trip.lost == NO_PATH, trip
    assert_each_ended_once(net.trips)


# -- 4.5.1: the light-weight variant ---------------------------------------------------------------


def dead_share(net: MemoryNetwork, a: int, b: int, share: float) -> float:
    """Kill a relay of so many of the paths; return how many are dead."""
    every = list(tunnels(net.topology, a, b, (0, 1)))
    for path in every[: round(share * len(every))]:
        net.kill(path.servers[len(path) // 2])
    return sum(bool(net.failures.first_on(net.topology, path)) for path in every) / len(every)


def test_tries_find_a_working_path_among_dead_ones() -> None:
    # Nobody knows yet that they are dead: with the paper's timers neighbours notice after 5 s.
    net = network("dpillar,8,3", light.RandomPath, timers=PAPER)
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
    net = network("dpillar,8,3", light.RandomPath)
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
    net = network("dpillar,4,3", light.RandomPath)
    a, b = 0, 7
    every = list(tunnels(net.topology, a, b, (0, 1)))
    trips = net.stream(a, b, every_s=0.01, seconds=4.0, source_port=4000)
    net.run(0.1)
    path = trips[0].path
    strike(net, path, "cut")
    net.run(0.5)
    assert sum(bool(trip.lost) for trip in trips) == 1
    assert trips[-2].path in set(every) - {path}
    # It is believed for so long, for new flows too; then a flow may draw the path again.
    new = [net.send_udp(a, b, source_port=port) for port in range(5000, 5100)]
    net.run(EAGER.failed_link_timeout_s)
    assert all(trip.arrived_s for trip in new)
    newer = [net.send_udp(a, b, source_port=port) for port in range(6000, 6100)]
    net.run(4.0)
    assert any(trip.lost for trip in newer)
    assert_each_ended_once(net.trips)


# -- 4.5.2: traffic-aware --------------------------------------------------------------------------


def loaded(net: MemoryNetwork, path: Path, bps: float) -> None:
    """Let other traffic leave the path's second server by the port that the path takes."""
    net.load_bps[path.servers[1], path.steps[1].port] = (0.0, bps)


def test_a_probe_brings_back_the_least_that_is_free_on_any_port_of_its_path() -> None:
    net = network("dpillar,4,3", aware.TrafficAware, timers=BRISK)
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
    net = network("dpillar,4,3", aware.TrafficAware)
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
    net = network("dpillar,4,3", aware.TrafficAware)
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
        lambda net, server: aware.TrafficAware(net, server, timers=BRISK, rate_bps=10e6),
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
        return [Candidate(Path(0, (Step(0, i),)), State.WORKING, bps) for i, bps in enumerate(free)]

    paths = candidates()
    assert [schedule(paths, 0, own_bps=3e8) for _ in range(3)] == [1, 2, 0]
    assert [path.available_bps for path in paths] == [7e8, 6e8, 6e8, 9e8], "what is free now"
    assert schedule(candidates(), 0, own_bps=8e8) == 0, "all that it sends would be free there"


# -- what all share --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ROUTERS)
def test_tables_are_bounded(name: str) -> None:
    here = router("dpillar,4,8", ROUTERS[name])
    for i in range(10_000):
        here.send(udp_packet(here.topology, 0, 1 + i % 7, source_port=i), i * 1e-5)
    for server in range(1, 1100):
        here.send(udp_packet(here.topology, 0, server), 0.2)
    state = here.state()
    assert len(state.get("flows", [0] * 4096)) == 4096
    assert len(state.get("destinations", [0] * 1024)) == 1024
    assert len(here.agenda) in (2, 2 + 1024), "what was forgotten has no timers"
    here.send(udp_packet(here.topology, 0, 1), 100.0)
    list(here.poll(100.0))
    assert len(here.state().get("flows", [0])) == 1
    for now in (160.0, 220.0):  # a destination is forgotten when it would be probed again
        list(here.poll(now))
    here.send(udp_packet(here.topology, 0, 1), 220.0)
    assert len(here.state().get("destinations", [0])) == 1
    assert len(here.agenda) <= 4


@pytest.mark.parametrize("name", ROUTERS)
def test_state_tells_paths_and_flows(name: str) -> None:
    net = network("dpillar,4,2", ROUTERS[name])
    trip = net.send_udp(0, 3)
    net.run(0.1)
    state = json.loads(json.dumps(net.routers[0].state()))
    servers = [net.topology.address(server) for server in trip.path.servers]
    if name in PROBED:
        (destination,) = state["destinations"]
        assert destination["server"] == "0.1.1"
        assert {path["state"] for path in destination["paths"]} == {"working"}
        assert [p["servers"] for p in destination["paths"] if p["in use"]] == [servers]
    if name in ("mp-random", "mp-aware"):
        (flow,) = state["flows"]
        assert (flow["server"], flow["protocol"], flow["ports"]) == ("0.1.1", UDP, [4000, 5000])
        assert flow["path"]["servers"] == servers
