"""What a server, or a program on one, can do by control messages in another's name.

Each test is a row of the table in docs/forged.md: what is said to happen, and when it is over.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path as File

import pytest

from pillarbox import topos
from pillarbox.hosts.base.actions import Action, Drop, Send
from pillarbox.hosts.base.algorithms import algorithms
from pillarbox.hosts.base.path import Path, Step
from pillarbox.hosts.base.pinned_paths import pinned_path
from pillarbox.hosts.base.ports import arrival_port
from pillarbox.hosts.base.probing import PathState
from pillarbox.hosts.base.router import Router
from pillarbox.hosts.base.timers import FAST
from pillarbox.hosts.bcube.paths import path_set
from pillarbox.hosts.memory.memory_network import MemoryNetwork
from pillarbox.hosts.wire.bcube import BCubeHeader
from pillarbox.hosts.wire.dcn import DcnHeader, Protocol
from pillarbox.hosts.wire.ficonn import PathProbe
from pillarbox.hosts.wire.frame import ETH_DCN, ETH_IP, Frame
from pillarbox.hosts.wire.ipv4 import FlowKey, Ipv4Header, flow_key
from pillarbox.hosts.wire.marks import serial_of, udp_packet
from pillarbox.hosts.wire.messages import (
    CableCut,
    Heartbeat,
    LinkState,
    PathFailure,
    ProbeResponse,
    Unreachable,
    Unreached,
)
from pillarbox.hosts.wire.source_route import VERSION as SOURCE_ROUTE_VERSION
from pillarbox.hosts.wire.source_route import SourceRouteHeader
from pillarbox.topos.base.topology import Topology

EVERY_S = FAST.heartbeat_s
# Link states that are told soon again, to spare virtual time.
TIMERS = replace(FAST, link_state_refresh_s=1.0, link_state_timeout_s=3.5)


def network(spec: str, routing: str) -> MemoryNetwork:
    topology = topos.parse(spec)
    make = algorithms(topology)[routing].router
    assert make is not None

    def router(net: Topology, server: int) -> Router:
        return make(net, server, timers=TIMERS)

    found = MemoryNetwork(topology, router)
    found.run(0.3)
    return found


def forged(net: MemoryNetwork, source: int, protocol: Protocol, body: bytes, to: int) -> Frame:
    """Return a message of one hop in a server's name."""
    uid = net.topology.uid
    return Frame(ETH_DCN, DcnHeader(uid(source), uid(to), protocol, 1).pack(body))


def reasons(actions: list[Action]) -> list[str]:
    return [one.reason for one in actions if isinstance(one, Drop)]


PAGE = (File(__file__).parents[2] / "docs" / "forged.md").read_text()


def test_every_message_and_every_test_has_its_row() -> None:
    table = PAGE.partition("| message ")[2].partition("\n\n")[0].splitlines()[2:]
    rows = [line.split("|")[1:-1] for line in table]
    named = {row[-1].strip(" `") for row in rows}
    others = {test_every_message_and_every_test_has_its_row, test_who_names_nobody_changes_nothing}
    tests = {name for name in globals() if name.startswith("test_")}
    assert named == tests - {one.__name__ for one in others}
    messages = {kind.name.lower().replace("_", " ") for kind in Protocol} - {"ipv4", "probe"}
    assert {row[0].strip().replace("-", " ") for row in rows} == messages


ALL = [("dcell,4,1", "dfr"), ("bcube,4,1", "bsr"), ("ficonn,4,1", "tar"), ("dpillar,4,2", "mp")]


def behind(net: MemoryNetwork, server: int) -> Step:
    """Return the first hop of a server to a neighbour."""
    return min(net.routers[server].neighbours.up)


@pytest.mark.parametrize(("spec", "routing"), ALL)
def test_heartbeat_that_does_not_hear(spec: str, routing: str) -> None:
    net = network(spec, routing)
    victim, step = net.routers[0], behind(net, 0)
    beat = Heartbeat(step.port, ()).pack()
    victim.receive(
        step.port, step.peer, forged(net, step.peer, Protocol.HEARTBEAT, beat, 0), net.now
    )
    assert not victim.neighbours.works(step)
    net.run(2 * EVERY_S)
    assert victim.neighbours.works(step)


@pytest.mark.parametrize(("spec", "routing"), ALL)
def test_heartbeat_of_a_dead_server(spec: str, routing: str) -> None:
    net = network(spec, routing)
    victim, step = net.routers[0], behind(net, 0)
    net.kill(step.peer)
    beat = Heartbeat(step.port, (net.topology.uid(0),)).pack()
    frame = forged(net, step.peer, Protocol.HEARTBEAT, beat, 0)
    for _ in range(10):
        victim.receive(step.port, step.peer, frame, net.now)
        net.run(EVERY_S)
    assert victim.neighbours.works(step), "it lives as long as the forger goes on"
    net.run(FAST.neighbour_timeout_s)
    assert not victim.neighbours.works(step)


@pytest.mark.parametrize("routing", ["dfr", "shortest"])
def test_link_state(routing: str) -> None:
    net = network("dcell,4,1", routing)
    states = net.routers[0].flooding.states  # type: ignore[attr-defined]
    assert states[7].links
    body = LinkState(10, ()).pack()
    frame = forged(net, 7, Protocol.LINK_STATE, body, 0)
    net._execute_actions(0, net.routers[0].receive(0, 1, frame, net.now))
    assert not states[7].links
    net.run(2 * EVERY_S)
    assert states[7].links == net.routers[7].neighbours.up, "its own server has answered"


def bcube_flow(net: MemoryNetwork) -> tuple[FlowKey, Path]:
    """Send a packet from 0.0 to 1.3; return its flow, and the path after a round of probes."""
    a, b = net.topology.server("0.0"), net.topology.server("1.3")
    net.send_udp(a, b)
    net.run(0.05)
    ((key, flow),) = net.routers[a].flows.items()  # type: ignore[attr-defined]
    return key, flow.selection.path


def by_bcube(net: MemoryNetwork, path: Path, protocol: Protocol, body: bytes) -> Frame:
    """Return a message that has come to the end of a path."""
    (send,) = net.routers[path.source].send_along(path, protocol, body)  # type: ignore[attr-defined]
    header, rest = BCubeHeader.parse(send.frame.data)
    return Frame(ETH_DCN, header._replace(next_hop=len(header.path)).pack(rest))


def test_path_failure_in_bcube() -> None:
    net = network("bcube,4,1", "bsr")
    key, path = bcube_flow(net)
    source, relay, destination = path.servers
    uid = net.topology.uid
    body = PathFailure(path.steps[1].port, uid(relay), uid(destination), None).pack()
    back = Path(relay, (Step(path.steps[0].port, source),))
    frame = by_bcube(net, back, Protocol.PATH_FAILURE, body)
    router = net.routers[source]
    router.receive(path.steps[0].port, relay, frame, net.now)
    router.poll(net.now)
    assert router.flows.get(key).selection.path != path  # type: ignore[attr-defined]
    lost = frozenset((relay, destination))
    assert lost in router.failures(net.now).links  # type: ignore[attr-defined]
    net.run(FAST.failed_link_timeout_s)
    assert lost not in router.failures(net.now).links  # type: ignore[attr-defined]


def test_path_failure_of_a_pinned_path() -> None:
    net = network("bcube,4,1", "bsr")
    source, destination = net.topology.server("0.0"), net.topology.server("1.3")
    router = net.routers[source]
    router.use_port_addresses()
    path = pinned_path(net.topology, source, 1, destination, None)
    assert path is not None
    relay, step = path.servers[1], path.steps[1]
    uid = net.topology.uid
    body = PathFailure(step.port, uid(relay), uid(step.peer), None).pack()
    header = SourceRouteHeader(uid(relay), uid(source), Protocol.PATH_FAILURE, (0,), 1)
    frame = Frame(ETH_DCN, header.pack(body))
    packet = udp_packet(net.topology, source, destination, ports=(1, None))

    def is_pinned() -> bool:
        sent = [one for one in router.send(packet, net.now) if isinstance(one, Send)]
        return sent[0].frame.data[0] >> 4 == SOURCE_ROUTE_VERSION

    assert is_pinned()
    assert router.receive(path.steps[0].port, relay, frame, net.now) == []
    assert not is_pinned()
    net.run(FAST.failed_link_timeout_s + 0.01)
    assert is_pinned()


def test_probe_response_in_bcube() -> None:
    net = network("bcube,4,1", "bsr")
    a, b = net.topology.server("0.0"), net.topology.server("1.3")
    net.send_udp(a, b)
    router = net.routers[a]
    ((_, flow),) = router.flows.items()  # type: ignore[attr-defined]
    first, other = (one.path for one in flow.selection.candidates)
    back = Path(other.servers[1], (Step(other.steps[0].port, a),))
    short = by_bcube(net, back, Protocol.PROBE_RESPONSE, ProbeResponse(flow.round, 1, 0).pack())
    told = router.receive(other.steps[0].port, other.servers[1], short, net.now)
    assert reasons(told) == ["answer to no probe"], "it has to come along the path that was probed"
    for path, index, bps in ((first, 0, 0), (other, 1, 2**40)):
        servers = path.servers
        steps = [
            Step(step.port, to) for step, to in zip(path.steps[::-1], servers[-2::-1], strict=True)
        ]
        body = ProbeResponse(flow.round, index, bps).pack()
        frame = by_bcube(net, Path(b, tuple(steps)), Protocol.PROBE_RESPONSE, body)
        router.receive(path.steps[0].port, servers[1], frame, net.now)
    assert flow.selection.path == other, "who saw the probe says what is free"
    net.run(0.1)
    net.stream(a, b, 0.5, 13.0, source_port=4000)
    net.run(13.5)
    assert flow.round > 1, "the next round asks again"


def test_path_failure_in_ficonn() -> None:
    net = network("ficonn,4,1", "tar")
    a, b = 0, net.topology.servers - 1
    trip = net.send_udp(a, b)
    net.run(0.1)
    uid, first = net.topology.uid, trip.steps[0][1]
    router = net.routers[a]
    ((flow, own),) = router.flows.items()  # type: ignore[attr-defined]
    before = own.round
    body = PathFailure(first.port, uid(first.peer), uid(first.peer), flow).pack()
    frame = forged(net, first.peer, Protocol.PATH_FAILURE, body, a)
    net._execute_actions(a, router.receive(first.port, first.peer, frame, net.now))
    assert own.round == before + 1, "the flow looks for its path anew"
    assert not own.ready
    net.run(0.1)
    assert own.ready
    again = net.send_udp(a, b)
    net.run(0.1)
    assert again.arrived_s


def test_returned_packet_in_ficonn() -> None:
    net = network("ficonn,4,1", "tar")
    a, b = 0, net.topology.servers - 1
    trip = net.send_udp(a, b)
    net.run(0.1)
    router, (port, peer, *_) = net.routers[a], trip.steps[0][1]

    def returned(packet: bytes) -> list[Action]:
        frame = forged(net, peer, Protocol.RETURNED, packet, a)
        return router.receive(port, peer, frame, net.now)

    (sent,) = returned(udp_packet(net.topology, a, b, serial=77))
    assert isinstance(sent, Send)
    assert serial_of(sent.frame.data) == 77, "the forger's packet, in this server's name"
    assert b in router.tor_failed  # type: ignore[attr-defined]
    for strange in (
        udp_packet(net.topology, b, a),
        udp_packet(net.topology, a, b, source_port=4001),
    ):
        assert reasons(returned(strange)) == ["returned packet of no flow"]
    net.run(TIMERS.failed_link_timeout_s)
    by_tor = net.send_udp(a, b, source_port=4002)
    net.run(0.1)
    assert by_tor.steps[0][0] == a and by_tor.arrived_s


def test_path_probe_in_ficonn() -> None:
    net = network("ficonn,4,1", "tar")
    victim, step = net.routers[0], Step(0, 1)
    uid, ipv4 = net.topology.uid, net.topology.ipv4
    probe = PathProbe(FlowKey(ipv4(2), ipv4(11), 17, 1, 2), 7, False, uid(2), (0,), 0, False)
    data = DcnHeader(uid(2), uid(11), Protocol.PATH_PROBE, 1, ttl=9).pack(probe.pack())
    told = victim.receive(step.port, step.peer, Frame(ETH_DCN, data), net.now)
    assert reasons(told) == ["bad probe"], "the hop before is the neighbour that it came from"
    assert not len(victim.flow_table)  # type: ignore[attr-defined]
    for port in range(5000):
        key = FlowKey(ipv4(1), ipv4(11), 17, port, 2)
        body = PathProbe(key, 7, False, uid(1), (0,), 0, False).pack()
        data = DcnHeader(uid(1), uid(11), Protocol.PATH_PROBE, 1, ttl=9).pack(body)
        victim.receive(step.port, step.peer, Frame(ETH_DCN, data), net.now)
    assert len(victim.flow_table) <= 4096  # type: ignore[attr-defined]
    net.run(FAST.flow_idle_s * 1.5)
    assert not len(victim.flow_table)  # type: ignore[attr-defined]


def test_unreachable_in_dcell() -> None:
    net = network("dcell,4,1", "dfr")
    body = Unreachable(net.topology.uid(19), Unreached.NO_PATH).pack()
    victim, step = net.routers[0], behind(net, 0)
    frame = forged(net, step.peer, Protocol.UNREACHABLE, body, 0)
    victim.receive(step.port, step.peer, frame, net.now)
    assert net.send_udp(0, 19).lost == "destination unreachable"
    net.run(FAST.unreachable_hold_s)
    trip = net.send_udp(0, 19)
    net.run(0.1)
    assert trip.arrived_s


def test_cable_cut_in_bcube() -> None:
    net = network("bcube,4,1", "bsr")
    victim, step = net.routers[0], behind(net, 0)
    around = path_set(net.topology, step.peer, 0)[0]  # type: ignore[arg-type]
    assert around.steps[-1] != step
    frame = by_bcube(net, around, Protocol.CABLE_CUT, CableCut(step.port).pack())
    victim.receive(around.steps[-1].port, around.servers[-2], frame, net.now)
    assert not victim.neighbours.works(step)
    net.run(3 * EVERY_S)
    assert victim.neighbours.works(step)


def tunnelled(net: MemoryNetwork, sender: int, to: int, protocol: Protocol, body: bytes) -> Frame:
    ipv4 = net.topology.ipv4
    return Frame(ETH_IP, Ipv4Header(ipv4(sender), ipv4(to), protocol).pack(body))


def test_cable_cut_in_dpillar() -> None:
    net = network("dpillar,4,2", "mp")
    victim, step = net.routers[0], behind(net, 0)
    body = CableCut(arrival_port(net.topology, 0, step)).pack()
    frame = tunnelled(net, step.peer, 0, Protocol.CABLE_CUT, body)
    victim.receive(step.port, step.peer, frame, net.now)
    assert not victim.neighbours.works(step)
    net.run(3 * EVERY_S)
    assert victim.neighbours.works(step)


def test_path_failure_in_dpillar() -> None:
    net = network("dpillar,4,2", "mp")
    a = 0
    b = net.topology.servers - 1
    net.send_udp(a, b)
    net.run(0.1)
    router = net.routers[a]
    destination = router.destinations.get(b)  # type: ignore[attr-defined]
    path = destination.probing.current_path
    uid = net.topology.uid
    step = path.steps[1]
    flow = flow_key(udp_packet(net.topology, a, b))
    body = PathFailure(step.port, uid(path.servers[1]), uid(step.peer), flow).pack()
    frame = tunnelled(net, path.servers[1], a, Protocol.PATH_FAILURE, body)
    router.receive(path.steps[0].port, path.servers[1], frame, net.now)
    assert destination.probing.current_path != path
    net.stream(a, b, 0.5, 13.0, source_port=4000)
    net.run(13.5)
    (known,) = (one for one in destination.probing.candidates if one.path == path)
    assert known.state is PathState.WORKING, "the next round has found that it does"


def test_returned_packet_in_bcube() -> None:
    net = network("bcube,4,1", "bsr")
    _, path = bcube_flow(net)
    a, relay, b = path.servers
    back = Path(relay, (Step(path.steps[0].port, a),))

    def returned(packet: bytes) -> list[Action]:
        frame = by_bcube(net, back, Protocol.RETURNED, packet)
        return net.routers[a].receive(path.steps[0].port, relay, frame, net.now)

    (sent,) = returned(udp_packet(net.topology, a, b, serial=77))
    assert isinstance(sent, Send)
    assert serial_of(sent.frame.data) == 77, "the forger's packet, in this server's name"
    for strange in (
        udp_packet(net.topology, b, a),
        udp_packet(net.topology, a, b, source_port=4001),
    ):
        assert reasons(returned(strange)) == ["returned packet of no flow"]


def test_returned_packet_in_dpillar() -> None:
    net = network("dpillar,4,2", "mp-both")
    a, b, c = 0, net.topology.servers - 1, 1
    net.send_udp(a, b)
    net.run(0.1)
    step = behind(net, a)

    def returned(packet: bytes) -> list[Action]:
        frame = tunnelled(net, step.peer, a, Protocol.RETURNED, packet)
        return net.routers[a].receive(step.port, step.peer, frame, net.now)

    (sent,) = returned(udp_packet(net.topology, a, b, serial=77))
    assert isinstance(sent, Send)
    assert serial_of(sent.frame.data) == 77, "the forger's packet, in this server's name"
    assert reasons(returned(udp_packet(net.topology, a, c))) == ["returned packet of no flow"]
    assert reasons(returned(udp_packet(net.topology, c, b))) == ["source is not this server"]


@pytest.mark.parametrize(("spec", "routing"), ALL)
def test_who_names_nobody_changes_nothing(spec: str, routing: str) -> None:
    net = network(spec, routing)
    victim, step = net.routers[0], behind(net, 0)
    up = victim.neighbours.up
    beat = Heartbeat(step.port, ()).pack()
    for uid in (12345, net.topology.uid(0)):
        data = DcnHeader(uid, 1, Protocol.HEARTBEAT, 1).pack(beat)
        assert victim.receive(step.port, step.peer, Frame(ETH_DCN, data), net.now) == []
    assert victim.neighbours.up == up
