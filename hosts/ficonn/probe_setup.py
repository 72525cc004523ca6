"""Path set-up over a whole network: the decisions of all servers on a probe's path, in order.

Used by callers that hold the state of all servers: `pillarbox path`, and simulators.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

from pillarbox.hosts.base.algorithms import Routed
from pillarbox.hosts.base.failures import NONE, Failures
from pillarbox.hosts.base.path import Path, Step
from pillarbox.hosts.ficonn.tar import (
    MOST_HOPS,
    PROBE_TRIES,
    Arrived,
    ForwardProbe,
    RouteEntry,
    Sight,
    Stuck,
    decide,
    first_probe,
)
from pillarbox.topos.ficonn import SWITCH, FiConn


class SetUp(NamedTuple):
    """Result of a simulated path probe: the path that it set up, or the reason of its failure."""

    path: Path | None
    stuck: str = ""
    virtual: tuple[int, ...] = ()  # servers that count the flow as a virtual flow from now on


def set_up(
    ficonn: FiConn,
    source: int,
    destination: int,
    sight_of: Callable[[int], Sight],
    tries: int = 0,
    *,
    far_side: bool = False,
) -> SetUp:
    """Simulate a path probe: return the path that the servers' decisions set up.

    Parameters
    ----------
    sight_of : callable
        Maps a server to its view of its own links at the time when the probe arrives.
    tries : int
        Number of unanswered probes before this probe.
    far_side : bool
        True if every other retry enters by the far side of the destination's backup link.

    Examples
    --------
    Fig. 5: one flow is on the link from [2,0] to [0,2].

    >>> ficonn = FiConn(4, 2)
    >>> busy = ficonn.server("0.2.0")
    >>> def sight_of(server):
    ...     backup_bps = 0.5e9 if server == busy else 1e9
    ...     return Sight(lambda step: True, random.Random(1), backup_bps, switch_bps=1e9)
    >>> found = set_up(ficonn, ficonn.server("0.2.1"), ficonn.server("0.0.1"), sight_of)
    >>> print(*map(ficonn.address, found.path.servers))
    0.2.1 0.2.2 0.1.2 0.1.0 0.0.0 0.0.1
    """
    by_far_side = far_side and tries % 2 == 1
    probe = first_probe(ficonn, source, destination, tries, by_far_side=by_far_side)
    route_entries: dict[int, RouteEntry] = {}
    virtual: list[int] = []
    at, came = source, None
    for _ in range(MOST_HOPS):
        decision = decide(ficonn, at, probe, came, route_entries.get(at), sight_of(at))
        if isinstance(decision, Arrived):
            return SetUp(_path(route_entries, source, destination), virtual=tuple(virtual))
        if isinstance(decision, Stuck):
            return SetUp(None, decision.reason, tuple(virtual))
        if isinstance(decision, ForwardProbe):
            route_entries[at], step = decision.route_entry, decision.route_entry.next
        else:
            route_entries.pop(at, None)
            step = decision.step
            if decision.virtual:
                virtual.append(at)
        probe = probe._replace(progress=decision.progress)
        # In a FiConn both ends of a hop use the same port number.
        at, came = step.peer, Step(step.port, at)
    return SetUp(None, "TTL expired", tuple(virtual))


def _path(route_entries: dict[int, RouteEntry], source: int, destination: int) -> Path:
    steps = []
    at = source
    while at != destination:
        steps.append(route_entries[at].next)
        at = steps[-1].peer
    return Path(source, tuple(steps))


def tar_path(ficonn: FiConn, source: int, destination: int) -> Path:
    """Return TAR's path of a flow without other traffic and failures, which is TOR's path."""
    return tar_around(ficonn, source, destination, NONE).paths[0]


def tar_around(
    ficonn: FiConn,
    source: int,
    destination: int,
    failures: Failures,
    _several: bool = False,
    *,
    far_side: bool = False,
) -> Routed:
    """Return TAR's path of a flow without other traffic, in a network with these failures.

    Proxies are drawn at random, but always the same for a pair of servers.
    """
    chance = random.Random(source * ficonn.servers + destination)

    def sight_of(server: int) -> Sight:
        def works(step: Step) -> bool:
            return failures.of_hop(ficonn, server, step) is None

        mates = ficonn.peers(server, SWITCH) if failures != NONE else []
        switch_works = failures == NONE or any(works(Step(SWITCH, mate)) for mate in mates)
        return Sight(works, chance, switch_works=switch_works)

    for tries in range(PROBE_TRIES):
        path = set_up(ficonn, source, destination, sight_of, tries, far_side=far_side).path
        if path:
            return Routed([path])
    return Routed([], "no probe finds a path around the failures")
