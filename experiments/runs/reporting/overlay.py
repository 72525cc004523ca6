"""Comparison of live flows of a run with simulations of the same flows.

The flows of each trial are simulated with the same sizes, start times, paths and link rates: in the
fluid model, and with TCP packet by packet at ports with the same queues and bursts. All completion
times are given as slowdowns, relative to the time of the flow alone. Live and fluid slowdowns
differ by queueing, slow start and acknowledgements. Live and simulated TCP differ by the
simplifications of `pillarbox.experiments.models.packets`, and by an overloaded CPU of the live
machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy
import pandas

from pillarbox.experiments.lab.linux.mptcp import MOST_FURTHER
from pillarbox.experiments.lab.linux.queueing import ECN, MARKED_FROM, Queue
from pillarbox.experiments.lab.linux.shaping import (
    QUEUE_PACKETS,
    catch_up_s,
    checked_delay,
    port_mtu,
    queue_bytes,
)
from pillarbox.experiments.models.arrays import Floats, Ints
from pillarbox.experiments.models.arrivals.fluid_events import simulate_fluid_flows
from pillarbox.experiments.models.arrivals.simulated_arrivals import slowdown_rows_by_size
from pillarbox.experiments.models.fluid.directed_links import (
    Routes,
    link_factors,
    path_minima,
    routes_of,
)
from pillarbox.experiments.models.fluid.ideal import ETHERNET_BYTES, header_bytes, header_efficiency
from pillarbox.experiments.models.fluid.unloaded_time import idle_network_completion_s, idle_paths
from pillarbox.experiments.models.packets.congestion import CONTROLS
from pillarbox.experiments.models.packets.simulated_tcp import (
    DEFAULT_CONTROL,
    TcpParameters,
    TcpSimulationResults,
    simulate_tcp_flows,
)
from pillarbox.experiments.models.packets.subflow_paths import SubflowPaths, subflow_paths
from pillarbox.experiments.models.port_bursts import owed_bytes
from pillarbox.experiments.models.simulator.paths import routes, routing_by_name
from pillarbox.experiments.runs.plans.experiment import System
from pillarbox.experiments.runs.reporting import style
from pillarbox.experiments.runs.reporting.drawing.drawing_files import FORMATS, rendered
from pillarbox.experiments.runs.trials.recorded_paths import path_of
from pillarbox.experiments.runs.trials.records import Run
from pillarbox.hosts.wire.source_route import SIZE as SOURCE_ROUTE_BYTES
from pillarbox.topos.base.errors import require
from pillarbox.topos.base.topology import Topology

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COMPLETED = "completed"
KINDS = ("live", "fluid", "tcp")  # slowdown columns: live, fluid model, simulated TCP
LINES = ("-", style.IDEAL, "--")  # line styles for live, fluid model and simulated TCP
PANEL = 1.9  # height of a figure panel, in inches


class RepeatedTrial(NamedTuple):
    """A live trial as input of a simulation: flows, paths both ways, and TCP settings."""

    system: System
    topology: Topology
    seed: int
    flows: pandas.DataFrame
    paths: Routes
    back: Routes
    tcp: TcpParameters
    multipath: SubflowPaths | None  # paths of the flows' subflows; None for TCP

    def simulated(self, start_s: Floats, volume_bytes: Ints, **how: Any) -> TcpSimulationResults:
        """Simulate flows on the trial's paths (`how`: options of `simulate_tcp_flows`)."""
        forth, back, subflows = self.multipath or (self.paths, self.back, None)
        flows = start_s, volume_bytes, self.tcp
        return simulate_tcp_flows(
            self.topology, forth, back, *flows, seed=self.seed, subflows=subflows, **how
        )


def repeated(run: Run) -> Iterator[RepeatedTrial]:
    """Yield each completed live trial of a run as simulator input, with its flows' paths.

    Raises PillarboxError for a run that a simulation cannot repeat.
    """
    experiment = run.plan
    systems = {system.name: system for system in experiment.systems}
    require(
        not experiment.faults,
        f"{experiment.name} has faults, which a simulation cannot repeat: choose a run without any",
    )
    for record in run.records:
        flows = run.flows[run.flows["trial"] == record["trial"]]
        if record["status"] == COMPLETED and len(flows):
            system = systems[record["system"]]
            require(
                system.rate_mbit is not None,
                f"the cables of {system.name} have no rate: choose a run with rate_mbit",
            )
            require(
                system.dilation == 1,
                f"{system.name} is dilated, and a simulation is not: choose a run without --as",
            )
            topology, routing = system.topology, str(record["routing"])
            seed = int(record["seed"])
            paths, back = _forward_and_reverse_paths(topology, routing, flows)
            header, multipath = header_bytes(topology, routing), None
            congestion = system.tcp or experiment.workload.congestion
            tcp = _tcp_settings(system, topology, header, congestion)
            if system.multipath:
                subflows = min(system.subflows or topology.ports, MOST_FURTHER + 1)
                tcp = replace(tcp, header=SOURCE_ROUTE_BYTES, subflows=subflows)
                ends = _ends(topology, flows)
                pairs = zip(*(column.tolist() for column in ends), strict=True)
                multipath = subflow_paths(topology, pairs, subflows)
            yield RepeatedTrial(system, topology, seed, flows, paths, back, tcp, multipath)


def overlaid(run: Run) -> pandas.DataFrame:
    """Return the slowdown of each flow: measured live, in the fluid model, with simulated TCP.

    A flow has a row if it is measured and is completed both live and in the simulations.

    Raises PillarboxError for a run that a simulation cannot repeat.
    """
    parts = list(map(_flow_slowdowns, repeated(run)))
    found = pandas.concat(parts, ignore_index=True) if parts else pandas.DataFrame()
    require(len(found) > 0, f"{run.folder} has no measured, completed flow: choose another run")
    return found


def _flow_slowdowns(trial: RepeatedTrial) -> pandas.DataFrame:
    topology, flows, tcp = trial.topology, trial.flows, trial.tcp
    require(
        bool(flows["volume_bytes"].notna().all()),
        f"flows of {trial.system.name} have a duration and no volume: choose a run whose flows end",
    )
    start_s = flows["start_s"].to_numpy(numpy.float64)
    volume_bytes = flows["volume_bytes"].to_numpy(numpy.int64)
    bps, bits = tcp.rate_bps * header_efficiency(tcp.header, tcp.mtu), volume_bytes * 8.0
    rates = link_factors(topology, topology.factors.rates)
    done = simulate_fluid_flows(trial.paths, start_s, bits, bps * rates)
    sent = trial.simulated(start_s, volume_bytes)
    fluid_s = bits / (bps * path_minima(trial.paths, rates))
    alone_s = idle_network_completion_s(
        volume_bytes,
        idle_paths(topology, trial.paths),
        tcp.rate_bps,
        tcp.mtu,
        tcp.header,
        tcp.delay_s,
    )
    found = pandas.DataFrame(
        {
            "system": trial.system.name,
            "trial": flows["trial"],
            "valid": flows["valid"],
            "volume_bytes": volume_bytes,
            "live": (flows["end_s"] - flows["start_s"]) / alone_s,
            # The fluid model has no hops: a flow takes its ideal time, and its waiting time.
            "fluid": 1 + (done.end_s - start_s - fluid_s) / alone_s,
            "tcp": (sent.end_s - start_s) / alone_s,
        }
    )
    counts = flows["measured"].fillna(value=True) if "measured" in flows else True
    return found[(flows["status"] == COMPLETED) & found["fluid"].notna() & counts]


def _ends(topology: Topology, flows: pandas.DataFrame) -> tuple[Ints, Ints]:
    """Return the numbers of the servers from which and to which flows go."""
    source, destination = (
        numpy.array([topology.server(address) for address in flows[end]], numpy.int64)
        for end in ("source", "destination")
    )
    return source, destination


def _forward_and_reverse_paths(
    topology: Topology, routing: str, flows: pandas.DataFrame
) -> tuple[Routes, Routes]:
    """Return the links of the flows' paths, and of the paths of their acknowledgements.

    If switches choose the paths, the forward paths also follow the routing rules.
    """
    ends = _ends(topology, flows)
    back = routes(topology, routing, *ends[::-1])
    if routing_by_name(topology, routing).walk is None:
        return routes(topology, routing, *ends), back
    known = [path_of(topology, text.split()) for text in flows["path"].fillna("")]
    return routes_of(topology, known), back


def _tcp_settings(
    system: System, topology: Topology, header: int, congestion: str
) -> TcpParameters:
    """Return the TCP and port settings of a lab.

    A queue is simulated as drop-tail, and marks packets if it is `ecn`. A congestion control that
    the simulator does not have is simulated as CUBIC.
    """
    assert system.rate_mbit is not None
    delay = checked_delay(system.delay, None)
    queue, ports_mtu = Queue(length=system.queue_length), port_mtu(system.mtu, topology.ports > 1)
    catch_up, frame_bytes = catch_up_s(system.catch_up), ports_mtu + ETHERNET_BYTES
    rates = [system.rate_mbit * factor for factor in topology.factors.rates]
    return TcpParameters(
        system.rate_mbit * 1e6,
        queue_bytes(system.rate_mbit, QUEUE_PACKETS, frame_bytes, queue),
        system.mtu,
        header,
        delay.delay_s if delay else 0.0,
        owed_bytes(system.rate_mbit, ports_mtu, catch_up),
        congestion=congestion if congestion in CONTROLS else DEFAULT_CONTROL,
        levels_queue_bytes=tuple(
            queue_bytes(rate, QUEUE_PACKETS, frame_bytes, queue) for rate in rates
        ),
        levels_owed_bytes=tuple(owed_bytes(rate, ports_mtu, catch_up) for rate in rates),
        marked_from=MARKED_FROM if system.queue == ECN else 0.0,
    )


def class_rows(flows: pandas.DataFrame) -> list[dict[str, Any]]:
    """Return the mean slowdowns of each system and flow size class, live and simulated."""
    rows = []
    for system, own in flows.groupby("system", sort=False):
        volume = own["volume_bytes"].to_numpy(numpy.float64)
        kinds = [slowdown_rows_by_size(volume, own[kind].to_numpy()) for kind in KINDS]
        for same in zip(*kinds, strict=True):
            row = {"system": system, "sizes": same[0]["sizes"], "flows": same[0]["flows"]}
            rows.append(row | dict(zip(KINDS, same, strict=True)))
    return rows


def overlay_figure(flows: pandas.DataFrame) -> Figure:
    """Draw the distribution of live and simulated slowdowns, with a panel for each system."""
    from matplotlib.figure import Figure

    systems = list(dict.fromkeys(flows["system"]))
    with style.looks():
        figure = Figure(
            figsize=(style.WIDTH, max(PANEL * len(systems) + 0.7, style.HEIGHT)),
            layout="constrained",
        )
        panels = figure.subplots(len(systems), 1, squeeze=False, sharex=True, sharey=True)[:, 0]
        for index, (axes, system) in enumerate(zip(panels, systems, strict=True)):
            _draw_panel(axes, index, flows[flows["system"] == system], system)
        panels[-1].set_xlabel("slowdown: time relative to the time of the flow alone")
        style.log_axis(panels[-1], "x")
        return figure


def _draw_panel(axes: Axes, index: int, flows: pandas.DataFrame, system: str) -> None:
    entries = {}
    for name, dashes in zip(KINDS, LINES, strict=True):
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
    """Write a slowdown figure to an SVG or PNG file, by the file's suffix."""
    from pillarbox.experiments.base.files import write_atomically

    check_file(file)
    write_atomically(file, rendered(figure, file.suffix[1:]))


def check_file(file: Path) -> None:
    """Raise PillarboxError if a figure cannot be written to a file: wrong suffix, no folder."""
    require(
        file.suffix in FORMATS,
        f"{file.name!r} is not a file name of a figure: use the suffix .svg or .png",
    )
    require(file.parent.is_dir(), f"{file.parent} is not a folder: create it first")
