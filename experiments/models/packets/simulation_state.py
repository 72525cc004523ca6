"""State of a packet simulation: arrays and records that compiled code changes in place."""

from __future__ import annotations

from typing import NamedTuple

from pillarbox.experiments.models.arrays import Floats, Ints, Records
from pillarbox.experiments.models.arrivals.event_heap import EventHeap
from pillarbox.experiments.models.packets.link_events import CalendarState
from pillarbox.experiments.models.packets.multipath import SharedData
from pillarbox.experiments.models.packets.packet_log import LoggedPacket
from pillarbox.experiments.models.packets.state import Link, Packet, TcpFlow
from pillarbox.experiments.models.packets.windows import Exchange

# indices of `counts`: free packet records, started flows, events, taken samples, flows in progress
# (of a part: flows that started there, minus those that ended there), bytes delivered by all flows,
# and rows of the packet log
FREE, BEGUN, EVENTS, SAMPLED, ACTIVE, DELIVERED, LOGGED = range(7)
COUNTS = 7
# A path's entry for a link has the link's number, the part of the network at the link's end, and
# whether the path ends there: as bits, from the highest to the lowest.
PART_BITS, LINK_SHIFT = 6, 7
MOST_PARTS, MOST_LINKS = 1 << PART_BITS, 1 << (31 - LINK_SHIFT)


class FrameParameters(NamedTuple):
    """Frame sizes and TCP parameters of a packet simulation."""

    segment: int  # payload bytes of a full segment
    overhead: int  # header bytes of each TCP segment; also the size of an ACK frame
    most: float  # receive window: maximum number of segments in flight
    together: int  # maximum number of TCP segments per super-packet
    own: int  # lowest limit of the segments that wait at a sending server's own port
    subflows: int  # largest number of subflows of a connection; 1 for TCP


class SimulationState(NamedTuple):
    """State of a part of the packet simulation, which changes in place.

    All parts share frames, flows, paths, segments, connections and random numbers; a part has its
    own links (records of all links, of which it uses its own, and those from which packets come to
    it), packets, events, counts and log. Paths and parameters are fixed.
    """

    frames: FrameParameters
    links: Records[Link]
    flows: Records[TcpFlow]
    packets: Records[Packet]
    data_acked: Ints  # for each ACK of a subflow: first data segment that its connection misses
    unused: Ints  # numbers of the packet records that are not in use: the first counts[FREE] ones
    paths: Ints  # entries of all paths: see `entry_link`
    arrived_as: Ints  # for each TCP segment: the transmission with which it arrived; NOT_ARRIVED
    sent_as: Ints  # for each TCP segment: number of its last transmission
    shared: SharedData  # data that the subflows of Multipath TCP connections share
    calendar: CalendarState  # events of links
    timers: EventHeap  # TCP timers: each flow's sender's and receiver's
    counts: Ints
    drops: Ints  # for each flow: number of its data packets and ACKs dropped in this part
    exchange: Exchange  # packets from and to other parts
    chance: Floats  # random numbers from 0 to 1; their count is a power of two
    log: Records[LoggedPacket]  # the first counts[LOGGED] rows are used; empty without a log


class Samples(NamedTuple):
    """Moments at which a packet simulation is sampled, and the samples."""

    moments_s: Floats
    links: Ints  # links whose queues are sampled
    queued: Floats  # bytes in these queues: a row for each moment
    delivered: Ints  # bytes delivered up to each moment
    active: Ints  # flows in progress at each moment


def entry_link(entry: int) -> int:
    """Return the link of a path's entry."""
    return entry >> LINK_SHIFT


def entry_part(entry: int) -> int:
    """Return the part of the network that a packet reaches at the end of an entry's link."""
    return entry >> 1 & (MOST_PARTS - 1)


def is_last_entry(entry: int) -> bool:
    """Return True if the path ends with this entry."""
    return entry & 1 == 1


def most_packets_sent(frames: FrameParameters) -> int:
    """Return the maximum number of packets per event.

    A sender fills all its windows, and its receiver sends two ACKs.
    """
    return int(frames.most * frames.subflows) + 3
