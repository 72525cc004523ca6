"""DPillarMP when something fails, and what all its routers share (Liao 2012, section 4.5.1)."""

import itertools
import json
import random
from dataclasses import replace
from itertools import pairwise

import pytest

from pillarbox import topos
from pillarbox.hosts.base.algorithms import route
from pillarbox.hosts.base.probing import PathState
from pillarbox.hosts.base.router import Router
from pillarbox.hosts.base.timers import FAST, PAPER, timers_for
from pillarbox.hosts.dpillar import multipath
from pillarbox.hosts.dpillar.paths import mp_tunnels
from pillarbox.hosts.dpillar.tunnel import NO_PATH
from pillarbox.hosts.dpillar.tunnel_choices import pairing_reserves, tunnels
from pillarbox.hosts.memory.frame_devices import Duplicate, FrameHop, FrameTap, Loss
from pillarbox.hosts.wire.dcn import Protocol
from pillarbox.hosts.wire.ipv4 import (
    UDP,
    FlowKey,
    flow_key,
)
from pillarbox.hosts.wire.marks import udp_packet
from pillarbox.hosts.wire.messages import PathFailure
from pillarbox.topos.dpillar import DPillar
from tests.hosts.dpillar.running import (
    BRISK,
    EAGER,
    PROBED,
    ROUTERS,
    assert_each_ended_once,
    control,
    network,
    strike,
)

# Draws of what fails: the first always, all of them with --all.
MANY = [*range(40), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(40, 200))]


def router(spec: str, make: type[Router], server: int = 0) -> Router:
    return make(topos.parse(spec), server, timers=EAGER)


# -- 4.5.1: failures -------------------------------------------------------------------------------

FAULTS = ["cut", "silent cut", "server", "switch", "silent switch"]


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
    noticed = 0.0 if fault in ("cut", "switch") else BRISK.neighbour_timeout_s + BRISK.heartbeat_s
    struck = net.now
    net.run(0.7)
    moved = [trip for trip in trips if struck + noticed + 0.011 < trip.sent_s < net.now - 0.001]
    assert len(moved) > 50
    assert all(trip.arrived_s for trip in moved)
    assert {trip.path for trip in moved} == {moved[0].path}, "it stays where it went"
    assert moved[0].path != first
    mend()
    net.run(0.6)  # heartbeats, a flow's interval, and two rounds of probes
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

    def look(hop: FrameHop, now: float) -> None:
        found = control(hop)
        if found and found[1].protocol == Protocol.PATH_FAILURE:
            seen.append((PathFailure.parse(found[2]), (hop.server, hop.peer)))

    net = network("dpillar,4,3", multipath.FaultTolerant, FrameTap(look), timers=PAPER)
    a, b = 0, 7
    net.send_udp(a, b)
    net.run(0.1)
    path = net.trips[-1].path
    last = path.servers[-2]
    net.cut(last, path.nodes(net.topology)[-2])
    trip = net.send_udp(a, b, source_port=4242)  # before any news of the cut can be here
    net.run(0.1)
    assert trip.arrived_s, "the relay has returned it"
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
    late = EAGER.heartbeat_s + EAGER.probe_timeout_s + 0.01
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


@pytest.mark.parametrize("stopped", [(3,), (1, 4, 9)])
def test_all_have_paths_again_soon_after_a_repair(stopped: tuple[int, ...]) -> None:
    topology = topos.parse("dpillar,4,3")
    # As long as a server may have to wait for its turn, with rounds to all others.
    timers = timers_for(topology)
    assert timers.probe_spacing_s > timers.unreachable_hold_s
    net = network(topology.spec, multipath.FaultTolerant, timers=timers)
    ends = [(a, b) for a in (0, 17) for b in range(topology.servers) if a != b]
    streams = [net.stream(*pair, every_s=0.2, seconds=14.0, source_port=4000) for pair in ends]
    net.run(3.0)
    for switch in stopped:
        net.stop_switch(switch)
    net.run(8.0)
    assert any(trips[-1].lost == NO_PATH for trips in streams)
    for switch in stopped:
        net.start_switch(switch)
    net.run(2.0)
    begun = net.now
    net.run(1.1)
    again = [trip for trips in streams for trip in trips if begun < trip.sent_s < net.now - 0.01]
    assert len(again) > 150
    assert all(trip.arrived_s for trip in again)


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
    assert len(source.agenda) == 2, "heartbeats and neighbours"


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


# -- what all share --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ROUTERS)
def test_tables_are_bounded(name: str) -> None:
    here = router("dpillar,4,8", ROUTERS[name])
    for i in range(5_000):
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


# -- departures ------------------------------------------------------------------------------------


def test_departs_reserves_are_used_while_no_path_of_the_paper_works() -> None:
    net = network("dpillar,4,2", multipath.FarSide, timers=BRISK)
    a, b = net.topology.server("0.0.0"), net.topology.server("0.0.1")
    trips = net.stream(a, b, every_s=0.005, seconds=3.0, source_port=4000)
    net.run(0.5)
    known = net.routers[a].destinations.get(b)  # type: ignore[attr-defined]
    assert not any(one.reserve for one in known.probing.candidates), "none in a healthy network"
    net.stop_switch(0)
    net.run(1.0)
    used = known.probing.candidates[known.probing.current]
    assert used.reserve and net.topology.server_plug(a, used.path.steps[0].port)
    assert trips[-1].arrived_s or trips[-2].arrived_s
    net.start_switch(0)
    net.run(1.5)
    assert not known.probing.candidates[known.probing.current].reserve
    lost = [trip for trip in trips if not trip.arrived_s]
    assert len(lost) <= 2 + BRISK.neighbour_timeout_s / 0.005, "only until the fault was noticed"


@pytest.mark.parametrize("router", [multipath.AnyPairing, multipath.FarSide])
def test_any_pairing_is_tried_while_no_disjoint_path_works(
    router: type[multipath.WithReserves],
) -> None:
    """A relay of each disjoint path fails: a path of another pairing works."""
    net = network("dpillar,4,3", router, timers=BRISK)
    dpillar = net.topology
    assert isinstance(dpillar, DPillar)
    a, b = dpillar.server("0.0.0.0"), dpillar.server("1.0.1.1")
    disjoint = list(tunnels(dpillar, a, b, (0, 1)))
    others = list(pairing_reserves(dpillar, a, b, (0, 1)))
    relays = [set(path.servers[1:-1]) for path in disjoint]
    dead, working = next(
        (set(chosen), path)
        for chosen in itertools.product(*relays)
        for path in others
        if not set(chosen) & set(path.servers)
    )
    for server in dead:
        net.kill(server)
    net.run(1.0)
    trips = net.stream(a, b, every_s=0.05, seconds=2.0, source_port=4000)
    net.run(2.5)
    known = net.routers[a].destinations.get(b)  # type: ignore[attr-defined]
    used = known.probing.candidates[known.probing.current]
    assert used.reserve and not dead & set(used.path.servers)
    assert len(used.path) <= len(working)
    assert trips[-1].arrived_s
    states = {one.state for one in known.probing.candidates if not dead & set(one.path.servers)}
    assert states == {PathState.WORKING}, "each path's probe is answered over the same path"


def test_a_new_destination_begins_with_a_reserve_where_all_paths_are_known_to_fail() -> None:
    net = network("dpillar,4,2", multipath.FarSide, timers=BRISK)
    a, b = net.topology.server("0.0.0"), net.topology.server("0.0.1")
    net.stop_switch(0)
    net.run(1.0)
    trip = net.send_udp(a, b)
    net.run(0.2)
    assert trip.arrived_s
