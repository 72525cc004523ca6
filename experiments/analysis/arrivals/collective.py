"""Collective operations as fluids: each transfer begins when those that it needs have arrived."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy

from experiments.analysis.arrivals.engine import Course, course
from experiments.analysis.fluid.links import Routes, link_count
from experiments.analysis.simulator.paths import routes
from topos.base.topology import Topology

if TYPE_CHECKING:
    from experiments.traffic.collectives.plan import Plan


def collective(topology: Topology, routing: str, plan: Plan, cable_bps: float) -> Course:
    """Return when the transfers of a collective operation begin and end, in their order.

    Those of one pair of ranks share its path if they are under way together; a lab's connection
    takes them one after the other. What servers compute takes no time.

    >>> import topos
    >>> from experiments.traffic.collectives.plan import plan_for
    >>> from experiments.traffic.workload import Workload
    >>> bcube = topos.parse("bcube,4,0")
    >>> plan = plan_for(bcube, Workload("all-reduce", 4000), "ring", seed=1)
    >>> found = collective(bcube, "bcube", plan, 8 * 1000.0)
    >>> round(float(found.end_s.max()), 9)  # 2 (N-1) / N of the bytes over the slowest port
    6.0
    """
    transfers = plan.graph.transfers
    servers = numpy.array(plan.servers)
    sources = servers[[one.sender for one in transfers]]
    destinations = servers[[one.receiver for one in transfers]]
    waits = [len(one.after) for one in transfers]
    after = Routes(
        numpy.concatenate([[0], numpy.cumsum(waits)]),
        numpy.array([other for one in transfers for other in one.after], numpy.int64),
    )
    return course(
        routes(topology, routing, sources, destinations),
        numpy.zeros(len(transfers)),
        numpy.array(plan.volumes) * 8.0,
        numpy.full(link_count(topology), cable_bps),
        after=after,
    )
