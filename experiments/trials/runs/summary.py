"""A run in short: each system's totals with their intervals, and the systems against the first.

Only valid trials count. The figures of the others have a row of their own, with a mark, below.
"""

from __future__ import annotations

import re
import shlex
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from experiments.text import columns
from experiments.traffic.flows import COMPLETED, FAILED
from experiments.trials.runs import aa_check, slowdowns
from experiments.trials.runs.statistics import Comparison, Estimate, compare, estimate, paired
from experiments.units import three_figures

if TYPE_CHECKING:
    from experiments.trials.runs.records import Run


WIDTH = 96  # of a line of sentences, where the terminal is as wide
MOST_DOUBTFUL = 12  # lines; the report has all
INTERVALS = "Below each mean is where it lies with 95 % confidence."
DOUBT = "?"  # behind a figure of trials that are not valid
ABOUT_DOUBT = f"{DOUBT} marks figures of trials that are not valid: do not trust them."


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
    Measure("of_ideal", "of ideal", "%", 100.0),
    Measure("of_bound", "of bound", "%", 100.0),
    Measure("fairness", "fairness", "", 1.0),
    Measure("link_spread", "link spread", "%", 100.0),
)
SLOWDOWN = Measure("slowdown_mean", "slowdown", "times", 1.0)
ARRIVED = (  # of flows that arrive
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


# Of what goodput is a share: the ideal of the paths in use, and the network's own bound.
SHARES = {"of_ideal": "ideal_bps", "of_bound": "bound_bps"}
IN_REPORT_ALONE = "link_spread"  # the terminal has 80 columns


class Summary(NamedTuple):
    """One system of a run."""

    system: str
    trials: int
    valid: int
    failed: int
    failed_flows: int  # of the valid trials
    estimates: dict[str, Estimate]  # by column, of the valid trials
    untrusted: dict[str, Estimate]  # likewise, of the trials that ended and are not valid
    against_first: Comparison | None  # as many times the plan's first system, by `main_measure`


def summaries(run: Run) -> list[Summary]:
    """Return a summary of every system, in the order of the plan."""
    systems = run.systems
    main = main_of(run)
    return [_summary(run, system, systems[0], main) for system in systems]


def main_measure(volume_bytes: int | None, *, arrive: bool = False) -> Measure:
    """Return what systems are compared by: how soon all is done, or else how much they carry.

    Flows that arrive are compared by their slowdown.
    """
    if arrive:
        return SLOWDOWN
    return GOODPUT if volume_bytes is None else COMPLETION


def main_of(run: Run) -> Measure:
    """Return what the systems of a run are compared by."""
    workload = run.manifest["plan"]["workload"]
    return main_measure(workload["volume_bytes"], arrive=arrive(run))


def arrive(run: Run) -> bool:
    """Tell whether the flows of a run arrive one after the other."""
    return run.manifest["plan"]["workload"].get("arrivals") is not None


def values(run: Run, system: str, column: str, *, valid: bool = True) -> dict[int, float]:
    """Return a total of a system's valid trials, or of those that are not valid, by repeat."""
    trials = run.trials  # read once for all systems and columns
    ended = (trials.system == system) & (trials.status == COMPLETED)
    trials = trials[ended & (trials.valid == valid)]
    share = SHARES.get(column)
    found = trials.goodput_bps / trials[share] if share else trials[column]
    return paired(list(trials.repeat), [float(value) for value in found])


def _summary(run: Run, system: str, first: str, main: Measure) -> Summary:
    own = run.of(system)
    trials = own.trials
    against = None
    if system != first:
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
        len(own.valid().records),
        int((trials.status == FAILED).sum()),
        int(own.valid().trials.failed_flows.sum()),
        estimates(valid=True),
        estimates(valid=False),
        against,
    )


def verdict_text(record: Mapping[str, Any]) -> str:
    """Return what trial.json says of whether the trial can be believed, in a few words."""
    if record["status"] == FAILED:
        return f"failed: {record['reason']}"
    if record["valid"]:
        return "valid"
    first, *others = record["verdict"]["reasons"] or ["no reason is given"]
    return f"not valid: {first}" + (f" (and {len(others)} more)" if others else "")


def totals_text(record: Mapping[str, Any]) -> str:
    """Return what trial.json says of the totals, in a few words; nothing where there are none."""
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
    """Return a line for each trial that failed or is not valid: what it saw, and what is wrong.

    What is wrong is said once; a later trial names the one that had it before.
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
    """Return why trials failed or are not valid, and which (from 1): each reason once.

    Reasons that differ in figures alone are one; the first stands for all.
    """
    found: dict[str, tuple[str, list[int]]] = {}
    for one in records:
        if not one["valid"]:
            verdict = verdict_text(one)
            alike = re.sub(r"\d+(\.\d+)?", "#", verdict)
            found.setdefault(alike, (verdict, []))[1].append(one["trial"] + 1)
    return dict(found.values())


def text_of(run: Run) -> str:
    """Return the summaries as a table, and below it what is to be said of them."""
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
        sentences([*comparisons(found, main), *selves(run), *_failures(found)]),
        _doubts(doubtful(run)),
    ]
    return "\n\n".join(filter(None, blocks))


def untrusted_rows(summary: Summary, shown: Iterable[Measure]) -> list[list[str]]:
    """Return a row with the figures of the trials that ended and are not valid, if there are any.

    Each figure has a mark, so that none can be taken for one of a valid trial.
    """
    found = [value_and_interval(summary.untrusted[one.column], one.scale)[0] for one in shown]
    count = summary.trials - summary.valid - summary.failed
    figures = [figure if figure == "-" else f"{figure}{DOUBT}" for figure in found]
    return [["  not valid", str(count), *figures]] if count else []


def selves(run: Run) -> Iterator[str]:
    """Yield what comes of comparing a system with itself, where the plan has one twice."""
    plan, main = run.manifest["plan"], main_of(run)
    for places in aa_check.twins(plan["systems"], plan["faults"]):
        first, second = (run.systems[place] for place in places)
        yield aa_check.in_words(
            first, second, [values(run, one, main.column) for one in (first, second)]
        )


def value_and_interval(found: Estimate, scale: float = 1.0) -> tuple[str, str]:
    """Return an estimate as text: the value, and its interval where there is one.

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
    """Return how the systems compare with the first."""
    said = []
    for one in found:
        if one.against_first and one.against_first.ratio.repeats:
            words = f"{one.system} against {found[0].system}, {main.title}"
            said.append(f"{words}: {_ratio(one.against_first)}")
    return said


def _ratio(found: Comparison) -> str:
    value, low, high = (three_figures(end) for end in found.ratio[:3])
    if found.ratio.repeats < 2:
        return f"{value} times, by one trial of each: more --repeats tell how sure that is"
    doubt = "" if found.differs else ", which may be chance: no difference is shown"
    return f"{value} times ({low}-{high}){doubt}"


def _failures(found: list[Summary]) -> list[str]:
    """Return how many flows failed in trials that count."""
    failures = [f"{one.failed_flows} of {one.system}" for one in found if one.failed_flows]
    return [f"failed flows: {'; '.join(failures)}"] if failures else []


def _doubts(lines: list[str]) -> str:
    more = len(lines) - MOST_DOUBTFUL
    shown = lines[:MOST_DOUBTFUL] + ([f"and {more} more: the report has all"] if more > 0 else [])
    return sentences(["These trials count in no mean:", *shown] if lines else ())


def advice(run: Run, name: str | None = None) -> str:
    """Return what to do about trials that are not valid, as commands; nothing if all are valid.

    `name` is the experiment as it was named on the command line, if it was.
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
            "adds as many trials, each as soon as the machine is quiet",
        ]
    ]
    rates = [one["rate_mbit"] for one in plan["systems"] if one["rate_mbit"]]
    slow = any("lower" in reason for one in doubted for reason in one["verdict"]["reasons"])
    if rates and slow:
        again = (
            f"pillarbox run {shlex.quote(name or plan['name'])} --rate-mbit {min(rates) / 2:.3g}"
        )
        rows.append([again, "runs it with half the rate, which needs half the processor time"])
    return "\n".join(["What to do, as root:", *(f"  {a}\n    {b}" for a, b in rows)])


def sentences(lines: Iterable[str]) -> str:
    """Return each sentence as lines that fit the terminal, all but the first indented."""
    width = min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns)
    return "\n".join(textwrap.fill(line, width, subsequent_indent="  ") for line in lines)
