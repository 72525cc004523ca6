"""Traces: flows as a table, so that the same ones run here, in ns-3 and in htsim.

A row is a flow: ``time_s,source,destination,bytes``, sorted by time, as CSV or as Parquet. Servers
are addresses (``0.3``, or ``0.3.dcell``), or numbers from 0, as other programs count them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy

from experiments.traffic.arrivals import Arrivals
from experiments.traffic.patterns import MOST_FLOWS
from topos.base.errors import PillarboxError, require
from topos.base.topology import Topology

if TYPE_CHECKING:
    import pandas

COLUMNS = ("time_s", "source", "destination", "bytes")
PARQUET = ".parquet"


def read_trace(topology: Topology, file: Path) -> Arrivals:
    """Return the flows of a trace; refuse what is none, or does not fit the network."""
    table = _table(file)
    missing = [name for name in COLUMNS if name not in table]
    require(
        not missing,
        f"{file} is no trace: it has no column {', '.join(missing)}, and a trace has "
        f"{','.join(COLUMNS)}",
    )
    require(len(table) > 0, f"{file} is a trace without a flow")
    require(len(table) <= MOST_FLOWS * 10, f"{file} has more than {MOST_FLOWS * 10} flows")
    start_s = _numbers(file, table["time_s"], "time_s")
    size = _numbers(file, table["bytes"], "bytes")
    _check_times(file, start_s)
    _check(file, size >= 1, size, "a flow has at least 1 byte, not {:g}")
    _check(file, size == numpy.floor(size), size, "bytes are a whole number, not {:g}")
    source, destination = (
        _servers(topology, file, table[name]) for name in ("source", "destination")
    )
    _check(file, source != destination, source, "server {:g} would send to itself")
    return Arrivals(start_s, source, destination, size.astype(numpy.int64))


def write_trace(
    topology: Topology, arrivals: Arrivals, file: Path, *, numbers: bool = False
) -> None:
    """Write flows as a trace, by the file's ending; with `numbers` servers are counted from 0."""
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


def _table(file: Path) -> pandas.DataFrame:
    import pandas
    import pyarrow

    try:
        if file.suffix == PARQUET:
            return pandas.read_parquet(file)
        # An address such as 1.10 is no number.
        return pandas.read_csv(file, dtype={"source": str, "destination": str})
    except OSError as error:
        reason = error.strerror or str(error)
        raise PillarboxError(f"the trace {file} cannot be read: {reason}") from None
    except (ValueError, UnicodeDecodeError, pyarrow.ArrowException) as error:
        first = str(error).splitlines()[0] if str(error) else "it is no table"
        raise PillarboxError(f"{file} is no trace: {first}") from None


def _numbers(file: Path, column: Any, name: str) -> Any:
    import pandas

    found = pandas.to_numeric(column, errors="coerce").to_numpy(numpy.float64)
    bad = numpy.flatnonzero(~numpy.isfinite(found))
    if len(bad):
        raise PillarboxError(f"flow {bad[0] + 1} of {file} has no {name}: each has a number")
    return found


def _check_times(file: Path, start_s: Any) -> None:
    _check(file, start_s >= 0, start_s, "time begins at 0, not at {:g} s")
    back = numpy.flatnonzero(numpy.diff(start_s) < 0)
    if len(back):
        at = int(back[0])
        raise PillarboxError(
            f"{file} goes back in time: flow {at + 2} begins at {start_s[at + 1]:g} s, after one "
            f"at {start_s[at]:g} s; sort it by time_s"
        )


def _check(file: Path, good: Any, values: Any, sentence: str) -> None:
    """Refuse a trace whose column is not good everywhere."""
    bad = numpy.flatnonzero(~good)
    if len(bad):
        wrong = sentence.format(values[bad[0]])
        raise PillarboxError(f"flow {bad[0] + 1} of {file}: {wrong}")


def _servers(topology: Topology, file: Path, column: Any) -> Any:
    """Return the numbers of the servers that a column names."""
    texts = column.astype(str).to_numpy()
    known: dict[str, int] = {}
    for text in numpy.unique(texts).tolist():
        known[text] = _server(topology, file, text)
    return numpy.array([known[text] for text in texts], numpy.int64)


def _server(topology: Topology, file: Path, text: str) -> int:
    if text.isascii() and text.isdecimal():  # as other programs count them
        require(
            int(text) < topology.servers,
            f"{file} has a server {text}, and {topology.spec} has {topology.servers}: 0 to "
            f"{topology.servers - 1}",
        )
        return int(text)
    try:
        found = topology.node(text)
    except PillarboxError as error:
        raise PillarboxError(f"{file}: {error}") from None
    require(found < topology.servers, f"{file}: {text} is no server of {topology.spec}")
    return found
