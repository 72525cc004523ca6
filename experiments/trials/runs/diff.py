"""Why do our numbers differ? Two runs side by side: what they were made of, and what came of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from experiments.text import columns
from experiments.trials.plans.values import differences
from experiments.trials.runs.statistics import Comparison, Estimate, compare_runs, estimate
from experiments.trials.runs.summary import (
    COMPLETION,
    GOODPUT,
    Measure,
    main_measure,
    sentences,
    value_and_interval,
    values,
)
from experiments.units import three_figures

if TYPE_CHECKING:
    from experiments.trials.runs.records import Run

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
MOST_LETTERS = 120  # of a value; --json has all of it


class ManifestChange(NamedTuple):
    """A value that is not the same in both manifests; None where one has it not."""

    part: str
    name: str
    first: Any
    second: Any


@dataclass(frozen=True)
class TotalComparison:
    """One total of one system in both runs, by their valid trials."""

    system: str
    measure: Measure
    first: Estimate
    second: Estimate
    ratio: Comparison  # the second, as many times the first


@dataclass(frozen=True)
class Difference:
    """Two runs side by side."""

    changes: tuple[ManifestChange, ...]
    results: tuple[TotalComparison, ...]
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
            for measure in _measures(first, second)
            if (result := _result(first, second, system, measure)) is not None
        ),
        (
            tuple(system for system in first.systems if system not in both),
            tuple(system for system in second.systems if system not in both),
        ),
        (_invalid(first), _invalid(second)),
    )


def _changes(first: dict[str, Any], second: dict[str, Any]) -> Iterator[ManifestChange]:
    for part in PARTS:
        for name, a, b in differences(first.get(part), second.get(part)):
            if not (part == "plan" and name.rpartition(".")[2] in IDENTITIES):
                yield ManifestChange(part, name, a, b)


def _result(first: Run, second: Run, system: str, measure: Measure) -> TotalComparison | None:
    a, b = (list(values(run, system, measure.column).values()) for run in (first, second))
    if not a or not b:
        return None
    return TotalComparison(system, measure, estimate(a), estimate(b), compare_runs(b, a))


def _measures(first: Run, second: Run) -> tuple[Measure, ...]:
    """Return what is compared: how long it took only where flows have a volume in both runs."""
    volumes = [run.manifest["plan"]["workload"]["volume_bytes"] for run in (first, second)]
    volumed = all(main_measure(volume) is COMPLETION for volume in volumes)
    return (GOODPUT, COMPLETION) if volumed else (GOODPUT,)


def _invalid(run: Run) -> int:
    return sum(not one["valid"] for one in run.records)


def text_of(found: Difference) -> str:
    """Return a difference as text."""
    return "\n\n".join(filter(None, (_changes_text(found), _results_text(found))))


def _changes_text(found: Difference) -> str:
    changes = [change for change in found.changes if not _of_one_run_alone(found, change)]
    if not found.changes:
        return "Both ran the same plan with the same programs on the same machine."
    lines = []
    for part, title in PARTS.items():
        own = [change for change in changes if change.part == part]
        if own:
            lines.append(f"{title[0].upper()}{title[1:]} differ" + "s" * (title[-1] != "s") + ":")
            lines += [f"  {one.name}: {_shown(one.first)} -> {_shown(one.second)}" for one in own]
    return "\n".join(lines)


def _of_one_run_alone(found: Difference, change: ManifestChange) -> bool:
    """Tell whether it is of a system that the other run has not: that is said once."""
    return change.part in ("networks", "systems") and any(change.name in one for one in found.only)


def _results_text(found: Difference) -> str:
    blocks = [_table(found.results)] if found.results else []
    lines = []
    for run, systems in zip(("first", "second"), found.only, strict=True):
        lines += [f"{system}: in the {run} run alone" for system in systems]
    for run, count in zip(("first", "second"), found.invalid, strict=True):
        if count:
            are = "trials that are" if count > 1 else "trial that is"
            lines.append(f"The {run} run has {count} {are} not valid, and no part of this.")
    if not found.results:
        lines.append("No system has valid trials in both runs: the results cannot be compared.")
    elif any(one.ratio.ratio.repeats > 1 for one in found.results):
        lines.append(
            "Where the ratio lies with 95 % confidence covers chance within the runs, not what "
            "else changed between them: to compare two systems, put both into one experiment."
        )
    else:
        lines.append("From one trial of each nothing follows: repeat them to know more.")
    return "\n\n".join([*blocks, sentences(lines)])


def _table(results: tuple[TotalComparison, ...]) -> str:
    rows = [["", "first", "second", "second/first", ""]]
    for one in results:
        title = ", ".join(filter(None, (one.measure.title, one.measure.unit)))
        first, second, ratio = one.first, one.second, one.ratio.ratio
        value, interval = value_and_interval(ratio)
        doubt = "" if one.ratio.differs or not interval else "no difference shown"
        values = [three_figures(end.value * one.measure.scale) for end in (first, second)]
        rows.append([f"{one.system}: {title}", *values, value, f"{interval} {doubt}".strip()])
    return columns(rows, range(1, len(rows[0])))


def _shown(value: Any) -> str:
    """Return a value in short."""
    if value is None:
        return NOTHING
    if isinstance(value, dict):
        value = ", ".join(f"{name} {_shown(one)}" for name, one in value.items() if one or one == 0)
    text = value if isinstance(value, str) and value else repr(value)
    return text if len(text) <= MOST_LETTERS else f"{text[: MOST_LETTERS - 1]}…"


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
