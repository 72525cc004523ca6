"""Tool that runs a collective operation on a running lab, in one process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pillarbox.experiments.lab.traffic.collective_worker import CollectiveTask
from pillarbox.experiments.lab.traffic.generator import Generator
from pillarbox.experiments.models.workloads.collectives.plan import CollectivePlan
from pillarbox.experiments.models.workloads.flows import Flow, FlowResult, Sending

if TYPE_CHECKING:
    from pillarbox.experiments.lab.emulation.lab import Lab


class TransferResult(NamedTuple):
    """Times of a transfer in a collective operation; None for events that did not happen."""

    transfer: int
    flow: int
    step: int
    deed: str  # receiver's use of the data: "reduce" (add to its own) or "copy"
    volume_bytes: int
    ready_s: float | None  # arrival of the last transfer that this one waits for
    begin_s: float | None
    end_s: float | None


class Collective(Generator):
    """Traffic tool that runs a collective operation with real data, in one process."""

    name = "collective"
    worker = "pillarbox.experiments.lab.traffic.collective_worker"
    most_processes = 1

    def __init__(
        self,
        lab: Lab,
        plan: CollectivePlan,  # collective operation, its servers and transfers
        sending: Sending,  # TCP congestion control, report interval and timeout
        seed: int = 0,  # seed of the ranks' initial data
    ) -> None:
        self.plan, self._seed = plan, seed
        self._moments: list[list[float | None]] = []
        super().__init__(lab, plan.flows(), sending)

    def _task(self, flows: Sequence[Flow]) -> CollectiveTask:
        graph = self.plan.graph
        return {
            **super()._task(flows),
            "transfers": [list(one) for one in graph.transfers],
            "flow_of": list(self.plan.flow_of),
            "offsets": [self.plan.offset(chunk) for chunk in range(graph.chunks + 1)],
            "begins": [list(held) for held in graph.begins],
            "ends": [list(wanted) for wanted in graph.ends],
            "servers": list(self.plan.servers),
            "seed": self._seed,
        }

    def _collected_results(self) -> list[FlowResult]:
        results = super()._collected_results()
        self._moments = self._cost.pop("transfers", [])
        return results

    def steps(self) -> list[TransferResult]:
        """Return step, size and times of each transfer, after the collective operation's end."""
        self.results()
        plan = self.plan
        never: list[list[float | None]] = [[None] * 3] * len(plan.volumes)
        found = zip(
            plan.graph.transfers, plan.flow_of, plan.volumes, self._moments or never, strict=True
        )
        return [
            TransferResult(
                number, flow, one.step, "reduce" if one.reduce else "copy", volume, *moments
            )
            for number, (one, flow, volume, moments) in enumerate(found)
        ]

    def versions(self) -> dict[str, Any]:
        """Return manifest entries: traffic tool, collective operation, algorithm and ranks."""
        plan = self.plan
        asked = {"operation": plan.operation, "algorithm": plan.algorithm}
        return {**super().versions(), **asked, "ranks": plan.graph.ranks, "servers": plan.servers}
