"""How a collective operation goes when flows are fluids."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy

from experiments.analysis.fluid.graphs import transfer_ends_s

if TYPE_CHECKING:
    from experiments.analysis.fluid.completion import Floats, RatesOf
    from experiments.traffic.collectives.plan import Plan


def ends_s(plan: Plan, rates_of: RatesOf) -> Floats:
    """Return when each transfer has arrived."""
    volumes = numpy.array(plan.volumes) * 8.0
    after = [one.after for one in plan.graph.transfers]
    return transfer_ends_s(volumes, plan.flow_of, after, len(plan.pairs), rates_of)


def flow_ends_s(plan: Plan, rates_of: RatesOf) -> Floats:
    """Return when the last transfer of each flow has arrived."""
    found = numpy.zeros(len(plan.pairs))
    numpy.maximum.at(found, list(plan.flow_of), ends_s(plan, rates_of))
    return found
