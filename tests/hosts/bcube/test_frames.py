"""What frames say is not trusted by BSR, and its tables stay bounded whatever comes."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillarbox import topos
from pillarbox.hosts.base.actions import Action, Deliver, Drop, Send
from pillarbox.hosts.base.path import Step
from pillarbox.hosts.base.timers import FAST
from pillarbox.hosts.bcube.bsr import BSR, MOST_FLOWS
from pillarbox.hosts.bcube.forwarding import MOST_FAILED_LINKS, TELL_AGAIN_S
from pillarbox.hosts.bcube.paths import path_set
from pillarbox.hosts.bcube.source_routes import hops_of, reverse
from pillarbox.hosts.memory.frame_devices import Corrupt
from pillarbox.hosts.memory.memory_network import MemoryNetwork
from pillarbox.hosts.wire import bcube as wire
from pillarbox.hosts.wire.bcube import BCubeHeader
from pillarbox.hosts.wire.dcn import Protocol
from pillarbox.hosts.wire.frame import ETH_DCN, ETH_IP, Frame
from pillarbox.hosts.wire.ipv4 import flow_key
from pillarbox.hosts.wire.marks import udp_packet
from pillarbox.hosts.wire.messages import CableCut, PathFailure, Probe, ProbeResponse
from pillarbox.topos.base.digits import DigitNetwork
from pillarbox.topos.base.errors import PillarboxError
from pillarbox.topos.bcube import BCube
from pillarbox.topos.mesh import Mesh
from pillarbox.topos.rail import Rail


def sent_to(router: BSR, header: BCubeHeader, payload: bytes = b"x" * 20) -> list[Action]:
    return router.receive(0, 1, Frame(ETH_DCN, header.pack(payload)), 0.0)


@pytest.mark.parametrize(
    ("spec", "hop"),
    [
        ("bcube,4,1", wire.Hop(0, 0)),  # the server's own digit
        ("bcube,4,1", wire.Hop(1, 0)),
        ("bcube,4,1", wire.Hop(0, 4)),  # beyond n
        ("bcube,4,1", wire.Hop(0, 63)),
        ("bcube,4,1", wire.Hop(2, 1)),  # above k
        ("bcube,4,2,servers=32", wire.Hop(2, 2)),  # beyond the width of a partial BCube
    ],
)
def test_hop_that_does_not_exist_leads_nowhere(spec: str, hop: wire.Hop) -> None:
    router = BSR(topos.parse(spec), 0)
    header = BCubeHeader(1, 5, Protocol.IPV4, (wire.Hop(0, 0), hop), next_hop=1)
    [drop] = sent_to(router, header)
    assert isinstance(drop, Drop)
    assert drop.reason == "hop leads nowhere"
    assert router.drops == {"hop leads nowhere": 1}


def test_every_existing_hop_leads_to_its_neighbour() -> None:
    bcube = topos.parse("bcube,4,2,servers=32")
    router = BSR(bcube, 6)
    leads = {}
    for hop in wire.HOPS:
        header = BCubeHeader(1, 5, Protocol.IPV4, (wire.Hop(0, 0), hop), next_hop=1)
        [action] = sent_to(router, header)
        if isinstance(action, Send):
            leads[action.port, action.peer] = hop
    assert set(leads) == {
        (port, peer) for port in range(bcube.ports) for peer in bcube.peers(6, port)
    }


def ends_here(**changes: object) -> BCubeHeader:
    """The header of a probe's answer as it comes to server 0 of a BCube (4, 1) from server 5."""
    path = (wire.Hop(0, 0), wire.Hop(1, 0))
    return BCubeHeader(5, 0, Protocol.PROBE_RESPONSE, path, next_hop=2)._replace(**changes)


ENDS_ELSEWHERE = ends_here(path=(wire.Hop(0, 0),), next_hop=1)


@pytest.mark.parametrize(
    ("header", "payload", "reason"),
    [
        (ends_here(), ProbeResponse(7, 0, 1).pack(), "answer to no probe"),
        (ends_here(source=99), ProbeResponse(7, 0, 1).pack(), "no such path"),
        (ends_here(path=(), next_hop=0), ProbeResponse(7, 0, 1).pack(), "no such path"),
        (ENDS_ELSEWHERE, ProbeResponse(7, 0, 1).pack(), "no such path"),
        (ends_here(source=99, protocol=Protocol.PROBE), Probe(7, 0, 1).pack(), "no such path"),
        (ENDS_ELSEWHERE._replace(protocol=Protocol.PROBE), Probe(7, 0, 1).pack(), "no such path"),
        (ends_here(), b"short", "truncated"),
        (ends_here(destination=3), b"", "path ends at another server"),
        (ends_here(protocol=Protocol.LINK_STATE), b"", "unknown protocol"),
        (ends_here(protocol=Protocol.IPV4), b"\0" * 20, "bad version"),
        (
            ends_here(protocol=Protocol.PATH_FAILURE),
            PathFailure(0, 99, 3, None).pack(),
            "no such link",
        ),
        (
            ends_here(protocol=Protocol.PATH_FAILURE),
            PathFailure(1, 1, 3, None).pack(),  # neighbours, but at level 0
            "no such link",
        ),
        (
            ends_here(protocol=Protocol.PATH_FAILURE),
            PathFailure(200, 1, 3, None).pack(),
            "no such link",
        ),
        (
            ends_here(protocol=Protocol.PATH_FAILURE),
            PathFailure(0, 1, 1, None).pack(),
            "no such link",
        ),
        (
            ends_here(protocol=Protocol.CABLE_CUT),
            CableCut(0).pack(),  # server 5 is nobody's neighbour here
            "news of no neighbour's cable",
        ),
        (ends_here(source=99, protocol=Protocol.CABLE_CUT), CableCut(0).pack(), "no such path"),
    ],
)
def test_nonsense_is_dropped_with_a_reason(
    header: BCubeHeader, payload: bytes, reason: str
) -> None:
    router = BSR(topos.parse("bcube,4,1"), 0)
    [drop] = sent_to(router, header, payload)
    assert isinstance(drop, Drop)
    assert drop.reason == reason
    assert not router.failed_links


def test_a_probe_that_came_no_way_is_answered_to_nobody_when_its_link_fails() -> None:
    bcube = topos.parse("bcube,4,1")
    router = BSR(bcube, 0)
    hop = wire.Hop(0, 1)
    header = BCubeHeader(0, bcube.uid(1), Protocol.PROBE, (hop,), next_hop=0)  # from itself, forged
    [sent] = sent_to(router, header, Probe(7, 0, 1).pack())
    assert isinstance(sent, Send) and router.passing
    actions = router.link_changed(Step(sent.port, sent.peer), up=False, now=0.0)
    assert not [one for one in actions if isinstance(one, Send)]


def test_answer_to_a_flow_that_was_forgotten_is_not_taken_for_its_successor() -> None:
    bcube = topos.parse("bcube,4,1")
    router = BSR(bcube, 0)
    packet = udp_packet(bcube, 0, 5)
    router.send(packet, 0.0)
    router.flows.clear()
    router.agenda.cancel(("flow", flow_key(packet)))
    router.send(packet, 0.001)
    answer = ends_here()
    [drop] = sent_to(router, answer, ProbeResponse(1, 0, 10**9).pack())
    assert isinstance(drop, Drop)
    assert drop.reason == "answer to no probe"
    assert sent_to(router, answer, ProbeResponse(2, 0, 10**9).pack()) == []


def reported(router: BSR, port: int, server: int, peer: int) -> list[Action]:
    """What the router does when server 5 reports that link."""
    header = ends_here(protocol=Protocol.PATH_FAILURE)
    return sent_to(router, header, PathFailure(port, server, peer, None).pack())


def test_answer_outweighs_a_report() -> None:
    bcube = topos.parse("bcube,4,1")
    router = BSR(bcube, 0)
    router.send(udp_packet(bcube, 0, 5), 0.0)
    reported(router, 1, 1, 5)
    link = frozenset((1, 5))
    assert link in router.failures(0.0).links
    path = (wire.Hop(1, 0), wire.Hop(0, 0))  # 1.1, 0.1, 0.0
    sent_to(router, ends_here(path=path), ProbeResponse(1, 1, 10**9).pack())
    assert link not in router.failures(0.0).links


def test_own_link_that_comes_up_outweighs_a_report() -> None:
    bcube = topos.parse("bcube,4,1")
    router = BSR(bcube, 0)
    reported(router, 0, 1, 0)
    assert router.failures(0.0).links == {frozenset((0, 1))}
    for up in (False, True):
        router.link_changed(Step(0, 1), up, 0.0)
    assert router.failures(0.0).links == frozenset()


def test_packet_for_another_server_is_not_delivered() -> None:
    bcube = topos.parse("bcube,4,1")
    router = BSR(bcube, 0)
    header = ends_here(protocol=Protocol.IPV4)
    [drop] = sent_to(router, header, udp_packet(bcube, 5, 3))
    assert isinstance(drop, Drop)
    assert drop.reason == "packet is for another server"
    [deliver] = sent_to(router, header, udp_packet(bcube, 5, 0))
    assert isinstance(deliver, Deliver)
    [plain] = router.receive(0, 1, Frame(ETH_IP, udp_packet(bcube, 5, 0)), 0.0)
    assert isinstance(plain, Drop)


headers = st.builds(
    BCubeHeader,
    source=st.integers(0, 20),
    destination=st.integers(0, 20),
    protocol=st.sampled_from([*Protocol, 0, 255]),
    path=st.lists(st.sampled_from(wire.HOPS), max_size=8).map(tuple),
    next_hop=st.just(0),
    identification=st.just(0),
    ttl=st.just(64),
)
bodies = st.one_of(
    st.binary(max_size=60),
    st.builds(Probe, st.integers(0, 3), st.integers(0, 255), st.integers(0, 2**64 - 1)).map(
        Probe.pack
    ),
    st.builds(
        PathFailure, st.integers(0, 255), st.integers(0, 20), st.integers(0, 20), st.none()
    ).map(PathFailure.pack),
)


@given(st.lists(st.tuples(headers, st.integers(0, 8), bodies, st.integers(0, 1)), max_size=8))
def test_no_frame_raises(frames: list[tuple[BCubeHeader, int, bytes, int]]) -> None:
    bcube = topos.parse("bcube,4,1")
    router = BSR(bcube, 0)
    router.send(udp_packet(bcube, 0, 5), 0.0)  # so that there is a round to answer
    for header, taken, body, port in frames:
        packet = header._replace(next_hop=min(taken, len(header.path))).pack(body)
        for action in router.receive(port, 1, Frame(ETH_DCN, packet), 0.001):
            assert isinstance(action, Send | Drop)
            if isinstance(action, Send):
                assert action.peer in bcube.peers(0, action.port)
    router.state()


def test_corrupted_frames_are_dropped_and_flows_go_on() -> None:
    bcube = topos.parse("bcube,4,1")
    network = MemoryNetwork(bcube, BSR, [Corrupt(0.2, seed=3)])
    trips = network.stream(0, 13, 0.01, 3.0, source_port=4000)
    network.run(3.1)
    assert sum(bool(trip.arrived_s) for trip in trips) > 150
    drops = sum((router.drops for router in network.routers), Counter())
    assert drops["bad checksum"] > 20


# -- tables stay bounded -------------------------------------------------------------------------


def test_ten_thousand_flows_keep_the_tables_bounded() -> None:
    bcube = topos.parse("bcube,4,1")
    router = BSR(bcube, 0)
    timers = len(router.agenda)
    for i in range(10_000):
        packet = udp_packet(bcube, 0, 1 + i % 15, source_port=i)
        assert any(isinstance(action, Send) for action in router.send(packet, i * 1e-5))
    assert len(router.flows) == MOST_FLOWS
    assert len(router._rounds) <= MOST_FLOWS
    assert len(router.agenda) <= timers + MOST_FLOWS + 1
    router.poll(FAST.flow_idle_s + 1)
    router.poll(2 * FAST.flow_idle_s + 1)
    assert len(router.flows) == 0
    assert len(router.agenda) == timers


def test_reported_links_keep_the_database_bounded() -> None:
    bcube = topos.parse("bcube,8,2")
    router = BSR(bcube, 0, timers=FAST)
    pairs = [
        (port, server, peer)
        for server in range(1, bcube.servers)
        for port in range(bcube.ports)
        for peer in bcube.peers(server, port)
        if server < peer
    ]
    assert len(pairs) > 2 * MOST_FAILED_LINKS
    path = hops_of(bcube, reverse(bcube, path_set(bcube, 0, 1)[-1]))
    header = BCubeHeader(1, 0, Protocol.PATH_FAILURE, path, len(path))
    for pair in pairs:
        assert sent_to(router, header, PathFailure(*pair, None).pack()) == []
    assert len(router.failed_links) == MOST_FAILED_LINKS
    router.failures(FAST.failed_link_timeout_s)
    assert len(router.failed_links) == 0


def test_source_is_told_of_a_link_once_in_a_while_however_many_packets_meet_it() -> None:
    bcube = topos.parse("bcube,4,1")
    relay, onward = bcube.server("0.0"), Step(1, bcube.server("1.0"))
    router = BSR(bcube, relay)
    router.link_changed(onward, False, 0.0)

    def told(source: str, now: float) -> int:
        path = path_set(bcube, bcube.server(source), relay)[-1]
        hops = (*hops_of(bcube, path), wire.Hop(1, 1))
        header = BCubeHeader(bcube.server(source), onward.peer, Protocol.IPV4, hops, len(hops) - 1)
        frame = Frame(ETH_DCN, header.pack(b"x" * 20))
        *rest, back = router.receive(path.steps[-1].port, path.servers[-2], frame, now)
        assert isinstance(back, Send)
        returned, packet = BCubeHeader.parse(back.frame.data)
        assert (returned.protocol, packet) == (Protocol.RETURNED, b"x" * 20)
        return sum(isinstance(action, Send) for action in rest)

    assert [told("0.1", now) for now in (0.0, 0.001, 0.009)] == [1, 0, 0]
    assert told("0.2", 0.009) == 1
    assert told("0.1", TELL_AGAIN_S + 0.001) == 1


@pytest.mark.parametrize(
    "bcube", [BCube(2, 4), BCube(65, 0), Rail(65, 2), Rail(2, 2, 2, 2, 2), Mesh(65), Mesh(*[2] * 5)]
)
def test_larger_networks_than_the_header_can_name_are_refused(bcube: DigitNetwork) -> None:
    with pytest.raises(
        PillarboxError, match=r"at most 4 levels .* of at most 64 servers"
    ) as refused:
        BSR(bcube, 0)
    assert bcube.spec in str(refused.value)
    assert BSR(BCube(64, 0), 63).table
