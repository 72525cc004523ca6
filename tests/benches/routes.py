"""Random routes with link loads: time and CPU time; compared with INRFlow, if a build is given."""

from __future__ import annotations

import ctypes
import os
import re
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from itertools import islice, repeat
from typing import TYPE_CHECKING

from pillarbox.topos.base.spec import parse
from tests.benches._frame import Row, from_child, no_goal

if TYPE_CHECKING:
    from pillarbox.experiments.models.arrays import Ints

# Routings by network, and INRFlow's arguments for the same network and routing.
CASES = (
    ("bcube,8,3", "bcube", "topo=bcube_8_4"),
    ("dpillar,16,3", "sp-cw", "topo=dpillar_16_3 routing=dpillar-sp"),
    ("dpillar,16,3", "minimal", "topo=dpillar_16_3 routing=dpillar-min"),
    ("ficonn,16,2", "tor", "topo=ficonn_2_16"),
    ("dcell,6,2", "dcell", "topo=gdcficonn_2_6_0 routing=gdcficonn-dimensional"),
)
CASES_SMALL = (("dpillar,4,3", "minimal", "topo=dpillar_4_3 routing=dpillar-min"),)
FLOWS, FLOWS_SMALL = 3_000_000, 10_000
ROUNDS, ROUNDS_SMALL = 5, 1
VARIABLE = "INRFLOW"  # environment variable with the path of an INRFlow binary
SEED = 13
COMMON = "mode=static generate_bfs=false compile_latex=false placement=sequential"
LEAST_TIMES, LEAST_CPU_TIMES = 10.0, 4.0  # goals
TIME_LIMIT_S = 600.0
COLUMNS = ("links", "wall_s", "cpu_s")
COMPARED = ("inrflow_links", "inrflow_wall_s", "inrflow_cpu_s", "wall_times", "cpu_times")
NOTES = f"""
Medians of {ROUNDS} rounds: one path for each of {FLOWS:,} random pairs of servers, and the number
of flows on each link, on all processors. links: mean number of links of a path. Set-up counts:
pairs are drawn and the network's tables are computed in each round; compiled code is loaded before.
With {VARIABLE}=PATH of an INRFlow binary, both programs take turns with the same pairs. INRFlow's
times are those of its process. Goals: {LEAST_TIMES:g} times less time, {LEAST_CPU_TIMES:g} times
less CPU time, the same mean number of links.
"""


def run(quick: bool) -> Iterator[Row]:
    """Yield a row for each network and routing."""
    rounds = ROUNDS_SMALL if quick else ROUNDS
    inrflow = os.environ.get(VARIABLE, "")
    for spec, name, arguments in CASES_SMALL if quick else CASES:
        flows = FLOWS_SMALL if quick else FLOWS
        row: Row = {"network": spec, "routing": name, "flows": flows}
        judge = _outcome if inrflow and not quick else no_goal
        columns = COLUMNS + COMPARED if inrflow else COLUMNS
        call = measured, spec, name, flows, rounds, [inrflow, *arguments.split()]
        yield from_child(row, columns, judge, *call, time_limit_s=TIME_LIMIT_S)


def measured(spec: str, name: str, flows: int, rounds: int, command: list[str]) -> Row:
    """Return medians of the times of Pillarbox and, if its path is not empty, of INRFlow."""
    import numpy

    pairs = inrflow_pairs(parse(spec).servers, flows)
    link_count = partial(_links_of_round, spec, name, flows, pairs)
    links = {"": link_count() / flows}  # the first call loads the compiled code
    runs = {"": link_count}
    if command[0]:
        options = [*COMMON.split(), f"rseed={SEED}", f"tpattern=random_{flows}"]
        runs["inrflow_"] = partial(_inrflow_links, [*command, *options])
    times: dict[str, list[tuple[float, float]]] = {kind: [] for kind in runs}
    for _ in range(rounds):
        for kind, call in runs.items():
            start_s, start_cpu_s = time.perf_counter(), _cpu_s()
            found = call()
            times[kind].append((time.perf_counter() - start_s, _cpu_s() - start_cpu_s))
            if kind:
                links[kind] = found
    row: Row = {}
    for kind, found_s in times.items():
        wall_s, cpu_s = (statistics.median(column) for column in zip(*found_s, strict=True))
        row |= {f"{kind}links": links[kind], f"{kind}wall_s": wall_s, f"{kind}cpu_s": cpu_s}
    for of in ("wall", "cpu") if command[0] else ():
        row[f"{of}_times"] = row[f"inrflow_{of}_s"] / row[f"{of}_s"]
    return {key: float(numpy.round(value, 6)) for key, value in row.items()}


def _links_of_round(spec: str, name: str, flows: int, pairs: tuple[Ints, Ints]) -> float:
    """Return the total number of links of the pairs' paths; draw as many other pairs as well."""
    import numpy

    from pillarbox.experiments.models.simulator.flow_arrays import random_flows
    from pillarbox.experiments.models.simulator.paths import link_flows

    network = parse(spec)
    random_flows(network.servers, flows, numpy.random.default_rng(SEED))
    return float(link_flows(network, name, *pairs).sum())


def inrflow_pairs(servers: int, flows: int) -> tuple[Ints, Ints]:
    """Return the pairs that INRFlow draws by rand(), without pairs of a server and itself."""
    import numpy

    libc = ctypes.CDLL(None)
    libc.srand(SEED)
    numbers = (draw() for draw in repeat(libc.rand))
    drawn = numpy.fromiter(islice(numbers, 2 * flows), numpy.int64, 2 * flows) % servers
    sources, destinations = drawn[::2], drawn[1::2]
    different = sources != destinations
    return sources[different], destinations[different]


def _inrflow_links(command: list[str]) -> float:
    """Run INRFlow; return its mean number of links per path."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, check=True, timeout=TIME_LIMIT_S
        )
    found = re.search(r"^mean\.link\.path\.length\s+(\S+)", done.stdout, re.MULTILINE)
    assert found, done.stdout[:500]
    return float(found[1])


def _cpu_s() -> float:
    """Return the CPU time of this process and of the programs that it has run."""
    kinds = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
    return sum(sum(resource.getrusage(kind)[:2]) for kind in kinds)


def _outcome(row: Row) -> str:
    missed = []
    if abs(row["links"] - row["inrflow_links"]) > 1e-5:
        missed.append("the same mean number of links wanted")
    goals = ("wall_times", LEAST_TIMES), ("cpu_times", LEAST_CPU_TIMES)
    missed += [f"{column} >= {least:g} wanted" for column, least in goals if row[column] < least]
    return f"missed: {'; '.join(missed)}" if missed else "ok"
