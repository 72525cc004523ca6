"""How busy the machine was: what the kernel counts anyway, read at the beginning and at the end."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

PROC, CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")
USER, NICE, IDLE, IOWAIT, STEAL = 0, 1, 3, 4, 7  # columns of /proc/stat
COUNTED = 8  # the columns beyond are contained in those before
OWN_USER, CHILDRENS_USER = 11, 13  # columns of /proc/PID/stat behind the name, in the same ticks


class Machine(NamedTuple):
    """Counters at a moment."""

    at_s: float
    ticks: tuple[int, ...]  # of all processors, by what they did
    own_ticks: int  # of these, for the programs that can be seen from here
    pressure_us: int | None  # in which some program waited for a processor
    backlog_drops: int  # packets that found a processor's own queue full


class Busyness(NamedTuple):
    """What happened between two moments, as shares of the time."""

    pressure: float | None
    steal: float
    idle: float
    foreign: float


def machine(proc: Path = PROC, cgroups: Path = CGROUPS) -> Machine:
    """Return the counters of now.

    Own programs are all that /proc shows, which in a sandbox are those of the sandbox.
    """
    own_ticks = _own_ticks(proc)
    line = (proc / "stat").read_text().partition("\n")[0]
    softnet = (proc / "net/softnet_stat").read_text().splitlines()
    return Machine(
        at_s=time.monotonic(),
        ticks=tuple(int(word) for word in line.split()[1 : COUNTED + 1]),
        own_ticks=own_ticks,
        pressure_us=_waited_us(_pressure_file(proc, cgroups)),
        backlog_drops=sum(int(row.split()[1], 16) for row in softnet),
    )


def between(first: Machine, last: Machine) -> Busyness:
    """Return what happened between two moments.

    What foreign programs took is measured by the time in user mode alone: the kernel's own work for
    packets is counted for the program it interrupted.
    """
    spent = [b - a for a, b in zip(first.ticks, last.ticks, strict=True)]
    ticks = max(1, sum(spent))
    pressure = None
    if first.pressure_us is not None and last.pressure_us is not None:
        lasted_us = max(1.0, (last.at_s - first.at_s) * 1e6)
        pressure = min(1.0, (last.pressure_us - first.pressure_us) / lasted_us)
    return Busyness(
        pressure,
        steal=spent[STEAL] / ticks,
        idle=(spent[IDLE] + spent[IOWAIT]) / ticks,
        foreign=max(0, spent[USER] + spent[NICE] - (last.own_ticks - first.own_ticks)) / ticks,
    )


def _own_ticks(proc: Path) -> int:
    """Return the time that programs spent, those that have ended and were waited for as well."""
    total = 0
    for stat in proc.glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            words = stat.read_text().rpartition(")")[2].split()
            total += int(words[OWN_USER]) + int(words[CHILDRENS_USER])
    return total


def _pressure_file(proc: Path, cgroups: Path) -> Path:
    """Return the pressure file of the run's own cgroup, or else of the whole machine."""
    for line in (proc / "self/cgroup").read_text().splitlines():
        number, _, name = line.split(":", 2)
        own = cgroups / name.lstrip("/") / "cpu.pressure"
        if number == "0" and own.exists():  # cgroup v2
            return own
    return proc / "pressure/cpu"


def _waited_us(path: Path) -> int | None:
    try:
        some = path.read_text().partition("\n")[0]
    except OSError:  # a kernel that does not count it
        return None
    return int(some.rpartition("total=")[2])
