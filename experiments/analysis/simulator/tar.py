"""TAR for arrays of flows: probes, one after the other, and what they see.

What a server does with a probe are the rules of hosts/ficonn, compiled; here is what servers keep.

A server's available bandwidth is told by how many flows it sends out by a port, virtual ones
counted with those of its level-0 link: the fewer, the more is free. So a flow weighs as much as any
other (section IV.D does the same for virtual flows), and what a probe sees is never out of date. As
with the live servers, a flow that is probed again does not count itself.

What has failed has no bandwidth at all (section IV.A), and only the servers next to it know. A
probe that finds no way is tried again, as a source does; where all tries are in vain, the flow
stays on the path that it has, if it has one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy
from numba.core.types import NumPyRandomGeneratorType
from numba.extending import overload_method

from experiments.analysis.fluid.links import Routes, link_at, link_count
from experiments.analysis.simulator.compiled import native_in_place
from experiments.analysis.simulator.failures import Bools
from experiments.analysis.simulator.hops import Hops, Ints, in_blocks, routes_of_hops
from experiments.analysis.simulator.paths import joined
from experiments.analysis.simulator.recursive import arrays
from hosts.base.recursive import Nested
from hosts.ficonn.rules import (
    ARRIVED,
    NOWHERE,
    ONWARD,
    STUCK,
    Entry,
    Place,
    Server,
    decide,
    most_members,
    nested,
    start,
)
from hosts.ficonn.tar import MOST_HOPS, PROBE_TRIES, VIRTUAL_FLOWS, VirtualFlows
from topos.base.errors import require
from topos.ficonn import BACKUP, SWITCH, FiConn

# A server, as one record: its backup link, and whether it works; whether the level-0 link leads
# anywhere; how many flows leave it by each.
SERVER = numpy.dtype(
    [
        ("level", numpy.int32),
        ("far", numpy.int32),
        ("by_backup", numpy.bool_),
        ("switch_works", numpy.bool_),
        ("switch_flows", numpy.int32),
        ("backup_flows", numpy.int32),
        # Its virtual flows are a queue: how many have joined it, and left it, so far. A flow knows
        # its place, how many had joined before. Flows are probed in turns, so a flow of the round
        # before is the first of those that are left, and one of this probe the last.
        ("joined", numpy.int32),
        ("left", numpy.int32),
        # The way of the flow that is probed: the hops back and on, and the number of the probe
        # that has set it up. What others have left here does not count.
        ("probe", numpy.int32),
        ("back_by", numpy.int32),
        ("back", numpy.int32),
        ("on_by", numpy.int32),
        ("on", numpy.int32),
    ]
)


class State(NamedTuple):
    """The network."""

    net: Nested
    servers: Any  # SERVER
    mates: Any  # by server, whether its cable to its switch works
    progress: Any  # room for the entries of a probe
    order: Any  # and for the members of a FiConn


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
    works : array, optional
        By the number of each link, whether it works (see `analysis.simulator.failures`).
    virtual : VirtualFlows
        What ends a virtual flow.
    far_side : bool
        Whether every other try comes by the far side of the destination's backup link.

    Examples
    --------
    Fig. 5: a flow has the link from [2,0] to [0,2], and [2,1] bypasses it.

    >>> ficonn = FiConn(4, 1)
    >>> ends = (numpy.array([ficonn.server(end) for end in ends]) for ends in (
    ...     ("2.0", "2.1"), ("0.2", "0.1")))
    >>> flows = Tar(ficonn, *ends, numpy.random.default_rng(1))
    >>> flows.probe()
    >>> print(*map(ficonn.address, flows.hops().peers[1, :5].tolist()))
    2.2 1.2 1.0 0.0 0.1
    """

    def __init__(
        self,
        ficonn: FiConn,
        sources: Ints,
        destinations: Ints,
        random: numpy.random.Generator,
        works: Bools | None = None,
        *,
        virtual: VirtualFlows = VIRTUAL_FLOWS,
        far_side: bool = False,
    ) -> None:
        require(ficonn.k > 0, f"{ficonn.spec} has no backup links to choose: take level 1 or more")
        self.ficonn, self.sources, self.destinations = ficonn, sources, destinations
        self.random = random
        # Theorem 6; around failures a path may be some hops longer (hosts/ficonn/tar.py).
        most = (2 * 3**ficonn.k - 1) * (1 if works is None else 2)
        flows = len(sources)
        self.counts = numpy.zeros(flows, numpy.int32)
        self._ports = numpy.zeros((flows, most), numpy.int8)
        self._peers = numpy.zeros((flows, most), numpy.int64)
        # A FiConn_l bypasses once, and starts its three FiConn_{l-1}s over: B_l = 4 B_{l-1} + 1.
        # Where it falls back from a bypass that met a failure, it may bypass once more.
        places = (4**ficonn.k - 1) // 3 * (1 if works is None else 2)
        self._virtual = numpy.full(
            (flows, places if virtual.probed else 0, 2), NOWHERE, numpy.int64
        )
        self._level_0, self._far_side = virtual.level_0, far_side
        if works is None:
            works = numpy.ones(link_count(ficonn), bool)
        self._servers = servers = numpy.zeros(ficonn.servers, SERVER)
        every = numpy.arange(ficonn.servers)
        servers["level"] = ficonn.level(every)
        servers["far"] = ficonn.server_plug(every, BACKUP).node
        by_switch = works[link_at(ficonn, every, SWITCH)]
        servers["by_backup"] = works[link_at(ficonn, every, BACKUP)] & (servers["level"] > 0)
        mates = by_switch.reshape(-1, ficonn.n)
        servers["switch_works"] = (mates & (mates.sum(axis=1, keepdims=True) > 1)).ravel()
        self._state = State(
            arrays(nested(ficonn.sizes)),
            servers,
            by_switch,
            numpy.empty(len(ficonn.sizes), numpy.int64),
            numpy.empty(most_members(ficonn.sizes), numpy.int64),
        )
        self._probes = 0

    def probe(self, first: int = 0, last: int | None = None) -> None:
        """Probe these flows, in their order.

        A round is all of them, at once or part by part; one ends before the next begins.
        """
        part = slice(first, last)
        self._probes = probe_all(
            self._state,
            self._probes,
            self._level_0,
            self._far_side,
            self.random,
            self.sources[part],
            self.destinations[part],
            self._ports[part],
            self._peers[part],
            self.counts[part],
            self._virtual[part],
        )

    def hops(self, first: int = 0, last: int | None = None) -> Hops:
        """Return the present paths; flows that were not probed yet, or found none, have no hops."""
        part = slice(first, last)
        return Hops(self.counts[part], self._ports[part], self._peers[part])

    def routes(self) -> Routes:
        """Return the links of the present paths."""
        return joined(
            [
                routes_of_hops(
                    self.ficonn,
                    self.sources[part],
                    self.hops(part.start, part.stop),
                    (SWITCH, None),
                )
                for part in in_blocks(len(self.counts))
            ]
        )

    def virtual_flows(self) -> Ints:
        """Return how many virtual flows each server has."""
        here: Ints = self._servers["joined"] - self._servers["left"]
        return here

    def loads(self) -> Ints:
        """Return how many flows leave each server (a row) by each port."""
        return numpy.stack([self._servers["switch_flows"], self._servers["backup_flows"]], axis=1)


# -- a flow's probes, and the queues of virtual flows ----------------------------------------------


@native_in_place
def probe_all(
    state: State,
    number: int,
    level_0: bool,
    far_side: bool,
    random: Any,
    sources: Any,
    destinations: Any,
    ports: Any,
    peers: Any,
    counts: Any,
    virtual: Any,
) -> int:
    """Probe the flows; return the number of the last probe, where `number` is that before."""
    servers = state.servers
    for flow in range(len(sources)):
        source, destination = sources[flow], destinations[flow]
        _weigh(servers, source, ports[flow], peers[flow], counts[flow], -1)
        for server, place in virtual[flow]:
            if server != NOWHERE and place >= servers[server].left:
                servers[server].left += 1
        virtual[flow] = NOWHERE
        for tries in range(PROBE_TRIES):
            for server, _ in virtual[flow]:
                if server != NOWHERE:
                    _forget(servers, server, virtual[flow])
            number += 1
            by_far_side = far_side and tries % 2 == 1
            ends = source, destination
            if _probe(state, number, level_0, by_far_side, random, *ends, virtual[flow]):
                hops = _note(servers, source, destination, ports[flow], peers[flow])
                if hops:
                    counts[flow] = hops
                    break
        _weigh(servers, source, ports[flow], peers[flow], counts[flow], 1)
    return number


def _weigh(servers: Any, source: int, ports: Any, peers: Any, count: int, flows: int) -> None:
    """Add so many flows to every port on the way."""
    here = source
    for hop in range(count):
        if ports[hop] == SWITCH:
            servers[here].switch_flows += flows
        else:
            servers[here].backup_flows += flows
        here = peers[hop]


def _probe(
    state: State,
    number: int,
    level_0: bool,
    far_side: bool,
    random: Any,
    source: int,
    destination: int,
    virtual: Any,
) -> bool:
    """Let a probe set up a way; tell whether it has come to its destination."""
    net, servers = state.net, state.servers
    progress = state.progress[: start(net, source, destination, far_side, state.progress)]
    here, came_by, came = source, NOWHERE, NOWHERE
    for _ in range(MOST_HOPS):
        _forget(servers, here, virtual)
        own = servers[here]
        entry = Entry(NOWHERE, NOWHERE, NOWHERE, NOWHERE)
        if own.probe == number:
            entry = Entry(0 + own.back_by, 0 + own.back, 0 + own.on_by, 0 + own.on)
        place = Place(
            net,
            _server(own, here),
            state.mates,
            random,
            state.order,
            destination,
            came_by,
            came,
        )
        found = decide(place, entry, progress)
        if found.kind == ARRIVED or found.kind == STUCK:
            return bool(found.kind == ARRIVED)
        own.probe = 0
        if found.kind == ONWARD:
            own.probe, own.back_by, own.back = number, found.back_by, found.back
            own.on_by, own.on = found.port, found.peer
            if level_0 and found.port == SWITCH and own.joined > own.left:
                own.left += 1
        elif found.virtual:
            _remember(servers, here, virtual)
        # The ports of a FiConn are the same at both ends of a hop.
        here, came_by, came = found.peer, found.port, here
    return False


def _server(own: Any, here: int) -> Server:
    """Return what a server knows of itself."""
    more = own.switch_flows + own.joined - own.left - own.backup_flows
    better = int(more > 0) - int(more < 0)
    return Server(here, 0 + own.level, 0 + own.far, own.by_backup, own.switch_works, better)


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


def _forget(servers: Any, server: int, virtual: Any) -> None:
    """End the flow's virtual flow there, which this round has begun: no flow has joined since."""
    for slot in range(len(virtual)):
        if virtual[slot, 0] == server:
            if virtual[slot, 1] >= servers[server].left:
                servers[server].joined -= 1
            virtual[slot] = NOWHERE


def _remember(servers: Any, server: int, virtual: Any) -> None:
    """Make the flow a virtual one of that server."""
    for slot in range(len(virtual)):
        if virtual[slot, 0] == NOWHERE:
            virtual[slot, 0], virtual[slot, 1] = server, servers[server].joined
            break
    servers[server].joined += 1


@overload_method(NumPyRandomGeneratorType, "randrange")
def _randrange(random: Any, stop: Any) -> Any:  # noqa: ARG001
    """Let numpy's generators draw as the rules ask for it."""

    def draw(random: Any, stop: Any) -> Any:  # numba wants the same signature
        return int(random.random() * stop)

    return draw
