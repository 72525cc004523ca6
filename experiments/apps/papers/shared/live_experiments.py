"""Shared code of live figures: running an experiment, and scaling its values to the paper's.

The papers' cables have 1 Gbit/s, and their flows gigabytes. A lab's cables have the rate that the
machine can emulate faithfully; so rates and volumes are scaled up, and a completion time becomes
that of the paper's volume at the paper's rate.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pillarbox.experiments.runs.plans.experiment import Experiment, System
from pillarbox.experiments.runs.reporting.reproduced.result import Point, Settings

if TYPE_CHECKING:
    import pandas

    from pillarbox.experiments.runs.trials.records import Run

PAPERS_MBIT = 1000.0
MOST_POINTS = 40  # maximum number of points of a curve


class Scale(NamedTuple):
    """Scale factors from a lab's values to the paper's rate and volume."""

    rate: float  # factor from a lab's rates to the paper's
    time: float = 1.0


UNSCALED = Scale(1.0)


def faithful_mbit(settings: Settings, systems: Iterable[System]) -> float:
    """Return the cable rate at which this machine emulates all systems faithfully."""
    from pillarbox.experiments.runs.trials.calibration import calibrated_rate

    return min(calibrated_rate(system, settings.say) for system in systems)


def trial_count(settings: Settings, count: int) -> int:
    """Return the number of trials of each system in a live figure."""
    return settings.repeats or (1 if settings.quick else count)


def run(settings: Settings, experiment: Experiment) -> Run:
    """Run a live figure's experiment, or the rest of an interrupted one; return its records."""
    from pillarbox.experiments.runs.plans.trials import blocks
    from pillarbox.experiments.runs.reporting.progress import Live
    from pillarbox.experiments.runs.trials.experiment_run import run as run_all

    trials = sum(len(block) for block in blocks(experiment))
    with Live(trials, experiment.name) as live:
        return run_all(experiment, _records_folder(settings, experiment), live=live)


def run_at_rate(settings: Settings, experiment: Experiment) -> tuple[Run, list[str]]:
    """Run a live figure's experiment, dilated if the settings say so; return records and notes.

    The records of a dilated experiment have its systems once, with the smaller dilation. Notes tell
    which systems were omitted, and whether results are free of scale.
    """
    if settings.own_mbit is None:
        return run(settings, experiment), []
    from pillarbox.experiments.runs.plans.dilation import dilated
    from pillarbox.experiments.runs.trials.summary import scale_sentences

    twice, notes = dilated(experiment, settings.own_mbit)
    done = run(settings, twice)
    once = replace(twice, systems=twice.systems[: len(twice.systems) // 2])
    names = {one.name for one in once.systems}
    records = tuple(one for one in done.records if one["system"] in names)
    about = (
        f"Time dilation: cables of {settings.own_mbit:g} Mbit/s, times and rates of the network; "
        "TCP sends neither super-packets nor tail loss probes (docs/dilation.md)."
    )
    notes = [about, *notes, *scale_sentences(done)]
    return replace(done, experiment=once, records=records), notes


def _records_folder(settings: Settings, experiment: Experiment) -> Path:
    """Return the folder of the records: that of the same interrupted run, or a new one."""
    from pillarbox.experiments.runs.plans.values import differences, plain
    from pillarbox.experiments.runs.trials.experiment_run import new_name
    from pillarbox.experiments.runs.trials.records import MANIFEST
    from pillarbox.experiments.runs.trials.store import read_json

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
    from pillarbox.experiments.runs.reporting.series import goodput_over_time

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


# -- notes ---------------------------------------------------------------------------------------


def notes(runs: Sequence[Run], scales: Sequence[Scale]) -> list[str]:
    """Return notes on rate, seed and scale of the measurement, and on invalid trials.

    The runs have the same seed.
    """
    plans = [run.manifest["plan"] for run in runs]
    rates = _numbers(plan["systems"][0]["rate_mbit"] for plan in plans)
    trials = _numbers(len(run.records) for run in runs)
    factors, times = (
        _numbers(getattr(scale, name) for scale in scales) for name in ("rate", "time")
    )
    scaled = f"; rates are multiplied by {factors}" if factors != "1" else ""
    scaled += f", times by {times}" if times != "1" else ""
    each = " per run" if len(runs) > 1 else ""
    lines = [
        f"Cables of {rates} Mbit/s, seed {plans[0]['seed']}, {trials} trials{each}{scaled}. "
        f"Records: {', '.join(run.folder.name for run in runs)}"
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


def _numbers(values: Iterable[float]) -> str:
    """Return the numbers of several runs as text: one number if all are equal.

    >>> _numbers([500, 500]), _numbers([500, 200])
    ('500', '500, 200')
    """
    texts = [f"{value:.4g}" for value in values]
    return texts[0] if len({*texts}) == 1 else ", ".join(texts)
