"""Shortest-path computation with knowledge of all failures, the baseline of the papers."""

from __future__ import annotations

from collections.abc import Iterator

from pillarbox.hosts.base.failures import NONE, Failures
from pillarbox.hosts.base.path import Path, Step
from pillarbox.topos.base.topology import Topology


def shortest_path(
    topology: Topology, source: int, destination: int, failures: Failures = NONE
) -> Path | None:
    """Return a shortest path (in hops) that avoids the failures, None if no path is left.

    Among equally short paths, the result is the first in the order of ports from the source on.
    """
    if {source, destination} & failures.nodes:
        return None
    came_from: dict[int, tuple[int, Step]] = {source: (source, Step(0, source))}
    for server in (queue := [source]):
        if server == destination:
            return _traced_path(came_from, source, destination)
        for step in steps(topology, server, failures):
            if step.peer not in came_from:
                came_from[step.peer] = (server, step)
                queue.append(step.peer)
    return None


def steps(topology: Topology, server: int, failures: Failures = NONE) -> Iterator[Step]:
    """Yield all working hops of a server, port by port."""

    def works(a: int, b: int) -> bool:
        return b not in failures.nodes and frozenset((a, b)) not in failures.links

    for port in range(topology.ports):
        far = topology.server_plug(server, port).node
        if far < 0 or not works(server, far):
            continue
        if far < topology.servers:
            yield Step(port, far)
            continue
        visited = {far}
        for switch in (queue := [far]):
            for _, plug in topology.neighbours(switch):
                if not works(switch, plug.node) or plug.node in visited or plug.node == server:
                    continue
                visited.add(plug.node)
                if plug.node >= topology.servers:
                    queue.append(plug.node)
                elif works(server, plug.node):
                    yield Step(port, plug.node)


def _traced_path(came_from: dict[int, tuple[int, Step]], source: int, destination: int) -> Path:
    """Return the path found by the breadth-first search, traced back from the destination."""
    backwards: list[Step] = []
    server = destination
    while server != source:
        server, step = came_from[server]
        backwards.append(step)
    return Path(source, tuple(reversed(backwards)))
