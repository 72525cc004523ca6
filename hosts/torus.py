"""Routing in a torus of servers: link-state shortest paths, and key-based greedy routing.

CamCube's servers route to a key, a point of the torus's coordinate space, as in the overlay network
CAN (Ratnasamy 2001): each hop leads to a neighbour that is nearer to the key. Here the key is the
destination's address. If the preferred neighbour is down, any other nearer neighbour is used; if
none works, the packet is dropped. Since every hop is nearer, packets cannot loop. docs/papers.md
names the sources.

Labs use the link-state routing `shortest`: like CamCube's core routing service, it takes shortest
paths around failures, also those that lead away from the destination at first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hosts.base.algorithms import SHORTEST, Algorithm, Routed
from hosts.base.failures import Failures
from hosts.base.hop_by_hop import HopByHop
from hosts.base.network import Network
from hosts.base.path import Path, Step
from hosts.base.rules import Rule, Values
from topos.torus import Torus

Hops = Iterator[tuple[int, int]]  # port and next server


def numbers(torus: Torus) -> Any:
    """Return the parameters of a torus for the path rules: one tuple of its sizes."""
    return (torus.dimensions,)


def toward(size: int, own: int, goal: int) -> int:
    """Return the step (1, -1 or 0) along a ring that leads to a coordinate on the shorter way.

    If both ways are equally long, every second server chooses the other, to balance the load.
    """
    ahead = (goal - own) % size
    if ahead == 0:
        return 0
    if 2 * ahead == size and size > 2:
        return 1 if own % 2 == 0 else -1
    return 1 if 2 * ahead <= size else -1


def weight_of(sizes: Values[int], dimension: int) -> int:
    """Return the distance of server numbers between neighbours along a dimension."""
    weight = 1
    for later in range(dimension + 1, len(sizes)):
        weight *= sizes[later]
    return weight


def port_of(sizes: Values[int], dimension: int, step: int) -> int:
    """Return the port of a direction; a dimension of size 2 has one port for both steps."""
    port = 0
    for earlier in range(dimension):
        port += 2 if sizes[earlier] > 2 else 1
    return port + 1 if step < 0 and sizes[dimension] > 2 else port


def stepped(sizes: Values[int], server: int, dimension: int, step: int) -> int:
    """Return the next server along a dimension."""
    size, weight = sizes[dimension], weight_of(sizes, dimension)
    own = server // weight % size
    return server + ((own + step) % size - own) * weight


def needed(sizes: Values[int], here: int, destination: int, dimension: int) -> int:
    """Return the step (1, -1 or 0) that the shorter way takes along a dimension."""
    size, weight = sizes[dimension], weight_of(sizes, dimension)
    return toward(size, here // weight % size, destination // weight % size)


def greedy(sizes: Values[int], source: int, destination: int, _choice: int) -> Hops:
    """Yield the hops of key-based routing without failures: dimension by dimension."""
    here = source
    for dimension in range(len(sizes)):
        step = needed(sizes, here, destination, dimension)
        while step != 0:
            here = stepped(sizes, here, dimension, step)
            yield port_of(sizes, dimension, step), here
            step = needed(sizes, here, destination, dimension)


def parallel(sizes: Values[int], source: int, destination: int, choice: int) -> Hops:
    """Yield the hops of the path that leaves by port `choice`; no two paths of a pair meet.

    A path corrects the dimension of its first hop either first, by the shorter way, or last: after
    a hop by the longer way, or away from a coordinate that was right.
    """
    first, step = 0, 1
    while port_of(sizes, first, -1) < choice:
        first += 1
    if port_of(sizes, first, 1) != choice:
        step = -1
    short = needed(sizes, source, destination, first)
    here = stepped(sizes, source, first, step)
    yield choice, here
    while step == short and needed(sizes, here, destination, first) != 0:
        here = stepped(sizes, here, first, step)
        yield choice, here
    for turn in range(1, len(sizes)):
        dimension = (first + turn) % len(sizes)
        onward = needed(sizes, here, destination, dimension)
        while onward != 0:
            here = stepped(sizes, here, dimension, onward)
            yield port_of(sizes, dimension, onward), here
            onward = needed(sizes, here, destination, dimension)
    if short == 0:
        step = -step
    while needed(sizes, here, destination, first) != 0:
        here = stepped(sizes, here, first, step)
        yield port_of(sizes, first, step), here


def _most(torus: Torus) -> int:
    """Return the maximum number of hops of a parallel path."""
    return sum(size // 2 for size in torus.dimensions) + max(torus.dimensions)


KEY = Rule(greedy, numbers, _most, lambda torus: [None] * torus.ports)
PARALLEL = Rule(
    parallel, numbers, _most, lambda torus: [None] * torus.ports, lambda torus: torus.ports
)


def nearer(torus: Torus, server: int, destination: int) -> Iterator[Step]:
    """Yield the hops to all neighbours that are nearer to the destination, preferred ones first.

    >>> torus = Torus(4, 4)
    >>> list(nearer(torus, torus.server("0.0"), torus.server("1.2")))
    [Step(port=0, peer=4), Step(port=2, peer=1), Step(port=3, peer=3)]
    """
    coordinates = zip(
        torus.dimensions, torus.digits(server), torus.digits(destination), strict=True
    )
    for dimension, (size, own, goal) in enumerate(coordinates):
        step = toward(size, own, goal)
        opposite = size > 2 and 2 * ((goal - own) % size) == size
        for one in [step, -step] if opposite else [step] if step else []:
            port = port_of(torus.dimensions, dimension, one)
            yield Step(port, stepped(torus.dimensions, server, dimension, one))


def key_path(torus: Torus, source: int, destination: int) -> Path:
    """Return the path of key-based routing without failures.

    >>> torus = Torus(4, 4)
    >>> path = key_path(torus, torus.server("0.0"), torus.server("3.2"))
    >>> print(*map(torus.address, path.servers))
    0.0 3.0 3.1 3.2
    """
    return KEY.path(torus, source, destination)


def path_set(torus: Torus, source: int, destination: int) -> list[Path]:
    """Return the disjoint paths between two servers, one per port, shortest first.

    >>> torus = Torus(4, 4)
    >>> for path in path_set(torus, torus.server("0.0"), torus.server("0.1")):
    ...     print(*map(torus.address, path.servers))
    0.0 0.1
    0.0 1.0 1.1 0.1
    0.0 3.0 3.1 0.1
    0.0 0.3 0.2 0.1
    """
    if source == destination:
        return [Path(source, ())]
    return sorted(PARALLEL.paths(torus, source, destination), key=len)


def around(
    torus: Torus, source: int, destination: int, failures: Failures, several: bool
) -> Routed:
    """Return key-based routing's path around failures, or all disjoint paths that work."""
    if several:
        paths = path_set(torus, source, destination)
        working = [path for path in paths if not failures.first_on(torus, path)]
        return Routed(working, "" if working else f"all {len(paths)} disjoint paths have failed")
    steps: list[Step] = []
    at = source
    while at != destination:
        hops = nearer(torus, at, destination)
        step = next((hop for hop in hops if not failures.of_hop(torus, at, hop)), None)
        if step is None:
            return Routed([], f"no neighbour of {torus.address(at)} that is nearer works")
        steps.append(step)
        at = step.peer
    return Routed([Path(source, tuple(steps))])


class KeyRouting(HopByHop):
    """Router of key-based routing: each hop leads to a nearer neighbour that works.

    Relays need only the destination, so packets carry no header but their own IP header.
    """

    plain_ip = True

    def next_step(self, destination: int, came_by: int | None) -> Step | None:
        """Return the hop to the first nearer neighbour that works, None if none does."""
        hops = nearer(self.topology, self.server, destination)
        return next(filter(self.neighbours.works, hops), None)


NETWORK = Network(
    algorithms={
        "key": Algorithm(
            "key-based routing: to any neighbour that is nearer and works (CamCube)",
            key_path,
            path_set,
            around=around,
            router=KeyRouting,
        ),
    },
    rules={"key": KEY, "parallel": PARALLEL},
    usual=SHORTEST,
)
