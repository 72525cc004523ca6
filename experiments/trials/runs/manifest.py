"""What a run was made of: everything that may explain why its numbers are not another's.

The machine is described when the run begins. What only a running lab has (the sysctls of its
servers, the queues of its ports, the versions of the tools) is added for each system when its first
trial has ended.
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

from experiments.files import CHECKOUT
from experiments.linux.processes import proc_field
from experiments.trials.plans.experiment import Experiment
from experiments.trials.plans.values import plain
from experiments.trials.runs import schema
from topos.base.spec import parse
from topos.base.topology import Topology

PACKAGES = ("numpy", "pandas", "pyarrow", "scipy", "numba")

# All of these: any of them may explain a difference.
MACHINE_SYSCTLS = ("kernel/sched_*", "vm/swappiness", "vm/overcommit_memory")
NETWORK_SYSCTLS = ("net/core/*", "net/ipv4/tcp_*", "net/ipv4/ip_forward")
SECRET = "_key"  # how the names of secret ones end
PROGRAM_S = 10.0


def manifest(experiment: Experiment, command_line: list[str]) -> dict[str, Any]:
    """Return the manifest of a run that begins now."""
    return {
        "schema_version": schema.VERSION,
        "pillarbox": versions(),
        "plan": plain(experiment),
        "networks": {
            system.name: network_facts(parse(system.network)) for system in experiment.systems
        },
        "machine": machine(),
        "systems": {},  # of labs: see `lab_facts`
        "begun": moment(),
        "command_line": command_line,
    }


def moment() -> dict[str, Any]:
    """Return the time of day, and by the clock of event logs."""
    now = datetime.now(timezone.utc)
    return {"wall": now.isoformat(timespec="milliseconds"), "monotonic_s": time.monotonic()}


def versions() -> dict[str, Any]:
    """Return the versions of this program, and of what it is made of."""
    return {
        "version": _version("pillarbox"),
        **_commit(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "iperf3": _first_line("iperf3", "--version"),
        "iproute2": _first_line("tc", "-V"),
    }


def machine() -> dict[str, Any]:
    """Return what is known of the machine."""
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
        "governor": _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "congestion": {
            "default": _read("/proc/sys/net/ipv4/tcp_congestion_control"),
            "available": _read("/proc/sys/net/ipv4/tcp_available_congestion_control").split(),
        },
        "sysctls": sysctls(MACHINE_SYSCTLS + NETWORK_SYSCTLS),
    }


def network_facts(topology: Topology) -> dict[str, Any]:
    """Return a network's counts, and a hash of its cables that changes with any of them."""
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
    """Return what only a running lab has; its first server stands for all."""
    from experiments.linux.shaping import in_bursts

    first = lab.here()[0]
    with lab.host(first).live_namespace():
        found = sysctls(NETWORK_SYSCTLS)
        queues = _queues(lab.topology.interface(first, 0))
    return {
        "routing": lab.routing,
        "plane": lab.plane,
        "sysctls": found,
        "qdiscs": queues,
        "in_bursts": in_bursts(),
        "mininet": str(getattr(sys.modules.get("mininet.net"), "VERSION", "unknown")),
    }


def sysctls(patterns: Iterable[str]) -> dict[str, str]:
    """Return the sysctls with those names, as the calling thread's namespace has them."""
    top = Path("/proc/sys")
    found = {}
    for pattern in patterns:
        for file in sorted(top.glob(pattern)):
            value = _read(file)
            if value and not file.name.endswith(SECRET):
                found[str(file.relative_to(top)).replace("/", ".")] = " ".join(value.split())
    return found


def _queues(interface: str) -> list[str]:
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
    """Return the commit that runs, and whether files differ from it; nothing without git."""
    if not (CHECKOUT / ".git").exists():
        return {"commit": "", "dirty": None}
    git = ("git", "-c", f"safe.directory={CHECKOUT}", "-C", str(CHECKOUT))
    commit = _first_line(*git, "rev-parse", "HEAD")
    changed = _output(*git, "status", "--porcelain", "--untracked-files=no")
    return {"commit": commit, "dirty": bool(changed.strip()) if commit else None}


def _output(*command: str) -> str:
    """Return what a program prints; nothing where it is missing or fails."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=PROGRAM_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def _first_line(*command: str) -> str:
    return next(iter(_output(*command).splitlines()), "").strip()


def _read(path: Path | str) -> str:
    """Return a file's text; nothing where it is missing or may not be read."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _hypervisor() -> str:
    return (
        "a hypervisor" if "hypervisor" in proc_field("/proc/cpuinfo", "flags").split() else "none"
    )


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        return ""
