"""``pillarbox run``: run of an experiment, which writes a folder of records."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pillarbox.experiments.base.arguments import FOLDER, answer, complete, json_option
from pillarbox.experiments.base.interpreter import require_modules
from pillarbox.experiments.base.text import columns
from pillarbox.experiments.base.units import parsed_rate_mbit
from pillarbox.experiments.cli.commands.training import given_options, iteration_options
from pillarbox.hosts.linux.user_namespace import refusal, require_root_or_user_namespace
from pillarbox.topos.base.errors import PillarboxError, require

if TYPE_CHECKING:
    from pillarbox.experiments.runs.plans.experiment import Experiment, System
    from pillarbox.experiments.runs.trials.experiment_run import Measure
    from pillarbox.experiments.runs.trials.order import TrialMeasurements, TrialOrder
    from pillarbox.experiments.runs.trials.trial_process import TrialDisplay

# Options that set a key of the experiment.
SETTINGS = (
    *("repeats", "seed", "rate_mbit", "plane", "kit", "duration", "machines", "cluster"),
    "log_packets",
)
FULL = (errno.ENOSPC, errno.EDQUOT)


@click.command()
@click.argument("name", shell_complete=complete("experiments"), metavar="NAME|FILE", required=False)
@click.option("--list", "listed", is_flag=True, help="List the experiments of the catalogue.")
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="KEY=VALUE",
    help="Key of the experiment to change (docs/experiments.md). Repeatable.",
)
@click.option("--repeats", type=int, help="Number of trials per system.")
@click.option("--seed", type=int, help="Seed for the order of trials, the flows and the faults.")
@click.option(
    "--rate-mbit", metavar="RATE", help="Rate of every cable in Mbit/s, or: calibrated, none."
)
@click.option(
    "--as",
    "own_rate",
    metavar="RATE",
    help="Rate of the network's cables, such as 10Gbit: the lab runs slower (docs/dilation.md).",
)
@click.option("--plane", help="Data plane: auto, python, ebpf, or ovs (if servers do not relay).")
@click.option("--kit", help="Framework of OpenFlow controllers: os-ken or ryu.")
@click.option("--duration", metavar="SECONDS", help="Duration of every flow.")
@click.option(
    "--load", metavar="LOAD", help="Offered load of arriving flows: 0.6, or several: 0.3,0.6."
)
@click.option(
    "--machines", type=int, metavar="N", help="Number of machines per system: see `up --machines`."
)
@click.option(
    "--cluster",
    metavar="NAME",
    help="Cluster to run on; with --machines 1 each machine runs whole trials.",
)
@click.option(
    "--log-packets",
    is_flag=True,
    default=None,
    help="Log the times of all TCP packets for `why-slow` (on one machine, Linux 6.6).",
)
@click.option("--out", type=FOLDER, help="Output directory (must not exist).")
@click.option(
    "--resume",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="RUN",
    help="Continue an interrupted run, or add trials to it with --repeats (without NAME).",
)
@click.option(
    "--plain-csv",
    is_flag=True,
    help="Write short addresses (1.10) in CSV; many programs read them as numbers.",
)
@click.option(
    "--dry-run", is_flag=True, help="Print the trials and their order without running them."
)
@click.option(
    "--when-quiet",
    is_flag=True,
    help="Wait before each trial until other programs leave the processors idle (at most 10 min).",
)
@iteration_options(hidden=True)
@json_option("experiments", "order", "sending_s", "folder", "trials", "slowdowns", "jobs")
def command(
    name: str | None,
    listed: bool,
    changes: tuple[str, ...],
    out: Path | None,
    resume: Path | None,
    plain_csv: bool,
    when_quiet: bool,
    dry_run: bool,
    as_json: bool,
    load: str | None,
    own_rate: str | None,
    **others: Any,
) -> int:
    """Run an experiment of the catalogue, or a FILE.py or FILE.toml.

    Trials alternate between the systems in a random order drawn from the seed. Each finished trial
    is on disk: --resume continues an interrupted run. Exit code 1: a trial failed or is not valid;
    its figures are marked with ? and left out of all means. Files: docs/experiments.md.
    `run training` takes the options of `training` that describe an iteration, and --job.

    \b
    pillarbox run --list
    sudo ./pillarbox run quick
    sudo ./pillarbox run all-to-all --rate-mbit 30 --repeats 5
    sudo ./pillarbox run all-to-all --set systems.0.routing=bsr --set workload.duration_s=5
    sudo ./pillarbox run fct --load 0.3,0.6
    sudo ./pillarbox run fct --as 1Gbit --set network=bcube,4,1 --set congestion=reno
    sudo ./pillarbox run training --tp 4 --pp 2 --ep 2
    sudo ./pillarbox run permutation --set network=dcell,4,1 --machines 2
    sudo ./pillarbox run permutation --set network=dcell,4,1 --cluster cluster
    sudo ./pillarbox run fct --cluster cluster --machines 1
    sudo ./pillarbox run --resume all-to-all-20260301-101500-seed1
    sudo ./pillarbox run --resume all-to-all-20260301-101500-seed1 --repeats 5 --when-quiet
    """
    if listed:
        _print_catalogue(as_json)
        return 0
    require(
        out is None or resume is None,
        "--resume adds to the directory of the run that it continues: omit --out",
    )
    short = {name: others[name] for name in SETTINGS}
    iteration = given_options({key: one for key, one in others.items() if key not in SETTINGS})
    if short["cluster"] or (short["machines"] or 0) > 1:
        require_modules("distributed", "cryptography")
    if short["cluster"] and not short["machines"]:
        short["machines"] = _machines_of(short["cluster"])
    all_changes = [*changes, *_settings_of_options(short)]
    experiment = _experiment_to_run(
        *(name, all_changes, resume, load, iteration), live=not refusal()
    )
    if own_rate is not None:
        experiment = _dilated(experiment, own_rate, resume)
    require(
        not (when_quiet and any(one.cluster for one in experiment.systems)),
        "--when-quiet watches this machine only, but the trials run on a cluster: leave it out",
    )
    if dry_run:
        _print_order(experiment, as_json)
        return 0
    require_root_or_user_namespace("an experiment runs live networks, which")
    from pillarbox.experiments.runs.plans.trials import blocks
    from pillarbox.experiments.runs.reporting.progress import Live
    from pillarbox.experiments.runs.trials.experiment_run import new_name, orders_of, run
    from pillarbox.experiments.runs.trials.job_slowdowns import job_slowdowns
    from pillarbox.experiments.runs.trials.slowdowns import slowdowns
    from pillarbox.experiments.runs.trials.summary import advice, text_of
    from pillarbox.experiments.runs.trials.unsupported import without_unsupported

    experiment, left_out = without_unsupported(experiment)
    for sentence in left_out:
        click.echo(f"pillarbox: {sentence}", err=True)
    trials = sum(len(block) for block in blocks(experiment) if block[0].repeat < experiment.repeats)
    folder = resume or out or new_name(experiment)
    orders = orders_of(experiment)  # Raises errors before the progress display starts.
    try:
        with Live(trials, experiment.name) as live, _trial_runner(experiment, folder) as measure:
            if when_quiet:
                measure = _when_quiet(measure)
            done = run(
                experiment, folder, orders=orders, live=live, measure=measure, plain_csv=plain_csv
            )
    except KeyboardInterrupt:
        raise PillarboxError(f"stopped: continue with `pillarbox run --resume {folder}`") from None
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise PillarboxError(
            f"the disk is full: free space, then continue with `pillarbox run --resume {folder}`"
        ) from error
    found: dict[str, Any] = {"folder": str(done.folder), "trials": done.records}
    if by_size := slowdowns(done):
        found["slowdowns"] = [one.as_json() for one in by_size]
    if jobs := job_slowdowns(done):
        found["jobs"] = [one.as_json() for one in jobs]
    parts = [text_of(done), advice(done, name), str(done.folder)]
    answer(as_json, found, "\n\n".join(filter(None, parts)))
    return int(not all(one["valid"] for one in done.records))


def _dilated(experiment: Experiment, own_rate: str, resume: Path | None) -> Experiment:
    """Return the experiment over a network with faster cables than the lab's."""
    from pillarbox.experiments.runs.plans.dilation import dilated

    require(resume is None, "a resumed run keeps its plan: omit --as")
    found, left_out = dilated(experiment, parsed_rate_mbit(own_rate))
    for sentence in left_out:
        click.echo(f"pillarbox: {sentence}", err=True)
    return found


def _when_quiet(measure: Measure) -> Measure:
    """Return a function that waits for a quiet machine before it runs a trial."""

    def measured_when_quiet(order: TrialOrder, live: TrialDisplay, log: Path) -> TrialMeasurements:
        from pillarbox.experiments.runs.trust.quiet import wait_until_quiet

        wait_until_quiet(live.phase)
        return measure(order, live, log)

    return measured_when_quiet


@contextmanager
def _trial_runner(experiment: Experiment, folder: Path) -> Iterator[Measure]:
    """Yield the function that runs a trial: on this machine, or on all machines of a cluster."""
    from pillarbox.experiments.runs.plans.trials import blocks
    from pillarbox.experiments.runs.trials import records
    from pillarbox.experiments.runs.trials.experiment_run import order_of
    from pillarbox.experiments.runs.trials.trial_process import measure

    clusters = {one.cluster for one in experiment.systems if one.machines == 1}
    if not any(clusters):
        yield measure
        return
    require(
        len({one.cluster for one in experiment.systems}) == len(clusters) == 1,
        "trials that are spread over a cluster must each run on one machine: give all systems "
        "the same cluster, and machines=1",
    )
    from pillarbox.experiments.apps.cluster.trial_distribution import TrialDistributor

    known = records.load(folder).records if (folder / records.MANIFEST).exists() else ()
    finished = {one["trial"] for one in known}
    first = islice(blocks(experiment), experiment.repeats)
    remaining = ([one for one in block if one.number not in finished] for block in first)
    with TrialDistributor(
        clusters.pop(), filter(None, remaining), partial(order_of, experiment)
    ) as machines:
        yield machines.measure


def _machines_of(cluster: str) -> int:
    """Return the number of machines of a running cluster."""
    from pillarbox.experiments.apps.cluster.cluster_registry import NamedCluster

    named_cluster = NamedCluster(cluster)
    named_cluster.close()
    return named_cluster.machines


def _settings_of_options(given: dict[str, Any]) -> list[str]:
    """Convert command-line options, such as --repeats, to settings of an experiment."""
    names = {"duration": "workload.duration_s"}
    return [f"{names.get(key, key)}={value}" for key, value in given.items() if value is not None]


def _experiment_to_run(
    name: str | None,
    changes: list[str],
    resume: Path | None,
    load: str | None,
    iteration: dict[str, Any],
    *,
    live: bool,
) -> Experiment:
    """Return the experiment that `run` is to run: by name, from a file, or of a resumed run."""
    from pillarbox.experiments.runs.plans import loading
    from pillarbox.experiments.runs.plans.overrides import overridden
    from pillarbox.experiments.runs.trials import records

    if name is None:
        require(resume is not None, "give an experiment (see --list), or --resume RUN")
        others = [one for one in changes if not one.startswith("repeats=")]
        require(
            not others and load is None and not iteration,
            "a resumed run keeps its plan: only --repeats can change",
        )
        assert resume is not None
        return loading.experiment_of(overridden(records.load(resume).manifest["plan"], changes))
    calibrated = _calibrated_mbit if live else None
    found = loading.load(name, changes, calibrated, parsed_loads(load))
    return loading.with_iteration_options(found, iteration)


def parsed_loads(text: str | None) -> list[float]:
    """Parse the offered loads of --load: one number, or several separated by commas.

    >>> parsed_loads("0.3, 0.6"), parsed_loads(None)
    ([0.3, 0.6], [])
    """
    try:
        return [float(word) for word in text.split(",")] if text is not None else []
    except ValueError:
        raise PillarboxError(
            f"{text!r} is not a load: write 0.6, or several loads as 0.3,0.6"
        ) from None


def _calibrated_mbit(system: System) -> float:
    """Return the highest rate in Mbit/s at which this machine emulates a system faithfully."""
    from pillarbox.experiments.runs.trials.calibration import calibrated_rate

    return calibrated_rate(system, lambda line: click.echo(line, err=True))


def _print_catalogue(as_json: bool) -> None:
    from pillarbox.experiments.runs.plans import loading

    found = {name: loading.load(name).about for name in loading.names()}
    answer(as_json, {"experiments": found}, columns(found.items()))


def _print_order(experiment: Experiment, as_json: bool) -> None:
    from pillarbox.experiments.runs.plans.trials import blocks
    from pillarbox.experiments.runs.trials.experiment_run import order_of

    rows, lines, sending_s = [], [], 0.0
    for trial in (trial for block in blocks(experiment) for trial in block):
        order = order_of(experiment, trial)
        system, repeat, flows = trial.system.name, trial.repeat + 1, len(order.flows)
        faults = list(map(str, order.faults))
        rows.append({"system": system, "repeat": repeat, "flows": flows, "faults": faults})
        lines.append(f"{trial.number + 1}. {system}, repeat {repeat}: {flows} flows")
        lines += [f"   {fault}" for fault in faults]
        sending_s += _sending_s(order)
    if sending_s:
        lasts = f"{sending_s / 60:.0f} min" if sending_s >= 90 else f"{sending_s:.0f} s"
        lines.append(f"They send for {lasts} in all, and each takes some seconds more to start.")
    answer(as_json, {"order": rows, "sending_s": sending_s or None}, "\n".join(lines))


def _sending_s(order: TrialOrder) -> float:
    """Return for how long a trial's lab sends, in seconds; 0 if that follows from volumes."""
    from pillarbox.experiments.runs.trials.dilation import lab_order

    workload = lab_order(order).workload
    around_s = workload.warm_up_s + workload.cool_down_s if workload.arrivals else 0.0
    return workload.duration_s + around_s if workload.duration_s else 0.0
