"""Fluid simulation of arriving flows: completion times and slowdowns."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy

from pillarbox.experiments.models.arrays import Bools, Floats, Ints
from pillarbox.experiments.models.arrivals.fluid_events import (
    FluidSimulationResults,
    simulate_fluid_flows,
)
from pillarbox.experiments.models.fluid.directed_links import (
    Routes,
    cabled_links,
    link_count,
    link_factors,
    link_rates_bps,
    path_minima,
)
from pillarbox.experiments.models.fluid.ideal import header_bytes, header_efficiency
from pillarbox.experiments.models.simulator.paths import routes, routing_by_name
from pillarbox.experiments.models.workloads.arrivals import Arrivals, Window
from pillarbox.experiments.models.workloads.sizes import CLASSES
from pillarbox.hosts.base.algorithms import algorithms
from pillarbox.topos.base.errors import require
from pillarbox.topos.base.topology import Topology

RANDOM, LEAST_CROWDED = "random", "least-crowded"
CHOICES = (RANDOM, LEAST_CROWDED)
# Quantiles of slowdowns in tables.
QUANTILES = {"median": 0.5, "p95": 0.95, "p99": 0.99, "p999": 0.999}
SAMPLE = 100_000  # number of pairs from which the mean path length is computed


class WindowLoads(NamedTuple):
    """Offered and delivered load within a window, as fractions of capacity."""

    offered: float  # load of the flows that start in the window, divided by all cables' capacity
    carried: float  # load that all flows deliver in the window, divided by all cables' capacity
    busiest: float  # highest offered load of any link, relative to its capacity
    servers: float  # offered load relative to the capacity of all servers' ports
    active_before: int  # number of active flows at the start of the measured window
    # number of active flows at the window's end: many more mean an overloaded network
    active_after: int


class ArrivalSimulation(NamedTuple):
    """Result of a simulation of arriving flows: each flow's path, times and slowdown."""

    arrivals: Arrivals
    window: Window
    routes: Routes  # links of the path that each flow took
    course: FluidSimulationResults
    slowdown: Floats  # completion time / completion time in an idle network; NaN without a path
    loads: WindowLoads

    @property
    def counts(self) -> Bools:
        """Mask of the arriving flows that start within the measured window."""
        start_s = self.arrivals.start_s
        found: Bools = (start_s >= self.window.from_s) & (start_s < self.window.until_s)
        return found


def goodput_bps(topology: Topology, routing: str, rate_bps: float, mtu: int = 1500) -> float:
    """Return the goodput of a cable for full frames with the routing's headers.

    >>> from pillarbox import topos
    >>> round(goodput_bps(topos.parse("bcube,4,1"), "parallel", 1e9) / 1e6, 1)
    934.2
    """
    return rate_bps * header_efficiency(routing_header_bytes(topology, routing), mtu)


def routing_header_bytes(topology: Topology, routing: str) -> int:
    """Return the number of header bytes that a routing adds to each packet.

    A set of paths that is not a routing counts as the routing with the largest header.
    """
    names = [routing] if routing in algorithms(topology) else algorithms(topology)
    return max(header_bytes(topology, name) for name in names)


def cable_capacity_bps(
    topology: Topology, routing: str, pairs: tuple[Ints, Ints], cable_bps: float
) -> float:
    """Return the total goodput of flows between these server pairs when all cables are full.

    A flow fills as many links as its path has, so this is all links' capacity divided by the mean
    path length. The busiest link may be full much earlier.
    """
    sources, destinations = (ends[:SAMPLE] for ends in pairs)
    found = routes(
        topology, routing, sources, destinations, random_path_numbers(topology, routing, sources, 0)
    )
    mean = len(found.links) / max(1, int((numpy.diff(found.starts) > 0).sum()))
    return total_rate(topology, cabled_links(topology)) * cable_bps / max(mean, 1.0)


def total_rate(topology: Topology, links: Ints) -> float:
    """Return the sum of the links' rates, in units of the network's rate."""
    rates = topology.factors.rates
    return float(link_factors(topology, rates)[links].sum()) if rates else len(links)


def simulate(
    topology: Topology,
    routing: str,
    arrivals: Arrivals,
    window: Window,
    cable_bps: float,
    *,
    choice: str = RANDOM,
    seed: int = 1,
    records_limits: bool = False,
) -> ArrivalSimulation:
    """Simulate arriving flows as fluids, each on a path of its routing.

    Parameters
    ----------
    topology : Topology
        The network.
    routing : str
        Name of the routing (see `pillarbox.experiments.models.simulator.paths`), empty for the
        first one.
    arrivals : Arrivals
        The flows.
    window : Window
        Interval in which the measured flows start.
    cable_bps : float
        Goodput of a cable in each direction (`goodput_bps`); levels of cables may multiply it.
    choice : str
        Choice of a path where a pair has several: a random one for each flow, as hashing does, or
        the one whose fullest link has the fewest flows at the flow's start, as ideal probing does.
    seed : int
        Seed of the random choices.
    records_limits : bool
        Whether the course has the links that limit flows (`FluidSimulationResults.limits`).

    Examples
    --------
    >>> from pillarbox import topos
    >>> columns = (numpy.array(column) for column in ([0.0, 0.0], [0, 1], [3, 3], [1000, 3000]))
    >>> tree = topos.parse("tree,2,2")
    >>> found = simulate(tree, "", Arrivals(*columns), Window(0.0, 1.0), 8000.0)
    >>> found.course.end_s.tolist(), found.slowdown.round(3).tolist()
    ([2.0, 4.0], [2.0, 1.333])
    """
    require(choice in CHOICES, f"a path is chosen {' or '.join(CHOICES)}, not {choice!r}")
    flows, paths = len(arrivals.start_s), routing_by_name(topology, routing).choices(topology)
    several = paths if choice == LEAST_CROWDED else 1
    sources, destinations = (numpy.repeat(ends, several) for ends in arrivals[1:3])
    if several > 1:
        numbers = numpy.tile(numpy.arange(several), flows)
    else:
        numbers = random_path_numbers(topology, routing, arrivals.source, seed)
    found = routes(topology, routing, sources, destinations, numbers)
    return simulate_on_paths(
        topology,
        arrivals,
        window,
        found,
        cable_bps,
        choices=several,
        records_limits=records_limits,
    )


def simulate_on_paths(
    topology: Topology,
    arrivals: Arrivals,
    window: Window,
    paths: Routes,
    cable_bps: float,
    *,
    choices: int = 1,
    records_limits: bool = False,
) -> ArrivalSimulation:
    """Simulate arriving flows as fluids on given paths (see `simulate_fluid_flows`)."""
    volume_bits: Floats = numpy.multiply(arrivals.volume_bytes, 8.0, dtype=numpy.float64)
    capacity = numpy.full(link_count(topology), link_rates_bps(topology, cable_bps))
    moments: Floats = numpy.array([window.from_s, window.until_s], numpy.float64)
    done = simulate_fluid_flows(
        paths,
        arrivals.start_s,
        volume_bits,
        capacity,
        choices=choices,
        moments_s=moments,
        records_limits=records_limits,
    )
    taken = paths
    if choices > 1:
        chosen = numpy.arange(len(done.path)) * choices + done.path
        taken = paths.rows(chosen)
        if records_limits:
            limits = Routes(paths.starts, done.limits).rows(chosen).links
            done = done._replace(limits=limits)
    slowdown = (done.end_s - arrivals.start_s) * cable_bps / volume_bits
    if topology.factors.rates:
        slowdown *= path_minima(taken, link_factors(topology, topology.factors.rates))
    found = ArrivalSimulation(arrivals, window, taken, done, slowdown, _NO_LOADS)
    return found._replace(loads=window_loads(topology, found, cable_bps))


_NO_LOADS = WindowLoads(0.0, 0.0, 0.0, 0.0, 0, 0)


def random_path_numbers(topology: Topology, routing: str, sources: Ints, seed: int) -> Ints:
    """Return the number of each flow's path, drawn at random as if chosen by hashing."""
    count = routing_by_name(topology, routing).choices(topology)
    return numpy.random.default_rng([seed, count]).integers(0, count, len(sources))


def window_loads(topology: Topology, found: ArrivalSimulation, cable_bps: float) -> WindowLoads:
    """Return the offered and delivered load within the window, for cables of this goodput.

    Levels of cables may multiply the goodput.
    """
    lengths = numpy.diff(found.routes.starts)
    asked = numpy.where(found.counts, found.arrivals.volume_bytes * 8.0, 0.0)
    on_links = numpy.bincount(
        found.routes.links, numpy.repeat(asked, lengths), link_count(topology)
    )
    lasting = found.window.lasting_s * cable_bps
    links = cabled_links(topology)
    cables = total_rate(topology, links)
    ports = total_rate(topology, links[links < topology.servers * topology.ports])
    busiest = on_links / link_rates_bps(topology, 1.0)
    total = float(asked[lengths > 0].sum())
    before, after = found.course.delivered_bits.tolist()
    # Delivered bits are of all flows; on cables they count times the mean path length.
    mean = float(on_links.sum()) / total if total else 0.0
    active_before, active_after = found.course.active.tolist()
    return WindowLoads(
        offered=float(on_links.sum()) / (lasting * cables),
        carried=(after - before) * mean / (lasting * cables),
        busiest=float(busiest.max(initial=0.0)) / lasting,
        servers=total / (lasting * ports),
        active_before=active_before,
        active_after=active_after,
    )


def slowdown_rows_by_size(volume_bytes: Ints, slowdown: Floats) -> list[dict[str, Any]]:
    """Return a table of flow slowdowns: a row per flow size class, and a row for all flows.

    A flow without a slowdown is lost: it has no path.

    >>> slowdown = numpy.array([1.0, 3.0, numpy.nan])
    >>> rows = slowdown_rows_by_size(numpy.array([100, 200, 5_000_000]), slowdown)
    >>> [(row["sizes"], row["flows"], row["lost"], row["median"]) for row in rows]
    [('below 10 kB', 2, 0, 2.0), ('1-10 MB', 1, 1, None), ('all', 3, 1, 2.0)]
    """
    rows = []
    for name, (least, below) in CLASSES.items():
        inside = slowdown[(volume_bytes >= least) & (volume_bytes < below)]
        if not len(inside):
            continue
        known = inside[~numpy.isnan(inside)]
        values: list[float | None] = [None] * len(QUANTILES)
        if len(known):
            values = list(map(float, numpy.quantile(known, tuple(QUANTILES.values()))))
        row = {"sizes": name, "flows": len(inside), "lost": len(inside) - len(known)}
        row |= {"mean": float(known.mean()) if len(known) else None}
        rows.append(row | dict(zip(QUANTILES, values, strict=True)))
    return rows


def group_completion_s(group: Ints, end_s: Floats, start_s: Floats) -> Floats:
    """Return the time from the first start to the last end of each group of flows.

    Groups (a shuffle, a request, a job) are numbered from 0; a group with a flow that never ends
    has a missing time (NaN).

    >>> group, starts = numpy.array([0, 1, 0]), numpy.array([1.0, 1.0, 2.0])
    >>> group_completion_s(group, numpy.array([3.0, 2.0, 4.0]), starts).tolist()
    [3.0, 1.0]
    """
    count = int(group.max(initial=-1)) + 1
    first, last = numpy.full(count, numpy.inf), numpy.full(count, -numpy.inf)
    numpy.minimum.at(first, group, start_s)
    numpy.maximum.at(last, group, numpy.nan_to_num(end_s, nan=numpy.inf))
    last[numpy.isinf(last)] = numpy.nan
    took: Floats = last - first
    return took
