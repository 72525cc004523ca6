"""Changes to an experiment from the command line: ``rate_mbit=30``, ``systems.0.routing=bsr``.

A name is the way to a value in the experiment. One that belongs to systems alone, such as
``rate_mbit``, changes all of them; one that belongs to the workload alone needs no ``workload.``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from experiments.traffic.workload import Workload
from experiments.trials.plans.experiment import Experiment, System
from experiments.trials.plans.values import fields_of, guessed
from topos.base.errors import PillarboxError, meant, require

SIZES = ("volume_bytes", "duration_s")  # a workload has one of them


def overridden(values: dict[str, Any], changes: Iterable[str]) -> dict[str, Any]:
    """Return an experiment's plain data with these changes, each ``NAME=VALUE``, in their order."""
    for change in changes:
        name, equals, text = change.partition("=")
        require(
            bool(equals and name.strip()),
            f"{change!r} changes nothing: write NAME=VALUE, such as rate_mbit=30",
        )
        for way in _ways(values, name.strip()):
            _change(values, way, text.strip())
    return values


def _ways(values: dict[str, Any], name: str) -> list[list[str]]:
    """Return where a name leads: to one place, or to the same of every system."""
    way = name.split(".")
    first = way[0]
    owners = [kind for kind in (System, Workload) if first in fields_of(kind)]
    own = fields_of(Experiment)
    if first in own:
        return [way]
    if not owners:
        known = [*own, *fields_of(System), *fields_of(Workload)]
        hint = meant(first, known, f"there are {', '.join(own)}")
        raise PillarboxError(f"there is no {first}: {hint}")
    require(
        len(owners) == 1,
        f"both systems and the workload have {first}: write systems.0.{name} or workload.{name}",
    )
    if owners == [Workload]:
        return [["workload", *way]]
    return [["systems", str(number), *way] for number in range(len(values["systems"]))]


def _change(values: dict[str, Any], way: list[str], text: str) -> None:
    at: Any = values
    for depth, key in enumerate(way[:-1]):
        at = _entered(at, key, ".".join(way[: depth + 1]))
    last, name = way[-1], ".".join(way)
    if isinstance(at, list):
        at[_index(at, last, name)] = text
    else:
        require(isinstance(at, dict), f"there is no {name}: {'.'.join(way[:-1])} is no table")
        at[last] = guessed(last, text) if "options" in way[:-1] else text
        if way[0] == "workload" and last in SIZES:
            at[SIZES[1 - SIZES.index(last)]] = None


def _entered(at: Any, key: str, name: str) -> Any:
    if isinstance(at, list):
        return at[_index(at, key, name)]
    if isinstance(at, dict) and key in at:
        return at[key]
    known = f": there are {', '.join(at)}" if isinstance(at, dict) and at else ""
    raise PillarboxError(f"there is no {name}{known}")


def _index(at: list[Any], key: str, name: str) -> int:
    require(
        key.isdecimal() and len(key) < 10 and int(key) < len(at),
        f"there is no {name}: they are numbered 0 to {len(at) - 1}" if at else f"{name}: none",
    )
    return int(key)
