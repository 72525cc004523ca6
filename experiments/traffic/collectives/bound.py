"""How soon a collective operation can be done at best, in any network whose servers have ports.

Let N servers hold M bytes each. In an all-reduce they send 2 (N - 1) M bytes in all (Patarasuk,
Yuan, JPDC 2009): each chunk's N parts meet over N - 1 transfers at least, and the sum goes to N - 1
others. Where all have p ports of a rate R that takes 2 (N - 1) / N x M / (p R). It is likewise with
the other operations; and no server is done before it has sent and received what it must.
"""

from __future__ import annotations

from collections.abc import Sequence

from experiments.traffic.collectives.plan import Plan
from topos.base.topology import Topology


def least_s(topology: Topology, plan: Plan, port_bps: float) -> float:
    """Return the least time of an operation, if ports carry so many bits of it a second.

    >>> import topos
    >>> from experiments.traffic.collectives.plan import plan_for
    >>> from experiments.traffic.workload import Workload
    >>> bcube = topos.parse("bcube,3,1")
    >>> plan = plan_for(bcube, Workload("all-reduce", 9000), "ring", 1)
    >>> least_s(bcube, plan, 8 * 1000.0)  # 2 x 8/9 x 9000 bytes over two ports
    8.0
    """
    total, own = _least_bytes(plan)
    return 8 * _port_bytes(topology, plan.servers, total, own) / port_bps


def all_reduce_share(topology: Topology, servers: Sequence[int]) -> float:
    """Return what share of the data of each server must pass the busiest port in an all-reduce.

    >>> import topos
    >>> round(all_reduce_share(topos.parse("tree,2,2"), range(4)), 6)  # 2 x 3/4
    1.5
    """
    return _port_bytes(topology, servers, 2.0 * (len(servers) - 1), [1.0] * len(servers))


def _port_bytes(
    topology: Topology, servers: Sequence[int], total: float, own: Sequence[float]
) -> float:
    """Return what passes a port at least: of all servers' together, and of each server's own."""
    ports = [sum(1 for _ in topology.neighbours(server)) for server in servers]
    return max(total / sum(ports), *(need / of for need, of in zip(own, ports, strict=True)))


def _least_bytes(plan: Plan) -> tuple[float, list[float]]:
    """Return what all send together, and what each server sends or receives, at least."""
    ranks = plan.graph.ranks
    size = plan.size_bytes // (ranks if plan.operation == "total-exchange" else 1)
    others = size * (ranks - 1)
    if plan.operation == "all-reduce":
        return 2 * others, [size] * ranks
    if plan.operation == "broadcast":
        return others, [size] * ranks
    return others, [others / ranks] * ranks
