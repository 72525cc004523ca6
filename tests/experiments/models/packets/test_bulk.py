"""Flows of TCP, packet by packet: what they deliver, what is dropped, and where."""

from __future__ import annotations

from dataclasses import replace

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from pillarbox import topos
from pillarbox.experiments.models.fluid.directed_links import Routes
from pillarbox.experiments.models.packets.bulk import BulkFlows, bulk_flows, links_with_most_drops
from pillarbox.experiments.models.packets.simulated_tcp import TcpParameters, simulate_tcp_flows
from pillarbox.experiments.models.simulator.paths import routes
from pillarbox.topos.base.errors import PillarboxError

RATE_BPS, FRAME = 100e6, 9014
TCP = TcpParameters(RATE_BPS, 100 * FRAME, 9000)
GOODPUT_BPS = RATE_BPS * (9000 - 52) / FRAME


def two_to_one(tcp: TcpParameters, volume_bytes: int) -> BulkFlows:
    return bulk_flows(topos.parse("tree,4,2"), "", [(0, 3), (1, 3)], volume_bytes, tcp, seed=1)


@pytest.mark.parametrize("congestion", ["cubic", "reno"])
def test_a_flow_alone_has_the_cable_less_headers(congestion: str) -> None:
    tcp = replace(TCP, congestion=congestion)
    flows = bulk_flows(topos.parse("bcube,4,1"), "bcube", [(0, 15)], 20_000_000, tcp, seed=1)
    found = flows.packets()
    lasting_s = found.end_s[0] - found.begin_s[0]
    assert 8 * 20_000_000 / lasting_s == pytest.approx(GOODPUT_BPS, rel=0.02)
    assert found.timeouts.sum() == 0


def test_two_servers_fill_the_cable_between_them_both_ways() -> None:
    dcell = topos.parse("dcell,4,1")
    (direct,) = (plug.node for _, plug in dcell.neighbours(0) if plug.node < dcell.servers)
    found = bulk_flows(dcell, "", [(0, direct), (direct, 0)], 20_000_000, TCP, seed=1).packets()
    assert 8 * 20_000_000 / found.end_s == pytest.approx(GOODPUT_BPS, rel=0.05)


@settings(max_examples=25, deadline=None)
@given(
    spec=some.sampled_from(["bcube,2,1", "dcell,2,1", "tree,2,3", "ficonn,4,1"]),
    volume_bytes=some.integers(1, 300_000),
    queue_packets=some.integers(1, 40),
    congestion=some.sampled_from(["cubic", "reno"]),
    seed=some.integers(1, 1000),
)
def test_all_that_was_asked_for_arrives_and_every_packet_is_accounted_for(
    spec: str, volume_bytes: int, queue_packets: int, congestion: str, seed: int
) -> None:
    tcp = TcpParameters(RATE_BPS, queue_packets * FRAME, 9000, congestion=congestion)
    network = topos.parse(spec)
    pairs = [(a, b) for a in range(network.servers) for b in range(network.servers) if a != b]
    flows = bulk_flows(network, "", pairs, volume_bytes, tcp, seed)
    found = flows.packets(moments_s=numpy.array([1e9]))
    assert (found.end_s > found.begin_s).all()
    assert found.delivered_bits.tolist() == [8 * volume_bytes * len(pairs)]
    assert found.active.tolist() == [0]
    assert found.drops.sum() == found.dropped.sum()
    segments = -(-volume_bytes // tcp.segment_bytes) * len(pairs)
    # What was dropped was sent again: but for ACKs, whose successors say the same.
    assert found.passed.sum() >= 2 * segments
    same = flows.packets()
    assert (same.end_s == found.end_s).all() and (same.dropped == found.dropped).all()


@pytest.mark.parametrize("missing", ["routes", "back"])
def test_a_flow_without_a_path_in_one_direction_sends_nothing(missing: str) -> None:
    flows = two_to_one(TCP, 100_000)
    whole: Routes = getattr(flows, missing)
    end = whole.starts[1]  # of the first flow's path
    paths = Routes(numpy.array([0, end, end]), whole.links[:end])
    found = replace(flows, **{missing: paths}).packets()
    alone = bulk_flows(flows.topology, "", [(0, 3)], 100_000, TCP, seed=1).packets()
    assert numpy.isnan(found.end_s).tolist() == [False, True]
    assert found.passed.sum() == alone.passed.sum()


def test_two_flows_share_a_cable_about_evenly() -> None:
    found = two_to_one(TCP, 20_000_000).packets()
    first, last = sorted(found.end_s)
    assert 8 * 40_000_000 / last == pytest.approx(GOODPUT_BPS, rel=0.05)
    assert first > 0.75 * last


def test_nothing_is_lost_where_queues_are_long_enough() -> None:
    found = two_to_one(replace(TCP, queue_bytes=1e9), 5_000_000).packets()
    assert found.drops.sum() == found.repeats.sum() == found.timeouts.sum() == 0


def test_tiny_queues_make_flows_time_out_where_they_meet() -> None:
    network = topos.parse("tree,8,2")
    # What a server sends finds room in its own port's queue, and that of seven servers in none.
    tcp = replace(TCP, queue_bytes=5 * FRAME)
    flows = bulk_flows(network, "", [(a, 15) for a in range(8, 15)], 100_000, tcp, seed=1)
    found = flows.packets()
    assert found.timeouts.sum() > 0
    assert found.end_s.max() > flows.fluid().end_s.max() + 0.2  # Linux' least time-out
    assert found.end_s[found.timeouts > 0].min() > 0.2
    assert numpy.isfinite(found.end_s).all()
    assert links_with_most_drops(network, found)[0]["where"] == "s1 to 1.7"


def test_in_a_lab_segments_go_together_and_one_acknowledgement_answers_them() -> None:
    # Else every second one is answered.
    network, segments = topos.parse("tree,4,2"), 1000
    for rate_bps, owed_bytes, together in ((10e6, 3000, 2), (100e6, 18750, 8), (100e6, 0, 2)):
        tcp = TcpParameters(rate_bps, 100 * 1514, owed_bytes=owed_bytes)
        found = bulk_flows(network, "", [(0, 7)], segments * 1448, tcp, 1).packets()
        forth, back = found.passed[found.passed >= segments], found.passed[found.passed < segments]
        assert forth.tolist() == [segments] * 4  # what stands in one packet is counted by itself
        assert 0.9 * segments / together < back.max() < 1.2 * segments / together


def test_another_seed_is_another_course() -> None:
    network = topos.parse("bcube,4,1")
    pairs = [(a, b) for a in range(16) for b in range(16) if a != b]
    one, other = (bulk_flows(network, "", pairs, 300_000, TCP, seed).packets() for seed in (1, 2))
    assert one.end_s.tolist() != other.end_s.tolist()


def test_a_delay_is_one_of_every_cable() -> None:
    near, far = (
        bulk_flows(
            topos.parse("tree,4,2"), "", [(0, 7)], 8948, replace(TCP, delay_s=s), 1
        ).packets()
        for s in (0.0, 0.01)
    )
    assert far.end_s[0] - near.end_s[0] == pytest.approx(4 * 0.01)


def test_slow_start_ends_before_a_queue_overflows() -> None:
    alone = bulk_flows(topos.parse("tree,4,2"), "", [(0, 7)], 5_000_000, TCP, 1).packets()
    assert alone.drops.sum() == 0
    # Without HyStart the window doubles until packets are lost.
    slow = replace(TCP, congestion="reno", queue_bytes=20 * FRAME)
    assert two_to_one(slow, 5_000_000).packets().drops.sum() > 0


def test_a_time_out_that_was_none_is_undone() -> None:
    network, ends = topos.parse("tree,4,2"), numpy.array([[0, 1, 2, 3], [7, 7, 7, 7]])
    paths = routes(network, "", *ends), routes(network, "", *ends[::-1])
    # A connection that knows the network at rest meets a queue that is longer than its time-out.
    starts, volumes = numpy.array([0, 0, 0, 5.0]), numpy.array([2_000_000] * 3 + [60_000])
    found = simulate_tcp_flows(network, *paths, starts, volumes, TcpParameters(1e6, 100 * 1514))
    assert found.timeouts[3] > 0
    # Once a time-out: not all that was under way.
    assert found.repeats[3] <= found.drops[3] + found.timeouts[3] + 1


def test_a_port_at_rest_lets_a_burst_pass_at_once() -> None:
    # It has saved up a frame, and may owe one: two super-packets of two frames pass.
    tcp = replace(TCP, owed_bytes=FRAME)
    two, four, six = (
        bulk_flows(topos.parse("bcube,4,1"), "", [(0, 1)], count * 8948, tcp, 1).packets()
        for count in (2, 4, 6)
    )
    jitter_s = 2 * FRAME * 8 / RATE_BPS
    assert two.end_s[0] - two.begin_s[0] < jitter_s
    assert four.end_s[0] - four.begin_s[0] < jitter_s
    assert six.end_s[0] - six.begin_s[0] > 3 * FRAME * 8 / RATE_BPS


def test_a_relay_that_takes_its_time_bounds_what_passes_it() -> None:
    # Half of what 100 Mbit/s are in frames; ACKs pass another relay.
    tcp = replace(TCP, relay_s=2 * FRAME * 8 / RATE_BPS)
    flows = bulk_flows(topos.parse("bcube,4,1"), "bcube", [(0, 15)], 20_000_000, tcp, seed=1)
    found = flows.packets()
    assert 8 * 20_000_000 / found.end_s[0] == pytest.approx(GOODPUT_BPS / 2, rel=0.05)
    slow = bulk_flows(
        topos.parse("bcube,4,1"), "bcube", [(0, 1)], 20_000_000, tcp, seed=1
    ).packets()
    assert slow.end_s[0] < 0.55 * found.end_s[0]  # nothing relays for neighbours


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"congestion": "bbr"}, "reno, cubic, dctcp, delay, scalable, lia, not 'bbr'"),
        ({"mtu": 40}, "no room for data"),
    ],
)
def test_what_there_is_not_is_said(wrong: dict[str, object], sentence: str) -> None:
    with pytest.raises(PillarboxError, match=sentence):
        replace(TCP, **wrong)  # type: ignore[arg-type]
