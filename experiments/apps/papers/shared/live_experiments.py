"""Shared code of live figures: running an experiment, and scaling its values to the paper's.

The papers' cables have 1 Gbit/s, and their flows gigabytes. A lab's cables have the rate that the
machine can emulate faithfully; so rates and volumes are scaled up, and a completion time becomes
that of the paper's volume at the paper's rate.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from experiments.apps.papers.shared.figure import Claim, Judged, verdict
from experiments.runs.plans.experiment import Experiment, System
from experiments.runs.reporting.reproduced.result import Point, Settings

if TYPE_CHECKING:
    import pandas

    from experiments.runs.trials.records import Run

PAPERS_MBIT = 1000.0
MOST_POINTS = 40  # maximum number of points of a curve
NEAR = 0.1  # maximum relative difference from the paper's value for agreement


class Scale(NamedTuple):
    """Scale factors from a lab's values to the paper's rate and volume."""

    rate: float  # factor from a lab's rates to the paper's
    time: float = 1.0


UNSCALED = Scale(1.0)


def faithful_mbit(settings: Settings, systems: Iterable[System]) -> float:
    """Return the cable rate at which this machine emulates all systems faithfully."""
    from experiments.runs.trials.calibration import calibrated_rate

    return min(calibrated_rate(system, settings.say) for system in systems)


def trial_count(settings: Settings, count: int) -> int:
    """Return the number of trials of each system in a live figure."""
    return settings.repeats or (1 if settings.quick else count)


def run(settings: Settings, experiment: Experiment) -> Run:
    """Run a live figure's experiment, or the rest of an interrupted one; return its records."""
    from experiments.runs.plans.trials import blocks
    from experiments.runs.reporting.progress import Live
    from experiments.runs.trials.experiment_run import run as run_all

    trials = sum(len(block) for block in blocks(experiment))
    with Live(trials, experiment.name) as live:
        return run_all(experiment, _records_folder(settings, experiment), live=live)


def _records_folder(settings: Settings, experiment: Experiment) -> Path:
    """Return the folder of the records: that of the same interrupted run, or a new one."""
    from experiments.runs.plans.values import differences, plain
    from experiments.runs.trials.experiment_run import new_name
    from experiments.runs.trials.records import MANIFEST
    from experiments.runs.trials.store import read_json

    same = settings.folder / f"{experiment.name}-{settings.inputs[:12]}"
    written = same / MANIFEST
    other = written.exists() and any(differences(read_json(written)["plan"], plain(experiment)))
    return same if settings.inputs and not other else settings.folder / new_name(experiment)


# -- from records to points ----------------------------------------------------------------------


def throughput_curves(done: Run, scale: Scale, points: int) -> Iterable[Point]:
    """Yield each system's total throughput over time in Gbit/s, the mean of its trials."""
    for system in done.systems:
        found = throughput_over_time(done.of(system).intervals, points)
        trials = found.trial.nunique()
        for at_s, bps in (found.groupby("at_s").goodput_bps.sum() / trials).items():
            yield Point(system, float(at_s) * scale.time, float(bps) * scale.rate / 1e9)


def throughput_over_time(intervals: pandas.DataFrame, points: int) -> pandas.DataFrame:
    """Return each trial's throughput over time, in `points` equal intervals."""
    from experiments.runs.reporting.series import goodput_over_time

    longest_s = 0.0 if intervals.empty else float(intervals.end_s.max())
    return goodput_over_time(intervals, max(longest_s / points, 1e-3))


def without_invalid_trials(done: Run) -> Run:
    """Return the run without invalid trials, or unchanged if a system has no valid trial."""
    valid = done.valid()
    there = {one["system"] for one in valid.records}
    return valid if there == {one["system"] for one in done.records} else done


def ideal_of_trials(values: pandas.Series) -> float | None:
    """Return the ideal value of a system's trials, the same for all; None without an ideal."""
    known = values.dropna()
    return None if known.empty else float(known.iloc[0])


# -- verdicts ------------------------------------------------------------------------------------


def claims(rows: Iterable[Point]) -> list[Claim]:
    """Return claims that ours is near the paper's value, for the rows that have one."""
    return [Claim(row, NEAR * row.paper) for row in rows if row.paper]


def verdict_with_ideals(rows: Sequence[Point]) -> Judged:
    """Return the verdict and its reasons; where ours differs, they compare both values with the
    ideal.

    >>> verdict_with_ideals([Point("a", 1, ours=95.0, paper=100.0)])
    ('agrees', [])
    >>> verdict_with_ideals([Point("a", 1, ours=50.0, paper=100.0)])
    ('differs', ["a, 1: ours is 0.50 times the paper's"])
    """
    made = claims(rows)
    undecided = [str(claim) for claim in made if claim.holds is None]
    return verdict(made)[0], [*comparisons_with_ideal(rows), *undecided]


def comparisons_with_ideal(rows: Iterable[Point]) -> list[str]:
    """Return sentences that compare ours and the paper's value with the ideal, for rows that
    differ.

    >>> dcell = Point("DCell", "completion, s", ours=1130.0, paper=2270.0, ideal=1080.0)
    >>> comparisons_with_ideal([dcell])
    ["DCell, completion, s: ours is 0.50 times the paper's; share of the routed paths' ideal: ours
    0.96, the paper's 0.48"]
    """
    sentences = []
    for row in (claim.row for claim in claims(rows) if claim.holds is False):
        if row.paper and row.ours:
            sentence = (
                f"{row.series}, {row.x}: ours is {row.ours / row.paper:.2f} times the paper's"
            )
            if row.ideal:
                ours, papers = (
                    _share_of_ideal(value, row.ideal) for value in (row.ours, row.paper)
                )
                sentence += (
                    f"; share of the routed paths' ideal: ours {ours:.2f}, the paper's {papers:.2f}"
                )
            sentences.append(sentence)
    return sentences


def _share_of_ideal(value: float, ideal: float) -> float:
    """Return the ratio of a value to its ideal, at most 1, for times as well as for rates."""
    return min(value / ideal, ideal / value)


def notes(*runs: Run, scale: Scale = UNSCALED) -> list[str]:
    """Return notes on rate, seed and scale of the measurement, and on invalid trials.

    The runs have the same rate, seed and number of trials.
    """
    done = runs[0]
    plan = done.manifest["plan"]
    rate = plan["systems"][0]["rate_mbit"]
    scaled = f"; rates are multiplied by {scale.rate:.4g}" if scale.rate != 1 else ""
    scaled += f", times by {scale.time:.4g}" if scale.time != 1 else ""
    each = " per run" if len(runs) > 1 else ""
    lines = [
        f"Cables of {rate:g} Mbit/s, seed {plan['seed']}, {len(done.records)} "
        f"trials{each}{scaled}. Records: {', '.join(run.folder.name for run in runs)}"
    ]
    for run in runs:
        invalid = [one for one in run.records if not one["valid"]]
        if invalid:
            first = invalid[0]
            why = first["reason"] or first["verdict"]["reasons"][0]
            lines.append(
                f"Invalid trials: {len(invalid)}, used only if a system has no valid one; "
                f"trial {first['trial']} of {first['system']}: {why}"
            )
    return lines
