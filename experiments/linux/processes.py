"""Functions in processes beside this one, and what any process takes of the machine."""

from __future__ import annotations

import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hosts.linux.calls import die_with_parent

KERNEL_MEMORY = ("Slab", "Percpu", "KernelStack", "PageTables")  # of /proc/meminfo


def forked(program: Callable[[], object], processor: int | None = None) -> int:
    """Run a function in a child process that dies with this one; return its id."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if processor is not None:
                os.sched_setaffinity(0, {processor})
            die_with_parent(signal.SIGKILL)
            program()
            code = 0
        except Exception:  # noqa: BLE001 - must not go on in what was the parent's program
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stderr.flush()
            os._exit(code)
    return child


def ended(child: int) -> None:
    """Kill a child, if it still runs, and wait for it."""
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


@contextmanager
def beside(*programs: Callable[[], object]) -> Iterator[None]:
    """Run functions in processes of their own for as long as the block lasts."""
    children = [forked(program) for program in programs]
    try:
        yield
    finally:
        for child in children:
            ended(child)


def processors() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# -- what processes take -----------------------------------------------------------------------


def all_processes() -> list[int]:
    """Return every process that can be seen: in a sandbox, the sandbox's."""
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


def processor_s(process: int) -> float:
    """Return how long a process has been on a processor."""
    return int(Path(f"/proc/{process}/schedstat").read_text().split()[0]) / 1e9


def peak_mib() -> float:
    """Return the most memory this process ever had resident.

    It is VmHWM, not ``ru_maxrss``: Linux hands the latter down through exec, so that a child of a
    large parent is reported to be as large (tests/experiments/test_bench.py has the proof).
    """
    try:
        return _kib(Path("/proc/self/status"), ("VmHWM",)) / 1024
    except OSError:  # not Linux: nothing better than this; on macOS in bytes
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most / (2**20 if sys.platform == "darwin" else 2**10)


def shared_mib(process: int) -> float:
    """Return a process's memory: what it shares counts by halves, thirds and so on."""
    return _kib(Path(f"/proc/{process}/smaps_rollup"), ("Pss",)) / 1024


def own_mib(process: int) -> float:
    """Return what memory a process shares with no other."""
    kinds = ("Private_Clean", "Private_Dirty", "Private_Hugetlb")
    return _kib(Path(f"/proc/{process}/smaps_rollup"), kinds) / 1024


def kernel_mib(*more: str) -> float:
    """Return the memory that the kernel has for itself, and of further kinds in /proc/meminfo."""
    return _kib(Path("/proc/meminfo"), (*KERNEL_MEMORY, *more)) / 1024


def proc_field(file: str, name: str) -> str:
    """Return what stands behind a name in a file of /proc; nothing where it does not."""
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

    Otherwise an interrupt between the two would leave a process that nobody ends.
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
