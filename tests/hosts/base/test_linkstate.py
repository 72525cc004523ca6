"""Link states and their floods: what servers come to know, how soon, and at what cost."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import networkx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillarbox import topos
from pillarbox.hosts.base.actions import EVERYONE, Action, Drop, Send
from pillarbox.hosts.base.algorithms import algorithms, route
from pillarbox.hosts.base.direct import Direct
from pillarbox.hosts.base.failures import Failures
from pillarbox.hosts.base.flood import Flooding
from pillarbox.hosts.base.linkstate import SEQUENCES, LinkStates, ReceivedLinkState, next_steps
from pillarbox.hosts.base.path import Step
from pillarbox.hosts.base.spf import EVERYBODY, ShortestPath
from pillarbox.hosts.base.timers import FAST, Timers
from pillarbox.hosts.dcell.router import Dfr
from pillarbox.hosts.memory.frame_devices import FrameHop, FrameTap
from pillarbox.hosts.memory.memory_network import MemoryNetwork
from pillarbox.hosts.wire.dcn import DcnHeader, Protocol
from pillarbox.hosts.wire.frame import ETH_DCN, Frame
from pillarbox.hosts.wire.messages import Heartbeat, LinkState

# So that little virtual time makes a test.
BRISK = replace(
    FAST,
    heartbeat_s=0.05,
    neighbour_timeout_s=0.06,
    link_state_refresh_s=1.0,
    link_state_timeout_s=3.5,
)
SELDOM = replace(BRISK, link_state_refresh_s=1800.0, link_state_timeout_s=3600.0)
SETTLE_S = 2 * BRISK.neighbour_timeout_s


def states(**options: object) -> LinkStates:
    """What server 0.0 of a DCell_1 knows of its own DCell_0, at first."""
    dcell = topos.parse("dcell,4,1")
    return LinkStates(dcell, 0, range(4), timeout_s=10.0, now=0.0, **options)  # type: ignore[arg-type]


def to(*peers: int) -> list[Step]:
    """Links out of port 0."""
    return [Step(0, peer) for peer in peers]


def network(
    spec: str, router: type[Dfr | ShortestPath], *devices: FrameTap, timers: Timers = BRISK
) -> MemoryNetwork:
    return MemoryNetwork(
        topos.parse(spec), lambda net, server: router(net, server, timers=timers), devices
    )


def flooding(net: MemoryNetwork, server: int) -> Flooding:
    router = net.routers[server]
    assert isinstance(router, Dfr | ShortestPath)
    return router.flooding


def link_state(net: MemoryNetwork, origin: int, sequence: int, *links: tuple[int, int]) -> Frame:
    header = DcnHeader(net.topology.uid(origin), EVERYBODY, Protocol.LINK_STATE)
    return Frame(ETH_DCN, header.pack(LinkState(sequence, links).pack()))


# -- the table ---------------------------------------------------------------------------------


def test_everything_works_until_somebody_says_otherwise() -> None:
    known = states()
    assert known.works(0, Step(0, 1)) and known.works(1, Step(0, 2))
    assert known.works(3, Step(1, 16)), "the level-1 link, as 0.3 has said nothing against it"
    assert not known.works(3, Step(1, 15)), "there is no such cable"
    assert not known.works(16, Step(1, 3)), "4.0 is no member"


def test_link_works_if_both_its_ends_list_it() -> None:
    known = states()
    known.hear(1, 1, to(0, 2), 0.0)  # not 0.3
    assert not known.works(1, Step(0, 3))
    assert not known.works(3, Step(0, 1))
    assert known.works(3, Step(0, 2))
    known.hear(1, 2, to(0, 2, 3), 0.0)
    assert known.works(3, Step(0, 1))


def test_of_a_link_that_leaves_the_members_the_inner_end_decides() -> None:
    known = states()
    known.hear(3, 1, [*to(0, 1, 2), Step(1, 16)], 0.0)
    assert known.works(3, Step(1, 16))
    known.hear(3, 2, to(0, 1, 2), 0.0)
    assert not known.works(3, Step(1, 16))


def test_only_a_higher_sequence_number_is_news_and_only_of_members() -> None:
    known = states()
    assert known.hear(1, 5, to(0), 0.0) is ReceivedLinkState.NEWS
    assert known.hear(1, 5, to(0, 2), 0.0) is ReceivedLinkState.REPEATED
    assert known.hear(1, 4, to(0, 2), 0.0) is ReceivedLinkState.OUTDATED
    assert known.hear(7, 9, to(0), 0.0) is ReceivedLinkState.FOREIGN
    assert list(known) == [0, 1, 2, 3]
    assert known[1].links == set(to(0))


def test_links_that_the_topology_does_not_have_are_ignored() -> None:
    known = states()
    known.hear(1, 1, [*to(0), Step(0, 17), Step(200, 0), Step(1, 99)], 0.0)
    assert known[1].links == set(to(0))


def test_what_is_not_refreshed_ages_and_any_sequence_is_believed_again() -> None:
    known = states()
    known.hear(1, 7, to(0, 2, 3), 6.0)
    assert known.next_expiry == 10.0
    known.expire(9.9)
    assert known.works(0, Step(0, 2))
    known.expire(10.0)
    assert not known.works(0, Step(0, 2)), "2 never said anything"
    assert known.works(0, Step(0, 1)), "1 did, and a server does not forget itself"
    known.expire(16.0)
    assert not known.next_steps
    assert known.hear(1, 1, to(0), 17.0) is ReceivedLinkState.NEWS
    assert list(known.next_steps) == [1]


def test_generation_rises_with_every_change_of_a_link_and_only_then() -> None:
    told: list[int] = []
    known = states(on_change=lambda: told.append(1))
    first = known.next_steps
    known.hear(1, 1, [*to(0, 2, 3), Step(1, 8)], 0.0)  # as was assumed
    assert known.generation == 0 == len(told)
    assert known.next_steps is first
    known.hear(1, 2, to(2, 3), 0.0)
    assert known.generation == 1 == len(told)
    assert 1 in known.next_steps and known.next_steps[1] == Step(0, 2)


@given(st.integers(0, 2**32), st.integers(2, 12), st.floats(0.1, 0.8))
def test_next_steps_make_shortest_paths_hop_by_hop(seed: int, size: int, density: float) -> None:
    graph = networkx.gnp_random_graph(size, density, seed=seed)
    found = [
        next_steps(at, lambda server: [Step(0, peer) for peer in sorted(graph[server])])
        for at in graph
    ]
    for a in graph:
        lengths = networkx.single_source_shortest_path_length(graph, a)
        assert set(found[a]) == set(lengths) - {a}
        nearest_first = [lengths[server] for server in found[a]]
        assert nearest_first == sorted(nearest_first)
        for b, step in found[a].items():
            assert lengths[step.peer] == 1
            if step.peer != b:
                left = networkx.shortest_path_length(graph, step.peer, b)
                assert left == lengths[b] - 1


# -- floods ------------------------------------------------------------------------------------


def test_news_reaches_everybody_and_crosses_each_link_once() -> None:
    passed: Counter[object] = Counter()

    def look(hop: FrameHop, now: float) -> None:
        if hop.frame.data[1] == Protocol.LINK_STATE:
            header, body = DcnHeader.parse(hop.frame.data)
            passed[hop.server, hop.port, hop.peer, header.source, body] += 1

    net = network("dcell,2,2", ShortestPath, FrameTap(look))
    net.run(0.01)
    a, b = 3, net.topology.peers(3, 2)[0]
    net.cut(a, b)
    net.run(0.001)
    for server in range(net.topology.servers):
        known = flooding(net, server).states
        assert not known.works(a, Step(2, b)) and not known.works(b, Step(2, a))
        assert known.works(a, Step(0, net.topology.peers(a, 0)[0]))
    assert passed and set(passed.values()) == {1}
    net.heal(a, b)
    net.run(0.2)
    assert all(flooding(net, s).states.works(a, Step(2, b)) for s in range(net.topology.servers))


@pytest.mark.parametrize(("came_by", "peer", "goes_on"), [(0, 6, 1), (1, 8, 0)])
def test_news_is_not_sent_back(came_by: int, peer: int, goes_on: int) -> None:
    net = network("dcell,4,1", Dfr)
    (send,) = net.routers[5].receive(came_by, peer, link_state(net, 17, 1), 0.0)
    assert isinstance(send, Send) and (send.port, send.peer) == (goes_on, EVERYONE)
    assert DcnHeader.parse(send.frame.data)[0].ttl == 63


def test_flapping_link_cannot_flood_without_bound() -> None:
    """A cable that comes and goes a thousand times in a second, heard at once each time."""
    dcell = topos.parse("dcell,4,1")
    router = Dfr(dcell, 3, timers=BRISK)
    beat = DcnHeader(16, 16, Protocol.HEARTBEAT).pack(Heartbeat(1, (3,)).pack())
    sent: list[Action] = []
    for i in range(1000):
        now = i * 1e-3
        sent += router.carrier(1, False, now)
        sent += router.carrier(1, True, now)
        sent += router.receive(1, 16, Frame(ETH_DCN, beat), now)
        sent += router.poll(now)
    assert router.counters["link down"] >= 1000
    sent += router.poll(1.1)
    bodies = [
        DcnHeader.parse(action.frame.data)[1]
        for action in sent
        if isinstance(action, Send) and action.frame.data[1] == Protocol.LINK_STATE
    ]
    floods = list(dict.fromkeys(bodies))
    assert 10 < len(floods) <= 1.1 / BRISK.heartbeat_s + 1
    assert (1, 16) in LinkState.parse(floods[-1]).links, "the last word"


def test_refreshes_come_at_different_moments_and_within_the_interval() -> None:
    sent: dict[int, list[float]] = {}

    def look(hop: FrameHop, now: float) -> None:
        header, _ = DcnHeader.parse(hop.frame.data)
        if header.protocol == Protocol.LINK_STATE and header.source == hop.server:
            times = sent.setdefault(hop.server, [])
            if not times or now > times[-1]:
                times.append(now)

    net = network("dcell,4,1", Dfr, FrameTap(look))
    net.run(5.0)
    gaps = [b - a for times in sent.values() for a, b in pairwise(times)]
    assert len(sent) == 20 and len(gaps) >= 80
    assert 0.75 * BRISK.link_state_refresh_s <= min(gaps)
    assert max(gaps) <= BRISK.link_state_refresh_s + 1e-9
    assert len({round(gap, 3) for gap in gaps}) > 40
    assert not any(router.drops for router in net.routers)


@pytest.mark.parametrize("away_s", [0.0, 0.5, 5.0])
def test_server_that_starts_anew_is_believed_within_a_refresh(away_s: float) -> None:
    net = network("dcell,4,1", Dfr)
    net.run(4.5)
    before = flooding(net, 0).states[5].sequence
    assert before >= 4
    net.kill(5)
    net.run(away_s)
    net.revive(5)
    net.run(BRISK.link_state_refresh_s + BRISK.heartbeat_s)
    own = flooding(net, 5).states[5]
    assert own.sequence >= (1 if away_s > BRISK.link_state_timeout_s else before + 1)
    for server in range(20):
        assert flooding(net, server).states[5] == own._replace(
            heard_s=flooding(net, server).states[5].heard_s
        )
    # And its word counts: nobody but the server itself says that its cable is out.
    net.routers[5].neighbours.set_carrier(1, False, net.now)
    net.at(net.now, lambda: net.cut(5, net.topology.peers(5, 1)[0]))
    net.run(BRISK.link_state_refresh_s)
    assert all(Step(1, 8) not in flooding(net, s).states[5].links for s in range(20))


@pytest.mark.parametrize("router", [Dfr, ShortestPath])
def test_server_that_starts_anew_is_told_which_links_do_not_work(
    router: type[Dfr | ShortestPath],
) -> None:
    net = network("dcell,4,1", router, timers=SELDOM)
    net.cut(10, 14)
    net.run(SETTLE_S)
    net.kill(3)
    net.run(SETTLE_S)
    net.revive(3)
    assert not list(flooding(net, 3).states.down())
    net.run(SETTLE_S)
    assert [*flooding(net, 3).states.down()] == [(10, Step(1, 14)), (14, Step(1, 10))]


def test_who_was_cut_off_learns_what_others_lost_and_got_back_meanwhile() -> None:
    net = network("dcell,2,1", ShortestPath, timers=SELDOM)

    def is_known_to_work() -> set[bool]:
        return {flooding(net, server).states.works(3, Step(1, 5)) for server in (0, 1)}

    net.cut(1, 4)
    for change, before, after in ((net.cut, True, False), (net.heal, False, True)):
        net.cut(0, 2)
        net.run(SETTLE_S)
        change(3, 5)
        net.run(SETTLE_S)
        assert is_known_to_work() == {before}
        net.heal(0, 2)
        net.run(SETTLE_S)
        assert is_known_to_work() == {after}


def test_link_state_of_a_silent_server_ages() -> None:
    net = network("dcell,4,1", Dfr)
    net.run(2.0)
    net.kill(5)
    net.run(SETTLE_S)
    known = flooding(net, 0).states
    assert known[5].links and 5 not in known.next_steps, "its neighbours have told"
    net.run(BRISK.link_state_timeout_s + 1e-3)
    assert not known[5].links
    assert len(known[6].links) == 3, "others are refreshed, and miss only their link to it"


def test_two_parts_that_were_cut_off_find_together_again() -> None:
    net = network("dcell,4,0", Dfr)
    net.run(1.0)
    net.stop_switch(0)
    net.run(BRISK.link_state_timeout_s + 1.0)
    assert not any(flooding(net, s).states.next_steps for s in range(4))
    assert net.send_udp(0, 3).lost == "no path inside the DCell_0"
    net.start_switch(0)
    net.run(BRISK.link_state_refresh_s)
    trip = net.send_udp(0, 3)
    net.run(0.1)
    assert trip.arrived_s


@pytest.mark.parametrize("sequence", [1000, 2**31 - 1])
def test_forged_sequence_number_is_overcome(sequence: int) -> None:
    net = network("dcell,4,1", Dfr)
    net.run(1.5)
    net.routers[4].receive(0, 5, link_state(net, 5, sequence), net.now)  # none of its links works
    net.run(BRISK.link_state_refresh_s + BRISK.heartbeat_s)
    own = flooding(net, 5).states[5].sequence
    assert own is not None and (own - sequence) % SEQUENCES in (1, 2)
    assert all(len(flooding(net, s).states[5].links) == 4 for s in range(20))


def test_outdated_link_state_is_answered_with_the_newest() -> None:
    net = network("dcell,4,1", Dfr)
    net.run(2.5)
    router = net.routers[4]
    newest = flooding(net, 4).states[5]
    (answer,) = router.receive(0, 6, link_state(net, 5, 1), net.now)
    assert isinstance(answer, Send) and (answer.port, answer.peer) == (0, 6)
    header, body = DcnHeader.parse(answer.frame.data)
    said = LinkState.parse(body)
    assert header.source == 5 and said.sequence == newest.sequence
    assert {Step(*link) for link in said.links} == newest.links
    assert router.receive(0, 6, answer.frame, net.now) == [], "what is known is not answered"


def test_strangers_take_no_room() -> None:
    net = network("dcell,4,2", Dfr)
    router = net.routers[0]
    before = len(list(flooding(net, 0).states))
    assert before == 20
    for uid in (20, 419, 420, 2**31 - 1):
        header = DcnHeader(uid, EVERYBODY, Protocol.LINK_STATE)
        frame = Frame(ETH_DCN, header.pack(LinkState(1, ()).pack()))
        actions: list[Action] = router.receive(0, 1, frame, 0.0)
        assert [type(action) for action in actions] == [Drop]
    assert len(list(flooding(net, 0).states)) == before
    assert len(router.agenda) == 4, "heartbeats, neighbours, refresh, ageing"


# -- shortest paths over them ------------------------------------------------------------------

RELAYING = ["dpillar,4,2", "dpillar,4,3", "dcell,2,2", "bcube,4,1", "bcube,2,3", "ficonn,4,2"]


@pytest.mark.parametrize("spec", RELAYING)
def test_shortest_routers_take_the_shortest_path_around_failures(spec: str) -> None:
    for seed in range(4):
        drawn = random.Random(seed)
        net = network(spec, ShortestPath)
        topology = net.topology
        cables = [frozenset((cable.a, cable.b)) for cable in topology.links()]
        nodes = frozenset(drawn.sample(range(topology.nodes), 2 * seed))
        failures = Failures(nodes, frozenset(drawn.sample(cables, 2 * seed)))
        net.fail(failures)
        net.run(SETTLE_S)
        live = [server for server in range(topology.servers) if server not in nodes]
        pairs = [tuple(drawn.sample(live, 2)) for _ in range(25)]
        trips = [net.send_udp(a, b) for a, b in pairs]
        net.run(0.01)
        for (a, b), trip in zip(pairs, trips, strict=True):
            paths = route(topology, "shortest", a, b, failures).paths
            if paths:
                assert trip.arrived_s and len(trip.path) == len(paths[0]), (seed, a, b)
            else:
                assert trip.lost == "no path to the destination"


@pytest.mark.parametrize("spec", ["tree,4,3", "fattree,4", "dcell,5,0"])
def test_behind_one_port_packets_go_straight_to_the_peer(spec: str) -> None:
    topology = topos.parse(spec)
    router = algorithms(topology)["shortest"].router
    assert router is Direct
    frames: list[FrameHop] = []
    net = MemoryNetwork(topology, Direct, [FrameTap(lambda hop, _: frames.append(hop))])
    trip = net.send_udp(0, topology.servers - 1)
    net.run(5.0)
    assert trip.arrived_s and trip.path.servers == (0, topology.servers - 1)
    assert len(frames) == 1, "nothing is flooded"


# -- what is told to be down ---------------------------------------------------------------------


@pytest.mark.parametrize("router", [Dfr, ShortestPath])
def test_down_is_what_any_member_says_and_nothing_once_all_is_healed(
    router: type[Dfr | ShortestPath],
) -> None:
    net = network("dcell,2,1", router)
    net.run(SETTLE_S)
    assert not any(each.down() for each in net.routers)
    a, b = 0, net.topology.peers(0, 1)[0]
    net.cut(a, b)
    net.run(SETTLE_S)
    ends = {(a, Step(1, b)), (b, Step(1, a))}
    assert all(set(each.down()) == ends for each in net.routers)
    told = net.routers[3].state()["down"]
    assert {"server": "0.0", "port": 1, "peer": net.topology.address(b)} in told
    net.heal(a, b)
    net.run(2 * SETTLE_S)
    assert not any(each.down() for each in net.routers)
