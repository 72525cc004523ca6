"""Traces: flows as a table, so that the same flows run here, in ns-3 and in htsim.

A row is a flow: ``time_s,source,destination,bytes``, sorted by time, as CSV or Parquet. Servers are
addresses (``0.3``, or ``0.3.dcell``), or numbers from 0, as in other programs.

A trace may come from an untrusted source: lines, cells and rows are bounded, and each error names
the file, the row (counted from 1, without the header) and the column.
"""

from __future__ import annotations

import csv
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy

from pillarbox.experiments.base.text import printable
from pillarbox.experiments.models.arrays import Floats, Ints
from pillarbox.experiments.models.workloads.arrivals import Arrivals
from pillarbox.experiments.models.workloads.patterns import MOST_FLOWS
from pillarbox.experiments.models.workloads.workload import MOST_BYTES
from pillarbox.topos.base.errors import PillarboxError, UnknownNameError, require
from pillarbox.topos.base.topology import Topology

COLUMNS = ("time_s", "source", "destination", "bytes")
TIME, SOURCE, DESTINATION, BYTES = COLUMNS
PARQUET = ".parquet"
MOST_ROWS = 10 * MOST_FLOWS
MOST_S = 1e9  # maximum start time of a trace's flow, in seconds: some thirty years
MOST_IN_ALL_BYTES = 2**63  # maximum total of a trace's flows in bytes: sums have 64 bits
MOST_UNPACKED_BYTES = 1 << 30
LONGEST_LINE = 1 << 16  # maximum length of a line of a CSV trace, in characters
LONGEST_CELL = 100  # maximum characters of a CSV cell: addresses and numbers are shorter


class _TraceTable(NamedTuple):
    """Columns of a flow trace as read from a file; missing or unreadable numbers are NaN."""

    start_s: Floats
    source: Ints
    destination: Ints
    size: Floats


def read_trace(topology: Topology, file: Path) -> Arrivals:
    """Read the flows of a trace file; raise PillarboxError if they do not fit the network."""
    servers = _TraceServers(topology, file)
    try:
        table = (_read_parquet if file.suffix == PARQUET else _read_csv)(file, servers)
    except OSError as error:
        reason = error.strerror or _first_error_line(error)
        raise PillarboxError(f"the trace {file} cannot be read: {reason}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise PillarboxError(f"{file} is no trace: {_first_error_line(error)}") from None
    start_s, source, destination, size = table
    require(
        len(start_s) > 0, f"the trace {file} is a file without flows: it needs at least one row"
    )

    def check_column(column: str, good: Any, values: Any, sentence: str) -> None:
        bad = numpy.flatnonzero(~good)
        if len(bad):
            row = f"row {bad[0] + 1} of {file}, column {column}"
            raise PillarboxError(f"{row}: {sentence.format(values[bad[0]])}")

    check_column(
        TIME,
        numpy.isfinite(start_s),
        start_s,
        "a flow has a number here, its start time in seconds",
    )
    check_column(BYTES, numpy.isfinite(size), size, "a flow has a number here, its size in bytes")
    check_column(TIME, start_s >= 0, start_s, "time begins at 0, not at {:g} s")
    check_column(
        TIME, start_s <= MOST_S, start_s, f"a flow begins by {MOST_S:g} s, not at {{:g}} s"
    )
    earlier = numpy.append(True, numpy.diff(start_s) >= 0)
    check_column(TIME, earlier, start_s, "{:g} s goes back in time: sort the rows by time_s")
    check_column(BYTES, size >= 1, size, "a flow has at least 1 byte, not {:g}")
    check_column(
        BYTES, size <= MOST_BYTES, size, f"a flow has at most {MOST_BYTES:g} bytes, not {{:g}}"
    )
    check_column(BYTES, size == numpy.floor(size), size, "bytes are a whole number, not {:g}")
    check_column(DESTINATION, source != destination, source, "server {} would send to itself")
    total = float(size.sum())
    require(
        total < MOST_IN_ALL_BYTES,
        f"the flows of the trace {file} have {total:g} bytes, more than 2^63: scale them down",
    )
    return Arrivals(start_s, source, destination, size.astype(numpy.int64))


def write_trace(
    topology: Topology, arrivals: Arrivals, file: Path, *, numbers: bool = False
) -> None:
    """Write flows to a trace file: Parquet by its ending, else CSV.

    Servers are written as addresses, or with `numbers` as numbers from 0.
    """
    import pandas

    named = numpy.array([topology.address(server) for server in range(topology.servers)], object)
    ends = (
        (arrivals.source, arrivals.destination)
        if numbers
        else (named[arrivals.source], named[arrivals.destination])
    )
    columns = (numpy.round(arrivals.start_s, 9), *ends, arrivals.volume_bytes)
    table = pandas.DataFrame(dict(zip(COLUMNS, columns, strict=True)))
    if file.suffix == PARQUET:
        table.to_parquet(file, index=False)
    else:
        table.to_csv(file, index=False)


class _TraceServers:
    """Server numbers by the addresses or numbers that a trace file has for servers."""

    def __init__(self, topology: Topology, file: Path) -> None:
        self._topology, self._file = topology, file
        self._known: dict[str, int] = {}

    def number(self, text: str, row: int, column: str) -> int:
        """Return a server's number; raise PillarboxError with the row and column of a bad name."""
        found = self._known.get(text)
        if found is None:
            try:
                found = self._known[text] = self._parsed_server(text)
            except PillarboxError as error:
                raise PillarboxError(
                    f"row {row} of {self._file}, column {column}: {error}"
                ) from None
        return found

    def _parsed_server(self, text: str) -> int:
        topology = self._topology
        require(text != "", "a flow has a server here: its address, or its number")
        require(len(text) <= LONGEST_CELL, f"{printable(text, LONGEST_CELL)} is no server")
        # traces of other programs have server numbers, not addresses
        if text.isascii() and text.isdecimal() and len(text) <= 18:
            has = f"{topology.spec} has servers 0 to {topology.servers - 1}"
            require(
                int(text) < topology.servers, f"there is no server {text}: {has}", UnknownNameError
            )
            return int(text)
        found = topology.node(text)
        require(found < topology.servers, f"{text} is no server of {topology.spec}")
        return found


def _column_indices(file: Path, header: Sequence[str]) -> list[int]:
    """Return the position of each trace column in the rows of a file, by its header."""
    missing = [name for name in COLUMNS if name not in header]
    require(
        not missing,
        f"{file} is no trace: it has no column {', '.join(missing)}; a trace has the columns "
        f"{','.join(COLUMNS)}",
    )
    return [header.index(name) for name in COLUMNS]


def _check_row_count(file: Path, rows: int) -> None:
    require(rows <= MOST_ROWS, f"the trace {file} has more than {MOST_ROWS} flows: split it")


# -- CSV -----------------------------------------------------------------------------------------


def _read_csv(file: Path, servers: _TraceServers) -> _TraceTable:
    start_s, source, destination, size = array("d"), array("q"), array("q"), array("d")
    with file.open(encoding="utf-8-sig", newline="") as opened:
        rows = csv.reader(_bounded_lines(file, opened), strict=True)
        header = next(rows, [])
        time_at, source_at, destination_at, bytes_at = _column_indices(file, header)
        for cells in filter(None, rows):  # filter() skips empty lines
            row = len(start_s) + 1
            _check_row_count(file, row)
            require(
                len(cells) == len(header),
                f"row {row} of {file} has {len(cells)} columns, and its header has {len(header)}",
            )
            start_s.append(_parsed_number(cells[time_at]))
            source.append(servers.number(cells[source_at], row, SOURCE))
            destination.append(servers.number(cells[destination_at], row, DESTINATION))
            size.append(_parsed_number(cells[bytes_at]))
    return _TraceTable(*map(numpy.array, (start_s, source, destination, size)))


def _bounded_lines(file: Path, opened: IO[str]) -> Iterator[str]:
    while line := opened.readline(LONGEST_LINE):
        require(
            len(line) < LONGEST_LINE,
            f"{file} is no trace: it has a line of {LONGEST_LINE} or more characters",
        )
        yield line


def _parsed_number(text: str) -> float:
    try:
        return float(text) if len(text) <= LONGEST_CELL else numpy.nan
    except ValueError:
        return numpy.nan


# -- Parquet -------------------------------------------------------------------------------------


def _read_parquet(file: Path, servers: _TraceServers) -> _TraceTable:
    import pyarrow
    from pyarrow import parquet

    try:
        with file.open("rb") as opened:
            found = parquet.ParquetFile(opened)
            _column_indices(file, found.schema_arrow.names)
            ends = [
                name for name in (SOURCE, DESTINATION) if _check_server_column(file, name, found)
            ]
            _check_row_count(file, found.metadata.num_rows)
            _check_unpacked_size(file, found.metadata)
            # read_dictionary stores each text once: a small file may repeat a text of megabytes
            table = parquet.ParquetFile(opened, read_dictionary=ends).read(list(COLUMNS))
        columns = table.combine_chunks().columns
    except (MemoryError, LookupError, pyarrow.ArrowException) as error:
        raise PillarboxError(f"{file} is no trace: {_first_error_line(error)}") from None
    start_s, source, destination, size = columns
    return _TraceTable(
        _float_column(file, TIME, start_s),
        _server_numbers(servers, SOURCE, source),
        _server_numbers(servers, DESTINATION, destination),
        _float_column(file, BYTES, size),
    )


def _check_unpacked_size(file: Path, metadata: Any) -> None:
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    size = sum(group.total_byte_size for group in groups)
    require(
        size <= MOST_UNPACKED_BYTES,
        f"the trace {file} has {size} bytes when unpacked: the limit is {MOST_UNPACKED_BYTES}",
    )


def _float_column(file: Path, name: str, column: Any) -> Floats:
    from pyarrow import types

    numeric = types.is_integer(column.type) or types.is_floating(column.type)
    require(numeric, f"{file} is no trace: its column {name} has no numbers but {column.type}")
    found: Floats = column.cast("float64", safe=False).to_numpy()
    return found


def _check_server_column(file: Path, name: str, found: Any) -> bool:
    """Return True if a column of servers has texts, False if numbers; else raise an error."""
    from pyarrow import types

    kind = found.schema_arrow.field(name).type
    is_text = types.is_string(kind) or types.is_large_string(kind)
    require(
        is_text or types.is_integer(kind),
        f"{file} is no trace: its column {name} has no servers but {kind}",
        UnknownNameError,
    )
    return bool(is_text)


def _server_numbers(servers: _TraceServers, name: str, column: Any) -> Ints:
    """Return the server numbers of a trace's column, which has addresses or numbers."""
    from pyarrow import types

    encoded = column if types.is_dictionary(column.type) else column.dictionary_encode()
    part = encoded.combine_chunks()
    indices = part.indices.fill_null(-1).to_numpy()
    texts = ["" if value is None else str(value) for value in part.dictionary.to_pylist()]
    number = numpy.zeros(len(texts), numpy.int64)
    used, first = numpy.unique(indices, return_index=True)
    for at, index in sorted(zip(first.tolist(), used.tolist(), strict=True)):
        text = texts[index] if 0 <= index < len(texts) else ""
        number[index] = servers.number(text, at + 1, name)
    found: Ints = number[indices]
    return found


def _first_error_line(error: BaseException) -> str:
    return printable((str(error).splitlines() or ["the file is no table"])[0])
