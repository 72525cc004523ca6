"""Interleaved timing of several cases, and measurements in a process per case.

Two durations are comparable only if they were measured at the same time: on a machine with other
tenants the clock speed changes from minute to minute. So `interleaved` runs the cases in the order
A B C, A B C, ..., and `ratios` compares medians of one such run.

Peak memory is meaningful only for a process that did nothing else, so `in_child` starts a process
for each case.
"""

from __future__ import annotations

import gc
import importlib
import json
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from pillarbox.experiments.base.interpreter import code_command
from pillarbox.experiments.base.processes import peak_mib

CHILD = f"from {__name__} import child; child(sys.argv[1])"  # Python code of a child process


class BenchmarkCaseResult(NamedTuple):
    """Result of a benchmark's case: its value and peak memory, or the reason of its failure."""

    value: Any = None
    peak_mib: float | None = None
    failure: str = ""


def interleaved(
    cases: Mapping[str, Callable[[], object]],
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Run the cases of a benchmark in turn; return their durations by case, in seconds.

    A case's return value stays alive until its time is taken, and is freed with all earlier garbage
    before the next case. The collector stays on: it is part of the cost of a million objects.
    """
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            gc.collect()
            start = clock()
            made = case()
            seconds[name].append(clock() - start)
            del made
    return seconds


def medians(seconds: dict[str, list[float]]) -> dict[str, float]:
    """Return the median duration of each benchmark case, in seconds."""
    return {name: statistics.median(values) for name, values in seconds.items()}


def ratios(values: dict[str, float], against: str) -> dict[str, float]:
    """Return each benchmark case's value as a ratio to the value of case `against`.

    >>> ratios({"ours": 2.0, "theirs": 5.0}, against="ours")
    {'ours': 1.0, 'theirs': 2.5}
    """
    return {name: value / values[against] for name, value in values.items()}


def in_child(
    function: Callable[..., Any], *arguments: Any, time_limit_s: float
) -> BenchmarkCaseResult:
    """Return a function's return value and peak memory from a fresh process.

    The function belongs to a module; arguments and value are passed as JSON. If the case raises,
    dies or exceeds the time limit, the Result has a failure.
    """
    call = json.dumps([function.__module__, function.__qualname__, arguments])
    try:
        child = subprocess.run(
            code_command(CHILD, call),
            capture_output=True,
            text=True,
            timeout=time_limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return BenchmarkCaseResult(failure=f"took longer than {time_limit_s:g} s")
    if child.returncode < 0:
        return BenchmarkCaseResult(failure=f"killed by {signal.Signals(-child.returncode).name}")
    if child.returncode:
        last = child.stderr.strip().splitlines()[-1:] or [f"exit code {child.returncode}"]
        return BenchmarkCaseResult(failure=last[0])
    return BenchmarkCaseResult(*json.loads(child.stdout.splitlines()[-1]))


def child(call: str) -> None:
    """Call a function; print its value and this process's peak memory, as `in_child` reads them."""
    module, name, arguments = json.loads(call)
    value = getattr(importlib.import_module(module), name)(*arguments)
    sys.stdout.write("\n" + json.dumps([value, peak_mib()]) + "\n")
