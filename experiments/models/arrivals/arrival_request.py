"""Flows to simulate: random ones for a requested load, or those of a trace."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy

from pillarbox.experiments.models.arrivals.simulated_arrivals import (
    SAMPLE,
    cable_capacity_bps,
    total_rate,
)
from pillarbox.experiments.models.fluid.directed_links import cabled_links
from pillarbox.experiments.models.workloads.arrivals import (
    MOST_OFF,
    Arrivals,
    Window,
    measurement_window,
    poisson_arrivals,
)
from pillarbox.experiments.models.workloads.demand import demand_of, draw_pairs
from pillarbox.experiments.models.workloads.sizes import sizes_of
from pillarbox.experiments.models.workloads.traces import read_trace
from pillarbox.experiments.models.workloads.workload import SERVERS, Workload
from pillarbox.topos.base.errors import require
from pillarbox.topos.base.topology import Topology

CABLES = "cables"
# Phases as fractions of the time during which flows start.
WARM_UP, MEASURED, COOL_DOWN = 0.2, 0.7, 0.1


@dataclass(frozen=True)
class ArrivalRequest:
    """Parameters of the arriving flows to draw at random."""

    topology: Topology
    routing: str
    pattern: str
    sizes: str
    seed: int
    cable_bps: float  # goodput of a cable
    load_of: str = CABLES  # what a load is a share of: the capacity of all cables or servers

    def drawn(self, load: float, count: int, seed: int | None = None) -> tuple[Arrivals, Window]:
        """Return about `count` flows of a load, and the window in which the measured ones start.

        Flows of another seed than the request's have the load of the same capacity.
        """
        sizes, least = sizes_of(self.sizes), self.least_count()
        require(
            count >= least,
            f"the load that {count} flows of {sizes.name} offer is random, because a few flows "
            f"are very large: use at least --count {least}",
        )
        lasting_s = count * sizes.mean_bytes * 8 / (load * self.capacity_bps)
        workload = Workload(
            pattern=self.pattern,
            arrivals="poisson",
            load=load,
            sizes=self.sizes,
            duration_s=MEASURED * lasting_s,
            warm_up_s=WARM_UP * lasting_s,
            cool_down_s=COOL_DOWN * lasting_s,
        )
        seed = self.seed if seed is None else seed
        arrivals = poisson_arrivals(self.topology, workload, seed, self.capacity_bps)
        return arrivals, measurement_window(workload)

    def least_count(self) -> int:
        """Return the number of flows from which their load is close to the requested one."""
        sizes = sizes_of(self.sizes)
        return math.ceil(sizes.most_bytes / 2 / sizes.mean_bytes / MEASURED / MOST_OFF)

    def count_in_time_of(self, other: ArrivalRequest, count: int) -> int:
        """Return the number of flows in the time of `count` flows of another network.

        The load is the same; the result is at least `least_count`.
        """
        share = self.capacity_bps / other.capacity_bps
        return max(round(count * share), self.least_count())

    @cached_property
    def capacity_bps(self) -> float:
        """The capacity that a load is a share of."""
        if self.load_of == SERVERS:
            ports = self.topology.servers * self.topology.ports
            links = cabled_links(self.topology)
            return float(total_rate(self.topology, links[links < ports])) * self.cable_bps
        require(
            self.load_of == CABLES,
            f"the load is a share of {CABLES} or {SERVERS}, not of {self.load_of!r}",
        )
        demand = demand_of(self.topology, Workload(self.pattern, duration_s=1.0), self.seed)
        pairs = draw_pairs(demand, SAMPLE, numpy.random.default_rng(self.seed))
        return cable_capacity_bps(self.topology, self.routing, pairs, self.cable_bps)


def arrivals_of_trace(topology: Topology, file: Path) -> tuple[Arrivals, Window]:
    """Return the flows of a trace file, and a window in which all of them start."""
    found = read_trace(topology, file)
    first_s, last_s = float(found.start_s[0]), float(found.start_s[-1])
    # The window ends one mean interarrival time after the last flow's start; a trace whose flows
    # all start at the same time lasts one second.
    until_s = last_s + (last_s - first_s) / len(found.start_s) if last_s > first_s else first_s + 1
    return found, Window(first_s, until_s)
