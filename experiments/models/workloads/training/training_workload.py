"""A training iteration as the workload of an experiment: from its options to its plan.

The iteration is read from a trace, or generated from a transformer's dimensions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from random import Random
from typing import Any

from experiments.models.workloads.collectives import shares as uneven
from experiments.models.workloads.collectives.plan import PAPER, placed_servers
from experiments.models.workloads.training.chakra_files import RANK, read_trace
from experiments.models.workloads.training.iteration_plan import IterationPlan, iteration_plan
from experiments.models.workloads.training.trace import MOST_NODES, Trace
from experiments.models.workloads.training.transformer import LEAST_TFLOPS, Transformer
from experiments.models.workloads.workload import TRAINING, Workload
from topos.base.errors import UnknownNameError, meant, require
from topos.base.topology import Topology

# The gate is drawn or read by the options of an uneven exchange.
MODEL_OPTIONS = tuple(one.name for one in fields(Transformer) if one.name != "gate")
GATE_OPTIONS = uneven.OPTIONS
TRACE_OPTIONS = ("trace", "groups", "ranks", "tflops", "pytorch")
ALGORITHM_OPTIONS = ("base", "inner")
OPTIONS = (*TRACE_OPTIONS, "placement", *ALGORITHM_OPTIONS, *MODEL_OPTIONS, *GATE_OPTIONS)


def training_plan(
    topology: Topology, workload: Workload, algorithm: str, seed: int
) -> IterationPlan:
    """Return the plan of a training workload on a network.

    Raises PillarboxError if an option is wrong, or if the network has too few servers.
    """
    options = workload.options
    for option in options:
        require(
            option in OPTIONS,
            f"the pattern {TRAINING} has no option {option!r}: {meant(option, OPTIONS)}",
            UnknownNameError,
        )
    require(
        workload.tool == "auto",
        f"the pattern {TRAINING} has its own traffic tool: omit tool = {workload.tool}",
    )
    trace = trace_of(options, topology.servers, seed)
    servers = placed_servers(
        topology, len(trace.ranks), str(options.get("placement", PAPER)), seed, least=1
    )
    of_algorithm = {name: options[name] for name in ALGORITHM_OPTIONS if name in options}
    return iteration_plan(topology, trace, servers, algorithm, of_algorithm)


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
