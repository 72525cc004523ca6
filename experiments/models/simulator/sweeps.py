"""Sweeps of independent tasks over processes, or over machines by Dask, with stored results.

A task is plain data, such as a named tuple of a network, a share of failures and a seed, and
`measure` is a module's function that computes numbers from it. All its random numbers are drawn
from the task's seed. So the results do not depend on the number of workers or on the order in which
tasks end.

Each result is stored in its own file as soon as it is available. A repeated sweep uses these files
unless the code has changed: the file's name is a hash of the task, of the code of networks, routing
and of what the measure imports, and of the version of numpy, which draws the random numbers.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from multiprocessing import forkserver
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pillarbox.experiments.base.files import give_to_user, output_folder, write_atomically
from pillarbox.experiments.base.interpreter import outside_current_directory
from pillarbox.experiments.base.processes import peak_mib, processors
from pillarbox.experiments.base.source_code import code_digest
from pillarbox.topos.base.errors import PillarboxError, require

if TYPE_CHECKING:
    import distributed

Measure = Callable[[Any], Any]

# packages whose modules are found by their names, so that no import statement leads to them
FOUND_BY_NAME = ("pillarbox.topos", "pillarbox.hosts", "pillarbox.experiments.models.simulator")
# packages on which no simulation result depends
NOT_SIMULATED = (
    *("pillarbox.hosts.linux", "pillarbox.hosts.live"),
    *("pillarbox.experiments.base", "pillarbox.experiments.runs.reporting"),
)
CONNECT_S = 10.0  # timeout for connecting to Dask's scheduler, in seconds
# interval of checks for Dask workers, and time limit without any worker, in seconds
LOOK_S, ALONE_S = 1.0, 60.0
CONFIGURE = (
    "tls:// needs keys: name them in Dask's configuration (distributed.comm.tls, or "
    "DASK_DISTRIBUTED__COMM__TLS__CA_FILE, ...__CLIENT__CERT and ...__CLIENT__KEY)"
)
SAY_EVERY_S = 10.0  # interval of a sweep's progress messages, in seconds


class TaskResult(NamedTuple):
    """Result of a sweep's task, with its processor time and peak memory."""

    found: Any
    seconds: float  # processor time of the task in seconds
    peak_mib: float


def sweep(
    measure: Measure,
    tasks: Sequence[object],
    folder: Path,
    *,
    workers: int = 0,
    scheduler: str = "",
    say: Callable[[str], Any] = print,
    took: Callable[[float], Any] = lambda _: None,
) -> list[Any]:
    """Run the function `measure` on each task, in parallel; return results in order.

    Parameters
    ----------
    measure : callable
        A function at the top level of a module. Its result must be valid JSON, in which tuples
        become lists; it is returned like that whether it was computed now or earlier.
    tasks : sequence
        Values that JSON can represent, or named tuples of such values.
    folder : Path
        Folder that stores the results of finished tasks.
    workers : int
        Number of processes; 0 for one per processor.
    scheduler : str
        Address of Dask's scheduler (``tcp://127.0.0.1:8786``), whose workers are used instead of
        processes. They must have the same code.
    say : callable
        Function that prints a message about the progress.
    took : callable
        Function that receives the processor time of each task in seconds, whenever it was computed.
    """
    code = result_code_hash(measure.__module__)
    files = [folder / f"{_task_key(measure, task, code)}.json" for task in tasks]
    output_folder(folder)
    done = {i: kept for i, file in enumerate(files) if (kept := _stored_result(file)) is not None}
    left = [i for i in range(len(tasks)) if i not in done]
    if done:
        say(f"{len(done)} of {len(tasks)} tasks were done before, in {folder}")
    began = said = time.monotonic()
    count = min(workers or processors(), len(left))
    numbered = [(i, tasks[i]) for i in left]
    run = (
        _on_dask(measure, numbered, scheduler)
        if scheduler
        else _on_processes(measure, numbered, count)
    )
    for i, one in run:
        done[i] = one
        _store(files[i], tasks[i], one)
        if time.monotonic() - said >= SAY_EVERY_S:
            said = time.monotonic()
            say(f"{len(done)} of {len(tasks)} tasks are done")
    if left:
        where = f"by {scheduler}" if scheduler else f"in {count} process{'es' * (count > 1)}"
        say(f"{len(left)} tasks took {time.monotonic() - began:.1f} s {where}")
    if done:
        most = max(done, key=lambda i: done[i].peak_mib)
        say(f"peak memory of a task: {done[most].peak_mib:.0f} MiB, of {_task_text(tasks[most])}")
    for i in range(len(tasks)):
        took(done[i].seconds)
    return [done[i].found for i in range(len(tasks))]


def results(measure: Measure, tasks: Sequence[object], workers: int = 0) -> list[Any]:
    """Run the function `measure` on each task, in parallel; return results in order, unstored.

    The parameters are those of `sweep`.
    """
    count = min(workers or processors(), len(tasks))
    done = dict(_on_processes(measure, list(enumerate(tasks)), count))
    return [done[i].found for i in range(len(tasks))]


def run_task(measure: Measure, task: object) -> TaskResult:
    """Run one task of a simulation sweep in this process: called by workers."""
    _reset_peak_memory()
    # Processor time: other load on the machine, or a pause, does not lengthen a task.
    began = time.process_time()
    # Converted to JSON and back, so that new and stored results are the same.
    found = json.loads(_json_text(measure(task)))
    return TaskResult(found, round(time.process_time() - began, 3), round(peak_mib(), 1))


def run_task_with_same_code(measure: Measure, task: object, code: str) -> TaskResult:
    """Run a task in this process if the code is the same: called by workers on other machines."""
    require(
        result_code_hash(measure.__module__) == code,
        "a Dask worker runs different code from this machine's: install the same Pillarbox and the "
        "same numpy on all of them",
    )
    return run_task(measure, task)


def result_code_hash(module: str) -> str:
    """Return a hash of all code on which the results of a sweep's measure depend.

    It includes numpy's version, because numpy draws the random numbers.
    """
    import numpy

    return f"{simulation_digest(module)}-{numpy.__version__}"


def simulation_digest(module: str) -> str:
    """Return a digest of the code on which results of a module that simulates depend."""
    return code_digest(*FOUND_BY_NAME, module, without=NOT_SIMULATED, imports=True)


# -- execution of tasks --------------------------------------------------------------------------

Numbered = list[tuple[int, object]]


def _on_processes(
    measure: Measure, tasks: Numbered, workers: int
) -> Iterator[tuple[int, TaskResult]]:
    """Run the tasks on this machine; yield each task's number and result when it ends."""
    if workers <= 1:
        for i, task in tasks:
            yield i, run_task(measure, task)
        return
    pool = ProcessPoolExecutor(workers, _start_method(measure.__module__), _initialise_worker)
    try:
        futures = {pool.submit(run_task, measure, task): i for i, task in tasks}
        for future in as_completed(futures):
            yield futures[future], future.result()
    except BrokenProcessPool:
        raise PillarboxError(
            "a process of the simulator was killed, possibly for lack of memory: run again with "
            "fewer --workers; finished tasks are stored"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _on_dask(measure: Measure, tasks: Numbered, scheduler: str) -> Iterator[tuple[int, TaskResult]]:
    """Run the tasks on Dask's workers; yield each task's number and result when it ends."""
    try:
        import distributed
    except ImportError:
        raise PillarboxError(
            "--scheduler needs Dask, which is not installed: pip install 'dask[distributed]'"
        ) from None
    start = f"`dask worker {scheduler} --nthreads 1`"
    security = dask_tls_settings(scheduler)
    try:
        client = distributed.Client(scheduler, timeout=CONNECT_S, security=security)
    except (OSError, ValueError) as error:
        raise PillarboxError(
            f"no scheduler of Dask answers at {scheduler!r} ({error}): start one with `dask "
            f"scheduler`, and workers with {start}"
        ) from None
    with client:
        workers = client.scheduler_info()["workers"]
        require(bool(workers), f"the scheduler at {scheduler} has no workers: try {start}")
        code = result_code_hash(measure.__module__)
        futures = {
            client.submit(run_task_with_same_code, measure, task, code, pure=False): i
            for i, task in tasks
        }
        ended = threading.Event()
        watch = threading.Thread(
            target=_cancel_without_workers, args=[client, list(futures), ended]
        )
        watch.start()
        try:
            for future in distributed.as_completed(list(futures)):
                yield futures[future], TaskResult(*future.result())
        except CancelledError:
            raise PillarboxError(
                f"the scheduler at {scheduler} or all its workers have been unreachable for "
                f"{ALONE_S:.0f} s: start them again, then this sweep; finished tasks are stored"
            ) from None
        finally:
            ended.set()
            watch.join()


def dask_tls_settings(address: str) -> Any:
    """Return Dask's TLS settings for a scheduler at a tls:// address, else None."""
    if not address.startswith("tls://"):
        return None
    from distributed.security import Security

    found: Any = Security()  # Security() reads the TLS settings of Dask's configuration
    require(bool(found.tls_ca_file and found.tls_client_cert), CONFIGURE)
    return found


def _cancel_without_workers(
    client: distributed.Client, futures: list[distributed.Future[Any]], ended: threading.Event
) -> None:
    """Cancel all tasks when Dask has had no worker for ALONE_S seconds."""
    seen_s = time.monotonic()
    while not ended.wait(LOOK_S):
        with suppress(OSError, RuntimeError, TimeoutError):
            if client.scheduler_info()["workers"]:
                seen_s = time.monotonic()
        if time.monotonic() - seen_s > ALONE_S:
            client.cancel(futures, force=True)
            return


def _start_method(module: str) -> Any:
    """Return the start method of worker processes: never fork, as the parent may have threads."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        [__name__, module]
    )  # the fork server imports these modules once for all worker processes
    # the fork server would import from the current directory first
    with outside_current_directory():
        forkserver.ensure_running()
    return context


def _initialise_worker() -> None:
    """Ignore Ctrl-C, which the parent handles by ending its workers; exit if the parent dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent
    parent.join()
    os._exit(1)


# -- stored results ------------------------------------------------------------------------------


def _task_key(measure: Measure, task: object, code: str) -> str:
    name = f"{measure.__module__}.{measure.__qualname__}"
    return hashlib.sha256(_json_text([name, task, code]).encode()).hexdigest()[:32]


def _json_text(value: object) -> str:
    """Return JSON text in which numpy's numbers and arrays are plain ones."""
    return json.dumps(value, default=lambda other: other.tolist())


def _store(file: Path, task: object, done: TaskResult) -> None:
    write_atomically(file, _json_text({"task": task, **done._asdict()}).encode() + b"\n")
    give_to_user(file)


def _stored_result(file: Path) -> TaskResult | None:
    """Return a stored result; None if the file is missing or cannot be read."""
    try:
        kept = json.loads(file.read_text(encoding="utf-8"))
        return TaskResult(kept["found"], kept["seconds"], kept["peak_mib"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _task_text(task: object) -> str:
    return " ".join(map(str, task)) if isinstance(task, tuple | list) else str(task)


# -- memory --------------------------------------------------------------------------------------


def _reset_peak_memory() -> None:
    """Reset the kernel's record of this process' peak memory, if possible."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
