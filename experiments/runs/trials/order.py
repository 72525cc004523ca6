"""Data between a run and a trial's process: the trial's order and its measurements."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from pillarbox.experiments.models.workloads.collectives.plan import CollectivePlan
from pillarbox.experiments.models.workloads.flows import Flow, FlowResult
from pillarbox.experiments.models.workloads.training.iteration_plan import IterationPlan
from pillarbox.experiments.models.workloads.workload import Workload
from pillarbox.experiments.runs.plans.trials import Trial
from pillarbox.hosts.base.failures import Failures
from pillarbox.hosts.base.faults import Fault
from pillarbox.topos.base.topology import Topology

if TYPE_CHECKING:
    from pillarbox.experiments.lab.emulation.packet_log import Sightings
    from pillarbox.experiments.lab.traffic.collective_tool import TransferResult
    from pillarbox.experiments.models.workloads.distribution_plan import DistributionPlan
    from pillarbox.experiments.runs.trust.readings import Readings

# Time limit for starting and ending a lab, in seconds, and addition for each of its servers.
SETUP_S = 90.0
SETUP_S_PER_SERVER = 0.1


@dataclass(frozen=True)
class TrialOrder:
    """Order to run one trial: its system, its flows and its faults.

    An order is complete: it goes to the trial's process and then to the trial's outcome, and
    neither of them parses a spec or plans the traffic again.
    """

    trial: Trial
    workload: Workload
    flows: tuple[Flow, ...]
    faults: tuple[Fault, ...]
    # Plan of a collective operation or of a file distribution, whose flows wait for one another.
    plan: CollectivePlan | DistributionPlan | None = None
    log_packets: bool = False  # True logs the times of all packets.

    @property
    def topology(self) -> Topology:
        """Network of the trial's system."""
        return self.trial.system.topology

    @property
    def collective(self) -> CollectivePlan | None:
        """Plan of the trial's collective operation; None for other workloads."""
        return self.plan if isinstance(self.plan, CollectivePlan) else None

    @property
    def iteration(self) -> IterationPlan | None:
        """Plan of the trial's training iteration; None for other workloads."""
        return self.plan if isinstance(self.plan, IterationPlan) else None

    @property
    def limit_s(self) -> float:
        """Time limit of the whole trial in seconds, from its first process on."""
        return SETUP_S + SETUP_S_PER_SERVER * self.topology.servers + self.workload.timeout_s


class FlowPathsAtTime(NamedTuple):
    """The paths of all flows at one time of a trial."""

    at_s: float  # Time after the barrier, in seconds.
    # Addresses of the servers on each flow's path; empty if servers choose no path.
    paths: tuple[tuple[str, ...], ...]
    failures: Failures  # Failed nodes and links at the sample's time; computed paths avoid them.


@dataclass(frozen=True)
class TrialMeasurements:
    """Measurements of a trial: flow results, paths, events, readings and facts of the lab."""

    routing: str
    plane: str
    tool: str
    tool_versions: dict[str, Any]
    began: dict[str, Any]  # Time of the barrier by wall clock and CLOCK_MONOTONIC.
    results: tuple[FlowResult, ...]
    # Addresses of the servers on the path of each flow, and of its acknowledgements; empty if
    # unknown.
    paths: tuple[tuple[str, ...], ...]
    back: tuple[tuple[str, ...], ...]
    events: tuple[dict[str, Any], ...]
    readings: Readings
    lab: dict[str, Any]
    uniform: bool = True  # False if a cable's settings were changed during the trial.
    steps: tuple[TransferResult, ...] = ()  # Transfers of a collective operation.
    log: tuple[str, ...] = field(repr=False, default=())  # Lines of the lab's event log.
    # Path samples during the trial, in order of time.
    sampled: tuple[FlowPathsAtTime, ...] = field(repr=False, default=())
    packets: Sightings | None = field(repr=False, default=None)  # None: packets were not logged.
