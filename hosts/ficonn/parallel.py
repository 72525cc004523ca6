"""Node-disjoint paths between two FiConn servers: two if both use their backup ports, else one.

Li 2009 has no multi-path routing; this construction uses the paths of TAR: TOR's path, and TOR's
paths to and from a proxy in another FiConn. The second path uses the ports that the first one
does not use at the source and at the destination. As two servers on one switch are neighbours, a
path keeps only the first and the last of the servers that it visits on each switch.

The number of paths equals the maximum flow in all networks of the tests. With n >= 6 the first path
is always TOR's there; with n = 4 and k >= 2, TOR's path blocks every second path for 2 to 3 % of
the pairs, and two other paths are returned.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, pairwise, product

from pillarbox.hosts.base.path import Path, Step, disjoint
from pillarbox.hosts.ficonn.paths import tor_path
from pillarbox.topos.base.polymorphic import NOTHING
from pillarbox.topos.ficonn import BACKUP, SWITCH, FiConn


def path_set(ficonn: FiConn, source: int, destination: int) -> list[Path]:
    """Return the node-disjoint paths, TOR's path first if it is one of them.

    >>> ficonn = FiConn(4, 2)
    >>> for path in path_set(ficonn, ficonn.server("0.0.0"), ficonn.server("0.0.2")):
    ...     print(*map(ficonn.address, path.servers))
    0.0.0 0.0.2
    0.0.0 0.1.0 0.1.2 0.2.2 0.2.0 0.0.2
    """
    tor = tor_path(ficonn, source, destination)
    if NOTHING in (ficonn.server_plug(end, BACKUP).node for end in (source, destination)):
        return [tor]
    ports = product((SWITCH, BACKUP), repeat=2)
    others = chain.from_iterable(_paths(ficonn, source, destination, *pair) for pair in ports)
    for first in chain([tor], others):
        for second in _paths(ficonn, source, destination, *map(_other, _end_ports(first))):
            if disjoint(ficonn, [first, second]):
                return [first, second]
    return [tor]


def _other(port: int) -> int:
    return BACKUP if port == SWITCH else SWITCH


def _end_ports(path: Path) -> tuple[int, int]:
    """Return the port by which a path leaves its source, and that by which it is delivered.

    Both servers of a hop use the same port number: two switch ports, or two backup ports.
    """
    return path.steps[0].port, path.steps[-1].port


def _paths(
    ficonn: FiConn, source: int, destination: int, out_by: int, in_by: int
) -> Iterator[Path]:
    """Yield paths with the given ports at their ends: without a proxy first, then with one."""
    starts, ends = ficonn.peers(source, out_by), ficonn.peers(destination, in_by)
    for proxy, start, end in product(_proxies(ficonn, source), starts, ends):
        servers = [source, *_servers_by_tor(ficonn, [start, *proxy, end]), destination]
        path = _reduced(ficonn, servers, out_by, in_by)
        if path and _end_ports(path) == (out_by, in_by):
            yield path


def _proxies(ficonn: FiConn, source: int) -> Iterator[tuple[int, ...]]:
    """Yield no proxy, then one server of each sub-FiConn of the FiConns around the source."""
    yield ()
    for below, size in pairwise(ficonn.sizes):
        first = source // size * size
        yield from ((proxy,) for proxy in range(first, first + size, below))


def _servers_by_tor(ficonn: FiConn, stops: list[int]) -> list[int]:
    """Return the servers on TOR's paths from each stop to the next."""
    servers = stops[:1]
    for stop in stops[1:]:
        servers += tor_path(ficonn, servers[-1], stop).servers[1:]
    return servers


def _reduced(ficonn: FiConn, servers: list[int], out_by: int, in_by: int) -> Path | None:
    """Return the path over these servers without repeated switches, None if it passes its ends.

    An end whose switch the path does not use is left out of the reduction.
    """
    source, destination = servers[0], servers[-1]
    head = [source] if out_by == BACKUP else []
    tail = [destination] if in_by == BACKUP else []
    inner = servers[len(head) : len(servers) - len(tail)]
    last = {server // ficonn.n: place for place, server in enumerate(inner)}
    kept: list[int] = []
    place = 0
    while place < len(inner):
        kept += dict.fromkeys((inner[place], inner[last[inner[place] // ficonn.n]]))
        place = last[inner[place] // ficonn.n] + 1
    if not {*head, *tail}.isdisjoint(kept):
        return None
    hops = pairwise([*head, *kept, *tail])
    steps = (Step(SWITCH if a // ficonn.n == b // ficonn.n else BACKUP, b) for a, b in hops)
    return Path(source, tuple(steps))
