"""Packet logs of trials: flows and numbers of packets, from packets as the kernel logs them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import pytest

from pillarbox.experiments.lab.emulation.packet_log import SIGHTING
from pillarbox.experiments.models.packets.packet_log import NO_LINK, PacketLog
from pillarbox.experiments.models.workloads.flows import Flow, FlowResult
from pillarbox.experiments.models.workloads.workload import Workload
from pillarbox.experiments.runs.plans.experiment import Experiment, System
from pillarbox.experiments.runs.trials.experiment_run import orders_of
from pillarbox.experiments.runs.trials.packet_records import (
    FILE,
    packet_log_of,
    read_packets,
    write_packets,
)
from pillarbox.topos.base.errors import PillarboxError, UnsupportedError

SYSTEM = System("tree,2,2", mtu=1500)
SOURCE, DESTINATION = map(SYSTEM.topology.ipv4, (0, 3))
PORT, LISTENER = 40_000, 50_000
ENDS = ("source", "destination", "source_port", "destination_port")
BARRIER_S = 100.0
LINKS = 6  # number of directed links of a network whose packets are logged
BEGIN = (1 << 32) - 1000  # the first sequence number; the flow's data pass 0
RESULTS = [
    FlowResult(Flow(0, 1, 2), "generator", source_port=None),
    FlowResult(Flow(1, 0, 3), "generator", source_port=PORT),
]


def sighting(at_s: float, link: int, payload: int, **changes: int) -> tuple[Any, ...]:
    """Return a data packet of flow 1 as the kernel logs it; `is_ack` turns it round."""
    is_ack = changes.pop("is_ack", 0)
    ends: tuple[int, ...] = (SOURCE, DESTINATION, PORT, LISTENER)
    if is_ack:
        ends = (DESTINATION, SOURCE, LISTENER, PORT)
    row: dict[str, int] = {"at_ns": round((BARRIER_S + at_s) * 1e9), "link": link}
    row |= dict(
        zip(("source", "destination", "source_port", "destination_port"), ends, strict=True)
    )
    row |= {"sequence": BEGIN, "acknowledged": 7, "identification": 1}
    row |= {"payload": payload, "bytes": payload + 66} | changes
    return tuple(row[name] for name in SIGHTING.names or ())


def log_of(*rows: tuple[Any, ...]) -> PacketLog:
    return packet_log_of(SYSTEM, RESULTS, BARRIER_S, numpy.array(list(rows), SIGHTING))


def test_positions_count_from_the_first_byte_past_the_end_of_sequence_numbers() -> None:
    log = log_of(
        sighting(0.1, NO_LINK, 1448),
        sighting(0.2, NO_LINK, 100, sequence=448, identification=2),
        sighting(0.3, NO_LINK, 0, is_ack=1, acknowledged=548),
    )
    assert log.at_s.tolist() == pytest.approx([0.1, 0.2, 0.3])
    assert log.flow.tolist() == [1, 1, 1]
    assert log.is_ack.tolist() == [False, False, True]
    assert list(zip(log.first, log.end, strict=True)) == [(0, 1448), (1448, 1548), (1548, 1548)]


def test_a_repetition_is_another_packet_and_a_second_sighting_is_none() -> None:
    log = log_of(
        sighting(0.1, NO_LINK, 10),
        sighting(0.2, 5, 10),
        sighting(0.3, 5, 10),
        sighting(0.4, NO_LINK, 10, identification=2),
        sighting(0.5, 5, 10, identification=2),
    )
    assert log.link.tolist() == [NO_LINK, 5, NO_LINK, 5]
    assert log.packet.tolist() == [0, 0, 1, 1]
    assert log.at_s.tolist() == pytest.approx([0.1, 0.2, 0.4, 0.5])


def test_packets_of_no_flow_are_left_out() -> None:
    log = log_of(
        sighting(0.1, 0, 10, source=DESTINATION),
        sighting(0.1, 0, 10, source_port=PORT + 1),
        sighting(0.1, 0, 0),  # the source's ACK of the handshake
        sighting(0.2, 0, 10),
    )
    assert log.at_s.tolist() == pytest.approx([0.2])
    assert len(log_of().at_s) == 0


def test_each_segment_of_a_super_packet_has_headers() -> None:
    log = log_of(sighting(0.1, 0, 1448), sighting(0.2, 0, 1449), sighting(0.3, 0, 2 * 1448))
    assert log.bytes.tolist() == [1448 + 66, 1449 + 2 * 66, 2 * (1448 + 66)]


def test_a_written_log_is_read_again(tmp_path: Path) -> None:
    log = log_of(sighting(0.1, NO_LINK, 10), sighting(0.2, 5, 10))
    write_packets(tmp_path / FILE, log)
    for column, again in zip(log, read_packets(tmp_path, LINKS), strict=True):
        assert column.tolist() == again.tolist()


@pytest.mark.parametrize(
    "system",
    [
        System("bcube,2,1", rate_mbit=20, transport="mptcp"),
        System("bcube,2,1", rate_mbit=20, machines=2),
    ],
)
def test_only_tcp_on_one_machine_is_logged(system: System) -> None:
    workload = Workload(volume_bytes=1000)
    experiment = Experiment("small", "", (system,), workload, log_packets=True)
    with pytest.raises(UnsupportedError, match="omit --log-packets"):
        orders_of(experiment)
    orders_of(replace(experiment, log_packets=False))


def test_missing_and_damaged_logs_are_sentences(tmp_path: Path) -> None:
    with pytest.raises(PillarboxError, match="--log-packets"):
        read_packets(tmp_path, LINKS)
    (tmp_path / FILE).write_bytes(b"PAR1")
    with pytest.raises(PillarboxError, match="cannot be read"):
        read_packets(tmp_path, LINKS)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"at_s": [0.2, 0.1]}, "order of time"),
        ({"at_s": [0.1, numpy.inf]}, "order of time"),
        ({"link": [NO_LINK, LINKS]}, "links that the network does not have"),
        ({"link": [NO_LINK - 1, 0]}, "links that the network does not have"),
        ({"first": [-1, 0]}, "negative size"),
        ({"end": [9, -1]}, "negative size"),
        ({"bytes": [-1, 9]}, "negative size"),
    ],
)
def test_packets_that_no_network_sends_are_a_sentence(
    tmp_path: Path, changes: dict[str, list[float]], words: str
) -> None:
    log = log_of(sighting(0.1, NO_LINK, 10), sighting(0.2, LINKS - 1, 10))
    write_packets(tmp_path / FILE, log)
    read_packets(tmp_path, LINKS)
    write_packets(
        tmp_path / FILE,
        log._replace(**{name: numpy.array(column) for name, column in changes.items()}),
    )
    with pytest.raises(PillarboxError, match=words):
        read_packets(tmp_path, LINKS)
