"""Differences of two runs: their plans, machines and software, and their results."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from pillarbox.experiments.base.text import columns
from pillarbox.experiments.base.units import three_figures
from pillarbox.experiments.runs.plans.values import differences
from pillarbox.experiments.runs.trials.statistics import (
    Comparison,
    Estimate,
    compare_runs,
    estimate,
)
from pillarbox.experiments.runs.trials.summary import (
    COMPLETION,
    GOODPUT,
    Measure,
    completes,
    sentences,
    value_and_interval,
    values,
)

if TYPE_CHECKING:
    from pillarbox.experiments.runs.trials.records import Run

# Parts of a manifest that can explain a difference, the most likely first, with their titles. All
# other parts are the time and the command line of a run.
PARTS = {
    "plan": "the plan",
    "networks": "the networks",
    "pillarbox": "the programs",
    "machine": "the machine",
    "systems": "the labs",
}
IDENTITIES = {"name", "about", "label"}  # Keys of an experiment's plan that do not affect results.
NOTHING = "nothing"
MOST_LETTERS = 120  # Upper bound for the length of a printed value; --json has whole values.


class ManifestChange(NamedTuple):
    """A value that differs between the manifests of two runs; None if one lacks it."""

    part: str
    name: str
    first: Any
    second: Any


@dataclass(frozen=True)
class TotalComparison:
    """Comparison of one measure of one system in both runs, over their valid trials."""

    system: str
    measure: Measure
    first: Estimate
    second: Estimate
    ratio: Comparison  # Ratio of the second run to the first.


@dataclass(frozen=True)
class Difference:
    """Differences of two runs: manifests, results, systems and numbers of invalid trials."""

    changes: tuple[ManifestChange, ...]
    results: tuple[TotalComparison, ...]
    # Systems that only the first run has, and systems that only the second run has.
    only: tuple[tuple[str, ...], tuple[str, ...]]
    invalid: tuple[int, int]  # Number of invalid trials of each run.


def difference(first: Run, second: Run) -> Difference:
    """Return the differences of two runs: manifests and results."""
    both = [system for system in first.systems if system in second.systems]
    return Difference(
        tuple(_manifest_changes(first.manifest, second.manifest)),
        tuple(
            result
            for system in both
            for measure in _measures(first, second)
            if (result := _total_comparison(first, second, system, measure)) is not None
        ),
        (
            tuple(system for system in first.systems if system not in both),
            tuple(system for system in second.systems if system not in both),
        ),
        (_invalid_trials(first), _invalid_trials(second)),
    )


def _manifest_changes(first: dict[str, Any], second: dict[str, Any]) -> Iterator[ManifestChange]:
    for part in PARTS:
        for name, a, b in differences(first.get(part), second.get(part)):
            if not (part == "plan" and name.rpartition(".")[2] in IDENTITIES):
                yield ManifestChange(part, name, a, b)


def _total_comparison(
    first: Run, second: Run, system: str, measure: Measure
) -> TotalComparison | None:
    a, b = (list(values(run, system, measure.column).values()) for run in (first, second))
    if not a or not b:
        return None
    return TotalComparison(system, measure, estimate(a), estimate(b), compare_runs(b, a))


def _measures(first: Run, second: Run) -> tuple[Measure, ...]:
    """Return the measures to compare: completion time only if both runs have a fixed volume."""
    volumed = all(completes(run) for run in (first, second))
    return (GOODPUT, COMPLETION) if volumed else (GOODPUT,)


def _invalid_trials(run: Run) -> int:
    return sum(not one["valid"] for one in run.records)


def text_of(found: Difference) -> str:
    """Return the differences of two experiment runs as text."""
    return "\n\n".join(filter(None, (_changes_text(found), _results_text(found))))


def _changes_text(found: Difference) -> str:
    changes = [change for change in found.changes if not _is_of_one_run(found, change)]
    if not found.changes:
        return "Both ran the same plan with the same programs on the same machine."
    lines = []
    for part, title in PARTS.items():
        of_part = [change for change in changes if change.part == part]
        if of_part:
            lines.append(f"{title[0].upper()}{title[1:]} differ" + "s" * (title[-1] != "s") + ":")
            lines += [
                f"  {one.name}: {_value_text(one.first)} -> {_value_text(one.second)}"
                for one in of_part
            ]
    return "\n".join(lines)


def _is_of_one_run(found: Difference, change: ManifestChange) -> bool:
    """Return True for a change in a system that one run does not have (reported separately)."""
    return change.part in ("networks", "systems") and any(change.name in one for one in found.only)


def _results_text(found: Difference) -> str:
    blocks = [_table(found.results)] if found.results else []
    lines = []
    for run, systems in zip(("first", "second"), found.only, strict=True):
        lines += [f"{system}: in the {run} run only" for system in systems]
    for run, count in zip(("first", "second"), found.invalid, strict=True):
        if count:
            trials = "invalid trials, which are" if count > 1 else "invalid trial, which is"
            lines.append(f"The {run} run has {count} {trials} not compared.")
    if not found.results:
        lines.append("No system has valid trials in both runs: the results cannot be compared.")
    elif any(one.ratio.ratio.repeats > 1 for one in found.results):
        lines.append(
            "The 95 % confidence interval of the ratio covers chance within the runs, not changes "
            "between them: to compare two systems, put both into one experiment."
        )
    else:
        lines.append("One trial of each is not enough to compare: repeat them.")
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


def _value_text(value: Any) -> str:
    """Return a value of a manifest as text, shortened to MOST_LETTERS characters."""
    if value is None:
        return NOTHING
    if isinstance(value, dict):
        value = ", ".join(
            f"{name} {_value_text(one)}" for name, one in value.items() if one or one == 0
        )
    text = value if isinstance(value, str) and value else repr(value)
    return text if len(text) <= MOST_LETTERS else f"{text[: MOST_LETTERS - 1]}…"


def as_plain(found: Difference) -> dict[str, Any]:
    """Return the differences of two runs as plain data, for JSON."""
    return {
        "changes": [change._asdict() for change in found.changes],
        "results": [
            {
                "system": one.system,
                "measure": one.measure.column,
                "first": _estimate_data(one.first),
                "second": _estimate_data(one.second),
                "ratio": _estimate_data(one.ratio.ratio),
                "differs": one.ratio.differs,
            }
            for one in found.results
        ],
        "only": found.only,
        "invalid_trials": found.invalid,
    }


def _estimate_data(found: Estimate) -> dict[str, Any]:
    """Return an estimate as JSON data; a missing end of the interval is null."""
    ends = {name: getattr(found, name) for name in ("value", "low", "high")}
    return {
        **{name: end if math.isfinite(end) else None for name, end in ends.items()},
        "repeats": found.repeats,
    }
