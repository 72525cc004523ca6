"""Labs over machines for tests, and trials in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pillarbox import topos
from pillarbox.experiments.apps.cluster.local_machines import CARD
from pillarbox.experiments.models.workloads.workload import Workload
from pillarbox.experiments.runs.plans.experiment import Experiment, FaultAt, System
from pillarbox.experiments.runs.plans.trials import Trial
from pillarbox.experiments.runs.trials.experiment_run import order_of
from pillarbox.experiments.runs.trials.order import TrialMeasurements
from pillarbox.experiments.runs.trials.trial_worker import measured_in
from pillarbox.hosts.live.settings import LabSettings
from tests.experiments.labs import WAIT_S

if TYPE_CHECKING:
    from pillarbox.experiments.lab.emulation.lab import Lab

SOON_S = 0.3


@contextmanager
def lab_over(spec: str, machines: int, folder: Path, **how: Any) -> Iterator[Lab]:
    from pillarbox.experiments.apps.cluster.cluster_fabric import ClusterFabric
    from pillarbox.experiments.lab.emulation import packet_tracing
    from pillarbox.experiments.lab.emulation.lab import Lab

    packet_tracing.TRACE_S = SOON_S  # in this sandbox alone: what is lost is sent again
    fabric = ClusterFabric(machines)
    with Lab(topos.parse(spec), LabSettings(**how), folder, fabric=fabric) as lab:
        lab.wait_converged()
        yield lab


def trial_in(
    lab: Lab, *faults: str, tell: Callable[[Any], object] = str, **workload: Any
) -> TrialMeasurements:
    """Send every server's flow to one other, with these faults; return what was seen."""
    system = System(lab.topology.spec, machines=lab.fabric.machines, **lab.settings.plain())
    what = Workload(pattern="permutation", timeout_s=WAIT_S, **workload)
    experiment = Experiment("test", "", (system,), what, tuple(map(FaultAt, faults)))
    return measured_in(lab, order_of(experiment, Trial(0, system, 0, 1)), tell)


def worker(lab: Lab, machine: int) -> int:
    """Return the process of an emulated machine's Dask worker."""
    return lab.fabric.ground.started(machine).process.pid


def apart(lab: Lab, cable: tuple[int, int]) -> bool:
    return lab.fabric.machine_of(cable[0]) != lab.fabric.machine_of(cable[1])


def running(what: str) -> list[int]:
    """Return the processes in this sandbox whose command has a word; zombies are dead."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                command = (entry / "cmdline").read_text()  # of a zombie, nothing
            except (FileNotFoundError, ProcessLookupError):
                continue
            if what in command:
                found.append(int(entry.name))
    return found


@contextmanager
def saturate(lab: Lab, machine: int, rate_mbit: float) -> Iterator[None]:
    """Let a machine's card send no faster than that."""
    from pillarbox.experiments.lab.linux import shaping

    assert lab.fabric.ground.computer
    kernel = lab.fabric.ground.computer.namespaces[machine].netlink
    [card] = (link for link in kernel.links() if link.name == CARD)
    kernel.send(shaping.limited(card.ifindex, rate_mbit, None))
    try:
        yield
    finally:
        kernel.send(shaping.unlimited(card.ifindex))
