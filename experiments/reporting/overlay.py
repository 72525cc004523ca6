"""Live and simulated flows of one run, laid over one another.

Each trial's flows are simulated again: the same sizes at the same moments, on the paths that their
servers chose, over cables of the same rate. Both times are told in the same unit, what the flow
would take alone. So where the two differ, it is by what fluids do not have: queues, slow start,
acknowledgements, and a machine that falls behind.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy
import pandas

from experiments.analysis.arrivals.engine import course
from experiments.analysis.arrivals.simulated import by_size, goodput_bps
from experiments.analysis.fluid.links import link_count, routes_of
from experiments.reporting import style
from experiments.reporting.drawing.files import FORMATS, rendered
from experiments.trials.loading import experiment_of
from experiments.trials.plans.experiment import System
from experiments.trials.runs.paths import path_of
from experiments.trials.runs.records import Run
from topos.base.errors import require
from topos.base.spec import parse

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COMPLETED = "completed"
PANEL = 1.9  # inches


def overlaid(run: Run) -> pandas.DataFrame:
    """Return a row for each flow that counts and that both ended: its slowdown, live and simulated.

    Raises PillarboxError for a run whose flows are not ones that fluids can repeat.
    """
    experiment = experiment_of(run.manifest["plan"])
    systems = {system.name: system for system in experiment.systems}
    require(
        not experiment.faults,
        f"{experiment.name} has faults, and a simulation has none: choose a run without",
    )
    parts = []
    for record in run.records:
        flows = run.flows[run.flows["trial"] == record["trial"]]
        if record["status"] == COMPLETED and len(flows):
            parts.append(_trial(systems[record["system"]], str(record["routing"]), flows))
    require(bool(parts), f"{run.folder} has no trial that came to its end")
    return pandas.concat(parts, ignore_index=True)


def _trial(system: System, routing: str, flows: pandas.DataFrame) -> pandas.DataFrame:
    require(
        bool(flows["volume_bytes"].notna().all()),
        f"flows of {system.name} have a duration and no volume: choose a run whose flows end",
    )
    require(
        system.rate_mbit is not None,
        f"the cables of {system.name} have no rate, which a simulation needs",
    )
    assert system.rate_mbit is not None
    topology = parse(system.network)
    known = [path_of(topology, text.split()) for text in flows["path"].fillna("")]
    paths = routes_of(topology, known)
    bps = goodput_bps(topology, routing, system.rate_mbit * 1e6, system.mtu)
    bits = flows["volume_bytes"].to_numpy(numpy.float64) * 8
    start_s = flows["start_s"].to_numpy(numpy.float64)
    ended_s = course(paths, start_s, bits, numpy.full(link_count(topology), bps)).end_s
    # Records of flows that arrive say what each takes alone, frames, bursts and delays included.
    alone_s = flows["alone_s"].to_numpy(numpy.float64) if "alone_s" in flows else bits / bps
    found = pandas.DataFrame(
        {
            "system": system.name,
            "trial": flows["trial"],
            "valid": flows["valid"],
            "volume_bytes": flows["volume_bytes"],
            "live": (flows["end_s"] - start_s) / alone_s,
            # Alone a flow may be faster than a fluid: a port at rest lets a burst pass at once.
            "simulated": numpy.maximum((ended_s - start_s) / alone_s, 1.0),
        }
    )
    counts = flows["measured"].fillna(False) if "measured" in flows else True
    return found[(flows["status"] == COMPLETED) & found["simulated"].notna() & counts]


def class_rows(flows: pandas.DataFrame) -> list[dict[str, Any]]:
    """Return a row for each system and class of sizes, with quantiles of both, side by side."""
    rows = []
    for system, own in flows.groupby("system", sort=False):
        volume = own["volume_bytes"].to_numpy(numpy.float64)
        live, simulated = (by_size(volume, own[name].to_numpy()) for name in ("live", "simulated"))
        for one, other in zip(live, simulated, strict=True):
            row = {"system": system, "sizes": one["sizes"], "flows": one["flows"]}
            for name in ("median", "p95", "p99"):
                row |= {f"{name} live": one[name], "simulated " + name: other[name]}
            rows.append(row)
    return rows


def overlay_figure(flows: pandas.DataFrame) -> Figure:
    """Draw which share of the flows is how slow at most, live and simulated, by system."""
    from matplotlib.figure import Figure

    systems = list(dict.fromkeys(flows["system"]))
    with style.looks():
        figure = Figure(
            figsize=(style.WIDTH, max(PANEL * len(systems) + 0.7, style.HEIGHT)),
            layout="constrained",
        )
        panels = figure.subplots(len(systems), 1, squeeze=False, sharex=True, sharey=True)[:, 0]
        for index, (axes, system) in enumerate(zip(panels, systems, strict=True)):
            _panel(axes, index, flows[flows["system"] == system], system)
        panels[-1].set_xlabel("slowdown: time over that of the flow alone")
        style.log_axis(panels[-1], "x")
        return figure


def _panel(axes: Axes, index: int, flows: pandas.DataFrame, system: str) -> None:
    entries = {}
    for name, dashes in (("live", "-"), ("simulated", style.IDEAL)):
        values = numpy.sort(flows[name].to_numpy())
        shares = numpy.arange(1, len(values) + 1) / len(values)
        (entries[name],) = axes.plot(
            values, shares, color=style.colour_of(index), linestyle=dashes, drawstyle="steps-post"
        )
    valid = bool(flows["valid"].all())
    axes.set_title(style.shown(system) + ("" if valid else " (invalid)"))
    axes.set_ylabel("share of flows")
    axes.set_ylim(0, 1.02)
    style.legend_outside(axes, entries)


def write_figure(figure: Figure, file: Path) -> None:
    """Write a figure as an SVG or PNG, by the file's ending."""
    from experiments.files import write_atomically

    check_file(file)
    write_atomically(file, rendered(figure, file.suffix[1:]))


def check_file(file: Path) -> None:
    """Refuse what is no file for a figure."""
    require(
        file.suffix in FORMATS,
        f"a figure is an .svg or a .png file, by its ending, which {file.name!r} does not have",
    )
    require(file.parent.is_dir(), f"{file.parent} is no folder: make it first")
