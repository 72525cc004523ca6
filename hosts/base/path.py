"""Paths between servers as a list of hops, each with an egress port and a next server.

The list of servers alone is ambiguous: in DPillar with two columns, two servers can share two
switches, and the port determines the switch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from pillarbox.topos.base.polymorphic import NOTHING
from pillarbox.topos.base.topology import Topology


class Step(NamedTuple):
    """One hop: egress port and next server.

    `via` lists the node numbers of the hop's switches if switches interconnect, so that several
    paths exist, and the routing has chosen one of them.
    """

    port: int
    peer: int
    via: tuple[int, ...] = ()

    def __repr__(self) -> str:
        via = f", via={self.via}" if self.via else ""
        return f"Step(port={self.port}, peer={self.peer}{via})"


# Type of a routing by destination: function of server and destination to the next hop.
NextStep = Callable[[int, int], Step]


@dataclass(frozen=True)
class Path:
    """A path from one server to another, hop by hop."""

    source: int
    steps: tuple[Step, ...]

    @cached_property
    def servers(self) -> tuple[int, ...]:
        """All servers on the path, including source and destination."""
        return (self.source, *(step.peer for step in self.steps))

    @cached_property
    def links(self) -> frozenset[frozenset[int]]:
        """Links of the path, each the two servers that a hop joins (as in `Failures.links`)."""
        return frozenset(map(frozenset, pairwise(self.servers)))

    @property
    def destination(self) -> int:
        """The last server of the path."""
        return self.servers[-1]

    def __len__(self) -> int:
        return len(self.steps)

    def nodes(self, topology: Topology) -> list[int]:
        """Return all servers and switches of the path, in the order of a packet's visits."""
        visited = [self.source]
        for server, step in zip(self.servers, self.steps, strict=False):
            visited += [*switches_between(topology, server, step), step.peer]
        return visited

    def cut(self) -> Path:
        """Return the path without detours that return to its source or pass its destination.

        Multi-path routing concatenates paths, and the result can visit an end twice.
        """
        servers = self.servers
        end = servers.index(self.destination)
        start = end - servers[end::-1].index(self.source)
        return Path(self.source, self.steps[start:end])


def switches_between(
    topology: Topology,
    server: int,
    step: Step,
    failed_nodes: Set[int] = frozenset(),
    failed_links: Set[frozenset[int]] = frozenset(),
) -> list[int]:
    """Return the switches of one hop, or raise ValueError if the hop does not reach its peer.

    If the step names its switches (`via`), they are returned. Otherwise the switches are those of a
    shortest path that avoids failed nodes and links.
    """

    def works(a: int, b: int) -> bool:
        return b not in failed_nodes and frozenset((a, b)) not in failed_links

    first = topology.server_plug(server, step.port).node
    if first == NOTHING or not works(server, first):
        raise ValueError(f"port {step.port} of server {server} leads nowhere")
    if step.via:
        for a, b in pairwise((server, *step.via, step.peer)):
            cabled = b == first if a == server else b in _adjacent_nodes(topology, a)
            if not cabled or not works(a, b):
                raise ValueError(f"the hop of server {server} to {step.peer} breaks off at {a}")
        return list(step.via)
    if first == step.peer:
        return []
    came_from = {first: NOTHING}
    for switch in (queue := [first] if first >= topology.servers else []):
        for _, plug in topology.neighbours(switch):
            if not works(switch, plug.node):
                continue
            if plug.node == step.peer:
                found = [switch]
                while came_from[found[-1]] != NOTHING:
                    found.append(came_from[found[-1]])
                return found[::-1]
            if plug.node >= topology.servers and plug.node not in came_from:
                came_from[plug.node] = switch
                queue.append(plug.node)
    raise ValueError(f"port {step.port} of server {server} does not lead to {step.peer}")


def _adjacent_nodes(topology: Topology, switch: int) -> set[int]:
    """Return the nodes at the far ends of a switch's cables; empty if the node is not a switch."""
    if not topology.servers <= switch < topology.nodes:
        return set()
    return {plug.node for _, plug in topology.neighbours(switch)}


def walked(source: int, destination: int, next_step: NextStep, limit: int) -> Path:
    """Return the path of a packet whose every hop is computed by `next_step`.

    More hops than `limit` indicate a routing loop and raise RuntimeError.
    """
    steps: list[Step] = []
    at = source
    while at != destination:
        if len(steps) == limit:
            raise RuntimeError(f"no end after {limit} hops from {source} to {destination}")
        steps.append(next_step(at, destination))
        at = steps[-1].peer
    return Path(source, tuple(steps))


def disjoint(topology: Topology, paths: Iterable[Path], *, shared: Iterable[int] = ()) -> bool:
    """Return True if paths share no server or switch except their ends and nodes in `shared`."""
    seen: set[int] = set()
    for path in paths:
        inner = set(path.nodes(topology)[1:-1]) - set(shared)
        if inner & seen:
            return False
        seen |= inner
    return True
