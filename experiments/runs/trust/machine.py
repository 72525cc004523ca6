"""Load of the machine during a trial: kernel counters read at the beginning and at the end."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

PROC, CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")
USER, NICE, IDLE, IOWAIT, STEAL = 0, 1, 3, 4, 7  # Columns of /proc/stat.
COUNTED = 8  # Number of columns of /proc/stat to sum; later columns repeat parts of these.
OWN_USER, CHILDRENS_USER = 11, 13  # Columns of /proc/PID/stat after the name, in ticks.


class Machine(NamedTuple):
    """Kernel counters of processor time, CPU pressure and dropped packets at one time."""

    at_s: float
    ticks: tuple[int, ...]  # Ticks of all processors, by state (columns of /proc/stat).
    own_ticks: int  # User-mode ticks of the processes in /proc.
    pressure_us: int | None  # Time in which some process waited for a processor.
    backlog_drops: int  # Packets dropped because a processor's backlog queue was full.


class ProcessorLoad(NamedTuple):
    """Processor load between two times: pressure, steal, idle and foreign shares of the time."""

    pressure: float | None
    steal: float
    idle: float
    foreign: float


def machine(proc: Path = PROC, cgroups: Path = CGROUPS) -> Machine:
    """Return the machine's current counters of processor time, CPU pressure and dropped packets.

    Own programs are all processes in /proc, which in a sandbox are those of the sandbox.
    """
    own_ticks = _own_ticks(proc)
    line = (proc / "stat").read_text().partition("\n")[0]
    softnet = (proc / "net/softnet_stat").read_text().splitlines()
    return Machine(
        at_s=time.monotonic(),
        ticks=tuple(int(word) for word in line.split()[1 : COUNTED + 1]),
        own_ticks=own_ticks,
        pressure_us=_pressure_us(_pressure_file(proc, cgroups)),
        backlog_drops=sum(int(row.split()[1], 16) for row in softnet),
    )


def between(first: Machine, last: Machine) -> ProcessorLoad:
    """Return the processor load between two readings of the machine's counters.

    The share of foreign programs is user-mode time alone: the kernel accounts its work for packets
    to the program that it interrupted.
    """
    spent = [b - a for a, b in zip(first.ticks, last.ticks, strict=True)]
    ticks = max(1, sum(spent))
    pressure = None
    if first.pressure_us is not None and last.pressure_us is not None:
        lasted_us = max(1.0, (last.at_s - first.at_s) * 1e6)
        pressure = min(1.0, (last.pressure_us - first.pressure_us) / lasted_us)
    return ProcessorLoad(
        pressure,
        steal=spent[STEAL] / ticks,
        idle=(spent[IDLE] + spent[IOWAIT]) / ticks,
        foreign=max(0, spent[USER] + spent[NICE] - (last.own_ticks - first.own_ticks)) / ticks,
    )


def _own_ticks(proc: Path) -> int:
    """Return the user-mode ticks of all processes in /proc and of their reaped children."""
    total = 0
    for stat in proc.glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):  # The process has just ended.
            words = stat.read_text().rpartition(")")[2].split()
            total += int(words[OWN_USER]) + int(words[CHILDRENS_USER])
    return total


def _pressure_file(proc: Path, cgroups: Path) -> Path:
    """Return the CPU pressure file of this process's cgroup, or that of the whole machine."""
    for line in (proc / "self/cgroup").read_text().splitlines():
        number, _, name = line.split(":", 2)
        pressure_file = cgroups / name.lstrip("/") / "cpu.pressure"
        if number == "0" and pressure_file.exists():  # Hierarchy 0 is cgroup v2.
            return pressure_file
    return proc / "pressure/cpu"


def _pressure_us(path: Path) -> int | None:
    try:
        some = path.read_text().partition("\n")[0]
    except OSError:  # The kernel has no pressure stall information.
        return None
    return int(some.rpartition("total=")[2])
