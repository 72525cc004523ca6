"""A run in short: each system's totals with their intervals, and the systems against the first.

Only valid trials count. How many there are of how many stands beside, so that nobody takes two of
ten for ten.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from experiments.runs.statistics import Comparison, Estimate, compare, estimate, paired
from experiments.traffic.flows import COMPLETED, FAILED

if TYPE_CHECKING:
    from experiments.runs.records import Run


class Measure(NamedTuple):
    """One of the totals of a trial: a column of schema.TRIALS."""

    column: str
    title: str
    unit: str
    scale: float  # from the column's unit to this one


GOODPUT = Measure("goodput_bps", "goodput", "Mbit/s", 1e-6)
COMPLETION = Measure("completion_s", "completion", "s", 1.0)
MEASURES = (
    GOODPUT,
    COMPLETION,
    Measure("of_ideal", "of ideal", "", 1.0),
    Measure("fairness", "fairness", "", 1.0),
    Measure("link_spread", "link spread", "", 1.0),
)


class Summary(NamedTuple):
    """One system of a run."""

    system: str
    trials: int
    valid: int
    failed: int
    failed_flows: int  # of the valid trials
    estimates: dict[str, Estimate]  # by column, of the valid trials
    against_first: Comparison | None  # as many times the plan's first system, by `main_measure`


def summaries(run: Run) -> list[Summary]:
    """Return a summary of every system, in the order of the plan."""
    systems = run.systems
    main = main_measure(run.manifest["plan"]["workload"]["volume_bytes"])
    return [_summary(run, system, systems[0], main) for system in systems]


def main_measure(volume_bytes: int | None) -> Measure:
    """Return what systems are compared by: how soon all is done, or else how much they carry."""
    return GOODPUT if volume_bytes is None else COMPLETION


def values(run: Run, system: str, column: str) -> dict[int, float]:
    """Return a total of a system's valid trials, by repeat."""
    trials = run.of(system).valid().trials
    trials = trials[trials.status == COMPLETED]
    found = trials.goodput_bps / trials.ideal_bps if column == "of_ideal" else trials[column]
    return paired(list(trials.repeat), [float(value) for value in found])


def _summary(run: Run, system: str, first: str, main: Measure) -> Summary:
    own = run.of(system)
    trials = own.trials
    against = None
    if system != first:
        against = compare(values(run, system, main.column), values(run, first, main.column))
    return Summary(
        system,
        len(trials),
        len(own.valid().told),
        int((trials.status == FAILED).sum()),
        int(own.valid().trials.failed_flows.sum()),
        {
            one.column: estimate(list(values(run, system, one.column).values()), least=0.0)
            for one in MEASURES
        },
        against,
    )


def verdict_text(told: Mapping[str, Any]) -> str:
    """Return what trial.json says of whether the trial can be believed, in a few words."""
    if told["status"] == FAILED:
        return f"failed: {told['reason']}"
    if told["valid"]:
        return "valid"
    first, *others = told["verdict"]["reasons"]
    return f"not valid: {first}" + (f" (and {len(others)} more)" if others else "")


def totals_text(told: Mapping[str, Any]) -> str:
    """Return what trial.json says of the totals, in a few words; nothing where there are none."""
    if told["status"] == FAILED:
        return ""
    if told["goodput_bps"] is None:
        return f"all {told['flows']} flows failed"
    words = [f"{told['goodput_bps'] / 1e6:.1f} Mbit/s"]
    if told["ideal_bps"]:
        words.append(f"{told['goodput_bps'] / told['ideal_bps']:.2f} of the ideal")
    if told["failed_flows"]:
        words.append(f"{told['failed_flows']} of {told['flows']} flows failed")
    elif told["ideal_s"]:
        words.append(f"all done after {told['completion_s']:.2f} s")
    return ", ".join(words)


def doubtful(run: Run) -> list[str]:
    """Return a line for each trial that failed or is not valid: what it saw, and what is wrong."""
    return [
        " · ".join(
            filter(
                None,
                (f"trial {one['trial'] + 1}, {one['system']}", totals_text(one), verdict_text(one)),
            )
        )
        for one in run.told
        if not one["valid"]
    ]


def text_of(run: Run) -> str:
    """Return the summaries as a table, and below it what is wrong with trials."""
    found = summaries(run)
    shown = [one for one in MEASURES if any(s.estimates[one.column].repeats for s in found)]
    titles = ["system", "valid", *(f"{m.title} {m.unit}".rstrip() for m in shown)]
    rows = [
        [
            summary.system,
            f"{summary.valid}/{summary.trials}",
            *(number(summary.estimates[one.column], one.scale) for one in shown),
        ]
        for summary in found
    ]
    lines = [*_table([titles, *rows])]
    first, main = found[0].system, main_measure(run.manifest["plan"]["workload"]["volume_bytes"])
    lines += [
        f"{summary.system} against {first}, {main.title}: {summary.against_first}"
        for summary in found
        if summary.against_first and summary.against_first.ratio.repeats
    ]
    lines += [
        f"{summary.system}: failed flows: {summary.failed_flows}"
        for summary in found
        if summary.failed_flows
    ]
    return "\n".join([*lines, *doubtful(run)])


def number(found: Estimate, scale: float = 1.0) -> str:
    """Return an estimate as text: the value, and half its interval.

    >>> number(Estimate(95.2e6, 94.1e6, 96.5e6, 3), 1e-6)
    '95.2 (94.1-96.5)'
    """
    if not found.repeats:
        return "-"
    value, low, high = (end * scale for end in found[:3])
    digits = 1 if abs(value) >= 10 else 3
    interval = "" if found.repeats < 2 else f" ({low:.{digits}f}-{high:.{digits}f})"
    return f"{value:.{digits}f}{interval}"


def _table(rows: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            text.ljust(width) if at == 0 else text.rjust(width)
            for at, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
