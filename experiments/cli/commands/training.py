"""``pillarbox training``: time of a training iteration on a network, without root."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pillarbox.experiments.base.arguments import (
    FILE,
    FOLDER,
    SPEC,
    NumberRange,
    answer,
    json_option,
    routing_option,
    seed_option,
)
from pillarbox.experiments.models.workloads.training.placement import PACKED, PLACEMENTS
from pillarbox.topos.base.errors import require
from pillarbox.topos.base.topology import Topology

if TYPE_CHECKING:
    from pillarbox.experiments.models.fluid.iteration import JobTimes
    from pillarbox.experiments.models.workloads.training.breakdown import IterationTimes, Moments
    from pillarbox.experiments.models.workloads.training.iteration_plan import IterationPlan

MOST_SERVERS_SHOWN = 4  # maximum number of servers of a job in the table; --json has all
MOST_RANKS_SHOWN = 32  # maximum number of ranks in the table; --json has all
# Parts of a rank's time, with their titles.
PARTS = {
    "compute_s": "computation",
    "exposed_s": "exposed communication",
    "waiting_s": "waiting",
}
# Options that describe a transformer, with their help.
MODEL = {
    "tp": "Ways of tensor parallelism.  [default: 1]",
    "pp": "Ways of pipeline parallelism.  [default: 1]",
    "dp": "Ways of data parallelism.  [default: as many as the servers allow]",
    "ep": "Ways of expert parallelism, a divisor of --dp.  [default: 1]",
    "layers": "Number of layers.  [default: 4]",
    "hidden": "Hidden size.  [default: 512]",
    "sequence": "Tokens of a sequence.  [default: 256]",
    "micro-batch": "Sequences of a micro-batch.  [default: 1]",
    "micro-batches": "Micro-batches of a replica per iteration.  [default: 4]",
    "experts": "Experts of a layer; 0 is an MLP without experts.  [default: 2 --ep if --ep > 1]",
    "top-k": "Experts that process each token.  [default: 2]",
    "element-bytes": "Size of an activation and of a gradient.  [default: 2]",
}


# All options that describe an iteration, with their settings.
ITERATION: dict[str, dict[str, Any]] = {
    "trace": {
        "metavar": "FILES",
        "help": "Chakra trace: files with %d in place of the rank, or one file that each rank "
        "runs.",
    },
    "groups": {
        "type": FILE,
        "help": "Process groups of the trace (default: comm_group.json in the trace's folder).",
    },
    "ranks": {"type": int, "help": "Number of ranks of the trace."},
    "pytorch": {
        "is_flag": True,
        "default": None,
        "help": "Read a trace that Chakra converted from PyTorch: use its data dependencies only.",
    },
    **{name: {"type": int, "help": about} for name, about in MODEL.items()},
    "skew": {
        "type": float,
        "help": "Exponent of Zipf's law for the popularity of experts.  [default: 0, equal]",
    },
    "shares": {
        "type": FILE,
        "help": "Popularity of experts: a JSON list of numbers, one per expert.",
    },
    "tflops": {
        "type": float,
        "help": "Speed of a rank in 10^12 operations per second.  [default: 0.08]",
    },
    "placement": {
        "type": click.Choice(PLACEMENTS),
        "help": "Servers of the ranks: in the order of addresses, random, or each job in "
        f"sub-structures of its own.  [default: {PACKED}]",
    },
}
JOB_HELP = (
    "One of several simultaneous jobs, with its options: 'tp=4 pp=2', or 'operation=all-reduce "
    "bytes=1000000'. Repeatable."
)


def iteration_options(
    *, hidden: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds the options of a training iteration, and --job, to a command."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        job = click.option(
            "--job", "jobs", multiple=True, metavar="OPTIONS", help=JOB_HELP, hidden=hidden
        )
        command = job(command)
        for name, settings in reversed(ITERATION.items()):
            command = click.option(f"--{name}", hidden=hidden, **settings)(command)
        return command

    return add


def given_options(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given options of `iteration_options` as a workload has them."""
    from pillarbox.experiments.runs.plans.values import job_options

    found: dict[str, Any] = {
        name: str(value) if isinstance(value, Path) else value
        for name, value in values.items()
        if value is not None and name != "jobs"
    }
    if values["jobs"]:
        found["jobs"] = [job_options(text) for text in values["jobs"]]
    return found


@click.command(no_args_is_help=True)
@click.argument("topology", metavar="[SPEC]", type=SPEC, required=False)
@iteration_options()
@click.option(
    "--algorithm",
    default="",
    metavar="NAME",
    help="Algorithm of all-reduce, reduce-scatter and all-gather.  [default: ring]",
)
@routing_option(default="")
@click.option(
    "--rate-mbit",
    type=NumberRange(min=0, min_open=True),
    default=100.0,
    show_default=True,
    help="Rate of every cable in Mbit/s.",
)
@click.option(
    "--mtu",
    type=click.IntRange(min=576, max=65535),
    default=9000,
    show_default=True,
    help="Largest IP packet, in bytes.",
)
@seed_option
@click.option(
    "-o",
    "--out",
    type=FOLDER,
    help="Write the iteration as Chakra traces, with simulated times, into this directory.",
)
@click.option(
    "--ran",
    type=FOLDER,
    metavar="RUN",
    help="Write the iteration of a live run, with measured times, into the directory of --out.",
)
@click.option(
    "--trial",
    type=click.IntRange(min=1),
    help="Number of the trial of --ran, counted from 1 (default: the first completed one).",
)
@json_option(
    *("topology", "algorithm", "routing", "rate_mbit", "iteration_s", "parts", "ranks"),
    *("critical_path", "sent_bytes", "formula_bytes", "files", "jobs", "bound_s"),
)
def command(
    topology: Topology | None,
    algorithm: str,
    routing: str,
    rate_mbit: float,
    mtu: int,
    seed: int,
    out: Path | None,
    ran: Path | None,
    trial: int | None,
    as_json: bool,
    **iteration: Any,
) -> None:
    """Simulate a training iteration: its time, and where the time goes.

    The iteration is that of a Chakra trace, or of a transformer with tensor, pipeline, data and
    expert parallelism. The parts of a rank's time are computation, exposed communication and
    waiting. Several jobs (--job) run simultaneously, each on its own servers; other options apply
    to all of them. `run training` runs the same on an emulated network (docs/training.md).

    \b
    pillarbox training bcube,4,1 --tp 4 --pp 2
    pillarbox training bcube,4,1 --tp 2 --pp 2 --ep 2 --algorithm bcube
    pillarbox training fattree,4 --tp 4 --pp 2 -o traces
    pillarbox training fattree,4 --trace 'traces/trace.%d.et'
    pillarbox training bcube,4,1 --job 'tp=4 pp=2' --job 'dp=8' --placement random
    pillarbox training --ran training-20260301-101500-seed1 -o measured
    """
    if ran is not None:
        require(topology is None and out is not None, "--ran takes no SPEC, and needs --out DIR")
        assert out is not None
        _write_measured_trace(ran, trial, out, as_json)
        return
    require(trial is None, "--trial names a trial of a run: add --ran RUN")
    require(topology is not None, "give a network, such as bcube,4,1, or a run: --ran RUN")
    assert topology is not None
    from pillarbox.experiments.models.fluid.ideal import goodput_share
    from pillarbox.experiments.models.fluid.iteration import simulated_jobs, simulated_moments
    from pillarbox.experiments.models.workloads.training.bound import iteration_bound_s
    from pillarbox.experiments.models.workloads.training.breakdown import iteration_times
    from pillarbox.experiments.models.workloads.training.training_workload import (
        training_plan,
        transformer_of,
    )
    from pillarbox.experiments.models.workloads.workload import TRAINING, Workload

    options = given_options(iteration)
    workload = Workload(TRAINING, options=options)
    plan = training_plan(topology, workload, algorithm, seed)
    moments = simulated_moments(topology, plan, routing, rate_mbit * 1e6, mtu)
    alone = (
        training_plan(topology, workload, algorithm, seed, alone=job.name) for job in plan.jobs
    )
    jobs = simulated_jobs(topology, plan, moments, alone, routing, rate_mbit * 1e6, mtu)
    times = iteration_times(plan, moments)
    port_bps = rate_mbit * 1e6 * goodput_share(topology, routing, mtu)
    bound_s = iteration_bound_s(topology, plan, port_bps)
    modelled = not {"trace", "jobs"} & options.keys()
    formula = transformer_of(options, topology.servers, seed).bytes_moved() if modelled else None
    written = _written_files(plan, moments, out)
    data = {
        "topology": topology.spec,
        "algorithm": plan.algorithm,
        "routing": routing,
        "rate_mbit": rate_mbit,
        **_times_as_json(topology, plan, times),
        "bound_s": bound_s,
        "sent_bytes": plan.bytes_by_label(),
        "formula_bytes": formula,
        "files": written,
        "jobs": [_job_as_json(topology, one) for one in jobs],
    }
    text = (
        _jobs_text(topology, plan, jobs)
        if jobs
        else _iteration_text(topology, plan, times, bound_s, formula)
    )
    if written:
        text += f"\n\n{len(written)} trace files: {written[0]} ..."
    answer(as_json, data, text)


def _write_measured_trace(ran: Path, trial: int | None, out: Path, as_json: bool) -> None:
    """Write the traces of a run's trial with the measured times of their nodes."""
    from pillarbox.experiments.models.workloads.training.chakra_files import write_trace
    from pillarbox.experiments.runs.trials.records import load
    from pillarbox.experiments.runs.trials.training_results import measured_trace

    trace, times_us = measured_trace(load(ran), None if trial is None else trial - 1)
    files = list(map(str, write_trace(trace, out, times_us=times_us)))
    answer(as_json, {"files": files}, "\n".join(files))


def _written_files(plan: IterationPlan, moments: list[Moments], out: Path | None) -> list[str]:
    """Write the iteration's traces with the times of its nodes; return the files' paths."""
    if out is None:
        return []
    from pillarbox.experiments.models.workloads.training.breakdown import node_times_us
    from pillarbox.experiments.models.workloads.training.chakra_files import write_trace

    return list(map(str, write_trace(plan.trace, out, times_us=node_times_us(plan, moments))))


def _times_as_json(
    topology: Topology, plan: IterationPlan, times: IterationTimes
) -> dict[str, Any]:
    return {
        "iteration_s": times.total_s,
        "parts": {part: times.mean_s(part) for part in PARTS},
        "ranks": [
            {
                "rank": one.rank,
                "server": topology.address(plan.servers[one.rank]),
                "compute_s": one.compute_s,
                "exposed_s": one.exposed_s,
                "waiting_s": one.waiting_s,
                "waits_for": {str(rank): waits_s for rank, waits_s in one.waits_for},
            }
            for one in times.ranks
        ],
        "critical_path": times.path_by_label(),
    }


def _job_as_json(topology: Topology, one: JobTimes) -> dict[str, Any]:
    return {
        "job": one.job.name,
        "servers": list(map(topology.address, one.servers)),
        "iterations": one.job.iterations,
        "alone_s": one.alone_s,
        "together_s": one.together_s,
        "slowdown": one.slowdown,
        **{part: one.together.mean_s(part) / one.job.iterations for part in PARTS},
    }


def _jobs_text(topology: Topology, plan: IterationPlan, jobs: Sequence[JobTimes]) -> str:
    """Return several jobs as text: the time of an iteration alone and together."""
    from pillarbox.experiments.base.text import columns, counted

    rows = [["job", "ranks", "servers", "alone, s", "together, s", "slowdown", "waiting"]]
    for one in jobs:
        shown = [topology.address(server) for server in one.servers[:MOST_SERVERS_SHOWN]]
        if len(one.servers) > MOST_SERVERS_SHOWN:
            shown.append("...")
        waiting = one.together.mean_s("waiting_s") / (one.together.total_s or 1.0)
        times = (f"{one.alone_s:.3g}", f"{one.together_s:.3g}", f"{one.slowdown:.3f}")
        count = str(len(one.servers))
        rows.append([one.job.name, count, " ".join(shown), *times, f"{waiting:.0%}"])
    counts = counted(plan.graph.ranks, "rank"), counted(len(jobs), "job")
    title = f"{topology.spec}: {', '.join(counts)}, {plan.algorithm}"
    return f"{title}\n\n{columns(rows, (1, 3, 4, 5, 6))}"


def _iteration_text(
    topology: Topology,
    plan: IterationPlan,
    times: IterationTimes,
    bound_s: float,
    formula: dict[str, int] | None,
) -> str:
    """Return an iteration as text: its time, the parts of each rank, bytes and critical path."""
    from pillarbox.experiments.base import units
    from pillarbox.experiments.base.text import columns, counted, records

    total_s = times.total_s or 1.0
    shares = ", ".join(
        f"{title} {times.mean_s(part) / total_s:.1%}" for part, title in PARTS.items()
    )
    path = ", ".join(f"{label} {units.time(s)}" for label, s in times.path_by_label().items())
    rows = [
        {
            "rank": one.rank,
            "server": topology.address(plan.servers[one.rank]),
            "compute, s": one.compute_s,
            "exposed, s": one.exposed_s,
            "waiting, s": one.waiting_s,
            "waits for": _longest_wait(one.waits_for),
        }
        for one in times.ranks[:MOST_RANKS_SHOWN]
    ]
    sent = [
        [label, f"{count:,}", "" if formula is None else f"{formula.get(label, 0):,}"]
        for label, count in plan.bytes_by_label().items()
    ]
    lines = [
        f"{topology.spec}: {counted(plan.graph.ranks, 'rank')}, {plan.algorithm}",
        f"iteration      {units.time(times.total_s)}",
        f"lower bound    {units.time(bound_s)}, by computations and the servers' ports",
        f"mean of ranks  {shares}",
        f"critical path  {path}",
        "",
        columns([["sent by", "bytes", "" if formula is None else "formula"], *sent], (1, 2)),
        "",
        records(rows),
    ]
    if len(times.ranks) > MOST_RANKS_SHOWN:
        lines.append(f"... and {len(times.ranks) - MOST_RANKS_SHOWN} more ranks: see --json")
    return "\n".join(lines)


def _longest_wait(waits_for: tuple[tuple[int, float], ...]) -> str:
    if not waits_for:
        return "-"
    rank, waits_s = waits_for[0]
    return f"rank {rank} ({waits_s:.3g} s)"
