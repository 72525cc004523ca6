"""DFR among live servers: the protocol, the forwarding table, destination unreachable."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from pillarbox import topos
from pillarbox.hosts.base.actions import Action, Drop, Send
from pillarbox.hosts.base.failures import parse_failures
from pillarbox.hosts.base.timers import FAST
from pillarbox.hosts.dcell import dfr
from pillarbox.hosts.dcell.router import DECIDED_ANEW, Dfr
from pillarbox.hosts.memory.frame_devices import FrameHop, FrameTap
from pillarbox.hosts.memory.memory_network import MemoryNetwork
from pillarbox.hosts.wire.dcn import DcnHeader, Protocol, broadcast
from pillarbox.hosts.wire.frame import ETH_DCN, Frame
from pillarbox.hosts.wire.messages import Unreachable, Unreached
from pillarbox.topos.dcell import DCell
from tests.hosts.dcell.failed import SMALL, alive, names, random_failures, walked

BRISK = replace(FAST, heartbeat_s=0.05, neighbour_timeout_s=0.06)
SETTLE_S = 2 * BRISK.neighbour_timeout_s


def network(spec: str, *devices: FrameTap, **options: int) -> MemoryNetwork:
    return MemoryNetwork(
        topos.parse(spec),
        lambda net, server: Dfr(net, server, timers=BRISK, **options),
        devices,
    )


def router(net: MemoryNetwork, server: int) -> Dfr:
    found = net.routers[server]
    assert isinstance(found, Dfr)
    return found


# -- the protocol ------------------------------------------------------------------------------


def test_example_of_the_testbed() -> None:
    """Section 7.3: unplugged, plugged in again, and then the server 0.3 dies."""
    net = network("dcell,4,1")
    cell = net.topology
    a, b = cell.server("0.0"), cell.server("4.3")
    direct, detour = "0.0 0.3 4.0 4.3", "0.0 1.0 1.3 4.1 4.3"

    def now() -> str:
        trip = net.send_udp(a, b)
        net.run(1e-3)
        return names(cell, trip.path) if trip.arrived_s else trip.lost

    net.run(0.2)
    assert now() == direct
    net.cut(cell.server("0.3"), cell.server("4.0"))
    first = net.send_udp(a, b)
    net.run(1e-3)
    assert first.arrived_s, "0.3 knows at once, and turns the packet round"
    assert now() == detour
    net.heal(cell.server("0.3"), cell.server("4.0"))
    net.run(2 * BRISK.heartbeat_s)
    assert now() == direct
    net.kill(cell.server("0.3"))
    at = net.now
    trips = net.stream(a, b, 1e-3, 0.3, source_port=4000)
    net.run(0.4)
    lost = [trip for trip in trips if not trip.arrived_s]
    assert lost and all(trip.sent_s < at + BRISK.neighbour_timeout_s + 1e-3 for trip in lost)
    assert now() == detour
    net.revive(cell.server("0.3"))
    net.run(2 * BRISK.heartbeat_s)
    assert now() == direct


@pytest.mark.parametrize("spec", SMALL)
def test_every_pair_arrives_along_the_computed_path(spec: str) -> None:
    net = network(spec)
    pairs = [(a, b) for a in range(net.topology.servers) for b in range(net.topology.servers)]
    trips = [net.send_udp(a, b) for a, b in pairs if a != b]
    net.run(0.02)
    for trip in trips:
        assert len(trip.arrived_s) == 1
        assert trip.path == dfr.path(net.topology, trip.source, trip.destination)


@pytest.mark.parametrize(
    ("spec", "seeds"),
    [
        ("dcell,4,1", range(10)),
        ("dcell,3,1", range(60, 80)),
        ("dcell,2,2", range(120, 130)),
        ("dcell,3,2,servers=41", range(170, 175)),
        pytest.param("dcell,4,1", range(10, 60), marks=pytest.mark.long),
        pytest.param("dcell,3,1", range(80, 120), marks=pytest.mark.long),
        pytest.param("dcell,2,2", range(130, 170), marks=pytest.mark.long),
        pytest.param("dcell,3,2,servers=41", range(175, 200), marks=pytest.mark.long),
        pytest.param("dcell,2,3,servers=150", range(200, 201), marks=pytest.mark.long),
    ],
)
def test_random_failures_give_the_computed_path_or_reason(spec: str, seeds: range) -> None:
    """What servers do once they have learned of all failures is what `around` says, hop by hop."""
    for seed in seeds:
        drawn = random.Random(seed)
        net = network(spec)
        failures = random_failures(net.topology, drawn)
        net.fail(failures)
        net.run(SETTLE_S)
        live = alive(net.topology, failures)
        pairs = {tuple(drawn.sample(live, 2)) for _ in range(20)}
        trips = [net.send_udp(a, b) for a, b in pairs]
        net.run(0.01)
        for trip in trips:
            path, why = walked(net.topology, failures, trip.source, trip.destination)
            assert len(trip.steps) <= dfr.TTL
            assert (trip.path, trip.lost, len(trip.arrived_s)) == (path, why, not why), seed


def test_packets_end_even_while_nobody_knows_yet() -> None:
    for seed in range(4):
        net = network("dcell,2,2")
        drawn = random.Random(seed)
        net.run(0.3)
        failures = random_failures(net.topology, drawn)
        net.fail(failures)
        live = alive(net.topology, failures)
        for _ in range(100):
            a, b = drawn.sample(live, 2)
            net.send_udp(a, b)
            net.run(2e-3)
        net.run(0.1)
        for trip in net.trips:
            assert len(trip.arrived_s) == 1 or trip.lost
            assert len(trip.steps) <= dfr.TTL


def test_wider_view_and_more_retries_are_options() -> None:
    net = network("dcell,2,2", b=2)
    assert router(net, 0).flooding.states.next_steps.keys() == set(range(1, 42))
    assert network("dcell,4,1", b=5).routers[0].b == 1  # type: ignore[attr-defined]
    # A DCell_2 0 with a cut to each of the next DCell_1s: one retry is none.
    dcell = DCell(4, 2)
    cut = parse_failures(dcell, ["cut 0.0.0-1.0.0"])
    found, why = dfr.walk(
        dcell, 0, 20, lambda server: dfr.Converged(dcell, 1, server, cut), retry=1
    )
    assert (len(found), why) == (0, "retry count used up")


# -- forwarding table --------------------------------------------------------------------------


def test_decisions_are_kept_until_a_link_changes_them() -> None:
    net = network("dcell,2,2")
    a, b = 1, 41
    net.send_udp(a, b)
    net.run(0.01)
    one = router(net, a)
    ((ground, choice),) = one.cache.items()
    generation = one.generation
    net.send_udp(a, b)
    net.cut(5, net.topology.peers(5, 1)[0])  # elsewhere in the DCell_1
    net.run(1e-3)
    one.keep_up()
    assert one.cache.items() == [(ground, choice)] and not one.gone
    assert isinstance(choice, dfr.ProxyHop)
    net.cut(a, choice.step.peer)
    net.run(1e-3)
    one.keep_up()
    assert ground in one.gone and ground not in one.cache
    assert one.generation == generation
    trip = net.send_udp(a, b)
    net.run(0.01)
    assert trip.arrived_s


def test_a_large_forwarding_table_is_forgotten_when_a_link_changes() -> None:
    one = Dfr(topos.parse("dcell,4,2"), 0, timers=BRISK)
    for proxy in (None, 30, 40):
        for destination in range(50, 400):
            header = DcnHeader(7, destination, Protocol.IPV4, proxy=proxy)
            one.receive(0, 1, Frame(ETH_DCN, header.pack(b"")), 0.0)
    assert len(one.cache) > DECIDED_ANEW
    generation = one.generation
    one.carrier(1, False, 0.0)
    one.keep_up()
    assert not len(one.cache) and one.generation == generation + 1


def test_tables_are_bounded() -> None:
    dcell = topos.parse("dcell,4,1")
    one = Dfr(dcell, 0, timers=BRISK)
    for i in range(20_000):
        header = DcnHeader(i % 7000, 30 + i, Protocol.IPV4, identification=i)
        one.receive(0, 1, Frame(ETH_DCN, header.pack(b"")), i * 1e-6)
        spread = DcnHeader(1, broadcast(1), Protocol.IPV4, identification=i)
        one.receive(0, 1, Frame(ETH_DCN, spread.pack(b"")), i * 1e-6)
    assert len(one.cache) == one.cache.limit
    assert len(one.notified) == one.notified.limit
    assert len(one.broadcasts.seen) == one.broadcasts.seen.limit


# -- destination unreachable -------------------------------------------------------------------


def test_source_is_told_and_holds_back_for_a_while() -> None:
    messages: list[Unreachable] = []

    def look(hop: FrameHop, now: float) -> None:
        header, body = DcnHeader.parse(hop.frame.data)
        if header.protocol == Protocol.UNREACHABLE and header.source == hop.server:
            messages.append(Unreachable.parse(body))

    net = network("dcell,2,2", FrameTap(look))
    a, dead = 0, net.topology.server("5.1.1")
    net.kill(dead)
    net.run(SETTLE_S)
    first = net.send_udp(a, dead)
    net.run(0.01)
    assert first.lost == "no path inside the DCell_1"
    assert net.topology.address(first.path.destination).startswith("5."), "dropped far away"
    assert messages == [Unreachable(net.topology.uid(dead), Unreached.NO_PATH)]
    assert router(net, a).state()["unreachable"] == ["5.1.1"]
    assert net.send_udp(a, dead).lost == "destination unreachable"
    other = net.send_udp(a, dead - 1)
    net.run(BRISK.unreachable_hold_s)
    assert other.arrived_s
    again = net.send_udp(a, dead)
    assert not again.lost, "tried again"
    net.run(0.01)
    assert len(messages) == 2


def test_change_of_a_link_ends_the_hold() -> None:
    net = network("dcell,2,2")
    a, dead = 0, net.topology.server("5.1.1")
    net.kill(dead)
    net.run(SETTLE_S)
    net.send_udp(a, dead)
    net.run(0.01)
    net.cut(5, net.topology.peers(5, 1)[0])  # in the source's DCell_1
    net.run(1e-3)
    trip = net.send_udp(a, dead)
    net.run(0.01)
    assert trip.lost == "no path inside the DCell_1"


def answered(one: Dfr, header: DcnHeader, now: float = 0.0) -> list[Action]:
    return one.receive(0, 1, Frame(ETH_DCN, header.pack(b"packet")), now)


@pytest.mark.parametrize(
    ("header", "reason", "code"),
    [
        (DcnHeader(5, 9, Protocol.IPV4, ttl=1), "TTL expired", Unreached.TTL_EXPIRED),
        (DcnHeader(5, 2**20, Protocol.IPV4), "destination is no server of this network",
         Unreached.NO_SERVER),
        (DcnHeader(5, 9, Protocol.IPV4, proxy=99), "proxy is no server of this network",
         Unreached.NO_PATH),
        (DcnHeader(5, 9, Protocol.IPV4, retry=0), "retry count used up",
         Unreached.RETRY_EXHAUSTED),
    ],
)  # fmt: skip
def test_every_reason_is_told(header: DcnHeader, reason: str, code: Unreached) -> None:
    one = Dfr(topos.parse("dcell,4,1"), 0, timers=BRISK)
    drop, send = answered(one, header)
    assert drop == Drop(reason, b"packet") and isinstance(send, Send)
    about, body = DcnHeader.parse(send.frame.data)
    assert about[:3] == (0, 5, Protocol.UNREACHABLE)
    assert Unreachable.parse(body) == Unreachable(header.destination, code)
    assert answered(one, header) == [drop], "once in a while"
    assert answered(one, header, BRISK.unreachable_hold_s)[:1] == [drop]


def test_messages_are_never_answered_and_strangers_never_believed() -> None:
    one = Dfr(topos.parse("dcell,4,1"), 0, timers=BRISK)
    for protocol in (Protocol.UNREACHABLE, Protocol.PROBE):
        assert answered(one, DcnHeader(5, 9, protocol, ttl=1)) == [Drop("TTL expired", b"packet")]
    from_nowhere = answered(one, DcnHeader(2**30, 9, Protocol.IPV4, ttl=1))
    assert [type(action) for action in from_nowhere] == [Drop, Drop]
    body = Unreachable(2**30, Unreached.NO_PATH).pack()
    one.receive(0, 1, Frame(ETH_DCN, DcnHeader(5, 0, Protocol.UNREACHABLE).pack(body)), 0.0)
    assert not len(one.unreachable)
