"""Paths of port addresses: they leave by the port of one address, and arrive by the other's.

In a lab with port addresses, programs may bind to the address of a port
(`pillarbox.topos.base.addressing.port_ipv4`). The packets then use one path between the two
servers, in both directions, whatever the network's routing computes:

- With the port of one address only, the path is that of the network's disjoint paths which uses the
  port. So connections over different ports of a server share no server and no switch where the
  network has disjoint paths.
- With the ports of both addresses, the path uses both if the network has such a path, else the port
  of the lower-numbered server.

If no disjoint path uses the ports, or the network has none, a shortest path that uses them is
taken. Paths are computed from the lower-numbered server, so that both servers of a pair compute the
same path; a path in the other direction is its reverse.

A source-route header holds the path (`pillarbox.hosts.wire.source_route`). Each hop is encoded as
the index of a link in `links_in_order`, which every server computes from the topology.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice, product

from pillarbox.hosts.base.declarations import declared
from pillarbox.hosts.base.failures import NONE, Failures
from pillarbox.hosts.base.path import Path, Step
from pillarbox.hosts.base.ports import arrival_port
from pillarbox.hosts.base.shortest import shortest_path
from pillarbox.hosts.wire.source_route import MOST_HOPS, MOST_LINKS
from pillarbox.topos.base.topology import Topology

MOST_CHOICES = 4096  # maximum number of combinations of paths that are tested for disjointness
MOST_PAIRS = 1024  # capacity of the cache of disjoint paths, in pairs of servers


def pinned_path(
    topology: Topology,
    source: int,
    source_port: int | None,
    destination: int,
    destination_port: int | None,
) -> Path | None:
    """Return the path between two servers' ports; None for either port means any port.

    The result is None without a port or a path: then the network's routing applies.

    >>> from pillarbox import topos
    >>> dcell = topos.parse("dcell,4,1")
    >>> source, destination = dcell.server("0.0"), dcell.server("4.3")
    >>> path = pinned_path(dcell, source, 1, destination, None)
    >>> print(*map(dcell.address, path.servers))
    0.0 1.0 1.2 3.1 3.3 4.3
    >>> back = pinned_path(dcell, destination, None, source, 1)
    >>> print(*map(dcell.address, back.servers))
    4.3 3.3 3.1 1.2 1.0 0.0
    """
    if source == destination or source_port is destination_port is None:
        return None
    if source > destination:
        back = pinned_path(topology, destination, destination_port, source, source_port)
        return None if back is None else reverse(topology, back)
    choices = [(source_port, destination_port)]
    if source_port is not None and destination_port is not None:
        choices += [(source_port, None), (None, destination_port)]
    for ports in choices:
        path = _path_by_ports(topology, source, destination, *ports)
        if path and len(path) <= MOST_HOPS:
            return path
    return None


def reverse(topology: Topology, path: Path) -> Path:
    """Return the reverse path, over the same cables."""
    back = (
        Step(arrival_port(topology, server, step), server)
        for server, step in zip(path.servers, path.steps, strict=False)
    )
    return Path(path.destination, tuple(back)[::-1])


def ports_of_ends(topology: Topology, path: Path) -> tuple[int, int]:
    """Return the port by which a path leaves its source, and that by which it arrives."""
    *_, last = zip(path.servers, path.steps, strict=False)
    return path.steps[0].port, arrival_port(topology, *last)


@lru_cache(MOST_PAIRS)
def disjoint_paths(topology: Topology, source: int, destination: int) -> tuple[Path, ...]:
    """Return a path per port of the source from the network's path set, disjoint if possible."""
    by_port: dict[int, list[Path]] = {}
    for path in _path_set(topology, source, destination):
        by_port.setdefault(path.steps[0].port, []).append(path)
    candidates = [paths for _, paths in sorted(by_port.items())]
    every = (path for paths in candidates for path in paths)
    inner = {path: frozenset(path.nodes(topology)[1:-1]) for path in every}
    for choice in islice(product(*candidates), MOST_CHOICES):
        nodes = [inner[path] for path in choice]
        if sum(map(len, nodes)) == len(frozenset[int]().union(*nodes)):
            return choice
    return tuple(paths[0] for paths in candidates)


def links_in_order(topology: Topology, server: int) -> tuple[Step, ...]:
    """Return a server's links in the order in which hops of source routes count them."""
    return tuple(
        Step(port, peer) for port in range(topology.ports) for peer in topology.peers(server, port)
    )


def hops_of(topology: Topology, path: Path) -> tuple[int, ...] | None:
    """Return a path's hops in the form of a source-route header, None if a link has no index."""
    hops = []
    for server, step in zip(path.servers, path.steps, strict=False):
        index = links_in_order(topology, server).index(Step(step.port, step.peer))
        if index >= MOST_LINKS:
            return None
        hops.append(index)
    return tuple(hops)


def path_of(topology: Topology, source: int, hops: Sequence[int]) -> Path | None:
    """Return the path that a header's hops describe, None if the path does not exist."""
    at, steps = source, []
    for hop in hops:
        links = links_in_order(topology, at) if 0 <= at < topology.servers else ()
        if hop >= len(links):
            return None
        steps.append(links[hop])
        at = links[hop].peer
    return Path(source, tuple(steps))


def _path_by_ports(
    topology: Topology, source: int, destination: int, out_by: int | None, in_by: int | None
) -> Path | None:
    """Return a disjoint path that uses these ports (None: any port), else a shortest one."""
    for path in disjoint_paths(topology, source, destination):
        ports = ports_of_ends(topology, path)
        if out_by in (None, ports[0]) and in_by in (None, ports[1]):
            return path
    others = [*_other_links(topology, source, out_by), *_other_links(topology, destination, in_by)]
    found = shortest_path(topology, source, destination, Failures(links=frozenset(others)))
    # Two ports of a server may lead to the same node: then the search cannot tell them apart.
    by = ports_of_ends(topology, found) if found else (None, None)
    return found if out_by in (None, by[0]) and in_by in (None, by[1]) else None


def _other_links(topology: Topology, server: int, port: int | None) -> Iterator[frozenset[int]]:
    """Yield the cables of a server at all ports but one, each as the two nodes at its ends."""
    for other, plug in topology.neighbours(server):
        if port not in (None, other):
            yield frozenset((server, plug.node))


def _path_set(topology: Topology, source: int, destination: int) -> list[Path]:
    """Return the paths of the network's path set that exist, best first; empty without one."""
    network = declared(topology.kind)
    algorithms = network.algorithms if network else {}
    name = network.several if network else ""
    sets = [algorithms[name]] if name else [one for one in algorithms.values() if one.path_set]
    if not sets:
        return []
    paths: list[Path] = sets[0].path_set(topology, source, destination)
    return [path for path in paths if _exists(topology, path)]


def _exists(topology: Topology, path: Path) -> bool:
    """Return True if all servers and links of a path exist; partial networks lack some."""
    known = all(0 <= server < topology.servers for server in path.servers)
    return known and NONE.first_on(topology, path) is None
