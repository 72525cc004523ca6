"""TAR as a router, in virtual time: paths both ways, refresh, virtual flows, bounds."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from pillarbox import topos
from pillarbox.hosts.base.actions import Drop, Send
from pillarbox.hosts.base.agenda import Agenda
from pillarbox.hosts.base.bandwidth import Direction
from pillarbox.hosts.base.path import Step
from pillarbox.hosts.base.timers import FAST, Timers, timers_for
from pillarbox.hosts.ficonn import flow_table, router, tar
from pillarbox.hosts.ficonn.paths import tor_path
from pillarbox.hosts.ficonn.router import Tar
from pillarbox.hosts.memory.frame_devices import Device, FrameHop, FrameTap
from pillarbox.hosts.memory.memory_network import HOP_DELAY_S, MemoryNetwork
from pillarbox.hosts.wire.dcn import DcnHeader, Protocol
from pillarbox.hosts.wire.ficonn import BYONE, BYZERO, PathProbe
from pillarbox.hosts.wire.frame import ETH_DCN, ETH_IP, Frame
from pillarbox.hosts.wire.ipv4 import flow_key
from pillarbox.hosts.wire.marks import udp_packet
from pillarbox.hosts.wire.messages import PathFailure
from pillarbox.topos.base.topology import Topology
from pillarbox.topos.ficonn import BACKUP, SWITCH, FiConn
from tests.hosts.ficonn.small import BUSY, OTHER_PATH, SMALL, TOR_PATH, A, B, path_taken, tar_router

FICONN = FiConn(4, 2)
# Where nothing fails, heartbeats need not cost the test's time.
CALM = replace(
    FAST, heartbeat_s=1.0, neighbour_timeout_s=5.0, probe_interval_s=3.0, probe_jitter_s=0.6
)
EVERY_S = CALM.probe_interval_s + CALM.probe_jitter_s
SETTLE_S = 2 * FAST.search_timeout_s


def network(
    *devices: Device,
    ficonn: FiConn = SMALL,
    timers: Timers = FAST,
    seed: int = 0,
    hop_delay_s: float = HOP_DELAY_S,
    **options: Any,
) -> MemoryNetwork:
    def make(net: Topology, server: int) -> Tar:
        return Tar(net, server, timers=timers, seed=seed, **options)

    return MemoryNetwork(ficonn, make, devices, hop_delay_s)


# -- paths are set up, both ways ------------------------------------------------------------------


@pytest.mark.parametrize("waits", [False, True])
def test_the_probe_of_one_end_sets_up_both_directions(waits: bool) -> None:
    probes: list[FrameHop] = []
    net = network(FrameTap(lambda hop, now: probes.append(hop) if is_probe(hop.frame) else None))
    if waits:
        tar_router(net, A).tor_failed.put(B, None, 0.0)
    first = net.send_udp(A, B)
    assert tar_router(net, A).queues.packets == waits
    net.run(0.01)
    assert path_taken(first) == TOR_PATH
    # There and back: three hops each, the answer over what is TOR's way for it.
    assert len(probes) == 6
    assert not tar_router(net, A).queues.packets
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
    first = net.send_udp(A, B)
    net.run(0.01)
    trip = net.send_udp(A, B)
    net.run(0.01)
    assert path_taken(first) == TOR_PATH, "it does not wait for the probe"
    assert path_taken(trip) == OTHER_PATH


def test_refresh_moves_a_flow_off_a_loaded_link_without_loss() -> None:
    # So slow that packets are on every hop while probes go forth and back again.
    net = network(timers=CALM, hop_delay_s=0.002)
    trips = net.stream(A, B, every_s=0.001, seconds=2 * EVERY_S + 1.0, source_port=4000)
    net.run(0.5)
    net.load_bps[BUSY, BACKUP] = (0.0, 900e6)
    net.run(EVERY_S + SETTLE_S)
    moved = net.now
    net.run(2 * EVERY_S)
    ways = [path_taken(trip) for trip in trips]
    assert ways[0] == TOR_PATH
    assert all(w == OTHER_PATH for w, t in zip(ways, trips, strict=True) if t.sent_s > moved)
    assert set(ways) == {TOR_PATH, OTHER_PATH}


def test_the_data_plane_hears_of_a_new_way_when_it_is_used() -> None:
    net = network(timers=CALM)
    net.send_udp(A, B)
    net.run(0.5)
    source = tar_router(net, A)
    assert source.by_flow, "two flows to one server may leave by different ports"
    flow = next(iter(source.flows))

    def data_plane_sends(seconds: float) -> None:
        for _ in range(round(seconds / 0.05)):
            assert source.used(flow, 1000, net.now) == []
            net.run(0.05)

    for _ in range(20):
        source.changed_flows.clear()
        data_plane_sends(0.05)
        assert not source.changed_flows, "nothing changes"
    net.load_bps[BUSY, BACKUP] = (0.0, 900e6)
    data_plane_sends(2 * EVERY_S)
    assert source.changed_flows == {flow}
    source.changed_flows.clear()
    trip = net.send_udp(A, B)
    net.run(EVERY_S)
    assert path_taken(trip) == OTHER_PATH
    assert not source.changed_flows


def test_a_flow_that_moves_or_ends_takes_nothing_back_of_others() -> None:
    net = network(timers=replace(CALM, flow_idle_s=2.0))
    stays, moves = (flow_key(udp_packet(SMALL, A, B, source_port=port)) for port in (4000, 4001))
    for port in (4000, 4001):
        net.send_udp(A, B, source_port=port)
    net.run(0.5)
    generations = [one.generation for one in net.routers]
    for one in net.routers:
        one.changed_flows.clear()
    net.cut(BUSY, SMALL.server("0.2"), silent=True)  # nobody notices before the end of this
    source = tar_router(net, A)
    way = source.flow_table.next(moves, net.now)
    assert way
    source._path_failed(moves, way, net.now)
    net.run(0.5)
    assert moves in net.routers[A].changed_flows
    assert not any({stays, stays.reversed()} & one.changed_flows for one in net.routers)
    for _ in range(6):
        net.run(0.5)
        for one in net.routers:
            one.used(moves, 1000, net.now)
    # What is idle is taken out of the kernel's tables, too.
    assert stays in net.routers[A].changed_flows
    assert [one.generation for one in net.routers] == generations


def test_a_late_answer_is_as_good_as_one_in_time() -> None:
    """Where servers are so busy that none comes in time, probing again would never end."""
    net = network(timers=CALM, hop_delay_s=0.4 * CALM.search_timeout_s)  # there and back: six hops
    trip = net.send_udp(A, B)
    net.run(4 * CALM.search_timeout_s)
    assert path_taken(trip) == TOR_PATH
    source = tar_router(net, A)
    assert source.counters["probes"] == 2
    net.run(CALM.search_timeout_s)
    assert source.drops == {"answer to no probe": 1}  # the second one's
    # Nor does a refresh that is not answered in time lose the way in use, or ask again at once.
    for _ in range(3):
        trip = net.send_udp(A, B)
        net.run(EVERY_S)
        assert path_taken(trip) == TOR_PATH
    assert source.counters["probes"] <= 5


def test_the_papers_servers_probe_every_30_seconds() -> None:
    assert timers_for(FICONN, "paper").probe_interval_s == 30.0  # section V
    assert timers_for(topos.parse("bcube,4,1"), "paper").probe_interval_s == 10.0


def test_a_flow_that_has_ended_is_not_probed() -> None:
    net = network(timers=replace(CALM, flow_idle_s=20.0))

    def probes() -> int:
        net.run(2 * EVERY_S)
        return sum(router.counters["probes"] for router in net.routers)

    net.stream(A, B, every_s=0.1, seconds=2 * EVERY_S, source_port=4000)
    while_it_sends = probes()
    assert while_it_sends > 1
    assert probes() == while_it_sends
    trips = net.stream(A, B, every_s=0.1, seconds=2 * EVERY_S, source_port=4000)
    assert probes() > while_it_sends
    assert {path_taken(trip) for trip in trips} == {TOR_PATH}


def test_departs_a_flow_does_not_compete_with_itself() -> None:
    net = network(timers=CALM)
    trips = net.stream(A, B, every_s=0.001, seconds=3 * EVERY_S, source_port=4000)
    rate_bps = 1e6  # the stream fills links of that rate
    for one in net.routers:
        one.bandwidth.rate_bps = rate_bps
    net.run(3 * EVERY_S)
    assert tar_router(net, BUSY).bandwidth.available_bps(BACKUP, Direction.OUT) < 0.7e6
    assert {path_taken(trip) for trip in trips} == {TOR_PATH}


def test_virtual_flows_prevent_the_imbalance_trap() -> None:
    def ways(virtual: bool) -> list[str]:
        net = network(timers=CALM)
        net.load_bps[BUSY, BACKUP] = (0.0, 500e6)  # one flow is there already; level 0 is empty
        net.load_bps[SMALL.server("0.2"), BACKUP] = (0.0, 900e6)  # answers go another way
        net.run(1.0)
        trips = []
        for port in range(8):
            net.send_udp(A, B, source_port=4000 + port)
            net.run(0.01)
            trips.append(net.send_udp(A, B, source_port=4000 + port))
            net.run(0.001)
            if not virtual:
                tar_router(net, BUSY).virtual.clear()
        return [path_taken(trip) for trip in trips]

    assert ways(virtual=False) == [OTHER_PATH] * 8  # the trap
    assert ways(virtual=True)[:2] == [OTHER_PATH, TOR_PATH]
    assert 3 <= ways(virtual=True).count(TOR_PATH) <= 6


def test_departs_a_virtual_flow_ends_when_the_flow_is_probed_again() -> None:
    net = network(timers=CALM)
    net.load_bps[BUSY, BACKUP] = (0.0, 500e6)
    net.run(1.0)
    net.stream(A, B, every_s=0.05, seconds=8 * EVERY_S, source_port=4000)
    net.run(0.1)
    busy = tar_router(net, BUSY)
    assert busy.state()["virtual_flows"] == 1
    for _ in range(5):
        net.run(EVERY_S)
        assert busy.state()["virtual_flows"] <= 1
    del net.load_bps[BUSY, BACKUP]
    net.run(2 * EVERY_S)
    assert busy.state()["virtual_flows"] == 0


def test_departs_answers_are_no_virtual_flows() -> None:
    net = network(timers=CALM)
    net.load_bps[SMALL.server("0.2"), BACKUP] = (0.0, 900e6)  # on the answer's way
    net.run(1.0)
    net.send_udp(A, B, source_port=5000)
    net.run(0.01)
    answer = net.send_udp(B, A, source_port=5000)
    net.run(0.01)
    assert path_taken(answer) == "0.1 0.0 1.0 1.2 2.2 2.1"
    assert all(len(tar_router(net, server).virtual) == 0 for server in range(SMALL.servers))


@pytest.mark.parametrize(("reading", "left"), [("until the next probe", 1), ("until either", 0)])
def test_departs_a_flow_routed_by_level_0_takes_no_virtual_flow_off(
    reading: str, left: int
) -> None:
    assert tar.READINGS["until the next probe"] == tar.VIRTUAL_FLOWS
    net = network(timers=CALM, virtual_flows=tar.READINGS[reading])
    net.load_bps[BUSY, BACKUP] = (0.0, 500e6)
    net.run(1.0)
    net.send_udp(A, B)
    net.run(0.01)
    assert len(tar_router(net, BUSY).virtual) == 1
    net.send_udp(BUSY, SMALL.server("2.3"))
    net.run(0.01)
    assert len(tar_router(net, BUSY).virtual) == left


# -- bounds, and what others send -----------------------------------------------------------------


def test_tables_are_bounded_under_ten_thousand_flows() -> None:
    ours, relay = Tar(SMALL, 0, timers=FAST), Tar(SMALL, 0, timers=FAST)
    ours.tor_failed.put(5, None, 1.0)
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
    assert len(ours.flows) == router.MOST_FLOWS
    assert len(relay.flow_table) == flow_table.MOST_ENTRIES
    assert (
        ours.queues.packets
        == sum(len(own.queue) for own in ours.flows.values())
        <= flow_table.MOST_QUEUED
    )
    assert len(ours.agenda) <= router.MOST_FLOWS + 3
    assert reasons == {"too many flows"}
    # What is idle is forgotten.
    for one in (ours, relay):
        for _ in range(100_000):
            if one.next_poll > 2 * FAST.flow_idle_s:
                break
            one.poll(one.next_poll)
        assert len(one.flow_table) == len(one.flows) == len(one.virtual) == len(one.notified) == 0
    assert ours.queues.packets == 0
    assert len(ours.agenda) <= 3


def test_queues_are_bounded_each_and_together() -> None:
    ours = Tar(SMALL, 0, timers=FAST)
    ours.tor_failed.put(5, None, 0.0)
    drops = [ours.send(udp_packet(SMALL, 0, 5, serial=i), 0.0) for i in range(100)]
    reasons = [a.reason for actions in drops for a in actions if isinstance(a, Drop)]
    assert reasons == ["queue of the flow is full"] * (100 - flow_table.MOST_QUEUED_OF_FLOW)
    for i in range(flow_table.MOST_QUEUED):
        ours.send(udp_packet(SMALL, 0, 5, source_port=i % 500, serial=i), 0.0)
    assert ours.queues.packets == flow_table.MOST_QUEUED
    assert ours.drops["queues are full"] == flow_table.MOST_QUEUED_OF_FLOW


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
        good._replace(entries=(BYZERO,) * 3),  # more levels than the network has, and a far side
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
    returned = good._replace(stuck=True, entries=())
    assert reasons(returned, source=4, destination=1) == []  # on its way back to its source
    assert reasons(returned, source=4, destination=1, ttl=1) == ["TTL expired"]
    assert reasons(returned, source=4, destination=5) == ["bad probe"]
    assert reasons(returned._replace(flow=own), destination=0) == ["answer to no probe"]
    assert reasons(PathFailure(1, 0, 2, None)) == ["bad path failure"]
    assert reasons(PathFailure(1, 0, 2, flow), destination=2) == ["bad path failure"]
    assert reasons(PathFailure(1, 0, 2, own), destination=0) == []  # of no flow: nothing to do


def test_departs_a_packet_without_entry_goes_on_by_tor_and_its_source_is_told() -> None:
    relay = Tar(SMALL, 0, timers=FAST)
    packet = udp_packet(SMALL, 1, 4)
    told, sent = relay.receive(SWITCH, 1, Frame(ETH_IP, packet), 0.0)
    assert isinstance(told, Send)
    assert (told.port, told.peer) == (SWITCH, 1)
    header, body = DcnHeader.parse(told.frame.data)
    assert header.destination == SMALL.uid(1)
    assert PathFailure.parse(body).flow == flow_key(packet)
    assert isinstance(sent, Send) and sent.repeat is None
    assert (sent.port, sent.peer) == tor_path(SMALL, 0, 4).steps[0][:2]
    header, body = DcnHeader.parse(sent.frame.data)
    assert (header.source, header.destination, header.ttl) == (1, 4, packet[8] - 1)
    assert body == packet
    assert len(relay.receive(SWITCH, 1, Frame(ETH_IP, packet), 0.01)) == 1  # told once in a while
    again = relay.receive(SWITCH, 1, Frame(ETH_IP, packet), 2 * FAST.search_timeout_s)
    assert len(again) == 2


def test_an_entry_keeps_the_way_in_use_while_probes_get_lost() -> None:
    ways = [tar.RouteEntry(None, Step(SWITCH, peer)) for peer in range(4)]
    entry = flow_table.FlowEntry(settle_s=1.0)
    for round_, (one, now) in enumerate(zip(ways, (0.0, 5.0, 5.5, 5.9), strict=True)):
        entry.put(flow_table.Tag(round_, False), one, now)
        assert entry.current(lambda step: True, now) == ways[0]
    assert [one for _, one in entry.route_entries] == [ways[0], ways[3]]
    assert entry.current(lambda step: True, 6.9) == ways[3]
    entry.forget_all_but(flow_table.Tag(3, False))
    assert [one for _, one in entry.route_entries] == [ways[3]]
    entry.forget_next(ways[3].next)
    assert entry.current(lambda step: True, 7.0) is None


def test_the_agenda_holds_one_timer_a_flow() -> None:
    net = network(timers=CALM)
    for port in range(30):
        net.send_udp(A, B, source_port=port)
    net.run(3 * EVERY_S)
    agenda: Agenda = net.routers[A].agenda
    assert len(agenda) <= 30 + 4  # heartbeat, neighbours, expire, settle
    assert len(net.routers[B].agenda) <= 4


def test_networks_without_levels_work_as_well() -> None:
    ficonn = topos.parse("ficonn,4,0")
    net = MemoryNetwork(ficonn, lambda n, server: Tar(n, server, timers=FAST))
    trip = net.send_udp(0, 3)
    net.run(0.1)
    assert trip.arrived_s
