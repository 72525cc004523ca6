"""FiConn's traffic-aware routing, TAR: one server's decision on a probe (Li 2009, section IV).

A probe sets up the path of one flow. Every server on the path chooses between its two outgoing
links, backup and level 0, and records for the flow where the probe came from and where it went.
`decide` is that choice, Algorithm 3: a function of the server's local state, without bytes, clock
or tables. Its rules are in `pillarbox.hosts.ficonn.rules`, which the simulator compiles as well.

A probe carries (section IV.B) one entry PR_l per level l: BYZERO if no link of level l was bypassed
in the current FiConn_l; a server, the *proxy* that the probe is heading for, which is the far end
of the cable to a third FiConn_{l-1}; BYONE if the proxy was passed. Each FiConn_l is bypassed at
most once.

A server that bypasses its link is not needed on the path: it sends the probe back, each server on
the way back removes its entry (Source ReRoute, section IV.C), and the probe starts again towards
the proxy. The bypassing server counts a *virtual flow* on its level-0 link (section IV.D);
otherwise the unused level-0 link would always look better.

Termination of probes: PR_l only changes from BYZERO to a proxy to BYONE, except that crossing a
cable of a higher level, or a bypass at a higher level, resets the lower entries; both are bounded,
and between two changes a probe follows TOR. A proxy that cannot be reached is given up: the source
chooses a proxy to which its first hop works, other servers use the bypassed cable, which is no
proxy.

Freedom from loops: within a FiConn_l a path leads through at most three FiConn_{l-1}s, each visited
once; hence Theorem 6, at most 2*3^k - 1 hops. The only exception: a source whose failures leave
only its backup port leaves its FiConn_{l-1} at the first hop, and may have to return to it.

With one bypass per FiConn_l, some paths around failures cannot be expressed. A server of level l
whose level-0 link has failed is not reached from its own FiConn_{l-1}, unless probes may enter by
the far side of its backup link, which is an option (`tar-far-side`). If few FiConns are left to
draw from, many failures can leave probes no path although the network has one.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from typing import NamedTuple, TypeAlias

from pillarbox.hosts.base.path import Step
from pillarbox.hosts.base.recursive import Nested, far_end
from pillarbox.hosts.ficonn import rules
from pillarbox.hosts.ficonn.link_choice import better_link
from pillarbox.hosts.ficonn.rules import BYZERO, NOWHERE
from pillarbox.topos.ficonn import BACKUP, SWITCH, FiConn

# Upper bound for a probe's hops: the largest TTL of a header. FiConn_3's longest path has 53 hops;
# Source ReRoute adds to that.
MOST_HOPS = 255
# A stuck or lost probe is retried, with new random proxies. PROBE_TIMEOUT is the timeout of each
# try and PROBE_PAUSES the pause before each try (an exponential back-off), both as multiples of the
# search timeout, or of the measured round trip if that is longer.
PROBE_TIMEOUT = 2
PROBE_PAUSES = (0, 0, 1, 2, 4)
JITTER = 0.25  # maximum random part of probe timeouts and pauses, as a fraction
PROBE_TRIES = len(PROBE_PAUSES)

Progress: TypeAlias = tuple[int, ...]  # the PR field: PR_1, PR_2, ...


class TarProbe(NamedTuple):
    """A path probe: source and destination of its flow, and its PR field."""

    source: int
    destination: int
    progress: Progress
    tries: int = 0  # number of unanswered probes for the same path before this probe
    back: bool = False  # True if the response returns over the probe's path, after a failure


class RouteEntry(NamedTuple):
    """A flow's routing entry on a server: previous hop (None at the source) and next hop."""

    previous: Step | None
    next: Step


class Sight(NamedTuple):
    """State and available bandwidth of a server's two links, for a decision on a probe."""

    works: Callable[[Step], bool]
    random: random.Random
    backup_bps: float = 0.0  # hb: available bandwidth of the backup link
    switch_bps: float = 0.0  # zb: available bandwidth of the level-0 link, minus virtual flows
    switch_works: bool = True  # True if any link over the level-0 switch works
    equal_share: float = 1.0  # bandwidths within this fraction of each other count as equal


class VirtualFlows(NamedTuple):
    """The events that end a virtual flow; section IV.D can be read in several ways."""

    probed: bool  # a virtual flow ends when the flow is probed again
    # a virtual flow ends when any flow uses the level-0 link (Algorithm 3, lines 19 and 20)
    level_0: bool


READINGS = {
    "as printed": VirtualFlows(probed=False, level_0=True),
    "until the next probe": VirtualFlows(probed=True, level_0=False),
    "until either": VirtualFlows(probed=True, level_0=True),
}
# Departs from the paper: a virtual flow ends only when its flow is probed again. Of all readings
# this one comes closest to Fig. 6 to 9 (`reproduce ficonn-virtual-flows`). As printed, the counter
# grows with every probe; if either event ends a virtual flow, too few remain, and paths get longer.
VIRTUAL_FLOWS = READINGS["until the next probe"]


class Arrived(NamedTuple):
    """Decision on a probe: it has reached its destination."""


class ForwardProbe(NamedTuple):
    """Decision on a probe: store the routing entry, and send the probe to its next hop."""

    route_entry: RouteEntry
    progress: Progress


class Back(NamedTuple):
    """Decision on a probe: remove the routing entry, and send the probe to the previous hop."""

    step: Step
    progress: Progress
    virtual: bool = False  # True if the flow becomes a virtual flow of this server


class Stuck(NamedTuple):
    """Decision on a probe: drop it, since it has no usable next hop."""

    reason: str


Decision: TypeAlias = Arrived | ForwardProbe | Back | Stuck

NO_PATH = "no path around a failure"


def first_probe(
    ficonn: FiConn, source: int, destination: int, tries: int = 0, *, by_far_side: bool = False
) -> TarProbe:
    """Return a flow's first probe, by TOR or by the far side of the destination's backup link."""
    entries = [BYZERO] * (ficonn.k + 1)
    net = _wiring(tuple(ficonn.sizes))
    count = rules.start(net, source, destination, by_far_side, entries)
    return TarProbe(source, destination, tuple(entries[:count]), tries)


def decide(
    ficonn: FiConn,
    server: int,
    probe: TarProbe,
    came: Step | None,
    route_entry: RouteEntry | None,
    sight: Sight,
) -> Decision:
    """Return a server's decision on a probe (Algorithm 3).

    Parameters
    ----------
    came : Step or None
        Hop back to the server from which the probe came (`phop`); None at the probe's source.
    route_entry : RouteEntry or None
        The flow's entry from an earlier visit of this probe, if any (`RTable`).
    """
    net = _wiring(tuple(ficonn.sizes))
    level = rules.level_of(net, server)
    far = far_end(net, server, level) if level else NOWHERE
    own = rules.Server(
        server,
        level,
        far,
        by_backup=level > 0 and sight.works(Step(BACKUP, far)),
        switch_works=sight.switch_works,
        better=better_link(sight.backup_bps, sight.switch_bps, sight.equal_share),
    )
    order = [0] * rules.most_members(ficonn.sizes)
    place = rules.ProbePlace(
        net, own, _MateStates(server, sight), sight.random, order, probe.destination, *_hop(came)
    )
    before = (
        (*_hop(route_entry.previous), *_hop(route_entry.next)) if route_entry else (NOWHERE,) * 4
    )
    entries = list(probe.progress)
    verdict = rules.decide(place, rules.ProbeEntry(*before), entries)
    step, progress = Step(verdict.port, verdict.peer), tuple(entries)
    if verdict.kind == rules.ARRIVED:
        return Arrived()
    if verdict.kind == rules.STUCK:
        return Stuck(NO_PATH)
    if verdict.kind == rules.BACK:
        return Back(step, progress, verdict.virtual)
    previous = None if verdict.back == NOWHERE else Step(verdict.back_by, verdict.back)
    return ForwardProbe(RouteEntry(previous, step), progress)


@cache
def _wiring(sizes: tuple[int, ...]) -> Nested:
    """Return a FiConn's wiring (`Nested`), cached since every path probe needs the wiring."""
    return rules.nested(sizes)


class _MateStates:
    """Link states of the servers on a server's switch, in the form that the rules expect."""

    def __init__(self, server: int, sight: Sight) -> None:
        self.server, self.sight = server, sight

    def __getitem__(self, mate: int) -> bool:
        return mate == self.server or self.sight.works(Step(SWITCH, mate))


def _hop(step: Step | None) -> tuple[int, int]:
    return (step.port, step.peer) if step else (NOWHERE, NOWHERE)
