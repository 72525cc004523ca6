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

import experiments.benches
from experiments.linux.measurement import in_child
from experiments.linux.processes import proc_field
from topos.base.errors import PillarboxError, meant

Row: TypeAlias = dict[str, Any]
BAD_OUTCOMES = ("missed", "failed")


class Bench(NamedTuple):
    """A bench: its name, the function that yields its rows, and the notes under its tables."""

    name: str
    run: Callable[[bool], Iterable[Row]]
    notes: str


def titles() -> dict[str, str]:
    """Return the name of every bench and the first line of its docstring, without running any."""
    found = {}
    for module in pkgutil.iter_modules(experiments.benches.__path__):
        if not module.ispkg and module.name[0] != "_":
            spec = module.module_finder.find_spec(module.name, None)
            text = Path(spec.origin).read_text() if spec and spec.origin else ""
            title = ast.get_docstring(ast.parse(text)) or ""
            found[module.name.replace("_", "-")] = title.partition("\n")[0]
    return dict(sorted(found.items()))


def find(name: str) -> Bench:
    """Return the bench with a name; raise PillarboxError if it is unknown."""
    known = titles()
    if name not in known:
        raise PillarboxError(f"there is no bench {name!r}: {meant(name, known)}")
    module = importlib.import_module(f"experiments.benches.{name.replace('-', '_')}")
    return Bench(name, module.run, getattr(module, "NOTES", ""))


def from_child(
    row: Row,
    columns: Iterable[str],
    judge: Callable[[Row], str],
    function: Callable[..., Row],
    *arguments: Any,
    time_limit_s: float,
) -> Row:
    """Return a row with the columns that a function computes in a child process.

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
    """Return the outcome "ok" for any figures of a row."""
    return "ok"


def machine() -> dict[str, Any]:
    """Return the properties of the machine without which results cannot be compared."""
    import numpy

    return {
        "cpu": proc_field("/proc/cpuinfo", "model name") or platform.processor(),
        "cpus": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "numpy": numpy.__version__,
    }


def failed(rows: Iterable[Row]) -> bool:
    """Return True if a row missed its goal or failed to produce its figures."""
    return any(str(row.get("outcome", "")).startswith(BAD_OUTCOMES) for row in rows)


def groups(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Yield the rows of each table: consecutive rows with the same keys."""
    for _, group in groupby(rows, key=tuple):
        yield list(group)
