"""Networks that grow and shrink while they run, in memory and virtual time."""

from __future__ import annotations

from collections.abc import Callable

import numpy
import pytest

from pillarbox import topos
from pillarbox.hosts.base.algorithms import algorithms, route
from pillarbox.hosts.base.load import router_for
from pillarbox.hosts.base.router import Router
from pillarbox.hosts.base.timers import FAST
from pillarbox.hosts.bcube.bsr import BSR
from pillarbox.hosts.memory.memory_network import MemoryNetwork, Trip
from pillarbox.topos.base.errors import PillarboxError
from pillarbox.topos.base.topology import Topology

EVERY_S = 0.01
SIZES = [
    ("dcell,4,1", 16, 20),
    ("dcell,4,1", 6, 17),
    ("dcell,2,2", 12, 42),
    ("dcell,2,3", 30, 54),
    ("bcube,4,1", 8, 16),
    ("bcube,3,2", 9, 27),
]
CASES = [
    pytest.param(f"{spec},servers={few}", many, routing, id=f"{spec}-{few}-{many}-{routing}")
    for spec, few, many in SIZES
    for routing, algorithm in algorithms(topos.parse(spec)).items()
    if algorithm.router
]


def running(topology: Topology, router: Callable[..., Router]) -> MemoryNetwork:
    """Return a network that runs for a while already."""
    made: list[MemoryNetwork] = []

    def make(size: Topology, server: int) -> Router:
        now = made[0].now if made else 0.0
        return router(size, server, timers=FAST, now=now)

    made.append(MemoryNetwork(topology, make))
    made[0].run(0.5)
    return made[0]


def pairs(size: Topology, routing: str) -> list[tuple[int, int]]:
    """Return servers that are far apart, some of those with a path by that routing.

    Plain DCellRouting has none around what a partial DCell lacks.
    """
    half = size.servers // 2
    ends = [(server, (server + half) % size.servers) for server in range(0, size.servers, 3)]
    return [pair for pair in ends if route(size, routing, *pair).paths]


def lost(flows: list[list[Trip]]) -> list[Trip]:
    return [trip for flow in flows for trip in flow if not trip.arrived_s]


def check_paths(net: MemoryNetwork, routing: str) -> None:
    """See that packets go as the routing of the network, as large as it is now, computes."""
    for pair in pairs(net.topology, routing):
        trip = net.send_udp(*pair, source_port=5000)
        net.run(0.01)
        assert trip.arrived_s
        assert [trip.path] == route(net.topology, routing, *pair).paths[:1]


@pytest.mark.few
@pytest.mark.parametrize(("spec", "servers", "routing"), CASES)
def test_growing_and_shrinking_lose_no_packet(spec: str, servers: int, routing: str) -> None:
    small = topos.parse(spec)
    net = running(small, router_for(small, routing))
    staying = [net.stream(*pair, EVERY_S, 2.0, source_port=4000) for pair in pairs(small, routing)]
    assert staying
    net.run(0.3)
    net.resize(small.resized(servers))
    net.run(0.5)
    check_paths(net, routing)
    net.run(EVERY_S / 2)  # nothing is on a cable that goes
    net.resize(small)
    net.run(0.5)
    check_paths(net, routing)
    net.run(1.0)
    assert lost(staying) == []


@pytest.mark.parametrize("routing", ["dfr", "shortest"])
def test_data_planes_take_their_answers_back_once(routing: str) -> None:
    """See that nothing more is news after the news: each would stop all flows for a moment."""
    small = topos.parse("dcell,4,1,servers=16")
    net = running(small, router_for(small, routing))
    for size in (small.whole, small):
        before = [router.generation for router in net.routers[: small.servers]]
        net.resize(size)
        net.run(5.0)
        after = [router.generation for router in net.routers[: small.servers]]
        assert after == [generation + 1 for generation in before]
        assert not any(router.down() for router in net.routers)


def test_flows_keep_their_paths_in_a_larger_bcube() -> None:
    small = topos.parse("bcube,4,1,servers=8")
    net = running(small, BSR)
    flow = net.stream(0, 5, EVERY_S, 2.0, source_port=4000)
    net.run(0.5)
    before = flow[0].path
    net.resize(small.whole)
    net.run(2.0)
    assert lost([flow]) == []
    assert {trip.path for trip in flow} == {before}


def test_flows_leave_servers_that_leave() -> None:
    large = topos.parse("bcube,4,1")
    net = running(large, BSR)
    bsr = net.routers[0]
    assert isinstance(bsr, BSR)
    direct = {4: frozenset((0, 4)), 1: frozenset((0, 1))}
    for link in direct.values():  # both shortest paths of the flow have failed
        bsr.failed_links.put(link, None, net.now)
    flow = net.stream(0, 5, EVERY_S, 2.0, source_port=4000)
    elsewhere = net.stream(0, 13, EVERY_S, 0.1, source_port=4000)
    net.run(0.2)
    detour = flow[-2].path
    assert max(detour.servers) > 7
    net.run(EVERY_S / 2)  # nothing is on a cable that goes
    net.resize(large.resized(8))
    assert [max(one.targets) for one in bsr.flows.values()] == [5]
    net.run(2.0)
    assert lost([flow, elsewhere]) == []
    assert max(flow[-1].path.servers) < 8


def test_a_network_becomes_what_it_can_be() -> None:
    dcell = topos.parse("dcell,4,1,servers=16")
    assert dcell.resized(20) == dcell.whole == topos.parse("dcell,4,1")
    for size in (dcell, topos.parse("bcube,4,2,servers=32"), topos.parse("dcell,2,3,servers=154")):
        larger = size.resized(size.servers + size.growth)
        for server in range(size.servers):
            assert larger.address(server) == size.address(server)
            assert larger.ip(server) == size.ip(server)
            for port in range(size.ports):
                assert larger.mac(server, port) == size.mac(server, port)
                assert set(larger.peers(server, port)) >= set(size.peers(server, port))


def test_a_dcell_of_more_levels_grows_until_it_is_full() -> None:
    last_but_one = topos.parse("dcell,2,3,servers=1800")
    grown, whole = last_but_one.resized(1806), last_but_one.whole
    assert grown == topos.parse(grown.spec) != whole
    server = numpy.arange(grown.servers)
    uid = grown.uid(server)
    assert (uid[:1800] == last_but_one.uid(server[:1800])).all()
    assert (numpy.sort(uid) == server).all() and (uid != server).any()
    assert (grown.server_of_uid(uid) == server).all()
    for port in range(1, grown.ports):  # the cables are those of the whole one
        far = grown.server_plug(server, port).node
        assert (grown.uid(far) == whole.server_plug(uid, port).node).all()
    assert grown.cables == whole.cables == len(grown.cable_arrays().a)
    assert grown.resized(1800) == last_but_one


@pytest.mark.parametrize(
    ("spec", "servers", "says"),
    [
        ("dcell,4,1,servers=16", 21, "dcell,4,1 holds 1 to 20 servers, not 21"),
        ("bcube,4,1,servers=8", 10, "whole BCube_0s"),
        ("ficonn,4,1", 20, "ficonn,4,1 neither grows nor shrinks"),
        ("dcell,2,3", 1800, "the other in joining order"),
    ],
)
def test_no_other_network_is_made(spec: str, servers: int, says: str) -> None:
    with pytest.raises(PillarboxError, match=says):
        topos.parse(spec).resized(servers)
