"""``pillarbox training``: time of a training iteration on a network, without root."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from experiments.base.arguments import FILE, FOLDER, SPEC, answer, json_option, routing_option
from topos.base.errors import require
from topos.base.topology import Topology

if TYPE_CHECKING:
    from experiments.models.workloads.training.breakdown import IterationTimes, Moments
    from experiments.models.workloads.training.iteration_plan import IterationPlan

MOST_RANKS_SHOWN = 32  # maximum number of ranks in the table; --json has all
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


def _model_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a transformer to a command."""
    for name, about in reversed(MODEL.items()):
        command = click.option(f"--{name}", type=int, help=about)(command)
    return command


@click.command(no_args_is_help=True)
@click.argument("topology", metavar="[SPEC]", type=SPEC, required=False)
@click.option(
    "--trace",
    metavar="FILES",
    help="Chakra trace: files with %d in place of the rank, or one file that each rank runs.",
)
@click.option(
    "--groups",
    type=FILE,
    help="Process groups of the trace (default: comm_group.json in the trace's folder).",
)
@click.option("--ranks", type=int, help="Number of ranks of the trace.")
@click.option(
    "--pytorch",
    is_flag=True,
    default=None,
    help="Read a trace that Chakra converted from PyTorch: use its data dependencies only.",
)
@_model_options
@click.option(
    "--skew",
    type=float,
    help="Exponent of Zipf's law for the popularity of experts.  [default: 0, equal]",
)
@click.option(
    "--shares",
    type=FILE,
    help="Popularity of experts: a JSON list of numbers, one per expert.",
)
@click.option(
    "--tflops",
    type=float,
    help="Speed of a rank in 10^12 operations per second.  [default: 0.08]",
)
@click.option(
    "--algorithm",
    default="",
    metavar="NAME",
    help="Algorithm of all-reduce, reduce-scatter and all-gather.  [default: ring]",
)
@routing_option(default="")
@click.option(
    "--placement",
    type=click.Choice(["paper", "random"]),
    default="paper",
    show_default=True,
    help="Servers of the ranks: in the order of addresses, or random.",
)
@click.option(
    "--rate-mbit",
    type=click.FloatRange(min=0, min_open=True),
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
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of all random choices.")
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
@click.option("--trial", type=int, help="Trial of --ran (default: the first completed one).")
@json_option(
    *("topology", "algorithm", "routing", "rate_mbit", "iteration_s", "parts", "ranks"),
    *("critical_path", "sent_bytes", "formula_bytes", "files"),
)
def command(
    topology: Topology | None,
    trace: str | None,
    groups: Path | None,
    ranks: int | None,
    shares: Path | None,
    algorithm: str,
    routing: str,
    placement: str,
    rate_mbit: float,
    mtu: int,
    seed: int,
    out: Path | None,
    ran: Path | None,
    trial: int | None,
    as_json: bool,
    **model: Any,
) -> None:
    """Simulate a training iteration: its time, and where the time goes.

    The iteration is that of a Chakra trace, or of a transformer with tensor, pipeline, data and
    expert parallelism. The parts of a rank's time are computation, exposed communication and
    waiting. `run training` runs the same iteration on an emulated network (docs/training.md).

    \b
    pillarbox training bcube,4,1 --tp 4 --pp 2
    pillarbox training bcube,4,1 --tp 2 --pp 2 --ep 2 --algorithm bcube
    pillarbox training fattree,4 --tp 4 --pp 2 -o traces
    pillarbox training fattree,4 --trace 'traces/trace.%d.et'
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
    from experiments.models.fluid.iteration import simulated_moments
    from experiments.models.workloads.training.breakdown import iteration_times
    from experiments.models.workloads.training.training_workload import (
        training_plan,
        transformer_of,
    )
    from experiments.models.workloads.workload import TRAINING, Workload

    files = {"groups": groups and str(groups), "shares": shares and str(shares)}
    given = {"trace": trace, "ranks": ranks, **files, **model}
    options = {name: value for name, value in given.items() if value is not None}
    workload = Workload(TRAINING, options={**options, "placement": placement})
    plan = training_plan(topology, workload, algorithm, seed)
    moments = simulated_moments(topology, plan, routing, rate_mbit * 1e6, mtu)
    times = iteration_times(plan, moments)
    formula = None if trace else transformer_of(options, topology.servers, seed).bytes_moved()
    written = _written_files(plan, moments, out)
    data = {
        "topology": topology.spec,
        "algorithm": plan.algorithm,
        "routing": routing,
        "rate_mbit": rate_mbit,
        **_times_as_json(topology, plan, times),
        "sent_bytes": plan.bytes_by_label(),
        "formula_bytes": formula,
        "files": written,
    }
    answer(as_json, data, _iteration_text(topology, plan, times, formula, written))


def _write_measured_trace(ran: Path, trial: int | None, out: Path, as_json: bool) -> None:
    """Write the traces of a run's trial with the measured times of their nodes."""
    from experiments.models.workloads.training.chakra_files import write_trace
    from experiments.runs.trials.records import load
    from experiments.runs.trials.training_results import measured_trace

    trace, times_us = measured_trace(load(ran), trial)
    files = list(map(str, write_trace(trace, out, times_us=times_us)))
    answer(as_json, {"files": files}, "\n".join(files))


def _written_files(plan: IterationPlan, moments: list[Moments], out: Path | None) -> list[str]:
    """Write the iteration's traces with the times of its nodes; return the files' paths."""
    if out is None:
        return []
    from experiments.models.workloads.training.breakdown import node_times_us
    from experiments.models.workloads.training.chakra_files import write_trace

    return list(map(str, write_trace(plan.trace, out, times_us=node_times_us(plan, moments))))


def _times_as_json(
    topology: Topology, plan: IterationPlan, times: IterationTimes
) -> dict[str, Any]:
    return {
        "iteration_s": times.total_s,
        "parts": {part: times.mean_s(part) for part in ("compute_s", "exposed_s", "waiting_s")},
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


def _iteration_text(
    topology: Topology,
    plan: IterationPlan,
    times: IterationTimes,
    formula: dict[str, int] | None,
    files: list[str],
) -> str:
    """Return an iteration as text: its time, the parts of each rank, bytes and critical path."""
    from experiments.base import units
    from experiments.base.text import columns, records

    total_s = times.total_s or 1.0
    shares = ", ".join(
        f"{title} {times.mean_s(part) / total_s:.1%}"
        for title, part in (
            ("computation", "compute_s"),
            ("exposed communication", "exposed_s"),
            ("waiting", "waiting_s"),
        )
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
        f"{topology.spec}: {plan.graph.ranks} ranks, {plan.algorithm}",
        f"iteration      {units.time(times.total_s)}",
        f"mean of ranks  {shares}",
        f"critical path  {path}",
        "",
        columns([["sent by", "bytes", "" if formula is None else "formula"], *sent], (1, 2)),
        "",
        records(rows),
    ]
    if len(times.ranks) > MOST_RANKS_SHOWN:
        lines.append(f"... and {len(times.ranks) - MOST_RANKS_SHOWN} more ranks: see --json")
    if files:
        lines += ["", f"{len(files)} trace files: {files[0]} ..."]
    return "\n".join(lines)


def _longest_wait(waits_for: tuple[tuple[int, float], ...]) -> str:
    if not waits_for:
        return "-"
    rank, waits_s = waits_for[0]
    return f"rank {rank} ({waits_s:.3g} s)"
