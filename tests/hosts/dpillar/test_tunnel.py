"""DPillarMP on the wire: tunnels, probes and what goes back (Liao 2012, section 4.4)."""

import json
from functools import partial
from itertools import pairwise, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillarbox import topos
from pillarbox.hosts.base.actions import Deliver, Drop, Relayed, Send, Unwrapped
from pillarbox.hosts.base.path import Step
from pillarbox.hosts.base.ports import arrival_port
from pillarbox.hosts.base.probing import PathState
from pillarbox.hosts.base.timers import FAST, PAPER
from pillarbox.hosts.dpillar import multipath
from pillarbox.hosts.dpillar.paths import Proxies, mp_tunnels
from pillarbox.hosts.dpillar.tunnel import RESERVED, Tunnelling
from pillarbox.hosts.dpillar.tunnel_choices import (
    far_side_reserves,
    pairing_reserves,
    step_back,
    tunnels,
)
from pillarbox.hosts.memory.frame_devices import FrameHop, FrameTap
from pillarbox.hosts.wire.dcn import Protocol
from pillarbox.hosts.wire.frame import ETH_DCN, ETH_IP, Frame
from pillarbox.hosts.wire.ipv4 import (
    TCP,
    UDP,
    FlowKey,
    Ipv4Header,
    Tunnel,
    decapsulate,
    encapsulate,
)
from pillarbox.hosts.wire.marks import serial_of, udp_packet
from pillarbox.hosts.wire.messages import PathFailure
from pillarbox.hosts.wire.relay_keys import RelayKey
from pillarbox.topos.dpillar import DPillar
from tests.hosts.dpillar import running
from tests.hosts.dpillar.running import ROUTERS, assert_each_ended_once, control

SPECS = ["dpillar,4,2", "dpillar,6,2", "dpillar,4,3"]
network = partial(running.network, timers=FAST)


class Told(Tunnelling):
    """Sends every packet through the tunnel that it was told."""

    tunnel: Proxies

    def tunnel_for(
        self, packet: bytes, flow: FlowKey, destination: int, now: float
    ) -> Proxies | None:
        return self.tunnel


@pytest.mark.parametrize("spec", SPECS)
def test_a_relay_decides_once_for_all_sources(spec: str) -> None:
    net = network(spec, Told)
    topology, routers = net.topology, net.routers
    learned: dict[tuple[int, RelayKey], tuple[int, int]] = {}
    decisions = 0
    for a, b in permutations(range(topology.servers), 2):
        packet = udp_packet(topology, a, b, serial=0)
        for path, by in tunnels(topology, a, b, (0, 1)).items():
            tunnel = Tunnel(topology.ipv4(by.source), topology.ipv4(by.destination), by.port)
            frame = Frame(ETH_IP, encapsulate(packet, tunnel, 64, 0))
            for server, step in zip(path.servers, path.steps, strict=False):
                if server == a:
                    continue
                [sent] = routers[server].incoming(0, a, frame, 0.0)
                assert isinstance(sent, Send)
                assert isinstance(sent.repeat, Relayed | Unwrapped)
                decisions += 1
                key = server, sent.repeat.key
                assert learned.setdefault(key, (sent.port, sent.peer)) == (step.port, step.peer)
                frame = sent.frame
    assert len(learned) < decisions / 2


@pytest.mark.parametrize("port", [0, 1])
@pytest.mark.parametrize("spec", SPECS)
def test_headers_on_the_wire_are_those_of_algorithm_3(spec: str, port: int) -> None:
    seen: dict[int, list[Frame]] = {}

    def look(hop: FrameHop, now: float) -> None:
        if (serial := serial_of(hop.frame.data)) is not None:
            seen.setdefault(serial, []).append(hop.frame)

    net = network(spec, Told, FrameTap(look))
    wanted = []
    for a, b in permutations(range(net.topology.servers), 2):
        for path, by in mp_tunnels(net.topology, a, b, port).items():
            net.routers[a].tunnel = by
            net.send_udp(a, b)
            wanted.append((path, by))
    net.run(0.01)
    assert not any(router.drops for router in net.routers)
    ipv4 = net.topology.ipv4
    for serial, (path, by) in enumerate(wanted):
        trip = net.trips[serial]
        assert trip.path == path, "not the path that mp_paths computes"
        assert len(trip.arrived_s) == 1
        inner = udp_packet(net.topology, path.source, path.destination, serial=serial)
        for hops, (server, frame) in enumerate(zip(path.servers, seen[serial], strict=False)):
            assert frame.ethertype == ETH_IP
            if server == by.destination != path.source:
                assert server == path.servers[-2], "the proxy destination's hop is the last"
                header, rest = Ipv4Header.parse(frame.data)
                assert (header.ttl, header.protocol, rest) == (63, UDP, inner[20:])
                continue
            tunnel, outer, packet = decapsulate(frame.data)
            assert tunnel == Tunnel(ipv4(by.source), ipv4(by.destination), port)
            assert outer.ttl == 64 - hops
            assert packet == inner


@pytest.mark.few
@pytest.mark.parametrize("name", ["mp-both", "mp-aware"])
@pytest.mark.parametrize("spec", SPECS)
def test_answers_go_back_over_the_links_of_their_probes(spec: str, name: str) -> None:
    probes: set[tuple[int, int, int, int, int]] = set()  # source, destination, and a hop
    answers: set[tuple[int, int, int, int, int]] = set()

    def look(hop: FrameHop, now: float) -> None:
        if hop.frame.ethertype != ETH_IP:
            return
        found = control(hop)
        inner = found[1] if found else Ipv4Header.parse(hop.frame.data)[0]
        if inner.protocol == Protocol.PROBE:
            probes.add((inner.source, inner.destination, hop.server, hop.port, hop.peer))
        elif inner.protocol == Protocol.PROBE_RESPONSE:
            # In DPillar a hop that leaves by one port comes in by the other.
            answers.add((inner.destination, inner.source, hop.peer, 1 - hop.port, hop.server))

    net = network(spec, ROUTERS[name], FrameTap(look))
    for a in range(0, net.topology.servers, 3):
        for b in set(range(net.topology.servers)) - {a}:
            net.send_udp(a, b)
    net.run(0.05)
    assert probes and probes == answers
    for a in range(0, net.topology.servers, 3):
        for known in net.routers[a].destinations.values():
            assert all(one.state == PathState.WORKING for one in known.probing.candidates)


@given(st.data())
def test_any_relay_finds_the_way_back(data: st.DataObject) -> None:
    net = topos.parse(data.draw(st.sampled_from([*SPECS, "dpillar,8,3", "dpillar,4,5"])))
    assert isinstance(net, DPillar)
    a, b = (data.draw(st.integers(0, net.servers - 1)) for _ in range(2))
    ends = net, a, b, (0, 1)
    every = tunnels(*ends) | far_side_reserves(*ends) | pairing_reserves(*ends)
    for path, by in every.items():
        arrivals = [
            arrival_port(net, server, step)
            for server, step in zip(path.servers, path.steps, strict=False)
        ]
        for met in range(1, len(path) + 1):  # the destination, or a relay that met a failure
            end = path.servers[met]
            for at, (before, server) in enumerate(pairwise(path.servers[: met + 1])):
                assert step_back(net, server, a, end, by) == Step(arrivals[at], before)
        assert step_back(net, a, a, b, by) is None


@given(st.integers(0, 23), st.integers(0, 23), st.integers(0, 23), st.data())
def test_made_up_tunnels_end(a: int, b: int, far: int, data: st.DataObject) -> None:
    net = network("dpillar,4,3", Told, timers=PAPER)
    port = data.draw(st.sampled_from([0, 1]))
    near = data.draw(st.sampled_from(net.topology.peers(a, port)))
    net.routers[a].tunnel = Proxies(near, far, port)
    net.send_udp(a, b)
    net.run(0.05)
    assert_each_ended_once(net.trips)


@given(st.data())
def test_no_frame_makes_a_router_stumble(data: st.DataObject) -> None:
    here = ROUTERS[data.draw(st.sampled_from(sorted(ROUTERS)))](topos.parse("dpillar,4,2"), 2)
    here.send(udp_packet(here.topology, 2, 7), 0.0)
    numbers = st.sampled_from(
        [*map(here.topology.ipv4, range(here.topology.servers)), 0, 10 << 24 | 510, 2**32 - 2]
    )
    drawn = [data.draw(numbers) for _ in range(4)]
    protocol = data.draw(st.sampled_from([*RESERVED, TCP, UDP, 200]))
    bodies = st.one_of(
        st.binary(max_size=30),
        st.builds(
            lambda *values: PathFailure(*values).pack(),
            st.integers(0, 255),
            st.integers(0, 2**31 - 1),
            st.integers(0, 2**31 - 1),
            st.one_of(st.none(), st.builds(FlowKey, numbers, numbers, *[st.integers(0, 255)] * 3)),
        ),
    )
    inner = Ipv4Header(drawn[0], drawn[1], protocol, ttl=data.draw(st.integers(0, 3)))
    packet = inner.pack(data.draw(bodies))
    if data.draw(st.booleans()):
        tunnel = Tunnel(drawn[2] & ~1, drawn[3] & ~1, data.draw(st.integers(0, 1)))
        packet = encapsulate(packet, tunnel, data.draw(st.integers(0, 3)), 0)
    packet = packet[: data.draw(st.integers(0, 2 * len(packet)))]
    frame = Frame(data.draw(st.sampled_from([ETH_IP, ETH_DCN, 0])), packet)
    for action in here.receive(
        data.draw(st.integers(0, 1)), data.draw(st.integers(0, 9)), frame, 0
    ):
        assert isinstance(action, Send | Deliver | Drop)
        assert not isinstance(action, Deliver) or drawn[1] == here.topology.ipv4(2)
        assert not isinstance(action, Send) or action.peer in here.neighbours.peers[action.port]
    here.poll(10.0)
    json.dumps(here.state())


def in_tunnel(net: topos.Topology, packet: bytes, by: Proxies, ttl: int = 64) -> Frame:
    tunnel = Tunnel(net.ipv4(by.source), net.ipv4(by.destination), by.port)
    return Frame(ETH_IP, encapsulate(packet, tunnel, ttl, 0))


@pytest.mark.parametrize("protocol", [Protocol.PROBE_RESPONSE, Protocol.PATH_FAILURE])
def test_what_cannot_go_back_is_dropped_and_never_answered(protocol: int) -> None:
    net = topos.parse("dpillar,4,2")
    for a, b in permutations(range(net.servers), 2):
        for path, by in mp_tunnels(net, a, b, 0).items():
            if len(path) == 1:
                continue
            relay = multipath.FaultTolerant(net, path.servers[1])
            packet = Ipv4Header(net.ipv4(b), net.ipv4(a), protocol).pack(bytes(20))
            arrives = path.steps[1].port, path.servers[2], in_tunnel(net, packet, by), 0.0
            assert isinstance(relay.receive(*arrives)[0], Send)
            relay.neighbours._up.discard(Step(1 - by.port, a))
            drop, *told = relay.receive(*arrives)
            assert isinstance(drop, Drop)
            assert drop.reason == "next hop is down"
            assert told == []


def test_a_relay_drops_what_must_go_no_further() -> None:
    net = topos.parse("dpillar,4,3")
    a, b = 0, 7
    path, by = next(iter(mp_tunnels(net, a, b, 0).items()))
    before, last = path.servers[-3:-1]
    assert last == by.destination

    def reason(
        server: int, ttl: int = 9, inner_ttl: int = 9, protocol: int = UDP, b: int = b
    ) -> str:
        here = multipath.FaultTolerant(net, server)
        packet = Ipv4Header(net.ipv4(a), net.ipv4(b), protocol, inner_ttl).pack(bytes(20))
        action, *told = here.receive(1, before, in_tunnel(net, packet, by, ttl), 0.0)
        # The sender is told of its packets' end, and of no message's.
        assert len(told) == (action == Drop("TTL expired", packet) and protocol not in RESERVED)
        return action.reason if isinstance(action, Drop) else "sent"

    assert reason(last) == "sent"
    assert reason(last, ttl=2, inner_ttl=2) == "sent"
    assert reason(last, ttl=1) == "TTL expired"
    assert reason(last, inner_ttl=1) == "TTL expired"
    assert reason(last, ttl=1, protocol=Protocol.PROBE) == "TTL expired"
    assert reason(before, inner_ttl=1) == "sent", "the tunnel is one hop of the packet's own"
    assert reason(a) == "came back to its source"
    off = next(x for x in range(1, net.servers) if not step_back(net, x, b, a, by))
    assert reason(off, protocol=Protocol.PROBE_RESPONSE) == "not on the path of its tunnel"
    # A tunnel that somebody made up: no cable of its proxy leads there, and none has failed.
    far = next(x for x in range(net.servers) if x not in {a, last, *net.peers(last, by.port)})
    assert reason(last, b=far) == "not on the path of its tunnel"


@pytest.mark.parametrize("protocol", sorted(RESERVED))
def test_applications_cannot_pretend_to_be_the_network(protocol: int) -> None:
    here = multipath.FaultTolerant(topos.parse("dpillar,4,2"), 0)
    ipv4 = here.topology.ipv4
    (drop,) = here.send(Ipv4Header(ipv4(0), ipv4(7), protocol).pack(bytes(20)), 0.0)
    assert isinstance(drop, Drop)
    assert drop.reason == "protocol is reserved for routing"
    (drop,) = here.send(udp_packet(here.topology, 1, 7), 0.0)
    assert isinstance(drop, Drop)
    assert drop.reason == "source is not this server"
