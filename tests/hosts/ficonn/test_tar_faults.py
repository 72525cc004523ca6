"""TAR as a router when things break, in virtual time: streams go on within the timers."""

import random
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pytest

from pillarbox.hosts.base.actions import Action, Pushed, Relayed, Send
from pillarbox.hosts.base.algorithms import route
from pillarbox.hosts.base.path import Step
from pillarbox.hosts.base.router import Router
from pillarbox.hosts.base.timers import FAST
from pillarbox.hosts.ficonn import tar
from pillarbox.hosts.ficonn.far_side import TarFarSide
from pillarbox.hosts.ficonn.paths import tor_path
from pillarbox.hosts.ficonn.router import Tar
from pillarbox.hosts.ficonn.searches import FIRST_WINDOW
from pillarbox.hosts.memory.frame_devices import Device, Duplicate, FrameHop, Loss
from pillarbox.hosts.memory.memory_network import FAILED, MemoryNetwork
from pillarbox.hosts.wire.dcn import DcnHeader, Protocol
from pillarbox.hosts.wire.ficonn import BYZERO, PathProbe
from pillarbox.hosts.wire.frame import ETH_DCN, ETH_IP, Frame
from pillarbox.hosts.wire.marks import udp_packet
from pillarbox.hosts.wire.messages import PathFailure
from pillarbox.hosts.wire.relay_keys import RelayKey
from pillarbox.topos.ficonn import BACKUP, SWITCH, FiConn
from tests.hosts.ficonn.small import BUSY, OTHER_PATH, SMALL, TOR_PATH, A, B, path_taken, tar_router

FICONN = FiConn(4, 2)


# Rounds of probes that follow one another sooner, to spare virtual time.
EAGER = replace(FAST, probe_interval_s=1.0, probe_jitter_s=0.25)

# Upper bound for a search without an answer, beside two others that share a window of one.
TRIES_S = 3 * tar.PROBE_TIMEOUT * tar.PROBE_TRIES + sum(tar.PROBE_PAUSES)
GIVEN_UP_S = (1 + tar.JITTER) * TRIES_S * FAST.search_timeout_s


def network(*devices: Device, ficonn: FiConn = SMALL, seed: int = 0) -> MemoryNetwork:
    return MemoryNetwork(
        ficonn, lambda net, server: Tar(net, server, timers=EAGER, seed=seed), devices
    )


FAR_A, FAR_B = FICONN.server("0.2.1"), FICONN.server("1.2.1")  # of Fig. 3: seven hops
RELAYS = tor_path(FICONN, FAR_A, FAR_B).servers
NOTICED_S = FAST.search_timeout_s  # a cut that ports notice costs a path failure and a probe
SILENT_S = FAST.neighbour_timeout_s + FAST.heartbeat_s + 3 * FAST.search_timeout_s


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
    assert path_taken(trips[-1]) == OTHER_PATH


def test_the_stream_returns_when_the_cable_is_plugged_in_again() -> None:
    net = network()
    trips = net.stream(A, B, every_s=0.005, seconds=5.0, source_port=4000)
    net.run(0.5)
    net.cut(BUSY, SMALL.server("0.2"))
    net.run(0.502)
    assert path_taken(trips[-1]) == OTHER_PATH
    net.heal(BUSY, SMALL.server("0.2"))
    healed = net.now
    net.run(5.0)
    assert path_taken(trips[-1]) == TOR_PATH
    assert all(trip.arrived_s for trip in trips if trip.sent_s >= healed)


def test_a_source_loses_its_own_cable() -> None:
    net = network()
    source, destination = SMALL.server("2.0"), SMALL.server("1.3")
    trips = net.stream(source, destination, every_s=0.005, seconds=1.5, source_port=4000)
    net.run(0.5)
    net.cut(source, SMALL.server_plug(source, SWITCH).node)
    net.run(2.0)
    assert path_taken(trips[-1]) == "2.0 0.2 0.0 1.0 1.3"
    assert sum(not trip.arrived_s for trip in trips) <= 1


@pytest.mark.parametrize(
    ("kind", "hop"), [("cut", 1), ("cut", 3), ("silent cut", 3), ("server", 2)]
)
def test_probes_tell_of_the_packets_that_follow_them(kind: str, hop: int) -> None:
    """A source lets many go at once: a data plane that had to ask about them would be late."""
    net = network(ficonn=FICONN)
    told: dict[tuple[int, RelayKey], Step] = {}
    asked = []

    def listen_to(relay: Router) -> None:
        receive = relay.receive

        def listening(port: int, peer: int, frame: Frame, now: float) -> list[Action]:
            actions = receive(port, peer, frame, now)
            for one in actions:
                if isinstance(one, Send) and isinstance(one.repeat, Relayed):
                    packets, way = (relay.server, one.repeat.key), Step(one.port, one.peer)
                    if frame.ethertype == ETH_IP:
                        asked.append(told.get(packets) == way)
                    else:
                        told[packets] = way
            return actions

        relay.receive = listening  # type: ignore[method-assign]

    for relay in net.routers:
        listen_to(relay)
    net.stream(FAR_A, FAR_B, every_s=0.005, seconds=1.2, source_port=4000)
    net.stream(FAR_B, FAR_A, every_s=0.005, seconds=1.2, source_port=4001)
    net.run(0.1)
    before = len(told)
    fault(net, kind, hop)
    net.run(1.2)
    assert len(told) > before and len(asked) > 1000 and all(asked)


def test_answers_go_on_before_it_is_known_behind_a_switch_whose_cable_is_cut() -> None:
    """The far end would answer by the relay that is cut off: to it nothing seems amiss."""
    net = network()
    ways = [  # of one flow, whose ports are the same
        net.stream(*ends, every_s=0.005, seconds=0.6, source_port=5000) for ends in ((A, B), (B, A))
    ]
    net.run(0.3)
    relay = SMALL.server("0.2")
    net.cut(relay, SMALL.server_plug(relay, SWITCH).node)
    net.run(0.301 + FAST.neighbour_timeout_s / 2)
    both = [OTHER_PATH, " ".join(OTHER_PATH.split()[::-1])]
    assert [path_taken(trips[-2]) for trips in ways] == both
    for trips in ways:
        assert sum(not trip.arrived_s for trip in trips[:-1]) <= 2


@pytest.mark.parametrize("destination", ["0.1", "0.3", "1.1", "1.3"])
def test_the_answer_to_a_source_that_has_only_its_backup_link_comes_by_it_at_once(
    destination: str,
) -> None:
    net = network()
    source = SMALL.server("2.0")
    net.cut(source, SMALL.server_plug(source, SWITCH).node)
    trip = net.send_udp(source, SMALL.server(destination))
    net.run(FAST.search_timeout_s / 2)  # before its neighbours notice
    assert trip.arrived_s, trip.lost


def test_a_source_without_any_link_says_so_at_once() -> None:
    net = network()
    lonely = SMALL.server("2.3")  # without a backup cable
    net.cut(lonely, SMALL.server_plug(lonely, SWITCH).node)
    assert net.send_udp(lonely, B).lost == tar.NO_PATH
    assert tar_router(net, lonely).queues.packets == 0


@pytest.mark.parametrize("source", [A, BUSY])  # a relay's cable, the source's own cable
def test_a_path_is_found_anew_before_packets_ask_for_it(source: int) -> None:
    net = network()
    net.send_udp(source, B)
    net.run(0.1)
    net.cut(BUSY, SMALL.server("0.2"))
    net.run(0.01)
    assert net.routers[source].counters["probes"] == 2
    assert net.send_udp(source, B).steps, "it does not wait"


def test_a_path_failure_leaves_the_way_that_is_being_set_up() -> None:
    ours = Tar(SMALL, A, timers=FAST)
    packet = udp_packet(SMALL, A, B)
    ours.tor_failed.put(B, None, 0.0)  # so that the packet waits for the path
    (sent,) = ours.send(packet, 0.0)
    assert isinstance(sent, Send)
    probe = PathProbe.parse(DcnHeader.parse(sent.frame.data)[1])
    late = PathFailure(1, SMALL.uid(BUSY), SMALL.uid(2), probe.flow).pack()
    header = DcnHeader(SMALL.uid(BUSY), SMALL.uid(A), Protocol.PATH_FAILURE)
    assert ours.receive(SWITCH, BUSY, Frame(ETH_DCN, header.pack(late)), 0.01) == []
    answer = PathProbe(probe.flow.reversed(), probe.round, True, SMALL.uid(BUSY), (BYZERO,)).pack()
    header = DcnHeader(SMALL.uid(B), SMALL.uid(A), Protocol.PATH_PROBE)
    released = ours.receive(SWITCH, BUSY, Frame(ETH_DCN, header.pack(answer)), 0.02)
    assert released == [Send(SWITCH, BUSY, Frame(ETH_IP, packet), Pushed(probe.flow))]


def test_of_many_broken_flows_a_few_search_at_once_and_all_are_mended() -> None:
    searching: list[int] = []

    class Watch:
        def passing(self, hop: FrameHop, now: float) -> Iterator[tuple[float, Frame]]:
            searching.append(sum(own.probing is not None for own in router.flows.values()))
            yield 0.0, hop.frame

    net = network(Watch())
    router = tar_router(net, A)
    ports = range(4000, 4012)
    trips = [net.stream(A, B, every_s=0.02, seconds=0.6, source_port=port) for port in ports]
    net.run(0.2)
    searching.clear()
    net.cut(BUSY, SMALL.server("0.2"))  # of the path of all twelve
    net.run(0.6)
    assert int(FIRST_WINDOW) <= max(searching) < len(ports)
    assert {path_taken(stream[-1]) for stream in trips} == {OTHER_PATH}
    assert all(own.ready and not own.waiting for own in router.flows.values())


def test_a_search_without_an_answer_keeps_no_other_waiting() -> None:
    net = network()
    for port in range(4000, 4000 + int(FIRST_WINDOW)):
        net.send_udp(A, B, source_port=port)
    net.run(0.1)
    net.kill(B)
    net.cut(BUSY, SMALL.server("0.2"))
    net.run(0.1)
    router = tar_router(net, A)
    assert len(router.searches) == int(FIRST_WINDOW)
    net.run(2.5 * FAST.search_timeout_s)
    assert all(own.tries and own.waiting for own in router.flows.values())
    assert len(router.searches) <= int(router.searches.window) < int(FIRST_WINDOW)


def test_a_dead_destination_is_a_drop_with_a_reason_and_comes_back() -> None:
    net = network()
    net.kill(B)
    by_tor = net.send_udp(A, B)
    tar_router(net, A).tor_failed.put(B, None, net.now)
    waits = net.send_udp(A, B)
    net.run(GIVEN_UP_S)
    assert by_tor.lost == FAILED
    assert waits.lost == "no answer to the probes of the flow's path"
    late = net.send_udp(A, B)
    net.run(GIVEN_UP_S)
    assert late.lost
    assert not tar_router(net, A).queues.packets
    net.revive(B)
    net.run(0.5)
    again = net.send_udp(A, B)
    net.run(0.5)
    assert again.arrived_s


def test_departs_a_probe_without_a_next_hop_returns_to_its_source() -> None:
    net = network()
    switch = SMALL.server_plug(BUSY, SWITCH).node - SMALL.servers
    net.stop_switch(switch)  # of A and BUSY: from B, TOR's path enters by BUSY
    net.run(NOTICED_S)
    source, reached = tar_router(net, B), SMALL.server("2.2")
    source.tor_failed.put(reached, None, net.now)
    for port in range(4000, 4020):  # more searches without a path than the window holds
        net.send_udp(B, A, source_port=port)
    found = net.send_udp(B, reached)
    net.run(NOTICED_S)
    assert found.arrived_s
    assert source.counters["probes returned"] and not source.counters["probes without an answer"]
    assert source.searches.window >= FIRST_WINDOW


def test_a_relay_that_forgot_everything_is_no_end() -> None:
    net = network()
    trips = net.stream(A, B, every_s=0.005, seconds=2.0, source_port=4000)
    net.run(0.5)
    net.routers[BUSY] = net.make_router(SMALL, BUSY)
    net.run(2.0)
    lost = [trip for trip in trips if not trip.arrived_s]
    # It takes its neighbours for down until it hears them.
    assert {trip.lost for trip in lost} <= {"next hop is down"} and len(lost) <= 2


def test_only_the_way_back_breaks() -> None:
    net = network()
    net.load_bps[SMALL.server("0.2"), BACKUP] = (0.0, 900e6)  # answers go another way
    net.run(1.0)
    net.send_udp(A, B, source_port=5000)
    net.run(0.01)
    answer = net.send_udp(B, A, source_port=5000)
    net.run(0.01)
    assert path_taken(answer) == "0.1 0.0 1.0 1.2 2.2 2.1"
    net.cut(SMALL.server("1.2"), SMALL.server("2.2"))
    net.run(0.01)
    again = net.send_udp(B, A, source_port=5000)
    net.run(FAST.search_timeout_s)  # in which the other end might have found another path for both
    # The loaded link works: the bypass, which does not, is given up.
    assert path_taken(again) == "0.1 0.2 2.0 2.1"
    assert net.routers[B].counters["path failures"] == 1


@pytest.mark.parametrize(
    ("source", "destination", "tar_finds"), [("2.0.3", "0.0.1", False), ("0.0.1", "2.0.3", True)]
)
def test_probes_and_answers_find_a_server_that_has_only_its_backup_link(
    source: str, destination: str, tar_finds: bool
) -> None:
    for kind, found in ((Tar, tar_finds), (TarFarSide, True)):
        net = MemoryNetwork(FICONN, partial(kind, timers=FAST, seed=0), ())
        net.stop_switch(0)
        trip = net.send_udp(FICONN.server(source), FICONN.server(destination))
        net.run(2.0)
        assert bool(trip.arrived_s) == found, trip.lost


def test_lost_and_doubled_probes_are_no_end() -> None:
    net = network(Loss(0.05, seed=1), Duplicate(0.05, seed=2))
    trips = [net.send_udp(A, B, source_port=port) for port in range(4000, 4060)]
    net.run(3.0)
    assert all(trip.arrived_s or trip.lost for trip in trips)
    silent = [t for t in trips if t.lost == "no answer to the probes of the flow's path"]
    assert len(silent) <= 3
    assert sum(bool(trip.arrived_s) for trip in trips) >= 35


@pytest.mark.parametrize(("first", "end"), [(0, 10), pytest.param(10, 200, marks=pytest.mark.long)])
def test_random_failures_end_every_packet(first: int, end: int) -> None:
    """In 200 runs each packet arrives or has a reason, and none goes round until its TTL ends."""
    for seed in range(first, end):
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
        net.run(GIVEN_UP_S)
        for trip in net.trips:
            assert trip.arrived_s or trip.lost, trip
            assert trip.lost != "TTL expired", trip
            assert len(trip.arrived_s) <= 1
            # Of a path that breaks; of the way back to the source; and of another path.
            assert len(trip.steps) <= 3 * (2 * 3 + 2), trip
        last = net.trips[-len(pairs) :]
        for trip in last:
            if route(SMALL, "tor", trip.source, trip.destination, net.failures).paths:
                assert trip.arrived_s, (seed, trip)
