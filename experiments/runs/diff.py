"""Why do our numbers differ? Two runs side by side: what they were made of, and what came of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from experiments.runs.statistics import Comparison, Estimate, compare_runs, estimate
from experiments.runs.summary import COMPLETION, GOODPUT, Measure, values

if TYPE_CHECKING:
    from experiments.runs.records import Run

# Of a manifest, in the order in which one would look for a reason. The rest is when and how it ran.
PARTS = {
    "plan": "the plan",
    "networks": "the networks",
    "pillarbox": "the programs",
    "machine": "the machine",
    "systems": "the labs",
}
IDENTITIES = {"name", "about", "label"}  # of a plan: what it is called makes no difference
NOTHING = "nothing"


class Change(NamedTuple):
    """A value that is not the same in both manifests; None where one has it not."""

    part: str
    name: str
    first: Any
    second: Any


@dataclass(frozen=True)
class Result:
    """One total of one system in both runs, by their valid trials."""

    system: str
    measure: Measure
    first: Estimate
    second: Estimate
    ratio: Comparison  # the second, as many times the first


@dataclass(frozen=True)
class Difference:
    """Two runs side by side."""

    changes: tuple[Change, ...]
    results: tuple[Result, ...]
    only: tuple[tuple[str, ...], tuple[str, ...]]  # systems of the one or the other run alone
    invalid: tuple[int, int]  # trials


def difference(first: Run, second: Run) -> Difference:
    """Return where two runs differ."""
    both = [system for system in first.systems if system in second.systems]
    return Difference(
        tuple(_changes(first.manifest, second.manifest)),
        tuple(
            result
            for system in both
            for measure in (GOODPUT, COMPLETION)
            if (result := _result(first, second, system, measure)) is not None
        ),
        (
            tuple(system for system in first.systems if system not in both),
            tuple(system for system in second.systems if system not in both),
        ),
        (_invalid(first), _invalid(second)),
    )


def _changes(first: dict[str, Any], second: dict[str, Any]) -> Iterator[Change]:
    for part in PARTS:
        found = _changed(first.get(part), second.get(part))
        for name, a, b in found:
            if not (part == "plan" and name.rpartition(".")[2] in IDENTITIES):
                yield Change(part, name, a, b)


def _changed(first: Any, second: Any, name: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the values that differ, with the way to each."""
    if isinstance(first, list) and isinstance(second, list):
        first, second = dict(enumerate(first)), dict(enumerate(second))
    if not (isinstance(first, dict) and isinstance(second, dict)):
        if first != second:
            yield name, first, second
        return
    for key in {**first, **second}:
        way = f"{name}.{key}" if name else str(key)
        yield from _changed(first.get(key), second.get(key), way)


def _result(first: Run, second: Run, system: str, measure: Measure) -> Result | None:
    a, b = (list(values(run, system, measure.column).values()) for run in (first, second))
    if not a or not b:
        return None
    return Result(system, measure, estimate(a), estimate(b), compare_runs(b, a))


def _invalid(run: Run) -> int:
    return sum(not one["valid"] for one in run.told)


def text_of(found: Difference) -> str:
    """Return a difference as text."""
    return "\n\n".join(filter(None, (_changes_text(found), _results_text(found))))


def _changes_text(found: Difference) -> str:
    if not found.changes:
        return "Both ran the same plan with the same programs on the same machine."
    lines = []
    for part, title in PARTS.items():
        changes = [change for change in found.changes if change.part == part]
        if changes:
            lines.append(f"{title[0].upper()}{title[1:]} differ" + "s" * (title[-1] != "s") + ":")
            lines += [
                f"  {change.name}: {_shown(change.first)} -> {_shown(change.second)}"
                for change in changes
            ]
    return "\n".join(lines)


def _results_text(found: Difference) -> str:
    lines = []
    for one in found.results:
        scale, unit = one.measure.scale, one.measure.unit
        a, b = one.first.value * scale, one.second.value * scale
        lines.append(f"{one.system}: {one.measure.title} {a:.4g} -> {b:.4g} {unit}: {one.ratio}")
    for run, systems in zip(("first", "second"), found.only, strict=True):
        lines += [f"{system}: in the {run} run alone" for system in systems]
    for run, count in zip(("first", "second"), found.invalid, strict=True):
        if count:
            lines.append(f"The {run} run has {count} trials that are not valid; they do not count.")
    if found.results:
        lines.append(
            "The intervals cover chance within the runs, not what else changed between them: to "
            "compare two systems, put both into one experiment."
        )
    else:
        lines.append("No system has valid trials in both runs: the results cannot be compared.")
    return "\n".join(lines)


def _shown(value: Any) -> str:
    if value is None:
        return NOTHING
    return value if isinstance(value, str) and value else repr(value)


def as_plain(found: Difference) -> dict[str, Any]:
    """Return a difference as plain data, for JSON."""
    return {
        "changes": [change._asdict() for change in found.changes],
        "results": [
            {
                "system": one.system,
                "measure": one.measure.column,
                "first": _estimate(one.first),
                "second": _estimate(one.second),
                "ratio": _estimate(one.ratio.ratio),
                "differs": one.ratio.differs,
            }
            for one in found.results
        ],
        "only": found.only,
        "invalid_trials": found.invalid,
    }


def _estimate(found: Estimate) -> dict[str, Any]:
    """Return an estimate without what JSON cannot write: an end that is missing is null."""
    ends = {name: getattr(found, name) for name in ("value", "low", "high")}
    return {
        **{name: end if math.isfinite(end) else None for name, end in ends.items()},
        "repeats": found.repeats,
    }
