"""TAR for arrays of flows (hosts/ficonn/tar.py): probes, one after the other, and what they see.

Nothing fails here. What is left of a server's decision then is the choice between its two outgoing
links, the bypass, and Source ReRoute, which makes of the way so far a stack.

A server's available bandwidth is told by how many flows it sends out by a port, virtual ones
counted with those of its level-0 link: the fewer, the more is free. So a flow weighs as much as any
other (section IV.D does the same for virtual flows), and what a probe sees is never out of date. As
with the live servers, a flow that is probed again does not count itself.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy

from experiments.fluid.links import Routes
from experiments.simulator.hops import Hops, Ints, routes_of_hops
from hosts.ficonn.tar import BYONE, BYZERO, MOST_HOPS
from topos.base.errors import require
from topos.ficonn import BACKUP, SWITCH, FiConn


class Tar:
    """Flows that look for their paths by probes, again and again.

    Parameters
    ----------
    ficonn : FiConn
        Of level 1 at least.
    sources, destinations : arrays
        Of the flows; the two ends of a flow differ.
    random : Generator
        Draws the third FiConns of bypasses.
    printed : bool
        Whether virtual flows are just counted, as in Algorithm 3, and do not end when their flow is
        probed again. Then they become more from round to round, and bypasses fewer.

    Examples
    --------
    Fig. 5: a flow has the link from [2,0] to [0,2], and [2,1] bypasses it.

    >>> ficonn = FiConn(4, 1)
    >>> ends = (numpy.array([ficonn.server(end) for end in ends]) for ends in (
    ...     ("2.0", "2.1"), ("0.2", "0.1")))
    >>> flows = Tar(ficonn, *ends, numpy.random.default_rng(1))
    >>> flows.probe()
    >>> print(*map(ficonn.address, flows.hops().peers[1:].tolist()))
    2.2 1.2 1.0 0.0 0.1
    """

    def __init__(
        self,
        ficonn: FiConn,
        sources: Ints,
        destinations: Ints,
        random: numpy.random.Generator,
        *,
        printed: bool = False,
    ) -> None:
        require(ficonn.k > 0, f"{ficonn.spec} has no backup links to choose: take level 1 or more")
        self.ficonn, self.sources, self.destinations = ficonn, sources, destinations
        self.random = random
        most = 2 * 3**ficonn.k - 1  # hops (Theorem 6)
        flows = len(sources)
        self.counts = numpy.zeros(flows, numpy.int32)
        self._ports = numpy.zeros((flows, most), numpy.int8)
        self._peers = numpy.zeros((flows, most), numpy.int64)
        # A FiConn_l bypasses once, and starts its three FiConn_{l-1}s over: B_l = 4 B_{l-1} + 1.
        places = 0 if printed else (4**ficonn.k - 1) // 3
        self._virtual = numpy.full((flows, places, 2), NOWHERE, numpy.int64)
        self._seen = Seen(
            numpy.array(ficonn.sizes, numpy.int64),
            numpy.zeros((ficonn.servers, ficonn.ports), numpy.int64),
            numpy.zeros(ficonn.servers, numpy.int64),
            numpy.zeros(ficonn.servers, numpy.int64),
        )

    def probe(self, first: int = 0, last: int | None = None) -> None:
        """Probe these flows, in their order.

        A round is all of them, at once or part by part; one ends before the next begins.
        """
        part = slice(first, last)
        _probe_all(
            self._seen,
            self.random,
            self.sources[part],
            self.destinations[part],
            self._ports[part],
            self._peers[part],
            self.counts[part],
            self._virtual[part],
        )

    def hops(self) -> Hops:
        """Return the present paths; those of flows that were not probed yet have no hops."""
        starts = numpy.zeros(len(self.counts) + 1, numpy.int64)
        numpy.cumsum(self.counts, out=starts[1:])
        written = numpy.arange(self._ports.shape[1]) < self.counts[:, None]
        return Hops(starts, self._ports[written], self._peers[written])

    def routes(self) -> Routes:
        """Return the links of the present paths."""
        return routes_of_hops(self.ficonn, self.sources, self.hops(), (SWITCH, None))

    def virtual_flows(self) -> Ints:
        """Return how many virtual flows each server has."""
        here: Ints = self._seen.joined - self._seen.left
        return here

    def loads(self) -> Ints:
        """Return how many flows leave each server (a row) by each port."""
        loads: Ints = self._seen.loads.copy()
        return loads


# -- compiled: a flow's probe, and the queues ------------------------------------------------------

NOWHERE = -1


class Seen(NamedTuple):
    """What servers see; an array each."""

    sizes: Any
    loads: Any  # flows that leave each server by each port
    # Each server's virtual flows are a queue: how many have joined it, and left it, so far. A flow
    # knows its place, how many had joined before. Flows are probed in turns, so a flow of the round
    # before is the first of those that are left, and one of this probe the last.
    joined: Any
    left: Any


class Scratch(NamedTuple):
    """Room for a probe; an array each."""

    progress: Any  # the PR field
    servers: Any  # on the way so far
    ports: Any  # by which it left them
    order: Any  # of third FiConns


@numba.njit(cache=True)
def _probe_all(
    seen: Seen,
    random: Any,
    sources: Any,
    destinations: Any,
    ports: Any,
    peers: Any,
    counts: Any,
    virtual: Any,
) -> None:
    sizes = seen.sizes
    room = Scratch(
        numpy.empty(len(sizes) - 1, numpy.int64),
        numpy.empty(MOST_HOPS + 1, numpy.int64),
        numpy.empty(MOST_HOPS, numpy.int64),
        numpy.empty(sizes[-1] // sizes[-2], numpy.int64),
    )
    for flow in range(len(sources)):
        _weigh(seen, sources[flow], ports[flow], peers[flow], counts[flow], -1)
        for server, place in virtual[flow]:
            if server != NOWHERE and place >= seen.left[server]:
                seen.left[server] += 1
        virtual[flow] = NOWHERE
        hops = _probe(seen, room, random, sources[flow], destinations[flow], virtual[flow])
        counts[flow] = hops
        ports[flow, :hops] = room.ports[:hops]
        peers[flow, :hops] = room.servers[1 : hops + 1]
        _weigh(seen, sources[flow], ports[flow], peers[flow], counts[flow], 1)


@numba.njit(cache=True)
def _weigh(seen: Seen, source: int, ports: Any, peers: Any, count: int, flows: int) -> None:
    """Add so many flows to every port on the way."""
    here = source
    for hop in range(count):
        seen.loads[here, ports[hop]] += flows
        here = peers[hop]


@numba.njit(cache=True)
def _probe(
    seen: Seen, room: Scratch, random: Any, source: int, destination: int, virtual: Any
) -> int:
    """Walk a probe to its destination; return how many hops it has set up."""
    sizes, servers, ports = seen.sizes, room.servers, room.ports
    k = len(sizes) - 1
    levels = max(_common_level(sizes, source, destination), _level_of(k, source))
    progress = room.progress[:levels]
    progress[:] = BYZERO
    servers[0], depth, back = source, 0, False
    for _ in range(MOST_HOPS):
        here = servers[depth]
        _forget(seen, here, virtual)
        if here == destination:
            return depth
        level = _level_of(k, here)
        first = depth == 0 or _starts_over(level, ports[depth - 1], progress)
        if back and not first:
            depth -= 1
            continue
        back = False
        for entry in range(levels):
            if progress[entry] == here:
                _set(progress, entry + 1, BYONE)
        over, peer = _tor_step(sizes, here, _target(progress, 0, destination))
        # How many flows more, virtual ones included, there are on the level-0 link.
        more = seen.loads[here, SWITCH] + _virtual_at(seen, here) - seen.loads[here, BACKUP]
        if over and more < 0 and _bypass(sizes, random, here, destination, progress, room.order):
            # Who sends the probe back looks at the PR field as it is now.
            if depth and not _starts_over(level, ports[depth - 1], progress):
                _remember(seen, here, virtual)
                depth, back = depth - 1, True
                continue
            over, peer = _tor_step(sizes, here, _target(progress, 0, destination))
        elif not over and more > 0 and depth == 0:
            far = _exit(sizes, here, level, destination, progress)
            if far != NOWHERE:
                _set(progress, level, far)
                over, peer = level, far
        if over:
            progress[: level - 1] = BYZERO
        elif _virtual_at(seen, here):
            seen.left[here] += 1
        ports[depth] = BACKUP if over else SWITCH
        depth += 1
        servers[depth] = peer
    return 0


@numba.njit(cache=True)
def _exit(sizes: Any, here: int, level: int, destination: int, progress: Any) -> int:
    """Return where the source may go by its backup link though TOR would not; NOWHERE if not."""
    if not 0 < level <= len(progress) or progress[level - 1] != BYZERO:
        return NOWHERE
    if _target(progress, 0, destination) != destination:
        return NOWHERE
    size, whole = sizes[level - 1], sizes[level]
    base, rank = here // whole * whole, here % size // 2**level
    own = (here - base) // size
    far = _link_between(sizes, here, base + (rank + (rank >= own)) * size, level)[1]
    return NOWHERE if _tor_step(sizes, far, destination)[1] == here else far


@numba.njit(cache=True)
def _virtual_at(seen: Seen, server: int) -> int:
    return int(seen.joined[server] - seen.left[server])


@numba.njit(cache=True)
def _forget(seen: Seen, server: int, virtual: Any) -> None:
    """End the flow's virtual flow there, which this probe has begun: nobody has joined since."""
    for slot in range(len(virtual)):
        if virtual[slot, 0] == server:
            if virtual[slot, 1] >= seen.left[server]:
                seen.joined[server] -= 1
            virtual[slot] = NOWHERE


@numba.njit(cache=True)
def _remember(seen: Seen, server: int, virtual: Any) -> None:
    """Make the flow a virtual one of that server."""
    for slot in range(len(virtual)):
        if virtual[slot, 0] == NOWHERE:
            virtual[slot, 0], virtual[slot, 1] = server, seen.joined[server]
            break
    seen.joined[server] += 1


# -- compiled: the PR field ------------------------------------------------------------------------


@numba.njit(cache=True)
def _set(progress: Any, level: int, entry: int) -> None:
    progress[: level - 1] = BYZERO
    progress[level - 1] = entry


@numba.njit(cache=True)
def _target(progress: Any, above: int, destination: int) -> int:
    """Return the lowest-level proxy above that level, or the destination."""
    for entry in progress[above:]:
        if entry >= 0:
            return int(entry)
    return destination


@numba.njit(cache=True)
def _starts_over(level: int, came_by: int, progress: Any) -> bool:
    """Tell whether Source ReRoute ends here, at a server other than the source."""
    if came_by == BACKUP:
        for entry in range(len(progress)):
            if progress[entry] >= 0:
                return level > entry + 1
    return False


@numba.njit(cache=True)
def _bypass(
    sizes: Any, random: Any, here: int, destination: int, progress: Any, order: Any
) -> bool:
    """Choose a proxy that bypasses the backup link, and tell whether there is one."""
    for level in range(_level_of(len(sizes) - 1, here), len(progress) + 1):
        below, size = sizes[level - 1], sizes[level]
        goal = _leg(sizes, here, level, _target(progress, level, destination))
        if progress[level - 1] != BYZERO or goal == NOWHERE:
            continue
        members = size // below
        for member in range(members):
            order[member] = member
        for last in range(members - 1, -1, -1):
            place = random.integers(0, last + 1)
            third = here // size * size + order[place] * below
            order[place] = order[last]
            if third // below == here // below or third // below == goal // below:
                continue
            proxy = _link_between(sizes, here, third, level)[1]
            if _tor_step(sizes, here, proxy)[0] == 0:
                _set(progress, level, proxy)
                return True
    return False


@numba.njit(cache=True)
def _leg(sizes: Any, here: int, level: int, target: int) -> int:
    """Return where TOR goes to cross a cable of that level, NOWHERE if it does not."""
    common = _common_level(sizes, here, target)
    while common > level:
        target = _link_between(sizes, here, target, common)[0]
        common = _common_level(sizes, here, target)
    return target if common == level else NOWHERE


# -- compiled: FiConn's arithmetic -----------------------------------------------------------------


@numba.njit(cache=True)
def _level_of(k: int, server: int) -> int:
    """Return the level of the server's backup link, 0 where there is none."""
    level = 1
    while level <= k and server % 2**level != 2 ** (level - 1) - 1:
        level += 1
    return level if level <= k else 0


@numba.njit(cache=True)
def _common_level(sizes: Any, a: int, b: int) -> int:
    level = 0
    while a // sizes[level] != b // sizes[level]:
        level += 1
    return level


@numba.njit(cache=True)
def _link_between(sizes: Any, a: int, b: int, level: int) -> tuple[int, int]:
    """Return the ends of the level's cable between the FiConns of two servers."""
    size, whole = sizes[level - 1], sizes[level]
    base = a // whole * whole
    cell_a, cell_b = (a - base) // size, (b - base) // size
    step, start = 2**level, 2 ** (level - 1) - 1
    end_a = base + cell_a * size + (cell_b - (cell_b > cell_a)) * step + start
    end_b = base + cell_b * size + (cell_a - (cell_a > cell_b)) * step + start
    return end_a, end_b


@numba.njit(cache=True)
def _tor_step(sizes: Any, here: int, target: int) -> tuple[int, int]:
    """Return the level of TOR's next hop, and the server it leads to."""
    while True:
        level = _common_level(sizes, here, target)
        if level == 0:
            return 0, target
        near, far = _link_between(sizes, here, target, level)
        if near == here:
            return level, far
        target = near
