"""Large networks with a live forwarder on every server: start, memory, idle load, detection."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pillarbox.experiments.base.processes import (
    all_processes,
    kernel_mib,
    proc_field,
    processor_s,
    shared_mib,
)
from pillarbox.topos.base.spec import parse
from tests.benches._frame import Row, from_child, no_goal

if TYPE_CHECKING:
    from pillarbox.experiments.lab.emulation.lab import Lab

PYTHON, EBPF = "python", "ebpf"
QUICK = (("bcube,4,1", PYTHON), ("bcube,4,1", EBPF))
LARGE = "dcell,6,2"  # 1,806 servers
FULL = (
    *((spec, plane) for spec in ("dcell,4,2", "bcube,8,2") for plane in (PYTHON, EBPF)),
    (LARGE, EBPF),
)
LARGE_GIB = 12.0  # memory that the largest network requires, in GiB
# Goals: upper bounds of benchmark columns, for all networks and for single networks.
MOST = {"rest_percent": 10.0, "silent_s": 0.3}
MOST_OF: dict[tuple[str, str], dict[str, float]] = {
    ("dcell,4,2", PYTHON): {"up_s": 15.0, "memory_gib": 4.0},
    ("dcell,4,2", EBPF): {"up_s": 15.0, "forwarders_s": 1.5, "memory_gib": 1.4},
    (LARGE, EBPF): {"cables_s": 15.0, "up_s": 45.0, "memory_gib": 5.6, "rest_percent": 40.0},
}
CUT_SERVER = 3
NOTICED_S = 20.0  # timeout for all servers to detect a cut cable, in seconds
IDLE_S, IDLE_QUICK_S = 10.0, 1.0
TIME_LIMIT_S = 600.0
IN_MEMORY = "/dev/shm"  # folder of the lab's files; in memory, as /run usually is
MODULES = "VmallocUsed"  # field of /proc/meminfo that includes eBPF maps
COLUMNS = (
    *("cables_s", "forwarders_s", "converged_s", "up_s", "memory_gib", "forwarder_mib"),
    *("rest_percent", "silent_s", "stop_s"),
)
NOTES = """
cables_s: time for namespaces, bridges and cables of 100 Mbit/s. forwarders_s: time until every
server's forwarder is ready. converged_s: time until no server considers a working link down. up_s:
the sum of the three. memory_gib: proportional set size of all processes of the lab, plus the growth
of the kernel's slabs, tables and stacks; forwarder_mib: a forwarder's private share of it.
rest_percent: load of one processor by all processes of the lab while no server sends data,
including the kernel's work for their heartbeats. Other load on the machine makes every wake-up more
expensive. silent_s: time from a silent cut of a server's cable until all separated servers have
detected it. rest_percent and silent_s are measured with fast timers.
"""


def run(quick: bool) -> Iterator[Row]:
    """Yield a row for each network and plane."""
    for spec, plane in QUICK if quick else FULL:
        yield _row(spec, plane, quick)


def _row(spec: str, plane: str, quick: bool) -> Row:
    row: Row = {"network": spec, "servers": parse(spec).servers, "plane": plane}
    why = _hindrance(spec)
    if why:
        return row | dict.fromkeys(COLUMNS) | {"outcome": f"skipped: {why}"}
    call = lab_costs, spec, plane, IDLE_QUICK_S if quick else IDLE_S
    judge = no_goal if quick else _verdict
    return from_child(row, COLUMNS, judge, *call, time_limit_s=TIME_LIMIT_S)


def _hindrance(spec: str) -> str:
    if os.geteuid():
        return "a lab needs root"
    available_kib = int((proc_field("/proc/meminfo", "MemAvailable") or "0").split()[0])
    if spec == LARGE and available_kib < LARGE_GIB * (1 << 20):
        return f"up to {LARGE_GIB:g} GiB of memory are needed"
    return ""


def _verdict(row: Row) -> str:
    most = MOST | MOST_OF.get((row["network"], row["plane"]), {})
    missed = [
        f"{column} <= {limit:g} wanted"
        for column, limit in most.items()
        if row[column] is None or row[column] > limit
    ]
    return f"missed: {'; '.join(missed)}" if missed else "ok"


def lab_costs(spec: str, plane: str, idle_s: float) -> Row:
    """Start a lab in a sandbox, leave it idle, and stop it; return times, memory and CPU load."""
    from pillarbox.experiments.lab.linux import sandbox

    sandbox.enter()
    from pillarbox.experiments.lab.emulation.lab import Lab
    from pillarbox.experiments.lab.emulation.local_fabric import LocalFabric
    from pillarbox.hosts.live.settings import LabSettings

    topology = parse(spec)
    before_mib = kernel_mib(MODULES)
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
        start_s = time.perf_counter()
        lab = Lab(topology, LabSettings(plane=plane), Path(folder), fabric=LocalFabric())
        cables_s = time.perf_counter()
        lab.start()
        ready_s = time.perf_counter()
        lab.wait_converged()
        converged_s = time.perf_counter()
        row: Row = {
            "cables_s": cables_s - start_s,
            "forwarders_s": ready_s - cables_s,
            "converged_s": converged_s - ready_s,
            "up_s": converged_s - start_s,
        }
        row["rest_percent"] = _idle_cpu_percent(idle_s)
        row["silent_s"] = _silent_cut_detection_s(lab)
        sizes_mib = {process: shared_mib(process) for process in all_processes()}
        forwarders_mib = [sizes_mib[process] for process in _forwarder_pids(lab)]
        total_mib = sum(sizes_mib.values()) + kernel_mib(MODULES) - before_mib
        row |= {"memory_gib": total_mib / 1024}
        row |= {"forwarder_mib": sum(forwarders_mib) / len(forwarders_mib)}
        start_s = time.perf_counter()
        lab.stop()
        return row | {"stop_s": time.perf_counter() - start_s}


def _forwarder_pids(lab: Lab) -> list[int]:
    return list(lab.forwarders.pids.values()) if lab.forwarders else []


def _idle_cpu_percent(length_s: float) -> float:
    """Return the CPU load of an idle lab, in percent of one processor."""
    processes = [process for process in all_processes() if process != os.getpid()]
    before_s, start_s = sum(map(processor_s, processes)), time.monotonic()
    time.sleep(length_s)
    taken_s = sum(map(processor_s, processes)) - before_s
    return taken_s / (time.monotonic() - start_s) * 100


def _silent_cut_detection_s(lab: Lab) -> float | None:
    """Return the time until all affected servers detect a silent cable cut, None on timeout."""
    topology = lab.topology
    port, plug = next(iter(topology.neighbours(CUT_SERVER)))
    peers = topology.peers(CUT_SERVER, port)
    parted = {(CUT_SERVER, peer) for peer in peers} | {(peer, CUT_SERVER) for peer in peers}
    fault = lab.cut(CUT_SERVER, plug.node, silent=True)
    noticed: dict[tuple[int, int], float] = {}
    while parted - noticed.keys() and time.monotonic() < fault.at_s + NOTICED_S:
        time.sleep(0.1)
        for server in {server for server, _ in parted - noticed.keys()}:
            for news in lab.state(server)["news"]:
                if not news["up"] and news["at_s"] > fault.at_s:
                    noticed[server, topology.server(news["peer"])] = news["at_s"] - fault.at_s
    return None if parted - noticed.keys() else max(noticed[pair] for pair in parted)
