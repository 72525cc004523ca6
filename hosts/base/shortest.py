"""Shortest-path routing: the baseline that the papers compare with. It knows every failure."""

from __future__ import annotations

from collections.abc import Iterator

from hosts.base.failures import NONE, Failures
from hosts.base.path import Path, Step
from topos.base.topology import Topology


def shortest_path(
    topology: Topology, source: int, destination: int, failures: Failures = NONE
) -> Path | None:
    """Return a path of fewest hops that avoids the failures, None where none is left.

    Of several, the one whose ports are lowest from the source on, so that it is always the same.
    """
    if {source, destination} & failures.nodes:
        return None
    came_from: dict[int, tuple[int, Step]] = {source: (source, Step(0, source))}
    for server in (queue := [source]):
        if server == destination:
            return _back(came_from, source, destination)
        for step in steps(topology, server, failures):
            if step.peer not in came_from:
                came_from[step.peer] = (server, step)
                queue.append(step.peer)
    return None


def steps(topology: Topology, server: int, failures: Failures = NONE) -> Iterator[Step]:
    """Yield every hop that works from a server, port by port."""

    def works(a: int, b: int) -> bool:
        return b not in failures.nodes and frozenset((a, b)) not in failures.links

    for port in range(topology.ports):
        far = topology.server_plug(server, port).node
        if far < 0 or not works(server, far):
            continue
        if far < topology.servers:
            yield Step(port, far)
            continue
        seen = {far}
        for switch in (queue := [far]):
            for _, plug in topology.neighbours(switch):
                if not works(switch, plug.node) or plug.node in seen or plug.node == server:
                    continue
                seen.add(plug.node)
                if plug.node >= topology.servers:
                    queue.append(plug.node)
                elif works(server, plug.node):
                    yield Step(port, plug.node)


def _back(came_from: dict[int, tuple[int, Step]], source: int, destination: int) -> Path:
    found: list[Step] = []
    at = destination
    while at != source:
        at, step = came_from[at]
        found.append(step)
    return Path(source, tuple(reversed(found)))
