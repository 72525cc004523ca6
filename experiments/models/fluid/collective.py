"""Completion times of collective operations in the fluid model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy

from pillarbox.experiments.models.arrays import Bools, Floats
from pillarbox.experiments.models.fluid.directed_links import (
    link_count,
    link_rates_bps,
    path_counts,
    routes_of,
)
from pillarbox.experiments.models.fluid.graphs import transfer_ends_s
from pillarbox.experiments.models.fluid.ideal import static_flow_paths
from pillarbox.experiments.models.fluid.rates import MaxMin

if TYPE_CHECKING:
    from pillarbox.experiments.models.fluid.completion import RatesOf
    from pillarbox.experiments.models.workloads.collectives.phases import Phase
    from pillarbox.experiments.models.workloads.collectives.plan import CollectivePlan
    from pillarbox.topos.base.topology import Topology


def transfer_end_times_s(plan: CollectivePlan, rates_of: RatesOf) -> Floats:
    """Return the arrival time of each transfer of a collective operation, in seconds.

    Local steps of a training iteration have the end of the computation; a processor is a flow whose
    volume is in seconds, with the rate 1.
    """
    transfers = plan.graph.transfers
    work = [
        8.0 * volume or one.lasts_s for volume, one in zip(plan.volumes, transfers, strict=True)
    ]
    after = [one.after for one in transfers]
    return transfer_ends_s(
        numpy.array(work), plan.flow_of, after, plan.queues, _rates_with_processors(plan, rates_of)
    )


def _rates_with_processors(plan: CollectivePlan, rates_of: RatesOf) -> RatesOf:
    """Return a function that adds the rate of processors, 1, to the rates of flows."""
    flows = len(plan.pairs)
    if plan.queues == flows:
        return rates_of
    known: dict[bytes, Floats] = {}

    def rates(active: Bools) -> Floats:
        found = numpy.ones(len(active))
        sending = active[:flows]
        if sending.any():
            key = sending.tobytes()
            if key not in known:
                known[key] = rates_of(sending)
            found[:flows] = known[key]
        return found

    return rates


def phases_duration_s(
    topology: Topology, phases: Sequence[Phase], servers: Sequence[int], routing: str = ""
) -> float:
    """Return the duration of a collective operation's phases by their slowest transfers.

    The unit is the transmission time of all data of one server at the network's rate. Paths are
    those of the algorithm alone, and rates are max-min fair.

    >>> from pillarbox import topos
    >>> from pillarbox.experiments.models.workloads.collectives.phases import of_ring
    >>> phases_duration_s(topos.parse("tree,2,2"), of_ring(4), range(4))  # 2 x 3/4
    1.5
    """
    total = 0.0
    for phase in phases:
        pairs = [(servers[a], servers[b]) for a, b in phase.pairs]
        paths = static_flow_paths(topology, routing, pairs)
        shared = MaxMin(routes_of(topology, paths), link_count(topology), path_counts(paths))
        rates = shared.rates(link_rates_bps(topology, 1.0))
        total += phase.times * phase.share / float(rates.min())
    return total


def flow_ends_s(plan: CollectivePlan, ends_s: Floats) -> Floats:
    """Return the arrival time of each flow's last transfer, given those of all transfers."""
    found = numpy.zeros(len(plan.pairs))
    flow_of = numpy.array(plan.flow_of)
    sent = (flow_of >= 0) & (flow_of < len(plan.pairs))
    numpy.maximum.at(found, flow_of[sent], ends_s[sent])
    return found
