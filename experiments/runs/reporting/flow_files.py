"""Files of simulated flows, for distributions and figures of one's own."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

import numpy

from pillarbox.experiments.base.files import give_to_user, write_atomically
from pillarbox.experiments.models.workloads.traces import PARQUET
from pillarbox.topos.base.errors import require
from pillarbox.topos.base.topology import Topology

if TYPE_CHECKING:
    import pandas

    from pillarbox.experiments.models.arrivals.simulated_arrivals import ArrivalSimulation

CSV = ".csv"


def flow_table(
    topology: Topology, load: float | None, of: str, found: ArrivalSimulation
) -> pandas.DataFrame:
    """Return the flows of a simulation, with the columns of a run's flows (docs/records.md)."""
    import pandas

    names = [f"{topology.address(one)}.{topology.kind}" for one in range(topology.servers)]
    servers, arrivals = numpy.array(names, dtype=object), found.arrivals
    columns = {
        "load": load,
        "of": of,
        "flow": numpy.arange(len(arrivals.start_s)),
        "source": servers[arrivals.source],
        "destination": servers[arrivals.destination],
        "volume_bytes": arrivals.volume_bytes,
        "start_s": arrivals.start_s,
        "measured": found.counts,
        "completion_s": found.course.end_s - arrivals.start_s,
        "slowdown": found.slowdown,
    }
    return pandas.DataFrame(columns)


def require_table_file(file: Path) -> None:
    """Raise PillarboxError if the file's suffix names no format of tables."""
    require(
        file.suffix in (CSV, PARQUET), f"a file of flows ends in {CSV} or {PARQUET}, not {file}"
    )


def write_tables(tables: list[pandas.DataFrame], file: Path) -> None:
    """Write tables, one after the other, to a file in the format of its suffix."""
    import pandas

    content, table = io.BytesIO(), pandas.concat(tables)
    if file.suffix == PARQUET:
        table.to_parquet(content, index=False)
    else:
        table.to_csv(content, index=False)
    write_atomically(file, content.getvalue())
    give_to_user(file)
