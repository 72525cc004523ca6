"""TAR for arrays of flows: probes, one after the other, set up the flows' paths.

A server's decisions about a probe are the rules of hosts/ficonn, compiled; this module keeps the
state of the servers.

A port's available bandwidth is measured by the number of flows that leave by it, where virtual
flows count with the server's level-0 link: the fewer flows, the more bandwidth. So all flows weigh
the same (section IV.D does this for virtual flows), and probes never use outdated values. As on the
live servers, a flow that is probed again does not count itself.

A failed link has no bandwidth (section IV.A), and only the servers next to it know. A probe that
finds no path is repeated, as by a source; if all tries fail, the flow stays on its current path, if
it has one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy
from numba.core.types import NumPyRandomGeneratorType
from numba.extending import overload_method

from experiments.models.fluid.directed_links import Routes, link_at, link_count
from experiments.models.simulator.compiled import native_in_place
from experiments.models.simulator.compiled_recursive import nested_as_arrays
from experiments.models.simulator.failure_sets import Bools
from experiments.models.simulator.hops import Hops, Ints, in_blocks, routes_of_hops
from experiments.models.simulator.paths import concatenated_routes
from hosts.base.recursive import Nested
from hosts.ficonn.rules import (
    ARRIVED,
    NOWHERE,
    ONWARD,
    STUCK,
    ProbeEntry,
    ProbePlace,
    Server,
    decide,
    most_members,
    nested,
    start,
)
from hosts.ficonn.tar import MOST_HOPS, PROBE_TRIES, VIRTUAL_FLOWS, VirtualFlows
from topos.base.errors import require
from topos.ficonn import BACKUP, SWITCH, FiConn

# Record of a server: its backup link and whether it works, whether the level-0 link leads to
# another server, and the number of flows that leave by each of the two.
SERVER = numpy.dtype(
    [
        ("level", numpy.int32),
        ("far", numpy.int32),
        ("by_backup", numpy.bool_),
        ("switch_works", numpy.bool_),
        ("switch_flows", numpy.int32),
        ("backup_flows", numpy.int32),
        # Its virtual flows are a queue: the numbers of flows that have joined and left so far. A
        # flow stores its position, the number that joined before it. Flows are probed in turns, so
        # a flow of the previous round is the first in the queue, and a flow of this probe the last.
        ("joined", numpy.int32),
        ("left", numpy.int32),
        # The path that the current probe sets up: hops back and onward, valid if `probe` is its
        # number.
        ("probe", numpy.int32),
        ("back_by", numpy.int32),
        ("back", numpy.int32),
        ("on_by", numpy.int32),
        ("on", numpy.int32),
    ]
)


class TarState(NamedTuple):
    """State of TAR's simulation: the network's numbers, servers, and work arrays."""

    net: Nested
    servers: Any  # state of each server: records of type SERVER
    mates: Any  # for each server: whether its cable to its switch works
    progress: Any  # work array for the entries of a probe
    order: Any  # work array for the members of a FiConn


class TarFlows:
    """FiConn flows that search for their paths by TAR's repeated probes.

    Parameters
    ----------
    ficonn : FiConn
        FiConn of level 1 or more.
    sources, destinations : arrays
        Ends of each flow, which differ.
    random : Generator
        Random source that selects the third FiConns of bypasses.
    works : array, optional
        Whether each link works, by link number (see `analysis.simulator.failures`).
    virtual : VirtualFlows
        Events that end a virtual flow.
    far_side : bool
        Whether every other try arrives by the far side of the destination's backup link.

    Examples
    --------
    Fig. 5: a flow uses the link from [2,0] to [0,2], and the flow from [2,1] bypasses it.

    >>> ficonn = FiConn(4, 1)
    >>> ends = (numpy.array([ficonn.server(end) for end in ends]) for ends in (
    ...     ("2.0", "2.1"), ("0.2", "0.1")))
    >>> flows = TarFlows(ficonn, *ends, numpy.random.default_rng(1))
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
        # Theorem 6; around failures a path may be longer (hosts/ficonn/tar.py).
        most = (2 * 3**ficonn.k - 1) * (1 if works is None else 2)
        flows = len(sources)
        self.counts = numpy.zeros(flows, numpy.int32)
        self._ports = numpy.zeros((flows, most), numpy.int8)
        self._peers = numpy.zeros((flows, most), numpy.int64)
        # Upper bound B_l of bypasses per probe: a FiConn_l bypasses once, and restarts its three
        # FiConn_{l-1}s: B_l = 4 B_{l-1} + 1. With failures, a fallback allows one more bypass each.
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
        self._state = TarState(
            nested_as_arrays(nested(ficonn.sizes)),
            servers,
            by_switch,
            numpy.empty(len(ficonn.sizes), numpy.int64),
            numpy.empty(most_members(ficonn.sizes), numpy.int64),
        )
        self._probes = 0

    def probe(self, first: int = 0, last: int | None = None) -> None:
        """Send TAR's path probes for flows `first` to `last`, in order.

        A round consists of all flows, in one call or in several; it ends before the next begins.
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
        """Return the current paths; flows not yet probed, or without a path, have no hops."""
        part = slice(first, last)
        return Hops(self.counts[part], self._ports[part], self._peers[part])

    def routes(self) -> Routes:
        """Return the links of the FiConn flows' current paths."""
        return concatenated_routes(
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
        """Return the number of virtual flows at each server."""
        here: Ints = self._servers["joined"] - self._servers["left"]
        return here

    def loads(self) -> Ints:
        """Return the number of flows that leave each server (row) by each port (column)."""
        return numpy.stack([self._servers["switch_flows"], self._servers["backup_flows"]], axis=1)


# -- a flow's probes, and the queues of virtual flows ----------------------------------------------


@native_in_place
def probe_all(
    state: TarState,
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
    """Send TAR's probes of flows; return the last probe's number; the first is `number` + 1."""
    servers = state.servers
    for flow in range(len(sources)):
        source, destination = sources[flow], destinations[flow]
        _count_flow(servers, source, ports[flow], peers[flow], counts[flow], -1)
        for server, place in virtual[flow]:
            if server != NOWHERE and place >= servers[server].left:
                servers[server].left += 1
        virtual[flow] = NOWHERE
        for tries in range(PROBE_TRIES):
            for server, _ in virtual[flow]:
                if server != NOWHERE:
                    _remove_virtual_flow(servers, server, virtual[flow])
            number += 1
            by_far_side = far_side and tries % 2 == 1
            ends = source, destination
            if _probe_path(state, number, level_0, by_far_side, random, *ends, virtual[flow]):
                hops = _write_path(servers, source, destination, ports[flow], peers[flow])
                if hops:
                    counts[flow] = hops
                    break
        _count_flow(servers, source, ports[flow], peers[flow], counts[flow], 1)
    return number


def _count_flow(servers: Any, source: int, ports: Any, peers: Any, count: int, flows: int) -> None:
    """Add `flows` to the flow counter of every port on the path."""
    here = source
    for hop in range(count):
        if ports[hop] == SWITCH:
            servers[here].switch_flows += flows
        else:
            servers[here].backup_flows += flows
        here = peers[hop]


def _probe_path(
    state: TarState,
    number: int,
    level_0: bool,
    far_side: bool,
    random: Any,
    source: int,
    destination: int,
    virtual: Any,
) -> bool:
    """Simulate a probe that sets up a path; return whether it reached its destination."""
    net, servers = state.net, state.servers
    progress = state.progress[: start(net, source, destination, far_side, state.progress)]
    here, came_by, came = source, NOWHERE, NOWHERE
    for _ in range(MOST_HOPS):
        _remove_virtual_flow(servers, here, virtual)
        own = servers[here]
        entry = ProbeEntry(NOWHERE, NOWHERE, NOWHERE, NOWHERE)
        if own.probe == number:
            entry = ProbeEntry(0 + own.back_by, 0 + own.back, 0 + own.on_by, 0 + own.on)
        place = ProbePlace(
            net,
            _server_view(own, here),
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
            _add_virtual_flow(servers, here, virtual)
        # Both ends of a FiConn's link have the same port number.
        here, came_by, came = found.peer, found.port, here
    return False


def _server_view(own: Any, here: int) -> Server:
    """Return the part of a server's state that its decisions use."""
    more = own.switch_flows + own.joined - own.left - own.backup_flows
    better = int(more > 0) - int(more < 0)
    return Server(here, 0 + own.level, 0 + own.far, own.by_backup, own.switch_works, better)


def _write_path(servers: Any, source: int, destination: int, ports: Any, peers: Any) -> int:
    """Write the path that was set up, if it fits; return its number of hops, else 0."""
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


def _remove_virtual_flow(servers: Any, server: int, virtual: Any) -> None:
    """Remove the virtual flow that this flow started at the server in this round: the last one."""
    for slot in range(len(virtual)):
        if virtual[slot, 0] == server:
            if virtual[slot, 1] >= servers[server].left:
                servers[server].joined -= 1
            virtual[slot] = NOWHERE


def _add_virtual_flow(servers: Any, server: int, virtual: Any) -> None:
    """Make this flow a virtual flow of the FiConn server."""
    for slot in range(len(virtual)):
        if virtual[slot, 0] == NOWHERE:
            virtual[slot, 0], virtual[slot, 1] = server, servers[server].joined
            break
    servers[server].joined += 1


@overload_method(NumPyRandomGeneratorType, "randrange")
def _randrange(random: Any, stop: Any) -> Any:  # noqa: ARG001
    """Provide `randrange`, which the rules call, for numpy's generators."""

    def draw(
        random: Any, stop: Any
    ) -> Any:  # unused parameters are needed, as numba requires the same signature
        return int(random.random() * stop)

    return draw
