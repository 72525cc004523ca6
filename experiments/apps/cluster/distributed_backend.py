"""Backend of trials over several machines; see `experiments.runs.trials.trial_backend`."""

from __future__ import annotations

from typing import Any, cast

from experiments.apps.cluster.distributed_sending import Generators
from experiments.apps.cluster.distributed_watch import WatchOverMachines
from experiments.apps.cluster.trial_support import Machines
from experiments.lab.emulation.lab import Lab
from experiments.models.workloads.flows import Flow, Sending, Tool
from experiments.runs.trials.order import TrialOrder
from experiments.runs.trials.trial_backend import TrialBackend
from experiments.runs.trust.watch import Watch


class DistributedTrialBackend(TrialBackend):
    """Runs a trial's flows and measurements on every machine of a lab, led by this process.

    Parameters
    ----------
    lab : Lab
        The running lab.
    machines : Machines
        The same lab, as the interface to its machines.
    """

    lead_s = 0.6  # seconds before the start barrier, enough for three calls to each machine

    def __init__(self, lab: Lab, machines: Machines) -> None:
        super().__init__(lab)
        self.machines = machines

    def prepare(self) -> dict[str, Any]:
        """Pin the TCP sysctls on all machines; return the lab's facts for the manifest."""
        found = self.machines.ask_machines(
            self.machines.request_for_living_machines({"ask": "prepare"})
        )
        first: dict[str, Any] = found[self.machines.machine_of(0)]
        return {**first, "machines": self.machines.about()}

    def watch(self, *, come_and_go: bool) -> Watch:
        """Return the object that measures load and lateness of all machines during a trial."""
        return cast(Watch, WatchOverMachines(self.machines, come_and_go=come_and_go))

    def tool(self, order: TrialOrder) -> Tool:
        """Return the traffic generator for all flows of a trial."""
        workload = order.workload
        sending = Sending(workload.congestion, workload.interval_s, workload.timeout_s)
        arrive = workload.arrivals is not None
        return Generators(self.machines, order.flows, sending, arrive=arrive)

    def flow(self, flow: Flow, sending: Sending) -> Tool:
        """Return the traffic generator for one flow."""
        return Generators(self.machines, [flow], sending)
