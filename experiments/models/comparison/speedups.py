"""Speed-ups of one server's traffic by several ports: the one-to-x rows of Guo 2009, Table 1.

Values are in units of one link's rate, over the paths of the network's own routing and over its
file distribution trees. The reference is the two-level tree, where every server has one port.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy

from pillarbox.experiments.models.arrays import Ints
from pillarbox.experiments.models.fluid.directed_links import link_count, link_rates_bps, routes_of
from pillarbox.experiments.models.fluid.disjoint import disjoint_paths
from pillarbox.experiments.models.fluid.ideal import static_paths
from pillarbox.experiments.models.fluid.rates import link_loads, max_min
from pillarbox.experiments.models.workloads.distribution_plan import plan_of
from pillarbox.hosts.base.path import Path
from pillarbox.topos.base.topology import Topology

SOURCE = 0


def speedup_to_one(topology: Topology) -> int:
    """Return the lowest rate from a server to another over all link-disjoint paths, in links.

    >>> from pillarbox import topos
    >>> speedup_to_one(topos.parse("bcube,4,1")), speedup_to_one(topos.parse("tree,2,2"))
    (2, 1)
    """
    others = range(SOURCE + 1, topology.servers)
    return min(disjoint_paths(topology, SOURCE, other).by_link for other in others)


def best_speedup_to_all(topology: Topology) -> float:
    """Return the highest speed at which a file can reach all servers, in units of one link's rate.

    Servers relay copies; switches do not copy. If hops have rates, trees that use up to these rates
    carry the least of the maximum flows from the source to the other servers (Edmonds 1973). A
    linear program maximises it over the rates, within the capacity of each port and direction.

    >>> from pillarbox import topos
    >>> round(best_speedup_to_all(topos.parse("dcell,2,1")), 6)
    2.0
    """
    from scipy import sparse
    from scipy.optimize import linprog

    ports, servers = topology.ports, topology.servers
    hops = numpy.array(
        [
            (server, server * ports + port, peer, _port_towards(topology, peer, server))
            for server in range(servers)
            for port in range(ports)
            for peer in topology.peers(server, port)
        ]
    )
    count, every = len(hops), numpy.arange(len(hops))
    others = numpy.delete(numpy.arange(servers), SOURCE)

    def hops_at(places: Ints, size: int) -> sparse.csr_matrix:
        """Return a matrix with a 1 for each hop, in the row of the hop's place."""
        return sparse.csr_matrix((numpy.ones(count), (places, every)), shape=(size, count))

    # Variables: the rate of each hop, each receiver's flow on each hop, and the speed.
    inflow = (hops_at(hops[:, 2], servers) - hops_at(hops[:, 0], servers))[others]
    conserved = sparse.hstack(
        [
            sparse.csr_matrix((len(others) ** 2, count)),
            sparse.block_diag([inflow] * len(others)),
            -sparse.identity(len(others)).reshape((len(others) ** 2, 1)),
        ]
    )
    within_rates = sparse.hstack(
        [
            sparse.vstack([-sparse.identity(count)] * len(others)),
            sparse.identity(count * len(others)),
            sparse.csr_matrix((count * len(others), 1)),
        ]
    )
    at_ports = sparse.vstack([hops_at(hops[:, at], servers * ports) for at in (1, 3)])
    at_ports.resize((2 * servers * ports, conserved.shape[1]))
    found = linprog(
        numpy.append(numpy.zeros(conserved.shape[1] - 1), -1.0),
        sparse.vstack([within_rates, at_ports]).tocsr(),
        numpy.repeat([0.0, 1.0], [within_rates.shape[0], at_ports.shape[0]]),
        conserved.tocsr(),
        numpy.zeros(conserved.shape[0]),
        method="highs",
    )
    return round(float(-found.fun), 9)


def _port_towards(topology: Topology, server: int, peer: int) -> int:
    """Return the number, among all servers' ports, of a server's port that leads to a peer."""
    ports = range(topology.ports)
    own = next(port for port in ports if peer in topology.peers(server, port))
    return server * topology.ports + own


def speedup_of_file_distribution(topology: Topology, receivers: Sequence[int]) -> float:
    """Return the speed at which a file reaches all receivers, in units of one link's rate.

    Each tree carries an equal part, each of its hops takes the routing's path, and the busiest link
    decides. The speed is 0 if a tree does not reach all receivers.

    >>> from pillarbox import topos
    >>> speedup_of_file_distribution(topos.parse("bcube,4,1"), range(1, 16))
    2.0
    >>> speedup_of_file_distribution(topos.parse("tree,2,2"), [1, 2, 3])
    1.0
    """
    trees = plan_of(topology, SOURCE, receivers).trees
    if any(not set(receivers) <= {receiver for _, receiver in tree} for tree in trees):
        return 0.0
    hops = [hop for tree in trees for hop in tree]
    links = link_count(topology)
    loads = link_loads(routes_of(topology, _default_paths(topology, hops)), None, links)
    return float(len(trees) / loads.max())


def servers_by_departure_port(topology: Topology, routing: str) -> dict[int, list[int]]:
    """Return all other servers, grouped by the port by which the routing reaches them.

    By DCellRouting these are the groups of Guo 2008, Theorem 6.

    >>> from pillarbox import topos
    >>> groups = servers_by_departure_port(topos.parse("dcell,4,1"), "dcell")
    >>> [len(group) for group in groups.values()]
    [15, 4]
    """
    found: dict[int, list[int]] = {}
    others = [server for server in range(topology.servers) if server != SOURCE]
    pairs = [(SOURCE, other) for other in others]
    for other, path in zip(others, static_paths(topology, routing, pairs), strict=True):
        if path:
            found.setdefault(path.steps[0].port, []).append(other)
    return dict(sorted(found.items()))


def speedup_to_groups(topology: Topology, routing: str) -> float:
    """Return the total rate from a server to one other server of each group, the group's last one.

    >>> from pillarbox import topos
    >>> speedup_to_groups(topos.parse("dcell,4,1"), "dcell")
    2.0
    """
    pairs = [
        (SOURCE, members[-1]) for members in servers_by_departure_port(topology, routing).values()
    ]
    paths = static_paths(topology, routing, pairs)
    return float(numpy.sum(max_min(routes_of(topology, paths), link_rates_bps(topology, 1.0))))


def _default_paths(topology: Topology, hops: Sequence[tuple[int, int]]) -> list[Path | None]:
    return static_paths(topology, "", hops)
