"""State of a packet simulation: arrays and records that compiled code changes in place."""

from __future__ import annotations

from typing import NamedTuple

from pillarbox.experiments.models.arrays import Bools, Floats, Ints, Records
from pillarbox.experiments.models.arrivals.event_heap import EventHeap
from pillarbox.experiments.models.packets.link_events import CalendarState
from pillarbox.experiments.models.packets.multipath import SharedData
from pillarbox.experiments.models.packets.packet_log import LoggedPacket
from pillarbox.experiments.models.packets.state import Link, Packet, TcpFlow

# indices of `counts`: free packet records, started flows, events, taken samples, flows in progress,
# the maximum of that number, bytes delivered by all flows, and rows of the packet log
FREE, BEGUN, EVENTS, SAMPLED, ACTIVE, MOST_ACTIVE, DELIVERED, LOGGED = range(8)
COUNTS = 8


class FrameParameters(NamedTuple):
    """Frame sizes and TCP parameters of a packet simulation."""

    segment: int  # payload bytes of a full segment
    overhead: int  # header bytes of each TCP segment; also the size of an ACK frame
    most: float  # receive window: maximum number of segments in flight
    together: int  # maximum number of TCP segments per super-packet
    own: int  # lowest limit of the segments that wait at a sending server's own port
    subflows: int  # largest number of subflows of a connection; 1 for TCP


class SimulationState(NamedTuple):
    """State of the packet simulation, which changes in place; paths and parameters are fixed."""

    frames: FrameParameters
    links: Records[Link]
    flows: Records[TcpFlow]
    packets: Records[Packet]
    data_acked: Ints  # for each ACK of a subflow: first data segment that its connection misses
    unused: Ints  # numbers of the packet records that are not in use: the first counts[FREE] ones
    paths: Ints  # links of all paths; the last link of a path is stored as its complement (~link)
    arrived: Bools  # for each TCP segment: whether it has arrived
    sent_as: Ints  # for each TCP segment: number of its last transmission
    shared: SharedData  # data that the subflows of Multipath TCP connections share
    calendar: CalendarState  # events of links
    timers: EventHeap  # TCP timers: each flow's sender's and receiver's
    counts: Ints
    chance: Floats  # random numbers from 0 to 1; their count is a power of two
    log: Records[LoggedPacket]  # the first counts[LOGGED] rows are used; empty without a log


class Samples(NamedTuple):
    """Moments at which a packet simulation is sampled, and the samples."""

    moments_s: Floats
    links: Ints  # links whose queues are sampled
    queued: Floats  # bytes in these queues: a row for each moment
    delivered: Ints  # bytes delivered up to each moment
    active: Ints  # flows in progress at each moment
