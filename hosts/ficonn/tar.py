"""FiConn's traffic-aware routing: what one server does with a path probe (Li 2009, section IV).

A probe sets up the path of one flow. Every server on the way chooses between its two outgoing
links, backup and level 0, and notes for the flow where the probe came from and where it went.
`decide` is that choice, Algorithm 3: a function of what a server can know, without bytes, clock or
tables, so that a live server and a simulator of millions of servers share it.

What the probe carries (section IV.B) is one entry PR_l for each level l: BYZERO, no link of level
l was bypassed in the present FiConn_l; a server, the *proxy* that the probe is on its way to, the
far end of the cable to a third FiConn_{l-1}; BYONE, the proxy was passed. One bypass per FiConn_l
is all there is.

A server that bypasses its link is not needed on the path: it sends the probe back, each server
before it forgets its entry (Source ReRoute, section IV.C), and the probe sets out anew to the
proxy. The bypassing server remembers a *virtual flow* on its level-0 link (section IV.D): without
it, the unused level-0 link would look better for ever.

Why a probe ends: PR_l only ever goes from BYZERO over a proxy to BYONE, but for the crossing of a
cable of a higher level or a bypass at one, which start over below; both are bounded in turn, and
between two changes a probe follows TOR. Why a path has no loops: within a FiConn_l it leads through
at most three FiConn_{l-1}s, each visited once; hence Theorem 6, at most 2*3^k - 1 hops. The one
exception: a source from which failures leave no way but its backup port leaves its FiConn_{l-1} at
once, and may have to come back into it, or go on through a fourth one: that costs some hops more.

Left out: with one bypass in a FiConn_l, some ways around failures cannot be said. A server of level
l whose level-0 link has failed is not reached from its own FiConn_{l-1}, and where few FiConns are
left to draw from, many failures can leave no probe a way though the network has one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

from hosts.base.path import Step
from hosts.base.recursive import common_level, link_between
from hosts.ficonn.paths import tor_step
from hosts.ficonn.rules import nested
from topos.ficonn import BACKUP, SWITCH, FiConn

# Entries of the PR field that are no server.
BYZERO, BYONE = -1, -2

# After so many hops a probe is given up: the most that a header's TTL can say. FiConn_3's longest
# path has 53; Source ReRoute adds to that.
MOST_HOPS = 255
# A probe that got stuck, or lost, is tried again: other proxies are drawn then.
PROBE_TRIES = 5

Progress: TypeAlias = tuple[int, ...]  # PR_1, PR_2, ...


class Probe(NamedTuple):
    """What a probe says: the ends of its flow, and the PR field."""

    source: int
    destination: int
    progress: Progress


class Way(NamedTuple):
    """A flow's entry in the table of a server: previous hop (None at the source) and next hop."""

    previous: Step | None
    next: Step


class Sight(NamedTuple):
    """What a server knows of its own two outgoing links."""

    works: Callable[[Step], bool]
    random: random.Random
    backup_bps: float = 0.0  # hb: the available bandwidth of the backup link
    switch_bps: float = 0.0  # zb: that of the level-0 link, virtual flows taken off
    switch_works: bool = True  # whether the level-0 link leads anywhere
    # Departs from the paper: what is within this share of the other counts as equal, where
    # bandwidths are measured. Noise alone would lead flows away from TOR's shorter paths.
    equal_share: float = 1.0

    @property
    def backup_is_better(self) -> bool:
        """hb > zb."""
        return self.backup_bps * self.equal_share > self.switch_bps

    @property
    def switch_is_better(self) -> bool:
        """zb > hb."""
        return self.switch_bps * self.equal_share > self.backup_bps


class Arrived(NamedTuple):
    """The probe is for this server."""


class Onward(NamedTuple):
    """Note the way, and send the probe to its next hop."""

    way: Way
    progress: Progress


class Back(NamedTuple):
    """Forget the way, and send the probe back to this hop."""

    step: Step
    progress: Progress
    virtual: bool = False  # the flow is now a virtual one of this server


class Stuck(NamedTuple):
    """The probe cannot go on."""

    reason: str


Decision: TypeAlias = Arrived | Onward | Back | Stuck

NO_WAY = "no way around a failure"


def first_probe(ficonn: FiConn, source: int, destination: int) -> Probe:
    """Return the probe of a new path.

    Its PR field ends with the lowest common level of both ends (section IV.B).
    """
    # Departs from the paper: it has an entry for the source's own level in any case, since the
    # source may have to leave by its backup port where its level-0 link has failed.
    levels = max(common_level(ficonn.sizes, source, destination), ficonn.level(source))
    return Probe(source, destination, (BYZERO,) * levels)


def decide(
    ficonn: FiConn, server: int, probe: Probe, came: Step | None, way: Way | None, sight: Sight
) -> Decision:
    """Return what a server does with a probe (Algorithm 3).

    Parameters
    ----------
    came : Step or None
        The hop back to where the probe came from (`phop`); None where the server is its source.
    way : Way or None
        The flow's entry as this probe has set it up before, if it has (`RTable`).
    """
    return _Decision(ficonn, server, probe, came, way, sight).result()


class _Decision:
    """The steps of one decision; they share the many things that Algorithm 3 looks at."""

    def __init__(
        self,
        ficonn: FiConn,
        server: int,
        probe: Probe,
        came: Step | None,
        way: Way | None,
        sight: Sight,
    ) -> None:
        self.ficonn, self.server, self.came, self.way, self.sight = ficonn, server, came, way, sight
        self.destination, self.progress = probe.destination, probe.progress
        self.level = ficonn.level(server)
        self.backup = Step(BACKUP, ficonn.server_plug(server, BACKUP).node if self.level else -1)
        self.backup_works = self.level > 0 and sight.works(self.backup)

    def result(self) -> Decision:
        """Go through lines 2 to 14; what follows depends on the link that TOR would take."""
        if self.destination == self.server:
            return Arrived()
        if self.way and self.came == self.way.next:  # lines 4-8: Source ReRoute
            if self.way.previous and not self._starts_over(self.way.previous):
                return Back(self.way.previous, self.progress)
            self.came = self.way.previous
        while self.server in self.progress:  # lines 9-10
            self._set(self.progress.index(self.server) + 1, BYONE)
        step = tor_step(self.ficonn, self.server, self._target())
        if step == self.came:
            return Stuck(NO_WAY)
        # Departs from the paper: a server looks for a bypass only if TOR's next hop is its backup
        # link. Line 15 as printed would have it look for a way around a link nobody wants to take.
        if step.port == BACKUP:
            return self._by_backup()
        if self.sight.works(step):
            return self._leave() if self._prefers_backup() else self._onward(step)
        if self.sight.switch_works:
            return self._around(step)
        if self.came is None:
            return self._leave()
        return self._route_back()

    # -- the four ways on ------------------------------------------------------------------------

    def _by_backup(self) -> Decision:
        """TOR's next hop is the backup link: take it, or bypass it (lines 15 to 30)."""
        sight = self.sight
        if self.backup_works and not (sight.switch_works and sight.switch_is_better):
            return self._onward(self.backup)

        # Departs from the paper: a proxy to which the first hop is the bypassed link, or one that
        # does not work, is drawn again. Line 23 draws again only while the hop stays the same.
        def usable(proxy: int) -> bool:
            first = tor_step(self.ficonn, self.server, proxy)
            return first.port == SWITCH and sight.works(first)

        if self._bypass(self.server, usable):
            # Where the link is down there is nothing to balance.
            return self._reroute(virtual=self.backup_works)
        if self.backup_works:
            return self._onward(self.backup)
        return self._reroute() if self._fall_back(self.server) else Stuck(NO_WAY)

    def _around(self, dead: Step) -> Decision:
        """TOR's next hop is a server on the same switch, and cannot be reached there.

        Its links count as failed, and only its neighbours know. They bypass the backup link that
        TOR would take from it; if it is the destination, they have the probe come by that link.
        """

        def usable(proxy: int) -> bool:
            return self.sight.works(tor_step(self.ficonn, self.server, proxy))

        if dead.peer == self.destination:
            level = self.ficonn.level(dead.peer)
            if self.came and level <= len(self.progress) and self._entry(level) == BYZERO:
                far = self.ficonn.server_plug(dead.peer, BACKUP).node
                self._set(level, far)
                if self._starts_over(self.came) and not usable(far):
                    # From here every way to that link is by the server itself: the probe has to
                    # enter its FiConn_l elsewhere.
                    return self._route_elsewhere(self.came)
                return self._reroute()
        elif self._bypass(dead.peer, usable) or self._fall_back(dead.peer):
            return self._reroute()
        return self._leave() if self.came is None else Stuck(NO_WAY)

    def _leave(self) -> Decision:
        """The source takes its backup link where TOR would not (lines 13 and 14).

        It may prefer it, or have no other that works.
        """
        far = self.backup.peer
        if not self.backup_works or self.level > len(self.progress):
            return Stuck(NO_WAY)
        if tor_step(self.ficonn, far, self._target()).peer == self.server:
            # The far end would send the probe straight back: on it goes to a third FiConn.
            def usable(proxy: int) -> bool:
                return tor_step(self.ficonn, far, proxy).peer != self.server

            if not self._bypass(far, usable):
                return Stuck(NO_WAY)
        elif self._entry(self.level) == BYZERO:
            # Departs from the paper: this is the one bypass of the FiConn_l, with the far end as
            # its proxy. With another one behind it the path would lead through four FiConn_{l-1}s
            # and, of those, perhaps through the source's again (Theorem 6 allows three).
            self._set(self.level, far)
        return self._onward(self.backup)

    def _route_back(self) -> Decision:
        """The level-0 link has failed, and the probe came by the backup link: back it goes.

        As if that link had failed (section IV.A): its other end is to bypass it.
        """
        before = self.came
        if before is None or before.port != BACKUP:
            return Stuck(NO_WAY)
        return (
            Back(before, self.progress)
            if self._fall_back(before.peer)
            else self._route_elsewhere(before)
        )

    def _route_elsewhere(self, before: Step) -> Decision:
        """Send the probe back over the backup link by which it came: its other end bypasses it."""

        def usable(proxy: int) -> bool:
            return tor_step(self.ficonn, before.peer, proxy).peer != self.server

        return Back(before, self.progress) if self._bypass(before.peer, usable) else Stuck(NO_WAY)

    def _onward(self, step: Step) -> Onward:
        """Note the way (lines 16 to 18 and 25 to 27)."""
        # Departs from the paper: resetPR belongs to the crossing of a level-l cable (section IV.B);
        # line 17, whose indentation is lost in print, would reset at every server of level l.
        if step.port == BACKUP:
            lower = min(self.level - 1, len(self.progress))
            self.progress = (BYZERO,) * lower + self.progress[lower:]
        return Onward(Way(self.came, step), self.progress)

    def _reroute(self, *, virtual: bool = False) -> Decision:
        """Set out anew to the proxy that was just chosen: from here, or by Source ReRoute."""
        # Departs from the paper: where the probe starts over, at the source above all, there is
        # nobody to send it back to, and this server stays on the path. Line 30 would return NULL.
        if self.came is None or self._starts_over(self.came):
            step = tor_step(self.ficonn, self.server, self._target())
            return self._onward(step) if self.sight.works(step) else Stuck(NO_WAY)
        return Back(self.came, self.progress, virtual)

    # -- the source, and who starts over ---------------------------------------------------------

    def _prefers_backup(self) -> bool:
        """Tell whether a source takes its backup link though TOR would not (line 13)."""
        sight = self.sight
        if self.came or not self.backup_works or not sight.backup_is_better:
            return False
        # Departs from the paper: not on the way to a proxy, nor where the backup link's far end
        # would send the probe straight back (the paper bypasses there, and Theorem 6 fails).
        return (
            self._target() == self.destination
            and self._entry(self.level) == BYZERO
            and tor_step(self.ficonn, self.backup.peer, self.destination).peer != self.server
        )

    def _starts_over(self, previous: Step) -> bool:
        """Tell whether Source ReRoute ends here, at a server other than the source."""
        # Departs from the paper: a probe goes back to where it entered the FiConn_j of the bypass,
        # not to the source: what was set up before stays as it is. From the source, PR entries of
        # one FiConn would count in another, and bypasses in two FiConns could undo each other for
        # ever.
        pending = (level for level, entry in enumerate(self.progress, 1) if entry >= 0)
        return previous.port == BACKUP and self.level > next(pending, self.level)

    # -- the PR field ----------------------------------------------------------------------------

    def _entry(self, level: int) -> int:
        """Return PR_level; where the probe has none, nothing may be bypassed."""
        return self.progress[level - 1] if 0 < level <= len(self.progress) else BYONE

    def _set(self, level: int, entry: int) -> None:
        # Departs from the paper: a new PR_l starts the entries below over. They belong to the
        # FiConn_{l-1} through which the probe goes no more, or goes anew.
        self.progress = (BYZERO,) * (level - 1) + (entry,) + self.progress[level:]

    def _target(self, above: int = 0) -> int:
        """Return the lowest-level proxy above that level, or the destination (getPRDest)."""
        return next((entry for entry in self.progress[above:] if entry >= 0), self.destination)

    # -- bypassLink ------------------------------------------------------------------------------

    def _bypass(self, at: int, usable: Callable[[int], bool]) -> bool:
        """Choose a proxy that bypasses the backup link of a server, and tell whether there is one.

        At the lowest level at which nothing was bypassed so far; a third FiConn at random.
        """
        for level in range(max(1, self.ficonn.level(at)), len(self.progress) + 1):
            goal = self._leg(at, level)
            if self._entry(level) != BYZERO or goal is None:
                continue
            below, size = self.ficonn.sizes[level - 1], self.ficonn.sizes[level]
            for member in drawn(self.sight.random, size // below):
                third = at // size * size + member * below
                if third // below in (at // below, goal // below):
                    continue
                proxy = self._proxy(at, third, level)
                if usable(proxy):
                    self._set(level, proxy)
                    return True
        return False

    def _leg(self, at: int, level: int) -> int | None:
        """Return where TOR goes from a server to cross a cable of that level: None if it does not.

        The server returned is the far side's own next aim: in another FiConn_{level-1}.
        """
        target = self._target(above=level)
        while (common := common_level(self.ficonn.sizes, at, target)) > level:
            target = link_between(nested(self.ficonn.sizes), at, target, common)[0]
        return target if common == level else None

    def _proxy(self, at: int, third: int, level: int) -> int:
        """Return the far end of the cable from a server's FiConn_{level-1} to another one."""
        return link_between(nested(self.ficonn.sizes), at, third, level)[1]

    def _fall_back(self, at: int) -> bool:
        """Give up a bypass that met a failure, and tell whether there was one.

        What is left is the cable that was to be bypassed: TOR's way to the server that it leads to,
        which takes the proxy's place.
        """
        level = self.ficonn.level(at)
        goal = self._leg(at, level)
        if not 0 < level <= len(self.progress) or self._entry(level) != BYONE or goal is None:
            return False
        self._set(level, goal)
        return True


def drawn(source: random.Random, count: int) -> Iterator[int]:
    """Yield 0 .. count - 1 in random order; the first few cost little, however many there are.

    >>> sorted(drawn(random.Random(1), 5))
    [0, 1, 2, 3, 4]
    """
    moved: dict[int, int] = {}  # Fisher and Yates's shuffle; what is not here is in its place
    for left in range(count - 1, -1, -1):
        place = source.randrange(left + 1)
        yield moved.get(place, place)
        moved[place] = moved.get(left, left)
