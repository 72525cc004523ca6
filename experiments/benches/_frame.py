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
    """A bench that was found: what it is called, how it makes rows, and what to say of them."""

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
    """Return the bench of that name, or raise PillarboxError."""
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
    """Return the row with the columns that a function gives in a process of its own.

    `peak_mib`, where it is a column, is that of the process. `judge` returns the outcome.
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
    """Return that all is well, whatever the figures are."""
    return "ok"


def machine() -> dict[str, Any]:
    """Return what a number depends on: a result without it cannot be compared."""
    import numpy

    return {
        "cpu": proc_field("/proc/cpuinfo", "model name") or platform.processor(),
        "cpus": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "numpy": numpy.__version__,
    }


def failed(rows: Iterable[Row]) -> bool:
    """Tell whether a row missed its goal or has none of the numbers it should have."""
    return any(str(row.get("outcome", "")).startswith(BAD_OUTCOMES) for row in rows)


def groups(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Yield the rows of each table: those with the same keys, as soon as others follow."""
    for _, group in groupby(rows, key=tuple):
        yield list(group)
