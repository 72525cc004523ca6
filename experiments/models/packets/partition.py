"""Division of a network into parts, each simulated by a thread (see `windows`).

A part has servers with consecutive numbers, the links that leave these servers, and the links to
them from switches. Neighbours have close numbers, which limits the packets that change from one
part to another. All parts have the same number of packets on their links.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy

from pillarbox.experiments.base.processes import idle_processors
from pillarbox.experiments.models.arrays import Floats, Ints, Records
from pillarbox.experiments.models.fluid.directed_links import Routes, link_at, link_count
from pillarbox.experiments.models.packets.simulation_state import (
    LINK_SHIFT,
    MOST_LINKS,
    MOST_PARTS,
    FrameParameters,
)
from pillarbox.experiments.models.packets.state import Link
from pillarbox.topos.base.errors import require
from pillarbox.topos.base.topology import Topology

# Least number of packets per window, at the full rate of all used links, divided by the square of
# the number of parts: in shorter windows threads wait longer for one another than parts save time.
# The square, because each part reads the reports of all parts.
LEAST_IN_WINDOW = 3.5
LONGEST_S = 1e-2  # longest window in simulated seconds: an interrupt takes effect between windows
ROUNDING = 1e-3  # fraction by which the lookahead is shortened: times are rounded
# The floating-point spacing of times is at most this fraction of the shortening, up to this time
# after the start of the last flow.
SPACING, EXACT_S = 1 / 8, 100.0
LEAST_PACKETS = 100_000  # least number of packets, counted on each link of their paths


class Partition(NamedTuple):
    """Parts of a network, and the paths of all flows, then their return paths."""

    parts: int
    of_flow: Ints  # part that sends each flow's data
    paths: Ints  # entries of all paths: see `simulation_state.entry_link`
    lookahead_s: float  # shortest time from a packet's enqueueing to its arrival in another part


def divide(
    topology: Topology,
    directions: tuple[Routes, Routes],
    segments: Ints,
    latest_s: float,
    links: Records[Link],
    frames: FrameParameters,
    parts: int,
) -> Partition:
    """Divide a network into parts of equal load.

    Parameters
    ----------
    topology : Topology
        The network.
    directions : tuple
        The flows' paths, and their return paths.
    segments : array
        Number of segments of each flow.
    latest_s : float
        Start time of the last flow.
    links : records
        All links, with their rates and delays.
    frames : FrameParameters
        Sizes of frames.
    parts : int
        Number of parts; 0 for one per idle processor, if windows have enough packets for that. If
        there is no lookahead, the result has a single part.
    """
    require(
        len(links) < MOST_LINKS,
        f"{topology.spec} has {len(links):,} links, too many for the packet simulation: at most "
        f"{MOST_LINKS:,} are possible",
    )
    require(
        0 <= parts <= MOST_PARTS,
        f"a simulated network has 1 to {MOST_PARTS} parts (0: one per idle processor), not {parts}",
    )
    forth, back = directions
    on_paths = numpy.concatenate([forth.links, back.links]).astype(numpy.int64)
    starts = numpy.concatenate([forth.starts[:-1], len(forth.links) + back.starts])
    load = numpy.bincount(
        on_paths, numpy.repeat(numpy.tile(segments, 2), numpy.diff(starts)), len(links)
    ).astype(numpy.float64)
    has_paths = (numpy.diff(forth.starts) > 0) & (numpy.diff(back.starts) > 0)
    first, first_back = (firsts[has_paths] for firsts in numpy.split(starts[:-1], 2))
    last, last_back = (ends[has_paths] - 1 for ends in numpy.split(starts[1:], 2))
    positions = _link_positions(topology, len(links))
    chosen = parts
    if not parts:
        chosen = min(idle_processors(), MOST_PARTS) if load.sum() >= LEAST_PACKETS else 1
    while True:
        of_link = _parts_of_links(positions, load, chosen)
        # Part at the end of each link: that of the next link, or of the first link back.
        to = numpy.zeros_like(on_paths)
        to[:-1] = of_link[on_paths[1:]]
        to[last], to[last_back] = of_link[on_paths[first_back]], of_link[on_paths[first]]
        lookahead_s = _lookahead_s(links, on_paths[to != of_link[on_paths]], latest_s, frames)
        in_window = lookahead_s * _packets_per_s(links, load, frames)
        if chosen == 1 or (in_window > 0 if parts else in_window >= LEAST_IN_WINDOW * chosen**2):
            break
        most = 1 if parts else int(math.sqrt(in_window / LEAST_IN_WINDOW))
        chosen = max(min(chosen - 1, most), 1)
    entries = on_paths << LINK_SHIFT | to << 1
    entries[last] |= 1
    entries[last_back] |= 1
    of_flow = numpy.zeros(forth.flows, numpy.int64)
    of_flow[has_paths] = of_link[on_paths[first]]
    return Partition(chosen, of_flow, entries.astype(numpy.int32), lookahead_s)


def _parts_of_links(positions: Floats, load: Floats, parts: int) -> Ints:
    """Return the part of each link, such that all parts have the same load."""
    order = numpy.argsort(positions, kind="stable")
    order = order[load[order] > 0]
    if not len(order):
        return numpy.zeros(len(positions), numpy.int64)
    middle = numpy.cumsum(load[order]) - load[order] / 2
    bounds = numpy.searchsorted(middle, load.sum() * numpy.arange(1, parts) / parts)
    # Links of a server, and those to it from switches, have the same position.
    limits = positions[order[numpy.minimum(bounds, len(order) - 1)]]
    return numpy.searchsorted(limits, positions, side="right")


def _link_positions(topology: Topology, links: int) -> Floats:
    """Return each link's position on a line: that of its end which is closer to servers.

    The position of a server is its number, that of a switch the mean of its neighbours'. Between
    equal ends, the position is that of the end that sends.
    """
    cables = topology.cable_arrays()
    near = numpy.concatenate([cables.a, cables.b]).astype(numpy.int64)
    far = numpy.concatenate([cables.b, cables.a]).astype(numpy.int64)
    port = numpy.concatenate([cables.a_port, cables.b_port])
    nodes = topology.servers + topology.switches
    position, tier = numpy.arange(nodes, dtype=numpy.float64), numpy.zeros(nodes, numpy.int64)
    tier[topology.servers :] = nodes  # a placeholder: the tier is unknown
    for hops in range(1, nodes):
        outward = (tier[near] == nodes) & (tier[far] == hops - 1)
        if not outward.any():
            break
        count = numpy.bincount(near[outward], minlength=nodes)
        total = numpy.bincount(near[outward], position[far[outward]], nodes)
        position[count > 0] = total[count > 0] / count[count > 0]
        tier[count > 0] = hops
    closer = numpy.where(tier[far] < tier[near], far, near)
    found = numpy.zeros(links)
    found[link_at(topology, near, port)] = position[closer]
    found[link_count(topology) :] = numpy.arange(links - link_count(topology))  # processors
    return found


def _lookahead_s(
    links: Records[Link], crossed: Ints, latest_s: float, frames: FrameParameters
) -> float:
    """Return the shortest time of a packet on these links, less ROUNDING; 0 if times are too late.

    A packet in a burst takes no time to send. Late times are too coarse for short windows.
    """
    at = numpy.unique(crossed)
    ack_s = frames.overhead * links["byte_s"][at] + links["packet_s"][at]
    least_s = numpy.where(links["owed_s"][at] > 0, 0.0, ack_s) + links["delay_s"][at]
    shortest_s = float(least_s.min(initial=LONGEST_S))
    if numpy.spacing(latest_s + EXACT_S) > SPACING * ROUNDING * shortest_s:
        return 0.0
    return shortest_s * (1 - ROUNDING)


def _packets_per_s(links: Records[Link], load: Floats, frames: FrameParameters) -> float:
    """Return the number of full segments that all used links can send per second."""
    used = numpy.flatnonzero(load)
    size = frames.overhead + frames.segment
    return float((1 / (size * links["byte_s"][used] + links["packet_s"][used])).sum())
