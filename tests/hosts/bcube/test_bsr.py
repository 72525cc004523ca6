"""BSR without failures: paths, headers, probes, adaptation, gateways, and what it refuses."""

import itertools
import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

import pytest

from pillarbox import topos
from pillarbox.hosts.base.algorithms import route
from pillarbox.hosts.base.path import Path
from pillarbox.hosts.base.probing import PathState
from pillarbox.hosts.base.timers import FAST, Timers
from pillarbox.hosts.bcube.bsr import BSR
from pillarbox.hosts.bcube.paths import path_set
from pillarbox.hosts.bcube.selection import parallel_paths
from pillarbox.hosts.bcube.source_routes import hops_of, path_of, reverse
from pillarbox.hosts.memory.frame_devices import FrameHop, FrameTap
from pillarbox.hosts.memory.memory_network import MemoryNetwork, Trip
from pillarbox.hosts.wire.bcube import BCubeHeader
from pillarbox.hosts.wire.dcn import Protocol
from pillarbox.hosts.wire.frame import ETH_DCN
from pillarbox.hosts.wire.ipv4 import flow_key
from pillarbox.hosts.wire.marks import udp_packet
from pillarbox.hosts.wire.messages import PathFailure, Probe
from pillarbox.topos.bcube import BCube

# Rounds of probes that follow one another sooner, to spare virtual time.
EAGER = replace(FAST, probe_interval_s=1.0, probe_jitter_s=0.25)
SPECS = ["bcube,4,1", "bcube,2,3", "bcube,3,2", "bcube,4,2,servers=32"]


def test_example_of_fig_4_with_its_switches() -> None:
    bcube = topos.parse("bcube,8,3")
    a, b = bcube.server("0.0.0.1"), bcube.server("1.0.1.1")

    def told(path: Path) -> list[str]:
        return [
            bcube.address(node).replace(".", "")
            if node < bcube.servers
            else bcube.switch_label(node - bcube.servers)
            for node in path.nodes(bcube)
        ]

    assert list(map(told, parallel_paths(bcube, a, b))) == [
        ["0001", "<3,001>", "1001", "<1,101>", "1011"],
        ["0001", "<1,001>", "0011", "<3,011>", "1011"],
        ["0001", "<2,001>", "0101", "<1,011>", "0111", "<3,111>", "1111", "<2,111>", "1011"],
        ["0001", "<0,000>", "0002", "<3,002>", "1002", "<1,102>", "1012", "<0,101>", "1011"],
    ]


@pytest.mark.parametrize("spec", SPECS)
def test_every_pair_takes_the_static_path(spec: str) -> None:
    bcube = topos.parse(spec)
    network = MemoryNetwork(bcube, BSR)
    trips = [network.send_udp(a, b) for a, b in itertools.permutations(range(bcube.servers), 2)]
    network.run(0.01)
    again = [network.send_udp(trip.source, trip.destination) for trip in trips]
    network.run(0.01)
    for trip in [*trips, *again]:
        assert len(trip.arrived_s) == 1
        assert len(trip.steps) <= bcube.k + 1
        for name in ("bcube", "bsr"):
            assert route(bcube, name, trip.source, trip.destination).paths[0] == trip.path
    assert all(not router.drops for router in network.routers)


@pytest.mark.parametrize("spec", SPECS)
def test_hops_and_path_are_one_to_one(spec: str) -> None:
    bcube = topos.parse(spec)
    for a, b in itertools.product(range(0, bcube.servers, 5), range(bcube.servers)):
        for path in path_set(bcube, a, b):
            assert path_of(bcube, a, hops_of(bcube, path)) == path
            assert reverse(bcube, path).servers == path.servers[::-1]
            assert reverse(bcube, reverse(bcube, path)) == path
            reverse(bcube, path).nodes(bcube)  # raises where a hop follows no cable


# -- on the wire ---------------------------------------------------------------------------------


def test_packet_carries_its_path_in_36_bytes() -> None:
    bcube = topos.parse("bcube,4,2")
    a, b = bcube.server("0.1.2"), bcube.server("3.3.3")
    seen: list[FrameHop] = []
    network = MemoryNetwork(bcube, BSR, [FrameTap(lambda hop, now: seen.append(hop))])
    packet = udp_packet(bcube, a, b)
    network.send(a, packet)
    network.run(0.001)
    data = [hop for hop in seen if hop.frame.data.endswith(packet)]
    assert [(hop.server, hop.peer) for hop in data] == [(6, 54), (54, 62), (62, 63)]
    for taken, hop in enumerate(data, start=1):
        frame = hop.frame
        assert frame.ethertype == ETH_DCN
        assert len(frame.data) == 36 + len(packet)
        header, body = BCubeHeader.parse(frame.data)
        assert (header.source, header.destination) == (a, b)
        assert header.protocol == Protocol.IPV4
        assert header.next_hop == taken
        assert body == packet
        # NHA: two bits of digit, six of value (section 7.1).
        nhas = [2 << 6 | 3, 1 << 6 | 3, 0 << 6 | 3]
        assert frame.data[20:32] == bytes([3, taken, 0, 0, *nhas, 0, 0, 0, 0, 0])
        changed = {i for i in range(36) if frame.data[i] != data[0].frame.data[i]}
        assert changed <= {10, 11, 21}  # checksum and NHI
    assert len({BCubeHeader.parse(hop.frame.data)[0].identification for hop in data}) == 1


def messages(network: MemoryNetwork) -> list[tuple[FrameHop, BCubeHeader, bytes]]:
    """What the network's Tap will see under BCube headers."""
    found: list[tuple[FrameHop, BCubeHeader, bytes]] = []

    def look(hop: FrameHop, now: float) -> None:
        if hop.frame.data[:1] == b"\x29":  # version 2, 9 words
            found.append((hop, *BCubeHeader.parse(hop.frame.data)))

    network.devices = (FrameTap(look),)
    return found


def test_probes_collect_the_least_of_in_and_out() -> None:
    bcube = topos.parse("bcube,4,1")
    a, b, relay = bcube.server("0.0"), bcube.server("1.3"), bcube.server("1.0")
    other = bcube.server("0.3")
    network = MemoryNetwork(bcube, BSR)
    # Each direction of each port with another load: a - relay - b by level 1, then level 0.
    network.load_bps = {
        (a, 1): (9e8, 1e8),
        (relay, 1): (2e8, 9e8),
        (relay, 0): (9e8, 3e8),
        (b, 0): (4e8, 9e8),
        (other, 0): (5e8, 0.0),
    }
    network.run(0.3)
    seen = messages(network)
    network.send_udp(a, b)
    network.run(0.01)
    probes = [
        (hop.server, Probe.parse(body).available_bps)
        for hop, header, body in seen
        if header.protocol == Protocol.PROBE
        and header.path == hops_of(bcube, path_set(bcube, a, b)[0])
    ]
    assert [server for server, _ in probes] == [a, relay]
    assert [bps for _, bps in probes] == pytest.approx([9e8, 7e8], rel=0.01)
    flow = network.routers[a].state()["flows"][0]
    told = {tuple(one["path"]): one["available_bps"] for one in flow["candidates"]}
    assert told["0.0", "1.0", "1.3"] == pytest.approx(6e8, rel=0.01)  # b's own input is the least
    assert told["0.0", "0.3", "1.3"] == pytest.approx(5e8, rel=0.01)
    answers = [header for _, header, _ in seen if header.protocol == Protocol.PROBE_RESPONSE]
    assert {header.source for header in answers} == {b}
    assert {path_of(bcube, b, header.path) for header in answers} == {
        reverse(bcube, path) for path in path_set(bcube, a, b)
    }


def test_path_failure_names_the_link_and_goes_back_the_way_so_far() -> None:
    bcube = topos.parse("bcube,3,2")
    a, b = bcube.server("0.0.0"), bcube.server("1.1.1")
    path = parallel_paths(bcube, a, b)[0]
    first, second = path.servers[1:3]
    network = MemoryNetwork(bcube, BSR)
    network.cut(second, b)
    network.run(0.2)
    seen = messages(network)
    trip = network.send_udp(a, b)
    network.run(0.01)
    assert trip.arrived_s, "the relay has returned it"
    failures = [
        (hop, header, body)
        for hop, header, body in seen
        if header.protocol == Protocol.PATH_FAILURE
    ]
    # One for the packet and the probe of the same path, which come together.
    assert [(hop.server, hop.peer) for hop, _, _ in failures] == [(second, first), (first, a)]
    for _, header, body in failures:
        assert (header.source, header.destination) == (second, a)
        assert PathFailure.parse(body) == PathFailure(path.steps[2].port, second, b, None)


# -- the choice of paths -------------------------------------------------------------------------


def path_told(network: MemoryNetwork, server: int) -> list[list[str]]:
    return [flow["path"] for flow in network.routers[server].state()["flows"]]


def test_flow_avoids_a_loaded_path_but_is_not_held_for_that() -> None:
    bcube = topos.parse("bcube,4,1")
    a, b = bcube.server("0.0"), bcube.server("1.3")
    network = MemoryNetwork(bcube, BSR)
    network.load_bps = {(bcube.server("1.0"), 0): (0.0, 6e8)}
    network.run(0.3)
    first = network.send_udp(a, b)
    assert [step.peer for _, step in first.steps] == [bcube.server("1.0")], "sent at once"
    network.run(0.01)
    assert path_told(network, a) == [["0.0", "0.3", "1.3"]]
    assert network.send_udp(a, b).steps[0][1].peer == bcube.server("0.3")


def test_load_on_all_short_paths_makes_a_detour_worth_it() -> None:
    """But shares of nearly the same size do not: detours cost others (Theorem 6)."""
    bcube = topos.parse("bcube,4,1")
    for load, hops in ((0.5e8, 1), (6e8, 3)):
        network = MemoryNetwork(bcube, BSR)
        network.load_bps = {(1, 0): (load, 0.0)}
        network.run(0.3)
        network.send_udp(0, 1)
        network.run(0.01)
        trip = network.send_udp(0, 1)
        network.run(0.01)
        assert len(trip.path) == hops


def eager(topology: BCube, server: int, rate_bps: float = 1e9) -> BSR:
    return BSR(topology, server, timers=EAGER, rate_bps=rate_bps)


def test_path_follows_the_load_at_the_next_round() -> None:
    bcube = topos.parse("bcube,4,1")
    a, b = bcube.server("0.0"), bcube.server("1.3")
    network = MemoryNetwork(bcube, eager)
    network.stream(a, b, 0.01, 4.0, source_port=4000)
    network.run(0.5)
    assert path_told(network, a) == [["0.0", "1.0", "1.3"]]
    network.load_bps = {(bcube.server("1.0"), 0): (0.0, 9e8)}
    network.run(EAGER.probe_interval_s + EAGER.probe_jitter_s)
    assert path_told(network, a) == [["0.0", "0.3", "1.3"]]


def loaded_network(
    flows: list[tuple[int, int, float]],
    seconds: float,
    timers: Timers = EAGER,
    spec: str = "bcube,4,1",
    ends: tuple[str, str] = ("0.0", "1.3"),
    events: Iterable[tuple[float, Callable[[MemoryNetwork], None]]] = (),
) -> MemoryNetwork:
    """Flows of one pair, each of a share of a link's rate; links are slow, to spare frames."""
    bcube = topos.parse(spec)
    rate_bps = 1e6
    network = MemoryNetwork(bcube, lambda t, s: BSR(t, s, timers=timers, rate_bps=rate_bps))
    a, b = map(bcube.server, ends)
    for source_port, start_ms, share in flows:
        every_s = 1000 * 8 / (share * rate_bps)

        def send(port: int = source_port) -> None:
            network.send_udp(a, b, source_port=port, size=950)

        for i in range(int(seconds / every_s)):
            network.at(start_ms / 1000 + i * every_s, send)
    for when, event in events:
        network.at(when, partial(event, network))
    network.run(seconds)
    return network


def test_two_flows_that_start_together_part_and_stay() -> None:
    network = loaded_network([(4000, 0, 0.45), (4001, 0, 0.45)], seconds=20.0)
    flows = network.routers[0].state()["flows"]
    assert [flow["rounds"] > 14 for flow in flows] == [True, True]
    assert sum(flow["path_changes"] for flow in flows) <= 3
    assert sorted(path_told(network, 0)) == [["0.0", "0.3", "1.3"], ["0.0", "1.0", "1.3"]]


@pytest.mark.parametrize(
    ("spec", "ends"),
    [
        ("bcube,4,1", ("0.0", "1.3")),
        ("bcube,4,1", ("0.0", "0.1")),  # one path is two hops longer
        ("bcube,4,2", ("0.0.0", "1.2.3")),
        ("bcube,3,3", ("0.0.0.0", "1.2.1.2")),
    ],
)
def test_departs_from_the_paper_large_flows_of_a_pair_part_before_their_next_turn(
    spec: str, ends: tuple[str, str]
) -> None:
    paths = topos.parse(spec).ports
    flows = [(4000 + i, 0, 1 / paths) for i in range(paths)]
    network = loaded_network(flows, 1.0, FAST, spec, ends)
    source = topos.parse(spec).server(ends[0])
    assert len(set(map(tuple, path_told(network, source)))) == paths
    assert network.routers[source].counters["looks ahead"] == paths - 1


def test_large_flows_of_a_pair_part_again_after_every_death_of_a_relay() -> None:
    """They share the path that is left, until one of them probes early and finds a replacement.

    Regular rounds alone do not part them: two more hops cost as much as the flow would gain.
    """
    relay, told = BCube(4, 1).server("1.0"), []
    events: list[tuple[float, Callable[[MemoryNetwork], None]]] = []
    for died_s in (3.0, 9.0, 15.0, 21.0):
        events += [
            (died_s, lambda network: network.kill(relay)),
            (died_s + 3.0, lambda network: told.append(path_told(network, 0))),
            (died_s + 3.0, lambda network: network.revive(relay)),
        ]
    network = loaded_network([(4000, 0, 0.6), (4001, 0, 0.6)], seconds=25.0, events=events)
    assert [len(set(map(tuple, paths))) for paths in told] == [2, 2, 2, 2], told
    assert not any("1.0" in path for paths in told for path in paths)
    assert network.routers[0].counters["looks ahead"] > 2  # more than one per flow


@pytest.mark.parametrize("shares", [(0.9, 0.03), (0.03, 0.03)])
def test_small_flows_keep_the_path_that_they_share(shares: tuple[float, float]) -> None:
    network = loaded_network([(4000 + i, 0, share) for i, share in enumerate(shares)], 3.0, FAST)
    assert len(set(map(tuple, path_told(network, 0)))) == 1
    assert not network.routers[0].counters["looks ahead"]


def test_departs_from_the_paper_own_traffic_counts_as_available() -> None:
    network = loaded_network([(4000, 0, 0.8)], seconds=12.0)
    [flow] = network.routers[0].state()["flows"]
    assert flow["rounds"] > 8
    assert flow["path_changes"] == 0
    told = {tuple(one["path"]): one["available_bps"] for one in flow["candidates"]}
    # As reported, the path in use looks five times as bad as the other.
    assert told[tuple(flow["path"])] < 0.4e6 < 0.9e6 < max(told.values())


@pytest.mark.parametrize(("load", "moves"), [(0.3e8, False), (0.4e8, True)])
def test_departs_from_the_paper_a_flow_moves_for_a_third_of_a_port(
    load: float, moves: bool
) -> None:
    bcube = topos.parse("bcube,4,1")
    a, b = bcube.server("0.0"), bcube.server("1.3")
    network = MemoryNetwork(bcube, lambda t, s: BSR(t, s, timers=FAST, rate_bps=1e8))
    network.load_bps = {(bcube.server("1.0"), 0): (0.0, load)}
    network.run(0.3)
    network.send_udp(a, b)
    network.run(0.01)
    assert (path_told(network, a) == [["0.0", "0.3", "1.3"]]) == moves


def test_rounds_of_one_flow_come_at_random_moments() -> None:
    bcube = topos.parse("bcube,4,1")
    network = MemoryNetwork(bcube, eager)
    seen = messages(network)
    began: dict[int, float] = {}
    network.stream(0, 13, 0.01, 12.0, source_port=4000)
    for _ in range(1200):
        network.run(0.01)
        for _, header, body in seen:
            if header.protocol == Protocol.PROBE:
                began.setdefault(Probe.parse(body).round, network.now)
        seen.clear()
    pauses = [b - a for a, b in itertools.pairwise(began.values())]
    assert len(pauses) >= 8
    assert min(pauses) > EAGER.probe_interval_s - 0.02
    assert max(pauses) < EAGER.probe_interval_s + EAGER.probe_jitter_s + 0.02
    assert max(pauses) - min(pauses) > 0.2 * EAGER.probe_jitter_s


def test_flow_that_sends_nothing_does_not_probe() -> None:
    bcube = topos.parse("bcube,2,1")
    timers = replace(EAGER, flow_idle_s=3.0)
    network = MemoryNetwork(bcube, lambda t, s: BSR(t, s, timers=timers))
    router = network.routers[0]
    network.send_udp(0, 3)
    network.run(2.5)
    assert router.counters["probe rounds"] == 1
    network.send_udp(0, 3)
    network.run(0.01)
    assert router.counters["probe rounds"] == 2
    [flow] = router.state()["flows"]
    assert {one["state"] for one in flow["candidates"]} == {PathState.WORKING.value}
    network.run(2 * timers.flow_idle_s)
    assert router.state()["flows"] == []


def test_state_is_plain_data() -> None:
    bcube = topos.parse("bcube,4,1")
    network = MemoryNetwork(bcube, BSR)
    network.send_udp(0, 13)
    network.run(0.01)
    state = network.routers[0].state()
    assert json.loads(json.dumps(state)) == state
    assert state["neighbours"] == {"known": 6, "down": 0}
    key = flow_key(udp_packet(bcube, 0, 13))
    assert state["flows"][0]["destination"] == f"{bcube.ip(13)}:{key.destination_port}"
    trip: Trip = network.trips[0]
    assert state["flows"][0]["path"] == [bcube.address(server) for server in trip.path.servers]
