"""Cgroup of the programs on servers, so that they cannot starve the emulated network.

Programs that users and workloads run on servers share a cgroup with a small CPU weight and limits
of memory and of the number of processes. Forwarders, the heartbeat process and the processes that
watch a trial are outside the cgroup, so that no workload stops them.

Without the cgroup each program that starts a session gets as much processor time as the whole lab
(autogroups, sched(7)): 480 of them leave the lab next to nothing.

Both versions of cgroups work, and each limit is independent. A limit that the machine refuses is
reported once; programs then run at least at a lower priority than the lab. The cgroup is created
for the first program and locked by its owner. The owner removes it; if the owner was killed, the
next lab that creates a cgroup does.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from pillarbox.experiments.base.processes import proc_field

NAME = "pillarbox.programs-"
PROGRAMS_SUFFIX = "-programs"  # suffix of the name of the cgroup for programs on servers
CONTROLLERS = {"cpu": "processor time", "memory": "memory", "pids": "the number of processes"}
# CPU weights of programs; other cgroups and sessions have 1024 (version 1) and 100
CPU_SHARES, CPU_WEIGHT = 512, 50
MEMORY_SHARE = 0.75  # programs' memory limit: fraction of the machine's or parent's memory
MOST_PROCESSES = 4096
NICE, SESSION_NICE = 10, 19  # programs' nice values, where cgroups have no CPU controller
PROGRAMS_OOM_SCORE = 500  # oom_score_adj: programs on servers are killed before forwarders
END_S = 5.0
DYING_S = 0.5  # time limit for killed processes to leave a cgroup, in seconds
PROC = Path("/proc")


class ProgramGroup:
    """Cgroup of one lab's programs, in each hierarchy that has a controller for it.

    Parameters
    ----------
    name : str
        Name of the cgroup's folders.
    proc : Path
        The /proc file system with mounts and cgroups of this process.
    """

    def __init__(self, name: str, proc: Path = PROC) -> None:
        self._folders: dict[str, Path] = {}  # cgroup folders by controller (cpu, memory, pids)
        self._locks: dict[Path, int] = {}  # locked file descriptors of cgroup folders, by path
        # reason why a cgroup controller is unavailable, by controller name
        self.missing: dict[str, str] = {}
        for controller in CONTROLLERS:
            parent = parent_of(controller, proc)
            if parent is None:
                self.missing[controller] = "the kernel offers no such control group"
                continue
            hands_down = parent / "cgroup.subtree_control"  # exists in cgroup version 2 only
            try:
                if hands_down.exists():
                    hands_down.write_text(f"+{controller}")
                self._folders[controller] = self._created_folder(parent / name)
                _set_limits(controller, parent / name, proc)
            except OSError as error:
                self._folders.pop(controller, None)
                self.missing[controller] = error.strerror or str(error)

    def _created_folder(self, folder: Path) -> Path:
        if folder in self._locks:
            return folder
        remove_dead([folder.parent])
        deadline = time.monotonic() + END_S
        while True:
            folder.mkdir(exist_ok=True)
            if not os.access(folder, os.W_OK):  # a dead lab's, of another user
                raise PermissionError(errno.EACCES, "another user's control group has its name")
            try:
                self._locks[folder] = _locked(folder)
                if folder.is_dir():
                    return folder
                os.close(self._locks.pop(folder))
            # another lab checks if this cgroup is a dead lab's, or has removed it
            except OSError:
                if time.monotonic() > deadline:
                    raise

    @property
    def procs_files(self) -> list[str]:
        """Paths of the files to which a process writes ``0`` to join the cgroup."""
        return sorted({f"{folder}/cgroup.procs" for folder in self._folders.values()})

    def command(self, words: Sequence[str], *, session: bool = False) -> list[str]:
        """Return the command that runs a program in the cgroup.

        A program that does not exist is returned unchanged, so that the caller's start reports the
        error. `session` says that the program starts a session of its own.
        """
        if not shutil.which(words[0]):
            return list(words)
        lines = [f"echo 0 >{shlex.quote(each)}" for each in self.procs_files]
        lines.append(f"echo {PROGRAMS_OOM_SCORE} >/proc/self/oom_score_adj")
        how = ""
        if "cpu" in self.missing:
            how = f"nice -n {NICE} "
            lines += [f"echo {SESSION_NICE} >/proc/self/autogroup"] if session else []
        script = f'{{ {"; ".join(lines)}; }} 2>/dev/null; exec {how}"$@"'
        return ["sh", "-c", script, "sh", *words]

    def processes(self) -> set[int]:
        """Return the IDs of the processes in the cgroup."""
        found: set[int] = set()
        for each in self.procs_files:
            with suppress(OSError):
                found.update(map(int, Path(each).read_text().split()))
        return found

    @contextmanager
    def no_new_processes(self) -> Iterator[None]:
        """Forbid new processes in the cgroup during a block, so that killed processes stay gone."""
        folder = self._folders.get("pids")
        if folder is None:
            yield
            return
        limit = folder / "pids.max"
        limit.write_text("0")
        try:
            yield
        finally:
            limit.write_text(str(MOST_PROCESSES))

    def kill(self) -> None:
        """Kill all processes in the cgroup, and wait for their end."""
        deadline = time.monotonic() + END_S
        with self.no_new_processes():
            while (left := self.processes()) and time.monotonic() < deadline:
                for process in left:
                    with suppress(ProcessLookupError):
                        os.kill(process, signal.SIGKILL)
                time.sleep(0.005)

    def remove(self) -> bool:
        """Remove the cgroup; return False if it still has processes."""
        deadline = time.monotonic() + DYING_S
        while self.processes():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.005)
        for folder, lock in self._locks.items():
            remove_empty_cgroup(folder)
            os.close(lock)
        self._folders, self._locks = {}, {}
        return True


def join(lists: Sequence[str]) -> None:
    """Move this process into a cgroup, by its `cgroup.procs` files; ignore removed cgroups."""
    for each in lists:
        with suppress(OSError):
            Path(each).write_text("0")
    with suppress(OSError):
        (PROC / "self/oom_score_adj").write_text(str(PROGRAMS_OOM_SCORE))


def parent_of(controller: str, proc: Path = PROC) -> Path | None:
    """Return the cgroup folder in which a lab can create cgroups with a controller, or None."""
    mounts = proc / "self/mounts"
    for line in mounts.read_text().splitlines() if mounts.exists() else ():
        _, place, kind, options, *_ = line.split()
        if kind == "cgroup" and controller in options.split(","):
            own = Path(place, _own_path(controller, proc).lstrip("/"))
            return own if own.is_dir() else Path(place)
        if kind == "cgroup2":
            top = Path(place)
            with suppress(OSError):
                if controller in (top / "cgroup.controllers").read_text().split():
                    return top
    return None


def _own_path(controller: str, proc: Path) -> str:
    for line in (proc / "self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return path
    return "/"


def _set_limits(controller: str, folder: Path, proc: Path) -> None:
    """Set the CPU, memory or process limit of a lab's cgroup, in cgroup version 1 or 2."""
    memory = str(int(MEMORY_SHARE * _memory_bytes(folder.parent, proc)))
    values = {
        "cpu": {"cpu.weight": str(CPU_WEIGHT), "cpu.shares": str(CPU_SHARES)},
        "memory": {"memory.max": memory, "memory.limit_in_bytes": memory},
        "pids": {"pids.max": str(MOST_PROCESSES)},
    }
    for name, value in values[controller].items():
        if (folder / name).exists():
            (folder / name).write_text(value)
            return
    raise OSError(errno.ENOTSUP, f"{folder.parent} has no controller {controller}")


def _memory_bytes(parent: Path, proc: Path) -> int:
    """Return the available memory in bytes: the machine's, or the parent cgroup's limit."""
    found = int(proc_field(str(proc / "meminfo"), "MemTotal").split()[0]) * 1024
    for name in ("memory.max", "memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # "max" means no limit
            found = min(found, int((parent / name).read_text()))
    return found


# -- locks -----------------------------------------------------------------------------------------


def _locked(folder: Path) -> int:
    """Return an open file that locks a cgroup's folder for this process's lifetime."""
    made = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(made, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(made)
        raise
    return made


def parents() -> set[Path]:
    """Return all folders that can contain cgroups of labs."""
    return {parent for each in CONTROLLERS if (parent := parent_of(each))}


def remove_dead(within: Iterable[Path]) -> None:
    """Remove the cgroups of labs that were killed."""
    for parent in within:
        if not os.access(parent, os.W_OK):  # other users' cgroups, which their owners remove
            continue
        for folder in parent.glob(f"{NAME}*"):
            _remove_if_dead(folder)


def _remove_if_dead(folder: Path) -> None:
    """Remove a cgroup without processes whose owner has ended."""
    with suppress(OSError):  # the cgroup is locked by its owner, removed, or not empty
        lock = _locked(folder)
        try:
            folder.rmdir()
        finally:
            os.close(lock)


def remove_empty_cgroup(folder: Path) -> None:
    """Remove a cgroup without processes; retry while the last process is still ending."""
    deadline = time.monotonic() + END_S
    while folder.is_dir():
        try:
            folder.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


# -- this process's cgroup -------------------------------------------------------------------------

_name = ""
# ID of the process that created the programs' cgroup, and the cgroup
_group: tuple[int, ProgramGroup] | None = None


def set_cgroup_name(name: str) -> None:
    """Set the name of the cgroup of this lab's programs, so that other processes can find it."""
    global _name  # noqa: PLW0603
    _name = name


def programs() -> ProgramGroup:
    """Return the cgroup of this lab's programs, made on first use; report missing limits once."""
    global _group  # noqa: PLW0603 - Mininet makes nodes without a context to pass
    own = os.getpid()
    if _group is None or _group[0] != own:
        space = Path("/proc/self/ns/pid").stat().st_ino
        _group = own, ProgramGroup(_name or f"{NAME}{space}-{own}")
        lacking = [CONTROLLERS[each] for each in _group[1].missing]
        if lacking:
            why = "; ".join(sorted(set(_group[1].missing.values())))
            limits = ", ".join(lacking)
            print(
                f"*** programs on servers are not limited in {limits} here ({why}): a program that "
                "takes all of it takes it from the network as well",
                file=sys.stderr,
                flush=True,
            )
    return _group[1]


def existing() -> ProgramGroup | None:
    """Return the cgroup of this lab's programs, None if no program was started."""
    return _group[1] if _group and _group[0] == os.getpid() else None


def remove() -> None:
    """Remove the cgroup of this lab's programs if it has no processes."""
    global _group  # noqa: PLW0603
    group = existing()
    if group and group.remove():
        _group = None
