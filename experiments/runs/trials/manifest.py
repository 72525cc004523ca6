"""Manifest of a run: all facts that may explain why its results differ from another run's.

The machine is described when the run begins. Facts of a running lab (sysctls of its servers, queues
of its ports, versions of its tools) are added for each system when its first trial has ended.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from pillarbox.experiments.base.files import CHECKOUT, file_text
from pillarbox.experiments.base.processes import proc_field
from pillarbox.experiments.runs.plans.experiment import Experiment
from pillarbox.experiments.runs.plans.values import plain
from pillarbox.experiments.runs.trials import schema
from pillarbox.topos.base.topology import Topology

PACKAGES = ("numpy", "pandas", "pyarrow", "scipy", "numba")

# Patterns of the sysctls in a manifest: each of them can affect results.
MACHINE_SYSCTLS = ("kernel/sched_*", "vm/swappiness", "vm/overcommit_memory")
NETWORK_SYSCTLS = ("net/core/*", "net/ipv4/tcp_*", "net/ipv4/ip_forward", "net/mptcp/*")
SECRET = "_key"  # Suffix of the names of secret sysctls, which are left out.
PROGRAM_S = 10.0  # Timeout of a program that prints its version, in seconds.


def manifest(experiment: Experiment, command_line: list[str]) -> dict[str, Any]:
    """Return the manifest of a run that begins now."""
    return {
        "schema_version": schema.VERSION,
        "pillarbox": versions(),
        "plan": plain(experiment),
        "networks": {one.name: network_facts(one.topology) for one in experiment.systems},
        "machine": machine(),
        "systems": {},  # Facts of each system's lab, added later: see `lab_facts`.
        "begun": moment(),
        "command_line": command_line,
    }


def moment() -> dict[str, Any]:
    """Return the current time by wall clock and by CLOCK_MONOTONIC, the clock of event logs."""
    now = datetime.now(timezone.utc)
    return {"wall": now.isoformat(timespec="milliseconds"), "monotonic_s": time.monotonic()}


def versions() -> dict[str, Any]:
    """Return the versions of Pillarbox, Python, its packages and the external tools."""
    return {
        "version": _version("pillarbox"),
        **_commit(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "iperf3": _first_line("iperf3", "--version"),
        "iproute2": _first_line("tc", "-V"),
    }


def machine() -> dict[str, Any]:
    """Return facts of the machine: kernel, processors, memory, virtualisation, sysctls."""
    return {
        "kernel": platform.release(),
        "kernel_build": platform.version(),
        "architecture": platform.machine(),
        "system": _os_name(),
        "processor": proc_field("/proc/cpuinfo", "model name"),
        "processors": len(os.sched_getaffinity(0)),
        "memory_kib": int((proc_field("/proc/meminfo", "MemTotal") or "0").split()[0]),
        "virtualisation": _first_line("systemd-detect-virt") or _hypervisor(),
        "cgroups": "v2" if Path("/sys/fs/cgroup/cgroup.controllers").exists() else "v1",
        "governor": file_text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "congestion": {
            "default": file_text("/proc/sys/net/ipv4/tcp_congestion_control"),
            "available": file_text("/proc/sys/net/ipv4/tcp_available_congestion_control").split(),
        },
        "sysctls": sysctls(MACHINE_SYSCTLS + NETWORK_SYSCTLS),
    }


def network_facts(topology: Topology) -> dict[str, Any]:
    """Return the node and cable counts of a network, and a hash over all its cables."""
    cables = hashlib.sha256()
    for cable in topology.links():
        cables.update(repr(tuple(map(int, cable))).encode())
    return {
        "spec": topology.spec,
        "servers": topology.servers,
        "switches": topology.switches,
        "cables": topology.cables,
        "cables_sha256": cables.hexdigest(),
    }


def lab_facts(lab: Any) -> dict[str, Any]:
    """Return facts of a running lab (routing, plane, sysctls, queues) from its first server."""
    from pillarbox.experiments.lab.linux.shaping import in_bursts

    first = lab.here()[0]
    with lab.host(first).live_namespace():
        found = sysctls(NETWORK_SYSCTLS)
        queues = _tc_lines(lab.topology.interface(first, 0))
    return {
        "routing": lab.routing,
        "plane": lab.plane,
        "transport": lab.settings.transport,
        "sysctls": found,
        "qdiscs": queues,
        "in_bursts": in_bursts(),
        "mininet": str(getattr(sys.modules.get("mininet.net"), "VERSION", "unknown")),
    }


def sysctls(patterns: Iterable[str]) -> dict[str, str]:
    """Return the sysctls that match patterns, with values of the calling thread's namespace."""
    top = Path("/proc/sys")
    found = {}
    for pattern in patterns:
        for file in sorted(top.glob(pattern)):
            value = file_text(file)
            if value and not file.name.endswith(SECRET):
                found[str(file.relative_to(top)).replace("/", ".")] = " ".join(value.split())
    return found


def _tc_lines(interface: str) -> list[str]:
    """Return the queues of an interface of the current namespace, as tc prints them."""
    printed = _output("tc", "qdisc", "show", "dev", interface)
    printed += _output("tc", "class", "show", "dev", interface)
    return [" ".join(line.split()) for line in printed.splitlines()]


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "unknown" if package in sys.modules else ""


def _commit() -> dict[str, Any]:
    """Return the git commit of this checkout and its dirty flag; empty without git."""
    if not (CHECKOUT / ".git").exists():
        return {"commit": "", "dirty": None}
    git = ("git", "-c", f"safe.directory={CHECKOUT}", "-C", str(CHECKOUT))
    commit = _first_line(*git, "rev-parse", "HEAD")
    changed = _output(*git, "status", "--porcelain", "--untracked-files=no")
    return {"commit": commit, "dirty": bool(changed.strip()) if commit else None}


def _output(*command: str) -> str:
    """Return the standard output of a program; empty if it is missing or times out."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=PROGRAM_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def _first_line(*command: str) -> str:
    return next(iter(_output(*command).splitlines()), "").strip()


def _hypervisor() -> str:
    return (
        "a hypervisor" if "hypervisor" in proc_field("/proc/cpuinfo", "flags").split() else "none"
    )


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        return ""
