"""Readers of files that users bring: hosts, traces, flow sizes, captures (see `_readers`)."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pillarbox.topos.base.spec import parse
from tests.benches._mutations import text_corpus

HOSTS = """\
hosts = ["10.0.0.2", "10.0.0.3"]
addresses = ["10.1.0.2", "10.1.0.3"]
user = "root"
key = "~/.ssh/id_ed25519"
port = 22
pillarbox = "/opt/pillarbox/pillarbox"
weights = [2, 1]
"""
TRACE = "time_s,source,destination,bytes\n0.0,0.0,1.1,1500\n0.1,1,2,1e6\n0.1,0.1.bcube,1.0,30\n"
TIMES = "student,handed_in\nanna,2026-03-01T23:59\nbert,2026-03-02T00:10+00:00\n"
SIZES = "# bytes share\n1 0\n1000 0.5\n1e6, 1.0\n"
REPORT = {
    "start": {"version": "iperf 3.12"},
    "intervals": [
        {"streams": [{"start": 0, "end": 0.1, "bytes": 125000, "rtt": 70, "retransmits": 0}]},
        {"streams": [{"start": 0.1, "end": 0.2, "bytes": 125000, "rtt": 71, "omitted": False}]},
    ],
    "end": {"sum_received": {"bytes": 250000}},
}


@contextmanager
def file_reader(name: str, read: Callable[[Path], object]) -> Iterator[Callable[[bytes], object]]:
    """Yield a function that writes a fuzz input to a file and reads the file by `read`."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / name

        def written(data: bytes) -> object:
            file.write_bytes(data)
            return read(file)

        yield written


@contextmanager
def hosts_file_reader() -> Iterator[Callable[[bytes], object]]:
    from pillarbox.experiments.apps.cluster.ssh_hosts import read

    with file_reader("HOSTS.toml", lambda file: read(file).ssh("a")) as reading:
        yield reading


def trace_corpus() -> tuple[bytes, ...]:
    header = "time_s,source,destination,bytes\n"
    found = ("0.0,,1.1,1500\n", f"0.0,0.0,1.1,{'9' * 400}\n", "0.0,0.0,1.1,1e99\n")
    return text_corpus(TRACE, *(header + row for row in found), header + "1" + ",0" * 70_000)


def trace_reader(ending: str) -> Callable[[], Any]:
    @contextmanager
    def prepared() -> Iterator[Callable[[bytes], object]]:
        from pillarbox.experiments.models.workloads.traces import read_trace

        topology = parse("bcube,2,1")
        with file_reader(f"flows{ending}", lambda file: read_trace(topology, file)) as read:
            yield read

    return prepared


def parquet_corpus() -> tuple[bytes, ...]:
    import pyarrow
    from pyarrow import parquet

    ends: dict[str, list[Any]] = {
        "source": ["0.0", "0.1", "1.0"],
        "destination": ["1.1", "1.0", "0.0"],
    }
    numbers: dict[str, list[Any]] = {"time_s": [0.0, 0.5, 1.0], "bytes": [1500, 10**6, 30]}
    tables: list[dict[str, list[Any]]] = [
        {**numbers, **ends},
        {**numbers, "source": [0, 1, 2], "destination": [3, 2, 0]},
        {**numbers, **ends, "source": ["0.0", None, "1.0"]},
        {**numbers, **ends, "bytes": ["1", "2", "3"]},
        {**numbers, **ends, "time_s": [None, 1.0, 2.0]},
        {**numbers, **ends, "source": [["0.0"], [], None]},
    ]
    found = []
    for table in tables:
        for compression in ("snappy", "none"):
            buffer = io.BytesIO()
            parquet.write_table(pyarrow.table(table), buffer, compression=compression)
            found.append(buffer.getvalue())
    return tuple(found)


@contextmanager
def flow_sizes_reader() -> Iterator[Callable[[bytes], object]]:
    from pillarbox.experiments.models.workloads.sizes import read_sizes

    with file_reader("mine.cdf", lambda file: read_sizes(file).mean_bytes) as read:
        yield read


def read_report(data: bytes) -> None:
    from pillarbox.experiments.lab.traffic.iperf3_output import (
        cut_intervals,
        intervals_in,
        report_in,
    )
    from pillarbox.experiments.models.workloads.flows import Flow

    report = report_in(data.decode(errors="replace"))
    for flow in (Flow(0, 1, 2, volume_bytes=200_000), Flow(0, 1, 2, duration_s=0.15)):
        cut_intervals(flow, intervals_in(report, report))


def capture_corpus() -> tuple[bytes, ...]:
    from pillarbox.experiments.lab.observe.pcapng import Interface, Writer
    from pillarbox.hosts.wire.dcn import DcnHeader, Protocol
    from pillarbox.hosts.wire.marks import udp_packet

    found = []
    for spec, routing in (("dcell,2,1", "dfr"), ("tree,2,2", "shortest")):
        topology = parse(spec)
        packet = udp_packet(topology, 0, 1, source_port=4000, destination_port=9)
        mac = [topology.mac_number(server, 0).to_bytes(6, "big") for server in (1, 0)]
        header = DcnHeader(topology.uid(1), topology.uid(0), Protocol.IPV4).pack(packet)
        comment = json.dumps({"network": spec, "routing": routing, "failures": ["kill 0.0"]})
        buffer = io.BytesIO()
        writer = Writer(buffer, [Interface("0.0-eth0", 65535)], comment)
        for number, data in enumerate((b"\x88\xb5" + header, b"\x08\x00" + packet)):
            writer.write(0, number * 1000, b"".join(mac) + data, outgoing=True)
        found.append(buffer.getvalue())
    return tuple(found)


@contextmanager
def capture_reader() -> Iterator[Callable[[bytes], object]]:
    from pillarbox.experiments.lab.observe.packet_paths import paths_in_capture

    with file_reader("lab.pcapng", lambda file: paths_in_capture(file, None, None, ())) as read:
        yield read


@contextmanager
def event_times_reader() -> Iterator[Callable[[bytes], object]]:
    from pillarbox.experiments.apps.teaching.lateness import times_of

    with file_reader("times.csv", times_of) as read:
        yield read
