"""Completion times of collective operations in the fluid model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy

from experiments.models.arrays import Floats
from experiments.models.fluid.directed_links import link_count, link_rates_bps, routes_of
from experiments.models.fluid.graphs import transfer_ends_s
from experiments.models.fluid.ideal import static_paths
from experiments.models.fluid.rates import max_min

if TYPE_CHECKING:
    from experiments.models.fluid.completion import RatesOf
    from experiments.models.workloads.collectives.phases import Phase
    from experiments.models.workloads.collectives.plan import CollectivePlan
    from topos.base.topology import Topology


def transfer_end_times_s(plan: CollectivePlan, rates_of: RatesOf) -> Floats:
    """Return the arrival time of each transfer of a collective operation, in seconds."""
    volumes = numpy.array(plan.volumes) * 8.0
    after = [one.after for one in plan.graph.transfers]
    return transfer_ends_s(volumes, plan.flow_of, after, len(plan.pairs), rates_of)


def phases_duration_s(
    topology: Topology, phases: Sequence[Phase], servers: Sequence[int], routing: str = ""
) -> float:
    """Return the duration of a collective operation's phases by their slowest transfers.

    The unit is the transmission time of all data of one server at the network's rate. Paths are
    those of the algorithm alone, and rates are max-min fair.

    >>> import topos
    >>> from experiments.models.workloads.collectives.phases import of_ring
    >>> phases_duration_s(topos.parse("tree,2,2"), of_ring(4), range(4))  # 2 x 3/4
    1.5
    """
    total = 0.0
    for phase in phases:
        pairs = [(servers[a], servers[b]) for a, b in phase.pairs]
        routes = routes_of(topology, static_paths(topology, routing, pairs))
        rates = max_min(routes, link_rates_bps(topology, 1.0), link_count(topology))
        total += phase.times * phase.share / float(rates.min())
    return total


def flow_ends_s(plan: CollectivePlan, rates_of: RatesOf) -> Floats:
    """Return the arrival time of each flow's last collective transfer, in seconds."""
    found = numpy.zeros(len(plan.pairs))
    numpy.maximum.at(found, list(plan.flow_of), transfer_end_times_s(plan, rates_of))
    return found
