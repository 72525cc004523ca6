"""What a trial is done with: what sends its flows, what watches, what its lab is like.

These are a lab's on one machine; `experiments.machines.distributed_backend` has those of a lab over
several.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from experiments.traffic.collectives.plan import collective_of
from experiments.traffic.collectives.tool import Collective
from experiments.traffic.flows import Flow, Sending, Tool
from experiments.trials.runs.manifest import lab_facts
from experiments.trials.runs.order import TrialOrder
from experiments.trials.trust.watch import Watch

if TYPE_CHECKING:
    from experiments.emulation.lab import Lab


class Means:
    """What a trial in a lab is done with."""

    lead_s = 0.3  # from the order to begin to the barrier

    def __init__(self, lab: Lab) -> None:
        self.lab: Any = lab

    def prepare(self) -> dict[str, Any]:
        """Pin TCP's settings; return what only a running lab can tell."""
        from experiments.traffic.tools import pinned_sysctls

        pinned_sysctls(self.lab)
        return lab_facts(self.lab)

    def watch(self, *, come_and_go: bool) -> Watch:
        """Return what watches, ready to begin."""
        return Watch(self.lab, come_and_go=come_and_go)

    def tool(self, order: TrialOrder) -> Tool:
        """Return what sends the flows."""
        lab, workload, trial = self.lab, order.workload, order.trial
        sending = Sending(workload.congestion, workload.interval_s, workload.timeout_s)
        if workload.options.get("distribute"):
            from experiments.traffic.file_distribution import tool

            return tool(lab, workload, trial.seed, sending)
        collective = collective_of(lab.topology, workload, trial.system.algorithm, trial.seed)
        if collective:
            return Collective(lab, collective, sending, trial.seed)
        if workload.arrivals is not None:
            from experiments.traffic.open_loop import OpenLoop

            return OpenLoop(lab, list(order.flows), sending)
        from experiments.traffic.tools import tool_for

        return tool_for(workload.tool, lab, list(order.flows), sending)

    def flow(self, flow: Flow, sending: Sending) -> Tool:
        """Return what sends one flow."""
        from experiments.traffic.tools import AUTO, tool_for

        return tool_for(AUTO, self.lab, [flow], sending)


def means_of(lab: Lab) -> Means:
    """Return what a trial in this lab is done with."""
    means: Means | None = lab.means
    return means or Means(lab)
