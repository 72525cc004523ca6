"""Plan for distributing a file from one server to several or all: trees, whose hops are
connections.

hosts/NETWORK declares its trees (`pillarbox.hosts.base.network`). If a network has none, the file
goes down a pipeline: from the source to the first receiver, from there to the second, and so on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from pillarbox.hosts.base.declarations import declared
from pillarbox.hosts.base.network import Hop
from pillarbox.topos.base.errors import require
from pillarbox.topos.base.topology import Topology


@dataclass(frozen=True)
class DistributionPlan:
    """Plan to distribute a file: trees of servers, each of which carries an equal part.

    A tree's hops are in an order in which every sender already has the data. A tree may pass
    servers that are not receivers: they relay.
    """

    source: int
    receivers: tuple[int, ...]
    trees: tuple[tuple[Hop, ...], ...]
    kind: str  # "trees" (of the network) or "pipeline" (receiver to receiver)

    def bytes_per_tree(self, size_bytes: int) -> list[int]:
        """Return the number of a file's bytes that each distribution tree carries.

        >>> DistributionPlan(0, (1,), (((0, 1),), ((0, 2), (2, 1))), "trees").bytes_per_tree(5)
        [3, 2]
        """
        count = len(self.trees)
        require(
            size_bytes >= count,
            f"a file that {count} trees distribute needs at least {count} bytes",
        )
        return [size_bytes // count + (number < size_bytes % count) for number in range(count)]


def plan_of(topology: Topology, source: int, receivers: Sequence[int]) -> DistributionPlan:
    """Return a plan to distribute a file to receivers: over the network's trees, or a pipeline.

    >>> from pillarbox import topos
    >>> plan = plan_of(topos.parse("tree,2,2"), 0, [1, 2, 3])
    >>> plan.kind, plan.trees
    ('pipeline', (((0, 1), (1, 2), (2, 3)),))
    >>> len(plan_of(topos.parse("bcube,4,1"), 0, range(1, 16)).trees)
    2
    """
    require(bool(receivers), "a file distribution needs at least one receiver")
    require(
        source not in receivers,
        "the source server of a distributed file cannot be one of its receivers",
    )
    require(
        len(set(receivers)) == len(receivers),
        "the receivers of a distributed file contain a server twice",
    )
    network = declared(topology.kind)
    if network is None or network.distribution is None:
        hops = tuple(pairwise((source, *receivers)))
        return DistributionPlan(source, tuple(receivers), (hops,), "pipeline")
    trees = network.distribution(topology, source, receivers)
    return DistributionPlan(source, tuple(receivers), tuple(map(tuple, trees)), "trees")


def nearest_servers(topology: Topology, source: int, count: int) -> list[int]:
    """Return the servers nearest to `source`, port by port, where papers place a file's copies.

    >>> from pillarbox import topos
    >>> nearest_servers(topos.parse("bcube,4,1"), 0, 3)  # 0.1, 1.0, 0.2
    [1, 4, 2]
    """
    found = [source]
    for server in found:  # found grows while the loop iterates over it
        peers = [topology.peers(server, port) for port in range(topology.ports)]
        for place in range(max(map(len, peers))):
            for near in (some[place] for some in peers if place < len(some)):
                if near not in found:
                    found.append(near)
        if len(found) > count:
            break
    require(
        len(found) > count,
        f"{topology.spec} has fewer than {count} servers except the source of the file",
    )
    return found[1 : count + 1]
