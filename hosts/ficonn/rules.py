"""FiConn's rules (Li 2009): the cables of TOR, and TAR's decision on a probe, Algorithm 3.

The rules are scalar functions, without objects: routers call them, and simulators compile the same
functions. `pillarbox.hosts.ficonn.tar` explains probes and why they terminate. The functions modify
the probe's PR field, `progress`, in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol

from pillarbox.hosts.base.recursive import (
    Nested,
    Room,
    common_level,
    far_end,
    link_between,
    next_hop,
)
from pillarbox.topos.ficonn import BACKUP, SWITCH

NOWHERE = -1  # number that means "no server" or "no port"
# Special entries of a probe's PR field, in place of a proxy server.
BYZERO, BYONE = -1, -2

ARRIVED, ONWARD, BACK, STUCK = range(4)
# Requirements on a bypass's proxy: the path to the proxy starts with a working level-0 link; its
# first hop works; or the path does not lead back to this server.
BY_SWITCH, WORKING, NOT_BACK = range(3)


class Random(Protocol):
    """Random source for drawing proxies."""

    def randrange(self, stop: int, /) -> int:
        """Return a random number from 0 to stop - 1."""
        ...


class Mates(Protocol):
    """Cable states of the servers on one switch, including this server: True if up."""

    def __getitem__(self, server: int, /) -> bool: ...


class Server(NamedTuple):
    """The state of a server and its links when a probe arrives."""

    here: int
    level: int
    far: int  # server at the other end of the backup link, NOWHERE without a backup link
    by_backup: bool  # True if the backup link works
    switch_works: bool  # True if any link over the level-0 switch works
    better: int  # link with more available bandwidth: 1 backup, -1 level 0, 0 equal


class ProbeEntry(NamedTuple):
    """A flow's routing entry from an earlier visit of its probe: port and server of both hops."""

    back_by: int
    back: int
    on_by: int
    on: int


class ProbeVerdict(NamedTuple):
    """A server's decision on a path probe: action, next hop and port.

    ONWARD: store previous and next hop, and send the probe on. BACK: remove both hops, and send the
    probe to the previous hop.
    """

    kind: int
    port: int
    peer: int
    back_by: int
    back: int
    virtual: bool  # True if the flow becomes a virtual flow of this server


class ProbePlace(NamedTuple):
    """A probe's position: the network, the server and its links, destination and arrival hop."""

    net: Nested
    own: Server
    mates: Mates
    random: Random
    order: Room  # scratch array in which the FiConns of a level are shuffled to choose a proxy
    destination: int
    came_by: int  # port to the previous server, NOWHERE at the probe's source
    came: int


def nested(sizes: Sequence[int]) -> Nested:
    """Return FiConn's wiring (Algorithm 1): every 2^l-th server of a member has a level-l cable."""
    levels = range(1, len(sizes))
    steps, starts = [2**level for level in levels], [2 ** (level - 1) - 1 for level in levels]
    return Nested(sizes, [1, *steps], [0, *starts], [SWITCH, *[BACKUP] * len(levels)])


def most_members(sizes: Sequence[int]) -> int:
    """Return the largest number of FiConns of the next lower level that a FiConn consists of."""
    return max((size // below for below, size in pairwise(sizes)), default=0)


def level_of(net: Nested, server: int) -> int:
    """Return the level of a server's backup link, 0 without a backup link."""
    for level in range(1, len(net.sizes)):
        if server % net.steps[level] == net.starts[level]:
            return level
    return 0


def start(net: Nested, source: int, destination: int, by_far_side: bool, progress: Room) -> int:
    """Write the PR field of a new probe, and return its number of entries, at most k + 1.

    The last entry is that of the lowest common level of both ends (section IV.B); all are BYZERO.
    """
    # Departs from the paper: the PR field always has an entry for the source's level, as the probe
    # may have to leave by the source's backup port if the source's level-0 link has failed.
    count = max(common_level(net.sizes, source, destination), level_of(net, source))
    if by_far_side:
        # Departs from the paper: an option. The server at the far side of the destination's backup
        # link is the proxy above all levels, so that a destination with no other link is reached.
        level = level_of(net, destination)
        far = far_end(net, destination, level) if level > 0 else source
        if far != source:
            count = len(net.sizes)
            progress[count - 1] = far
    for entry in range(min(count, len(net.sizes) - 1)):
        progress[entry] = BYZERO
    return count


def decide(place: ProbePlace, entry: ProbeEntry, progress: Room) -> ProbeVerdict:
    """Return a server's decision on a path probe (Algorithm 3)."""
    net, own = place.net, place.own
    if place.destination == own.here:
        return ProbeVerdict(ARRIVED, NOWHERE, NOWHERE, NOWHERE, NOWHERE, False)
    came_by, came = place.came_by, place.came
    # Algorithm 3, lines 4-8: Source ReRoute.
    if came != NOWHERE and came_by == entry.on_by and came == entry.on:
        came_by, came = entry.back_by, entry.back
        if came != NOWHERE and not starts_over(own.level, came_by, progress):
            return send_back(came_by, came, False)
        place = ProbePlace(
            net, own, place.mates, place.random, place.order, place.destination, came_by, came
        )
    for level in range(1, len(progress) + 1):  # lines 9-10
        if progress[level - 1] == own.here:
            put(progress, level, BYONE)
    port, peer = next_hop(net, own.here, target(progress, 0, place.destination))
    if port == came_by and peer == came:
        return stuck()
    # Departs from the paper: a server searches for a bypass only if TOR's next hop is its backup
    # link. Line 15 as printed would search for a path around a link that TOR does not use.
    if port == BACKUP:
        return over_backup(place, progress)
    if hop_works(place, port, peer):
        if prefers_backup(place, progress):
            return leave(place, progress)
        return onward(place, progress, port, peer)
    if own.switch_works:
        return around(place, progress, peer)
    if came == NOWHERE:
        return leave(place, progress)
    return route_back(place, progress)


# -- cases of TOR's next hop -----------------------------------------------------------------------


def over_backup(place: ProbePlace, progress: Room) -> ProbeVerdict:
    """Decide on a probe whose TOR next hop is the backup link: use or bypass it (lines 15-30)."""
    own = place.own
    if not own.by_backup or (own.switch_works and own.better < 0):
        # Departs from the paper: a proxy whose first hop is the bypassed link, or a link that does
        # not work, is drawn again. Line 23 draws again only while the next hop stays the same.
        if bypass(place, progress, own.here, BY_SWITCH):
            # A bypass of a failed backup link balances no load: no virtual flow is counted.
            return reroute(place, progress, own.by_backup)
        if not own.by_backup:
            if undo_bypass(place, progress, own.here) or replace_proxy(place, progress):
                return reroute(place, progress, False)
            return stuck()
    return onward(place, progress, BACKUP, own.far)


def around(place: ProbePlace, progress: Room, dead: int) -> ProbeVerdict:
    """Decide on a probe whose TOR next hop, on the same switch, cannot be reached.

    All links of that server count as failed, which only its neighbours know. They bypass the backup
    link that TOR would use from that server; if it is the destination, the probe has to enter it by
    its backup link.
    """
    if dead == place.destination:
        level = level_of(place.net, dead)
        if place.came != NOWHERE and may_bypass(progress, level):
            far = far_end(place.net, dead, level)
            put(progress, level, far)
            over = starts_over(place.own.level, place.came_by, progress)
            if over and not usable(place, place.own.here, far, WORKING):
                # All paths from here to the destination's backup link lead through the unreachable
                # destination: the probe has to enter its FiConn_l elsewhere.
                return route_elsewhere(place, progress)
            return reroute(place, progress, False)
    elif (
        bypass(place, progress, dead, WORKING)
        or undo_bypass(place, progress, dead)
        or replace_proxy(place, progress)
    ):
        return reroute(place, progress, False)
    if place.came == NOWHERE:
        return leave(place, progress)
    return stuck()


def leave(place: ProbePlace, progress: Room) -> ProbeVerdict:
    """Decide on a probe whose source uses its backup link against TOR (lines 13 and 14).

    The source prefers the backup link, or has no other link that works.
    """
    net, own = place.net, place.own
    if not own.by_backup or own.level > len(progress):
        return stuck()
    if next_hop(net, own.far, target(progress, 0, place.destination))[1] == own.here:
        # The backup link's far end would return the probe, so its proxy is in a third FiConn.
        if not bypass(place, progress, own.far, NOT_BACK):
            return stuck()
    elif may_bypass(progress, own.level) or bypasses(place, progress, own.level):
        # Departs from the paper: this counts as the only bypass of the FiConn_l, with the far end
        # as its proxy. With a further bypass, or one chosen earlier, the path would lead through
        # four FiConn_{l-1}s, one of which may be the source's own again (Theorem 6 allows three).
        put(progress, own.level, own.far)
    return onward(place, progress, BACKUP, own.far)


def route_back(place: ProbePlace, progress: Room) -> ProbeVerdict:
    """Send the probe back if the level-0 link has failed and it arrived by the backup link.

    The server acts as if its backup link had failed (section IV.A): the other end must bypass this
    link.
    """
    if place.came_by != BACKUP:
        return stuck()
    if undo_bypass(place, progress, place.came):
        return send_back(BACKUP, place.came, False)
    return route_elsewhere(place, progress)


def route_elsewhere(place: ProbePlace, progress: Room) -> ProbeVerdict:
    """Send the probe back over the backup link by which it arrived; the other end bypasses it."""
    if bypass(place, progress, place.came, NOT_BACK):
        return send_back(BACKUP, place.came, False)
    return stuck()


def onward(place: ProbePlace, progress: Room, port: int, peer: int) -> ProbeVerdict:
    """Return the decision to store the flow's hops and forward the probe (lines 16-18, 25-27)."""
    # Departs from the paper: resetPR belongs to the crossing of a level-l cable (section IV.B);
    # line 17, whose indentation was lost in print, would reset at every server of level l.
    if port == BACKUP:
        for level in range(1, min(place.own.level, len(progress) + 1)):
            progress[level - 1] = BYZERO
    return ProbeVerdict(ONWARD, port, peer, place.came_by, place.came, False)


def reroute(place: ProbePlace, progress: Room, virtual: bool) -> ProbeVerdict:
    """Let the probe start again towards its new proxy: from this server or by Source ReRoute."""
    own = place.own
    if place.came != NOWHERE and not starts_over(own.level, place.came_by, progress):
        return send_back(place.came_by, place.came, virtual)
    # Departs from the paper: at a server where the probe starts over, the source above all, there
    # is no hop to send it back to, and this server stays on the path. Line 30 would return NULL.
    port, peer = next_hop(place.net, own.here, target(progress, 0, place.destination))
    if hop_works(place, port, peer):
        return onward(place, progress, port, peer)
    return stuck()


def send_back(port: int, peer: int, virtual: bool) -> ProbeVerdict:
    """Return the decision to send the probe back to the previous hop."""
    return ProbeVerdict(BACK, port, peer, NOWHERE, NOWHERE, virtual)


def stuck() -> ProbeVerdict:
    """Return the decision on a probe without a usable next hop: drop the probe."""
    return ProbeVerdict(STUCK, NOWHERE, NOWHERE, NOWHERE, NOWHERE, False)


# -- state of a server's links ---------------------------------------------------------------------


def prefers_backup(place: ProbePlace, progress: Room) -> bool:
    """Return True if a source uses its backup link although TOR would not (line 13)."""
    own = place.own
    if place.came != NOWHERE or not own.by_backup or own.better <= 0:
        return False
    # Departs from the paper: line 13 is not used for a path to a proxy, or if the backup link's far
    # end would
    # send the probe straight back (the paper bypasses in that case, and Theorem 6 fails).
    return (
        may_bypass(progress, own.level)
        and target(progress, 0, place.destination) == place.destination
        and next_hop(place.net, own.far, place.destination)[1] != own.here
    )


def hop_works(place: ProbePlace, port: int, peer: int) -> bool:
    """Return True if the hop of this server through a port to a peer works."""
    if port == BACKUP:
        return place.own.by_backup
    return bool(place.mates[place.own.here] and place.mates[peer])


# -- the source, and servers where a probe starts over ---------------------------------------------


def starts_over(level: int, came_by: int, progress: Room) -> bool:
    """Return True if Source ReRoute ends at a server of `level` that is not the source."""
    # Departs from the paper: a probe goes back to the server where it entered the FiConn_j of the
    # bypass, not to the source: the path set up before stays. If the probe started from the source,
    # PR entries of one FiConn would count in another, and bypasses in two FiConns could undo each
    # other endlessly.
    if came_by == BACKUP:
        for pending in range(1, len(progress) + 1):
            if progress[pending - 1] >= 0:
                return level > pending
    return False


# -- the PR field ----------------------------------------------------------------------------------


def may_bypass(progress: Room, level: int) -> bool:
    """Return True if a probe may bypass a level: its PR entry is BYZERO."""
    return 0 < level <= len(progress) and progress[level - 1] == BYZERO


def bypasses(place: ProbePlace, progress: Room, level: int) -> bool:
    """Return True if a probe bypasses a level: its PR entry is a proxy in a third FiConn."""
    proxy, below = progress[level - 1], place.net.sizes[level - 1]
    goal = target_beyond(
        place.net, place.own.here, level, target(progress, level, place.destination)
    )
    return proxy >= 0 and goal != NOWHERE and proxy // below != goal // below


def put(progress: Room, level: int, entry: int) -> None:
    """Set a level's entry in a probe's PR field, and reset the entries of lower levels."""
    # Departs from the paper: a new PR_l resets the entries of lower levels. They belong to a
    # FiConn_{l-1} that the probe no longer crosses, or crosses again from the start.
    for lower in range(level - 1):
        progress[lower] = BYZERO
    progress[level - 1] = entry


def target(progress: Room, above: int, destination: int) -> int:
    """Return a probe's next target: the proxy of the lowest level, or the destination."""
    for level in range(above, len(progress)):
        if progress[level] >= 0:
            return int(progress[level])
    return destination


# -- bypassLink ------------------------------------------------------------------------------------


def bypass(place: ProbePlace, progress: Room, at: int, wanted: int) -> bool:
    """Choose a proxy so that a probe bypasses a server's backup link; return True if one exists.

    The proxy is in a random third FiConn, at the lowest level without a bypass so far.
    """
    net = place.net
    for level in range(max(1, level_of(net, at)), len(progress) + 1):
        if progress[level - 1] == BYZERO and draw_proxy(place, progress, at, level, wanted):
            return True
    return False


def draw_proxy(place: ProbePlace, progress: Room, at: int, level: int, wanted: int) -> bool:
    """Set a probe's PR entry of a level to a random usable proxy; return True if one was found."""
    net = place.net
    goal = target_beyond(net, at, level, target(progress, level, place.destination))
    if goal == NOWHERE:
        return False
    below, size = net.sizes[level - 1], net.sizes[level]
    for member in range(size // below):
        place.order[member] = member
    for left in range(size // below, 0, -1):
        third = at // size * size + take(place.order, left, place.random) * below
        if third // below == at // below or third // below == goal // below:
            continue
        proxy = link_between(net, at, third, level)[1]
        if usable(place, at, proxy, wanted):
            put(progress, level, proxy)
            return True
    return False


def take(order: Room, left: int, random: Random) -> int:
    """Remove and return a random element of the first `left` elements of a list.

    This is one step of the Fisher-Yates shuffle, so only the needed elements are drawn.
    """
    place = random.randrange(left)
    taken, order[place] = order[place], order[left - 1]
    return taken


def usable(place: ProbePlace, at: int, proxy: int, wanted: int) -> bool:
    """Return True if a proxy that bypasses server `at`'s backup link meets the requirement."""
    if wanted == NOT_BACK:
        return next_hop(place.net, at, proxy)[1] != place.own.here
    port, peer = next_hop(place.net, place.own.here, proxy)
    return (wanted == WORKING or port == SWITCH) and hop_works(place, port, peer)


def undo_bypass(place: ProbePlace, progress: Room, at: int) -> bool:
    """Undo a probe's bypass that met a failure; return False if there is no bypass.

    The proxy's place is taken by the server at the far end of that cable on TOR's path.
    """
    level = level_of(place.net, at)
    if not 0 < level <= len(progress) or progress[level - 1] != BYONE:
        return False
    goal = target_beyond(place.net, at, level, target(progress, level, place.destination))
    if goal == NOWHERE:
        return False
    put(progress, level, goal)
    return True


def replace_proxy(place: ProbePlace, progress: Room) -> bool:
    """Replace a probe's lowest proxy, which cannot be reached; return True on success.

    The source draws another proxy. Other servers use the cable that was to be bypassed, since two
    of them could otherwise alternate endlessly between proxies; that cable may work, and only have
    had less available bandwidth.
    """
    # Departs from the paper: a proxy that cannot be reached is replaced, since the server that
    # chose the proxy does not know of failures on the path.
    here, at_source = place.own.here, place.came == NOWHERE
    for level in range(1, len(progress) + 1):
        if progress[level - 1] >= 0:
            if not bypasses(place, progress, level):
                return False
            if at_source and draw_proxy(place, progress, here, level, WORKING):
                return True
            goal = target_beyond(place.net, here, level, target(progress, level, place.destination))
            if at_source and not usable(place, here, goal, WORKING):
                return False
            put(progress, level, goal)
            return True
    return False


def target_beyond(net: Nested, at: int, level: int, goal: int) -> int:
    """Return TOR's target server after the level-`level` cable on its path, else NOWHERE.

    The result is the server that TOR heads for next in the FiConn_{level-1} at the cable's far end.
    """
    common = common_level(net.sizes, at, goal)
    while common > level:
        goal = link_between(net, at, goal, common)[0]
        common = common_level(net.sizes, at, goal)
    return goal if common == level else NOWHERE
