"""Subflows of a trial's Multipath TCP flows: their paths and bytes.

Routers pin each subflow to a path by the client's port (`pillarbox.hosts.base.pinned_paths`). While
a cable of the path has failed, servers pass the packets to the network's own routing, whose path is
unknown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pillarbox.experiments.models.workloads.flows import (
    COMPLETED,
    FlowResult,
    Interval,
    SubflowInterval,
)
from pillarbox.hosts.base.failures import NONE, Failures
from pillarbox.hosts.base.path import Path
from pillarbox.hosts.base.pinned_paths import pinned_path
from pillarbox.topos.base.topology import Topology

if TYPE_CHECKING:
    from pillarbox.experiments.models.fluid.directed_links import FlowPath


@dataclass(frozen=True)
class Subflow:
    """A subflow: the client's port, its pinned path, and its bytes as those of a flow."""

    owner: int  # flow of the subflow, as an index of the trial's results
    number: int  # number of the subflow in its connection
    port: int
    path: Path | None
    intervals: Sequence[SubflowInterval]
    result: FlowResult

    def path_under(self, topology: Topology, failures: Failures) -> Path | None:
        """Return the pinned path; None if a node or cable on it has failed."""
        failed = self.path is None or failures.first_on(topology, self.path) is not None
        return None if failed else self.path


def subflows_of(topology: Topology, results: Sequence[FlowResult]) -> list[Subflow]:
    """Return the subflows of a trial's flows, in the order of the flows; none of TCP flows."""
    found = []
    for owner, result in enumerate(results):
        intervals: dict[int, list[SubflowInterval]] = defaultdict(list)
        for one in result.subflows:
            intervals[one.subflow].append(one)
        found += [_subflow(topology, owner, result, rows) for _, rows in sorted(intervals.items())]
    return found


def _subflow(
    topology: Topology, owner: int, result: FlowResult, rows: list[SubflowInterval]
) -> Subflow:
    flow = result.flow
    known = topology.port_of_ipv4(rows[0].local)
    port = known.port if known else 0  # the first subflow has the server's own address
    counted = [Interval(row.begin_s, row.end_s, row.acked_bytes) for row in rows]
    delivered = sum(one.delivered_bytes for one in counted)
    carried = FlowResult(
        flow, result.tool, COMPLETED, "", rows[0].begin_s, rows[-1].end_s, delivered
    )
    carried.intervals = counted
    path = pinned_path(topology, flow.source, port, flow.destination, None)
    return Subflow(owner, rows[0].subflow, port, path, rows, carried)


def subflow_rows(
    topology: Topology, results: Sequence[FlowResult], subflows: Sequence[Subflow]
) -> list[dict[str, Any]]:
    """Return the rows of schema.SUBFLOWS."""
    return [
        {
            "flow": results[one.owner].flow.number,
            "subflow": one.number,
            "port": one.port,
            "path": " ".join(map(topology.address, one.path.servers)) if one.path else "",
            "begin_s": row.begin_s,
            "end_s": row.end_s,
            "acked_bytes": row.acked_bytes,
            "retransmits": row.retransmits,
            "rtt_us": row.rtt_us,
            "cwnd_bytes": row.cwnd_bytes,
        }
        for one in subflows
        for row in one.intervals
    ]


def working_paths(
    topology: Topology, subflows: Sequence[Subflow], failures: Failures = NONE
) -> list[FlowPath]:
    """Return the pinned path of each subflow, None where it does not work."""
    return [one.path_under(topology, failures) for one in subflows]
