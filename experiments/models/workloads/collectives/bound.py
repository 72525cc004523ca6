"""Lower bound of the time of a collective operation, in any network whose servers have ports.

Let N servers hold M bytes each. In an all-reduce they send 2 (N - 1) M bytes in total (Patarasuk,
Yuan, JPDC 2009): the N parts of each chunk meet over at least N - 1 transfers, and the sum goes to
N - 1 others. If all servers have p ports of rate R, this takes 2 (N - 1) / N x M / (p R). The
bounds of other operations follow in the same way; and no server can end before it has sent and
received its own minimum.
"""

from __future__ import annotations

from collections.abc import Sequence

from pillarbox.experiments.models.workloads.collectives.plan import (
    SYNCHRONIZED_READS,
    CollectivePlan,
)
from pillarbox.topos.base.topology import Topology


def collective_time_bound_s(topology: Topology, plan: CollectivePlan, port_bps: float) -> float:
    """Return the minimum time of a collective operation, given each port's goodput.

    >>> from pillarbox import topos
    >>> from pillarbox.experiments.models.workloads.collectives.plan import plan_for
    >>> from pillarbox.experiments.models.workloads.workload import Workload
    >>> bcube = topos.parse("bcube,3,1")
    >>> plan = plan_for(bcube, Workload("all-reduce", 9000), "ring", 1)
    >>> collective_time_bound_s(bcube, plan, 8 * 1000.0)  # 2 x 8/9 x 9000 bytes over two ports
    8.0
    """
    total, own = _least_bytes_of_servers(plan)
    return 8 * _least_bytes_per_port(topology, plan.servers, total, own) / port_bps


def all_reduce_share(topology: Topology, servers: Sequence[int]) -> float:
    """Return the least load of the busiest port in an all-reduce, as a share of a server's data.

    >>> from pillarbox import topos
    >>> round(all_reduce_share(topos.parse("tree,2,2"), range(4)), 6)  # 2 x 3/4
    1.5
    """
    return _least_bytes_per_port(topology, servers, 2.0 * (len(servers) - 1), [1.0] * len(servers))


def _least_bytes_per_port(
    topology: Topology, servers: Sequence[int], total: float, own: Sequence[float]
) -> float:
    """Return the bytes that at least one server port must carry in a collective operation."""
    # Number of ports, each counted by the relative rate of its cable.
    ports = [
        sum(topology.rate_of_level(plug.level) for _, plug in topology.neighbours(server))
        for server in servers
    ]
    return max(total / sum(ports), *(need / of for need, of in zip(own, ports, strict=True)))


def _least_bytes_of_servers(plan: CollectivePlan) -> tuple[float, list[float]]:
    """Return minimum bytes of a collective: in all, and sent or received by each server."""
    ranks = plan.graph.ranks
    if plan.operation == SYNCHRONIZED_READS:
        received = [0.0] * ranks
        for one, volume in zip(plan.graph.transfers, plan.volumes, strict=True):
            received[one.receiver] += volume
        return sum(received), received
    if plan.operation == "total-exchange":
        sent, received = [0.0] * ranks, [0.0] * ranks
        for one, volume in zip(plan.graph.transfers, plan.volumes, strict=True):
            sent[one.sender] += volume
            received[one.receiver] += volume
        return sum(sent), list(map(max, sent, received))
    size = plan.size_bytes
    others = size * (ranks - 1)
    if plan.operation == "all-reduce":
        return 2 * others, [size] * ranks
    if plan.operation == "broadcast":
        return others, [size] * ranks
    return others, [others / ranks] * ranks
