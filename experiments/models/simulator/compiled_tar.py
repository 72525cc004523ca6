"""TAR for arrays of flows: probes, one after the other, set up the flows' paths.

A server's decisions about a probe are the rules of hosts/ficonn, compiled; this module keeps the
state of the servers.

A port's available bandwidth is its rate less the measured rate of the flows that leave by it. For
the level-0 link, the mean rate of a flow is subtracted as well for each virtual flow. The live
servers use the same rule (`pillarbox.hosts.ficonn.link_choice`). Rates follow from a throughput
model. They are sampled as the live servers read their byte counters: at each heartbeat, as a
moving average. Flows are probed one after the other between the samples of a round, so the probes
of one interval use the same measurement. A flow that is probed again does not count itself.

Alternatively, bandwidth is compared by the number of flows that leave by each port, as if all flows
had the same rate and every probe used current values.

A failed link has no bandwidth (section IV.A), and only the servers next to it know. A probe that
finds no path is repeated, as by a source; if all tries fail, the flow stays on its current path, if
it has one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy
from numba.core.types import NumPyRandomGeneratorType
from numba.extending import overload_method
from numpy.random import Generator

from pillarbox.experiments.models.arrays import (
    Bools,
    Flag,
    Floats,
    Int32,
    Ints,
    Records,
    zero_records,
)
from pillarbox.experiments.models.fluid.directed_links import (
    Routes,
    link_at,
    link_count,
    link_rates_bps,
)
from pillarbox.experiments.models.fluid.rates import equal_share_rates_bps, link_loads, max_min
from pillarbox.experiments.models.simulator.compiled import native_in_place
from pillarbox.experiments.models.simulator.compiled_recursive import nested_as_arrays
from pillarbox.experiments.models.simulator.hops import Hops, in_blocks, routes_of_hops
from pillarbox.experiments.models.simulator.paths import concatenated_routes
from pillarbox.hosts.base.bandwidth import mean
from pillarbox.hosts.base.probing import NEARLY_BEST
from pillarbox.hosts.base.recursive import Nested
from pillarbox.hosts.base.timers import timers_for
from pillarbox.hosts.ficonn.link_choice import better_link, free_bandwidth
from pillarbox.hosts.ficonn.rules import (
    ARRIVED,
    NOWHERE,
    ONWARD,
    STUCK,
    ProbeEntry,
    ProbePlace,
    Random,
    Server,
    decide,
    most_members,
    nested,
    start,
)
from pillarbox.hosts.ficonn.tar import MOST_HOPS, PROBE_TRIES, VIRTUAL_FLOWS, VirtualFlows
from pillarbox.topos.base.errors import require
from pillarbox.topos.ficonn import BACKUP, SWITCH, FiConn

if TYPE_CHECKING:
    from pillarbox.experiments.models.simulator.probe_times import ProbeTimes


class TarServer:
    """Record of a FiConn server: its links, virtual flows, and the path that a probe sets up."""

    # Level, far end and state of the backup link; whether any link over the switch works.
    level: Int32
    far: Int32
    by_backup: Flag
    switch_works: Flag
    # Numbers of flows that leave by the level-0 link and by the backup link.
    switch_flows: Int32
    backup_flows: Int32
    # Port by which the flow of the current probes has left so far, valid if `own` is its number.
    own: Int32
    own_by: Int32
    # Its virtual flows are a queue: the numbers of flows that have joined and left so far. A flow
    # stores its position, the number that joined before it. Flows are probed in turns, so a flow of
    # the previous round is the first in the queue, and a flow of this probe the last.
    joined: Int32
    left: Int32
    # The path that the current probe sets up: hops back and onward, valid if `probe` is its number.
    probe: Int32
    back_by: Int32
    back: Int32
    on_by: Int32
    on: Int32


class TarState(NamedTuple):
    """State of TAR's simulation: the network's numbers, servers, and work arrays."""

    net: Nested
    servers: Records[TarServer]
    mates: Bools  # for each server: whether its cable to its switch works
    used: Floats  # for each server and port: measured rate on the outgoing link
    rates: Floats  # rate of the links of each level
    equal_share: float  # bandwidths within this fraction of each other count as equal
    measured: bool  # whether bandwidth is measured, or compared by numbers of flows
    progress: Ints  # work array for the entries of a probe
    order: Ints  # work array for the members of a FiConn


def max_min_rates(routes: Routes, links: int, rates: float | Floats = 1.0) -> Floats:
    """Return max-min fair rates of flows over links of these rates."""
    return max_min(routes, rates, links)


def equal_share_rates(routes: Routes, links: int, rates: float | Floats = 1.0) -> Floats:
    """Return each flow's smallest equal share of its links, which have these rates."""
    return equal_share_rates_bps(routes, numpy.full(links, rates))


# Function from routes, the number of links and their rates to the rate of each flow.
Throughput = Callable[[Routes, int, Any], Floats]


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
        Whether each link works, by link number (see `FailedNodes.works`).
    virtual : VirtualFlows
        Events that end a virtual flow.
    far_side : bool
        Whether every other try arrives by the far side of the destination's backup link.
    throughput : callable, optional
        Throughput model by which servers measure available bandwidth. None: by numbers of flows.
    equal_share : float
        Measured bandwidths within this fraction of each other count as equal.

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
        random: Generator,
        works: Bools | None = None,
        _times: ProbeTimes | None = None,
        *,
        virtual: VirtualFlows = VIRTUAL_FLOWS,
        far_side: bool = False,
        throughput: Throughput | None = max_min_rates,
        equal_share: float = NEARLY_BEST,
    ) -> None:
        require(ficonn.k > 0, f"{ficonn.spec} has no backup links to choose: take level 1 or more")
        self.ficonn, self.sources, self.destinations = ficonn, sources, destinations
        self.random: Any = random  # has `randrange` in compiled code
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
        self._servers = servers = zero_records(TarServer, ficonn.servers)
        every = numpy.arange(ficonn.servers)
        servers["level"] = ficonn.level(every)
        servers["far"] = ficonn.server_plug(every, BACKUP).node
        by_switch = works[link_at(ficonn, every, SWITCH)]
        servers["by_backup"] = works[link_at(ficonn, every, BACKUP)] & (servers["level"] > 0)
        mates = by_switch.reshape(-1, ficonn.n)
        servers["switch_works"] = (mates & (mates.sum(axis=1, keepdims=True) > 1)).ravel()
        # Mean rate on each link; for each flow, its sent volume and samples since its last probe.
        self._throughput, self._used = throughput, numpy.zeros(link_count(ficonn))
        self._rates = link_rates_bps(ficonn, 1.0)
        self._sent, self._samples = numpy.zeros(flows), numpy.zeros(flows, numpy.int32)
        timers = timers_for(ficonn, "paper")
        samples = round(timers.probe_interval_s / timers.heartbeat_s)
        # the flows before which the servers read their counters; each round ends with a sample
        self._sampled = numpy.linspace(0, flows, samples + 1).astype(int)[1:]
        self._state = TarState(
            nested_as_arrays(nested(ficonn.sizes)),
            servers,
            by_switch,
            self._used[: ficonn.servers * ficonn.ports].reshape(-1, ficonn.ports),
            numpy.array(ficonn.factors.rates or [1] * (ficonn.k + 1), numpy.float64),
            equal_share,
            throughput is not None,
            numpy.empty(len(ficonn.sizes), numpy.int64),
            numpy.empty(most_members(ficonn.sizes), numpy.int64),
        )
        self._probes = 0

    def probe(self, first: int = 0, last: int | None = None) -> None:
        """Send TAR's path probes for flows `first` to `last`, in order.

        A round consists of all flows, in one call or in several; it ends before the next begins.
        """
        last = len(self.counts) if last is None else last
        if self._throughput is None:
            self._probe(first, last)
            return
        for end in self._sampled[(self._sampled > first) & (self._sampled <= last)].tolist():
            self._probe(first, end)
            self._sample()
            first = end
        self._probe(first, last)

    def _sample(self) -> None:
        """Measure all links, as servers that read their byte counters."""
        assert self._throughput is not None
        routes, links = self.routes(), len(self._used)
        rates = numpy.nan_to_num(self._throughput(routes, links, self._rates))
        self._used[:] = mean(self._used, link_loads(routes, rates, links))
        self._sent += rates
        self._samples += 1

    def _probe(self, first: int, last: int) -> None:
        part = slice(first, last)
        own_rates = self._sent[part] / numpy.maximum(self._samples[part], 1)
        self._sent[part], self._samples[part] = 0.0, 0
        self._probes = probe_all(
            self._state,
            self._probes,
            self._level_0,
            self._far_side,
            self.random,
            self.sources[part],
            self.destinations[part],
            own_rates,
            self.hops(first, last),
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
    random: Random,
    sources: Ints,
    destinations: Ints,
    rates: Floats,
    hops: Hops,
    virtual: Ints,
) -> int:
    """Send TAR's probes of flows; return the last probe's number; the first is `number` + 1."""
    servers = state.servers
    for flow in range(len(sources)):
        source, destination = sources[flow], destinations[flow]
        own = number + 1
        _mark_own_ports(servers, source, hops, flow, own)
        _count_flow(servers, source, hops, flow, -1)
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
            how = level_0, by_far_side
            mine = own, rates[flow]
            if _probe_path(state, number, *how, random, *ends, *mine, virtual[flow]):
                count = _write_path(servers, source, destination, hops, flow)
                if count:
                    hops.counts[flow] = count
                    break
        _count_flow(servers, source, hops, flow, 1)
    return number


def _count_flow(
    servers: Records[TarServer], source: int, hops: Hops, flow: int, flows: int
) -> None:
    """Add `flows` to the flow counter of every port on the flow's path."""
    here = source
    for hop in range(hops.counts[flow]):
        if hops.ports[flow, hop] == SWITCH:
            servers[here].switch_flows += flows
        else:
            servers[here].backup_flows += flows
        here = hops.peers[flow, hop]


def _mark_own_ports(
    servers: Records[TarServer], source: int, hops: Hops, flow: int, own: int
) -> None:
    """Store on the servers of the flow's path by which port the flow leaves."""
    here = source
    for hop in range(hops.counts[flow]):
        servers[here].own, servers[here].own_by = own, hops.ports[flow, hop]
        here = hops.peers[flow, hop]


def _probe_path(
    state: TarState,
    number: int,
    level_0: bool,
    far_side: bool,
    random: Random,
    source: int,
    destination: int,
    own_number: int,
    own_rate: float,
    virtual: Ints,
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
            _server_view(state, here, own_number, own_rate),
            state.mates,
            random,
            state.order,
            destination,
            came_by,
            came,
        )
        found = decide(place, entry, progress)
        if found.kind == ARRIVED or found.kind == STUCK:
            return found.kind == ARRIVED
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


def _server_view(state: TarState, here: int, own_number: int, own_rate: float) -> Server:
    """Return the part of a server's state that its decisions on a flow's probe use."""
    own = state.servers[here]
    flows, virtual = own.switch_flows + own.backup_flows, own.joined - own.left
    if state.measured:
        own_port = NOWHERE
        if own.own == own_number:  # its flow leaves this server, and is not in the counters now
            own_port, flows = 0 + own.own_by, flows + 1
        backup, switch = state.used[here, BACKUP], state.used[here, SWITCH]
        rates = state.rates[own.level], state.rates[0]
        free = free_bandwidth(backup, switch, *rates, own_port, own_rate, flows, virtual)
        better = better_link(free[0], free[1], state.equal_share)
    else:
        more = own.switch_flows + virtual - own.backup_flows
        better = int(more > 0) - int(more < 0)
    return Server(here, 0 + own.level, 0 + own.far, own.by_backup, own.switch_works, better)


def _write_path(
    servers: Records[TarServer], source: int, destination: int, hops: Hops, flow: int
) -> int:
    """Write the path that was set up, if it fits; return its number of hops, else 0."""
    count, here = 0, source
    while here != destination:
        count, here = count + 1, servers[here].on
        if count > hops.ports.shape[1]:
            return 0
    here = source
    for hop in range(count):
        hops.ports[flow, hop], hops.peers[flow, hop] = servers[here].on_by, servers[here].on
        here = servers[here].on
    return count


def _remove_virtual_flow(servers: Records[TarServer], server: int, virtual: Ints) -> None:
    """Remove the virtual flow that this flow started at the server in this round: the last one."""
    for slot in range(len(virtual)):
        if virtual[slot, 0] == server:
            if virtual[slot, 1] >= servers[server].left:
                servers[server].joined -= 1
            virtual[slot] = NOWHERE


def _add_virtual_flow(servers: Records[TarServer], server: int, virtual: Ints) -> None:
    """Make this flow a virtual flow of the FiConn server."""
    for slot in range(len(virtual)):
        if virtual[slot, 0] == NOWHERE:
            virtual[slot, 0], virtual[slot, 1] = server, servers[server].joined
            break
    servers[server].joined += 1


@overload_method(NumPyRandomGeneratorType, "randrange")
def _randrange(random: Generator, stop: int) -> Callable[[Generator, int], int]:  # noqa: ARG001
    """Provide `randrange`, which the rules call, for numpy's generators."""

    # numba requires the same parameters of both functions
    def draw(random: Generator, stop: int) -> int:
        return int(random.random() * stop)

    return draw
