"""Parts of a network: their links, the lookahead, and when threads simulate them."""

from __future__ import annotations

from dataclasses import replace
from threading import Thread
from typing import Any

import numpy
import pytest

from pillarbox import topos
from pillarbox.experiments.models.fluid.directed_links import link_at
from pillarbox.experiments.models.packets import partition, simulated_tcp, simulation_run
from pillarbox.experiments.models.packets.bulk import BulkFlows, bulk_flows
from pillarbox.experiments.models.packets.packet_engine import EVENTS_PER_CALL
from pillarbox.experiments.models.packets.partition import Partition
from pillarbox.experiments.models.packets.simulated_tcp import TcpParameters
from pillarbox.experiments.models.packets.simulation_state import (
    SimulationState,
    entry_link,
    entry_part,
    is_last_entry,
)
from pillarbox.topos.base.errors import PillarboxError

TCP = TcpParameters(rate_bps=100e6, queue_bytes=50_000, delay_s=1e-6)
ACK_S = 66 * 8 / 100e6  # transmission time of an ACK


def all_to_all(spec: str, tcp: TcpParameters = TCP, volume_bytes: int = 100_000) -> BulkFlows:
    network = topos.parse(spec)
    servers = range(network.servers)
    pairs = [(one, other) for one in servers for other in servers if one != other]
    return bulk_flows(network, "", pairs, volume_bytes, tcp, seed=1)


def divided(flows: BulkFlows, monkeypatch: pytest.MonkeyPatch, parts: int) -> Partition:
    """Return the partition by which the packet simulation divides the network."""
    found: list[Partition] = []

    def divide(*arguments: Any) -> Partition:
        found.append(partition.divide(*arguments))
        return found[0]

    monkeypatch.setattr(simulated_tcp, "divide", divide)
    flows.packets(parts=parts)
    return found[0]


def test_parts_are_halves_of_a_bcube(monkeypatch: pytest.MonkeyPatch) -> None:
    flows = all_to_all("bcube,4,1")
    found = divided(flows, monkeypatch, 2)
    network, links = flows.topology, entry_link(found.paths)
    assert (links == numpy.concatenate([flows.routes.links, flows.back.links])).all()
    assert numpy.flatnonzero(is_last_entry(found.paths))[0] == flows.routes.starts[1] - 1
    # A packet from server 3.0 to its switch of level 1 reaches the part of the next server.
    from_server = links == link_at(network, 12, 1)
    after = links[numpy.flatnonzero(from_server) + 1]
    to_lower = numpy.isin(after, [link_at(network, 20, port) for port in (0, 1)])
    assert (entry_part(found.paths[from_server]) == numpy.where(to_lower, 0, 1)).all()
    # The switches of level 0 connect servers of the same half.
    of_level_0 = numpy.isin(links, [link_at(network, server, 0) for server in range(16)])
    assert (entry_part(found.paths[of_level_0]) == (links[of_level_0] >= 16)).all()
    assert numpy.bincount(found.of_flow).tolist() == [120, 120]
    assert found.lookahead_s == pytest.approx((ACK_S + 1e-6) * 0.999)


def test_flows_that_have_a_path_in_one_direction_only_do_not_matter() -> None:
    flows = all_to_all("bcube,4,1")
    shorter = len(flows.back.links) - int(flows.back.starts[1])
    starts = numpy.append(0, flows.back.starts[1:] - flows.back.starts[1])
    flows = replace(
        flows, back=flows.back._replace(starts=starts, links=flows.back.links[-shorter:])
    )
    one, two = (flows.packets(parts=parts) for parts in (1, 2))
    assert (one.parts, two.parts) == (1, 2)
    assert numpy.isnan(two.end_s).tolist() == [True] + [False] * 239
    numpy.testing.assert_array_equal(one.end_s, two.end_s)


def test_parts_have_equal_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    network = topos.parse("bcube,4,1")
    pairs = [(one, other) for one in range(4) for other in range(4) if one != other]
    flows = bulk_flows(network, "", pairs, 100_000, TCP, seed=1)
    assert numpy.bincount(divided(flows, monkeypatch, 2).of_flow).tolist() == [6, 6]


@pytest.mark.parametrize(("delay_s", "parts"), [(0.0, 1), (1e-5, 2)])
def test_ports_that_send_bursts_have_no_lookahead_but_their_delay(
    delay_s: float, parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    flows = all_to_all("bcube,4,1", replace(TCP, delay_s=delay_s, owed_bytes=18_750))
    found = divided(flows, monkeypatch, 2)
    assert (found.parts, found.lookahead_s) == (parts, (delay_s or partition.LONGEST_S) * 0.999)


@pytest.mark.parametrize(
    ("least_packets", "least_in_window", "idle", "parts"),
    [
        (1, 0.0, 4, 4),
        (1, 0.0, 1, 1),
        (10**7, 0.0, 4, 1),
        (1, 0.2, 64, 4),
        (1, 0.21, 64, 3),
        (1, 0.8, 3, 2),
        (1, 0.85, 4, 1),
    ],
)
def test_threads_simulate_parts_if_windows_have_enough_packets(
    least_packets: int,
    least_in_window: float,
    idle: int,
    parts: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # 64 links send a frame each 121 us, and the lookahead is 6.3 us: 3.3 packets in a window.
    monkeypatch.setattr(partition, "LEAST_PACKETS", least_packets)
    monkeypatch.setattr(partition, "LEAST_IN_WINDOW", least_in_window)
    monkeypatch.setattr(partition, "idle_processors", lambda: idle)
    flows = all_to_all("bcube,4,1", volume_bytes=5_000)
    assert divided(flows, monkeypatch, 0).parts == parts


@pytest.mark.parametrize("parts", [-1, 65])
def test_number_of_parts_that_is_refused(parts: int) -> None:
    with pytest.raises(PillarboxError, match=f"not {parts}"):
        all_to_all("bcube,4,1").packets(parts=parts)


def test_late_times_are_too_coarse_for_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    # Windows of 6.3 us, shortened by 6.3 ns, of which an eighth is 0.8 ns. Times have a spacing of
    # 0.47 ns from 2**21 s on, and of 0.93 ns from 2**22 s on.
    flows = all_to_all("bcube,4,1")
    for late_s, parts in ((2.0**22 - 1000, 2), (2.0**22, 1)):
        late = replace(flows, start_s=flows.start_s + late_s)
        assert divided(late, monkeypatch, 2).parts == parts


def test_windows_without_packets_between_parts_end(monkeypatch: pytest.MonkeyPatch) -> None:
    network = topos.parse("bcube,4,1")
    pairs = [(0, 1), (1, 0), (14, 15), (15, 14)]
    found = divided(bulk_flows(network, "", pairs, 10_000, TCP, seed=1), monkeypatch, 2)
    assert (found.parts, found.lookahead_s) == (2, partition.LONGEST_S * 0.999)


def test_an_error_at_the_start_of_a_thread_ends_all(monkeypatch: pytest.MonkeyPatch) -> None:
    start, started = Thread.start, []

    def fail(thread: Thread) -> None:
        if started:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    flows = all_to_all("bcube,4,1")
    monkeypatch.setattr(Thread, "start", fail)
    with pytest.raises(RuntimeError, match="start new thread"):
        flows.packets(parts=3)


def test_compiled_code_returns_after_a_number_of_events(monkeypatch: pytest.MonkeyPatch) -> None:
    returned = []

    def count(state: SimulationState) -> SimulationState:
        returned.append(state)
        return state

    monkeypatch.setattr(simulated_tcp, "FIRST_PACKETS", 1 << 14)
    monkeypatch.setattr(simulation_run, "_enlarge", count)
    found = all_to_all("bcube,4,1", volume_bytes=4_000_000).packets(parts=1)
    assert len(returned) == found.events // EVENTS_PER_CALL > 0


def test_an_error_in_a_thread_ends_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> Any:
        raise MemoryError

    monkeypatch.setattr(simulated_tcp, "FIRST_PACKETS", 16)
    monkeypatch.setattr(simulation_run, "_enlarge", fail)
    with pytest.raises(MemoryError):
        all_to_all("bcube,4,1").packets(parts=2)
