"""Backend of a trial: the traffic tool, the monitoring and the facts of its lab.

This backend is for a lab on one machine; `pillarbox.experiments.apps.cluster.distributed_backend`
is for labs over several machines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pillarbox.experiments.lab.traffic.collective_tool import Collective
from pillarbox.experiments.models.workloads.collectives.plan import CollectivePlan
from pillarbox.experiments.models.workloads.distribution_plan import DistributionPlan
from pillarbox.experiments.models.workloads.flows import Flow, Sending, Tool
from pillarbox.experiments.runs.trials.manifest import lab_facts
from pillarbox.experiments.runs.trials.order import TrialOrder
from pillarbox.experiments.runs.trust.watch import TrialWatch, Watch

if TYPE_CHECKING:
    from pillarbox.experiments.lab.emulation.lab import Lab


class TrialBackend:
    """Backend of trials in a lab on one machine."""

    lead_s = 0.3  # Time from the start order to the flows' common start (barrier), in seconds.

    def __init__(self, lab: Lab) -> None:
        self.lab: Any = lab

    def prepare(self) -> dict[str, Any]:
        """Set TCP's sysctls to fixed values; return the facts of the running lab."""
        from pillarbox.experiments.lab.traffic.tools import pinned_sysctls

        pinned_sysctls(self.lab)
        return lab_facts(self.lab)

    def watch(self, *, come_and_go: bool) -> TrialWatch:
        """Return the monitor of a trial, ready to begin."""
        return Watch(self.lab, come_and_go=come_and_go)

    def tool(self, order: TrialOrder) -> Tool:
        """Return the traffic tool that sends the flows of a trial."""
        lab, workload, trial = self.lab, order.workload, order.trial
        sending = Sending(
            lab.tcp or workload.congestion,
            workload.interval_s,
            workload.timeout_s,
            multipath=lab.settings.multipath,
        )
        match order.plan:
            case CollectivePlan() as collective:
                return Collective(lab, collective, sending, trial.seed)
            case DistributionPlan() as plan:
                from pillarbox.experiments.lab.traffic.file_distribution import FileDistributionTool

                assert workload.volume_bytes is not None
                return FileDistributionTool(lab, plan, workload.volume_bytes, sending, trial.seed)
        if workload.arrivals is not None:
            from pillarbox.experiments.lab.traffic.open_loop import OpenLoop

            return OpenLoop(lab, list(order.flows), sending)
        from pillarbox.experiments.lab.traffic.tools import tool_for

        return tool_for(workload.tool, lab, list(order.flows), sending)

    def flow(self, flow: Flow, sending: Sending) -> Tool:
        """Return the traffic tool that sends a single flow."""
        from pillarbox.experiments.lab.traffic.tools import AUTO, tool_for

        return tool_for(AUTO, self.lab, [flow], sending)


def backend_of(lab: Lab) -> TrialBackend:
    """Return the backend of trials in a lab."""
    return lab.fabric.trial_backend or TrialBackend(lab)
