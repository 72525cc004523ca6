"""FiConn's rules (Li 2009): the cables of TOR, and TAR's decision about a probe, Algorithm 3.

Scalar functions, without objects: routers call them, and simulators compile them as they are. What
a probe is, and why it ends, stands in `hosts.ficonn.tar`. Its PR field is changed in place.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol

from hosts.base.recursive import Nested, Room, common_level, far_end, link_between, next_hop
from topos.ficonn import BACKUP, SWITCH

NOWHERE = -1  # no server, no port
# Entries of the PR field that are no server.
BYZERO, BYONE = -1, -2

ARRIVED, ONWARD, BACK, STUCK = range(4)
# What a bypass asks of a proxy: that the way to it begins with the level-0 link and works; that it
# works; or that it does not lead back to this server.
BY_SWITCH, WORKING, NOT_BACK = range(3)


class Random(Protocol):
    """Draws proxies."""

    def randrange(self, stop: int, /) -> int:
        """Return any of 0 .. stop - 1."""
        ...


class Mates(Protocol):
    """Tells of the servers on a switch, this one among them, whether their cables work."""

    def __getitem__(self, server: int, /) -> bool: ...


class Server(NamedTuple):
    """What a server knows of itself, at the moment at which a probe comes to it."""

    here: int
    level: int
    far: int  # at the other end of its backup link, NOWHERE without one
    by_backup: bool  # whether that link works
    switch_works: bool  # whether the level-0 link leads anywhere
    better: int  # 1: the backup link has more bandwidth available; -1: the level-0 link; 0: neither


class Entry(NamedTuple):
    """How a probe has set up its flow here before: the hops back and on, or NOWHERE."""

    back_by: int
    back: int
    on_by: int
    on: int


class Verdict(NamedTuple):
    """What becomes of a probe.

    ONWARD: note the hops back and on, and send it on. BACK: forget them, and send it to that hop.
    """

    kind: int
    port: int
    peer: int
    back_by: int
    back: int
    virtual: bool  # whether the flow is now a virtual one of this server


class Place(NamedTuple):
    """Where a probe is."""

    net: Nested
    own: Server
    mates: Mates
    random: Random
    order: Room  # for a bypass to shuffle the members of a FiConn in
    destination: int
    came_by: int  # the hop back to where it came from, NOWHERE at its source
    came: int


def nested(sizes: Sequence[int]) -> Nested:
    """Return the cables (Algorithm 1): every 2^l-th server of a member has one of level l."""
    levels = range(1, len(sizes))
    steps, starts = [2**level for level in levels], [2 ** (level - 1) - 1 for level in levels]
    return Nested(sizes, [1, *steps], [0, *starts], [SWITCH, *[BACKUP] * len(levels)])


def most_members(sizes: Sequence[int]) -> int:
    """Return of how many FiConns of the level below a FiConn is made, at most."""
    return max((size // below for below, size in pairwise(sizes)), default=0)


def level_of(net: Nested, server: int) -> int:
    """Return the level of a server's backup link, 0 where it has none."""
    for level in range(1, len(net.sizes)):
        if server % net.steps[level] == net.starts[level]:
            return level
    return 0


def start(net: Nested, source: int, destination: int, by_far_side: bool, progress: Room) -> int:
    """Write the PR field of a new probe, and return how many entries it has: at most k + 1.

    It ends with the lowest common level of both ends (section IV.B); all entries are BYZERO.
    """
    # Departs from the paper: it has an entry for the source's own level in any case, since the
    # source may have to leave by its backup port where its level-0 link has failed.
    count = max(common_level(net.sizes, source, destination), level_of(net, source))
    if by_far_side:
        # Departs from the paper: an option. The server at the far side of the destination's
        # backup link is a proxy above all levels: what has only that link left is found by it.
        level = level_of(net, destination)
        far = far_end(net, destination, level) if level > 0 else source
        if far != source:
            count = len(net.sizes)
            progress[count - 1] = far
    for entry in range(min(count, len(net.sizes) - 1)):
        progress[entry] = BYZERO
    return count


def decide(place: Place, entry: Entry, progress: Room) -> Verdict:
    """Return what a server does with a probe: lines 2 to 14; the rest depends on TOR's next hop."""
    net, own = place.net, place.own
    if place.destination == own.here:
        return Verdict(ARRIVED, NOWHERE, NOWHERE, NOWHERE, NOWHERE, False)
    came_by, came = place.came_by, place.came
    if came != NOWHERE and came_by == entry.on_by and came == entry.on:  # 4-8: Source ReRoute
        came_by, came = entry.back_by, entry.back
        if came != NOWHERE and not starts_over(own.level, came_by, progress):
            return send_back(came_by, came, False)
        place = Place(
            net, own, place.mates, place.random, place.order, place.destination, came_by, came
        )
    for level in range(1, len(progress) + 1):  # lines 9-10
        if progress[level - 1] == own.here:
            put(progress, level, BYONE)
    port, peer = next_hop(net, own.here, target(progress, 0, place.destination))
    if port == came_by and peer == came:
        return stuck()
    # Departs from the paper: a server looks for a bypass only if TOR's next hop is its backup
    # link. Line 15 as printed would have it look for a way around a link that it does not take.
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


# -- the ways on -----------------------------------------------------------------------------------


def over_backup(place: Place, progress: Room) -> Verdict:
    """TOR's next hop is the backup link: take it, or bypass it (lines 15 to 30)."""
    own = place.own
    if not own.by_backup or (own.switch_works and own.better < 0):
        # Departs from the paper: a proxy to which the first hop is the bypassed link, or one that
        # does not work, is drawn again. Line 23 draws again only while the hop stays the same.
        if bypass(place, progress, own.here, BY_SWITCH):
            # Where the link is down there is nothing to balance.
            return reroute(place, progress, own.by_backup)
        if not own.by_backup:
            if fall_back(place, progress, own.here) or replace_proxy(place, progress):
                return reroute(place, progress, False)
            return stuck()
    return onward(place, progress, BACKUP, own.far)


def around(place: Place, progress: Room, dead: int) -> Verdict:
    """TOR's next hop is a server on the same switch, and cannot be reached there.

    Its links count as failed, and only its neighbours know. They bypass the backup link that
    TOR would take from it; if it is the destination, they have the probe come by that link.
    """
    if dead == place.destination:
        level = level_of(place.net, dead)
        if place.came != NOWHERE and may_bypass(progress, level):
            far = far_end(place.net, dead, level)
            put(progress, level, far)
            over = starts_over(place.own.level, place.came_by, progress)
            if over and not usable(place, place.own.here, far, WORKING):
                # From here every way to that link is by the server itself: the probe has to
                # enter its FiConn_l elsewhere.
                return route_elsewhere(place, progress)
            return reroute(place, progress, False)
    elif (
        bypass(place, progress, dead, WORKING)
        or fall_back(place, progress, dead)
        or replace_proxy(place, progress)
    ):
        return reroute(place, progress, False)
    if place.came == NOWHERE:
        return leave(place, progress)
    return stuck()


def leave(place: Place, progress: Room) -> Verdict:
    """The source takes its backup link where TOR would not (lines 13 and 14).

    It may prefer it, or have no other that works.
    """
    net, own = place.net, place.own
    if not own.by_backup or own.level > len(progress):
        return stuck()
    if next_hop(net, own.far, target(progress, 0, place.destination))[1] == own.here:
        # The far end would send the probe straight back: on it goes to a third FiConn.
        if not bypass(place, progress, own.far, NOT_BACK):
            return stuck()
    elif may_bypass(progress, own.level) or bypasses(place, progress, own.level):
        # Departs from the paper: this is the one bypass of the FiConn_l, with the far end as
        # its proxy. With another one behind it, or one chosen before, the path would lead through
        # four FiConn_{l-1}s, of which one may be the source's again (Theorem 6 allows three).
        put(progress, own.level, own.far)
    return onward(place, progress, BACKUP, own.far)


def route_back(place: Place, progress: Room) -> Verdict:
    """The level-0 link has failed, and the probe came by the backup link: back it goes.

    As if that link had failed (section IV.A): its other end is to bypass it.
    """
    if place.came_by != BACKUP:
        return stuck()
    if fall_back(place, progress, place.came):
        return send_back(BACKUP, place.came, False)
    return route_elsewhere(place, progress)


def route_elsewhere(place: Place, progress: Room) -> Verdict:
    """Send the probe back over the backup link by which it came: its other end bypasses it."""
    if bypass(place, progress, place.came, NOT_BACK):
        return send_back(BACKUP, place.came, False)
    return stuck()


def onward(place: Place, progress: Room, port: int, peer: int) -> Verdict:
    """Note the way (lines 16 to 18 and 25 to 27)."""
    # Departs from the paper: resetPR belongs to the crossing of a level-l cable (section IV.B);
    # line 17, whose indentation is lost in print, would reset at every server of level l.
    if port == BACKUP:
        for level in range(1, min(place.own.level, len(progress) + 1)):
            progress[level - 1] = BYZERO
    return Verdict(ONWARD, port, peer, place.came_by, place.came, False)


def reroute(place: Place, progress: Room, virtual: bool) -> Verdict:
    """Set out anew to the proxy that was just chosen: from here, or by Source ReRoute."""
    own = place.own
    if place.came != NOWHERE and not starts_over(own.level, place.came_by, progress):
        return send_back(place.came_by, place.came, virtual)
    # Departs from the paper: where the probe starts over, at the source above all, there is
    # no hop to send it back to, and this server stays on the path. Line 30 would return NULL.
    port, peer = next_hop(place.net, own.here, target(progress, 0, place.destination))
    if hop_works(place, port, peer):
        return onward(place, progress, port, peer)
    return stuck()


def send_back(port: int, peer: int, virtual: bool) -> Verdict:
    """Send the probe back to that hop."""
    return Verdict(BACK, port, peer, NOWHERE, NOWHERE, virtual)


def stuck() -> Verdict:
    """The probe cannot go on."""
    return Verdict(STUCK, NOWHERE, NOWHERE, NOWHERE, NOWHERE, False)


# -- what a server sees of its links ---------------------------------------------------------------


def prefers_backup(place: Place, progress: Room) -> bool:
    """Tell whether a source takes its backup link though TOR would not (line 13)."""
    own = place.own
    if place.came != NOWHERE or not own.by_backup or own.better <= 0:
        return False
    # Departs from the paper: not on the way to a proxy, nor where the backup link's far end
    # would send the probe straight back (the paper bypasses there, and Theorem 6 fails).
    return (
        may_bypass(progress, own.level)
        and target(progress, 0, place.destination) == place.destination
        and next_hop(place.net, own.far, place.destination)[1] != own.here
    )


def hop_works(place: Place, port: int, peer: int) -> bool:
    """Tell whether a hop of this server works."""
    if port == BACKUP:
        return place.own.by_backup
    return bool(place.mates[place.own.here] and place.mates[peer])


# -- the source, and where a probe starts over -----------------------------------------------------


def starts_over(level: int, came_by: int, progress: Room) -> bool:
    """Tell whether Source ReRoute ends at a server of that level, which is not the source."""
    # Departs from the paper: a probe goes back to where it entered the FiConn_j of the bypass,
    # not to the source: what was set up before stays as it is. From the source, PR entries of
    # one FiConn would count in another, and bypasses in two FiConns could undo each other for
    # ever.
    if came_by == BACKUP:
        for pending in range(1, len(progress) + 1):
            if progress[pending - 1] >= 0:
                return level > pending
    return False


# -- the PR field ----------------------------------------------------------------------------------


def may_bypass(progress: Room, level: int) -> bool:
    """Tell whether PR_level is BYZERO; where the probe has no such entry, nothing is bypassed."""
    return 0 < level <= len(progress) and progress[level - 1] == BYZERO


def bypasses(place: Place, progress: Room, level: int) -> bool:
    """Tell whether PR_level is a proxy in a third FiConn, beside TOR's way."""
    proxy, below = progress[level - 1], place.net.sizes[level - 1]
    goal = leg(place.net, place.own.here, level, target(progress, level, place.destination))
    return proxy >= 0 and goal != NOWHERE and proxy // below != goal // below


def put(progress: Room, level: int, entry: int) -> None:
    """Set PR_level."""
    # Departs from the paper: a new PR_l starts the entries below over. They belong to the
    # FiConn_{l-1} through which the probe goes no more, or goes anew.
    for lower in range(level - 1):
        progress[lower] = BYZERO
    progress[level - 1] = entry


def target(progress: Room, above: int, destination: int) -> int:
    """Return the lowest-level proxy above that level, or the destination (getPRDest)."""
    for level in range(above, len(progress)):
        if progress[level] >= 0:
            return int(progress[level])
    return destination


# -- bypassLink ------------------------------------------------------------------------------------


def bypass(place: Place, progress: Room, at: int, wanted: int) -> bool:
    """Choose a proxy that bypasses the backup link of a server, and tell whether there is one.

    At the lowest level at which nothing was bypassed so far; a third FiConn at random.
    """
    net = place.net
    for level in range(max(1, level_of(net, at)), len(progress) + 1):
        if progress[level - 1] == BYZERO and draw(place, progress, at, level, wanted):
            return True
    return False


def draw(place: Place, progress: Room, at: int, level: int, wanted: int) -> bool:
    """Choose a proxy of that level, and tell whether there is one."""
    net = place.net
    goal = leg(net, at, level, target(progress, level, place.destination))
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


def take(order: MutableSequence[int], left: int, random: Random) -> int:
    """Take one of the first entries out of a list; those that are left are one fewer.

    Fisher and Yates's shuffle, in which only what is needed is drawn.
    """
    place = random.randrange(left)
    taken, order[place] = order[place], order[left - 1]
    return taken


def usable(place: Place, at: int, proxy: int, wanted: int) -> bool:
    """Tell whether a proxy that bypasses the link of a server is what is wanted."""
    if wanted == NOT_BACK:
        return next_hop(place.net, at, proxy)[1] != place.own.here
    port, peer = next_hop(place.net, place.own.here, proxy)
    return (wanted == WORKING or port == SWITCH) and hop_works(place, port, peer)


def fall_back(place: Place, progress: Room, at: int) -> bool:
    """Give up a bypass that met a failure, and tell whether there was one.

    What is left is the cable that was to be bypassed: TOR's way to the server that it leads to,
    which takes the proxy's place.
    """
    level = level_of(place.net, at)
    if not 0 < level <= len(progress) or progress[level - 1] != BYONE:
        return False
    goal = leg(place.net, at, level, target(progress, level, place.destination))
    if goal == NOWHERE:
        return False
    put(progress, level, goal)
    return True


def replace_proxy(place: Place, progress: Room) -> bool:
    """Give up the lowest proxy, to which there is no way, and tell whether there is another aim.

    At the source another one takes its place; elsewhere, lest two of them take turns for ever, it
    is the cable that was to be bypassed. That one may work, and only have had less bandwidth free.
    """
    # Departs from the paper: who chooses a proxy does not know what has failed on the way to it.
    here, at_source = place.own.here, place.came == NOWHERE
    for level in range(1, len(progress) + 1):
        if progress[level - 1] >= 0:
            if not bypasses(place, progress, level):
                return False
            if at_source and draw(place, progress, here, level, WORKING):
                return True
            goal = leg(place.net, here, level, target(progress, level, place.destination))
            if at_source and not usable(place, here, goal, WORKING):
                return False
            put(progress, level, goal)
            return True
    return False


def leg(net: Nested, at: int, level: int, goal: int) -> int:
    """Return where TOR goes from a server to cross a cable of that level, NOWHERE if it does not.

    The server returned is the far side's own next aim: in another FiConn_{level-1}.
    """
    common = common_level(net.sizes, at, goal)
    while common > level:
        goal = link_between(net, at, goal, common)[0]
        common = common_level(net.sizes, at, goal)
    return goal if common == level else NOWHERE
