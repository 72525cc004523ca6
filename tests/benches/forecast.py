"""Memory and CPU time of a lab's start on 1, 2 and 4 machines, compared with the forecast."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec

from pillarbox.experiments.apps.cluster.run_forecast import memory_and_start
from pillarbox.experiments.base.processes import (
    all_processes,
    kernel_mib,
    processor_s,
    shared_mib,
)
from pillarbox.topos.base.spec import parse
from tests.benches._frame import Row, from_child, no_goal
from tests.benches.machines import lab_on_machines
from tests.benches.scale import MODULES

NETWORKS, QUICK_NETWORKS = ("dcell,4,1", "dcell,5,1", "bcube,4,2", "bcube,5,2"), ("dcell,2,1",)
MACHINES, QUICK_MACHINES = (1, 2, 4), (1,)
RATE_MBIT = 10.0
MOST_APART = 0.25  # tolerated relative difference between forecast and measurement
TIME_LIMIT_S = 200.0
COLUMNS = ("memory_mib", "start_cpu_s", "forecast_mib", "forecast_cpu_s")
NOTES = f"""
Machines are namespaces of this computer, so that its memory and CPU time are the sums over all
machines. memory_mib: proportional set size of all processes of the converged lab, plus the growth
of the memory of the computer's kernel. start_cpu_s: CPU time of all processes of the lab. The
other columns are those of `pillarbox forecast`. Goal: within {MOST_APART:.0%}.
"""


def run(quick: bool) -> Iterator[Row]:
    """Yield a row for each network and number of machines."""
    for spec in QUICK_NETWORKS if quick else NETWORKS:
        for machines in QUICK_MACHINES if quick else MACHINES:
            row: Row = {"network": spec, "machines": machines}
            if why := _hindrance(machines):
                yield row | dict.fromkeys(COLUMNS) | {"outcome": f"skipped: {why}"}
                continue
            judge = no_goal if quick else _outcome
            call = measured, spec, machines
            yield from_child(row, COLUMNS, judge, *call, time_limit_s=TIME_LIMIT_S)


def _hindrance(machines: int) -> str:
    if os.geteuid():
        return "network namespaces need root"
    if machines > 1 and not (find_spec("distributed") and find_spec("cryptography")):
        return "several machines need Dask and cryptography"
    return ""


def _outcome(row: Row) -> str:
    pairs = {"memory_mib": "forecast_mib", "start_cpu_s": "forecast_cpu_s"}
    missed = [
        f"{column} {row[column] / row[expected] - 1:+.0%} from the forecast"
        for column, expected in pairs.items()
        if abs(row[column] / row[expected] - 1) > MOST_APART
    ]
    return f"missed: {'; '.join(missed)}" if missed else "ok"


def measured(spec: str, machines: int) -> Row:
    """Return the memory of a converged lab in MiB, and the CPU time of its start in seconds."""
    before_mib = kernel_mib(MODULES)
    network, parts = parse(spec), machines if machines > 1 else 0
    expected_mib, expected_s = memory_and_start(parts, network.servers, network.cables)
    with lab_on_machines(spec, machines, rate_mbit=RATE_MBIT) as lab:
        lab.wait_converged()
        processes = all_processes()
        return {
            "memory_mib": sum(map(shared_mib, processes)) + kernel_mib(MODULES) - before_mib,
            "start_cpu_s": sum(map(processor_s, processes)),
            "forecast_mib": expected_mib,
            "forecast_cpu_s": expected_s,
        }
