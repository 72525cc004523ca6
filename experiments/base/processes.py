"""Functions in child processes, and the memory and processor time of processes."""

from __future__ import annotations

import math
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from pillarbox.hosts.linux.calls import die_with_parent

# fields of /proc/meminfo that count the kernel's own memory
KERNEL_MEMORY = ("Slab", "Percpu", "KernelStack", "PageTables")

CGROUPS = Path("/sys/fs/cgroup")
# files with a control group's limit of processor time per period, in version 2 and in version 1
CPU_LIMITS = (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us"))

LOADS, LOAD_S = 10, 1e-3  # number of readings of the machine's load, and seconds before each


def forked(program: Callable[[], object], processor: int | None = None) -> int:
    """Run a function in a child process that dies with this process; return its process ID."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if processor is not None:
                os.sched_setaffinity(0, {processor})
            die_with_parent(signal.SIGKILL)
            program()
            code = 0
        except Exception:  # noqa: BLE001 - the child must not continue in the parent's program
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stderr.flush()
            os._exit(code)
    return child


def with_variables(variables: Sequence[str], command: Sequence[str]) -> list[str]:
    """Return the command that runs a program with further environment variables (``NAME=VALUE``).

    >>> with_variables(["RANK=1"], ["python3", "train.py"])
    ['env', 'RANK=1', 'python3', 'train.py']
    """
    # env(1) takes a path with an equals sign for a variable, a shell does not.
    shell = ["sh", "-c", 'exec "$0" "$@"'] if "=" in command[0] else []
    return ["env", *variables, *shell, *command]


def ended(child: int) -> None:
    """Kill a forked child process if it still runs, and wait for its end."""
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


@contextmanager
def beside(*programs: Callable[[], object]) -> Iterator[None]:
    """Run functions in child processes for the duration of a block."""
    children = [forked(program) for program in programs]
    try:
        yield
    finally:
        for child in children:
            ended(child)


def processors() -> int:
    """Return the number of processors that this process may use, at least 1.

    A container's limit of processor time (`docker run --cpus 2.5`) counts in whole processors.
    """
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1
    return int(max(1, min(count, _processor_limit())))


def _processor_limit() -> float:
    """Return the limit of processor time by control groups, in processors; infinite without one.

    Each ancestor of a group may have a limit. Version 2: cpu.max has the time and the period, or
    "max" without a limit (Linux, admin-guide/cgroup-v2). Version 1: cpu.cfs_quota_us has the time,
    or -1 (Linux, scheduler/sched-bwc).
    """
    groups = {CGROUPS, CGROUPS / "cpu"}
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers or "cpu" in controllers.split(","):
                root = CGROUPS / "cpu" if controllers else CGROUPS
                group = root / path.lstrip("/")
                groups |= {group, *(one for one in group.parents if one.is_relative_to(root))}
    limits = [math.inf]
    for group in groups:
        for files in CPU_LIMITS:
            with suppress(OSError, ValueError):
                limit, period = " ".join((group / file).read_text() for file in files).split()[:2]
                if limit != "max" and int(limit) > 0:
                    limits.append(int(limit) / int(period))
    return min(limits)


def idle_processors() -> int:
    """Return the number of processors that this process may use now without delaying others.

    The number is at least 1. It is counted several times: short tasks of the kernel do not matter.
    """
    most = processors()
    try:
        running = min(_running_threads() for _ in range(LOADS))
    except (OSError, ValueError, IndexError):  # no /proc
        return most
    return max(1, min(most, (os.cpu_count() or 1) - (running - 1)))


def _running_threads() -> int:
    """Return the number of threads of this machine that run or wait for a processor."""
    time.sleep(LOAD_S)
    return int(Path("/proc/loadavg").read_text().split()[3].split("/")[0])


# -- resource use ----------------------------------------------------------------------------------


def all_processes() -> list[int]:
    """Return the IDs of all visible processes, which are the sandbox's in a sandbox."""
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


def processor_s(process: int) -> float:
    """Return a process's processor time in seconds."""
    return int(Path(f"/proc/{process}/schedstat").read_text().split()[0]) / 1e9


def peak_mib() -> float:
    """Return the peak resident memory of this process in MiB.

    The value is VmHWM, not ``ru_maxrss``: Linux passes the latter on through exec, so that a child
    of a large parent appears as large as the parent (tests/benches/test_bench.py has the
    proof).
    """
    try:
        return _kib(Path("/proc/self/status"), ("VmHWM",)) / 1024
    except OSError:  # no /proc: ru_maxrss, which is in bytes on macOS
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most / (2**20 if sys.platform == "darwin" else 2**10)


def shared_mib(process: int) -> float:
    """Return a process's proportional memory (Pss) in MiB: shared pages divided by their users."""
    return _kib(Path(f"/proc/{process}/smaps_rollup"), ("Pss",)) / 1024


def own_mib(process: int) -> float:
    """Return the memory in MiB that a process shares with no other process."""
    kinds = ("Private_Clean", "Private_Dirty", "Private_Hugetlb")
    return _kib(Path(f"/proc/{process}/smaps_rollup"), kinds) / 1024


def kernel_mib(*more: str) -> float:
    """Return the kernel's own memory in MiB, plus further fields of /proc/meminfo."""
    return _kib(Path("/proc/meminfo"), (*KERNEL_MEMORY, *more)) / 1024


def proc_field(file: str, name: str) -> str:
    """Return the value of a field in a file of /proc, empty if the file has no such field."""
    try:
        lines = Path(file).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    fields = (line.partition(":") for line in lines)
    return next((value.strip() for key, _, value in fields if key.strip() == name), "")


def _kib(file: Path, names: tuple[str, ...]) -> int:
    lines = (line.partition(":") for line in file.read_text().splitlines())
    return sum(int(value.split()[0]) for name, _, value in lines if name in names)


@contextmanager
def interrupt_deferred() -> Iterator[None]:
    """Defer Ctrl-C to the end of a block that starts a process and records it.

    Otherwise an interrupt between the two steps would leave a process that is never ended.
    """
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler) or threading.current_thread() is not threading.main_thread():
        yield
        return
    pending: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: pending.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if pending:
            signal.raise_signal(signal.SIGINT)
