"""Many independent tasks: over processes, or over machines by Dask; kept, and never done twice.

A task is plain data, such as a named tuple of a network, a share of failures and a seed, and
`measure` is a function of a module that makes numbers of it. All that is random in it is drawn from
the task's own seed. So the results are the same whatever the number of workers and the order in
which they end.

Each result goes into a file of its own as soon as it is there. A sweep that is started again takes
those, unless the code has changed since: the name of the file is a hash of the task, the code of
networks, routing and simulator, and the version of numpy, which draws the random numbers.
"""

from __future__ import annotations

import hashlib
import importlib
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
from functools import cache
from multiprocessing import forkserver
from pathlib import Path
from typing import Any, NamedTuple

from experiments.files import give_to_user, output_folder, write_atomically
from experiments.interpreter import outside_current_directory
from experiments.linux.processes import peak_mib, processors
from topos.base.errors import PillarboxError, require

Measure = Callable[[Any], Any]

# What decides about a result, beside the module that has the measure.
CODE = (
    *("topos", "hosts"),
    *(f"experiments.analysis.{part}" for part in ("arrivals", "fluid", "packets", "simulator")),
)
LIVE = ("hosts.linux", "hosts.live")  # which decides about none
CONNECT_S = 10.0  # to Dask's scheduler
LOOK_S, ALONE_S = 1.0, 60.0  # at whether it has workers; without any, so long
CONFIGURE = (
    "tls:// needs keys: name them in Dask's configuration (distributed.comm.tls, or "
    "DASK_DISTRIBUTED__COMM__TLS__CA_FILE, ...__CLIENT__CERT and ...__CLIENT__KEY)"
)
SAY_EVERY_S = 10.0


class Done(NamedTuple):
    """What came of a task, and what it took."""

    found: Any
    seconds: float  # of a processor
    peak_mib: float


def sweep(
    measure: Measure,
    tasks: Sequence[Any],
    folder: Path,
    *,
    workers: int = 0,
    scheduler: str = "",
    say: Callable[[str], Any] = print,
    took: Callable[[float], Any] = lambda _: None,
) -> list[Any]:
    """Return what `measure` makes of each task, in the tasks' order.

    Parameters
    ----------
    measure : callable
        A function at the top of a module. What it returns must go through JSON, where tuples become
        lists; it comes back like that whether it was computed now or before.
    tasks : sequence
        What JSON can hold, or named tuples of that.
    folder : Path
        Where the results of finished tasks are kept.
    workers : int
        How many processes; 0 for one a processor.
    scheduler : str
        The address of Dask's scheduler (``tcp://127.0.0.1:8786``); its workers are used instead.
        They must have the same code.
    say : callable
        Takes sentences about the progress.
    took : callable
        Takes the processor time of each task in seconds, whenever it was done.
    """
    code = code_of(measure.__module__)
    files = [folder / f"{_key(measure, task, code)}.json" for task in tasks]
    output_folder(folder)
    done = {i: kept for i, file in enumerate(files) if (kept := _read(file)) is not None}
    left = [i for i in range(len(tasks)) if i not in done]
    if done:
        say(f"{len(done)} of {len(tasks)} tasks were done before, in {folder}")
    began = said = time.monotonic()
    count = min(workers or processors(), len(left))
    numbered = [(i, tasks[i]) for i in left]
    run = _on_dask(measure, numbered, scheduler) if scheduler else _here(measure, numbered, count)
    for i, one in run:
        done[i] = one
        _keep(files[i], tasks[i], one)
        if time.monotonic() - said >= SAY_EVERY_S:
            said = time.monotonic()
            say(f"{len(done)} of {len(tasks)} tasks are done")
    if left:
        where = f"by {scheduler}" if scheduler else f"in {count} process{'es' * (count > 1)}"
        say(f"{len(left)} tasks took {time.monotonic() - began:.1f} s {where}")
    if done:
        most = max(done, key=lambda i: done[i].peak_mib)
        say(f"peak memory of a task: {done[most].peak_mib:.0f} MiB, of {_named(tasks[most])}")
    for i in range(len(tasks)):
        took(done[i].seconds)
    return [done[i].found for i in range(len(tasks))]


def measured(measure: Measure, task: Any) -> Done:
    """Do a task here: what a worker calls."""
    _forget_peak()
    # Of the processor: others on the machine, or a pause, do not make a task longer.
    began = time.process_time()
    # Through JSON at once, so that it makes no difference whether a result was kept.
    found = json.loads(_text(measure(task)))
    return Done(found, round(time.process_time() - began, 3), round(peak_mib(), 1))


def measured_alike(measure: Measure, task: Any, code: str) -> Done:
    """Do a task here if the code is the same: what a worker on another machine calls."""
    require(
        code_of(measure.__module__) == code,
        "a worker has other code than this machine: give all of them the same Pillarbox and the "
        "same numpy",
    )
    return measured(measure, task)


def code_of(module: str) -> str:
    """Return a hash of all that a measure's numbers depend on but its task."""
    return hash_of(*CODE, module, without=LIVE)


@cache
def hash_of(*modules: str, without: tuple[str, ...] = ()) -> str:
    """Return a hash of the code of modules and packages, and of the version of numpy."""
    import numpy

    found = hashlib.sha256(numpy.__version__.encode())
    left_out = {_file(name).parent for name in without}
    for name in modules:
        file = _file(name)
        files = sorted(file.parent.rglob("*.py")) if file.name == "__init__.py" else [file]
        for one in files:
            if left_out.isdisjoint(one.parents):
                found.update(one.relative_to(file.parent).as_posix().encode())
                found.update(one.read_bytes())
    return found.hexdigest()


def _file(module: str) -> Path:
    return Path(str(importlib.import_module(module).__file__))


# -- where the tasks run -------------------------------------------------------------------------

Numbered = list[tuple[int, Any]]


def _here(measure: Measure, tasks: Numbered, workers: int) -> Iterator[tuple[int, Done]]:
    """Do the tasks on this machine; yield each with its number when it is done."""
    if workers <= 1:
        for i, task in tasks:
            yield i, measured(measure, task)
        return
    pool = ProcessPoolExecutor(workers, _context(measure.__module__), _begin_worker)
    try:
        futures = {pool.submit(measured, measure, task): i for i, task in tasks}
        for future in as_completed(futures):
            yield futures[future], future.result()
    except BrokenProcessPool:
        raise PillarboxError(
            "a process of the simulator was killed, perhaps for want of memory: run again with "
            "fewer --workers; what was done is kept"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _on_dask(measure: Measure, tasks: Numbered, scheduler: str) -> Iterator[tuple[int, Done]]:
    """Do the tasks on Dask's workers; yield each with its number when it is done."""
    try:
        import distributed
    except ImportError:
        raise PillarboxError(
            "--scheduler needs Dask, which is not installed: pip install 'dask[distributed]'"
        ) from None
    start = f"`dask worker {scheduler} --nthreads 1`"
    security = security_for(scheduler)
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
        code = code_of(measure.__module__)
        futures = {
            client.submit(measured_alike, measure, task, code, pure=False): i for i, task in tasks
        }
        ended = threading.Event()
        watch = threading.Thread(target=_give_up_alone, args=[client, list(futures), ended])
        watch.start()
        try:
            for future in distributed.as_completed(list(futures)):
                yield futures[future], Done(*future.result())
        except CancelledError:
            raise PillarboxError(
                f"the scheduler at {scheduler} or all its workers have gone, for "
                f"{ALONE_S:.0f} s: start them again, then this; what was done is kept"
            ) from None
        finally:
            ended.set()
            watch.join()


def security_for(address: str) -> Any:
    """Return Dask's security for a scheduler that others have started; None without TLS."""
    if not address.startswith("tls://"):
        return None
    from distributed.security import Security

    found: Any = Security()  # by Dask's configuration
    require(bool(found.tls_ca_file and found.tls_client_cert), CONFIGURE)
    return found


def _give_up_alone(client: Any, futures: list[Any], ended: threading.Event) -> None:
    """Cancel all tasks when there has been no worker for a while."""
    seen_s = time.monotonic()
    while not ended.wait(LOOK_S):
        with suppress(OSError, RuntimeError, TimeoutError):
            if client.scheduler_info()["workers"]:
                seen_s = time.monotonic()
        if time.monotonic() - seen_s > ALONE_S:
            client.cancel(futures, force=True)
            return


def _context(module: str) -> Any:
    """Return how processes are started: never as copies of this one, which may have threads."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, module])  # loaded once for all of them
    with outside_current_directory():  # which comes first on the import path of the server
        forkserver.ensure_running()
    return context


def _begin_worker() -> None:
    """Leave Ctrl-C to the parent, which ends its workers; end when it was killed and cannot."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent
    parent.join()
    os._exit(1)


# -- what is kept --------------------------------------------------------------------------------


def _key(measure: Measure, task: Any, code: str) -> str:
    name = f"{measure.__module__}.{measure.__qualname__}"
    return hashlib.sha256(_text([name, task, code]).encode()).hexdigest()[:32]


def _text(value: Any) -> str:
    """Return JSON; numbers and arrays of numpy are plain ones there."""
    return json.dumps(value, default=lambda other: other.tolist())


def _keep(file: Path, task: Any, done: Done) -> None:
    write_atomically(file, _text({"task": task, **done._asdict()}).encode() + b"\n")
    give_to_user(file)


def _read(file: Path) -> Done | None:
    """Return what is kept, None where there is nothing or nothing that can be read."""
    try:
        kept = json.loads(file.read_text(encoding="utf-8"))
        return Done(kept["found"], kept["seconds"], kept["peak_mib"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _named(task: Any) -> str:
    return " ".join(map(str, task)) if isinstance(task, tuple | list) else str(task)


# -- memory --------------------------------------------------------------------------------------


def _forget_peak() -> None:
    """Let the kernel begin anew with the most memory that this process had, where it can."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
