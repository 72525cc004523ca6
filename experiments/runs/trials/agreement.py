"""Whether a repeated run agrees with the first: intervals of the results, and verdicts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pillarbox.experiments.base.text import columns
from pillarbox.experiments.runs.trials import diff
from pillarbox.experiments.runs.trials.diff import Difference, TotalComparison, difference

if TYPE_CHECKING:
    from pillarbox.experiments.runs.trials.records import Run

TOLERANCE = 0.05  # ratio of two results that agree even if their intervals exclude it


@dataclass(frozen=True)
class Agreement:
    """Differences of two runs over their valid trials, and systems that cannot be compared."""

    found: Difference
    missing: tuple[str, ...]  # systems of the first run without valid trials in one of the runs

    @property
    def agree(self) -> bool:
        """True if all systems could be compared and every result agrees."""
        results = self.found.results
        return not self.missing and bool(results) and all(map(agrees, results))


def agreement(first: Run, second: Run) -> Agreement:
    """Return the agreement of two runs of the same plan, over their valid trials."""
    found = difference(first.valid(), second.valid())
    compared = {one.system for one in found.results}
    return Agreement(found, tuple(name for name in first.systems if name not in compared))


def agrees(result: TotalComparison) -> bool:
    """Return True if the ratio's interval includes 1, or comes within the tolerance of it."""
    low, high = _interval(result) or (result.ratio.ratio.value,) * 2
    return low <= 1 + TOLERANCE and high >= 1 - TOLERANCE


def _interval(result: TotalComparison) -> tuple[float, float] | None:
    """Return the confidence interval of a ratio, None if one of the runs has a single trial."""
    low, high = result.ratio.ratio.low, result.ratio.ratio.high
    return (low, high) if low <= high else None


def text_of(found: Agreement) -> str:
    """Return the agreement as a table, and a sentence."""
    rows = [
        [
            one.system,
            one.measure.title,
            f"{one.ratio.ratio.value:.3f}",
            "{:.3f}-{:.3f}".format(*interval) if (interval := _interval(one)) else "one trial",
            "agrees" if agrees(one) else "differs",
        ]
        for one in found.found.results
    ]
    head = ["system", "result", "again / first", "interval", ""]
    lost = ", ".join(found.missing)
    lines = [columns([head, *rows], numbers=[2, 3])] if rows else []
    if lost:
        lines.append(f"no valid trial in one of the runs: {lost}")
    lines.append("The results agree." if found.agree else "The results do not agree.")
    return "\n".join(lines)


def as_plain(found: Agreement) -> dict[str, Any]:
    """Return the agreement as plain data, for JSON."""
    results = diff.as_plain(found.found)["results"]
    agreed = map(agrees, found.found.results)
    return {
        "agree": found.agree,
        "without_valid_trials": list(found.missing),
        "results": [one | {"agrees": each} for one, each in zip(results, agreed, strict=True)],
    }
