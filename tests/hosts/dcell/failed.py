"""DCells in which something has failed, and the paths of DFR around it."""

from __future__ import annotations

import random
from functools import cache

import networkx

from pillarbox.hosts.base.failures import Failures
from pillarbox.hosts.base.path import Path
from pillarbox.hosts.dcell import dfr
from pillarbox.topos.dcell import DCell

SMALL = ["dcell,4,1", "dcell,2,2", "dcell,3,2,servers=41"]


def names(dcell: DCell, path: Path) -> str:
    return " ".join(dcell.address(server) for server in path.servers)


def random_failures(dcell: DCell, drawn: random.Random) -> Failures:
    """Up to a quarter of all servers and switches, and of all cables."""
    cables = [frozenset((cable.a, cable.b)) for cable in dcell.links()]
    nodes = drawn.sample(range(dcell.nodes), drawn.randrange(dcell.nodes // 4))
    return Failures(
        frozenset(nodes), frozenset(drawn.sample(cables, drawn.randrange(len(cables) // 4)))
    )


def alive(dcell: DCell, failures: Failures) -> list[int]:
    return [server for server in range(dcell.servers) if server not in failures.nodes]


def walked(dcell: DCell, failures: Failures, a: int, b: int) -> tuple[Path, str]:
    view = cache(lambda server: dfr.Converged(dcell, min(1, dcell.k), server, failures))
    return dfr.walk(dcell, a, b, view)


def cabled(dcell: DCell, failures: Failures) -> networkx.Graph:
    graph = networkx.Graph()
    graph.add_nodes_from(set(range(dcell.nodes)) - failures.nodes)
    for cable in dcell.links():
        ends = frozenset((cable.a, cable.b))
        if not ends & failures.nodes and ends not in failures.links:
            graph.add_edge(*ends)
    return graph
