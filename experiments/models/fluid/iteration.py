"""Time of a training iteration in the fluid model, over the routed paths of a network."""

from __future__ import annotations

from functools import partial

import numpy

from experiments.models.fluid.collective import flow_ends_s, transfer_end_times_s
from experiments.models.fluid.ideal import ideal
from experiments.models.workloads.training.breakdown import Moments, moments_of_ends
from experiments.models.workloads.training.iteration_plan import IterationPlan
from topos.base.topology import Topology


def simulated_moments(
    topology: Topology, plan: IterationPlan, routing: str, rate_bps: float, mtu: int
) -> list[Moments]:
    """Return the begin and end of each step of a training iteration.

    Transfers share cables max-min fairly; a cable carries headers and acknowledgements as well.
    Raises PillarboxError if the network has no path for a transfer.
    """
    if not plan.pairs:
        # No rate is asked for: all steps are computations.
        return moments_of_ends(plan, transfer_end_times_s(plan, lambda _: numpy.zeros(0)))
    found = ideal(
        topology,
        routing,
        plan.flows(),
        rate_bps,
        mtu,
        step_ends_s=partial(transfer_end_times_s, plan),
        flow_ends_s=partial(flow_ends_s, plan),
    )
    assert found.step_end_s is not None
    return moments_of_ends(plan, found.step_end_s)
