"""Flows that arrive in a network, simulated: how long each takes, and how long alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy
from numpy.typing import NDArray

from experiments.analysis.arrivals.engine import Course, course
from experiments.analysis.fluid.ideal import header_bytes, header_efficiency
from experiments.analysis.fluid.links import Routes, cabled_links, link_count
from experiments.analysis.simulator.paths import choose, routes
from experiments.traffic.arrivals import Arrivals, Window
from experiments.traffic.sizes import CLASSES
from hosts.base.algorithms import algorithms
from topos.base.errors import require
from topos.base.topology import Topology

if TYPE_CHECKING:
    Floats = NDArray[numpy.float64]
    Bools = NDArray[numpy.bool_]

RANDOM, LEAST_CROWDED = "random", "least-crowded"
CHOICES = (RANDOM, LEAST_CROWDED)
SAMPLE = 100_000  # pairs, of which the mean length of paths is taken


class Loads(NamedTuple):
    """What flows ask for and what is delivered within a window, as shares."""

    offered: float  # of all cables' capacity, by the flows that begin within it
    carried: float  # by what is delivered within it, of these flows and others
    busiest: float  # of the link for which most is offered
    servers: float  # of the servers' ports: what is offered
    active_before: int  # flows under way at the window's beginning
    active_after: int  # and at its end: many more, and the network is overloaded


class Simulated(NamedTuple):
    """What became of flows that arrived."""

    arrivals: Arrivals
    window: Window
    routes: Routes  # the links of the path that each flow took
    course: Course
    slowdown: Floats  # completion time over that of the flow alone; missing without a path
    loads: Loads

    @property
    def counts(self) -> Bools:
        """Which flows begin within the window."""
        start_s = self.arrivals.start_s
        found: Bools = (start_s >= self.window.from_s) & (start_s < self.window.until_s)
        return found


def goodput_bps(topology: Topology, routing: str, rate_bps: float, mtu: int = 1500) -> float:
    """Return what a cable of that rate delivers, when full frames carry the routing's headers.

    >>> import topos
    >>> round(goodput_bps(topos.parse("bcube,4,1"), "parallel", 1e9) / 1e6, 1)
    934.2
    """
    return rate_bps * header_efficiency(header_of(topology, routing), mtu)


def header_of(topology: Topology, routing: str) -> int:
    """Return how many bytes a routing puts before each packet.

    A set of paths that is no routing by itself counts as the one with the largest header.
    """
    names = [routing] if routing in algorithms(topology) else algorithms(topology)
    return max(header_bytes(topology, name) for name in names)


def cable_capacity_bps(
    topology: Topology, routing: str, pairs: tuple[Any, Any], cable_bps: float
) -> float:
    """Return what flows between such pairs deliver together when all cables are full, on average.

    A flow fills as many links as its path has, so this is all links' capacity over the mean length
    of a path. The busiest link may be full long before.
    """
    sources, destinations = (ends[:SAMPLE] for ends in pairs)
    found = routes(
        topology, routing, sources, destinations, drawn_paths(topology, routing, sources, 0)
    )
    mean = len(found.links) / max(1, int((numpy.diff(found.starts) > 0).sum()))
    return len(cabled_links(topology)) * cable_bps / max(mean, 1.0)


def simulate(
    topology: Topology,
    routing: str,
    arrivals: Arrivals,
    window: Window,
    cable_bps: float,
    *,
    choice: str = RANDOM,
    seed: int = 1,
) -> Simulated:
    """Return what becomes of flows, each on a path of its routing.

    Parameters
    ----------
    topology : Topology
        The network.
    routing : str
        As `experiments.analysis.simulator.paths` knows them, empty for the first.
    arrivals : Arrivals
        The flows.
    window : Window
        When those that count begin.
    cable_bps : float
        What a cable delivers in each direction (`goodput_bps`).
    choice : str
        Where a pair has several paths: a random one for each flow, as hashing does, or that whose
        fullest link has the fewest flows when the flow begins, as probing does at its best.
    seed : int
        Of the random ones.

    Examples
    --------
    >>> import topos
    >>> columns = (numpy.array(column) for column in ([0.0, 0.0], [0, 1], [3, 3], [1000, 3000]))
    >>> tree = topos.parse("tree,2,2")
    >>> found = simulate(tree, "", Arrivals(*columns), Window(0.0, 1.0), 8000.0)
    >>> found.course.end_s.tolist(), found.slowdown.round(3).tolist()
    ([2.0, 4.0], [2.0, 1.333])
    """
    require(choice in CHOICES, f"a path is chosen {' or '.join(CHOICES)}, not {choice!r}")
    flows, paths = len(arrivals.start_s), choose(topology, routing).choices(topology)
    several = paths if choice == LEAST_CROWDED else 1
    sources, destinations = (numpy.repeat(ends, several) for ends in arrivals[1:3])
    if several > 1:
        numbers = numpy.tile(numpy.arange(several), flows)
    else:
        numbers = drawn_paths(topology, routing, arrivals.source, seed)
    found = routes(topology, routing, sources, destinations, numbers)
    return over_routes(topology, arrivals, window, found, cable_bps, choices=several)


def over_routes(
    topology: Topology,
    arrivals: Arrivals,
    window: Window,
    paths: Routes,
    cable_bps: float,
    *,
    choices: int = 1,
) -> Simulated:
    """Return the same for flows on paths that are given: see `course`."""
    volume_bits: Floats = numpy.multiply(arrivals.volume_bytes, 8.0, dtype=numpy.float64)
    capacity = numpy.full(link_count(topology), cable_bps)
    moments: Floats = numpy.array([window.from_s, window.until_s], numpy.float64)
    done = course(
        paths,
        arrivals.start_s,
        volume_bits,
        capacity,
        choices=choices,
        moments_s=moments,
    )
    taken = _taken(paths, done.path, choices)
    slowdown = (done.end_s - arrivals.start_s) * cable_bps / volume_bits
    found = Simulated(arrivals, window, taken, done, slowdown, _NO_LOADS)
    return found._replace(loads=loads_of(topology, found, cable_bps))


_NO_LOADS = Loads(0.0, 0.0, 0.0, 0.0, 0, 0)


def drawn_paths(topology: Topology, routing: str, sources: Any, seed: int) -> Any:
    """Return the number of a random path for each flow, as hashing chooses."""
    count = choose(topology, routing).choices(topology)
    return numpy.random.default_rng([seed, count]).integers(0, count, len(sources))


def _taken(paths: Routes, path: Any, choices: int) -> Routes:
    """Return the links of the paths that flows took, of those that they had."""
    if choices == 1:
        return paths
    rows = numpy.arange(len(path)) * choices + path
    counts = numpy.diff(paths.starts)[rows]
    starts = numpy.concatenate([[0], numpy.cumsum(counts)])
    offset = numpy.repeat(paths.starts[rows] - starts[:-1], counts)
    return Routes(starts, paths.links[numpy.arange(starts[-1]) + offset])


def loads_of(topology: Topology, found: Simulated, cable_bps: float) -> Loads:
    """Return the loads within the window, of cables that deliver so much."""
    lengths = numpy.diff(found.routes.starts)
    asked = numpy.where(found.counts, found.arrivals.volume_bytes * 8.0, 0.0)
    on_links = numpy.bincount(
        found.routes.links, numpy.repeat(asked, lengths), link_count(topology)
    )
    lasting = found.window.lasting_s * cable_bps
    links = cabled_links(topology)
    ports = int((links < topology.servers * topology.ports).sum())
    total = float(asked[lengths > 0].sum())
    before, after = found.course.delivered_bits.tolist()
    # Delivered bits are of flows of any length; on cables, of flows that are as long on average.
    mean = float(on_links.sum()) / total if total else 0.0
    active_before, active_after = found.course.active.tolist()
    return Loads(
        offered=float(on_links.sum()) / (lasting * len(links)),
        carried=(after - before) * mean / (lasting * len(links)),
        busiest=float(on_links.max(initial=0.0)) / lasting,
        servers=total / (lasting * ports),
        active_before=active_before,
        active_after=active_after,
    )


def by_size(volume_bytes: Any, slowdown: Any) -> list[dict[str, Any]]:
    """Return a row for each class of sizes that some flow is of, and one for all.

    A flow without a slowdown is lost: it has no path.

    >>> rows = by_size(numpy.array([100, 200, 5_000_000]), numpy.array([1.0, 3.0, numpy.nan]))
    >>> [(row["sizes"], row["flows"], row["lost"], row["median"]) for row in rows]
    [('below 10 kB', 2, 0, 2.0), ('1-10 MB', 1, 1, None), ('all', 3, 1, 2.0)]
    """
    rows = []
    for name, (least, below) in CLASSES.items():
        inside = slowdown[(volume_bytes >= least) & (volume_bytes < below)]
        if not len(inside):
            continue
        known = inside[~numpy.isnan(inside)]
        values: list[float | None] = [None] * 4
        if len(known):
            values = [float(known.mean()), *map(float, numpy.quantile(known, (0.5, 0.95, 0.99)))]
        row = {"sizes": name, "flows": len(inside), "lost": len(inside) - len(known)}
        rows.append(row | dict(zip(("mean", "median", "p95", "p99"), values, strict=True)))
    return rows


def last_of_groups(group: Any, end_s: Any, start_s: Any) -> Floats:
    """Return how long each group of flows takes, from its first start to its last end.

    Groups (of a shuffle, a request, a job) are numbers from 0; one of which a flow never ends takes
    a missing time.

    >>> group, starts = numpy.array([0, 1, 0]), numpy.array([1.0, 1.0, 2.0])
    >>> last_of_groups(group, numpy.array([3.0, 2.0, 4.0]), starts).tolist()
    [3.0, 1.0]
    """
    count = int(group.max(initial=-1)) + 1
    first, last = numpy.full(count, numpy.inf), numpy.full(count, -numpy.inf)
    numpy.minimum.at(first, group, start_s)
    numpy.maximum.at(last, group, numpy.nan_to_num(end_s, nan=numpy.inf))
    last[numpy.isinf(last)] = numpy.nan
    took: Floats = last - first
    return took
