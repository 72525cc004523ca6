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

from collections.abc import Callable, Iterator

from pillarbox.hosts.base.algorithms import SHORTEST, Algorithm, Routed
from pillarbox.hosts.base.failures import Failures
from pillarbox.hosts.base.hop_by_hop import HopByHop
from pillarbox.hosts.base.network import Network
from pillarbox.hosts.base.path import Path, Step
from pillarbox.hosts.base.rules import Rule, Values
from pillarbox.topos.torus import Torus

Ring = tuple[int, int, int]  # size, weight and first port of a dimension (`Torus.rings`)
Hops = Iterator[tuple[int, int]]  # port and next server


def toward(ring: Ring, here: int, destination: int) -> int:
    """Return the step (1, -1 or 0) of the shorter way around a ring to the destination.

    If both ways are equally long, servers with an odd coordinate step back, to balance the load.
    """
    size, weight, _ = ring
    own = here // weight % size
    ahead = (destination // weight - own) % size
    if ahead == 0:
        return 0
    back = 2 * ahead > size or (2 * ahead == size and size > 2 and own % 2 == 1)
    return -1 if back else 1


def moved(ring: Ring, here: int, step: int) -> tuple[int, int]:
    """Return the port of a step along a ring, and the next server."""
    size, weight, port = ring
    own = here // weight % size
    back = 1 if step < 0 and size > 2 else 0
    return port + back, here + ((own + step) % size - own) * weight


def greedy(rings: Values[Ring], source: int, destination: int, _choice: int) -> Hops:
    """Yield the hops of key-based routing without failures: dimension by dimension."""
    here = source
    for dimension in range(len(rings)):
        step = toward(rings[dimension], here, destination)
        while step != 0:
            port, here = moved(rings[dimension], here, step)
            yield port, here
            step = toward(rings[dimension], here, destination)


def parallel(rings: Values[Ring], source: int, destination: int, choice: int) -> Hops:
    """Yield the hops of the path that leaves by port `choice`; no two paths of a pair meet.

    A path corrects the dimension of its first hop either first, by the shorter way, or last: after
    a hop by the longer way, or away from a coordinate that was right.
    """
    first, count = 0, len(rings)
    while first + 1 < count and rings[first + 1][2] <= choice:
        first += 1
    step = 1 if rings[first][2] == choice else -1
    short = toward(rings[first], source, destination)
    port, here = moved(rings[first], source, step)
    yield port, here
    for turn in range(count + 1):
        dimension = (first + turn) % count
        if turn == 0 and step != short:
            continue
        onward = toward(rings[dimension], here, destination)
        while onward != 0:
            if turn == count:
                onward = step if short != 0 else -step
            port, here = moved(rings[dimension], here, onward)
            yield port, here
            onward = toward(rings[dimension], here, destination)


def _rule(hops: Callable[..., Hops], choices: Callable[[Torus], int]) -> Rule:
    """Return a rule for a torus, whose cables join servers directly."""
    return Rule(
        hops,
        lambda torus: (torus.rings,),
        lambda torus: sum(size // 2 for size in torus.dimensions) + max(torus.dimensions),
        lambda torus: [None] * torus.ports,
        choices,
    )


KEY, PARALLEL = _rule(greedy, lambda _: 1), _rule(parallel, lambda torus: torus.ports)


def nearer(torus: Torus, server: int, destination: int) -> Iterator[Step]:
    """Yield the hops to all neighbours that are nearer to the destination, preferred ones first.

    >>> torus = Torus(4, 4)
    >>> list(nearer(torus, torus.server("0.0"), torus.server("1.2")))
    [Step(port=0, peer=4), Step(port=2, peer=1), Step(port=3, peer=3)]
    """
    for ring in torus.rings:
        size, weight, _ = ring
        if step := toward(ring, server, destination):
            yield Step(*moved(ring, server, step))
            if size > 2 and 2 * ((destination // weight - server // weight) % size) == size:
                yield Step(*moved(ring, server, -step))


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
