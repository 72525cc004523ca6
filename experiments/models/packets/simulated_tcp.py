"""Packet-level simulation of TCP flows: completion times, and the links that drop packets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy

from pillarbox.experiments.models.arrays import Floats, Ints, Records, zero_records, zeros_alone
from pillarbox.experiments.models.arrivals.event_heap import empty_event_heap
from pillarbox.experiments.models.fluid.directed_links import (
    Routes,
    leave_relays,
    link_count,
    link_factors,
    link_rates_bps,
    path_sums,
)
from pillarbox.experiments.models.fluid.ideal import ETHERNET_BYTES, MULTIPATH_BYTES, TCP_IP_BYTES
from pillarbox.experiments.models.packets.congestion import CONTROLS, DELAY
from pillarbox.experiments.models.packets.controls.dctcp import FIRST_ALPHA
from pillarbox.experiments.models.packets.link_events import empty_link_calendar
from pillarbox.experiments.models.packets.multipath import no_shared_data, share_data
from pillarbox.experiments.models.packets.packet_engine import OWN_PACKETS
from pillarbox.experiments.models.packets.packet_log import LoggedPacket, PacketLog
from pillarbox.experiments.models.packets.partition import divide
from pillarbox.experiments.models.packets.sender import FIRST_WINDOW
from pillarbox.experiments.models.packets.simulation_run import (
    SimulationPart,
    empty_samples,
    run_packet_simulation,
)
from pillarbox.experiments.models.packets.simulation_state import (
    COUNTS,
    LOGGED,
    FrameParameters,
    SimulationState,
    most_packets_sent,
)
from pillarbox.experiments.models.packets.state import (
    NEVER,
    NONE,
    NOT_ARRIVED,
    Link,
    Packet,
    TcpFlow,
)
from pillarbox.experiments.models.packets.windows import exchanges
from pillarbox.experiments.models.port_bursts import super_packet_segments
from pillarbox.topos.base.errors import require
from pillarbox.topos.base.topology import Topology

DEFAULT_CONTROL = "cubic"
# queue of a relay's processor, in packets: Linux' net.core.netdev_max_backlog
BACKLOG_PACKETS = 1000
# receive window, maximum bytes in flight: half of Linux' net.ipv4.tcp_rmem, 6 MB
RECEIVER_BYTES = 3_000_000
# initial receive window in bytes: handshakes carry no more (RFC 7323, section 2.2)
FIRST_BYTES = 65_535
FIRST_PACKETS = 1 << 12  # initial number of packet records
DRAWN = 1 << 16  # count of pregenerated random numbers, which the simulation reuses in turn
MOST_SEGMENTS = 1 << 31
FIRST_LOGGED = 1 << 16  # first size of the packet log, in rows
AT_REST_S = 1e-4  # seconds that programs take to send and to answer in an idle network


@dataclass(frozen=True)
class TcpParameters:
    """Parameters of simulated cables, servers and TCP."""

    rate_bps: float  # rate of each cable; levels of cables may multiply it
    queue_bytes: float  # queue length of each port, in bytes
    mtu: int = 1500
    header: int = 0  # bytes of routing headers between the Ethernet header and the packet
    delay_s: float = 0.0  # propagation delay of each cable; levels of cables may multiply it
    # bytes that a port may send ahead of its rate before it waits (a lab's bursts)
    owed_bytes: float = 0.0
    relay_s: float = 0.0  # time that a server takes to forward a packet
    congestion: str = DEFAULT_CONTROL  # name of the congestion control, see `congestion.CONTROLS`
    # Queue and burst of ports of each level of cables, in bytes; empty if all ports are equal.
    levels_queue_bytes: tuple[float, ...] = ()
    levels_owed_bytes: tuple[float, ...] = ()
    # Fraction of a queue's length from which packets get an ECN mark; 0 if no queue marks.
    marked_from: float = 0.0
    subflows: int = 0  # most subflows of a Multipath TCP connection; 0 for TCP

    def __post_init__(self) -> None:
        require(
            self.congestion in CONTROLS,
            f"TCP is simulated as {', '.join(CONTROLS)}, not {self.congestion!r}",
        )
        require(
            0 <= self.marked_from < 1,
            f"packets are marked from a fraction of a queue's length on, not {self.marked_from}",
        )
        require(
            self.subflows >= 0,
            f"a Multipath TCP connection has at least 1 subflow, not {self.subflows}",
        )
        require(
            self.mtu > self.tcp_ip_bytes,
            f"an MTU of {self.mtu} bytes leaves no room for data: TCP's and IP's headers take "
            f"{self.tcp_ip_bytes}",
        )

    @property
    def segment_bytes(self) -> int:
        """Payload bytes of a full TCP segment."""
        return self.mtu - self.tcp_ip_bytes

    @property
    def tcp_ip_bytes(self) -> int:
        """Bytes of IP's and TCP's headers, with Multipath TCP's option if there are subflows."""
        return TCP_IP_BYTES + (MULTIPATH_BYTES if self.subflows else 0)

    def super_packet(self, topology: Topology) -> int:
        """Return the number of segments that a server hands to its port together, as in a lab.

        The slowest level of cables determines the number.
        """
        slowest = min(topology.factors.rates, default=1)
        return super_packet_segments(self.rate_bps * slowest / 1e6, self.mtu)

    @property
    def is_lab(self) -> bool:
        """Whether ports send bursts and whole super-packets; network cards send segments."""
        return self.owed_bytes > 0


class TcpSimulationResults(NamedTuple):
    """Results of a packet simulation of TCP flows: arrays by flow, and by link."""

    begin_s: Floats
    end_s: Floats  # arrival of each flow's last byte; NaN for a flow without a path in a direction
    drops: Ints  # dropped data packets and ACKs of each flow
    repeats: Ints  # retransmitted segments of each flow
    timeouts: Ints
    passed: Ints  # packets forwarded by each link, then by each relay's processor
    dropped: Ints
    arrived_bytes: Ints  # bytes of each flow received in order, without a gap
    delivered_bits: Floats  # bits delivered by all flows up to each requested moment
    active: Ints  # number of flows in progress at each requested moment
    queued_bytes: Floats  # bytes in the sampled links' queues: a row for each requested moment
    events: int
    most_active: int
    log: PacketLog | None = None
    parts: int = 1  # number of parts of the network, simulated by a thread each


def simulate_tcp_flows(
    topology: Topology,
    routes: Routes,
    back: Routes,
    start_s: Floats,
    volume_bytes: Ints,
    tcp: TcpParameters,
    moments_s: Floats | None = None,
    seed: int = 1,
    until_s: float = NEVER,
    sampled: Ints | None = None,
    subflows: Ints | None = None,
    *,
    logs_packets: bool = False,
    parts: int = 0,
) -> TcpSimulationResults:
    """Simulate TCP flows, each on its path, with ACKs on its return path, up to `until_s`.

    With `subflows`, the flows are Multipath TCP connections: the number of subflows of each, whose
    paths follow one another in `routes` and `back` (`subflow_paths`).

    The queues of the links in `sampled` are sampled at `moments_s`. With `logs_packets`, the
    results have the log of all packets.

    Threads simulate `parts` parts of the network in parallel, with the same results; with 0, the
    number depends on the network and on this machine's idle processors (`partition.divide`).
    Multipath TCP and simulations with a packet log have a single part.

    Examples
    --------
    A flow alone gets the cable's rate, reduced by headers, after one frame has passed the first
    cable and after the servers' sending times:

    >>> from pillarbox import topos
    >>> from pillarbox.experiments.models.simulator.paths import routes
    >>> tree, ends = topos.parse("tree,2,1"), (numpy.array([0]), numpy.array([1]))
    >>> paths = routes(tree, "", *ends), routes(tree, "", *ends[::-1])
    >>> tcp = TcpParameters(rate_bps=10 * 1514 * 8, queue_bytes=1e6)
    >>> found = simulate_tcp_flows(tree, *paths, numpy.zeros(1), numpy.array([10 * 1448]), tcp)
    >>> bool(1.1 < found.end_s[0] < 1.2)
    True
    """
    count = len(start_s)
    paths = numpy.ones(count, numpy.int64) if subflows is None else subflows
    require(
        routes.flows == back.flows == paths.sum() and len(volume_bytes) == len(paths) == count,
        f"{count} simulated TCP flows need as many paths, return paths and volumes",
    )
    require(
        bool((volume_bytes > 0).all()), "each simulated TCP flow needs a volume of at least 1 byte"
    )
    require(
        bool(numpy.isfinite(start_s).all()), "each simulated TCP flow needs a finite start time"
    )
    directions = (
        _with_processors(topology, routes, tcp),
        _with_processors(topology, back, tcp),
    )
    links = _link_records(topology, tcp)
    idle_s = _idle_times_s(topology, directions, tcp)
    whole = numpy.repeat(numpy.arange(count), paths)  # flow to which each subflow belongs
    firsts = numpy.cumsum(paths) - paths
    flows, segments = _flow_records(directions, start_s[whole], volume_bytes[whole], tcp, idle_s)
    shared = no_shared_data() if subflows is None else share_data(flows, subflows)
    frames = _frame_parameters(topology, tcp, int(paths.max(initial=1)))
    parts = 1 if subflows is not None or logs_packets else parts
    latest_s = float(start_s.max(initial=0.0))
    partition = divide(topology, directions, flows["segments"], latest_s, links, frames, parts)
    chance = numpy.random.default_rng(seed).random(DRAWN)
    arrived_as = numpy.full(segments, NOT_ARRIVED, numpy.int32)
    sent_as = numpy.zeros(segments, numpy.int32)
    moments = numpy.empty(0) if moments_s is None else numpy.asarray(moments_s, numpy.float64)
    sampled = numpy.empty(0, numpy.int64) if sampled is None else sampled.astype(numpy.int64)
    order = numpy.argsort(start_s, kind="stable")
    simulated = []
    for exchange in exchanges(partition.parts, most_packets_sent(frames), partition.lookahead_s):
        state = SimulationState(
            frames=frames,
            links=_link_records(topology, tcp),
            flows=flows,
            packets=zero_records(Packet, FIRST_PACKETS),
            data_acked=numpy.zeros(0 if subflows is None else FIRST_PACKETS, numpy.int32),
            unused=numpy.arange(FIRST_PACKETS, dtype=numpy.int32),
            paths=partition.paths,
            arrived_as=arrived_as,
            sent_as=sent_as,
            shared=shared,
            calendar=empty_link_calendar(len(links)),
            timers=empty_event_heap(2 * len(flows)),
            counts=zeros_alone((COUNTS,), numpy.int64),
            drops=numpy.zeros(len(flows), numpy.int32),
            exchange=exchange,
            chance=chance,
            log=zero_records(LoggedPacket, FIRST_LOGGED if logs_packets else 0),
        )
        own = order[partition.of_flow[firsts[order]] == exchange.part]
        simulated.append(
            SimulationPart(state, empty_samples(moments, sampled), firsts[own], start_s[own])
        )
    done = run_packet_simulation(simulated, float(until_s))
    in_order = flows["expected"] if subflows is None else shared.connections["expected"]
    return TcpSimulationResults(
        begin_s=flows["begin_s"][firsts],
        end_s=flows["end_s"][firsts],
        drops=_sums(done.drops, firsts),
        repeats=_sums(flows["repeats"], firsts),
        timeouts=_sums(flows["timeouts"], firsts),
        passed=done.passed,
        dropped=done.dropped,
        arrived_bytes=numpy.minimum(in_order * tcp.segment_bytes, volume_bytes),
        delivered_bits=8.0 * done.samples.delivered.astype(numpy.float64),
        active=done.samples.active,
        queued_bytes=done.samples.queued,
        events=done.events,
        most_active=_most_active(flows, firsts, float(until_s)),
        log=_packet_log(done.state, volume_bytes) if logs_packets else None,
        parts=partition.parts,
    )


def _packet_log(state: SimulationState, volume_bytes: Ints) -> PacketLog:
    """Return the packet log of a simulation of TCP flows, with positions and sizes in bytes."""
    used, frames = slice(int(state.counts[LOGGED])), state.frames
    flow, link, newest, number, count = (
        state.log[name][used].astype(numpy.int64)
        for name in ("flow", "link", "newest", "number", "count")
    )
    at_s, is_ack = state.log["at_s"][used], state.log["is_ack"][used]
    known = numpy.stack([flow, is_ack, newest], axis=1)
    _, packet = numpy.unique(known, axis=0, return_inverse=True)
    most = volume_bytes[flow]
    first = numpy.minimum(number * frames.segment, most)
    end = numpy.minimum(first + numpy.where(is_ack, 0, count) * frames.segment, most)
    size = count * frames.overhead + end - first
    return PacketLog(at_s, flow, link, packet.reshape(-1), is_ack, first, end, size)


def _most_active(flows: Records[TcpFlow], firsts: Ints, until_s: float) -> int:
    """Return the maximum number of flows in progress; a flow starts before another one ends."""
    begin_s, end_s = flows["begin_s"][firsts], numpy.sort(flows["end_s"][firsts])
    begin_s = numpy.sort(begin_s[(flows["path"][firsts] != NONE) & (begin_s <= until_s)])
    begun = numpy.arange(1, len(begin_s) + 1)
    return int((begun - numpy.searchsorted(end_s, begin_s)).max(initial=0))


def _sums(of_subflows: Ints, firsts: Ints) -> Ints:
    """Return the sum over each flow's subflows, of which `firsts` are the first."""
    found: Ints = numpy.add.reduceat(of_subflows, firsts) if len(firsts) else of_subflows.copy()
    return found


def _frame_parameters(topology: Topology, tcp: TcpParameters, subflows: int) -> FrameParameters:
    together = tcp.super_packet(topology)
    return FrameParameters(
        segment=tcp.segment_bytes,
        overhead=ETHERNET_BYTES + tcp.header + tcp.tcp_ip_bytes,
        most=max(float(RECEIVER_BYTES // tcp.segment_bytes), 2.0),
        together=together if tcp.is_lab else 1,
        own=0 if tcp.is_lab else OWN_PACKETS * together,
        subflows=subflows,
    )


def _flow_records(
    directions: tuple[Routes, Routes],
    start_s: Floats,
    volume_bytes: Ints,
    tcp: TcpParameters,
    idle_s: Floats,
) -> tuple[Records[TcpFlow], int]:
    """Return the TCP simulator's state record of each flow, and the total number of segments."""
    flows = zero_records(TcpFlow, len(start_s))
    segments = -(-numpy.asarray(volume_bytes, numpy.int64) // tcp.segment_bytes)
    require(
        bool((segments < MOST_SEGMENTS).all()),
        f"a simulated TCP flow has at most {MOST_SEGMENTS * tcp.segment_bytes:,} bytes",
    )
    flows["segments"] = segments
    flows["segment"] = numpy.cumsum(segments) - segments
    flows["last"], flows["connection"] = segments - 1, NONE
    flows["last_bytes"] = volume_bytes - (segments - 1) * tcp.segment_bytes
    flows["begin_s"], flows["end_s"] = start_s, numpy.nan
    forth, back = directions
    flows["control"] = CONTROLS.index(tcp.congestion)
    has_paths = (numpy.diff(forth.starts) > 0) & (numpy.diff(back.starts) > 0)
    flows["path"] = numpy.where(has_paths, forth.starts[:-1], NONE)
    flows["back"] = back.starts[:-1] + len(forth.links)
    flows["timer_s"] = flows["timer_due_s"] = flows["answer_s"] = flows["answer_due_s"] = NEVER
    flows["window"] = min(FIRST_WINDOW, max(FIRST_BYTES // tcp.segment_bytes, 1))
    flows["threshold"] = flows["epoch_s"] = flows["ever_s"] = flows["increase"] = NEVER
    flows["round_end"] = NONE
    flows["alpha"], flows["cut_s"] = FIRST_ALPHA, -NEVER
    # The connection is open at the start: its handshake has measured the idle network.
    flows["round_trip_s"] = numpy.maximum(idle_s, AT_REST_S)
    flows["deviation_s"] = flows["round_trip_s"] / 2
    if tcp.congestion == CONTROLS[DELAY]:
        flows["ever_s"] = flows["round_trip_s"]
    return flows, int(segments.sum())


def _idle_times_s(
    topology: Topology, directions: tuple[Routes, Routes], tcp: TcpParameters
) -> Floats:
    """Return the time of each flow's first packet and its acknowledgement in an idle network."""

    def link_s(rate_bps: float | Floats, delay_s: float | Floats) -> float | Floats:
        ack_s = (ETHERNET_BYTES + tcp.header + tcp.tcp_ip_bytes) * 8 / rate_bps
        return (0.0 if tcp.is_lab else ack_s) + delay_s + tcp.relay_s

    factors = topology.factors
    if not factors.rates and not factors.delays:
        lengths = sum(numpy.diff(one.starts) for one in directions)
        return numpy.asarray(lengths * link_s(tcp.rate_bps, tcp.delay_s))
    of_cables = link_s(
        tcp.rate_bps * link_factors(topology, factors.rates),
        tcp.delay_s * link_factors(topology, factors.delays),
    )
    # A relay's processor counts like a cable of relative rate and delay 1.
    of_processors = numpy.full(topology.servers, link_s(tcp.rate_bps, tcp.delay_s))
    values = numpy.concatenate([of_cables, of_processors])
    forth, back = (path_sums(one, values) for one in directions)
    return forth + back


def _link_records(topology: Topology, tcp: TcpParameters) -> Records[Link]:
    """Return the packet simulator's state records: each link's, then each server processor's."""
    cables = link_count(topology)
    links = zero_records(Link, cables + (topology.servers if tcp.relay_s else 0))
    links["first"] = links["last"] = links["waits"] = NONE
    factors = topology.factors
    rates_bps = link_rates_bps(topology, tcp.rate_bps)
    queues: float | Floats = tcp.queue_bytes
    owed: float | Floats = tcp.owed_bytes
    if tcp.levels_queue_bytes:
        queues = link_factors(topology, tcp.levels_queue_bytes)
    if tcp.levels_owed_bytes:
        owed = link_factors(topology, tcp.levels_owed_bytes)
    links["byte_s"][:cables] = 8 / rates_bps
    links["delay_s"][:cables] = tcp.delay_s * link_factors(topology, factors.delays)
    links["limit_s"][:cables] = queues * 8 / rates_bps
    links["owed_s"][:cables] = owed * 8 / rates_bps
    links["mark_s"] = NEVER
    if tcp.marked_from:
        links["mark_s"][:cables] = tcp.marked_from * links["limit_s"][:cables]
    frame_s = (tcp.mtu + ETHERNET_BYTES + tcp.header) * 8 / rates_bps
    of_servers = slice(topology.servers * topology.ports)
    links["jitter_s"][of_servers] = numpy.broadcast_to(frame_s, cables)[of_servers]
    links["packet_s"][cables:] = tcp.relay_s
    links["limit_s"][cables:] = tcp.relay_s * BACKLOG_PACKETS
    return links


def _with_processors(topology: Topology, routes: Routes, tcp: TcpParameters) -> Routes:
    """Return the paths with each relay's processor inserted, if forwarding takes time."""
    if not tcp.relay_s:
        return routes
    relays = leave_relays(topology, routes)
    before = numpy.concatenate([[0], numpy.cumsum(relays)])
    processors = link_count(topology) + routes.links[relays] // topology.ports
    links = numpy.insert(routes.links.astype(numpy.int64), numpy.flatnonzero(relays), processors)
    return Routes(routes.starts + before[routes.starts], links)
