"""A run: the trials of an experiment, one after the other, into a folder of records.

Each trial is on the disk, whole, before the next one begins. A run that was stopped or killed goes
on where it was, with ``resume``: the same plan gives the same trials in the same order.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias

from experiments.files import only_writer, output_folder
from experiments.traffic.flows import Flow
from experiments.traffic.workload import Workload
from experiments.trials.plans.experiment import Experiment, System
from experiments.trials.plans.trials import Trial, blocks
from experiments.trials.plans.values import differences, plain
from experiments.trials.runs import records, store
from experiments.trials.runs.manifest import manifest, moment
from experiments.trials.runs.order import TrialMeasurements, TrialOrder
from experiments.trials.runs.outcome import Outcome, failed, outcome
from experiments.trials.runs.records import MANIFEST, Run
from experiments.trials.runs.statistics import precise
from experiments.trials.runs.summary import main_measure, totals_text, values, verdict_text
from experiments.trials.runs.trial_process import TrialDisplay, TrialError, measure
from hosts.base.load import router_for
from topos.base.errors import require
from topos.base.spec import parse
from topos.base.topology import Topology

Measure: TypeAlias = Callable[[TrialOrder, TrialDisplay, Path], TrialMeasurements]


def new_name(experiment: Experiment) -> Path:
    """Return the folder of a run that begins now."""
    now = datetime.now().astimezone()
    return Path(f"{experiment.name}-{now:%Y%m%d-%H%M%S}-seed{experiment.seed}")


def run(
    experiment: Experiment,
    folder: Path | None = None,
    *,
    live: TrialDisplay | None = None,
    measure: Measure = measure,
    plain_csv: bool = False,
) -> Run:
    """Run an experiment, or what is left of it; return its records.

    Parameters
    ----------
    experiment : Experiment
        What is run.
    folder : Path, optional
        Where the records go: a new folder, or one of a run of the same plan, which then goes on;
        the plan may have more repeats.
    live : Live, optional
        What shows how it goes (see experiments.reporting.progress); nothing by default.
    measure : callable, optional
        What runs one trial.
    plain_csv : bool
        Whether addresses in CSV are as in Parquet (see `records.write_combined`).
    """
    orders_of(experiment)  # refuses what cannot be run, before anything is
    folder = output_folder(folder or new_name(experiment))
    store.settle(folder)
    shown = live or TrialDisplay()
    with only_writer(folder):
        about = _begin(experiment, folder)
        for block in blocks(experiment):
            done = records.load(folder)
            if block[0].repeat >= experiment.repeats and _is_precise(experiment, done):
                break
            finished = {one["trial"] for one in done.records}
            for trial in block:
                if trial.number not in finished:
                    _run_trial(order_of(experiment, trial), folder, about, shown, measure)
        store.write_json(folder / MANIFEST, about | {"ended": moment()})
        done = records.load(folder)
        records.write_combined(done, plain_csv=plain_csv)
    return done


def orders_of(experiment: Experiment) -> list[TrialOrder]:
    """Return the orders of the first block; raise PillarboxError for what cannot be run."""
    return [order_of(experiment, trial) for trial in next(blocks(experiment))]


def order_of(experiment: Experiment, trial: Trial) -> TrialOrder:
    """Return what a trial is to do: its flows and its faults, by its seed."""
    from experiments.trials.plans.fault_schedule import schedule

    topology, workload = parse(trial.system.network), experiment.workload
    routing = trial.system.routing
    if routing and not routing.endswith(".py"):
        router_for(topology, routing)  # refuses what there is not
    name = trial.system.name
    wanted = [one for one in experiment.faults if not one.systems or name in one.systems]
    if trial.system.machines > 1:
        check_machines(topology, trial.system, workload)
    faults = schedule(topology, wanted, workload, trial.seed)
    flows = _flows_of(topology, workload, trial)
    return TrialOrder(trial, workload, tuple(flows), tuple(faults), topology.servers)


def check_machines(topology: Topology, system: System, workload: Workload) -> None:
    """Refuse what does not run over several machines."""
    from experiments.traffic.collectives.plan import is_collective

    require(
        system.machines <= topology.servers,
        f"{topology.spec} has {topology.servers} servers, too few for {system.machines} machines",
    )
    require(
        workload.tool in ("auto", "generator"),
        f"{workload.tool} sends on one machine only: over several it is the generator",
    )
    require(
        not workload.options.get("distribute") and not is_collective(workload),
        "files that are passed on and collective operations run on one machine only: leave "
        "--machines out",
    )


def _flows_of(topology: Topology, workload: Workload, trial: Trial) -> list[Flow]:
    """Return the flows of a workload.

    Those of a file that is passed on are its hops, those of a collective operation its connections.
    """
    from experiments.traffic.collectives.plan import collective_of

    collective = collective_of(topology, workload, trial.system.algorithm, trial.seed)
    if collective:
        return collective.flows()
    seed = trial.seed
    if workload.arrivals is not None:
        from experiments.trials.plans.drawn_arrivals import arrivals_of

        return arrivals_of(trial.system, workload, seed).flows()
    if not workload.options.get("distribute"):
        from experiments.traffic.patterns import flows_of

        return flows_of(topology, workload, seed)
    from experiments.traffic.file_distribution import hops_of, plan_for

    plan = plan_for(topology, workload, seed)
    return [flow for _, flow in hops_of(plan, workload.volume_bytes or 0)]


def _begin(experiment: Experiment, folder: Path) -> dict[str, Any]:
    """Return the manifest: a new one, or that of the run which goes on."""
    (folder / "trials").mkdir(exist_ok=True)
    store.settle(folder / "trials")
    if not (folder / MANIFEST).exists():
        found = [one.name for one in folder.iterdir() if one.name != "trials"]
        require(not found, f"{folder} is not empty, and no run: name another folder with --out")
        about = manifest(experiment, ["pillarbox", *sys.argv[1:]])
        store.write_json(folder / MANIFEST, about)
        return about
    about = records.load(folder).manifest
    changed = [
        f"{name} was {before} and is {after}"
        for name, before, after in differences(about["plan"], plain(experiment))
        if not (name == "repeats" and after > before)  # more trials, after those that there are
    ]
    require(
        not changed,
        f"{folder} is a run of another plan ({'; '.join(changed)}): "
        "run it as it was, or name another folder with --out",
    )
    about["plan"] = plain(experiment)
    about.setdefault("resumed", []).append(moment())
    store.write_json(folder / MANIFEST, about)
    return about


def _is_precise(experiment: Experiment, done: Run) -> bool:
    """Tell whether every system's interval is as narrow as is wanted."""
    assert experiment.precision is not None
    workload = experiment.workload
    arrive = workload.arrivals is not None
    column = main_measure(workload.volume_bytes, arrive=arrive).column
    return all(
        precise(list(values(done, system.name, column).values()), experiment.precision)
        for system in experiment.systems
    )


def _run_trial(
    order: TrialOrder, folder: Path, about: dict[str, Any], live: TrialDisplay, measure: Measure
) -> None:
    """Run one trial, and write its records."""
    trial = order.trial
    topology = parse(trial.system.network)
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
    _write(ended, records.trial_folder(folder, trial.number), printed, topology.kind)
    store.write_json(folder / MANIFEST, about)
    live.end_trial(verdict_text(ended.record), totals_text(ended.record))


def _write(ended: Outcome, folder: Path, printed: str, kind: str) -> None:
    texts = {"events.jsonl": "\n".join(ended.log), "log.txt": printed.rstrip()}
    records.write_trial(folder, ended.record, ended.tables, texts, kind)
