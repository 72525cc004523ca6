"""Processes of labs with their rights: user, capabilities, seccomp, namespaces and open files."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from pillarbox.hosts.linux.rights import CAPABILITIES, MACHINE, PREFIX, ROLES

PROC = Path("/proc")
KEYS = ["process", "user", "effective", "bounding", "seccomp", "no_new_privs", "namespaces"]
# kinds of Linux namespaces, as in /proc/PID/ns
KINDS = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")
SECCOMP = {"0": "none", "1": "strict", "2": "filter"}


def processes_of(lock: Path) -> list[dict[str, Any]]:
    """Return the processes of the lab that holds the lock, in order of their process ids."""
    parents = _parent_ids()
    holders = set(_processes_holding(lock, parents)) - {os.getpid()}
    members = holders.union(*(_descendants(process, parents) for process in holders))
    # A program of `exec` has a parent outside the lab, but is in the lab's pid namespace.
    inside = {_namespace(process, "pid") for process in members} - {_namespace("self", "pid"), ""}
    members |= {process for process in parents if _namespace(process, "pid") in inside}
    found = _rights_of(members)
    for one in found:
        if one["pid"] in holders and one["process"] not in ROLES:
            one["process"] = "lab"
    return found


def processes_below(process: int) -> list[dict[str, Any]]:
    """Return all descendants of a process, in order of their process ids."""
    return _rights_of(_descendants(process, _parent_ids()))


def rights_table(processes: Iterable[dict[str, Any]]) -> list[list[str]]:
    """Return table rows of processes: user, capabilities, namespaces; equal ones share a row."""
    alike: Counter[tuple[str, ...]] = Counter()
    files: dict[tuple[str, ...], list[int]] = {}
    for one in processes:
        key = tuple(_value_text(one[key]) for key in KEYS)
        alike[key] += 1
        files.setdefault(key, []).append(one["open_files"])
    return [
        [str(count), *key, "-".join(map(str, sorted({min(files[key]), max(files[key])})))]
        for key, count in alike.items()
    ]


def _value_text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return " ".join(value) or "none" if isinstance(value, list) else str(value)


def _parent_ids() -> dict[int, int]:
    """Return the parent process id of each process."""
    found: dict[int, int] = {}
    for entry in PROC.iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                stat = _text_of(entry / "stat")
                found[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    return found


def _processes_holding(lock: Path, processes: Iterable[int]) -> Iterator[int]:
    """Yield the processes that have the lock file open."""
    wanted = lock.stat()
    for process in processes:
        with suppress(OSError):
            for entry in (PROC / str(process) / "fd").iterdir():
                with suppress(OSError):
                    if os.path.samestat(entry.stat(), wanted):
                        yield process
                        break


def _descendants(process: int, parents: dict[int, int]) -> Iterator[int]:
    for child in [child for child, parent in parents.items() if parent == process]:
        yield child
        yield from _descendants(child, parents)


def _rights_of(processes: Iterable[int]) -> list[dict[str, Any]]:
    found = []
    for process in sorted(processes):
        with suppress(OSError):  # the process has ended
            found.append(_rights_of_process(process))
    return found


def _rights_of_process(process: int) -> dict[str, Any]:
    folder = PROC / str(process)
    lines = (line.partition(":") for line in _text_of(folder / "status").split("\n"))
    status = {key: value.split() for key, _, value in lines}
    return {
        "pid": process,
        "process": " ".join(status["Name"]).removeprefix(PREFIX),
        "user": int(status["Uid"][1]),
        "effective": capabilities(status["CapEff"][0]),
        "permitted": capabilities(status["CapPrm"][0]),
        "bounding": capabilities(status["CapBnd"][0]),
        "seccomp": SECCOMP[status["Seccomp"][0]],
        "no_new_privs": status["NoNewPrivs"] == ["1"],
        "namespaces": _own_namespaces(process),
        "open_files": len(list((folder / "fd").iterdir())),
    }


def _text_of(file: Path) -> str:
    """Return the text of a /proc file; unprintable bytes of process names are replaced."""
    text = file.read_text(encoding="utf-8", errors="replace")
    return "".join(one if one.isprintable() or one in "\t\n" else "\ufffd" for one in text)


def capabilities(mask: str) -> list[str]:
    """Return the names of the Linux capabilities in a hexadecimal mask of /proc.

    In long lists, "all" stands for all capabilities of this kernel, and "-machine" means that
    those in `MACHINE` are missing.

    >>> capabilities("3000"), capabilities("0")
    (['net_admin', 'net_raw'], [])
    """
    number = int(mask, 16)
    last = int((PROC / "sys/kernel/cap_last_cap").read_text())
    known = enumerate(CAPABILITIES[: last + 1])
    missing = {name for at, name in known if not number >> at & 1}
    if len(missing) < last // 2:
        machine = set(MACHINE) if missing >= set(MACHINE) else set()
        but = ["-machine"] if machine else []
        return ["all", *but, *sorted(f"-{name}" for name in missing - machine)]
    return [name for at, name in enumerate(CAPABILITIES) if number >> at & 1]


def _own_namespaces(process: int) -> list[str]:
    """Return the kinds of namespaces in which a process differs from the calling process."""
    return [kind for kind in KINDS if _namespace(process, kind) != _namespace("self", kind)]


def _namespace(process: int | str, kind: str) -> str:
    """Return the name of a process's namespace, "" if the process has ended."""
    with suppress(OSError):
        return str((PROC / str(process) / "ns" / kind).readlink())
    return ""
