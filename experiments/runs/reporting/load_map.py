"""Load maps: a run's network, drawn as in its paper, with cables coloured by load."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from pillarbox.experiments.runs.reporting import style
from pillarbox.experiments.runs.reporting.drawing.drawing_files import MOST_SERVERS
from pillarbox.experiments.runs.reporting.drawing.network_figure import LegendEntry, topology_figure
from pillarbox.topos.base.topology import Cable, Topology

STEPS = (0.2, 0.4, 0.6, 0.8)  # load thresholds between cable colours, as shares of the link rate
UNUSED = "#CCCCCC"  # colour of an idle cable
THIN, THICK = 0.8, 3.2  # line widths of an idle and of a fully loaded cable, in points


def network_figure(topology: Topology, loads: pd.DataFrame) -> Figure | None:
    """Return a network drawing whose cables are coloured by load, None if it is too large.

    `loads` are the link loads of one system (see series.link_loads). A cable shows the load of its
    busier direction.
    """
    if topology.servers > MOST_SERVERS or loads.empty:
        return None
    by_port = {
        (topology.node(start), int(port)): float(load)
        for start, port, load in zip(loads["from"], loads["port"], loads["load"], strict=True)
    }

    def load_of(cable: Cable) -> float:
        ends = ((cable.a, cable.a_port), (cable.b, cable.b_port))
        return max(by_port.get(end, 0.0) for end in ends)

    return topology_figure(
        topology,
        title=False,
        width_of=lambda cable: width_at(load_of(cable)),
        colour_of=lambda cable: colour_at(load_of(cable)),
        legend=legend(),
    )


def colour_at(load: float) -> str:
    """Return the colour of a cable's load, which is a share of the link rate."""
    if load <= 0:
        return UNUSED
    return style.RAMP[sum(load >= step for step in STEPS)]


def width_at(load: float) -> float:
    """Return the line width of a cable with a given load, in points."""
    return THIN + (THICK - THIN) * min(max(load, 0.0), 1.0)


def legend() -> list[LegendEntry]:
    """Return the legend of a network's load map: the load range of each cable colour."""
    edges = (0.0, *STEPS, 1.0)
    return [
        LegendEntry(
            f"{low * 100:.0f} to {high * 100:.0f} %", colour, width=width_at((low + high) / 2)
        )
        for low, high, colour in zip(edges, edges[1:], style.RAMP, strict=False)
    ]
