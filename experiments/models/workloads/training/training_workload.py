"""A training iteration as the workload of an experiment: from its options to its plan.

The iteration is read from a trace, or generated from a transformer's dimensions. The option `jobs`
has the options of several jobs, each of which is a training iteration or a collective operation;
options next to it are defaults of all jobs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from random import Random
from typing import Any

from pillarbox.experiments.models.workloads.collectives import shares as uneven
from pillarbox.experiments.models.workloads.training.chakra_files import RANK, read_trace
from pillarbox.experiments.models.workloads.training.iteration_plan import (
    IterationPlan,
    PlannedJob,
    iteration_plan,
)
from pillarbox.experiments.models.workloads.training.jobs import (
    MOST_JOBS,
    Job,
    operation_trace,
    repeated,
    united,
    whole_number,
)
from pillarbox.experiments.models.workloads.training.placement import PACKED, servers_of_jobs
from pillarbox.experiments.models.workloads.training.trace import MOST_NODES, Trace
from pillarbox.experiments.models.workloads.training.transformer import LEAST_TFLOPS, Transformer
from pillarbox.experiments.models.workloads.workload import TRAINING, Workload
from pillarbox.topos.base.errors import UnknownNameError, meant, require
from pillarbox.topos.base.topology import Topology

# The gate is drawn or read by the options of an uneven exchange.
MODEL_OPTIONS = tuple(one.name for one in fields(Transformer) if one.name != "gate")
GATE_OPTIONS = uneven.OPTIONS
TRACE_OPTIONS = ("trace", "groups", "ranks", "tflops", "pytorch")
ALGORITHM_OPTIONS = ("base", "inner")
ITERATION_OPTIONS = (*TRACE_OPTIONS, *MODEL_OPTIONS, *GATE_OPTIONS)
OPTIONS = ("jobs", "placement", *ALGORITHM_OPTIONS, *ITERATION_OPTIONS)
OPERATION_OPTIONS = ("operation", "bytes", "ranks")
JOB_OPTIONS = ("name", "iterations", *OPERATION_OPTIONS, *ITERATION_OPTIONS)


def training_plan(
    topology: Topology, workload: Workload, algorithm: str, seed: int, alone: str = ""
) -> IterationPlan:
    """Return the plan of a training workload on a network.

    With `alone`, it is the plan of the job of this name, on the servers that it has next to the
    other jobs. Raises PillarboxError if an option is wrong, or if the network has too few servers.
    """
    options = workload.options
    _check_names(options, OPTIONS, f"the pattern {TRAINING}")
    require(
        workload.tool == "auto",
        f"the pattern {TRAINING} has its own traffic tool: omit tool = {workload.tool}",
    )
    jobs = jobs_of(options, topology.servers, seed)
    placement = str(options.get("placement", PACKED))
    ranks = [len(job.trace.ranks) for job in jobs]
    placed = servers_of_jobs(topology, ranks, placement, seed)
    chosen = [at for at, job in enumerate(jobs) if alone in ("", job.name)]
    trace, planned = _united_unless_single([jobs[at] for at in chosen])
    servers = [server for at in chosen for server in placed[at]]
    of_algorithm = {name: options[name] for name in ALGORITHM_OPTIONS if name in options}
    plan = iteration_plan(topology, trace, servers, algorithm, of_algorithm)
    return replace(plan, jobs=planned)


def workload_trace(options: Mapping[str, Any], servers: int, seed: int, alone: str = "") -> Trace:
    """Return the trace of a training workload: of its iteration, all its jobs, or one of them."""
    jobs = jobs_of(options, servers, seed)
    trace, _ = _united_unless_single([job for job in jobs if alone in ("", job.name)])
    return trace


def _united_unless_single(jobs: Sequence[Job]) -> tuple[Trace, tuple[PlannedJob, ...]]:
    """Return the trace of jobs, and their ranks; those of an iteration without jobs are empty."""
    return united(jobs) if jobs[0].name else (jobs[0].trace, ())


def job_names(options: Mapping[str, Any]) -> list[str]:
    """Return the names of a workload's jobs, by default their numbers; empty without jobs."""
    given = options.get("jobs", ())
    require(
        isinstance(given, list | tuple) and all(isinstance(one, Mapping) for one in given),
        'the option jobs is a list of tables, such as jobs = [{ tp = 2 }, { dp = 8, name = "b" }]',
    )
    require(
        len(given) <= MOST_JOBS, f"the option jobs has at most {MOST_JOBS} jobs, not {len(given)}"
    )
    names = [str(one.get("name", at)) for at, one in enumerate(given)]
    require(
        all(names) and len(set(names)) == len(names),
        f"each job has a name of its own, and these are {', '.join(map(repr, names))}",
    )
    return names


def jobs_of(options: Mapping[str, Any], servers: int, seed: int) -> list[Job]:
    """Return the jobs of a training workload; without the option `jobs` one job without a name.

    By default each job fits into an equal share of the servers.
    """
    names = job_names(options)
    if not names:
        return [Job("", trace_of(options, servers, seed), 1)]
    usual = {name: value for name, value in options.items() if name in ITERATION_OPTIONS}
    found = []
    for name, given in zip(names, options["jobs"], strict=True):
        _check_names(given, JOB_OPTIONS, f"job {name}")
        iterations = whole_number(given, "iterations", 1, MOST_NODES)
        share = servers // len(names)
        require(share > 0, f"{len(names)} jobs do not fit on {servers} servers: choose fewer jobs")
        if "operation" in given:
            known = ("name", "iterations", *OPERATION_OPTIONS)
            _check_names(given, known, f"job {name}, which repeats an operation,")
            trace = operation_trace(given, share)
        else:
            require("bytes" not in given, f"job {name} has bytes, but no operation: add operation")
            own = {key: value for key, value in given.items() if key in ITERATION_OPTIONS}
            options_of_job = {**({} if "trace" in own else usual), **own}
            most = servers if "dp" in options_of_job else share
            trace = trace_of(options_of_job, most, seed)
        found.append(Job(name, repeated(trace, iterations), iterations))
    return found


def _check_names(given: Mapping[str, Any], known: Sequence[str], owner: str) -> None:
    """Raise UnknownNameError for an option that a workload or job does not have."""
    for option in given:
        require(
            option in known,
            f"{owner} has no option {option!r}: {meant(option, list(known))}",
            UnknownNameError,
        )


def trace_of(options: Mapping[str, Any], servers: int, seed: int) -> Trace:
    """Return the trace that a workload's options name, or generate that of a transformer.

    A network of `servers` servers runs one file for all ranks on each server, and a transformer in
    as many replicas as fit, unless the options have ``ranks`` or ``dp``.
    """
    if "trace" not in options:
        for option in ("groups", "ranks", "pytorch"):
            require(option not in options, f"the option {option} needs a trace: set trace")
        return transformer_of(options, servers, seed).trace()
    of_model = (*MODEL_OPTIONS, *GATE_OPTIONS)
    strange = [name for name in options if name in of_model and name not in TRACE_OPTIONS]
    require(
        not strange,
        f"the option {next(iter(strange), '')} describes a transformer, and a trace has its own "
        "model: omit one of them",
    )
    path, ranks = str(options["trace"]), options.get("ranks")
    require(
        ranks is None or (type(ranks) is int and 1 <= ranks <= MOST_NODES),
        f"the option ranks is a whole number from 1 to {MOST_NODES:,}, not {ranks!r}",
    )
    if ranks is None and RANK not in path:
        ranks = servers
    tflops = options.get("tflops", Transformer.tflops)
    require(
        isinstance(tflops, int | float) and tflops >= LEAST_TFLOPS,
        f"the option tflops is a number of at least {LEAST_TFLOPS:g}, not {tflops!r}",
    )
    groups, pytorch = str(options.get("groups", "")), bool(options.get("pytorch"))
    return read_trace(path, ranks, groups, tflops, pytorch=pytorch)


def transformer_of(options: Mapping[str, Any], servers: int, seed: int) -> Transformer:
    """Return the transformer that a workload's options describe, in as many replicas as fit.

    The popularity of experts is drawn from the seed.
    """
    given = {name: options[name] for name in MODEL_OPTIONS if name in options}
    if "ep" in given and "experts" not in given:
        given["experts"] = 2 * given["ep"] if given["ep"] != 1 else 0
    if "dp" not in given:
        ways = [given.get(name, 1) for name in ("tp", "pp")]
        whole = all(type(way) is int and way >= 1 for way in ways)
        replicas = servers // (ways[0] * ways[1]) if whole else 1
        ep = given.get("ep", 1)
        if type(ep) is int and ep > 1:
            replicas -= replicas % ep
        given["dp"] = max(1, replicas)
    _check_products(given, servers)
    experts = given.get("experts", 0)
    gated = {name: options[name] for name in GATE_OPTIONS if options.get(name)}
    if gated and type(experts) is int:
        require(
            experts > 0,
            f"the option {next(iter(gated))} describes the gate of experts: set experts or ep",
        )
        draw = Random(f"{seed} gate")
        given["gate"] = uneven.drawn_or_read_shares(options, experts, draw) or ()
    return Transformer(**given)


def _check_products(given: Mapping[str, Any], servers: int) -> None:
    """Raise PillarboxError with the right number if a transformer has more ranks than servers."""
    tp, pp, dp, ep = (given.get(name, 1) for name in ("tp", "pp", "dp", "ep"))
    if not all(type(one) is int and one >= 1 for one in (tp, pp, dp, ep)):
        return  # Transformer raises the error
    replicas = servers // (tp * pp)
    require(
        replicas > 0,
        f"tp x pp = {tp} x {pp} = {tp * pp} ranks, and there are {servers} servers: choose tp and "
        f"pp with a product of at most {servers}",
    )
    require(
        ep <= replicas,
        f"tp x pp x ep = {tp} x {pp} x {ep} = {tp * pp * ep} ranks at least, and there are "
        f"{servers} servers: choose ep of at most {replicas}",
    )
    require(
        dp <= replicas,
        f"tp x pp x dp = {tp} x {pp} x {dp} = {tp * pp * dp} ranks, and there are {servers} "
        f"servers: choose dp = {replicas - replicas % ep}",
    )
