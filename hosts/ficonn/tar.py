"""FiConn's traffic-aware routing: what one server does with a path probe (Li 2009, section IV).

A probe sets up the path of one flow. Every server on the way chooses between its two outgoing
links, backup and level 0, and notes for the flow where the probe came from and where it went.
`decide` is that choice, Algorithm 3: a function of what a server can know, without bytes, clock or
tables. Its rules are in `hosts.ficonn.rules`; the simulator compiles the same.

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
between two changes a probe follows TOR. A proxy to which there is no way is given up: the source
takes one to which its first hop works, others take the bypassed cable, which is no proxy.

Why a path has no loops: within a FiConn_l it leads through at most three FiConn_{l-1}s, each
visited once; hence Theorem 6, at most 2*3^k - 1 hops. The one exception: a source from which
failures leave no way but its backup port leaves its FiConn_{l-1} at once, and may have to come back
into it.

With one bypass in a FiConn_l, some ways around failures cannot be said. A server of level l whose
level-0 link has failed is not reached from its own FiConn_{l-1}, unless probes may come by the far
side of its backup link, which is an option (`tar-far-side`); and where few FiConns are left to draw
from, many failures can leave no probe a way though the network has one.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from typing import NamedTuple, TypeAlias

from hosts.base.path import Step
from hosts.base.recursive import Nested, far_end
from hosts.ficonn import rules
from hosts.ficonn.rules import BYZERO, NOWHERE
from topos.ficonn import BACKUP, SWITCH, FiConn

# After so many hops a probe is given up: the most that a header's TTL can say. FiConn_3's longest
# path has 53; Source ReRoute adds to that.
MOST_HOPS = 255
# A probe that is stuck or lost is tried again, and other proxies are drawn. How long each try waits
# for its answer, and how long a flow pauses before each try (an exponential back-off): as multiples
# of the search timeout, or of the measured round trip where that is longer.
PROBE_TIMEOUT = 2
PROBE_PAUSES = (0, 0, 1, 2, 4)
JITTER = 0.25  # upper bound for the random part of either, as a share of it
PROBE_TRIES = len(PROBE_PAUSES)

Progress: TypeAlias = tuple[int, ...]  # PR_1, PR_2, ...


class Probe(NamedTuple):
    """What a probe says: the ends of its flow, and the PR field."""

    source: int
    destination: int
    progress: Progress
    tries: int = 0  # how many before it, for the same path, had no answer
    back: bool = False  # comes the answer, the way of the probe: after a failure


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


class VirtualFlows(NamedTuple):
    """What ends a virtual flow: of section IV.D there are several readings."""

    probed: bool  # that its own flow is probed again
    level_0: bool  # that a flow, any one, takes the level-0 link (Algorithm 3, lines 19 and 20)


READINGS = {
    "as printed": VirtualFlows(probed=False, level_0=True),
    "until the next probe": VirtualFlows(probed=True, level_0=False),
    "until either": VirtualFlows(probed=True, level_0=True),
}
# Departs from the paper: a virtual flow ends when its flow is probed again, and at nothing else. Of
# the readings this comes nearest to Fig. 6 to 9 (`reproduce ficonn-virtual-flows`). As printed, the
# counter runs on with every probe; where either ends them, they are too few, and paths too long.
VIRTUAL_FLOWS = READINGS["until the next probe"]


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


def first_probe(
    ficonn: FiConn, source: int, destination: int, tries: int = 0, *, by_far_side: bool = False
) -> Probe:
    """Return the probe of a new path: by the far side of the destination's backup link, or TOR."""
    entries = [BYZERO] * (ficonn.k + 1)
    net = _net(tuple(ficonn.sizes))
    count = rules.start(net, source, destination, by_far_side, entries)
    return Probe(source, destination, tuple(entries[:count]), tries)


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
    net = _net(tuple(ficonn.sizes))
    level = rules.level_of(net, server)
    far = far_end(net, server, level) if level else NOWHERE
    own = rules.Server(
        server,
        level,
        far,
        by_backup=level > 0 and sight.works(Step(BACKUP, far)),
        switch_works=sight.switch_works,
        better=sight.backup_is_better - sight.switch_is_better,
    )
    order = [0] * rules.most_members(ficonn.sizes)
    place = rules.Place(
        net, own, _Mates(server, sight), sight.random, order, probe.destination, *_hop(came)
    )
    before = (*_hop(way.previous), *_hop(way.next)) if way else (NOWHERE,) * 4
    entries = list(probe.progress)
    verdict = rules.decide(place, rules.Entry(*before), entries)
    step, progress = Step(verdict.port, verdict.peer), tuple(entries)
    if verdict.kind == rules.ARRIVED:
        return Arrived()
    if verdict.kind == rules.STUCK:
        return Stuck(NO_WAY)
    if verdict.kind == rules.BACK:
        return Back(step, progress, verdict.virtual)
    previous = None if verdict.back == NOWHERE else Step(verdict.back_by, verdict.back)
    return Onward(Way(previous, step), progress)


@cache
def _net(sizes: tuple[int, ...]) -> Nested:
    """Return a network's cables, which every probe asks for."""
    return rules.nested(sizes)


class _Mates:
    """The servers on a server's switch, as the rules ask for them."""

    def __init__(self, server: int, sight: Sight) -> None:
        self.server, self.sight = server, sight

    def __getitem__(self, mate: int) -> bool:
        return mate == self.server or self.sight.works(Step(SWITCH, mate))


def _hop(step: Step | None) -> tuple[int, int]:
    return (step.port, step.peer) if step else (NOWHERE, NOWHERE)
