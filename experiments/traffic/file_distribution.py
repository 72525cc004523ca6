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

from experiments.traffic.distribution_plan import DistributionPlan, near_servers, plan_of
from experiments.traffic.distribution_worker import DistributionTask
from experiments.traffic.flows import COMPLETED, Flow, Sending
from experiments.traffic.generator import Generator
from experiments.traffic.patterns import flows_of
from experiments.traffic.workload import Workload
from topos.base.errors import require
from topos.base.topology import Topology

if TYPE_CHECKING:
    from experiments.emulation.lab import Lab

DISTRIBUTE = "distribute"  # option of a workload that enables distribution
SEVERAL = "one-to-several"
PATTERNS = (SEVERAL, "one-to-all")
SEVERAL_RECEIVERS = 2


class Receipt(NamedTuple):
    """Completion of a file at a receiver."""

    moment_s: float | None  # arrival of the last byte; None if it did not arrive
    right: bool  # whether all bytes that the source sent arrived unchanged


class Distribution(Generator):
    """Tool that distributes a file."""

    name = "distribution"
    worker = "experiments.traffic.distribution_worker"
    most_processes = 1

    def __init__(
        self,
        lab: Lab,
        plan: DistributionPlan,  # trees of the file's parts
        size_bytes: int,  # length of the file
        sending: Sending,  # congestion control, intervals and timeout
        seed: int = 0,  # seed of the file's content
    ) -> None:
        self.plan, self._seed = plan, seed
        self._hops = hops_of(plan, size_bytes)
        super().__init__(lab, [flow for _, flow in self._hops], sending)

    def _task(self, flows: Sequence[Flow]) -> DistributionTask:
        return {
            **super()._task(flows),
            "source": self.plan.source,
            "trees": [tree for tree, _ in self._hops],
            "seed": self._seed,
        }

    @property
    def received(self) -> dict[int, Receipt]:
        """Completion of the file at each receiver, after the end."""
        results = self.results()
        found = {}
        for receiver in self.plan.receivers:
            came = [one for one in results if one.flow.destination == receiver]
            moments = [one.end_s for one in came if one.status == COMPLETED and one.end_s]
            whole = len(moments) == len(came)
            found[receiver] = Receipt(max(moments) if whole else None, whole)
        return found


def hops_of(plan: DistributionPlan, size_bytes: int) -> list[tuple[int, Flow]]:
    """Return every hop of a plan as a flow, with the number of its tree."""
    parts = plan.parts(size_bytes)
    hops = [(tree, *hop) for tree, found in enumerate(plan.trees) for hop in found]
    return [
        (tree, Flow(number, sender, receiver, volume_bytes=parts[tree]))
        for number, (tree, sender, receiver) in enumerate(hops)
    ]


def tool(lab: Lab, workload: Workload, seed: int, sending: Sending) -> Distribution:
    """Return the tool that distributes a workload's file of `volume_bytes`."""
    plan = plan_for(lab.topology, workload, seed)
    assert workload.volume_bytes is not None
    return Distribution(lab, plan, workload.volume_bytes, sending, seed)


def plan_for(topology: Topology, workload: Workload, seed: int) -> DistributionPlan:
    """Return the plan that distributes a workload's file.

    The pattern's options define source and receivers; if one-to-several has no named receivers,
    they are the source's neighbours at different ports, not random servers.

    >>> import topos
    >>> workload = Workload("one-to-several", 1000, options={"distribute": True})
    >>> plan_for(topos.parse("bcube,4,1"), workload, seed=1).trees
    (((0, 1), (1, 5), (5, 4)), ((0, 4), (4, 5), (5, 1)))
    """
    require(
        workload.pattern in PATTERNS,
        f"{workload.pattern} distributes no file: choose {' or '.join(PATTERNS)}",
    )
    require(workload.volume_bytes is not None, "a file to distribute needs a length: volume_bytes")
    options = {name: value for name, value in workload.options.items() if name != DISTRIBUTE}
    count = options.get("receivers", SEVERAL_RECEIVERS)
    flows = flows_of(topology, replace(workload, options=options), seed)
    source, receivers = flows[0].source, [flow.destination for flow in flows]
    if workload.pattern == SEVERAL and isinstance(count, int):
        receivers = near_servers(topology, source, count)
    return plan_of(topology, source, receivers)
