"""What a table repeats of a router's answers is what the router itself would have answered."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from pillarbox import topos
from pillarbox.hosts.base.actions import Action, Deliver, Pushed, Send
from pillarbox.hosts.base.algorithms import algorithms, route
from pillarbox.hosts.base.router import Router
from pillarbox.hosts.base.timers import FAST, Timers
from pillarbox.hosts.live.decisions import DecisionInstaller
from pillarbox.hosts.live.devices import Port
from pillarbox.hosts.live.python_table import PythonTable
from pillarbox.hosts.memory.memory_network import MemoryNetwork, Trip
from pillarbox.hosts.wire.dcn import DcnHeader, broadcast
from pillarbox.hosts.wire.frame import ETH_DCN, ETH_IP, Frame
from pillarbox.hosts.wire.ipv4 import UDP, Ipv4Header
from pillarbox.topos.base.spec import small

CASES = [
    (spec, name)
    for spec in small()
    for name, algorithm in algorithms(topos.parse(spec)).items()
    if algorithm.router
]
# Rounds of probes that follow one another sooner, to spare virtual time.
EAGER = replace(FAST, probe_interval_s=1.0, probe_jitter_s=0.25)
# After a new path of TAR has settled, a table repeats the previous hop, which is still set up, for
# up to one more period (`NextHopChanges`). With rounds each second this is often the case.
WITHOUT_HURRY = ("tar", "tar-far-side")


class Outlet:
    """A port, or the applications' interface, that keeps what left last."""

    drop_reason = staticmethod(Port.drop_reason)

    def __init__(self, mac: bytes = bytes(6)) -> None:
        self.mac, self.left = mac, b""

    def put(self, data: bytes) -> None:
        self.left = data


def mac(server: int) -> bytes:
    return server.to_bytes(6, "big")


class Beside:
    """A router with a table beside it, which is given every packet first."""

    def __init__(self, router: Router) -> None:
        self.router = router
        self.ports: dict[int, Any] = {
            port: Outlet(mac(router.server)) for port in range(router.topology.ports)
        }
        self.applications = Outlet()
        self.table = PythonTable(
            self.ports,
            self.applications,
            pytest.fail,
            by_flow=router.by_flow,
            sees_connections=router.sees_connections,
        )
        self.decisions = DecisionInstaller(router, self.table, lambda step: mac(step.peer))
        self.repeated = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.router, name)

    def send(self, packet: bytes, now: float) -> list[Action]:
        self.decisions.withdraw_invalid()
        repeated = self.table.send_by_decision(packet)
        return self._compared(repeated, self.router.send(packet, now))

    def receive(self, port: int, peer: int, frame: Frame, now: float) -> list[Action]:
        self.decisions.withdraw_invalid()
        front = mac(self.server) + mac(peer) + frame.ethertype.to_bytes(2, "big")
        repeated = self.table.handle_by_decision(port, front + frame.data)
        if repeated:
            self.latest = port, peer, frame
        return self._compared(repeated, self.router.receive(port, peer, frame, now))

    def _compared(self, repeated: bool, actions: list[Action]) -> list[Action]:
        self.decisions.install(actions)
        if repeated:
            self.repeated += 1
            (first,) = [one for one in actions if isinstance(one, Send | Deliver)][:1]
            if isinstance(first, Deliver):
                assert self.applications.left == first.packet
            else:
                front = (
                    mac(first.peer) + mac(self.server) + first.frame.ethertype.to_bytes(2, "big")
                )
                left = self.ports[first.port].left
                own = isinstance(first.repeat, Pushed) and bool(first.repeat.header)
                assert without_number(left, own=own) == without_number(
                    front + first.frame.data, own=own
                )
        return actions


def without_number(frame: bytes, *, own: bool) -> bytes:
    """Return the frame without its identification, and so its checksum, which the sender counts."""
    if not own:
        return frame
    number = slice(18, 20) if frame[12:14] == ETH_IP.to_bytes(2, "big") else slice(18, 22)
    changed = bytearray(frame)
    changed[number] = bytes(number.stop - number.start)
    changed[24:26] = bytes(2)
    return bytes(changed)


def timers_of(name: str) -> Timers:
    return FAST if name in WITHOUT_HURRY else EAGER


def network_beside(spec: str, name: str) -> MemoryNetwork:
    """Return a network in memory whose routers have a table beside them."""
    topology = topos.parse(spec)
    made = algorithms(topology)[name].router
    assert made is not None
    router: type[Router] = made
    timers = timers_of(name)
    return MemoryNetwork(
        topology,
        lambda network, server: Beside(router(network, server, timers=timers)),  # type: ignore[arg-type, return-value]
    )


@pytest.mark.few
@pytest.mark.parametrize(("spec", "name"), CASES)
def test_what_is_repeated_is_what_the_router_would_answer(spec: str, name: str) -> None:
    net = network_beside(spec, name)
    topology = net.topology
    pairs = [(0, topology.servers - 1), (1, topology.servers // 2), (topology.servers - 1, 2)]
    net.run(0.6)
    for a, b in pairs:
        net.send_udp(a, b)
    net.run(1.0)  # until paths are found and chosen
    before = sum(one.repeated for one in net.routers)  # type: ignore[attr-defined]
    sprays = algorithms(topology)[name].sprays
    path_counts = {
        pair: len(route(topology, name, *pair, several=True).paths) if sprays else 1
        for pair in pairs
    }
    trips = [net.send_udp(*pair) for pair in pairs for _ in range(3 * path_counts[pair])]
    net.run(1.0)
    assert all(trip.arrived_s for trip in trips)
    # Of three packets of a flow on a path each server passes on the first itself, at most.
    hops = sum(len(trip.steps) + 1 for trip in trips)
    assert sum(one.repeated for one in net.routers) - before >= hops / 2  # type: ignore[attr-defined]
    if not net.routers[0].watches_neighbours or topology.diameter_bound().value == 1:
        return  # no failure is detected, or no server relays
    # The last relay's next hop is gone; what comes is not repeated if the router would not.
    trip = net.send_udp(*pairs[0])
    net.run(0.02)
    relay = net.routers[trip.path.servers[-2]]
    relay.silence(trip.path.steps[-1], net.now)
    relay.receive(*relay.latest, net.now)  # type: ignore[attr-defined]


def test_messages_and_broadcasts_are_never_repeated() -> None:
    dcell = topos.parse("dcell,4,1")
    dfr = algorithms(dcell)["dfr"].router
    assert dfr is not None
    sender, relay = dfr(dcell, 0), dfr(dcell, 4)
    packet = Ipv4Header(dcell.ipv4(0), 0x0AFFFFFF, UDP).pack(bytes(20))
    sent = sender.send(packet, 0.0)
    assert [one.repeat for one in sent if isinstance(one, Send)] == [None] * len(sent) != []
    came = Frame(ETH_DCN, DcnHeader(0, broadcast(1), 4, 1).pack(packet))
    heard = relay.receive(1, 0, came, 0.0)
    assert isinstance(heard[0], Deliver)
    assert heard[0].key is None
    assert not any(one.repeat for one in heard if isinstance(one, Send))


@pytest.mark.few
@pytest.mark.parametrize(("spec", "name"), CASES)
def test_a_flow_that_goes_on_is_repeated_as_the_router_would_answer(spec: str, name: str) -> None:
    """A flow goes on while one cable or switch of its path after another fails and is repaired."""
    net = network_beside(spec, name)
    topology = net.topology
    noticed_s = FAST.neighbour_timeout_s + FAST.heartbeat_s
    pairs = [(0, topology.servers - 1), (topology.servers - 1, 0)]

    def go_on(seconds: float) -> list[Trip]:
        trips = []
        for _ in range(round(seconds / 0.03)):
            trips += [net.send_udp(a, b) for a, b in pairs]
            net.run(0.03)
        return trips

    path = go_on(0.3)[-2].path.nodes(topology)
    cables = [*pairwise(path)]
    switches = [node - topology.servers for node in path if node >= topology.servers]
    for a, b in random.Random(2).sample(cables, min(3, len(cables))):
        net.cut(a, b)
        go_on(noticed_s)
        net.heal(a, b)
        go_on(noticed_s)
    for switch in switches[:1]:
        net.stop_switch(switch)
        go_on(noticed_s)
        net.start_switch(switch)
        go_on(noticed_s)
    # Until paths to a server are looked for again.
    timers = timers_of(name)
    go_on(timers.longest_probe_interval_s + timers.probe_timeout_s)
    trips = go_on(0.1)
    net.run(0.1)
    assert all(trip.arrived_s for trip in trips)
