"""Packet log of a trial: from the packets that a lab has logged to the trial's packets.parquet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy

from pillarbox.experiments.models.fluid.ideal import TCP_IP_BYTES
from pillarbox.experiments.models.packets.packet_log import NO_LINK, PacketLog
from pillarbox.experiments.models.workloads.flows import FlowResult
from pillarbox.experiments.runs.plans.experiment import System
from pillarbox.experiments.runs.trials import store
from pillarbox.topos.base.errors import PillarboxError, require
from pillarbox.topos.base.topology import Topology

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pillarbox.experiments.models.arrays import Ints

FILE = "packets.parquet"
KINDS = {
    "at_s": "float64",
    "flow": "int32",
    "link": "int32",
    "packet": "int32",
    "is_ack": "bool",
    "first": "int64",
    "end": "int64",
    "bytes": "int32",
}
PORT_BITS = 16
SEQUENCE_NUMBERS = 1 << 32


def packet_log_of(
    system: System, results: Sequence[FlowResult], barrier_s: float, rows: NDArray[numpy.void]
) -> PacketLog:
    """Return the packet log of a trial's flows from the packets that its lab has logged.

    A packet is identified by its connection, direction, IP identification and data. Packets that
    belong to no flow, or carry neither data nor an acknowledgement of data, are left out.
    """
    flow, is_ack = _flow_of_rows(system.topology, results, rows)
    chosen = (flow >= 0) & (is_ack == (rows["payload"] == 0))
    rows, flow, is_ack = rows[chosen], flow[chosen], is_ack[chosen]
    begins = _first_sequence_numbers(len(results), rows, flow, is_ack)
    numbers = numpy.where(is_ack, rows["acknowledged"], rows["sequence"]).astype(numpy.int64)
    first = (numbers - begins[flow]) % SEQUENCE_NUMBERS
    end = first + rows["payload"]
    link = rows["link"].astype(numpy.int64)
    identity = numpy.stack([flow, is_ack, rows["identification"], first, end], axis=1)
    _, packet = numpy.unique(identity.astype(numpy.int64), axis=0, return_inverse=True)
    packet = packet.reshape(-1)
    # Where a switch detaches a packet from its socket, the packet comes in twice.
    _, kept = numpy.unique(packet * (1 << 32) + link, return_index=True)
    kept.sort()
    return PacketLog(
        at_s=rows["at_ns"][kept] / 1e9 - barrier_s,
        flow=flow[kept],
        link=link[kept],
        packet=packet[kept],
        is_ack=is_ack[kept],
        first=first[kept],
        end=end[kept],
        bytes=_frame_bytes(rows[kept], system.mtu),
    )


def _flow_of_rows(
    topology: Topology, results: Sequence[FlowResult], rows: NDArray[numpy.void]
) -> tuple[Ints, NDArray[numpy.bool_]]:
    """Return the flow of each logged packet (-1: none), and whether it is an acknowledgement."""
    known = {
        topology.ipv4(one.flow.source) << PORT_BITS | one.source_port: one.flow.number
        for one in results
        if one.source_port is not None
    }
    keys = numpy.array(sorted(known), numpy.int64)
    numbers = numpy.array([known[key] for key in keys.tolist()], numpy.int64)
    found = numpy.full(len(rows), -1, numpy.int64)
    is_ack = numpy.zeros(len(rows), bool)
    for end, to_source in (("source", False), ("destination", True)):
        key = rows[end].astype(numpy.int64) << PORT_BITS | rows[f"{end}_port"].astype(numpy.int64)
        at = numpy.minimum(numpy.searchsorted(keys, key), max(len(keys) - 1, 0))
        same = keys[at] == key if len(keys) else numpy.zeros(len(rows), bool)
        found[same], is_ack[same] = numbers[at[same]], to_source
    return found, is_ack


def _first_sequence_numbers(
    flows: int, rows: NDArray[numpy.void], flow: Ints, is_ack: NDArray[numpy.bool_]
) -> Ints:
    """Return the sequence number of each flow's first byte: that of its first packet with data."""
    found = numpy.zeros(flows, numpy.int64)
    data = numpy.flatnonzero(~is_ack)
    seen, at = numpy.unique(flow[data], return_index=True)
    found[seen] = rows["sequence"][data[at]]
    return found


def _frame_bytes(rows: NDArray[numpy.void], mtu: int) -> Ints:
    """Return the size of packets on a cable, where each segment of a super-packet has headers."""
    payload, size = rows["payload"].astype(numpy.int64), rows["bytes"].astype(numpy.int64)
    segments = numpy.maximum(1, -(-payload // (mtu - TCP_IP_BYTES)))
    found: Ints = size + (segments - 1) * (size - payload)
    return found


def write_packets(file: Path, log: PacketLog) -> None:
    """Write a packet log as a Parquet file."""
    import pandas

    columns = {name: getattr(log, name).astype(kind) for name, kind in KINDS.items()}
    pandas.DataFrame(columns).to_parquet(file, index=False, compression="zstd")


def has_packets(trial: Path) -> bool:
    """Return True if a trial's folder has a packet log."""
    return (trial / FILE).is_file()


def read_packets(trial: Path, links: int) -> PacketLog:
    """Return the packet log in a trial's folder, of a network with this number of directed links.

    Raises PillarboxError if there is no packet log, or if it is damaged.
    """
    file = trial / FILE
    require(
        has_packets(trial),
        f"{trial} has no packet log, which needs `pillarbox run ... --log-packets`: run the "
        "experiment again, or explain the same flows in a simulation (--simulated)",
    )
    read = store.read_parquet(file)
    try:
        found = read.astype(KINDS)
    except (LookupError, TypeError, ValueError) as error:
        raise PillarboxError(f"{file} cannot be read: {error}") from None
    log = PacketLog(*(found[name].to_numpy() for name in KINDS))
    problem = _problem_of(log, links)
    require(not problem, f"{file} is damaged: {problem}")
    return log


def _problem_of(log: PacketLog, links: int) -> str:
    """Return the reason why a packet log cannot be explained; empty if there is none."""
    if not numpy.isfinite(log.at_s).all() or (numpy.diff(log.at_s) < 0).any():
        return "its rows are not in the order of time"
    if ((log.link < NO_LINK) | (log.link >= links)).any():
        return f"it has links that the network does not have (0 to {links - 1})"
    if ((log.first < 0) | (log.end < log.first) | (log.bytes < 0)).any():
        return "it has packets of a negative size"
    return ""
