"""Probes of TAR, compiled: what becomes of them, and `decide` of hosts/ficonn/tar.py.

Rule by rule the same, in the same order, with the same names; the reasons stand there. A probe's
PR field is an array that is changed in place, and a hop is a port and a server.

All that is compiled is in this one file: numba keeps what it has compiled for as long as the file
of the function that is called is the same, whatever changes in those that this one calls.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy

from hosts.ficonn.rules import BYONE, BYZERO
from hosts.ficonn.tar import MOST_HOPS, PROBE_TRIES
from topos.ficonn import BACKUP, SWITCH

NOWHERE = -1
ARRIVED, ONWARD, BACK, STUCK = range(4)
# What a bypass asks of a proxy: that the way to it begins with the level-0 link and works; that it
# works; or that it does not lead back to this server.
BY_SWITCH, WORKING, NOT_BACK = range(3)


# A server, as one record: its backup link; what works of its two links (a cable does with both its
# ends), and whether the level-0 link leads anywhere; how many flows leave it by each.
SERVER = numpy.dtype(
    [
        ("level", numpy.int64),
        ("far", numpy.int64),
        ("by_switch", numpy.bool_),
        ("by_backup", numpy.bool_),
        ("switch_works", numpy.bool_),
        ("switch_flows", numpy.int64),
        ("backup_flows", numpy.int64),
        # Its virtual flows are a queue: how many have joined it, and left it, so far. A flow knows
        # its place, how many had joined before. Flows are probed in turns, so a flow of the round
        # before is the first of those that are left, and one of this probe the last.
        ("joined", numpy.int64),
        ("left", numpy.int64),
        # The way of the flow that is probed: the hops back and on, and the number of the probe
        # that has set it up. What others have left here does not count.
        ("probe", numpy.int64),
        ("back_by", numpy.int64),
        ("back", numpy.int64),
        ("on_by", numpy.int64),
        ("on", numpy.int64),
    ]
)


class State(NamedTuple):
    """The network; an array each."""

    sizes: Any  # of the FiConns, by level
    servers: Any
    order: Any  # room for the order of third FiConns


class Verdict(NamedTuple):
    """What becomes of a probe, and by which hop."""

    kind: int
    port: int = NOWHERE
    peer: int = NOWHERE
    virtual: bool = False


# -- a flow's probes, and the queues of virtual flows ----------------------------------------------


@numba.njit(cache=True)
def probe_all(
    net: State,
    number: int,
    random: Any,
    sources: Any,
    destinations: Any,
    ports: Any,
    peers: Any,
    counts: Any,
    virtual: Any,
) -> int:
    """Probe the flows; return the number of the last probe, where `number` is that before."""
    servers = net.servers
    progress = numpy.empty(len(net.sizes) - 1, numpy.int64)
    for flow in range(len(sources)):
        source, destination = sources[flow], destinations[flow]
        _weigh(servers, source, ports[flow], peers[flow], counts[flow], -1)
        for server, place in virtual[flow]:
            if server != NOWHERE and place >= servers[server].left:
                servers[server].left += 1
        virtual[flow] = NOWHERE
        for _ in range(PROBE_TRIES):
            for server, _ in virtual[flow]:
                if server != NOWHERE:
                    _forget(servers, server, virtual[flow])
            number += 1
            if _probe(net, number, random, source, destination, progress, virtual[flow]):
                hops = _note(servers, source, destination, ports[flow], peers[flow])
                if hops:
                    counts[flow] = hops
                    break
        _weigh(servers, source, ports[flow], peers[flow], counts[flow], 1)
    return number


@numba.njit(cache=True)
def _weigh(servers: Any, source: int, ports: Any, peers: Any, count: int, flows: int) -> None:
    """Add so many flows to every port on the way."""
    here = source
    for hop in range(count):
        if ports[hop] == SWITCH:
            servers[here].switch_flows += flows
        else:
            servers[here].backup_flows += flows
        here = peers[hop]


@numba.njit(cache=True)
def _probe(
    net: State,
    number: int,
    random: Any,
    source: int,
    destination: int,
    whole: Any,
    virtual: Any,
) -> bool:
    """Let a probe set up a way; tell whether it has come to its destination."""
    servers = net.servers
    common = common_level(net.sizes, source, destination)
    progress = whole[: max(common, servers[source].level)]
    progress[:] = BYZERO
    here, came_by, came = source, NOWHERE, NOWHERE
    for _ in range(MOST_HOPS):
        _forget(servers, here, virtual)
        found = decide(net, number, random, here, destination, progress, came_by, came)
        if found.kind == ARRIVED or found.kind == STUCK:
            return bool(found.kind == ARRIVED)
        own = servers[here]
        if found.kind == ONWARD:
            if found.port == SWITCH and own.joined > own.left:
                own.left += 1
        else:
            own.probe = 0
            if found.virtual:
                _remember(servers, here, virtual)
        # The ports of a FiConn are the same at both ends of a hop.
        here, came_by, came = found.peer, found.port, here
    return False


@numba.njit(cache=True)
def _note(servers: Any, source: int, destination: int, ports: Any, peers: Any) -> int:
    """Write the way that was set up, if there is room; return its hops."""
    hops, here = 0, source
    while here != destination:
        hops, here = hops + 1, servers[here].on
        if hops > len(ports):
            return 0
    here = source
    for hop in range(hops):
        ports[hop], peers[hop] = servers[here].on_by, servers[here].on
        here = servers[here].on
    return hops


@numba.njit(cache=True)
def _forget(servers: Any, server: int, virtual: Any) -> None:
    """End the flow's virtual flow there, which this round has begun: nobody has joined since."""
    for slot in range(len(virtual)):
        if virtual[slot, 0] == server:
            if virtual[slot, 1] >= servers[server].left:
                servers[server].joined -= 1
            virtual[slot] = NOWHERE


@numba.njit(cache=True)
def _remember(servers: Any, server: int, virtual: Any) -> None:
    """Make the flow a virtual one of that server."""
    for slot in range(len(virtual)):
        if virtual[slot, 0] == NOWHERE:
            virtual[slot, 0], virtual[slot, 1] = server, servers[server].joined
            break
    servers[server].joined += 1


# -- a server's decision ---------------------------------------------------------------------------


@numba.njit(cache=True)
def decide(
    net: State,
    number: int,
    random: Any,
    here: int,
    destination: int,
    progress: Any,
    came_by: int,
    came: int,
) -> Verdict:
    """Return what the server does; `came` is NOWHERE at the source. ONWARD notes the way."""
    if here == destination:
        return Verdict(ARRIVED, NOWHERE, NOWHERE, False)
    own = net.servers[here]
    if own.probe == number and came_by == own.on_by and came == own.on:
        came_by, came = own.back_by, own.back
        if came != NOWHERE and not _starts_over(own.level, came_by, progress):
            return Verdict(BACK, came_by, came, False)
    for entry in range(len(progress)):
        if progress[entry] == here:
            _set(progress, entry + 1, BYONE)
    port, peer = _tor_hop(net.sizes, here, _target(progress, 0, destination))
    if port == came_by and peer == came:
        return Verdict(STUCK, NOWHERE, NOWHERE, False)
    at = Place(number, here, destination, came_by, came)
    if port == BACKUP:
        return _by_backup(net, random, at, progress)
    if _works(net, here, SWITCH, peer):
        if came == NOWHERE and _prefers_backup(net, at, progress):
            return _leave(net, random, at, progress)
        return _onward(net, at, progress, SWITCH, peer)
    if own.switch_works:
        return _around(net, random, at, progress, peer)
    if came == NOWHERE:
        return _leave(net, random, at, progress)
    return _route_back(net, random, at, progress)


class Place(NamedTuple):
    """Where a probe is, and the hop back to where it came from."""

    number: int
    here: int
    destination: int
    came_by: int
    came: int


# -- the ways on -----------------------------------------------------------------------------------


@numba.njit(cache=True)
def _by_backup(net: State, random: Any, at: Place, progress: Any) -> Verdict:
    """TOR's next hop is the backup link: take it, or bypass it."""
    own = net.servers[at.here]
    if not own.by_backup or (own.switch_works and flows_more(net, at.here) < 0):
        if _bypass(net, random, at, progress, at.here, BY_SWITCH):
            return _reroute(net, at, progress, own.by_backup)
        if not own.by_backup:
            if _fall_back(net, at, progress, at.here):
                return _reroute(net, at, progress, False)
            return Verdict(STUCK, NOWHERE, NOWHERE, False)
    return _onward(net, at, progress, BACKUP, own.far)


@numba.njit(cache=True)
def _around(net: State, random: Any, at: Place, progress: Any, dead: int) -> Verdict:
    """TOR's next hop is a server on the same switch, and cannot be reached there."""
    if dead == at.destination:
        if at.came != NOWHERE and _may_bypass(progress, net.servers[dead].level):
            far = net.servers[dead].far
            _set(progress, net.servers[dead].level, far)
            over = _starts_over(net.servers[at.here].level, at.came_by, progress)
            if over and not _usable(net, at.here, at.here, far, WORKING):
                return _route_elsewhere(net, random, at, progress)
            return _reroute(net, at, progress, False)
    elif _bypass(net, random, at, progress, dead, WORKING) or _fall_back(net, at, progress, dead):
        return _reroute(net, at, progress, False)
    if at.came == NOWHERE:
        return _leave(net, random, at, progress)
    return Verdict(STUCK, NOWHERE, NOWHERE, False)


@numba.njit(cache=True)
def _leave(net: State, random: Any, at: Place, progress: Any) -> Verdict:
    """The source takes its backup link where TOR would not."""
    own = net.servers[at.here]
    if not own.by_backup or own.level > len(progress):
        return Verdict(STUCK, NOWHERE, NOWHERE, False)
    if _tor_hop(net.sizes, own.far, _target(progress, 0, at.destination))[1] == at.here:
        if not _bypass(net, random, at, progress, own.far, NOT_BACK):
            return Verdict(STUCK, NOWHERE, NOWHERE, False)
    elif _may_bypass(progress, own.level):
        _set(progress, own.level, own.far)
    return _onward(net, at, progress, BACKUP, own.far)


@numba.njit(cache=True)
def _route_back(net: State, random: Any, at: Place, progress: Any) -> Verdict:
    """The level-0 link has failed, and the probe came by the backup link: back it goes."""
    if at.came_by != BACKUP:
        return Verdict(STUCK, NOWHERE, NOWHERE, False)
    if _fall_back(net, at, progress, at.came):
        return Verdict(BACK, BACKUP, at.came, False)
    return _route_elsewhere(net, random, at, progress)


@numba.njit(cache=True)
def _route_elsewhere(net: State, random: Any, at: Place, progress: Any) -> Verdict:
    """Send the probe back over the backup link by which it came: its other end bypasses it."""
    if _bypass(net, random, at, progress, at.came, NOT_BACK):
        return Verdict(BACK, BACKUP, at.came, False)
    return Verdict(STUCK, NOWHERE, NOWHERE, False)


@numba.njit(cache=True)
def _onward(net: State, at: Place, progress: Any, port: int, peer: int) -> Verdict:
    own = net.servers[at.here]
    if port == BACKUP:
        progress[: own.level - 1] = BYZERO
    own.probe, own.back_by, own.back = at.number, at.came_by, at.came
    own.on_by, own.on = port, peer
    return Verdict(ONWARD, port, peer, False)


@numba.njit(cache=True)
def _reroute(net: State, at: Place, progress: Any, virtual: bool) -> Verdict:
    """Set out anew to the proxy that was just chosen: from here, or by Source ReRoute."""
    level = net.servers[at.here].level
    if at.came != NOWHERE and not _starts_over(level, at.came_by, progress):
        return Verdict(BACK, at.came_by, at.came, virtual)
    port, peer = _tor_hop(net.sizes, at.here, _target(progress, 0, at.destination))
    if _works(net, at.here, port, peer):
        return _onward(net, at, progress, port, peer)
    return Verdict(STUCK, NOWHERE, NOWHERE, False)


@numba.njit(cache=True)
def _prefers_backup(net: State, at: Place, progress: Any) -> bool:
    """Tell whether a source takes its backup link though TOR would not."""
    own = net.servers[at.here]
    return (
        own.by_backup
        and flows_more(net, at.here) > 0
        and _may_bypass(progress, own.level)
        and _target(progress, 0, at.destination) == at.destination
        and _tor_hop(net.sizes, own.far, at.destination)[1] != at.here
    )


@numba.njit(cache=True)
def flows_more(net: State, here: int) -> int:
    """Return how many flows more, virtual ones included, leave by the level-0 link."""
    own = net.servers[here]
    return int(own.switch_flows + own.joined - own.left - own.backup_flows)


@numba.njit(cache=True)
def _works(net: State, here: int, port: int, peer: int) -> bool:
    """Tell whether a hop works: of one through the switch, both cables."""
    if port == BACKUP:
        return bool(net.servers[here].by_backup)
    return bool(net.servers[here].by_switch and net.servers[peer].by_switch)


# -- the PR field ----------------------------------------------------------------------------------


@numba.njit(cache=True)
def _set(progress: Any, level: int, entry: int) -> None:
    progress[: level - 1] = BYZERO
    progress[level - 1] = entry


@numba.njit(cache=True)
def _may_bypass(progress: Any, level: int) -> bool:
    return bool(0 < level <= len(progress) and progress[level - 1] == BYZERO)


@numba.njit(cache=True)
def _target(progress: Any, above: int, destination: int) -> int:
    """Return the lowest-level proxy above that level, or the destination."""
    for entry in range(above, len(progress)):
        if progress[entry] >= 0:
            return int(progress[entry])
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
def _bypass(net: State, random: Any, at: Place, progress: Any, around: int, wanted: int) -> bool:
    """Choose a proxy that bypasses a server's backup link, and tell whether there is one."""
    sizes, order = net.sizes, net.order
    for level in range(max(1, net.servers[around].level), len(progress) + 1):
        below, size = sizes[level - 1], sizes[level]
        goal = _leg(sizes, around, level, _target(progress, level, at.destination))
        if progress[level - 1] != BYZERO or goal == NOWHERE:
            continue
        members = size // below
        for member in range(members):
            order[member] = member
        for last in range(members - 1, -1, -1):
            place = random.integers(0, last + 1)
            third = around // size * size + order[place] * below
            order[place] = order[last]
            if third // below == around // below or third // below == goal // below:
                continue
            proxy = _link_between(sizes, around, third, level)[1]
            if _usable(net, at.here, around, proxy, wanted):
                _set(progress, level, proxy)
                return True
    return False


@numba.njit(cache=True)
def _usable(net: State, here: int, around: int, proxy: int, wanted: int) -> bool:
    if wanted == NOT_BACK:
        return bool(_tor_hop(net.sizes, around, proxy)[1] != here)
    port, peer = _tor_hop(net.sizes, here, proxy)
    return (wanted == WORKING or port == SWITCH) and _works(net, here, port, peer)


@numba.njit(cache=True)
def _fall_back(net: State, at: Place, progress: Any, around: int) -> bool:
    """Give up a bypass that met a failure, and tell whether there was one."""
    level = net.servers[around].level
    if not 0 < level <= len(progress) or progress[level - 1] != BYONE:
        return False
    goal = _leg(net.sizes, around, level, _target(progress, level, at.destination))
    if goal == NOWHERE:
        return False
    _set(progress, level, goal)
    return True


@numba.njit(cache=True)
def _leg(sizes: Any, here: int, level: int, target: int) -> int:
    """Return where TOR goes to cross a cable of that level, NOWHERE if it does not."""
    common = common_level(sizes, here, target)
    while common > level:
        target = _link_between(sizes, here, target, common)[0]
        common = common_level(sizes, here, target)
    return target if common == level else NOWHERE


# -- FiConn's arithmetic ---------------------------------------------------------------------------


@numba.njit(cache=True)
def common_level(sizes: Any, a: int, b: int) -> int:
    """Return the level of the smallest FiConn that both servers are in."""
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
def _tor_hop(sizes: Any, here: int, target: int) -> tuple[int, int]:
    """Return the port of TOR's next hop, and the server it leads to."""
    while True:
        level = common_level(sizes, here, target)
        if level == 0:
            return SWITCH, target
        near, far = _link_between(sizes, here, target, level)
        if near == here:
            return BACKUP, far
        target = near
