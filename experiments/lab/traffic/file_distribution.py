"""Distribution of a real file from one server to several or all others, over relaying servers.

The data of ordinary workloads' flows is discarded. Here every byte that a server receives is
checked, kept, and passed on while more arrives: over the network's trees if it has any
(`distribution_plan`), else down a pipeline. The flows are the hops, each a TCP connection between
two servers; a file is complete when the last receiver has every part.

In a network whose trees share no link, each hop is meant to be the single cable between two
neighbours. A routing that avoids loaded cables may take other paths and lose some of the gain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from pillarbox.experiments.lab.traffic.distribution_worker import DistributionTask
from pillarbox.experiments.lab.traffic.generator import Generator
from pillarbox.experiments.models.workloads.distribution_plan import (
    DistributionPlan,
    nearest_servers,
    plan_of,
)
from pillarbox.experiments.models.workloads.flows import COMPLETED, Flow, Sending
from pillarbox.experiments.models.workloads.patterns import flows_of
from pillarbox.experiments.models.workloads.workload import Workload
from pillarbox.topos.base.errors import require
from pillarbox.topos.base.topology import Topology

if TYPE_CHECKING:
    from pillarbox.experiments.lab.emulation.lab import Lab

DISTRIBUTE = "distribute"  # workload option that turns a pattern into a file distribution
SEVERAL = "one-to-several"
PATTERNS = (SEVERAL, "one-to-all")
SEVERAL_RECEIVERS = 2


class FileReceipt(NamedTuple):
    """A receiver's result of a file distribution: time of completion, and correctness."""

    moment_s: float | None  # arrival of the file's last byte; None if it is incomplete
    unchanged: bool  # whether the whole file arrived unchanged


class FileDistributionTool(Generator):
    """Traffic tool that distributes a file from one server to others, in one process."""

    name = "distribution"
    worker = "pillarbox.experiments.lab.traffic.distribution_worker"
    most_processes = 1

    def __init__(
        self,
        lab: Lab,
        plan: DistributionPlan,  # distribution trees that carry the file's parts
        size_bytes: int,  # length of the file in bytes
        sending: Sending,  # TCP congestion control, report interval and timeout
        seed: int = 0,  # seed of the file's content
    ) -> None:
        self.plan, self._seed = plan, seed
        self._hops = hop_flows(plan, size_bytes)
        super().__init__(lab, [flow for _, flow in self._hops], sending)

    def _task(self, flows: Sequence[Flow]) -> DistributionTask:
        return {
            **super()._task(flows),
            "source": self.plan.source,
            "trees": [tree for tree, _ in self._hops],
            "seed": self._seed,
        }

    @property
    def receipts(self) -> dict[int, FileReceipt]:
        """Result of each receiver after the end: time at which its file was complete."""
        results = self.results()
        found = {}
        for receiver in self.plan.receivers:
            came = [one for one in results if one.flow.destination == receiver]
            moments = [one.end_s for one in came if one.status == COMPLETED and one.end_s]
            whole = len(moments) == len(came)
            found[receiver] = FileReceipt(max(moments) if whole else None, whole)
        return found


def hop_flows(plan: DistributionPlan, size_bytes: int) -> list[tuple[int, Flow]]:
    """Return a flow for every hop of a file distribution, with the number of its tree."""
    parts = plan.bytes_per_tree(size_bytes)
    hops = [(tree, *hop) for tree, found in enumerate(plan.trees) for hop in found]
    return [
        (tree, Flow(number, sender, receiver, volume_bytes=parts[tree]))
        for number, (tree, sender, receiver) in enumerate(hops)
    ]


def plan_for(topology: Topology, workload: Workload, seed: int) -> DistributionPlan:
    """Return the source, receivers and trees of a workload that distributes a file.

    The pattern's options define source and receivers; if one-to-several has no named receivers,
    they are the source's neighbours at different ports, not random servers.

    >>> from pillarbox import topos
    >>> workload = Workload("one-to-several", 1000, options={"distribute": True})
    >>> plan_for(topos.parse("bcube,4,1"), workload, seed=1).trees
    (((0, 1), (1, 5), (5, 4)), ((0, 4), (4, 5), (5, 1)))
    """
    require(
        workload.pattern in PATTERNS,
        f"the pattern {workload.pattern} distributes no file: choose {' or '.join(PATTERNS)}",
    )
    require(
        workload.volume_bytes is not None, "the file to distribute needs a length: set volume_bytes"
    )
    options = {name: value for name, value in workload.options.items() if name != DISTRIBUTE}
    count = options.get("receivers", SEVERAL_RECEIVERS)
    flows = flows_of(topology, replace(workload, options=options), seed)
    source, receivers = flows[0].source, [flow.destination for flow in flows]
    if workload.pattern == SEVERAL and isinstance(count, int):
        receivers = nearest_servers(topology, source, count)
    return plan_of(topology, source, receivers)
