"""Start and stop time of networks with shaped cables, compared with stock Mininet."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

from pillarbox.experiments.base.processes import all_processes, kernel_mib, shared_mib
from pillarbox.experiments.lab.linux.measurement import BenchmarkCaseResult, in_child
from pillarbox.topos.base.spec import parse
from tests.benches._frame import Row

QUICK = ("bcube,4,1",)
FULL = ("bcube,4,3", "dcell,4,2")
ALONE = ("bcube,8,2",)  # networks that only Pillarbox starts: stock Mininet would take minutes
RATE_MBIT = 100
LEAST_TIMES = 20
TIME_LIMIT_S = 1200.0
STOCK, OURS = "mininet", "pillarbox"
TURNS = (OURS, STOCK, OURS, OURS)
NOTES = f"""
Every cable is limited to {RATE_MBIT} Mbit/s at both ends. up_s ends when all switches forward,
stop_s when no link of the network is left in the switches' namespace. In between, one server has to
reach another server. The builders took turns ({", ".join(TURNS)}), each time in a separate process
and sandbox; all figures are medians. mininet is stock Mininet with Host, LinuxBridge and TCLink.
faster_times compares the sum of start and stop (goal: {LEAST_TIMES}). kernel_mib and processes are
the resources of the running network: the kernel's slabs, per-processor memory, stacks and page
tables, which other users of the machine disturb, and the processes in addition to the builder's,
with the memory of all of them (proportional set size). Most of Pillarbox's stop_s is a wait in the
kernel: for each removed bridge it waits for a grace period (rcu_barrier, in br_multicast_dev_del),
10 to 20 ms at 250 Hz.
"""


def run(quick: bool) -> Iterator[Row]:
    """Yield a row for each network and builder (Pillarbox, stock Mininet)."""
    for spec in QUICK if quick else FULL:
        yield from _rows(spec, TURNS[1:3] if quick else TURNS, judged=not quick)
    for spec in () if quick else ALONE:
        yield from _rows(spec, (OURS,), judged=False)


def _rows(spec: str, turns: tuple[str, ...], *, judged: bool) -> Iterator[Row]:
    found: dict[str, list[BenchmarkCaseResult]] = {}
    for builder in turns:
        result = in_child(up_and_down, spec, builder, time_limit_s=TIME_LIMIT_S)
        found.setdefault(builder, []).append(result)
    rows = {builder: _row(spec, builder, results) for builder, results in found.items()}
    if all(row["outcome"] == "ok" for row in rows.values()) and STOCK in rows:
        both = {builder: row["up_s"] + row["stop_s"] for builder, row in rows.items()}
        times = both[STOCK] / both[OURS]
        rows[OURS]["faster_times"] = times
        if judged and times < LEAST_TIMES:
            rows[OURS]["outcome"] = f"missed: {LEAST_TIMES} times wanted"
    yield from rows.values()


def _row(spec: str, builder: str, results: list[BenchmarkCaseResult]) -> Row:
    network = parse(spec)
    row: Row = {"network": spec, "servers": network.servers, "cables": network.cables}
    row |= {"builder": builder, "up_s": None, "stop_s": None, "faster_times": None}
    row |= {"kernel_mib": None, "processes": None, "processes_mib": None}
    failures = [result.failure for result in results if result.failure]
    if failures:
        return row | {"outcome": f"failed: {failures[0]}"}
    columns = {
        name: statistics.median(result.value[name] for result in results)
        for name in results[0].value
    }
    return row | columns | {"outcome": "ok"}


def up_and_down(spec: str, builder: str) -> dict[str, float]:
    """Start, check and stop a network in a sandbox; return the times and the memory use."""
    from pillarbox.experiments.lab.linux import sandbox

    sandbox.enter()
    from mininet.log import setLogLevel
    from mininet.nodelib import LinuxBridge  # noqa: F401 - no builder pays for an import

    from pillarbox.experiments.lab.emulation.lab_network import LabNet  # noqa: F401
    from pillarbox.experiments.lab.linux.namespaces import fabric

    setLogLevel("critical")
    kernel_mib, processes, processes_mib = _memory_use()
    start_s = time.perf_counter()
    net = BUILDERS[builder](spec)
    net.start()
    up_s = time.perf_counter() - start_s
    after = _memory_use()
    _check_network(net)
    start_s = time.perf_counter()
    net.stop()
    stop_s = time.perf_counter() - start_s
    left = [link.name for link in fabric().netlink.links() if link.name != "lo"]
    if left:
        raise RuntimeError(f"{len(left)} links are left, {left[0]} among them")
    return {
        "up_s": up_s,
        "stop_s": stop_s,
        "kernel_mib": after[0] - kernel_mib,
        "processes": after[1] - processes,
        "processes_mib": after[2] - processes_mib,
    }


def _check_network(net: Any) -> None:
    """Raise RuntimeError unless two servers of a switch reach each other over shaped cables."""
    said = net["h0"].cmd(f"ping -c3 -W1 -i0.2 {net['h1'].IP()}")
    shape = net["h0"].cmd("tc class show dev h0-eth0")
    if not (" 0% packet loss" in said or "2 received" in said) or "100Mbit" not in shape:
        raise RuntimeError(f"the network does not work: {said} {shape}")


def _memory_use() -> tuple[float, int, float]:
    """Return the kernel's memory in MiB, the number of processes, and their memory in MiB."""
    sizes_mib = list(map(shared_mib, all_processes()))
    return kernel_mib(), len(sizes_mib), sum(sizes_mib)


# -- the builders ------------------------------------------------------------------------------


def _stock(spec: str) -> Any:
    from mininet.link import TCLink
    from mininet.net import Mininet
    from mininet.node import Host
    from mininet.nodelib import LinuxBridge

    from pillarbox.experiments.lab.emulation.lab_network import allow_open_files
    from pillarbox.topos.base.emulated import emulated

    allow_open_files()
    # Skip Mininet's initialization, which changes kernel settings of the whole machine.
    Mininet.inited = True
    topo = emulated(parse(spec), link={"bw": RATE_MBIT})
    return Mininet(topo=topo, host=Host, switch=LinuxBridge, link=TCLink, controller=None)


def _ours(spec: str) -> Any:
    from pillarbox.experiments.lab.emulation.lab_network import LabNet

    return LabNet(parse(spec), rate_mbit=RATE_MBIT, forwarders=False)


BUILDERS: dict[str, Callable[[str], Any]] = {STOCK: _stock, OURS: _ours}
