"""DFR: single decisions, whole paths, and the protocol among live servers."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache

import networkx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import topos
from hosts.base.actions import Action, Drop, Send
from hosts.base.algorithms import route
from hosts.base.failures import NONE, Failures, parse_failures
from hosts.base.path import Path
from hosts.base.timers import FAST
from hosts.dcell import dfr
from hosts.dcell.dfr import Heading, Lost, Way
from hosts.dcell.paths import path as plain_path
from hosts.dcell.router import Dfr
from hosts.memory.devices import Hop, Tap
from hosts.memory.network import MemoryNetwork
from hosts.wire.dcn import DcnHeader, Protocol, broadcast
from hosts.wire.frame import ETH_DCN, Frame
from hosts.wire.messages import Unreachable, Unreached
from topos.dcell import DCell

BRISK = replace(FAST, heart_beat_s=0.05, neighbour_timeout_s=0.06)
SETTLE_S = 2 * BRISK.neighbour_timeout_s
SMALL = ["dcell,4,1", "dcell,2,2", "dcell,3,2,servers=41"]


def network(spec: str, *devices: Tap, **options: int) -> MemoryNetwork:
    return MemoryNetwork(
        topos.parse(spec),
        lambda net, server: Dfr(net, server, timers=BRISK, **options),
        devices,
    )


def router(net: MemoryNetwork, server: int) -> Dfr:
    found = net.routers[server]
    assert isinstance(found, Dfr)
    return found


def names(dcell: DCell, path: Path) -> str:
    return " ".join(dcell.address(server) for server in path.servers)


def links(dcell: DCell, *texts: str) -> Failures:
    return parse_failures(dcell, [f"link:{text}" for text in texts])


def random_failures(dcell: DCell, drawn: random.Random) -> Failures:
    """Up to a quarter of all servers and switches, and of all cables."""
    cables = [frozenset((cable.a, cable.b)) for cable in dcell.links()]
    nodes = drawn.sample(range(dcell.nodes), drawn.randrange(dcell.nodes // 4))
    return Failures(
        frozenset(nodes), frozenset(drawn.sample(cables, drawn.randrange(len(cables) // 4)))
    )


def alive(dcell: DCell, failures: Failures) -> list[int]:
    return [server for server in range(dcell.servers) if server not in failures.nodes]


def walked(dcell: DCell, failures: Failures, a: int, b: int) -> tuple[Path, str]:
    view = cache(lambda server: dfr.Converged(dcell, min(1, dcell.k), server, failures))
    return dfr.walk(dcell, a, b, view)


def cabled(dcell: DCell, failures: Failures) -> networkx.Graph:
    graph = networkx.Graph()
    graph.add_nodes_from(set(range(dcell.nodes)) - failures.nodes)
    for cable in dcell.links():
        ends = frozenset((cable.a, cable.b))
        if not ends & failures.nodes and ends not in failures.links:
            graph.add_edge(*ends)
    return graph


# -- one decision ------------------------------------------------------------------------------


def decided(
    dcell: DCell,
    at: str,
    destination: str,
    failures: Failures,
    proxy: str | None = None,
    came_by: int | None = None,
) -> tuple[str, str | None, bool]:
    """What `choose` says at a server: next server, proxy, and whether it rerouted."""
    server = dcell.server(at)
    heading = Heading(
        dcell.server(destination), None if proxy is None else dcell.server(proxy), came_by
    )
    choice = dfr.choose(dcell, 1, server, heading, dfr.Converged(dcell, 1, server, failures))
    assert isinstance(choice, Way), choice
    assert choice.step.peer in dcell.peers(server, choice.step.port)
    to = None if choice.proxy is None else dcell.address(choice.proxy)
    return dcell.address(choice.step.peer), to, choice.rerouted


@pytest.fixture
def dcell() -> DCell:
    return DCell(4, 3)


def test_the_next_outgoing_link_is_taken_where_it_works(dcell: DCell) -> None:
    # From DCell_1 [0,0] to [0,1]: the level-2 cable 0.0.0.0 - 0.1.0.0.
    assert decided(dcell, "0.0.0.0", "0.1.3.3", NONE) == ("0.1.0.0", None, False)
    assert decided(dcell, "0.0.0.1", "0.1.3.3", NONE) == ("0.0.0.0", None, False)


def test_local_reroute_takes_the_nearest_link_of_the_same_level(dcell: DCell) -> None:
    cut = links(dcell, "0.0.0.0-0.1.0.0")
    assert decided(dcell, "0.0.0.1", "0.1.3.3", cut) == ("0.2.0.0", "0.2.0.0", True)
    # The end of the cut cable itself: of its neighbours, one hop away all, the lowest uid is first.
    assert decided(dcell, "0.0.0.0", "0.1.3.3", cut)[1:] == ("0.2.0.0", True)
    dead = parse_failures(dcell, ["server:0.0.0.0"])
    assert decided(dcell, "0.0.0.1", "0.1.3.3", dead) == ("0.2.0.0", "0.2.0.0", True)


def test_servers_on_the_way_to_a_proxy_follow_it(dcell: DCell) -> None:
    cut = links(dcell, "0.0.0.0-0.1.0.0", "0.0.0.1-0.2.0.0")
    assert decided(dcell, "0.0.0.1", "0.1.3.3", cut, proxy="0.5.0.0")[1:] == ("0.5.0.0", False)


def test_proxy_goes_on_to_the_destination(dcell: DCell) -> None:
    cut = links(dcell, "0.0.0.0-0.1.0.0")
    there = decided(dcell, "0.2.0.0", "0.1.3.3", cut, proxy="0.2.0.0", came_by=2)
    assert there == ("0.2.0.1", None, False), "to the cable 0.2.0.1 - 0.1.0.1"


def test_proxy_whose_way_on_has_failed_too_jumps_up(dcell: DCell) -> None:
    # All of DCell_1 [0,1], through which the way to DCell_2 1 goes, is gone: from 0.2.0.0 the
    # packet leaves DCell_2 0 altogether.
    inner = dfr.first_link(dcell, 2, dcell.server("0.0.0.0"), dcell.server("21.0.0.0"))
    assert inner is not None and dcell.address(inner[0]) == "0.1.0.0"
    rack = parse_failures(dcell, [f"server:0.1.{i}.{j}" for i in range(5) for j in range(4)])
    first = decided(dcell, "0.0.0.0", "21.0.0.0", rack)
    assert first[2] and first[1] is not None and first[1].startswith("0."), "level 2"
    second = decided(dcell, "0.2.0.0", "21.0.0.0", rack, proxy="0.2.0.0", came_by=2)
    assert second[2] and second[1] is not None and not second[1].startswith("0."), "level 3"
    path, why = walked(dcell, rack, dcell.server("0.0.0.0"), dcell.server("21.0.0.0"))
    assert not why and not set(path.servers) & rack.nodes


def test_departs_no_jump_up_when_the_destination_is_in_the_own_dcell(dcell: DCell) -> None:
    # The proxy's way on to 0.1.3.3 has failed; a level-3 link would only lead out of DCell_2 0.
    cut = links(dcell, "0.0.0.0-0.1.0.0", "0.2.0.1-0.1.0.1")
    _, proxy, rerouted = decided(dcell, "0.2.0.0", "0.1.3.3", cut, proxy="0.2.0.0", came_by=2)
    assert rerouted and proxy is not None and proxy.startswith("0.")
    path, why = walked(dcell, cut, dcell.server("0.0.0.1"), dcell.server("0.1.3.3"))
    assert not why and all(step.port < 3 for step in path.steps)


def test_departs_never_back_over_the_link_by_which_it_came_to_its_proxy(dcell: DCell) -> None:
    # 1.0.0.0's cable of level 3 is the only one between DCell_2 0 and 1. Who came over it as to a
    # proxy, and has its destination in DCell_2 0, takes another way into it.
    near, far = dcell.server("0.0.0.0"), dcell.server("1.0.0.0")
    assert dcell.peers(near, 3) == [far]
    back = decided(dcell, "1.0.0.0", "0.1.3.3", NONE, proxy="1.0.0.0", came_by=3)
    assert back[1:] != ("0.0.0.0", True) and back[2]
    assert back[1] is not None and back[1].split(".")[0] not in "01"
    assert decided(dcell, "1.0.0.0", "0.1.3.3", NONE) == ("0.0.0.0", None, False)


def test_lower_levels_come_last() -> None:
    # The last DCell_2 has one DCell_1: most others have a DCell_1 without any link of level 3.
    dcell = DCell(2, 3, servers=1560)
    a, b = dcell.server("6.6.0.0"), dcell.server("37.0.0.0")
    assert not any(dcell.peers(server, 3) for server in dfr.members(dcell, 1, a))
    assert decided(dcell, "6.6.0.0", "37.0.0.0", NONE)[2]
    path, why = walked(dcell, NONE, a, b)
    assert not why and path.destination == b


def test_no_way_at_all_is_an_answer() -> None:
    dcell = DCell(4, 2)
    lonely = Failures(
        links=frozenset(
            frozenset((server, peer)) for server in range(20) for peer in dcell.peers(server, 2)
        )
    )
    heading = Heading(dcell.server("5.0.0"))
    view = dfr.Converged(dcell, 1, 0, lonely)
    assert dfr.choose(dcell, 1, 0, heading, view) == Lost("no proxy is left")
    dead = dfr.Converged(dcell, 1, 0, Failures(frozenset([7])))
    assert dfr.choose(dcell, 1, 0, Heading(7), dead) == Lost("no way inside the DCell_1")


@given(st.data())
@pytest.mark.parametrize("spec", ["dcell,2,3", "dcell,3,2", "dcell,4,3,servers=5000"])
def test_all_servers_of_a_dcell_agree_on_the_next_outgoing_link(
    spec: str, data: st.DataObject
) -> None:
    dcell = topos.parse(spec)
    a, destination = (data.draw(st.integers(0, dcell.servers - 1)) for _ in range(2))
    for b in range(dcell.k + 1):
        link = dfr.first_link(dcell, b, a, destination)
        for other in dfr.members(dcell, min(b, 1), a):
            assert dfr.first_link(dcell, b, other, destination) == link
        path = plain_path(dcell, a, destination)
        above = [
            (server, step)
            for server, step in zip(path.servers, path.steps, strict=False)
            if step.port > b
        ]
        assert link == (above[0] if above else None)


# -- whole paths -------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", [*SMALL, "dcell,5,0"])
def test_every_pair_without_failures_keeps_the_bound(spec: str) -> None:
    dcell = topos.parse(spec)
    view = cache(lambda server: dfr.Converged(dcell, min(1, dcell.k), server))
    for a in range(dcell.servers):
        for b in range(dcell.servers):
            path, why = dfr.walk(dcell, a, b, view)
            assert not why and path.destination == b
            assert len(set(path.servers)) == len(path.servers)
            assert len(path) <= 2 ** (dcell.k + 1) - 1
            path.nodes(dcell)  # raises where a hop follows no cable


def test_partial_dcells_grown_by_whole_dcell_1s_are_routed_without_failures() -> None:
    lost = pairs = 0
    drawn = random.Random(1)
    for whole in range(1, 301, 29):
        dcell = DCell(2, 3, servers=6 * whole)
        view = cache(lambda server, net=dcell: dfr.Converged(net, 1, server))
        for _ in range(25):
            a, b = (drawn.randrange(dcell.servers) for _ in range(2))
            path, why = dfr.walk(dcell, a, b, view)
            path.nodes(dcell)
            lost, pairs = lost + bool(why), pairs + 1
    assert lost <= 0.01 * pairs


def test_of_equally_near_proxies_the_lowest_is_taken() -> None:
    # By the upper port first, packets went round the racks 5.3 and 5.4 until their retries ended.
    dcell = DCell(2, 3, servers=300)
    rack = [f"server:5.1.{a}.{b}" for a in range(3) for b in range(2)]
    ends = dcell.server("5.3.0.1"), dcell.server("7.0.1.1")
    (path,) = route(dcell, "dfr", *ends, parse_failures(dcell, rack)).paths
    assert names(dcell, path) == (
        "5.3.0.1 5.3.0.0 5.0.1.0 2.0.2.0 2.0.0.1 2.0.0.0 2.1.0.0 7.0.1.0 7.0.1.1"
    )


@pytest.mark.parametrize(("ratio", "least"), [(0.02, 0.999), (0.1, 0.99), (0.2, 0.93)])
def test_success_is_close_to_what_is_reachable(ratio: float, least: float) -> None:
    """Fig. 7, on 420 servers: of what any routing could deliver, DFR delivers nearly all."""
    dcell = DCell(4, 2)
    reachable = delivered = 0
    for seed in range(3):
        drawn = random.Random(seed)
        dead = frozenset(drawn.sample(range(dcell.servers), int(ratio * dcell.servers)))
        failures = Failures(dead)
        graph = cabled(dcell, failures)
        view = cache(lambda server, failed=failures: dfr.Converged(dcell, 1, server, failed))
        live = alive(dcell, failures)
        for a in drawn.sample(live, 3):
            within = networkx.node_connected_component(graph, a)
            for b in live:
                path, why = dfr.walk(dcell, a, b, view)
                assert bool(why) == (path.destination != b)
                assert b in within or why
                reachable += b in within
                delivered += not why
    assert delivered >= least * reachable, f"{delivered} of {reachable}"


def test_dropped_says_where_and_why() -> None:
    dcell = DCell(4, 1)
    cut = parse_failures(dcell, ["switch:s4", "link:4.3-3.3"])
    routed = route(dcell, "dfr", 0, dcell.server("4.3"), cut)
    assert routed.dropped == "dropped at 0.0: no way inside the DCell_1"


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
    net.run(2 * BRISK.heart_beat_s)
    assert now() == direct
    net.kill(cell.server("0.3"))
    at = net.now
    trips = net.stream(a, b, 1e-3, 0.3, source_port=4000)
    net.run(0.4)
    lost = [trip for trip in trips if not trip.arrived_s]
    assert lost and all(trip.sent_s < at + BRISK.neighbour_timeout_s + 1e-3 for trip in lost)
    assert now() == detour
    net.revive(cell.server("0.3"))
    net.run(2 * BRISK.heart_beat_s)
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
    cut = links(dcell, "0.0.0-1.0.0")
    found, why = dfr.walk(
        dcell, 0, 20, lambda server: dfr.Converged(dcell, 1, server, cut), retry=1
    )
    assert (len(found), why) == (0, "retry count used up")


# -- forwarding table --------------------------------------------------------------------------


def test_decisions_are_kept_until_a_link_changes() -> None:
    net = network("dcell,2,2")
    a, b = 1, 41
    net.send_udp(a, b)
    net.run(0.01)
    kept = list(router(net, a).cache.values())
    assert len(kept) == 1
    generation = router(net, a).generation
    net.send_udp(a, b)
    assert list(router(net, a).cache.values()) == kept
    net.cut(5, net.topology.peers(5, 1)[0])  # elsewhere in the DCell_1
    net.run(1e-3)
    assert not len(router(net, a).cache) and router(net, a).generation > generation
    trip = net.send_udp(a, b)
    net.run(0.01)
    assert trip.arrived_s


def test_tables_are_bounded() -> None:
    dcell = topos.parse("dcell,4,1")
    one = Dfr(dcell, 0, timers=BRISK)
    for i in range(20_000):
        header = DcnHeader(i % 7000, 30 + i, Protocol.IPV4, identification=i)
        one.receive(0, 1, Frame(ETH_DCN, header.pack(b"")), i * 1e-6)
        spread = DcnHeader(1, broadcast(1), Protocol.IPV4, identification=i)
        one.receive(0, 1, Frame(ETH_DCN, spread.pack(b"")), i * 1e-6)
    assert len(one.cache) == one.cache.limit
    assert len(one.told) == one.told.limit
    assert len(one.broadcasts.seen) == one.broadcasts.seen.limit


# -- destination unreachable -------------------------------------------------------------------


def test_source_is_told_and_holds_back_for_a_while() -> None:
    messages: list[Unreachable] = []

    def look(hop: Hop, now: float) -> None:
        header, body = DcnHeader.parse(hop.frame.data)
        if header.protocol == Protocol.UNREACHABLE and header.source == hop.server:
            messages.append(Unreachable.parse(body))

    net = network("dcell,2,2", Tap(look))
    a, dead = 0, net.topology.server("5.1.1")
    net.kill(dead)
    net.run(SETTLE_S)
    first = net.send_udp(a, dead)
    net.run(0.01)
    assert first.lost == "no way inside the DCell_1"
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
    assert trip.lost == "no way inside the DCell_1"


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
