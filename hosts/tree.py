"""Routing in the tree of learning bridges with which the papers compare their testbeds.

The switches learn the port of each server, and a tree has only one path: servers do not route.
"""

from __future__ import annotations

from collections.abc import Iterator

from pillarbox.hosts.base.algorithms import Algorithm
from pillarbox.hosts.base.direct import PORT, Direct
from pillarbox.hosts.base.network import Network
from pillarbox.hosts.base.path import Path
from pillarbox.hosts.base.rules import SwitchPath
from pillarbox.topos.tree import Tree


def bridged(
    n: int, m: int, servers: int, source: int, destination: int, _choice: int
) -> Iterator[tuple[int, int]]:
    """Yield the links of the tree's only path: over leaf switches, and the root if they differ."""
    near, far = source // n, destination // n
    yield source, PORT
    if near != far:
        yield servers + near, n
        yield servers + m, far
    yield servers + far, destination % n


BRIDGE = SwitchPath(bridged, lambda tree: (tree.n, tree.m, tree.servers), lambda _: 4)

RULES = {"bridge": BRIDGE}


def bridge_path(tree: Tree, source: int, destination: int) -> Path:
    """Return the path between two servers: one hop through its switches."""
    return BRIDGE.path(tree, source, destination)


NETWORK = Network(
    algorithms={
        "bridge": Algorithm(
            "learning bridges: the only path through the tree", bridge_path, router=Direct
        )
    },
    rules=RULES,
)
