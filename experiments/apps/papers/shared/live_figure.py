"""Live figures as data: a TOML file with an experiment, the paper's numbers, claims and a reducer.

`PAPER/NAME.toml` in this package, or any file given to `pillarbox reproduce`, is a figure; its
fields are those of `LiveFigure` and `Row`, and docs/papers.md shows an example. A reducer turns
the records of the experiment into points, claims and a verdict:

==================  ==============================================================
reducer             points of the figure
==================  ==============================================================
throughput-curve    each system's total throughput over time
trial-values        the values listed as ``points``
relay-by-mtu        throughput and cost of a relay by MTU (`relay_figures`)
relay-by-load       a relay's processor time by UDP load (`relay_figures`)
==================  ==============================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pillarbox.experiments.apps.papers.shared import live_experiments, relay_figures
from pillarbox.experiments.apps.papers.shared.figure import Figure, Made
from pillarbox.experiments.apps.papers.shared.figure_rows import Row, expanded
from pillarbox.experiments.apps.papers.shared.live_experiments import Scale
from pillarbox.experiments.apps.papers.shared.live_verdicts import VERDICTS
from pillarbox.experiments.apps.papers.shared.quantities import Part
from pillarbox.experiments.apps.papers.shared.relay_figures import RelaySweep, Rows
from pillarbox.experiments.base.files import toml_in
from pillarbox.experiments.models.workloads.collectives.plan import most_bytes
from pillarbox.experiments.runs.plans.experiment import Experiment, System
from pillarbox.experiments.runs.plans.experiment_checks import check_experiment
from pillarbox.experiments.runs.plans.loading import experiment_of
from pillarbox.experiments.runs.plans.values import made
from pillarbox.experiments.runs.reporting.reproduced.result import Settings
from pillarbox.topos.base.errors import PillarboxError, meant, require
from pillarbox.topos.base.spec import parse

SUFFIX = ".toml"
ALL_REDUCE = "all-reduce"


@dataclass(frozen=True)
class LiveFigure:
    """A live figure, as its file describes it."""

    about: str
    title: str
    x: str
    y: str
    reducer: str
    kind: str = "lines"  # kind of drawing (see `Reproduction`)
    # Keys of an experiment file (docs/experiments.md), and two more: `volume_s` in place of the
    # workload's volume_bytes, the volume in seconds of a cable's rate; and `rate_share`, the
    # cables' rate relative to the rate at which this machine still emulates the figure faithfully.
    experiment: Mapping[str, Any] = field(default_factory=dict)
    parts: tuple[Mapping[str, Any], ...] = ()  # changes for each of several experiments, with name
    quick: Mapping[str, Any] = field(default_factory=dict)  # changes for --quick
    # The paper's cable rate and volume of a flow, to which the lab's rates and times are scaled.
    papers_mbit: float | None = None
    papers_bytes: float | None = None
    curve_points: int = live_experiments.MOST_POINTS
    trials: str = "valid"  # trials that count: valid or all
    points: tuple[Row, ...] = ()  # values that are drawn, and begin the table
    rows: tuple[Row, ...] = ()  # further values of the table
    rows_by: str = "row"  # order of rows that stand for several systems: row or system
    verdict: str = "claims"  # a name in `live_verdicts`
    why: str = ""  # reason to print if our figure differs from the paper's
    notes: tuple[str, ...] = ()
    relay: RelaySweep | None = None  # the relay that the reducers of relays measure

    def __post_init__(self) -> None:
        for name, known in (
            ("reducer", REDUCERS),
            ("verdict", VERDICTS),
            ("trials", ("valid", "all")),
            ("rows_by", ("row", "system")),
        ):
            value = getattr(self, name)
            require(value in known, f"unknown {name} {value!r}: {meant(value, known)}")
        own = "relay" if self.reducer.startswith("relay") else "experiment"
        require(bool(getattr(self, own)), f"{self.reducer} needs a table {own}")
        require(
            self.reducer != "throughput-curve" or not self.parts,
            "throughput-curve draws one experiment: omit parts, or choose trial-values",
        )
        for part in self.parts:
            require(isinstance(part.get("name"), str), "each of parts needs a name")


def figure_in(file: Path, *, check: bool = True) -> Figure:
    """Return the live figure that a TOML file describes; the file's name is the figure's.

    With `check`, its experiments are checked as well, which takes longer.
    """
    values = toml_in(file)
    try:
        plan = made(LiveFigure, values, "")
        if check:
            _check(plan, file.stem)
    except PillarboxError as error:
        raise PillarboxError(f"{file}: {error}") from None
    return Figure(
        name=file.stem,
        about=plan.about,
        title=plan.title,
        x=plan.x,
        y=plan.y,
        make=lambda settings: REDUCERS[plan.reducer](plan, settings, file.stem),
        live=True,
        look={"kind": plan.kind},
        data=values,
    )


def _check(plan: LiveFigure, name: str) -> None:
    """Raise PillarboxError if an experiment is wrong, or if rows name unknown systems or parts."""
    if plan.relay:
        plan.relay.check(plan.reducer)
        return
    parts = experiments(plan, Settings(Path(), rate_mbit=1.0), name)
    for one in parts.values():
        check_experiment(one)
        scale_of(plan, one)
    systems = {one.name for part in parts.values() for one in part.systems}
    for row in (*plan.points, *plan.rows):
        for what, value, known in (
            ("part", row.part, parts),
            *(("system", one, systems) for one in (row.system, *row.pair)),
        ):
            require(value in ("", *known), f"unknown {what} {value!r}: {meant(value, known)}")


def _trial_values(plan: LiveFigure, settings: Settings, name: str) -> Made:
    """Run the figure's experiments; return values of their trials as points and rows."""
    parts, notes = [], []
    for part, one in experiments(plan, settings, name).items():
        done, remarks = live_experiments.run_at_rate(settings, one)
        notes += remarks
        counted = live_experiments.without_invalid_trials(done) if plan.trials == "valid" else done
        parts.append(Part(part, done.plan, counted, scale_of(plan, done.plan), done))
    found = made_from_records(plan, parts)
    return found._replace(notes=(*found.notes, *notes))


def made_from_records(plan: LiveFigure, parts: Sequence[Part]) -> Made:
    """Return a figure's points, rows, verdict and notes from the records of its experiments."""
    by_system = plan.rows_by == "system"
    drawn = [*expanded(plan.points, parts, by_system=by_system)]
    measured = [*drawn, *expanded(plan.rows, parts, by_system=by_system)]
    points = [one.point for one in drawn]
    points += [replace(one.point, x=one.row.drawn) for one in measured if one.row.drawn]
    if plan.reducer == "throughput-curve":
        (part,) = parts
        points = [
            *live_experiments.throughput_curves(part.all_trials, part.scale, plan.curve_points)
        ]
    systems = ", ".join(f"{one.name}: {one.network}" for one in parts[0].experiment.systems)
    return Made(
        points,
        rows=[one.point for one in measured],
        judged=VERDICTS[plan.verdict](measured, parts),
        why=plan.why,
        notes=(
            *(note.replace("{systems}", systems) for note in plan.notes),
            *live_experiments.notes(
                [part.all_trials for part in parts], [part.scale for part in parts]
            ),
        ),
    )


Reducer = Callable[[LiveFigure, Settings, str], Made]
REDUCERS: dict[str, Reducer] = {
    "throughput-curve": _trial_values,
    "trial-values": _trial_values,
    "relay-by-mtu": lambda plan, settings, _: relay_figures.by_mtu(
        *_relay(plan, settings), settings
    ),
    "relay-by-load": lambda plan, settings, _: relay_figures.by_load(
        *_relay(plan, settings), settings
    ),
}


def _relay(plan: LiveFigure, settings: Settings) -> tuple[RelaySweep, Rows]:
    require(not settings.own_mbit, "a relay's cost is the machine's: omit --as")
    assert plan.relay is not None
    return plan.relay, Rows(plan.points, plan.rows, plan.verdict)


# -- experiments -----------------------------------------------------------------------------------


def experiments(plan: LiveFigure, settings: Settings, name: str) -> dict[str, Experiment]:
    """Return the figure's experiments by the names of its parts."""
    tables = dict(_tables(plan, settings))
    rate_mbit = settings.rate_mbit or _rate_mbit(settings, tables.values())
    found = {}
    for part, values in tables.items():
        volume_s = values.pop("volume_s", None)
        own_mbit = rate_mbit * values.pop("rate_share", 1.0)
        systems = [{**one, "rate_mbit": own_mbit} for one in values.get("systems", ())]
        if volume_s is not None:
            volume_bytes = _volume_bytes(values, volume_s * own_mbit * 125_000)
            values["workload"] = {**values.get("workload", {}), "volume_bytes": volume_bytes}
        values |= {"systems": systems, "about": plan.about, "seed": settings.seed}
        one = experiment_of({"name": f"{name}-{part}" if part else name, **values})
        found[part] = replace(one, repeats=live_experiments.trial_count(settings, one.repeats))
    return found


def _tables(plan: LiveFigure, settings: Settings) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each part's name, and its experiment as the keys of an experiment file."""
    for part in plan.parts or ({},):
        values = _merged(plan.experiment, part)
        quick = values.pop("quick", {})
        if settings.quick:
            values = _merged(_merged(values, plan.quick), quick)
        yield (values.pop("name") if plan.parts else ""), values


def _merged(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested tables with changes; lists are replaced.

    >>> _merged({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}})
    {'a': {'b': 3, 'c': 2}}
    """
    merged = dict(values)
    for key, value in changes.items():
        old = merged.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            merged[key] = _merged(old, value)
        else:
            merged[key] = value
    return merged


def _rate_mbit(settings: Settings, tables: Iterable[Mapping[str, Any]]) -> float:
    """Return the cable rate of the figure's file, or one that this machine emulates faithfully."""
    systems: list[System] = [
        made(System, one, "systems") for values in tables for one in values["systems"]
    ]
    given = [one.rate_mbit for one in systems if one.rate_mbit]
    if given:
        return min(given)
    # Systems that differ only in labels and algorithms are emulated at the same rate.
    alike = dict.fromkeys(replace(one, label="", algorithm="") for one in systems)
    return live_experiments.faithful_mbit(settings, [*alike])


def _volume_bytes(values: Mapping[str, Any], volume_bytes: float) -> int:
    """Return the volume of a workload, less if an all-reduce would need too much memory."""
    workload = values.get("workload", {})
    if workload.get("pattern") != ALL_REDUCE:
        return int(volume_bytes)
    servers = max(parse(one["network"]).servers for one in values["systems"])
    return min(int(volume_bytes), most_bytes(workload.get("options", {}).get("ranks", servers)))


def scale_of(plan: LiveFigure, experiment: Experiment) -> Scale:
    """Return the factors from the lab's values to those at the paper's rate and volume."""
    if plan.papers_mbit is None:
        return live_experiments.UNSCALED
    rate_mbit, volume_bytes = experiment.systems[0].rate_mbit, experiment.workload.volume_bytes
    assert rate_mbit
    rate = plan.papers_mbit / rate_mbit
    if plan.papers_bytes is None:
        return Scale(rate)
    require(bool(volume_bytes), "papers_bytes needs an experiment with volume_s")
    assert volume_bytes
    return Scale(rate, plan.papers_bytes / volume_bytes / rate)
