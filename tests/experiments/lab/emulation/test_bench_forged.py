"""The bench of forged floods: who is flooded, by what, and whom it could harm."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest

from pillarbox import topos
from pillarbox.experiments.lab.emulation.defaults import usual_routing
from pillarbox.hosts.base.algorithms import route
from pillarbox.hosts.live import lab_programs
from pillarbox.hosts.memory.frame_devices import FrameHop
from pillarbox.hosts.wire.frame import ETH_IP
from pillarbox.hosts.wire.ipv4 import IP_IN_IP, Ipv4Header
from pillarbox.hosts.wire.marks import serial_of
from pillarbox.topos.base.topology import Topology
from tests.benches import forged

NO_EBPF = lab_programs.available()


Made = tuple[Topology, list[FrameHop], list[FrameHop], forged.FloodPlace]


@pytest.fixture(scope="module", params=forged.NETWORKS)
def made(request: pytest.FixtureRequest) -> Made:
    topology = topos.parse(request.param)
    packets, messages = forged.sent_by_forger(topology, usual_routing(topology), Random(1))
    return topology, packets, messages, forged.choose_flood_place(topology, packets)


def test_flows_are_sorted_by_what_they_pass_and_none_by_the_forger(made: Made) -> None:
    topology, _, _, place = made
    routing = usual_routing(topology)
    pairs = forged.ping_pairs_by_place(topology, routing, place, Random(1))
    assert {forged.AT, forged.BYSTANDERS} <= pairs.keys()
    for name, those in pairs.items():
        assert len(those) == forged.PAIRS
        for ends in those:
            both = (route(topology, routing, *one).paths[0] for one in (ends, ends[::-1]))
            passed = {node for path in both for node in path.nodes(topology)}
            assert place.forger not in passed
            assert (place.switch in passed) == (name == forged.AT)
            assert name != forged.BYSTANDERS or place.victim not in passed


def test_frames_are_packets_and_made_up_tunnels_and_messages_its_own(made: Made) -> None:
    topology, hops, messages, place = made
    frames = forged.forged_frames(topology, place, hops, Random(1))
    ports = dict(topology.neighbours(place.switch)).values()
    macs = {plug.node: topology.mac_number(*plug[:2]).to_bytes(6, "big") for plug in ports}
    assert {frame[:12] for frame in frames} == {macs[place.victim] + macs[place.forger]}
    valid, made_up = frames[::2], frames[1::2]
    assert len(made_up) == forged.MADE_UP
    assert len(set(valid)) > 10
    assert all(serial_of(frame) is not None for frame in frames)
    for frame in made_up:
        assert frame[12:14] == ETH_IP.to_bytes(2, "big")
        assert Ipv4Header.parse(frame[14:])[0].protocol == IP_IN_IP
    told = forged.simulated_frames(topology, place, messages)
    assert {frame[:12] for frame in told} == {frames[0][:12]}
    assert len(set(told)) > 10
    assert not any(map(serial_of, told))


def test_verdict_wants_a_flood_and_few_losses() -> None:
    row = {"forged_per_s": 20_000, forged.AT: 4.9, forged.BEHIND: None, forged.BYSTANDERS: 0.9}
    assert forged.verdict(row) == "ok"
    assert forged.verdict(row | {forged.BYSTANDERS: 1.0}) == "missed: bystanders"
    assert forged.verdict(row | {forged.AT: 5.0}) == "missed: at_switch"
    assert forged.verdict(row | {"forged_per_s": 100}).startswith("missed: the forger")
    assert forged.lost_percent([(3, 4), (4, 4)]) == 12.5
    assert forged.lost_percent([]) is None


@pytest.mark.long
@pytest.mark.root
@pytest.mark.skipif(bool(NO_EBPF), reason=NO_EBPF)
def test_flood_reaches_the_server_and_is_dropped() -> None:
    rows = list(forged.run(quick=True))
    floods = [(row["plane"], row["flood_of"]) for row in rows]
    assert floods == [*product(forged.PLANES, (forged.FRAMES, forged.MESSAGES))]
    for row in rows:
        assert row["outcome"].startswith(("ok", "missed")), row
        assert row["forged_per_s"] > 0
        assert row["dropped"] > 0 or row["flood_of"] == forged.MESSAGES
        assert row[forged.AT] < 100
