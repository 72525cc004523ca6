"""Multipath TCP: the data that subflows share, and windows that LIA couples (RFC 6356)."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from pillarbox import topos
from pillarbox.experiments.models.arrays import Ints, Records, zero_records
from pillarbox.experiments.models.packets import simulated_tcp
from pillarbox.experiments.models.packets.bulk import bulk_flows
from pillarbox.experiments.models.packets.controls.lia import lia_increase, lia_window
from pillarbox.experiments.models.packets.multipath import (
    SharedData,
    offer_data,
    process_data_ack,
    receive_data_segment,
    share_data,
    take_data,
)
from pillarbox.experiments.models.packets.simulated_tcp import (
    TcpParameters,
    TcpSimulationResults,
    simulate_tcp_flows,
)
from pillarbox.experiments.models.packets.state import LOSS, NONE, OPEN, RECOVERY, TcpFlow
from pillarbox.experiments.models.packets.subflow_paths import subflow_paths
from pillarbox.experiments.models.simulator.paths import routes
from pillarbox.topos.base.errors import PillarboxError

RATE_BPS, FRAME = 100e6, 9014
TCP = TcpParameters(RATE_BPS, 100 * FRAME, 9000)
GOODPUT_BPS = RATE_BPS * (9000 - 52) / FRAME
NO_LIMIT = 1e9


# -- LIA, RFC 6356, section 3 ---------------------------------------------------------------------

WINDOWS = some.tuples(some.floats(1, 1e4), some.floats(1e-5, 1.0))  # segments, and seconds


def subflow(window: float, round_trip_s: float, **state: Any) -> Any:
    values = {"doing": OPEN, "threshold": 1.0, "increase": 0.0}
    return SimpleNamespace(window=window, round_trip_s=round_trip_s, **(values | state))


def growths(flows: list[Any]) -> list[float]:
    """Return the growth of each subflow's window per acknowledged segment."""
    for flow in flows:
        flow.increase = lia_increase(flows, 0, len(flows))  # type: ignore[arg-type]
    return [lia_window(flow, 1) - flow.window for flow in flows]


@given(some.lists(WINDOWS, min_size=1, max_size=5))
def test_no_subflow_grows_faster_than_tcp_on_its_path(paths: list[tuple[float, float]]) -> None:
    flows = [subflow(*path) for path in paths]
    for flow, growth in zip(flows, growths(flows), strict=True):
        assert 0 < growth <= (1 / flow.window) * (1 + 1e-6) + 1e-9


@given(some.lists(WINDOWS, min_size=1, max_size=5))
def test_all_subflows_together_grow_no_faster_than_tcp_on_the_fastest_path(
    paths: list[tuple[float, float]],
) -> None:
    flows = [subflow(*path) for path in paths]
    increase = lia_increase(flows, 0, len(flows))  # type: ignore[arg-type]
    acked_per_s = [flow.window / flow.round_trip_s for flow in flows]
    # A window of TCP grows by a segment per round trip.
    fastest = max(1 / flow.round_trip_s for flow in flows)
    assert sum(acked_per_s) * increase <= fastest * (1 + 1e-9)


@given(WINDOWS, some.integers(1, 50))
def test_a_single_subflow_grows_as_reno(path: tuple[float, float], segments: int) -> None:
    flow = subflow(*path)
    flow.increase = lia_increase([flow], 0, 1)  # type: ignore[arg-type]
    assert lia_window(flow, segments) == pytest.approx(flow.window + segments / flow.window)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_equal_paths_share_the_growth_of_one_tcp(count: int) -> None:
    # alpha = count x w * (w / rtt^2) / (count x w / rtt)^2 = 1 / count
    flows = [subflow(20.0, 0.01) for _ in range(count)]
    assert growths(flows) == pytest.approx([1 / count / (count * 20)] * count)


def test_growth_on_unequal_paths_as_worked_by_hand() -> None:
    # Rates of 1000 and 500 segments/s; max(10 / 0.01^2, 50 / 0.1^2) = 100,000.
    flows = [subflow(10.0, 0.01), subflow(50.0, 0.1)]
    assert growths(flows) == pytest.approx([1e5 / 1500**2, 1 / 50], rel=1e-6)
    assert 1e5 / 1500**2 < 1 / 10  # the coupling limits the first, TCP's growth the second


def test_a_subflow_in_recovery_counts_with_the_window_to_which_it_falls() -> None:
    flows = [subflow(90.0, 0.01, doing=RECOVERY, threshold=20.0), subflow(20.0, 0.01)]
    assert growths(flows)[1] == pytest.approx(1 / 80)
    flows[0].doing = OPEN
    assert growths(flows)[1] == pytest.approx(90 / 110**2)


# -- shared data ----------------------------------------------------------------------------------


def connection_of(segments: int, subflows: int = 2) -> tuple[SharedData, Records[TcpFlow]]:
    """Return a connection of so many data segments, and its subflows."""
    flows = zero_records(TcpFlow, subflows)
    flows["segments"] = segments
    flows["segment"] = numpy.arange(subflows) * segments
    return share_data(flows, numpy.array([subflows])), flows.view(numpy.recarray)  # type: ignore[attr-defined]


def offered(shared: SharedData, flows: Records[TcpFlow], one: int, most: float = NO_LIMIT) -> int:
    offer_data(shared, flows, one, most)
    return flows[one].segments - flows[one].next


def sent(shared: SharedData, flows: Records[TcpFlow], one: int, most: float = NO_LIMIT) -> int:
    """Let a subflow send a segment; return the data segment that it carries."""
    assert offered(shared, flows, one, most) > 0
    take_data(shared, flows, one, most)
    flows[one].next += 1
    return int(shared.data[flows[one].segment + flows[one].next - 1])


def as_records(shared: SharedData) -> SharedData:
    return shared._replace(connections=shared.connections.view(numpy.recarray))  # type: ignore[attr-defined]


def test_subflows_take_turns_at_one_supply_until_it_ends() -> None:
    shared, flows = connection_of(4)
    shared = as_records(shared)
    assert offered(shared, flows, 0) == 4
    assert [sent(shared, flows, one) for one in (0, 1, 1, 0)] == [0, 1, 2, 3]
    assert offered(shared, flows, 0) == offered(shared, flows, 1) == 0
    # The segment of the last data is the second one of the first subflow.
    assert flows["last"].tolist() == [1, NONE]


def test_the_receive_window_is_of_the_connection() -> None:
    shared, flows = connection_of(10)
    shared = as_records(shared)
    assert [sent(shared, flows, one, 3) for one in (0, 1, 0)] == [0, 1, 2]
    assert offered(shared, flows, 1, 3) == 0
    assert receive_data_segment(shared, flows[0], 0)
    assert shared.connections[0].expected == 1
    assert process_data_ack(shared, flows[0], 1)  # a subflow was blocked
    assert not process_data_ack(shared, flows[0], 1)  # nothing new
    assert offered(shared, flows, 1, 3) == 1
    assert not process_data_ack(shared, flows[0], 2)  # no subflow was blocked


def test_data_of_a_subflow_that_timed_out_are_sent_on_another() -> None:
    shared, flows = connection_of(5)
    shared = as_records(shared)
    assert [sent(shared, flows, one) for one in (0, 0, 1, 0, 1)] == [0, 1, 2, 3, 4]
    assert receive_data_segment(shared, flows[0], 1)  # data segment 1
    assert offered(shared, flows, 1) == 0
    flows[0].doing = LOSS
    shared.connections[0].stranded = 0
    assert [sent(shared, flows, 1), sent(shared, flows, 1)] == [0, 3]
    assert offered(shared, flows, 1) == 0  # the own data are under way
    # The subflow that timed out repeats its segments, and takes nothing new.
    assert offered(shared, flows, 0) == 0
    # What arrives twice counts once.
    assert receive_data_segment(shared, flows[1], 2)
    assert not receive_data_segment(shared, flows[0], 0)
    assert shared.connections[0].expected == 2
    assert shared.connections[0].missing == 3


def test_stranded_data_wait_while_there_are_new_ones() -> None:
    shared, flows = connection_of(6)
    shared = as_records(shared)
    assert [sent(shared, flows, 0), sent(shared, flows, 0)] == [0, 1]
    flows[0].doing = LOSS
    assert [sent(shared, flows, 1) for _ in range(6)] == [2, 3, 4, 5, 0, 1]
    # A subflow has room for each data segment once.
    flows[1].doing = LOSS
    shared.connections[0].stranded = 0
    flows[0].doing = OPEN
    assert [sent(shared, flows, 0) for _ in range(4)] == [0, 1, 2, 3]
    assert offered(shared, flows, 0) == 0


# -- simulations ----------------------------------------------------------------------------------


def across(congestion: str, subflows: int, volume_bytes: int = 20_000_000) -> float:
    """Return the goodput of one connection between opposite servers of bcube,4,1."""
    tcp = replace(TCP, congestion=congestion, subflows=subflows)
    flows = bulk_flows(topos.parse("bcube,4,1"), "bcube", [(0, 15)], volume_bytes, tcp, seed=1)
    found = flows.packets()
    return float(8 * volume_bytes / (found.end_s - found.begin_s)[0])


@pytest.mark.parametrize("congestion", ["reno", "cubic", "lia"])
def test_two_disjoint_paths_give_twice_the_goodput(congestion: str) -> None:
    assert across(congestion, 1) == pytest.approx(GOODPUT_BPS, rel=0.02)
    assert across(congestion, 2) == pytest.approx(2 * GOODPUT_BPS, rel=0.04)


def shared_bottleneck(congestion: str, seed: int) -> float:
    """Return the goodput of two subflows, divided by that of TCP at the same bottleneck."""
    network = topos.parse("tree,4,2")
    source, destination = numpy.array([0, 0, 1]), numpy.array([7, 7, 7])
    forth = routes(network, "", source, destination)
    back = routes(network, "", destination, source)
    tcp = TcpParameters(20e6, 30 * 1514, congestion=congestion, delay_s=0.002)
    starts, volumes = numpy.array([0.0, 0.01]), numpy.full(2, 100_000_000)
    counts = numpy.array([2, 1])
    found = simulate_tcp_flows(
        network, forth, back, starts, volumes, tcp, seed=seed, until_s=40.0, subflows=counts
    )
    several, one = found.arrived_bytes.tolist()
    assert 8 * (several + one) / 40.0 > 0.9 * 20e6 * 1448 / 1514
    return float(several / one)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_lia_shares_a_bottleneck_with_tcp_and_uncoupled_subflows_take_two_shares(
    seed: int,
) -> None:
    assert 0.9 < shared_bottleneck("lia", seed) < 1.15
    assert 1.9 < shared_bottleneck("reno", seed) < 3


@settings(max_examples=25, deadline=None)
@given(
    spec=some.sampled_from(["bcube,2,2", "dcell,2,1", "dpillar,4,2", "ficonn,4,1"]),
    volume_bytes=some.integers(1, 200_000),
    queue_packets=some.integers(1, 40),
    congestion=some.sampled_from(["cubic", "lia"]),
    subflows=some.integers(1, 3),
    seed=some.integers(1, 1000),
)
def test_all_data_arrive_once_and_every_packet_is_accounted_for(
    spec: str, volume_bytes: int, queue_packets: int, congestion: str, subflows: int, seed: int
) -> None:
    queue_bytes = queue_packets * FRAME
    tcp = TcpParameters(RATE_BPS, queue_bytes, 9000, congestion=congestion, subflows=subflows)
    network = topos.parse(spec)
    pairs = [(a, b) for a in range(network.servers) for b in range(network.servers) if a != b]
    flows = bulk_flows(network, "", pairs[:60], volume_bytes, tcp, seed)
    found = flows.packets(moments_s=numpy.array([1e9]))
    count = len(flows.start_s)
    assert len(found.end_s) == len(found.drops) == count
    assert (found.end_s > found.begin_s).all()
    assert found.delivered_bits.tolist() == [8 * volume_bytes * count]
    assert found.arrived_bytes.tolist() == [volume_bytes] * count
    assert found.active.tolist() == [0]
    assert found.drops.sum() == found.dropped.sum()
    same = flows.packets()
    assert (same.end_s == found.end_s).all() and (same.dropped == found.dropped).all()


@pytest.mark.parametrize(("congestion", "exactly"), [("reno", True), ("lia", False)])
def test_a_connection_of_one_subflow_is_tcp(congestion: str, exactly: bool) -> None:
    network = topos.parse("bcube,3,1")
    pairs = [(a, b) for a in range(9) for b in range(9) if a != b]
    forth, back, counts = subflow_paths(network, pairs, subflows=1)
    starts, volumes = numpy.linspace(0, 1e-3, len(pairs)), numpy.full(len(pairs), 700_000)
    tcp = TcpParameters(RATE_BPS, 20 * FRAME, 9000, congestion="reno")

    def simulated(control: str, counts: Ints | None) -> TcpSimulationResults:
        wire = replace(tcp, congestion=control)
        return simulate_tcp_flows(network, forth, back, starts, volumes, wire, subflows=counts)

    plain, multipath = simulated("reno", None), simulated(congestion, counts)
    assert plain.drops.sum() > 0
    if exactly:
        assert (multipath.end_s == plain.end_s).all()
        assert (multipath.passed == plain.passed).all()
    assert multipath.end_s.mean() == pytest.approx(plain.end_s.mean(), rel=0.1)


def test_subflows_together_have_one_receive_window(monkeypatch: pytest.MonkeyPatch) -> None:
    segments, delay_s = 20, 0.01
    monkeypatch.setattr(simulated_tcp, "RECEIVER_BYTES", segments * TCP.segment_bytes)
    tcp = replace(TCP, subflows=2, delay_s=delay_s)
    flows = bulk_flows(topos.parse("bcube,4,1"), "bcube", [(0, 15)], 5_000_000, tcp, seed=1)
    found = flows.packets()
    goodput_bps = 8 * 5_000_000 / float((found.end_s - found.begin_s)[0])
    most_bps = 8 * segments * TCP.segment_bytes / (8 * delay_s)  # 4 cables there, 4 back
    assert 0.7 * most_bps < goodput_bps < most_bps


def test_connections_end_although_subflows_time_out() -> None:
    network = topos.parse("bcube,3,1")
    pairs = [(a, b) for a in range(9) for b in range(9) if a != b]
    tcp = TcpParameters(RATE_BPS, 2 * FRAME, 9000, congestion="lia", subflows=2)
    flows = bulk_flows(network, "", pairs, 200_000, tcp, seed=1)
    found = flows.packets(moments_s=numpy.array([1e9]))
    assert found.timeouts.sum() > len(pairs)
    assert found.delivered_bits.tolist() == [8 * 200_000 * len(pairs)]
    assert found.end_s.max() < 5


def test_a_negative_number_of_subflows_is_refused() -> None:
    with pytest.raises(PillarboxError, match="at least 1 subflow, not -1"):
        replace(TCP, subflows=-1)
