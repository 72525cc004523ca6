"""Records of labs without a sandbox, so that a dead lab's leftovers can be removed.

A lab that needs the machine's own network cannot be in a sandbox (see `sandbox`). It registers as a
*run*: a folder ``/run/pillarbox/<slot>`` with a record that it keeps locked. The slot's number
marks everything that the lab creates, and nothing else:

- its links in the machine's namespace are in device group ``FIRST_GROUP + slot``;
- its processes are in a cgroup of that number, which they do not leave, and the programs on its
  servers in further cgroups with that number (see `cgroups`);
- its hosts' namespaces have no names and vanish with its processes.

The kernel releases the lock when the lab's own process dies for any reason, so a record that can be
locked belongs to a dead run. A small process waits for the lock and then removes the leftovers; if
it was killed too, `sweep` does (``pillarbox clean``). Sweeping ends the run's processes, deletes
its links and removes the folder. It never selects anything by name alone and never touches a run
whose lock is held.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, NamedTuple

from pillarbox.experiments.base.files import private_folder
from pillarbox.experiments.lab.linux import cgroups, kernel_settings, link_requests
from pillarbox.experiments.lab.linux.namespaces import FIRST_GROUP, fabric, set_lab_slot
from pillarbox.hosts.linux import netlink
from pillarbox.topos.base.errors import NotPermittedError, PillarboxError, require

RUNS = Path("/run/pillarbox")
SLOTS = range(1, 1000)  # numbers of registered labs; slot 0 is for networks without a record
RECORD = "record.json"
CGROUP = "pillarbox-"
TIME_LIMIT_S = 10.0
# Cgroup hierarchies (version 1) in which processes of a lab are grouped without limits.
VERSION_1 = ("freezer", "pids")

# Open, locked record files of this process's labs, by slot. Closing a record, even one opened to
# read, would release its lock.
_own_records: dict[int, IO[str]] = {}


class LabLeftovers(NamedTuple):
    """Leftovers of a killed lab: its numbers of processes and network interfaces."""

    slot: int
    command: str
    processes: int
    links: int

    def __str__(self) -> str:
        return f"run {self.slot} ({self.command}): {self.processes} processes, {self.links} links"


class SweptLab:
    """A lab with a record in /run/pillarbox, from `begin` to `end`."""

    def __init__(self, slot: int) -> None:
        self.slot = slot
        self.folder = RUNS / str(slot)
        self._home: Path | None = None
        self._watcher = 0

    @classmethod
    def begin(cls) -> SweptLab:
        """Register this process as a lab, so that its processes and interfaces can be removed."""
        require(os.geteuid() == 0, "a network that runs needs root: use sudo", NotPermittedError)
        private_folder(RUNS)
        for slot in SLOTS:
            record = _claimed_record(slot)
            if record is not None:
                _own_records[slot] = record
                json.dump({"command": " ".join(sys.argv), "pid": os.getpid()}, record)
                record.flush()
                run = cls(slot)
                run._watcher = _watch(slot)
                run._join_cgroup()
                set_lab_slot(slot)
                return run
        raise PillarboxError(
            f"{len(SLOTS)} labs are running or left behind: `pillarbox clean` removes dead labs"
        )

    def _join_cgroup(self) -> None:
        hierarchy = _hierarchy()
        if hierarchy is not None:
            self._home = hierarchy.current
            group = hierarchy.group(self.slot)
            if group.is_dir():
                _end_processes(group, self.slot)
            else:
                group.mkdir()
            (group / "cgroup.procs").write_text(str(os.getpid()))
            cgroups.set_cgroup_name(f"{group.name}{cgroups.PROGRAMS_SUFFIX}")

    def end(self) -> None:
        """End a lab's processes except this one, delete its interfaces and remove its record."""
        if self._home is not None:
            (self._home / "cgroup.procs").write_text(str(os.getpid()))
        os.kill(self._watcher, signal.SIGKILL)
        os.waitpid(self._watcher, 0)
        _remove_leftovers(self.slot)
        _own_records.pop(self.slot).close()


def _watch(slot: int) -> int:
    """Start the process that cleans up after a lab when the lab is killed; return its ID."""
    watcher = os.fork()
    if watcher:
        return watcher
    try:
        os.setsid()
        nowhere = os.open("/dev/null", os.O_RDWR)
        for descriptor in range(3):  # closes the lab's output, whose readers wait for its end
            os.dup2(nowhere, descriptor)
        with (RUNS / str(slot) / RECORD).open("a+") as record:
            fcntl.lockf(record, fcntl.LOCK_EX)  # blocks until the lab's process dies
            if os.fstat(record.fileno()).st_nlink:
                _remove_leftovers(slot)
    finally:
        os._exit(0)


@contextmanager
def registered_lab() -> Iterator[SweptLab]:
    """Register this process as a lab during a block; clean up after it even if it is killed."""
    run = SweptLab.begin()
    try:
        yield run
    finally:
        run.end()


def dead_lab_records() -> Iterator[tuple[int, IO[str]]]:
    """Yield slot and locked record of each lab whose process has died."""
    for slot in _recorded_slots():
        record = _locked(RUNS / str(slot)) if slot not in _own_records else None
        if record is not None:
            yield slot, record


def live_lab_slots() -> list[int]:
    """Return the slots of the labs that are alive: those whose record is locked."""
    dead = []
    for slot, record in dead_lab_records():
        record.close()
        dead.append(slot)
    return [slot for slot in _recorded_slots() if slot not in dead]


def _recorded_slots() -> list[int]:
    return sorted(int(folder.name) for folder in RUNS.glob("*") if folder.name.isdecimal())


def sweep(*, remove: bool = True) -> list[LabLeftovers]:
    """Return the leftovers of killed labs, and remove them if `remove` is set."""
    found = []
    for slot, record in dead_lab_records():
        with record:
            hierarchy = _hierarchy()
            groups = hierarchy.groups(slot) if hierarchy else []
            processes = [process for group in groups for process in _processes(group)]
            found.append(LabLeftovers(slot, _command(record), len(processes), len(_links(slot))))
            if remove:
                _remove_leftovers(slot)
    return found


def unexplained() -> list[str]:
    """Return interfaces and cgroups that look like a lab's but have no record of a lab.

    Only objects with the mark of this /run/pillarbox are listed.
    """
    recorded = _recorded_slots()
    strays = [
        f"link {link.name}"
        for link in fabric().netlink.links()
        if link.group - FIRST_GROUP in SLOTS and link.group - FIRST_GROUP not in recorded
    ]
    hierarchy = _hierarchy()
    if hierarchy is not None and RUNS.is_dir():
        all_groups = hierarchy.top.glob(hierarchy.group("*").name)
        known = (group for slot in recorded for group in hierarchy.groups(slot))
        groups = set(all_groups).difference(known)
        strays += [f"cgroup {group}" for group in sorted(groups)]
    return strays


# -- records -----------------------------------------------------------------------------------


def _claimed_record(slot: int) -> IO[str] | None:
    """Return the locked record of a new lab's slot, None if another lab has the slot."""
    folder = RUNS / str(slot)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        return None
    return _locked(folder)


def _locked(folder: Path) -> IO[str] | None:
    """Return a dead lab's record, locked; None if the lab is alive or its record is gone.

    The lock (fcntl) belongs to this process, and forked children do not hold it.
    """
    try:
        record = (folder / RECORD).open("a+")
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        fcntl.lockf(record, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        record.close()
        if error.errno in (errno.EACCES, errno.EAGAIN):
            return None
        raise
    # another process removed the lab's record before it was locked here
    if not os.fstat(record.fileno()).st_nlink:
        record.close()
        return None
    return record


def _command(record: IO[str]) -> str:
    record.seek(0)
    try:
        return str(json.load(record)["command"])
    except (ValueError, KeyError, TypeError):  # the lab was killed before it wrote its record
        return "killed while it began"


# -- resources of a run ----------------------------------------------------------------------------


class CgroupHierarchy(NamedTuple):
    """A cgroup hierarchy: its mount point, and the cgroup of this process."""

    top: Path
    current: Path

    def group(self, slot: int | str) -> Path:
        """Return the path of a lab's cgroup in this hierarchy, which may not exist.

        Cgroups belong to the machine, but /run may belong to a container: the name identifies the
        /run.
        """
        folder = RUNS.stat()
        return self.top / f"{CGROUP}{folder.st_dev:x}.{folder.st_ino:x}-{slot}"

    def groups(self, slot: int) -> list[Path]:
        """Return the existing cgroups of a run's processes and of its servers' programs.

        The programs' cgroup is inside the run's cgroup where programs are limited in the same
        hierarchy of version 1; in version 2 it is next to it.
        """
        group, name = self.group(slot), self._programs(slot)
        return [each for each in (group / name, group.with_name(name), group) if each.is_dir()]

    def program_groups(self, slot: int) -> list[Path]:
        """Return the cgroups of a run's programs in the limiting hierarchies (see `cgroups`)."""
        places = (parent / self._programs(slot) for parent in sorted(cgroups.parents()))
        return [each for each in places if each.is_dir()]

    def _programs(self, slot: int) -> str:
        return f"{self.group(slot).name}{cgroups.PROGRAMS_SUFFIX}"


def _hierarchy() -> CgroupHierarchy | None:
    """Return the cgroup hierarchy that groups processes of labs, None without cgroups."""
    tops = {}
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, place, kind, options, *_ = line.split()
        if kind == "cgroup2":
            tops[""] = Path(place)
        elif kind == "cgroup":
            tops |= {name: Path(place) for name in options.split(",") if name in VERSION_1}
    for name in ("", *VERSION_1):
        if name in tops and os.access(tops[name], os.W_OK):
            for line in Path("/proc/self/cgroup").read_text().splitlines():
                _, controllers, path = line.split(":", 2)
                if name in controllers.split(","):
                    return CgroupHierarchy(tops[name], tops[name] / path.lstrip("/"))
    return None


def _links(slot: int) -> list[netlink.Interface]:
    return [link for link in fabric().netlink.links() if link.group == FIRST_GROUP + slot]


def _processes(group: Path) -> list[int]:
    try:
        return [int(line) for line in (group / "cgroup.procs").read_text().split()]
    except FileNotFoundError:
        return []


def _remove_leftovers(slot: int) -> None:
    """End all processes in the run's cgroups, then delete its links, then its folder."""
    hierarchy = _hierarchy()
    if hierarchy is not None:
        for group in (*hierarchy.program_groups(slot), *hierarchy.groups(slot)):
            _end_processes(group, slot)
            cgroups.remove_empty_cgroup(group)
    fabric().send(link_requests.delete_group(FIRST_GROUP + slot), ignore={errno.ENODEV})
    shutil.rmtree(RUNS / str(slot), ignore_errors=True)
    kernel_settings.leftover_settings(remove=True)


def _end_processes(group: Path, slot: int) -> None:
    deadline = time.monotonic() + TIME_LIMIT_S
    all_at_once = group / "cgroup.kill"  # cgroup version 2, Linux 5.14
    while processes := _processes(group):
        if all_at_once.exists():
            all_at_once.write_text("1")
        else:
            for process in processes:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
        require(
            time.monotonic() < deadline,
            f"processes {processes} of run {slot} do not end within {TIME_LIMIT_S:g} s: see "
            "the kernel function they wait in (ps -o pid,stat,wchan,args)",
        )
        time.sleep(0.01)
