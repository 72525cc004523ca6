"""Parts of completion times: logs drawn by hand, simulations whose waits are known, and any log."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pillarbox import topos
from pillarbox.experiments.models.fluid.directed_links import link_at, link_count
from pillarbox.experiments.models.packets import critical_path as parts_of
from pillarbox.experiments.models.packets.critical_path import (
    CriticalPaths,
    FlowToExplain,
    Outage,
    Ports,
)
from pillarbox.experiments.models.packets.packet_log import NO_LINK, PacketLog
from pillarbox.experiments.models.packets.simulated_tcp import TcpParameters, simulate_tcp_flows
from pillarbox.experiments.models.simulator.paths import routes
from pillarbox.topos.base.errors import PillarboxError
from pillarbox.topos.base.topology import Topology

# Links of the logs drawn by hand: server 0 to switch 2, switch 2 to server 1, and back.
UP, DOWN, BACK_UP, BACK_DOWN = range(4)
HEADS = numpy.array([2, 1, 2, 0])
RATE_BPS = 8e6  # 1000 bytes take 1 ms
SIZE = 1000
FLOW = FlowToExplain(0, source=0, destination=1, start_s=0.0, end_s=0.1, volume_bytes=SIZE)


def ports(rate_bps: float = RATE_BPS, burst_s: float = 0.0, delay_s: float = 0.0) -> Ports:
    same = (numpy.full(len(HEADS), float(value)) for value in (rate_bps, burst_s, delay_s))
    return Ports(HEADS, *same)


def log_of(*events: tuple[float, int, int, int, bool, int]) -> PacketLog:
    """Return a log of events: time in ms, flow, link, packet, whether an ACK, first byte."""
    at_ms, flow, link, packet, is_ack, first = map(numpy.array, zip(*events, strict=True))
    size = numpy.where(is_ack, 0, SIZE)
    frames = numpy.where(is_ack, 50, SIZE)
    return PacketLog(at_ms / 1e3, flow, link, packet, is_ack, first, first + size, frames)


def data(packet: int, *at_ms: float, first: int = 0, flow: int = 0) -> list[Any]:
    """Return the events of a data packet: sent, after its first link, after its second."""
    return [
        (time_ms, flow, link, packet, False, first)
        for time_ms, link in zip(at_ms, (NO_LINK, UP, DOWN), strict=False)
    ]


def ack(packet: int, *at_ms: float, first: int = 0) -> list[Any]:
    return [
        (time_ms, 0, link, packet, True, first)
        for time_ms, link in zip(at_ms, (NO_LINK, BACK_UP, BACK_DOWN), strict=True)
    ]


def explained(
    events: list[Any],
    *,
    volume_bytes: int = SIZE,
    end_ms: float,
    outages: tuple[Outage, ...] = (),
    **of_ports: float,
) -> dict[tuple[str, int], float]:
    """Return the parts of flow 0 in ms, by kind and link."""
    log = log_of(*sorted(events, key=lambda event: event[0]))
    wanted = FLOW._replace(volume_bytes=volume_bytes, end_s=end_ms / 1e3)
    found = CriticalPaths(log, ports(**of_ports), outages).parts(wanted)
    assert sum(part.seconds for part in found) == pytest.approx(end_ms / 1e3, rel=1e-9)
    in_ms = {(part.kind, part.link): round(part.seconds * 1e3, 6) for part in found}
    return {key: value for key, value in in_ms.items() if value}


def test_a_packet_waits_behind_packets_of_other_flows() -> None:
    # Packets of flows 1 and 2 leave the second port from 2 ms to 3 ms and from 3 ms to 4 ms.
    others = [(3.0, 1, DOWN, 8, False, 0), (4.0, 2, DOWN, 9, False, 0)]
    found = explained([*data(1, 1.0, 2.0, 5.0), *others], end_ms=5.0)
    assert found == {
        (parts_of.START, NO_LINK): 1.0,
        (parts_of.SENDING, UP): 1.0,
        (parts_of.WAITING, DOWN): 2.0,
        (parts_of.SENDING, DOWN): 1.0,
    }


def test_bytes_that_left_before_count_only_as_a_burst() -> None:
    # The port has sent a packet of flow 1 at 1 ms, and owes its time if it sends bursts.
    events = [(1.0, 1, DOWN, 8, False, 0), *data(1, 0.0, 1.0, 3.0)]
    assert explained(events, end_ms=3.0)[parts_of.MACHINE, DOWN] == 1.0
    assert explained(events, end_ms=3.0, burst_s=0.001)[parts_of.WAITING, DOWN] == 1.0


def test_cables_with_a_delay_and_without_a_rate() -> None:
    events = data(1, 0.0, 2.0, 5.0)
    found = explained(events, end_ms=5.0, delay_s=0.002, rate_bps=numpy.inf)
    assert found == {
        (parts_of.PROPAGATION, UP): 2.0,
        (parts_of.PROPAGATION, DOWN): 2.0,
        (parts_of.MACHINE, DOWN): 1.0,
    }


def test_the_window_opens_with_an_ack() -> None:
    events = [*data(1, 0.0, 1.0, 2.0), *ack(2, 42.0, 42.05, 42.1, first=SIZE)]
    events += data(3, 42.6, 43.6, 44.6, first=SIZE)
    found = explained(events, volume_bytes=2 * SIZE, end_ms=45.0)
    assert found[parts_of.ACK_DELAY, NO_LINK] == 40.0
    assert found[parts_of.SENDER, NO_LINK] == 0.5
    assert found[parts_of.MACHINE, DOWN] == 0.4
    assert found[parts_of.SENDING, BACK_UP] == 0.05


def test_data_of_the_flow_that_leaves_its_own_port_makes_room() -> None:
    events = [*data(1, 0.0, 1.0, 2.0), *data(2, 1.1, 2.1, 3.1, first=SIZE)]
    found = explained(events, volume_bytes=2 * SIZE, end_ms=3.1)
    assert found == {
        (parts_of.SENDING, UP): 2.0,
        (parts_of.SENDER, NO_LINK): 0.1,
        (parts_of.SENDING, DOWN): 1.0,
    }


def lost_then_repeated(sent_ms: float, *acks: Any) -> list[Any]:
    """Return events in which the second of two packets is lost at the second port."""
    events = [*data(1, 0.0, 1.0, 2.0), *data(2, 1.0, 2.0, first=SIZE)]
    end_ms = sent_ms + 2.0
    return [*events, *acks, *data(9, sent_ms, sent_ms + 1.0, end_ms, first=SIZE)]


def test_a_timeout_counts_from_the_lost_transmission() -> None:
    events = lost_then_repeated(201.0, *ack(3, 2.0, 2.05, 2.1, first=SIZE))
    found = explained(events, volume_bytes=2 * SIZE, end_ms=203.0)
    assert found[parts_of.TIMEOUT, DOWN] == 200.0
    assert (parts_of.RECOVERY, DOWN) not in found


def test_a_repetition_soon_after_an_ack_is_fast_recovery() -> None:
    events = lost_then_repeated(4.0, *ack(3, 3.0, 3.05, 3.9, first=SIZE))
    found = explained(events, volume_bytes=2 * SIZE, end_ms=6.0)
    assert found[parts_of.RECOVERY, DOWN] == 3.0
    assert (parts_of.TIMEOUT, DOWN) not in found


@pytest.mark.parametrize(("silent_ms", "kind"), [(1.9, "recovery"), (2.1, "timeout")])
def test_silence_of_half_a_round_trip_is_a_timeout(silent_ms: float, kind: str) -> None:
    # The round trip of the ACK is 4 ms: packet 1 is sent at 0 ms, its ACK arrives at 4 ms.
    events = lost_then_repeated(4.0 + silent_ms, *ack(3, 2.0, 2.05, 4.0, first=SIZE))
    found = explained(events, volume_bytes=2 * SIZE, end_ms=6.0 + silent_ms)
    assert found[kind, DOWN] == pytest.approx(3.0 + silent_ms)


@pytest.mark.parametrize(
    ("lost", "kind", "link"),
    [(True, "timeout", BACK_DOWN), (False, "sender", NO_LINK)],
)
def test_new_data_after_a_lost_ack_is_sent_by_a_timer(lost: bool, kind: str, link: int) -> None:
    # An ACK arrives at 2.1 ms; that of packet 2 is lost at the last port, or not logged at all.
    events = [*data(1, 0.0, 1.0, 2.0), *ack(2, 2.0, 2.05, 2.1, first=SIZE)]
    events += data(3, 1.0, 2.05, 3.0, first=SIZE)
    events += ack(4, 3.0, 3.05, 3.1, first=2 * SIZE)[:2] if lost else []
    events += data(5, 52.1, 53.1, 54.1, first=2 * SIZE)
    found = explained(events, volume_bytes=3 * SIZE, end_ms=54.1)
    assert found[kind, link] == 50.0


def test_a_timeout_within_a_recovery_is_not_recovery() -> None:
    # Packets 2 and 3 are lost; 2 is repeated by a timeout, 3 by the ACK of that repetition.
    events = lost_then_repeated(201.0, *ack(3, 2.0, 2.05, 2.1, first=SIZE))
    events += data(4, 1.5, 2.5, first=2 * SIZE)
    events += ack(5, 203.0, 203.1, 203.5, first=2 * SIZE)
    events += data(6, 204.0, 205.0, 206.0, first=2 * SIZE)
    found = explained(events, volume_bytes=3 * SIZE, end_ms=206.0)
    assert found[parts_of.TIMEOUT, DOWN] == pytest.approx(201.0 - 2.1)
    assert found[parts_of.RECOVERY, DOWN] == pytest.approx(204.0 - 1.5 - (201.0 - 2.1))


@pytest.mark.parametrize(("begin_ms", "kind"), [(200.9, "rerouting"), (201.1, "timeout")])
def test_a_loss_at_a_fault_is_rerouting(begin_ms: float, kind: str) -> None:
    events = lost_then_repeated(201.0, *ack(3, 2.0, 2.05, 2.1, first=SIZE))
    outage = Outage(7, begin_ms / 1e3, 0.3)
    found = explained(events, volume_bytes=2 * SIZE, end_ms=203.0, outages=(outage,))
    assert found[kind, DOWN] == 200.0


def test_pieces_of_a_split_super_packet_are_its_own() -> None:
    whole = (0.0, 0, NO_LINK, 1, False, 0)
    pieces = [*data(2, 0.0, 1.0, 2.0)[1:], *data(3, 0.0, 2.0, 3.0, first=SIZE)[1:]]
    log = log_of(whole, *pieces)
    end = log.end.copy()
    end[0] = 2 * SIZE
    wanted = FLOW._replace(volume_bytes=2 * SIZE, end_s=0.003)
    found = CriticalPaths(log._replace(end=end), ports()).parts(wanted)
    assert {part.kind for part in found} == {parts_of.SENDING}


def test_what_is_not_logged_is_not_invented() -> None:
    assert explained(data(1, 0.0, 1.0), end_ms=7.0) == {(parts_of.UNKNOWN, NO_LINK): 7.0}
    late = explained(data(1, 0.0, 1.0, 2.0), end_ms=0.9)  # the log does not fit the records
    assert late == {(parts_of.UNKNOWN, NO_LINK): 0.9}
    without_sender = data(1, 0.0, 1.0, 2.0)[1:]
    assert explained(without_sender, end_ms=2.0)[parts_of.UNKNOWN, NO_LINK] == 1.0


def test_a_flow_lasts_until_its_last_delivery() -> None:
    # The program read the clock 0.9 ms before the data came.
    log = log_of(*data(1, 0.0, 1.0, 2.0))
    found = CriticalPaths(log, ports()).parts(FLOW._replace(end_s=0.0011))
    assert sum(part.seconds for part in found) == pytest.approx(0.002)


EVENTS = st.lists(
    st.tuples(
        st.floats(0.0, 90.0),
        st.integers(0, 2),
        st.integers(NO_LINK, BACK_DOWN),
        st.integers(0, 6),
        st.booleans(),
        st.integers(0, 4).map(lambda number: number * SIZE),
    ),
    min_size=1,
    max_size=40,
)


def arrivals_before_sending(log: PacketLog) -> bool:
    """Return True if a packet of flow 0 passes a link before it is sent."""
    rows = [
        (int(packet), int(link))
        for flow, packet, link in zip(log.flow, log.packet, log.link, strict=True)
        if flow == 0
    ]
    return any(
        link == NO_LINK and any(packet == other for other, _ in rows[:at])
        for at, (packet, link) in enumerate(rows)
    )


def test_a_packet_that_arrives_before_it_is_sent_is_an_error() -> None:
    early = [(50.0, 0, NO_LINK, 0, False, 0), *ack(1, 20, 30, 40, first=SIZE)]
    log = log_of(*sorted([*data(0, 5, 6, 10)[1:], *early]))
    with pytest.raises(PillarboxError, match="packet 0 of flow 0 arrives before it is sent"):
        CriticalPaths(log, ports()).parts(FLOW)


@given(EVENTS, st.integers(1, 4 * SIZE), st.floats(0.0, 0.01), st.floats(0.0, 0.01))
@settings(max_examples=300, deadline=None)
def test_parts_of_any_log_add_up(
    events: list[Any], volume_bytes: int, delay_s: float, burst_s: float
) -> None:
    log = log_of(*sorted(events, key=lambda event: event[0]))
    one = CriticalPaths(log, ports(delay_s=delay_s, burst_s=burst_s))
    try:
        found = one.parts(FLOW._replace(volume_bytes=volume_bytes))
    except PillarboxError:
        assert arrivals_before_sending(log)
        return
    assert sum(part.seconds for part in found) == pytest.approx(0.1, rel=1e-9)
    assert all(part.seconds >= 0 for part in found)


# -- simulations ---------------------------------------------------------------------------------


def ports_of(topology: Topology, rate_bps: float) -> Ports:
    heads = numpy.full(link_count(topology), NO_LINK)
    for node in range(topology.nodes):
        for port, plug in topology.neighbours(node):
            heads[link_at(topology, node, port)] = plug.node
    zeros = numpy.zeros(len(heads))
    return Ports(heads, zeros + rate_bps, zeros, zeros)


def test_in_simulations_losses_and_waits_are_where_they_were() -> None:
    tree, rate_bps = topos.parse("tree,2,2"), 20e6
    random, count = numpy.random.default_rng(1), 60
    sources = random.integers(0, 4, count)
    ends = sources, (sources + random.integers(1, 4, count)) % 4
    volumes, starts_s = random.integers(1, 200_000, count), numpy.sort(random.random(count))
    tcp = TcpParameters(rate_bps=rate_bps, queue_bytes=30_000)
    paths = routes(tree, "", *ends), routes(tree, "", *ends[::-1])
    found = simulate_tcp_flows(tree, *paths, starts_s, volumes, tcp, logs_packets=True)
    assert found.log is not None
    explain = CriticalPaths(found.log, ports_of(tree, rate_bps))
    whole_s: Counter[str] = Counter()
    rows = zip(*ends, starts_s, found.end_s, volumes, strict=True)
    for number, (source, destination, start_s, end_s, volume) in enumerate(rows):
        parts = explain.parts(
            FlowToExplain(number, source, destination, start_s, end_s, int(volume))
        )
        assert sum(part.seconds for part in parts) == pytest.approx(end_s - start_s, rel=1e-9)
        for part in parts:
            whole_s[part.kind] += part.seconds
            if part.kind in (parts_of.TIMEOUT, parts_of.RECOVERY):
                assert part.link == NO_LINK or found.dropped[part.link] > 0
    # The simulation has no programs: only servers' random sending times are not in queues.
    assert whole_s[parts_of.UNKNOWN] == 0
    assert whole_s[parts_of.MACHINE] < 0.02 * whole_s.total()
    assert whole_s[parts_of.TIMEOUT] > 0 and whole_s[parts_of.WAITING] > 0


def test_a_log_changes_no_simulation() -> None:
    tree = topos.parse("tree,2,2")
    ends = numpy.array([0, 1]), numpy.array([3, 3])
    paths = routes(tree, "", *ends), routes(tree, "", *ends[::-1])
    flows = numpy.zeros(2), numpy.array([3_000_000, 100_000])
    tcp = TcpParameters(rate_bps=20e6, queue_bytes=30_000)
    plain, logged = (
        simulate_tcp_flows(tree, *paths, *flows, tcp, logs_packets=logs) for logs in (False, True)
    )
    assert plain.end_s.tolist() == logged.end_s.tolist()
    assert plain.log is None and logged.log is not None
    assert len(logged.log.at_s) > 1 << 13
    # Each packet is sent once; a link passes as many packets as the log shows.
    passed = logged.log.link[logged.log.link != NO_LINK]
    segments = numpy.maximum(1, -(-(logged.log.end - logged.log.first) // tcp.segment_bytes))
    counts = numpy.zeros(len(logged.passed))
    numpy.add.at(counts, passed, segments[logged.log.link != NO_LINK])
    assert counts.tolist() == logged.passed.tolist()
