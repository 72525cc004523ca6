"""Time of a training iteration in the fluid model, over the routed paths of a network.

Of several jobs in one network, each also runs alone: its slowdown is the effect of the other jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple

import numpy

from pillarbox.experiments.models.fluid.collective import flow_ends_s, transfer_end_times_s
from pillarbox.experiments.models.fluid.ideal import SEGMENTS_PER_ACK, ideal
from pillarbox.experiments.models.workloads.training.breakdown import (
    IterationTimes,
    Moments,
    iteration_times,
    moments_of_ends,
)
from pillarbox.experiments.models.workloads.training.iteration_plan import IterationPlan, PlannedJob
from pillarbox.hosts.base.failures import NONE, Failures
from pillarbox.topos.base.topology import Topology


class JobTimes(NamedTuple):
    """Simulated times of one of several jobs, alone and together with the others."""

    job: PlannedJob
    servers: Sequence[int]
    alone_s: float  # time of an iteration without the other jobs
    together: IterationTimes  # times of all its iterations next to the other jobs

    @property
    def together_s(self) -> float:
        """Mean time of an iteration next to the other jobs."""
        return self.together.total_s / self.job.iterations

    @property
    def slowdown(self) -> float:
        """Time of an iteration next to the other jobs, relative to that without them."""
        return self.together_s / self.alone_s if self.alone_s else 1.0


def simulated_jobs(
    topology: Topology,
    plan: IterationPlan,
    moments: Sequence[Moments],
    alone: Iterable[IterationPlan],
    routing: str,
    rate_bps: float,
    mtu: int,
) -> list[JobTimes]:
    """Return the times of each job of a plan, given the plan of each job alone."""
    found = []
    for job, single in zip(plan.jobs, alone, strict=True):
        alone_s = max(
            moment.end_s for moment in simulated_moments(topology, single, routing, rate_bps, mtu)
        )
        together = iteration_times(plan, moments, job.ranks)
        servers = plan.servers[job.ranks.start : job.ranks.stop]
        found.append(JobTimes(job, servers, alone_s / job.iterations, together))
    return found


def simulated_moments(
    topology: Topology,
    plan: IterationPlan,
    routing: str,
    rate_bps: float,
    mtu: int,
    failures: Failures = NONE,
    segments_per_ack: float = SEGMENTS_PER_ACK,
) -> list[Moments]:
    """Return the begin and end of each step of a training iteration.

    Transfers share cables max-min fairly; a cable carries headers and acknowledgements as well, or
    no acknowledgements if `segments_per_ack` is infinite, which is several times faster.
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
        failures=failures,
        segments_per_ack=segments_per_ack,
        step_ends_s=partial(transfer_end_times_s, plan),
        flow_ends_s=partial(flow_ends_s, plan),
    )
    assert found.step_end_s is not None
    return moments_of_ends(plan, found.step_end_s)
