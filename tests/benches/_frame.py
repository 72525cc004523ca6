"""Find benches, describe the machine they ran on, and print their rows."""

from __future__ import annotations

import ast
import importlib
import os
import pkgutil
import platform
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import tests.benches
from pillarbox.experiments.base.processes import proc_field
from pillarbox.experiments.lab.linux.measurement import in_child
from pillarbox.topos.base.errors import UnknownNameError, meant

Row: TypeAlias = dict[str, Any]
BAD_OUTCOMES = ("missed", "failed")


class Bench(NamedTuple):
    """A benchmark: its name, the function that yields its rows, and notes under its tables."""

    name: str
    run: Callable[[bool], Iterable[Row]]
    notes: str


def titles() -> dict[str, str]:
    """Return the title of every benchmark by name, from the modules' docstrings."""
    found = {}
    for module in pkgutil.iter_modules(tests.benches.__path__):
        if not module.ispkg and not module.name.startswith(("_", "test_")):
            spec = module.module_finder.find_spec(module.name, None)
            text = Path(spec.origin).read_text() if spec and spec.origin else ""
            title = ast.get_docstring(ast.parse(text)) or ""
            found[module.name.replace("_", "-")] = title.partition("\n")[0]
    return dict(sorted(found.items()))


def find(name: str) -> Bench:
    """Return the benchmark with a name; raise PillarboxError if the name is unknown."""
    known = titles()
    if name not in known:
        raise UnknownNameError(f"there is no bench {name!r}: {meant(name, known)}")
    module = importlib.import_module(f"tests.benches.{name.replace('-', '_')}")
    return Bench(name, module.run, getattr(module, "NOTES", ""))


def from_child(
    row: Row,
    columns: Iterable[str],
    judge: Callable[[Row], str],
    function: Callable[..., Row],
    *arguments: Any,
    time_limit_s: float,
) -> Row:
    """Return a benchmark row whose columns a function measures in a child process.

    The column `peak_mib`, if present, is the peak memory of the child. `judge` returns the outcome.
    """
    row = {**row, **dict.fromkeys(columns)}
    result = in_child(function, *arguments, time_limit_s=time_limit_s)
    if result.failure:
        return row | {"outcome": f"failed: {result.failure}"}
    row |= result.value
    if "peak_mib" in row:
        row["peak_mib"] = result.peak_mib
    return row | {"outcome": judge(row)}


def no_goal(_: Row) -> str:
    """Return the outcome "ok" for a benchmark row without a goal."""
    return "ok"


def machine() -> dict[str, Any]:
    """Return this machine's properties (CPU, kernel, versions) to store with benchmark results."""
    import numpy

    return {
        "cpu": proc_field("/proc/cpuinfo", "model name") or platform.processor(),
        "cpus": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "numpy": numpy.__version__,
    }


def failed(rows: Iterable[Row]) -> bool:
    """Return True if any benchmark row missed its goal or failed."""
    return any(str(row.get("outcome", "")).startswith(BAD_OUTCOMES) for row in rows)


def groups(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Yield the rows of each table of benchmark results: consecutive rows with the same columns."""
    for _, group in groupby(rows, key=tuple):
        yield list(group)
