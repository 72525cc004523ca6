"""Run of an experiment: executes its trials one after another and writes a folder of records.

The records of a trial are completely on disk before the next trial begins. A run that was stopped
or killed can be resumed (``--resume``): the same plan gives the same trials in the same order.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from pillarbox.experiments.base.files import only_writer, output_folder
from pillarbox.experiments.lab.traffic.tools import AUTO, GENERATOR
from pillarbox.experiments.models.workloads.flows import Flow
from pillarbox.experiments.models.workloads.workload import TRAINING, Workload
from pillarbox.experiments.runs.plans.experiment import Experiment, System
from pillarbox.experiments.runs.plans.trials import Trial, blocks
from pillarbox.experiments.runs.plans.values import differences, plain
from pillarbox.experiments.runs.trials import records, store
from pillarbox.experiments.runs.trials.manifest import manifest, moment
from pillarbox.experiments.runs.trials.order import TrialMeasurements, TrialOrder
from pillarbox.experiments.runs.trials.outcome import Outcome, failed, outcome
from pillarbox.experiments.runs.trials.records import MANIFEST, Run
from pillarbox.experiments.runs.trials.statistics import precise
from pillarbox.experiments.runs.trials.summary import (
    main_measure,
    totals_text,
    values,
    verdict_text,
)
from pillarbox.experiments.runs.trials.trial_process import TrialDisplay, TrialError, measure
from pillarbox.hosts.base.load import router_for
from pillarbox.topos.base.errors import UnsupportedError, require

if TYPE_CHECKING:
    from pillarbox.experiments.models.workloads.collectives.plan import CollectivePlan
    from pillarbox.experiments.models.workloads.distribution_plan import DistributionPlan

Measure: TypeAlias = Callable[[TrialOrder, TrialDisplay, Path], TrialMeasurements]


def new_name(experiment: Experiment) -> Path:
    """Return a new folder name for a run: experiment, current time and seed."""
    now = datetime.now().astimezone()
    return Path(f"{experiment.name}-{now:%Y%m%d-%H%M%S}-seed{experiment.seed}")


def run(
    experiment: Experiment,
    folder: Path | None = None,
    *,
    orders: Sequence[TrialOrder] = (),
    live: TrialDisplay | None = None,
    measure: Measure = measure,
    plain_csv: bool = False,
) -> Run:
    """Run the trials of an experiment that have no records yet; return the run's records.

    Parameters
    ----------
    experiment : Experiment
        Experiment to run.
    folder : Path, optional
        Folder of the records: a new folder, or the folder of a run of the same plan, which is then
        resumed; the plan may have more repeats.
    orders : sequence of TrialOrder, optional
        Orders of the first block, if the caller has made them (`orders_of`).
    live : TrialDisplay, optional
        Progress display (see pillarbox.experiments.runs.reporting.progress); none by default.
    measure : callable, optional
        Function that runs one trial.
    plain_csv : bool
        True writes short addresses of servers in CSV (see `records.write_combined`).
    """
    # Raises PillarboxError before the first trial if a trial cannot run.
    prepared = {one.trial.number: one for one in orders or orders_of(experiment)}
    folder = output_folder(folder or new_name(experiment))
    store.settle(folder)
    display = live or TrialDisplay()
    with only_writer(folder):
        about = _begun_manifest(experiment, folder)
        for block in blocks(experiment):
            done = records.load(folder, experiment)
            if block[0].repeat >= experiment.repeats and _is_precise(experiment, done):
                break
            finished = {one["trial"] for one in done.records}
            for trial in block:
                order = prepared.pop(trial.number, None)
                if trial.number not in finished:
                    order = order or order_of(experiment, trial)
                    _run_trial(order, folder, about, display, measure)
        store.write_json(folder / MANIFEST, about | {"ended": moment()})
        done = records.load(folder, experiment)
        records.write_combined(done, plain_csv=plain_csv)
    return done


def orders_of(experiment: Experiment) -> list[TrialOrder]:
    """Return the orders of the first block's trials; raise PillarboxError if one cannot run."""
    return [order_of(experiment, trial) for trial in next(blocks(experiment))]


def order_of(experiment: Experiment, trial: Trial) -> TrialOrder:
    """Return the order of a trial: its flows and its faults, drawn from its seed."""
    from pillarbox.experiments.runs.plans.fault_schedule import schedule

    topology, workload = trial.system.topology, experiment.workload
    if trial.system.tool:
        workload = replace(workload, tool=trial.system.tool)
    elif any(one.multipath or one.dilation != 1 for one in experiment.systems) and (
        workload.tool == AUTO and not has_own_tool(workload)
    ):
        workload = replace(workload, tool=GENERATOR)  # the same tool for all systems
    routing = trial.system.routing
    if routing and not routing.endswith(".py"):
        router_for(topology, routing)  # Raises PillarboxError for an unknown routing.
    name = trial.system.name
    faults_of_system = [one for one in experiment.faults if not one.systems or name in one.systems]
    if trial.system.machines > 1:
        check_machines(trial.system, workload)
    require(
        not experiment.log_packets or (trial.system.machines == 1 and not trial.system.multipath),
        f"packets of {name} cannot be logged, only those of TCP on one machine: omit --log-packets",
        UnsupportedError,
    )
    faults = schedule(topology, faults_of_system, workload, trial.seed)
    flows, plan = _flows_and_plan(workload, trial)
    return TrialOrder(trial, workload, tuple(flows), tuple(faults), plan, experiment.log_packets)


def has_own_tool(workload: Workload) -> bool:
    """Return True if only the tool of collective operations and training runs a workload."""
    from pillarbox.experiments.models.workloads.collectives.plan import is_collective

    return is_collective(workload) or workload.pattern == TRAINING


def check_machines(system: System, workload: Workload) -> None:
    """Raise PillarboxError if a system and its workload cannot run over several machines."""
    topology, waits = system.topology, has_own_tool(workload)
    require(
        system.machines <= topology.servers,
        f"{topology.spec} has {topology.servers} servers, too few for {system.machines} machines",
    )
    require(
        workload.tool in ("auto", "generator"),
        f"{workload.tool} runs on one machine only: remove tool to use the generator",
        UnsupportedError,
    )
    require(
        not workload.options.get("distribute") and not waits,
        "file distribution, collective operations and training iterations run on one machine only: "
        "leave --machines out",
        UnsupportedError,
    )


def _flows_and_plan(
    workload: Workload, trial: Trial
) -> tuple[list[Flow], CollectivePlan | DistributionPlan | None]:
    """Return the flows of a trial's workload, and the plan that makes them wait for one another.

    The flows of a file distribution are its hops, those of a collective operation its connections.
    """
    from pillarbox.experiments.models.workloads.collectives.plan import collective_of

    if workload.pattern == TRAINING:
        from pillarbox.experiments.models.workloads.training.training_workload import training_plan

        system = trial.system
        iteration = training_plan(
            system.topology, workload, system.algorithm, trial.seed, system.job
        )
        return iteration.live_flows(), iteration
    topology, algorithm = trial.system.topology, trial.system.algorithm
    collective = collective_of(topology, workload, algorithm, trial.seed)
    if collective:
        return collective.flows(), collective
    if workload.arrivals is not None:
        from pillarbox.experiments.runs.plans.drawn_arrivals import arrivals_of

        return arrivals_of(trial.system, workload, trial.seed).flows(), None
    if not workload.options.get("distribute"):
        from pillarbox.experiments.models.workloads.patterns import flows_of

        return flows_of(topology, workload, trial.seed), None
    from pillarbox.experiments.lab.traffic.file_distribution import hop_flows, plan_for

    plan = plan_for(topology, workload, trial.seed)
    return [flow for _, flow in hop_flows(plan, workload.volume_bytes or 0)], plan


def _begun_manifest(experiment: Experiment, folder: Path) -> dict[str, Any]:
    """Create the manifest of a new run, or update that of a resumed run; return it."""
    (folder / "trials").mkdir(exist_ok=True)
    store.settle(folder / "trials")
    if not (folder / MANIFEST).exists():
        found = [one.name for one in folder.iterdir() if one.name != "trials"]
        require(not found, f"{folder} is not empty and not a run: choose another folder with --out")
        about = manifest(experiment, ["pillarbox", *sys.argv[1:]])
        store.write_json(folder / MANIFEST, about)
        return about
    about = records.load(folder).manifest
    changed = [
        f"{name} was {before} and is {after}"
        for name, before, after in differences(about["plan"], plain(experiment))
        if not (name == "repeats" and after > before)  # More repeats add trials at the end.
    ]
    require(
        not changed,
        f"{folder} is a run of another plan ({'; '.join(changed)}): "
        "run the same plan, or choose another folder with --out",
    )
    about["plan"] = plain(experiment)
    about.setdefault("resumed", []).append(moment())
    store.write_json(folder / MANIFEST, about)
    return about


def _is_precise(experiment: Experiment, done: Run) -> bool:
    """Return True if the confidence interval of every system has reached the precision."""
    assert experiment.precision is not None
    workload = experiment.workload
    arrive = workload.arrivals is not None
    column = main_measure(completes=workload.completes, arrive=arrive).column
    return all(
        precise(list(values(done, system.name, column).values()), experiment.precision)
        for system in experiment.systems
    )


def _run_trial(
    order: TrialOrder, folder: Path, about: dict[str, Any], live: TrialDisplay, measure: Measure
) -> None:
    """Run one trial and write its records and the manifest."""
    trial = order.trial
    topology = order.topology
    name = f"{trial.system.name}, repeat {trial.repeat + 1}"
    live.begin_trial(name, order.flows, number=trial.number + 1, address=topology.address)
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch) / "log"
        log.touch()
        try:
            found = measure(order, live, log)
            ended = outcome(order, found)
            about["systems"].setdefault(trial.system.name, found.lab)
            if clocks := [one.clock_s for one in found.readings.machines]:
                about.setdefault("clocks", {})[str(trial.number)] = clocks
        except TrialError as error:
            ended = failed(trial, str(error))
        printed = log.read_text(errors="replace")
    _write_records(ended, records.trial_folder(folder, trial.number), printed, topology.kind)
    store.write_json(folder / MANIFEST, about)
    live.end_trial(verdict_text(ended.record), totals_text(ended.record))


def _write_records(ended: Outcome, folder: Path, printed: str, kind: str) -> None:
    texts = {"events.jsonl": "\n".join(ended.log), "log.txt": printed.rstrip()}
    records.write_trial(folder, ended.record, ended.tables, texts, kind, ended.packets)
