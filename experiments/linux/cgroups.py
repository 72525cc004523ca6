"""The control group of the programs on servers, which cannot take the machine from the network.

Programs that users and workloads run on servers share a control group: with little weight for the
processors, and limits of memory and of the number of processes. Forwarders, the process that sends
heart-beats and those that watch a trial are outside, so they go on whatever a workload does.

Without such a group each program that begins a session gets as much of the processors as the whole
lab does (autogroups, sched(7)): 480 of them leave the lab next to nothing.

Either version of control groups serves, and each limit alone. What a machine refuses is said once;
there programs are at least nicer than the lab. A group is made for the first program, is locked by
its owner, and is removed by it or, if its owner was killed, by whoever makes the next.
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

from experiments.linux.processes import proc_field

NAME = "pillarbox.programs-"
BESIDE_A_RUN = "-programs"  # behind the name of a run's group (see `sweep`)
CONTROLLERS = {"cpu": "processor time", "memory": "memory", "pids": "the number of processes"}
CPU_SHARES, CPU_WEIGHT = 512, 50  # of 1024 and 100, which any other group or session has
MEMORY_SHARE = 0.75  # of the machine's, or of what its own group may have
MOST_PROCESSES = 4096
NICE, SESSION_NICE = 10, 19  # where there is no controller of processors
KILLED_FIRST = 500  # oom_score_adj
END_S = 5.0
DYING_S = 0.5  # upper bound for killed processes to leave a group that is to be removed
PROC = Path("/proc")


class ProgramGroup:
    """The group of one lab, in each hierarchy that has a controller for it.

    Parameters
    ----------
    name : str
        Of its folders.
    proc : Path
        The /proc that tells where control groups are.
    """

    def __init__(self, name: str, proc: Path = PROC) -> None:
        self._folders: dict[str, Path] = {}  # by the controller that works there
        self._locks: dict[Path, int] = {}  # of all folders
        self.missing: dict[str, str] = {}  # controllers that cannot be had, and why
        for controller in CONTROLLERS:
            parent = parent_of(controller, proc)
            if parent is None:
                self.missing[controller] = "the kernel offers no such control group"
                continue
            hands_down = parent / "cgroup.subtree_control"  # of version 2
            try:
                if hands_down.exists():
                    hands_down.write_text(f"+{controller}")
                self._folders[controller] = self._made(parent / name)
                _limit(controller, parent / name, proc)
            except OSError as error:
                self._folders.pop(controller, None)
                self.missing[controller] = error.strerror or str(error)

    def _made(self, folder: Path) -> Path:
        if folder in self._locks:
            return folder
        remove_dead([folder.parent])
        deadline = time.monotonic() + END_S
        while True:
            folder.mkdir(exist_ok=True)
            try:
                self._locks[folder] = _locked(folder)
                if folder.is_dir():
                    return folder
                os.close(self._locks.pop(folder))
            except OSError:  # somebody else looks whether it is a dead lab's, or has removed it
                if time.monotonic() > deadline:
                    raise

    @property
    def lists(self) -> list[str]:
        """The files into which a process writes ``0`` to join."""
        return sorted({f"{folder}/cgroup.procs" for folder in self._folders.values()})

    def command(self, words: Sequence[str], *, session: bool = False) -> list[str]:
        """Return the command that runs another one in the group.

        A program that is not to be found is left to whoever starts it, who then says so. `session`
        tells that it begins a session of its own.
        """
        if not shutil.which(words[0]):
            return list(words)
        lines = [f"echo 0 >{shlex.quote(each)}" for each in self.lists]
        lines.append(f"echo {KILLED_FIRST} >/proc/self/oom_score_adj")
        how = ""
        if "cpu" in self.missing:
            how = f"nice -n {NICE} "
            lines += [f"echo {SESSION_NICE} >/proc/self/autogroup"] if session else []
        script = f'{{ {"; ".join(lines)}; }} 2>/dev/null; exec {how}"$@"'
        return ["sh", "-c", script, "sh", *words]

    def processes(self) -> set[int]:
        """Return the processes in the group."""
        found: set[int] = set()
        for each in self.lists:
            with suppress(OSError):
                found.update(map(int, Path(each).read_text().split()))
        return found

    @contextmanager
    def no_new_processes(self) -> Iterator[None]:
        """Let no program in the group start another one: who is killed has no successor."""
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
        """Kill all processes in the group, and wait until they are gone."""
        deadline = time.monotonic() + END_S
        with self.no_new_processes():
            while (left := self.processes()) and time.monotonic() < deadline:
                for process in left:
                    with suppress(ProcessLookupError):
                        os.kill(process, signal.SIGKILL)
                time.sleep(0.005)

    def remove(self) -> bool:
        """Remove the group; return whether it was empty, which it has to be."""
        deadline = time.monotonic() + DYING_S
        while self.processes():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.005)
        for folder, lock in self._locks.items():
            remove_when_free(folder)
            os.close(lock)
        self._folders, self._locks = {}, {}
        return True


def join(lists: Sequence[str]) -> None:
    """Put this process into the group with these `lists`; one that is gone limits nothing."""
    for each in lists:
        with suppress(OSError):
            Path(each).write_text("0")
    with suppress(OSError):
        (PROC / "self/oom_score_adj").write_text(str(KILLED_FIRST))


def parent_of(controller: str, proc: Path = PROC) -> Path | None:
    """Return the folder of the control group in which one with this controller can be made."""
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


def _limit(controller: str, folder: Path, proc: Path) -> None:
    """Set a group's limit, in the file of whichever version there is."""
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
    """Return how much memory there is: the machine's, or less where a group is limited."""
    found = int(proc_field(str(proc / "meminfo"), "MemTotal").split()[0]) * 1024
    for name in ("memory.max", "memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # "max" is no number
            found = min(found, int((parent / name).read_text()))
    return found


# -- locks -----------------------------------------------------------------------------------------


def _locked(folder: Path) -> int:
    """Return an open file that locks a group's folder for as long as this process lives."""
    made = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(made, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(made)
        raise
    return made


def parents() -> set[Path]:
    """Return all folders in which there can be groups of labs."""
    return {parent for each in CONTROLLERS if (parent := parent_of(each))}


def remove_dead(within: Iterable[Path]) -> None:
    """Remove the groups of labs that were killed."""
    for parent in within:
        for folder in parent.glob(f"{NAME}*"):
            _remove_if_dead(folder)


def _remove_if_dead(folder: Path) -> None:
    """Remove a group of a process that has ended; one with processes stays."""
    with suppress(OSError):  # it is locked, gone, or not empty
        lock = _locked(folder)
        try:
            folder.rmdir()
        finally:
            os.close(lock)


def remove_when_free(folder: Path) -> None:
    """Remove a cgroup without processes; while the last one is still ending it is busy."""
    deadline = time.monotonic() + END_S
    while folder.is_dir():
        try:
            folder.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


# -- this process's --------------------------------------------------------------------------------

_name = ""
_group: tuple[int, ProgramGroup] | None = None  # and the process that made it


def use_name(name: str) -> None:
    """Make a group of that name from now on, so that others find it."""
    global _name  # noqa: PLW0603
    _name = name


def programs() -> ProgramGroup:
    """Return this process's group; what it lacks is said once."""
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
    """Return this process's group, None if it has started no program."""
    return _group[1] if _group and _group[0] == os.getpid() else None


def remove() -> None:
    """Remove this process's group if no program is in it."""
    global _group  # noqa: PLW0603
    group = existing()
    if group and group.remove():
        _group = None
