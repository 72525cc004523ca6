"""Times taken in turns, and cases that each run in a process of their own.

Two times can be compared only if they were taken at the same time: on a machine with other
tenants the clock speed of one minute is not that of the next. So `interleaved` goes A B C, A B C,
..., and `ratios` compares medians of one such run.

Memory can be measured only of a process that did nothing else, so `in_child` starts one for each
case.
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

from experiments.interpreter import code_command
from experiments.linux.processes import peak_mib

CHILD = f"from {__name__} import child; child(sys.argv[1])"  # what a child process runs


class Result(NamedTuple):
    """What became of a case: its value and peak memory, or why there is none."""

    value: Any = None
    peak_mib: float | None = None
    failure: str = ""


def interleaved(
    cases: Mapping[str, Callable[[], object]],
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Return the seconds that each case took in each of the rounds.

    What a case returns lives until its time is taken and is thrown away before the next begins,
    with all earlier garbage. The collector stays on: it is a part of the cost of a million objects.
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
    """Return the median of each case."""
    return {name: statistics.median(values) for name, values in seconds.items()}


def ratios(values: dict[str, float], against: str) -> dict[str, float]:
    """Return how many times each case's value is that of the case `against`.

    >>> ratios({"ours": 2.0, "theirs": 5.0}, against="ours")
    {'ours': 1.0, 'theirs': 2.5}
    """
    return {name: value / values[against] for name, value in values.items()}


def in_child(function: Callable[..., Any], *arguments: Any, time_limit_s: float) -> Result:
    """Return what a function of a module returns in a fresh process, and that process's peak.

    Arguments and value travel as JSON. A case that raises, dies or takes too long is a Result
    with a failure.
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
        return Result(failure=f"took longer than {time_limit_s:g} s")
    if child.returncode < 0:
        return Result(failure=f"killed by {signal.Signals(-child.returncode).name}")
    if child.returncode:
        last = child.stderr.strip().splitlines()[-1:] or [f"exit code {child.returncode}"]
        return Result(failure=last[0])
    return Result(*json.loads(child.stdout.splitlines()[-1]))


def child(call: str) -> None:
    """Make the call and print its value and the peak as the last line: what `in_child` reads."""
    module, name, arguments = json.loads(call)
    value = getattr(importlib.import_module(module), name)(*arguments)
    sys.stdout.write("\n" + json.dumps([value, peak_mib()]) + "\n")
