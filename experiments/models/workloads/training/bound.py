"""Lower bound of the time of a training iteration, in any network whose servers have these ports.

The network between the servers is not limited. No iteration ends before

- its longest chain of steps, if a server's ports together carry one transfer at a time;
- each server has sent and received all of its data by all of its ports;
- each processor has done all of its computations.
"""

from __future__ import annotations

from collections import defaultdict

from pillarbox.experiments.models.workloads.training.iteration_plan import IterationPlan
from pillarbox.topos.base.topology import Topology


def iteration_bound_s(topology: Topology, plan: IterationPlan, port_bps: float) -> float:
    """Return the minimum time of a training iteration, given the goodput of a port.

    >>> from pillarbox import topos
    >>> from pillarbox.experiments.models.workloads.training.iteration_plan import iteration_plan
    >>> from pillarbox.experiments.models.workloads.training.trace import Trace, TraceNode
    >>> ends = (0, "", "send"), (0, "", "receive")
    >>> message = [(TraceNode(*end, size_bytes=1000, peer=1 - at),) for at, end in enumerate(ends)]
    >>> bcube = topos.parse("bcube,3,1")
    >>> iteration_bound_s(bcube, iteration_plan(bcube, Trace(tuple(message)), [0, 1]), 8000.0)
    0.5
    """
    bandwidth_bps = [
        port_bps
        * sum(topology.rate_of_level(plug.level) for _, plug in topology.neighbours(server))
        for server in plan.servers
    ]
    ends_s: list[float] = []
    sent_s: dict[int, float] = defaultdict(float)
    received_s: dict[int, float] = defaultdict(float)
    computed_s: dict[int, float] = defaultdict(float)
    for number, (one, volume) in enumerate(zip(plan.graph.transfers, plan.volumes, strict=True)):
        lasts_s = one.lasts_s
        if one.sender != one.receiver:
            by_sender_s, by_receiver_s = (
                8 * volume / bandwidth_bps[rank] for rank in (one.sender, one.receiver)
            )
            sent_s[one.sender] += by_sender_s
            received_s[one.receiver] += by_receiver_s
            lasts_s = max(by_sender_s, by_receiver_s)
        elif number in plan.processors:
            computed_s[plan.processors[number]] += lasts_s
        ends_s.append(lasts_s + max((ends_s[other] for other in one.after), default=0.0))
    return max([*ends_s, *sent_s.values(), *received_s.values(), *computed_s.values()], default=0.0)
