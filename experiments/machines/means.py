"""What a trial over several machines is done with; see `experiments.trials.runs.means`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from experiments.machines.sending import Generators
from experiments.machines.watching import WatchOverMachines
from experiments.traffic.flows import Sending, Tool
from experiments.trials.runs.means import Means
from experiments.trials.runs.order import Order
from experiments.trials.trust.watch import Watch

if TYPE_CHECKING:
    from experiments.machines.lab import LabOverMachines


class MeansOverMachines(Means):
    """What a trial is done with: processes on each machine, led from here."""

    lead_s = 0.6  # all machines are told of the barrier, in three calls

    def __init__(self, lab: LabOverMachines) -> None:
        super().__init__(lab)

    def prepare(self) -> dict[str, Any]:
        """Pin TCP's settings everywhere; return what only a running lab can tell."""
        found = self.lab.ask_machines(self.lab.to_living({"ask": "prepare"}))
        first: dict[str, Any] = found[self.lab.machine_of(0)]
        return {**first, "machines": self.lab.about()}

    def watch(self, *, come_and_go: bool) -> Watch:
        """Return what watches, ready to begin."""
        return cast(Watch, WatchOverMachines(self.lab, come_and_go=come_and_go))

    def tool(self, order: Order) -> Tool:
        """Return what sends the flows."""
        workload = order.workload
        sending = Sending(workload.congestion, workload.interval_s, workload.timeout_s)
        arrive = workload.arrivals is not None
        return Generators(self.lab, order.flows, sending, arrive=arrive)
