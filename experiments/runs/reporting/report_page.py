"""The report of a run: a single HTML file that needs neither other files nor a network."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib.figure import Figure

from pillarbox.experiments.base.files import output_folder
from pillarbox.experiments.base.text import printable_lines
from pillarbox.experiments.runs.reporting import (
    collective_section,
    figures,
    load_map,
    series,
    slowdown_figures,
    style,
    summary_text,
    tables,
    training_section,
)
from pillarbox.experiments.runs.reporting.embedding import EmbeddedFigure, embedded
from pillarbox.experiments.runs.reporting.run_reading import RunContents, read
from pillarbox.experiments.runs.trials import store
from pillarbox.topos.base.errors import PillarboxError
from pillarbox.topos.base.topology import Topology

PAGE, FIGURES = "report.html", "figures"  # names of the report's file and of its figures' folder

CAPTIONS = {
    "goodput": "Total goodput of all flows over time. Thin lines are single trials. Dotted lines "
    "are the ideal of a system's first valid trial: the maximum that the paths of the active flows "
    "carry, at the shares of the flows.",
    "faults": "One trial of each system with its faults: the time until adjacent servers detect "
    "the fault, until the stopped flows are rerouted, and until their goodput has recovered.",
    "throughput": "Cumulative distribution of the flows' goodput. Failed flows are missing at the "
    "top, so that the line ends below 1.",
    "completion": "Completed flows and delivered bytes over time, one line per trial; the ideal is "
    "dotted.",
    "slowdown": "Slowdown by flow size: each point is a size class at its mean flow size, as a "
    "mean over valid trials. Hollow: some flows fit into the burst of an idle port.",
    "loads": "Slowdown of all measured flows by load; means over valid trials.",
    "links": "Load of every directed link by level: a mean over the valid trials of a system, or "
    "over all its trials if none is valid.",
}


def write_report(
    run: Path, out: Path | None = None, record: Callable[[Path, Path], str] = lambda *_: ""
) -> tuple[Path, list[str]]:
    """Write the report of a run, with its figures, from the run's records.

    Parameters
    ----------
    run : Path
        Folder of the run.
    out : Path, optional
        Folder of the report and its figures; the run's folder by default.
    record : callable, optional
        Writes the run's recording, given the report's file and the run's folder. It returns the
        recording's file name, or an empty text.

    Returns
    -------
    Path
        File of the report.
    list of str
        Sentences about missing records of the run.
    """
    found = read(run)
    folder = output_folder(out or run)
    drawings = output_folder(folder / FIGURES)
    drawn = _saved_figures(_run_figures(found), drawings)
    networks = _saved_figures([_link_figure(found), *_load_maps(found)], drawings)
    page = folder / PAGE
    contents = {**_template_values(found, drawn, networks), "recording": record(page, run)}
    store.write_text(page, rendered("run.html", **contents))
    return page, found.missing


def rendered(template: str, **contents: Any) -> str:
    """Return an HTML page from a template; texts are escaped for HTML."""
    environment = Environment(
        loader=PackageLoader("pillarbox.experiments.runs.reporting"),
        autoescape=True,
        finalize=_printable_value,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    return environment.get_template(template).render(**contents)


def _printable_value(value: object) -> object:
    """Return a template value; texts lose control characters, which HTML forbids."""
    return printable_lines(value) if type(value) is str else value


# -- figures -------------------------------------------------------------------------------------


def _saved_figures(
    made: Iterable[tuple[str, str, Figure | None]], folder: Path
) -> list[EmbeddedFigure]:
    """Save figures to a folder, and return them as `EmbeddedFigure` figures for the report."""
    drawn = []
    for name, caption, figure in made:
        if figure is not None:
            svg, _ = style.save(figure, folder, name)
            text = printable_lines(svg.read_text(encoding="utf-8"))
            drawn.append(embedded(text, name, caption))
    return drawn


def _run_figures(found: RunContents) -> Iterable[tuple[str, str, Figure | None]]:
    """Yield name, caption and drawing of a run's figures, except load maps and link loads."""
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


def _link_figure(found: RunContents) -> tuple[str, str, Figure | None]:
    """Return the name, caption and drawing of the figure of link loads."""
    loads = _link_loads(found)
    drawn = figures.links_figure(loads, series.load_spread(loads), found.systems)
    return "links", CAPTIONS["links"], drawn


def _load_maps(found: RunContents) -> Iterable[tuple[str, str, Figure | None]]:
    """Yield the name, caption and drawing of each system's load map."""
    loads = _link_loads(found)
    for number, (system, topology) in enumerate(found.networks.items()):
        own = loads[loads["system"] == system]
        caption = (
            f"{_network_label(system, topology)}: cables are coloured by the load of their busier "
            "direction, a share of the rate. Dashes distinguish the levels."
        )
        if not own.empty and not bool(own["valid"].iloc[0]):
            caption += " No trial of this system is valid."
        yield f"network-{number}", caption, load_map.network_figure(topology, own)


def _network_label(system: str, topology: Topology) -> str:
    network = f"{topology.title} {topology.spec}"
    return network if system == topology.spec else f"{system} on {network}"


def _link_loads(found: RunContents) -> Any:
    return series.link_loads(found.tables["links"], found.networks)


# -- text ----------------------------------------------------------------------------------------


def _template_values(
    found: RunContents, drawn: list[EmbeddedFigure], networks: list[EmbeddedFigure]
) -> dict[str, Any]:
    """Return the values for the template of a report, `run.html`."""
    spread = series.load_spread(_link_loads(found))
    plan, events = found.plan, found.tables["events"]
    return {
        "name": found.name,
        "headline": _headline(found),
        "shown_trial": _shown_trial(found),
        "about": plan.about if plan else "",
        "where": _origin_of_run(found.manifest),
        "contents": _table_of_contents(bool(drawn), bool(networks), not events.empty),
        "verdict": _overall_verdict(found),
        "missing": found.missing,
        "reasons": tables.reasons(found),
        "command": tables.command(found),
        "summary": tables.summary(found),
        "slowdowns": slowdown_figures.table(found.tables["classes"], found.systems),
        "comparisons": tables.comparisons(found),
        "operations": collective_section.operations(found),
        "iterations": training_section.iterations(found),
        "jobs": training_section.jobs(found),
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
        "manifest": [(part, _json_text(one)) for part, one in found.manifest.items()],
    }


def _headline(found: RunContents) -> list[str]:
    """Return the main results of a run as sentences; none if its records are damaged."""
    if found.plan is None or not found.records:
        return []
    try:
        return summary_text.headline(found.run)
    except PillarboxError:  # the report lists damaged records below
        return []


def _shown_trial(found: RunContents) -> str:
    """Return the name of the trial whose recording the report embeds, as text."""
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


def _overall_verdict(found: RunContents) -> dict[str, str]:
    """Return the overall verdict of a run: a sentence on its trials' validity, and a style."""
    trials = found.tables["trials"]
    valid, count = int(trials["valid"].fillna(False).sum()), len(trials)
    failures = int(trials["failed_flows"].fillna(0).sum())
    failed = f" {failures} flow{'s' if failures > 1 else ''} failed." if failures else ""
    if not count:
        return {"mood": "bad", "sentence": "No trial of this run has ended."}
    if valid == count:
        mood = "careful" if failures or found.missing else ""
        return {"mood": mood, "sentence": f"All {count} trials are valid.{failed}"}
    sentence = f"{count - valid} of {count} trials are not valid and excluded from means.{failed}"
    return {"mood": "careful" if valid else "bad", "sentence": sentence}


def _origin_of_run(manifest: dict[str, Any]) -> str:
    """Return a line with the start time, versions, kernel and processor of a run."""
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


def _json_text(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)
