"""TAR as a router, in virtual time: paths both ways, refresh, virtual flows, faults, bounds."""

import random
from dataclasses import replace
from itertools import pairwise

import pytest

import topos
from hosts.base.actions import Drop, Send
from hosts.base.agenda import Agenda
from hosts.base.algorithms import route
from hosts.base.path import Step
from hosts.base.timers import FAST, Timers
from hosts.ficonn import flows, router, tar
from hosts.ficonn.paths import tor_path
from hosts.ficonn.router import Tar
from hosts.memory.devices import Device, Duplicate, Hop, Loss, Tap
from hosts.memory.network import MemoryNetwork, Trip
from hosts.memory.packets import udp_packet
from hosts.wire.dcn import DcnHeader, Protocol
from hosts.wire.ficonn import BYONE, BYZERO, PathProbe
from hosts.wire.frame import ETH_DCN, ETH_IP, Frame
from hosts.wire.ipv4 import flow_key
from hosts.wire.messages import PathFailure
from topos.ficonn import BACKUP, SWITCH, FiConn

FICONN = FiConn(4, 2)
SMALL = FiConn(4, 1)
A, B, BUSY = SMALL.server("2.1"), SMALL.server("0.1"), SMALL.server("2.0")  # of Fig. 5
TOR_WAY, OTHER_WAY = "2.1 2.0 0.2 0.1", "2.1 2.2 1.2 1.0 0.0 0.1"
# Where nothing fails, heart-beats need not cost the test's time.
CALM = replace(FAST, heart_beat_s=1.0, neighbour_timeout_s=5.0)
EVERY_S = FAST.probe_interval_s + FAST.probe_jitter_s
SETTLE_S = 2 * FAST.probe_timeout_s


def network(
    *devices: Device, ficonn: FiConn = SMALL, timers: Timers = FAST, seed: int = 0
) -> MemoryNetwork:
    return MemoryNetwork(
        ficonn, lambda net, server: Tar(net, server, timers=timers, seed=seed), devices
    )


def tar_router(net: MemoryNetwork, server: int) -> Tar:
    found = net.routers[server]
    assert isinstance(found, Tar)
    return found


def way(trip: Trip) -> str:
    assert len(trip.arrived_s) == 1, trip
    return " ".join(map(SMALL.address, trip.path.servers))


# -- paths are set up, both ways ------------------------------------------------------------------


def test_first_packet_waits_for_the_path_and_the_answer_needs_none() -> None:
    probes: list[Hop] = []
    net = network(Tap(lambda hop, now: probes.append(hop) if is_probe(hop.frame) else None))
    first = net.send_udp(A, B)
    assert tar_router(net, A).queued == 1
    net.run(0.01)
    assert way(first) == TOR_WAY
    # There and back: three hops each, the answer over what is TOR's way for it.
    assert len(probes) == 6
    assert not tar_router(net, A).queued
    answer = udp_packet(SMALL, B, A, source_port=5000, destination_port=4000)
    assert [type(action) for action in net.routers[B].send(answer, net.now)] == [Send]
    assert net.routers[B].counters["probes"] == 0
    assert len(probes) == 6
    # Every server on the way knows previous and next hop, of both directions.
    entries = {
        (server, entry["previous"], entry["next"])
        for server, one in enumerate(net.routers)
        for entry in one.state()["entries"]
    }
    there = [*pairwise(tor_path(SMALL, A, B).servers)]
    assert {
        (server, SMALL.address(previous) if previous is not None else None, SMALL.address(to))
        for previous, (server, to) in zip([None, *[a for a, _ in there]], there, strict=False)
    } <= entries
    assert len(entries) == 6


def is_probe(frame: Frame) -> bool:
    return frame.ethertype == ETH_DCN and frame.data[1] == Protocol.PATH_PROBE


def test_packets_stay_in_order_through_the_queue() -> None:
    net = network()
    trips = [net.send_udp(A, B) for _ in range(20)]
    net.run(0.01)
    arrivals = [trip.arrived_s[0] for trip in trips]
    assert arrivals == sorted(arrivals)
    assert net.send_udp(A, B).steps, "later packets do not wait"


def test_both_ends_may_begin_at_once() -> None:
    net = network()
    trips = [net.send_udp(*ends, source_port=5000) for ends in ((A, B), (B, A))]
    net.run(0.01)
    assert all(trip.arrived_s for trip in trips)
    assert net.routers[A].counters["probes"] == net.routers[B].counters["probes"] == 1


# -- traffic --------------------------------------------------------------------------------------


def test_a_new_flow_avoids_a_loaded_link() -> None:
    net = network(timers=CALM)
    net.load_bps[BUSY, BACKUP] = (0.0, 900e6)
    net.run(1.0)
    trip = net.send_udp(A, B)
    net.run(0.01)
    assert way(trip) == OTHER_WAY


def test_refresh_moves_a_flow_off_a_loaded_link_without_loss() -> None:
    net = network(timers=CALM)
    trips = net.stream(A, B, every_s=0.002, seconds=2 * EVERY_S + 1.0, source_port=4000)
    net.run(0.5)
    net.load_bps[BUSY, BACKUP] = (0.0, 900e6)
    net.run(EVERY_S + SETTLE_S)
    moved = net.now
    net.run(2 * EVERY_S)
    ways = [way(trip) for trip in trips]
    assert ways[0] == TOR_WAY
    assert all(w == OTHER_WAY for w, t in zip(ways, trips, strict=True) if t.sent_s > moved)
    assert set(ways) == {TOR_WAY, OTHER_WAY}


def test_departs_a_flow_does_not_compete_with_itself() -> None:
    net = network(timers=CALM)
    trips = net.stream(A, B, every_s=0.001, seconds=3 * EVERY_S, source_port=4000)
    rate_bps = 1e6  # the stream fills links of that rate
    for one in net.routers:
        one.bandwidth.rate_bps = rate_bps
    net.run(3 * EVERY_S)
    assert tar_router(net, BUSY).bandwidth.available_bps(BACKUP, router.Direction.OUT) < 0.7e6
    assert {way(trip) for trip in trips} == {TOR_WAY}


def test_virtual_flows_prevent_the_imbalance_trap() -> None:
    def ways(virtual: bool) -> list[str]:
        net = network(timers=CALM)
        net.load_bps[BUSY, BACKUP] = (0.0, 500e6)  # one flow is there already; level 0 is empty
        net.load_bps[SMALL.server("0.2"), BACKUP] = (0.0, 900e6)  # answers go another way
        net.run(1.0)
        trips = []
        for port in range(8):
            trips.append(net.send_udp(A, B, source_port=4000 + port))
            net.run(0.01)
            if not virtual:
                tar_router(net, BUSY).virtual.clear()
        return [way(trip) for trip in trips]

    assert ways(virtual=False) == [OTHER_WAY] * 8  # the trap
    assert ways(virtual=True)[:2] == [OTHER_WAY, TOR_WAY]
    assert 3 <= ways(virtual=True).count(TOR_WAY) <= 6


def test_departs_a_virtual_flow_ends_when_the_flow_is_probed_again() -> None:
    net = network(timers=CALM)
    net.load_bps[BUSY, BACKUP] = (0.0, 500e6)
    net.run(1.0)
    net.stream(A, B, every_s=0.05, seconds=9.0, source_port=4000)
    net.run(0.1)
    busy = tar_router(net, BUSY)
    assert busy.state()["virtual_flows"] == 1
    for _ in range(5):
        net.run(EVERY_S)
        assert busy.state()["virtual_flows"] <= 1
    del net.load_bps[BUSY, BACKUP]
    net.run(2 * EVERY_S)
    assert busy.state()["virtual_flows"] == 0


def test_a_flow_routed_by_level_0_takes_a_virtual_flow_off() -> None:
    net = network(timers=CALM)
    net.load_bps[BUSY, BACKUP] = (0.0, 500e6)
    net.run(1.0)
    net.send_udp(A, B)
    net.run(0.01)
    assert len(tar_router(net, BUSY).virtual) == 1
    net.send_udp(BUSY, SMALL.server("2.3"))
    net.run(0.01)
    assert len(tar_router(net, BUSY).virtual) == 0


# -- faults ---------------------------------------------------------------------------------------

FAR_A, FAR_B = FICONN.server("0.2.1"), FICONN.server("1.2.1")  # of Fig. 3: seven hops
RELAYS = tor_path(FICONN, FAR_A, FAR_B).servers
NOTICED_S = FAST.probe_timeout_s  # a cut that ports notice costs a path failure and a probe
SILENT_S = FAST.neighbour_timeout_s + FAST.heart_beat_s + 3 * FAST.probe_timeout_s


def fault(net: MemoryNetwork, kind: str, hop: int) -> float:
    """Break something at that hop of TOR's path; return when packets arrive again."""
    a, b = RELAYS[hop], RELAYS[hop + 1]
    if kind == "cut":
        net.cut(a, b)
        return NOTICED_S
    if kind == "silent cut":
        net.cut(a, b, silent=True)
        return SILENT_S
    if kind == "server":
        net.kill(b)
        return SILENT_S
    net.stop_switch(b // 4, silent=kind == "silent switch")
    return SILENT_S


@pytest.mark.parametrize(
    ("kind", "hop"),
    [
        *[("cut", hop) for hop in (1, 3, 5)],  # the level-1 and level-2 cables of the path
        *[("silent cut", hop) for hop in (1, 3)],
        *[("server", hop) for hop in range(6)],
        ("switch", 1),  # of the middle FiConn_0s of the path
        ("silent switch", 3),
    ],
)
def test_the_stream_goes_on_after_a_fault(kind: str, hop: int) -> None:
    net = network(ficonn=FICONN)
    trips = net.stream(FAR_A, FAR_B, every_s=0.005, seconds=1.2, source_port=4000)
    net.run(0.1)
    broken = net.now
    again_s = fault(net, kind, hop)
    net.run(1.2)
    before = [trip for trip in trips if trip.sent_s < broken - 0.01]
    after = [trip for trip in trips if trip.sent_s > broken + again_s]
    assert all(trip.arrived_s for trip in before)
    assert len(after) > 50
    assert all(trip.arrived_s for trip in after), [t.lost for t in after if not t.arrived_s][:3]
    assert after[-1].path.servers != RELAYS
    assert all(trip.arrived_s or trip.lost for trip in trips)


def test_a_packet_in_flight_is_all_that_a_noticed_cut_costs() -> None:
    net = network()
    trips = net.stream(A, B, every_s=0.005, seconds=1.0, source_port=4000)
    net.run(0.5)
    net.cut(BUSY, SMALL.server("0.2"))
    net.run(1.0)
    assert sum(not trip.arrived_s for trip in trips) <= 1
    assert way(trips[-1]) == OTHER_WAY


def test_the_stream_returns_when_the_cable_is_plugged_in_again() -> None:
    net = network()
    trips = net.stream(A, B, every_s=0.005, seconds=5.0, source_port=4000)
    net.run(0.5)
    net.cut(BUSY, SMALL.server("0.2"))
    net.run(0.502)
    assert way(trips[-1]) == OTHER_WAY
    net.heal(BUSY, SMALL.server("0.2"))
    healed = net.now
    net.run(5.0)
    assert way(trips[-1]) == TOR_WAY
    assert all(trip.arrived_s for trip in trips if trip.sent_s >= healed)


def test_a_source_loses_its_own_cable() -> None:
    net = network()
    source, destination = SMALL.server("2.0"), SMALL.server("1.3")
    trips = net.stream(source, destination, every_s=0.005, seconds=1.5, source_port=4000)
    net.run(0.5)
    net.cut(source, SMALL.server_plug(source, SWITCH).node)
    net.run(2.0)
    assert way(trips[-1]) == "2.0 0.2 0.0 1.0 1.3"
    assert sum(not trip.arrived_s for trip in trips) <= 1


def test_a_dead_destination_is_a_drop_with_a_reason_and_comes_back() -> None:
    net = network()
    net.kill(B)
    trip = net.send_udp(A, B)
    net.run(2.0)
    assert trip.lost == "no answer to the probes of the flow's path"
    late = net.send_udp(A, B)
    net.run(2.0)
    assert late.lost
    assert not tar_router(net, A).queued
    net.revive(B)
    net.run(0.5)
    again = net.send_udp(A, B)
    net.run(0.5)
    assert again.arrived_s


def test_a_relay_that_forgot_everything_is_no_end() -> None:
    net = network()
    trips = net.stream(A, B, every_s=0.005, seconds=2.0, source_port=4000)
    net.run(0.5)
    net.routers[BUSY] = net.make_router(SMALL, BUSY)
    net.run(2.0)
    lost = [trip for trip in trips if not trip.arrived_s]
    assert [trip.lost for trip in lost] == ["no entry for the flow"]


def test_only_the_way_back_breaks() -> None:
    net = network()
    net.load_bps[SMALL.server("0.2"), BACKUP] = (0.0, 900e6)  # answers go another way
    net.run(1.0)
    net.send_udp(A, B, source_port=5000)
    net.run(0.01)
    answer = net.send_udp(B, A, source_port=5000)
    net.run(0.01)
    assert way(answer) == "0.1 0.0 1.0 1.2 2.2 2.1"
    net.cut(SMALL.server("1.2"), SMALL.server("2.2"))
    net.run(0.01)
    again = net.send_udp(B, A, source_port=5000)
    net.run(0.01)
    # The loaded link works: the bypass, which does not, is given up.
    assert way(again) == "0.1 0.2 2.0 2.1"
    assert net.routers[B].counters["path failures"] == 1


def test_lost_and_doubled_probes_are_no_end() -> None:
    net = network(Loss(0.05, seed=1), Duplicate(0.05, seed=2))
    trips = [net.send_udp(A, B, source_port=port) for port in range(4000, 4060)]
    net.run(3.0)
    assert all(trip.arrived_s or trip.lost for trip in trips)
    silent = [t for t in trips if t.lost == "no answer to the probes of the flow's path"]
    assert len(silent) <= 3
    assert sum(bool(trip.arrived_s) for trip in trips) >= 35


@pytest.mark.parametrize("block", range(4))
def test_random_failures_end_every_packet(block: int) -> None:
    """In 200 runs each packet arrives or has a reason, and none goes round until its TTL ends."""
    for seed in range(50 * block, 50 * block + 50):
        chance = random.Random(seed)
        net = network(ficonn=SMALL, seed=seed)
        pairs = [chance.sample(range(SMALL.servers), 2) for _ in range(6)]
        cables = list(SMALL.links())
        for a, b in pairs:
            net.send_udp(a, b)
        net.run(0.05)
        for _ in range(chance.randrange(1, 4)):
            cable = chance.choice(cables)
            net.cut(cable.a, cable.b, silent=chance.random() < 0.5)
        if chance.random() < 0.5:
            net.kill(chance.randrange(SMALL.servers))
        for _ in range(3):
            for a, b in pairs:
                net.send_udp(a, b)
            net.run(0.15)
        net.run(0.3)
        for trip in net.trips:
            assert trip.arrived_s or trip.lost, trip
            assert trip.lost != "TTL expired", trip
            assert len(trip.arrived_s) <= 1
            assert len(trip.steps) <= 2 * 3 + 2, trip
        last = net.trips[-len(pairs) :]
        for trip in last:
            if route(SMALL, "tor", trip.source, trip.destination, net.failures).paths:
                assert trip.arrived_s, (seed, trip)


# -- bounds, and what others send -----------------------------------------------------------------


def test_tables_are_bounded_under_ten_thousand_flows() -> None:
    ours, relay = Tar(SMALL, 0, timers=FAST), Tar(SMALL, 0, timers=FAST)
    reasons = set()
    for i in range(10_000):
        now = i * 1e-5
        packet = udp_packet(SMALL, 0, 5, serial=i, source_port=i)
        actions = ours.send(packet, now)
        reasons |= {action.reason for action in actions if isinstance(action, Drop)}
        flow = flow_key(udp_packet(SMALL, 1, 4, source_port=i))
        probe = PathProbe(flow, 7, False, SMALL.uid(1), (BYZERO,))
        header = DcnHeader(SMALL.uid(1), SMALL.uid(4), Protocol.PATH_PROBE)
        relay.receive(SWITCH, 1, Frame(ETH_DCN, header.pack(probe.pack())), now)
    assert (len(ours.flows), len(ours.ways)) == (router.MOST_FLOWS, router.MOST_ENTRIES)
    assert len(relay.ways) == router.MOST_ENTRIES
    assert ours.queued == sum(len(own.queue) for own in ours.flows.values()) <= router.MOST_QUEUED
    assert len(ours.agenda) <= router.MOST_FLOWS + 3
    assert reasons == {"too many flows"}
    # What is idle is forgotten.
    for one in (ours, relay):
        for _ in range(100_000):
            if one.next_poll > 2 * FAST.flow_idle_s:
                break
            one.poll(one.next_poll)
        assert len(one.ways) == len(one.flows) == len(one.virtual) == len(one.told) == 0
    assert ours.queued == 0
    assert len(ours.agenda) <= 3


def test_queues_are_bounded_each_and_together() -> None:
    ours = Tar(SMALL, 0, timers=FAST)
    drops = [ours.send(udp_packet(SMALL, 0, 5, serial=i), 0.0) for i in range(100)]
    reasons = [a.reason for actions in drops for a in actions if isinstance(a, Drop)]
    assert reasons == ["queue of the flow is full"] * (100 - router.MOST_QUEUED_OF_FLOW)
    for i in range(router.MOST_QUEUED):
        ours.send(udp_packet(SMALL, 0, 5, source_port=i % 500, serial=i), 0.0)
    assert ours.queued == router.MOST_QUEUED
    assert ours.drops["queues are full"] == router.MOST_QUEUED_OF_FLOW


def test_bad_probes_and_path_failures_are_dropped() -> None:
    relay = Tar(SMALL, 0, timers=FAST)
    flow = flow_key(udp_packet(SMALL, 1, 4))
    good = PathProbe(flow, 7, False, SMALL.uid(1), (BYZERO,))

    def reasons(
        probe: PathProbe | PathFailure, source: int = 1, destination: int = 4, ttl: int = 9
    ) -> list[str]:
        protocol = Protocol.PATH_PROBE if isinstance(probe, PathProbe) else Protocol.PATH_FAILURE
        header = DcnHeader(SMALL.uid(source), SMALL.uid(destination), protocol, ttl=ttl)
        actions = relay.receive(SWITCH, 1, Frame(ETH_DCN, header.pack(probe.pack())), 0.0)
        return [action.reason for action in actions if isinstance(action, Drop)]

    assert reasons(good) == []
    for bad in (
        good._replace(entries=(BYZERO, BYZERO)),  # more levels than the network has
        good._replace(entries=(12,)),  # no server
        good._replace(previous=2),  # not who sent it
        good._replace(flow=flow._replace(source=0x0B000001)),
        good._replace(flow=flow._replace(destination=flow.source)),
    ):
        assert reasons(bad) == ["bad probe"]
    assert reasons(good, source=2) == reasons(good, destination=5) == ["bad probe"]
    assert reasons(good, ttl=1) == ["TTL expired"]
    own = flow_key(udp_packet(SMALL, 0, 4))
    ghost = good._replace(flow=own, entries=(BYONE,))
    assert reasons(ghost, source=0) == ["probe of a former round"]
    answer = good._replace(flow=own.reversed(), returning=True)
    assert reasons(answer, source=4, destination=0) == ["answer to no probe"]
    assert reasons(PathFailure(1, 0, 2, None)) == ["bad path failure"]
    assert reasons(PathFailure(1, 0, 2, flow), destination=2) == ["bad path failure"]
    assert reasons(PathFailure(1, 0, 2, own), destination=0) == []  # of no flow: nothing to do


def test_a_packet_without_entry_is_dropped_and_its_source_told_once_in_a_while() -> None:
    relay = Tar(SMALL, 0, timers=FAST)
    packet = udp_packet(SMALL, 1, 4)
    drop, told = relay.receive(SWITCH, 1, Frame(ETH_IP, packet), 0.0)
    assert drop == Drop("no entry for the flow", packet)
    assert isinstance(told, Send)
    assert (told.port, told.peer) == (SWITCH, 1)
    header, body = DcnHeader.parse(told.frame.data)
    assert header.destination == SMALL.uid(1)
    assert PathFailure.parse(body).flow == flow_key(packet)
    assert relay.receive(SWITCH, 1, Frame(ETH_IP, packet), 0.01) == [drop]
    again = relay.receive(SWITCH, 1, Frame(ETH_IP, packet), 2 * FAST.probe_timeout_s)
    assert len(again) == 2


def test_an_entry_keeps_the_way_in_use_while_probes_get_lost() -> None:
    ways = [tar.Way(None, Step(SWITCH, peer)) for peer in range(4)]
    entry = flows.Entry(settle_s=1.0)
    for round_, (one, now) in enumerate(zip(ways, (0.0, 5.0, 5.5, 5.9), strict=True)):
        entry.put(flows.Tag(round_, False), one, now)
        assert entry.current(lambda step: True, now) == ways[0]
    assert [one for _, one in entry.ways] == [ways[0], ways[3]]
    assert entry.current(lambda step: True, 6.9) == ways[3]
    entry.forget_all_but(flows.Tag(3, False))
    assert [one for _, one in entry.ways] == [ways[3]]
    entry.forget_next(ways[3].next)
    assert entry.current(lambda step: True, 7.0) is None


def test_the_agenda_holds_one_timer_a_flow() -> None:
    net = network(timers=CALM)
    for port in range(30):
        net.send_udp(A, B, source_port=port)
    net.run(3 * EVERY_S)
    agenda: Agenda = net.routers[A].agenda
    assert len(agenda) == 30 + 3  # heart-beat, neighbours, expire
    assert len(net.routers[B].agenda) == 3


def test_networks_without_levels_work_as_well() -> None:
    ficonn = topos.parse("ficonn,4,0")
    net = MemoryNetwork(ficonn, lambda n, server: Tar(n, server, timers=FAST))
    trip = net.send_udp(0, 3)
    net.run(0.1)
    assert trip.arrived_s
