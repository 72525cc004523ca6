"""Damaged files, messages and arguments for all readers: a result, or a one-sentence error."""

from __future__ import annotations

import resource
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any

from pillarbox.experiments.base.processes import peak_mib, proc_field
from tests.benches._frame import Row, from_child
from tests.benches._mutations import Mutator
from tests.benches._readers import ReaderCase, readers

INPUTS, INPUTS_QUICK = 100_000, 500
SEED = 1
HANG_S = 10.0  # CPU time limit for reading one fuzz input, in seconds
MOST_MIB = 256.0  # memory limit of the process that runs a fuzzed reader, with libraries
TIME_LIMIT_S = 4 * 3600.0  # wall time limit for all fuzz inputs of one reader, in seconds
COLUMNS = ("inputs", "read", "refused", "slowest_ms", "peak_mib", "seconds")
NOTES = f"""
Each input is a valid or formerly harmful input of the reader's corpus, with tokens, cells, values,
branches or bytes replaced: numbers beyond each limit, invalid UTF-8, deep brackets, truncated
files. The seed is {SEED}. A reader returns, or raises a documented error. Any other result is a
failure: another exception, more than {HANG_S:g} s of processor time for an input, a process of more
than {MOST_MIB:g} MiB (peak_mib, its libraries included).
"""


def run(quick: bool) -> Iterator[Row]:
    """Yield a row for each reader of untrusted input."""
    for name in readers():
        arguments = (name, (INPUTS_QUICK if quick else INPUTS) // readers()[name].share)
        row: Row = {"reader": name}
        yield from_child(
            row,
            COLUMNS,
            _reader_verdict,
            fuzz_reader_in_bounded_memory,
            *arguments,
            time_limit_s=TIME_LIMIT_S,
        )


def fuzz_reader_in_bounded_memory(name: str, inputs: int) -> Row:
    """Feed mutated inputs to a reader in this process under a memory limit."""
    with _bounded_memory():
        return fuzz_reader(name, readers()[name], inputs)


def fuzz_reader(name: str, reader: ReaderCase, inputs: int) -> Row:
    """Feed the corpus and mutated inputs to a reader; return the benchmark row."""
    counts = {"read": 0, "refused": 0}
    slowest_s, failure, data = 0.0, "", b""
    corpus, errors = reader.corpus(), reader.errors()
    begun_s = time.perf_counter()
    with reader.prepare() as read, _cpu_time_limit():
        for number in range(inputs):
            data = _fuzz_input(name, reader.mutate, corpus, number)
            before_s = time.process_time()
            # The first fuzz input has no time limit, as reading it also imports modules.
            signal.setitimer(signal.ITIMER_PROF, HANG_S if number else 0.0)
            try:
                read(data)
                counts["read"] += 1
            except errors:
                counts["refused"] += 1
            # Any other exception is a defect of the reader.
            except (Exception, _InputTimeout) as error:  # noqa: BLE001
                failure = f"failed: {error!r:.300} on input {number}: {data[:600]!r}"
                break
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0.0)
            slowest_s = max(slowest_s, (time.process_time() - before_s) if number else 0.0)
    row: Row = {"inputs": sum(counts.values()), **counts, "slowest_ms": 1e3 * slowest_s}
    row |= {"peak_mib": peak_mib(), "seconds": time.perf_counter() - begun_s}
    return row | {"failure": failure}


def _fuzz_input(name: str, mutate: Mutator, corpus: Sequence[bytes], number: int) -> bytes:
    """Return a fuzz input by its number: first the unchanged corpus, then mutated copies."""
    if number < len(corpus):
        return corpus[number]
    random = Random(f"{SEED} {name} {number}")
    return mutate(random.choice(corpus), corpus, random)


def _reader_verdict(row: Row) -> str:
    failure = row.pop("failure", "")
    too_large = row["peak_mib"] > MOST_MIB
    return failure or (f"failed: it used {row['peak_mib']:.0f} MiB" if too_large else "ok")


class _InputTimeout(BaseException):
    """Raised if reading a fuzz input exceeds the CPU time limit."""


@contextmanager
def _cpu_time_limit() -> Iterator[None]:
    def ring(*_: Any) -> None:
        raise _InputTimeout(f"it took more than {HANG_S:g} s of processor time")

    before = signal.signal(signal.SIGPROF, ring)
    try:
        yield
    finally:
        signal.signal(signal.SIGPROF, before)


@contextmanager
def _bounded_memory() -> Iterator[None]:
    """Limit this process's data segment to its current size plus MOST_MIB."""
    has_kib = int(proc_field("/proc/self/status", "VmData").split()[0])
    before = resource.getrlimit(resource.RLIMIT_DATA)
    most = has_kib * 1024 + int(MOST_MIB * 2**20)
    resource.setrlimit(resource.RLIMIT_DATA, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)
