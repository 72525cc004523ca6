"""Summary of a run: totals of each system with intervals, and comparisons with the first system.

Only valid trials count. Figures of invalid trials are shown in a separate, marked row.
"""

from __future__ import annotations

import re
import shlex
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from pillarbox.experiments.base.text import columns
from pillarbox.experiments.base.units import three_figures
from pillarbox.experiments.models.workloads.flows import COMPLETED, FAILED
from pillarbox.experiments.models.workloads.workload import TRAINING
from pillarbox.experiments.runs.trials import aa_check, job_slowdowns, scale_check, slowdowns
from pillarbox.experiments.runs.trials.statistics import (
    Comparison,
    Estimate,
    compare,
    estimate,
    paired,
)
from pillarbox.experiments.runs.trials.trial_faults import FAULT_EVENTS
from pillarbox.hosts.base.file_ownership import is_machine_root

if TYPE_CHECKING:
    from pillarbox.experiments.runs.plans.experiment import Experiment
    from pillarbox.experiments.runs.trials.records import Run


WIDTH = 96  # Maximum width of a summary's lines, in characters.
MOST_DOUBTFUL = 12  # Upper bound for the lines about invalid trials; the report has all.
INTERVALS = "Below each mean is its 95 % confidence interval."
DOUBT = "?"  # Mark after results of invalid trials in a summary.
ABOUT_DOUBT = f"{DOUBT} marks figures of trials that are not valid: do not trust them."


class Measure(NamedTuple):
    """A measure of a trial: a column of schema.TRIALS with the title and unit of its display."""

    column: str
    title: str
    unit: str
    scale: float  # Factor from the record column's unit to the displayed unit.


GOODPUT = Measure("goodput_bps", "goodput", "Mbit/s", 1e-6)
COMPLETION = Measure("completion_s", "completion", "s", 1.0)
MEASURES = (
    GOODPUT,
    COMPLETION,
    Measure("of_ideal", "of ideal", "%", 100.0),
    Measure("of_bound", "of bound", "%", 100.0),
    Measure("fairness", "fairness", "", 1.0),
    Measure("link_spread", "link spread", "%", 100.0),
)
SLOWDOWN = Measure("slowdown_mean", "slowdown", "times", 1.0)
# Measures of arriving flows.
ARRIVED = (
    Measure("offered_bps", "offered", "Mbit/s", 1e-6),
    Measure("carried_bps", "carried", "Mbit/s", 1e-6),
    SLOWDOWN,
    Measure("slowdown_median", "median", "times", 1.0),
    Measure("slowdown_p99", "99th", "times", 1.0),
    Measure("request_median_s", "request", "ms", 1e3),
    Measure("request_p99_s", "99th", "ms", 1e3),
    Measure("in_time_share", "in time", "%", 100.0),
    Measure("shuffle_slowdown", "over bound", "times", 1.0),
)


# Measures that are goodput divided by a column: the ideal of the paths in use, or the upper bound
# under any routing.
SHARES = {"of_ideal": "ideal_bps", "of_bound": "bound_bps"}
IN_REPORT_ALONE = "link_spread"  # Column that is too wide for a terminal of 80 characters.


class Summary(NamedTuple):
    """Summary of one system of a run: numbers of trials, estimates, and comparison."""

    system: str
    trials: int
    valid: int
    failed: int
    failed_flows: int  # Number of failed flows in valid trials.
    estimates: dict[str, Estimate]  # Estimates by column, over valid trials.
    untrusted: dict[str, Estimate]  # Estimates by column, over invalid trials that finished.
    against_first: Comparison | None  # Ratio to the plan's first system, by `main_measure`.


def summaries(run: Run) -> list[Summary]:
    """Return a summary of every system, in the order of the plan."""
    systems = run.systems
    main = main_of(run)
    return [_summary(run, system, systems[0], main) for system in systems]


def main_measure(*, completes: bool, arrive: bool = False) -> Measure:
    """Return the measure by which systems are compared: completion time, or else goodput.

    Systems with arriving flows are compared by slowdown.
    """
    if arrive:
        return SLOWDOWN
    return COMPLETION if completes else GOODPUT


def main_of(run: Run) -> Measure:
    """Return the measure that compares the systems of a run."""
    return main_measure(completes=completes(run), arrive=arrive(run))


def completes(run: Run) -> bool:
    """Return True if the workload of a run is complete after certain volumes."""
    workload = run.manifest["plan"]["workload"]
    return workload["volume_bytes"] is not None or workload["pattern"] == TRAINING


def arrive(run: Run) -> bool:
    """Return True if flows of a run arrive over time (Poisson or trace), not all at its start."""
    return run.manifest["plan"]["workload"].get("arrivals") is not None


def compared_systems(plan: Experiment) -> list[str]:
    """Return the systems that are compared with the first one: same jobs, same dilation.

    `job_slowdowns` compares a job alone with the same job next to the other jobs, and
    `scale_sentences` a system with itself at another dilation.
    """
    first, *others = plan.systems
    same = first.job, first.dilation
    return [one.name for one in others if (one.job, one.dilation) == same]


def values(run: Run, system: str, column: str, *, valid: bool = True) -> dict[int, float]:
    """Return a column's values of a system's valid (or invalid) trials, by repeat."""
    trials = run.trials  # The table is cached: it is read once for all systems and columns.
    ended = (trials.system == system) & (trials.status == COMPLETED)
    trials = trials[ended & (trials.valid == valid)]
    share = SHARES.get(column)
    found = trials.goodput_bps / trials[share] if share else trials[column]
    return paired(list(trials.repeat), [float(value) for value in found])


def _summary(run: Run, system: str, first: str, main: Measure) -> Summary:
    of_system = run.of(system)
    trials = of_system.trials
    against = None
    if system in compared_systems(run.plan):
        against = compare(values(run, system, main.column), values(run, first, main.column))

    def estimates(valid: bool) -> dict[str, Estimate]:
        return {
            one.column: estimate(
                list(values(run, system, one.column, valid=valid).values()), least=0.0
            )
            for one in (*MEASURES, *ARRIVED)
        }

    return Summary(
        system,
        len(trials),
        len(of_system.valid().records),
        int((trials.status == FAILED).sum()),
        int(of_system.valid().trials.failed_flows.sum()),
        estimates(valid=True),
        estimates(valid=False),
        against,
    )


def verdict_text(record: Mapping[str, Any]) -> str:
    """Return the verdict of a trial's record as a short text."""
    if record["status"] == FAILED:
        return f"failed: {record['reason']}"
    if record["valid"]:
        return "valid"
    first, *others = record["verdict"]["reasons"] or ["no reason is given"]
    return f"not valid: {first}" + (f" (and {len(others)} more)" if others else "")


def totals_text(record: Mapping[str, Any]) -> str:
    """Return the totals of a trial's record as a short text; empty for a failed trial."""
    if record["status"] == FAILED:
        return ""
    if record["goodput_bps"] is None:
        return f"all {record['flows']} flows failed"
    words = [f"{three_figures(record['goodput_bps'] / 1e6)} Mbit/s"]
    if record["ideal_bps"]:
        words.append(
            f"{record['goodput_bps'] / record['ideal_bps']:.0%} of the ideal".replace("%", " %")
        )
    if record["failed_flows"]:
        words.append(f"{record['failed_flows']} of {record['flows']} flows failed")
    elif record["ideal_s"]:
        words.append(f"all done after {three_figures(record['completion_s'])} s")
    return ", ".join(words)


def doubtful(run: Run) -> list[str]:
    """Return a line for each failed or invalid trial of a run: its totals and the reason.

    A reason is given once; later trials with the same reason refer to the first.
    """
    first = {
        number: (numbers[0], reason)
        for reason, numbers in doubts(run.records).items()
        for number in numbers
    }
    lines = []
    for one in run.records:
        if not one["valid"]:
            number = one["trial"] + 1
            before, reason = first[number]
            verdict = reason if before == number else f"as trial {before}"
            words = (f"trial {number}, {one['system']}", totals_text(one), verdict)
            lines.append(" · ".join(filter(None, words)))
    return lines


def doubts(records: Iterable[Mapping[str, Any]]) -> dict[str, list[int]]:
    """Return the reasons of failed or invalid trials, with the trial numbers (from 1).

    Reasons that differ only in figures count as one; the first stands for all.
    """
    found: dict[str, tuple[str, list[int]]] = {}
    for one in records:
        if not one["valid"]:
            verdict = verdict_text(one)
            alike = re.sub(r"\d+(\.\d+)?", "#", verdict)
            found.setdefault(alike, (verdict, []))[1].append(one["trial"] + 1)
    return dict(found.values())


def text_of(run: Run) -> str:
    """Return the summary of a run as text: a table of systems, comparisons and invalid trials."""
    found = summaries(run)
    main = main_of(run)
    shown = [
        one
        for one in (ARRIVED if arrive(run) else MEASURES)
        if one.column != IN_REPORT_ALONE
        and (main is COMPLETION or one is not COMPLETION)
        and any(
            summary.estimates[one.column].repeats or summary.untrusted[one.column].repeats
            for summary in found
        )
    ]
    rows = [["system", "valid", *(one.title for one in shown)]]
    rows += [["", "", *(one.unit for one in shown)]] if shown else []
    for summary in found:
        estimates = [value_and_interval(summary.estimates[one.column], one.scale) for one in shown]
        rows.append(
            [summary.system, f"{summary.valid}/{summary.trials}", *(e[0] for e in estimates)]
        )
        if any(interval for _, interval in estimates):
            rows.append(["", "", *(interval for _, interval in estimates)])
        rows += untrusted_rows(summary, shown)
    several = any(one.repeats > 1 for summary in found for one in summary.estimates.values())
    notes = [INTERVALS] * several
    notes += [ABOUT_DOUBT] * any(untrusted_rows(summary, shown) for summary in found)
    blocks = [
        "\n".join([columns(rows, range(1, len(rows[0]))), *notes]),
        slowdowns.text_of(run),
        job_slowdowns.text_of(run),
        sentences(
            [
                *comparisons(found, main),
                *aa_check_sentences(run),
                *scale_sentences(run),
                *_failed_flows_lines(found),
                *_missing_faults_lines(run),
            ]
        ),
        _invalid_trials_text(doubtful(run)),
    ]
    return "\n\n".join(filter(None, blocks))


def untrusted_rows(summary: Summary, shown: Iterable[Measure]) -> list[list[str]]:
    """Return a row with the figures of a system's invalid trials that finished, if there are any.

    Each figure has a mark that distinguishes it from figures of valid trials.
    """
    found = [value_and_interval(summary.untrusted[one.column], one.scale)[0] for one in shown]
    count = summary.trials - summary.valid - summary.failed
    figures = [figure if figure == "-" else f"{figure}{DOUBT}" for figure in found]
    return [["  not valid", str(count), *figures]] if count else []


def aa_check_sentences(run: Run) -> Iterator[str]:
    """Yield the results of A/A checks as sentences, for systems that the plan has twice."""
    plan, main = run.manifest["plan"], main_of(run)
    for places in aa_check.identical_system_pairs(plan["systems"], plan["faults"]):
        first, second = (run.systems[place] for place in places)
        yield aa_check.aa_check_sentence(
            first, second, [values(run, one, main.column) for one in (first, second)]
        )


def scale_sentences(run: Run) -> Iterator[str]:
    """Yield the results of scale checks as sentences, for systems that the plan has dilated."""
    systems, faults = (run.manifest["plan"][key] for key in ("systems", "faults"))
    undecided = []
    for pair in scale_check.dilated_pairs(systems, faults):
        first, second = (run.systems[place] for place in pair)
        small, large = (systems[place].get("dilation", 1.0) for place in pair)
        found = {
            one.title: compare(values(run, second, one.column), values(run, first, one.column))
            for one in _scaled_measures(run)
        }
        slow, fast = (_longest_reroutes_s(run.of(name)) for name in (second, first))
        found["time to reroute"] = compare(slow, fast)
        if enough := scale_check.scale_comparisons(found):
            yield scale_check.scale_sentence(first, (small, large), enough)
        else:
            undecided.append(first)
    if undecided:
        yield scale_check.undecided_sentence(undecided)


def _scaled_measures(run: Run) -> tuple[Measure, ...]:
    """Return the measures that a scale check compares."""
    tails = [one for one in ARRIVED if one.column in ("slowdown_median", "slowdown_p99")]
    if arrive(run):
        return tuple(one._replace(title=f"{one.title} slowdown") for one in tails)
    return (main_of(run),)


def _longest_reroutes_s(run: Run) -> dict[int, float]:
    """Return the longest time to reroute after a fault of each valid trial, by repeat."""
    events = run.valid().events
    longest = events.groupby("repeat").rerouted_s.max()
    return paired(list(longest.index), [float(value) for value in longest])


def value_and_interval(found: Estimate, scale: float = 1.0) -> tuple[str, str]:
    """Return an estimate as text: the value, and its confidence interval (empty if missing).

    >>> value_and_interval(Estimate(95.2e6, 94.1e6, 96.5e6, 3), 1e-6)
    ('95.2', '94.1-96.5')
    >>> value_and_interval(Estimate(0.9941, float("nan"), float("nan"), 1))
    ('0.994', '')
    """
    if not found.repeats:
        return "-", ""
    value, low, high = (three_figures(end * scale) for end in found[:3])
    return value, "" if found.repeats < 2 else f"{low}-{high}"


def comparisons(found: list[Summary], main: Measure) -> list[str]:
    """Return the comparisons of all systems with the first system, as sentences."""
    lines = []
    for one in found:
        if one.against_first and one.against_first.ratio.repeats:
            words = f"{one.system} against {found[0].system}, {main.title}"
            lines.append(f"{words}: {_ratio_text(one.against_first)}")
    return lines


def _ratio_text(found: Comparison) -> str:
    value, low, high = (three_figures(end) for end in found.ratio[:3])
    if found.ratio.repeats < 2:
        return f"{value} times, from one trial of each: use more --repeats for an interval"
    doubt = "" if found.differs else ", which may be chance: no significant difference"
    return f"{value} times ({low}-{high}){doubt}"


def _failed_flows_lines(found: list[Summary]) -> list[str]:
    """Return a line with the numbers of failed flows in valid trials, by system."""
    failures = [f"{one.failed_flows} of {one.system}" for one in found if one.failed_flows]
    return [f"failed flows: {'; '.join(failures)}"] if failures else []


def _missing_faults_lines(run: Run) -> Iterator[str]:
    """Yield a line for each reason why faults of valid trials did not happen, by system."""
    events = run.valid().events
    missed = events[events.event.isin(FAULT_EVENTS) & (events.reason.fillna("") != "")]
    for reason, missing in missed.groupby("reason", sort=False):
        counts = missing.groupby("system", sort=False).size()
        words = "; ".join(f"{count} of {system}" for system, count in counts.items())
        yield f"faults that did not happen, because {reason}: {words}"


def _invalid_trials_text(lines: list[str]) -> str:
    more = len(lines) - MOST_DOUBTFUL
    shown = lines[:MOST_DOUBTFUL] + ([f"and {more} more: the report has all"] if more > 0 else [])
    return sentences(["These trials are excluded from all means:", *shown] if lines else ())


def advice(run: Run, name: str | None = None) -> str:
    """Return commands that replace the invalid trials of a run; empty if all trials are valid.

    `name` is the experiment's name on the command line, if there was one.
    """
    doubted = [one for one in run.records if not one["valid"]]
    if not doubted:
        return ""
    plan = run.manifest["plan"]
    repeats = plan["repeats"] + max(summary.trials - summary.valid for summary in summaries(run))
    folder = shlex.quote(str(run.folder))
    rows = [
        [
            f"pillarbox run --resume {folder} --repeats {repeats} --when-quiet",
            "adds trials in place of the invalid ones, each when the machine is quiet",
        ]
    ]
    rates = [one["rate_mbit"] for one in plan["systems"] if one["rate_mbit"]]
    slow = any("lower" in reason for one in doubted for reason in one["verdict"]["reasons"])
    if rates and slow:
        again = (
            f"pillarbox run {shlex.quote(name or plan['name'])} --rate-mbit {min(rates) / 2:.3g}"
        )
        rows.append([again, "repeats the run at half the rate, with half the processor time"])
    title = "What to do, as root:" if is_machine_root() else "What to do:"
    return "\n".join([title, *(f"  {a}\n    {b}" for a, b in rows)])


def sentences(lines: Iterable[str]) -> str:
    """Wrap sentences to the width of the terminal; continuation lines are indented."""
    width = min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns)
    return "\n".join(textwrap.fill(line, width, subsequent_indent="  ") for line in lines)
