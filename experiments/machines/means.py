"""What a trial over several machines is done with; see `experiments.trials.runs.means`."""

from __future__ import annotations

from typing import Any, cast

from experiments.emulation.lab import Lab
from experiments.machines.many import Machines
from experiments.machines.sending import Generators
from experiments.machines.watching import WatchOverMachines
from experiments.traffic.flows import Flow, Sending, Tool
from experiments.trials.runs.means import Means
from experiments.trials.runs.order import Order
from experiments.trials.trust.watch import Watch


class MeansOverMachines(Means):
    """What a trial is done with: processes on each machine, led from here.

    Parameters
    ----------
    lab : Lab
        The running lab.
    machines : Machines
        The same, as what it is over.
    """

    lead_s = 0.6  # all machines are told of the barrier, in three calls

    def __init__(self, lab: Lab, machines: Machines) -> None:
        super().__init__(lab)
        self.machines = machines

    def prepare(self) -> dict[str, Any]:
        """Pin TCP's settings everywhere; return what only a running lab can tell."""
        found = self.machines.ask_machines(self.machines.to_living({"ask": "prepare"}))
        first: dict[str, Any] = found[self.machines.machine_of(0)]
        return {**first, "machines": self.machines.about()}

    def watch(self, *, come_and_go: bool) -> Watch:
        """Return what watches, ready to begin."""
        return cast(Watch, WatchOverMachines(self.machines, come_and_go=come_and_go))

    def tool(self, order: Order) -> Tool:
        """Return what sends the flows."""
        workload = order.workload
        sending = Sending(workload.congestion, workload.interval_s, workload.timeout_s)
        arrive = workload.arrivals is not None
        return Generators(self.machines, order.flows, sending, arrive=arrive)

    def flow(self, flow: Flow, sending: Sending) -> Tool:
        """Return what sends one flow."""
        return Generators(self.machines, [flow], sending)
