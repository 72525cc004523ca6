"""Changes to an experiment from the command line: ``rate_mbit=30``, ``systems.0.routing=bsr``.

A name is the dotted path of a value in the experiment. The prefix can be left out if only systems
have the key, such as ``rate_mbit`` (this changes all systems), or only the workload has it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pillarbox.experiments.models.workloads.workload import Workload
from pillarbox.experiments.runs.plans.experiment import Experiment, System
from pillarbox.experiments.runs.plans.values import fields_of, guessed
from pillarbox.topos.base.errors import UnknownNameError, meant, require

SIZES = ("volume_bytes", "duration_s")  # Mutually exclusive TOML keys of a workload's amount.


def overridden(values: dict[str, Any], changes: Iterable[str]) -> dict[str, Any]:
    """Apply overrides, each ``NAME=VALUE``, to an experiment's plain data and return the data."""
    for change in changes:
        name, equals, text = change.partition("=")
        require(
            bool(equals and name.strip()),
            f"{change!r} is not an override: write NAME=VALUE, such as rate_mbit=30",
        )
        for key_path in _key_paths(values, name.strip()):
            _change_value(values, key_path, text.strip())
    return values


def _key_paths(values: dict[str, Any], name: str) -> list[list[str]]:
    """Return the key paths that an override's name stands for: one, or one for each system."""
    key_path = name.split(".")
    first = key_path[0]
    owners = [kind for kind in (System, Workload) if first in fields_of(kind)]
    experiment_fields = fields_of(Experiment)
    if first in experiment_fields:
        return [key_path]
    if not owners:
        known = [*experiment_fields, *fields_of(System), *fields_of(Workload)]
        hint = meant(first, known, f"there are {', '.join(experiment_fields)}")
        raise UnknownNameError(f"unknown key {first}: {hint}")
    require(
        len(owners) == 1,
        f"both systems and the workload have {first}: write systems.0.{name} or workload.{name}",
    )
    if owners == [Workload]:
        return [["workload", *key_path]]
    return [["systems", str(number), *key_path] for number in range(len(values["systems"]))]


def _change_value(values: dict[str, Any], key_path: list[str], text: str) -> None:
    at: Any = values
    for depth, key in enumerate(key_path[:-1]):
        at = _child_value(at, key, ".".join(key_path[: depth + 1]))
    last, name = key_path[-1], ".".join(key_path)
    if isinstance(at, list):
        at[_list_index(at, last, name)] = text
    else:
        require(
            isinstance(at, dict),
            f"unknown key {name}: {'.'.join(key_path[:-1])} is not a table",
            UnknownNameError,
        )
        at[last] = guessed(last, text) if "options" in key_path[:-1] else text
        if key_path[0] == "workload" and last in SIZES:
            at[SIZES[1 - SIZES.index(last)]] = None


def _child_value(at: Any, key: str, name: str) -> Any:
    if isinstance(at, list):
        return at[_list_index(at, key, name)]
    if isinstance(at, dict) and key in at:
        return at[key]
    known = f": there are {', '.join(at)}" if isinstance(at, dict) and at else ""
    raise UnknownNameError(f"unknown key {name}{known}")


def _list_index(at: list[Any], key: str, name: str) -> int:
    require(
        key.isdecimal() and len(key) < 10 and int(key) < len(at),
        f"unknown key {name}: the list has numbers 0 to {len(at) - 1}"
        if at
        else f"unknown key {name}: the list is empty",
    )
    return int(key)
