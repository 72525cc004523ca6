"""The page that shows a run: one file that needs nothing else, not even a network."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib.figure import Figure

from experiments.files import output_folder
from experiments.reporting import (
    collective_section,
    figures,
    load_map,
    series,
    slowdown_figures,
    style,
    summary_text,
    tables,
)
from experiments.reporting.embedding import Drawn, embedded
from experiments.reporting.run_reading import RunContents, read
from experiments.text import printable_lines
from experiments.trials.runs import store
from topos.base.errors import PillarboxError
from topos.base.topology import Topology

PAGE, FIGURES = "report.html", "figures"

CAPTIONS = {
    "goodput": "What receivers got of all flows together, over time. Thin lines are single trials, "
    "dotted ones the ideal of a system's first valid trial: the most that the paths of the flows "
    "under way carry, at the shares that they had.",
    "faults": "One trial of each system, and its faults: how long until servers beside it "
    "knew, until the flows that had stopped went on, and until they were as fast as before.",
    "throughput": "The flows' goodput: the share of flows that were at most so fast. A line that "
    "ends below 1 is short of the flows that failed.",
    "completion": "How the work got done, one line a trial; dotted is the ideal.",
    "slowdown": "Slowdown against the size of flows, of those that arrived: a point is a class of "
    "sizes, at the mean of its flows' sizes, and a mean over valid trials.",
    "loads": "Slowdown against load, of all flows that are measured; means over valid trials.",
    "links": "The load of every directed link, by level: a mean over valid trials, or over all of "
    "a system that has no valid one.",
}


def write_report(
    run: Path, out: Path | None = None, record: Callable[[Path, Path], str] = lambda *_: ""
) -> tuple[Path, list[str]]:
    """Make a run's figures and page from its records.

    Parameters
    ----------
    run : Path
        The run's folder.
    out : Path, optional
        The folder for the page and its figures; the run's own by default.
    record : callable, optional
        Given the page and the run, writes the run's recording and returns its name, or nothing.

    Returns
    -------
    Path
        The page.
    list of str
        Sentences about what is missing of the run.
    """
    found = read(run)
    folder = output_folder(out or run)
    drawings = output_folder(folder / FIGURES)
    drawn = _drawn(_run_figures(found), drawings)
    networks = _drawn([_links(found), *_networks(found)], drawings)
    page = folder / PAGE
    contents = {**_contents(found, drawn, networks), "recording": record(page, run)}
    store.write_text(page, rendered("run.html", **contents))
    return page, found.missing


def rendered(template: str, **contents: Any) -> str:
    """Return a page; whatever text is in it is shown as it is, never taken for markup."""
    environment = Environment(
        loader=PackageLoader("experiments.reporting"),
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    return environment.get_template(template).render(**contents)


def _shown(value: object) -> object:
    """Return what a page shows for a value: text without control characters, which HTML forbids."""
    return printable_lines(value) if type(value) is str else value


# -- figures -------------------------------------------------------------------------------------


def _drawn(made: Iterable[tuple[str, str, Figure | None]], folder: Path) -> list[Drawn]:
    """Save figures, and return them for the page."""
    drawn = []
    for name, caption, figure in made:
        if figure is not None:
            svg, _ = style.save(figure, folder, name)
            text = printable_lines(svg.read_text(encoding="utf-8"))
            drawn.append(embedded(text, name, caption))
    return drawn


def _run_figures(found: RunContents) -> Iterable[tuple[str, str, Figure | None]]:
    """Yield each figure's name, caption and drawing."""
    flows, intervals = found.tables["flows"], found.tables["intervals"]
    bin_s = series.bin_width_s(intervals)
    goodput = series.of_whole_bins(series.goodput_over_time(intervals, bin_s), intervals, bin_s)
    means = series.mean_of_valid(goodput, "at_s", "goodput_bps")
    ideals = series.ideal_over_time(found.records)
    marks = series.fault_marks(found.tables["events"])
    over_time = (goodput, means, series.of_first_trials(ideals), marks, found.systems)
    yield "goodput", CAPTIONS["goodput"], figures.goodput_figure(*over_time)
    faulty, own = (series.of_trials(one, marks["trial"]) for one in (goodput, ideals))
    drawn = figures.faults_figure(faulty, own, marks, found.systems)
    yield "faults", CAPTIONS["faults"], drawn
    if flows["volume_bytes"].notna().any():
        done = series.flows_done(flows), series.bytes_done(intervals, flows)
        drawn = figures.completion_figure(*done, series.ideal_done(flows), found.systems)
        yield "completion", CAPTIONS["completion"], drawn
    if (plan := found.plan) and plan.workload.arrivals is not None:
        sizes = slowdown_figures.by_size(found.tables["classes"])
        yield "slowdown", CAPTIONS["slowdown"], slowdown_figures.size_figure(sizes, found.systems)
        names = slowdown_figures.names_without_loads(plan.systems)
        at_loads = slowdown_figures.by_load(found.tables["trials"], names)
        yield "loads", CAPTIONS["loads"], slowdown_figures.load_figure(at_loads)
    shares = series.throughput_shares(flows)
    yield "throughput", CAPTIONS["throughput"], figures.throughput_figure(shares, found.systems)


def _links(found: RunContents) -> tuple[str, str, Figure | None]:
    """Return the figure of the loads of all links."""
    loads = _loads(found)
    drawn = figures.links_figure(loads, series.load_spread(loads), found.systems)
    return "links", CAPTIONS["links"], drawn


def _networks(found: RunContents) -> Iterable[tuple[str, str, Figure | None]]:
    """Yield each system's network with the loads of its cables."""
    loads = _loads(found)
    for number, (system, topology) in enumerate(found.networks.items()):
        own = loads[loads["system"] == system]
        caption = (
            f"{_of_network(system, topology)}: each cable in the colour of its busier direction's "
            "load, a share of its rate. Dashes tell the levels apart."
        )
        if not own.empty and not bool(own["valid"].iloc[0]):
            caption += " No trial of it is valid."
        yield f"network-{number}", caption, load_map.network_figure(topology, own)


def _of_network(system: str, topology: Topology) -> str:
    network = f"{topology.title} {topology.spec}"
    return network if system == topology.spec else f"{system} on {network}"


def _loads(found: RunContents) -> Any:
    return series.link_loads(found.tables["links"], found.networks)


# -- text ----------------------------------------------------------------------------------------


def _contents(found: RunContents, drawn: list[Drawn], networks: list[Drawn]) -> dict[str, Any]:
    """Return what the template of a run shows."""
    spread = series.load_spread(_loads(found))
    plan, events = found.plan, found.tables["events"]
    return {
        "name": found.name,
        "headline": _headline(found),
        "shown_trial": _shown_trial(found),
        "about": plan.about if plan else "",
        "where": _where(found.manifest),
        "contents": _table_of_contents(bool(drawn), bool(networks), not events.empty),
        "verdict": _verdict(found),
        "missing": found.missing,
        "reasons": tables.reasons(found),
        "command": tables.command(found),
        "summary": tables.summary(found),
        "slowdowns": slowdown_figures.table(found.tables["classes"], found.systems),
        "comparisons": tables.comparisons(found),
        "operations": collective_section.operations(found),
        "workload": tables.workload(plan) if plan else "",
        "faults": tables.faults(plan, found.networks) if plan else [],
        "systems": tables.systems(found),
        "figures": drawn,
        "networks": networks,
        "spread": tables.link_spread(spread, found.systems),
        "events": tables.events(series.fault_marks(events)),
        "fault_times": tables.fault_times(series.fault_times(events)),
        "failed": tables.failed(found),
        "slowest": tables.slowest(found),
        "trials": tables.trials(found),
        "manifest": [(part, _json(one)) for part, one in found.manifest.items()],
    }


def _headline(found: RunContents) -> list[str]:
    """Return what came of the run in sentences; none if its records are broken."""
    if found.plan is None or not found.records:
        return []
    try:
        return summary_text.headline(found.run)
    except PillarboxError:  # what is broken stands below
        return []


def _shown_trial(found: RunContents) -> str:
    """Return in words which trial the recording beside the report shows."""
    number = series.shown_trial(found.records, found.tables["events"], found.systems)
    record = next((one for one in found.records if one["trial"] == number), None)
    if record is None:
        return ""
    verdict = "" if record["valid"] else ", which is not valid"
    return f"trial {record['trial'] + 1}, {record['system']}{verdict}"


def _table_of_contents(drawn: bool, networks: bool, events: bool) -> list[str]:
    there = {"figures": drawn, "faults": events, "links": networks}
    names = ("results", "figures", "faults", "links", "flows", "trials", "run", "manifest")
    return [name for name in names if there.get(name, True)]


def _verdict(found: RunContents) -> dict[str, str]:
    """Return in one sentence whether the run is to be believed."""
    trials = found.tables["trials"]
    valid, count = int(trials["valid"].fillna(False).sum()), len(trials)
    failures = int(trials["failed_flows"].fillna(0).sum())
    failed = f" {failures} flow{'s' if failures > 1 else ''} failed." if failures else ""
    if not count:
        return {"mood": "bad", "sentence": "No trial of this run has ended."}
    if valid == count:
        mood = "careful" if failures or found.missing else ""
        return {"mood": mood, "sentence": f"All {count} trials are valid.{failed}"}
    sentence = f"{count - valid} of {count} trials are not valid, and count in no mean.{failed}"
    return {"mood": "careful" if valid else "bad", "sentence": sentence}


def _where(manifest: dict[str, Any]) -> str:
    """Return when, and on what machine, in a line."""
    machine, begun = manifest.get("machine") or {}, manifest.get("begun") or {}
    made = manifest.get("pillarbox") or {}
    parts = [
        str(begun.get("wall", ""))[:19].replace("T", " ") + " UTC" if begun.get("wall") else "",
        f"Pillarbox {made['version']}" if made.get("version") else "",
        f"commit {str(made['commit'])[:10]}" + (" with changes" if made.get("dirty") else "")
        if made.get("commit")
        else "",
        f"kernel {machine['kernel']}" if machine.get("kernel") else "",
        f"{machine.get('processors')} × {machine['processor']}" if machine.get("processor") else "",
    ]
    return " · ".join(filter(None, parts))


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)
