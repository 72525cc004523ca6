"""The order for a trial's process, and what it measured."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from experiments.traffic.flows import Flow, FlowResult
from experiments.traffic.workload import Workload
from experiments.trials.plans.trials import Trial
from hosts.base.failures import Failures
from hosts.base.faults import Fault

if TYPE_CHECKING:
    from experiments.traffic.collectives.tool import TransferResult
    from experiments.trials.trust.readings import Readings

SETUP_S = (
    90.0  # before the barrier and after the end: a lab of a thousand servers comes up and goes
)
SETUP_S_PER_SERVER = 0.1


@dataclass(frozen=True)
class TrialOrder:
    """One trial: its system, its flows, and its faults."""

    trial: Trial
    workload: Workload
    flows: tuple[Flow, ...]
    faults: tuple[Fault, ...]
    servers: int

    @property
    def limit_s(self) -> float:
        """How long all of it may take, from the first process on."""
        return SETUP_S + SETUP_S_PER_SERVER * self.servers + self.workload.timeout_s


class PathSample(NamedTuple):
    """The paths of all flows at a moment of a trial."""

    at_s: float  # after the barrier
    paths: tuple[tuple[str, ...], ...]  # addresses of each flow's servers; empty if not chosen
    failures: Failures  # on which the paths depend that servers do not choose


@dataclass(frozen=True)
class TrialMeasurements:
    """What a trial saw."""

    routing: str
    plane: str
    tool: str
    tool_versions: dict[str, Any]
    began: dict[str, Any]  # the barrier, by both clocks
    results: tuple[FlowResult, ...]
    # Addresses of servers, of each flow and of its acknowledgements; empty where it is not known.
    paths: tuple[tuple[str, ...], ...]
    back: tuple[tuple[str, ...], ...]
    events: tuple[dict[str, Any], ...]
    readings: Readings
    lab: dict[str, Any]
    uniform: bool = True  # whether every cable was as the system says
    steps: tuple[TransferResult, ...] = ()  # of a collective operation
    log: tuple[str, ...] = field(repr=False, default=())  # the lab's own, a line an event
    sampled: tuple[PathSample, ...] = field(repr=False, default=())  # before the end, in order
