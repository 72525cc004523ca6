"""Backend of trials over several machines.

See `pillarbox.experiments.runs.trials.trial_backend`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pillarbox.experiments.apps.cluster.distributed_sending import Generators
from pillarbox.experiments.apps.cluster.distributed_watch import WatchOverMachines
from pillarbox.experiments.models.workloads.flows import Flow, Sending, Tool
from pillarbox.experiments.runs.trials.order import TrialOrder
from pillarbox.experiments.runs.trials.trial_backend import TrialBackend

if TYPE_CHECKING:
    from pillarbox.experiments.apps.cluster.machines import Machines


class DistributedTrialBackend(TrialBackend):
    """Runs a trial's flows and measurements on every machine of a lab, led by this process."""

    lead_s = 0.6  # seconds before the start barrier, enough for three calls to each machine

    def __init__(self, fabric: Machines) -> None:
        super().__init__(fabric.lab)
        self._fabric = fabric

    def prepare(self) -> dict[str, Any]:
        """Pin the TCP sysctls on all machines; return the lab's facts for the manifest."""
        found = self._fabric.ask_living_machines(ask="prepare")
        first: dict[str, Any] = found[self._fabric.machine_of(0)]
        return {**first, "machines": self._fabric.about()}

    def watch(self, *, come_and_go: bool) -> WatchOverMachines:
        """Return the object that measures load and lateness of all machines during a trial."""
        return WatchOverMachines(self._fabric, come_and_go=come_and_go)

    def tool(self, order: TrialOrder) -> Tool:
        """Return the traffic generator for all flows of a trial."""
        workload = order.workload
        multipath = self.lab.settings.multipath
        sending = Sending(
            workload.congestion, workload.interval_s, workload.timeout_s, multipath=multipath
        )
        arrive = workload.arrivals is not None
        return Generators(self._fabric, order.flows, sending, arrive=arrive)

    def flow(self, flow: Flow, sending: Sending) -> Tool:
        """Return the traffic generator for one flow."""
        return Generators(self._fabric, [flow], sending)
