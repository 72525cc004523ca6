"""Probes of the computer: processors, memory, disk, and settings of the system."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path

from pillarbox.experiments.lab.doctor.finding import OK, Finding, Probe, finding
from pillarbox.experiments.lab.linux.cgroups import CONTROLLERS, parent_of

LEAST_CPUS, LEAST_MEMORY_GIB, LEAST_DISK_GIB = 2, 3.5, 2.0
REPORT_PORT = 8000  # TCP port on which a Vagrant machine serves its reports to its host
WANTED_CONTROL = "cubic"
PROC = Path("/proc/sys/net/ipv4")


def probes() -> list[Probe]:
    """Return `doctor`'s checks of processors, memory, disk and cgroups, in report order."""
    return [processors, memory, disk, cgroups, pressure, congestion, report_port]


def processors() -> Finding:
    """Return whether enough processors are available."""
    count = len(os.sched_getaffinity(0))
    lack = "" if count >= LEAST_CPUS else f"{count} processor"
    costs = "networks of more than some 20 servers are slow, and their throughput is not faithful"
    return finding("processors", str(count), lack, costs, "give the machine two processors")


def memory() -> Finding:
    """Return whether enough memory is available: a live server takes 3 to 6 MB."""
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    lack = "" if gib >= LEAST_MEMORY_GIB else f"{gib:.1f} GiB"
    costs = "networks of hundreds of live servers do not fit"
    return finding("memory", f"{gib:.1f} GiB", lack, costs, "give the machine 4 GB")


def disk() -> Finding:
    """Return whether enough disk space for records is free."""
    gib = shutil.disk_usage(Path.cwd()).free / 2**30
    lack = "" if gib >= LEAST_DISK_GIB else f"{gib:.1f} GiB are free here"
    costs = "long runs may fill it"
    return finding("disk", f"{gib:.0f} GiB free here", lack, costs, "free some 2 GB")


def cgroups() -> Finding:
    """Return the cgroup version, and whether cgroups limit programs on servers."""
    missing = [name for each, name in CONTROLLERS.items() if parent_of(each) is None]
    if missing:
        costs = "a program on a server can take all of it from the network"
        lack = f"none limits {', '.join(missing)}"
        return finding("cgroups", "", lack, costs, "mount the controllers of /proc/cgroups")
    if Path("/sys/fs/cgroup/cgroup.controllers").exists():
        return Finding("cgroups", OK, "version 2")
    costs = "a run cannot tell its own pressure on the processors from that of others"
    mend = "boot with systemd.unified_cgroup_hierarchy=1"
    return finding("cgroups", "", "version 1", costs, mend)


def pressure() -> Finding:
    """Return whether the kernel reports pressure stall information for processors (PSI)."""
    lack = "" if Path("/proc/pressure/cpu").exists() else "the kernel does not tell"
    costs = "one warning of the verdict on a result is missing"
    return finding("pressure", "the kernel tells", lack, costs, "boot with psi=1")


def congestion() -> Finding:
    """Return the available TCP congestion controls."""
    there = _words_in_file(PROC / "tcp_available_congestion_control")
    default = " ".join(_words_in_file(PROC / "tcp_congestion_control"))
    lack = "" if WANTED_CONTROL in there else f"there is no {WANTED_CONTROL}: {' '.join(there)}"
    costs = "experiments have to name another (--set workload.congestion=reno)"
    found = f"{' '.join(there)}; {default} unless a program asks for another"
    return finding("congestion", found, lack, costs, f"modprobe tcp_{WANTED_CONTROL}")


def report_port() -> Finding:
    """Return whether the port for a virtual machine's reports is free."""
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind(("127.0.0.1", REPORT_PORT))
        except OSError as error:
            lack = f"port {REPORT_PORT} is taken: {error.strerror}"
        else:
            lack = ""
    costs = "reports cannot be looked at from the virtual machine's host on the usual port"
    mend = f"end what listens there (ss -tlnp sport = :{REPORT_PORT}), or choose another port"
    return finding("report port", f"{REPORT_PORT} is free", lack, costs, mend)


def _words_in_file(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []
