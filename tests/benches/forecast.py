"""Memory and CPU time of a lab on 1, 2 and 4 machines, compared with `pillarbox forecast`."""

from __future__ import annotations

from collections.abc import Iterator

from pillarbox.experiments.base.processes import (
    all_processes,
    kernel_mib,
    processor_s,
    shared_mib,
)
from tests.benches._frame import Row, from_child
from tests.benches.machines import lab_on_machines
from tests.benches.scale import MODULES

MACHINES = 1, 2, 4
NETWORKS = "dcell,4,1", "bcube,4,2", "dcell,5,1", "bcube,5,2"
COLUMNS = ("memory_mib", "start_cpu_s")
TIME_LIMIT_S = 200.0


def run(quick: bool) -> Iterator[Row]:
    for spec in NETWORKS[:2] if quick else NETWORKS:
        for machines in MACHINES:
            row: Row = {"network": spec, "machines": machines}
            yield from_child(
                row, COLUMNS, lambda _: "ok", measured, spec, machines, time_limit_s=TIME_LIMIT_S
            )


def measured(spec: str, machines: int) -> Row:
    """Return the memory of a converged lab in MiB, and the CPU time of its start in seconds."""
    before_mib = kernel_mib(MODULES)
    with lab_on_machines(spec, machines, rate_mbit=10.0) as lab:
        lab.wait_converged()
        processes = all_processes()
        return {
            "memory_mib": sum(map(shared_mib, processes)) + kernel_mib(MODULES) - before_mib,
            "start_cpu_s": sum(map(processor_s, processes)),
        }
