"""A path: from a server, out of which port to which next server, until the destination.

Servers alone would not name a path: in DPillar with two columns, two servers can share two
switches, and the port tells which of them is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from topos.base.polymorphic import NOTHING
from topos.base.topology import Topology


class Step(NamedTuple):
    """One hop: out of this port, to that server.

    `via` names the switches on the way (their node numbers), where switches interconnect and so
    leave several ways, and a routing has chosen one.
    """

    port: int
    peer: int
    via: tuple[int, ...] = ()

    def __repr__(self) -> str:
        via = f", via={self.via}" if self.via else ""
        return f"Step(port={self.port}, peer={self.peer}{via})"


# What a server does with a packet to a destination, when it looks at nothing else.
NextStep = Callable[[int, int], Step]


@dataclass(frozen=True)
class Path:
    """A way from a server to another, hop by hop."""

    source: int
    steps: tuple[Step, ...]

    @cached_property
    def servers(self) -> tuple[int, ...]:
        """Every server on the path, ends included."""
        return (self.source, *(step.peer for step in self.steps))

    @cached_property
    def links(self) -> frozenset[frozenset[int]]:
        """The pairs of servers that its hops lead between."""
        return frozenset(map(frozenset, pairwise(self.servers)))

    @property
    def destination(self) -> int:
        """The last server."""
        return self.servers[-1]

    def __len__(self) -> int:
        return len(self.steps)

    def nodes(self, topology: Topology) -> list[int]:
        """Return all servers and switches in the order in which a packet sees them."""
        passed = [self.source]
        for server, step in zip(self.servers, self.steps, strict=False):
            passed += [*switches_between(topology, server, step), step.peer]
        return passed

    def cut(self) -> Path:
        """Return the path from its last visit of the source to its first visit of the destination.

        Multi-path routings glue paths together, and what is glued can pass an end twice.
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
    """Return the switches that one hop goes through, or raise ValueError where it leads nowhere.

    Where switches interconnect they are those that the step names. If it names none they are of a
    shortest path, around those that have failed.
    """

    def works(a: int, b: int) -> bool:
        return b not in failed_nodes and frozenset((a, b)) not in failed_links

    first = topology.server_plug(server, step.port).node
    if first == NOTHING or not works(server, first):
        raise ValueError(f"port {step.port} of server {server} leads nowhere")
    if step.via:
        for a, b in pairwise((server, *step.via, step.peer)):
            cabled = b == first if a == server else b in _cabled(topology, a)
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


def _cabled(topology: Topology, switch: int) -> set[int]:
    """Return the nodes at the other ends of a switch's cables; none for what is no switch."""
    if not topology.servers <= switch < topology.nodes:
        return set()
    return {plug.node for _, plug in topology.neighbours(switch)}


def walked(source: int, destination: int, next_step: NextStep, limit: int) -> Path:
    """Return the path that servers make who each know only their next step.

    More hops than `limit` are a fault of the routing, and raise RuntimeError.
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
    """Tell whether no server or switch but the ends, and `shared`, is on two of the paths."""
    seen: set[int] = set()
    for path in paths:
        inner = set(path.nodes(topology)[1:-1]) - set(shared)
        if inner & seen:
            return False
        seen |= inner
    return True
