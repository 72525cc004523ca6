"""Event-driven packet simulation, link by link, in native code.

An event is a packet that has reached the end of a link, a timer, or the start of a flow. A link
sends packets in their order of arrival, so the time at which a packet leaves is known when it
arrives. Therefore only the first packet of each link is in the event heap; the packets behind it
are a linked list.

A packet that has to wait is dropped if the queue has no room for it in addition to the packets that
already wait. The packet being sent is no longer in the queue. A queue may mark packets (ECN) from a
threshold on; a receiver reports marks as in RFC 3168, or exactly (DCTCP; RFC 8257, section 3.2).

In a lab a packet is a super-packet (ADR 19): segments that a sender hands down together; they pass
all queues together, are dropped together, and are acknowledged by one ACK. A lab's port sends in
bursts (ADR 16): it sends until it owes a burst, then waits until it owes nothing.

In a deterministic simulation, packets of one flow may find room in a queue again and again while
those of another flow never do (Floyd and Jacobson 1991, "On traffic phase effects"). Therefore
servers add a random sending time, as proposed there: up to the transmission time of the packet
itself, if its segments are full.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy

from experiments.models.arrays import Bools, Floats, Ints, Records, zero_records
from experiments.models.arrivals.event_heap import (
    EventHeap,
    add_event,
    move_event,
    remove_earliest_event,
)
from experiments.models.packets.congestion import DCTCP
from experiments.models.packets.controls.lia import lia_increase
from experiments.models.packets.multipath import (
    SharedData,
    offer_data,
    process_data_ack,
    receive_data_segment,
    take_data,
)
from experiments.models.packets.sender import (
    is_tail_loss_probe,
    most_segments_at_own_port,
    next_segment_to_send,
    process_ack,
    process_timeout,
    segments_of_next_packet,
    timer_expiry_s,
)
from experiments.models.packets.state import NEVER, NONE, Link, Packet, TcpFlow
from experiments.models.simulator.compiled import native_in_place

FIRST_PACKETS = 1 << 12
DELAYED_ACK_S = 0.04  # delayed-ACK timeout in seconds: Linux' minimum
OWN_PACKETS = (
    2  # number of packets, as large as the next one, that may wait at a sending server's own port
)
SEGMENTS_PER_ACK = 2  # TCP segments per delayed ACK (RFC 5681, section 4.2)
SENDERS, RECEIVERS = 0, 1  # indices of a TCP flow's two timers: the sender's and the receiver's
FREE, BEGUN, EVENTS, NOTED, ACTIVE, MOST_ACTIVE = range(6)  # indices of `counts`
ROUNDING = 1e-9
STRIDE = 7919  # step from one of a link's random numbers to its next: a prime, so that all are used


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
    unused: Ints  # numbers of the packet records that are not in use: the first counts[FREE] ones
    paths: Ints  # links of all paths
    order: Ints  # flows by start time
    arrived: Bools  # for each TCP segment: whether it has arrived
    sent_as: Ints  # for each TCP segment: number of its last transmission
    shared: SharedData  # data that the subflows of Multipath TCP connections share
    events: EventHeap  # events of links, senders' timers and receivers' timers
    wanted_s: Floats  # true expiry of each TCP timer, never earlier than its time in the heap
    moments_s: Floats
    sampled: Ints  # links whose queues are sampled at each of `moments_s`
    queued: Floats  # bytes in these queues: a row for each moment
    delivered: Floats  # bytes delivered up to each of `moments_s`
    active: Ints
    counts: Ints
    total: Floats  # bytes delivered so far, all flows
    chance: Floats  # random numbers from 0 to 1; their count is a power of two
    until_s: float


def run_packet_simulation(state: SimulationState) -> None:
    """Run the packet simulation until `until_s`, or until no packet is in flight."""
    state.counts[FREE] = len(state.unused)
    while not native_in_place(_process_events)(state):
        # Double the table of packet records: free records stay in front, new ones follow.
        count, free = len(state.packets), int(state.counts[FREE])
        packets, unused = zero_records(Packet, 2 * count), numpy.zeros(2 * count, numpy.int32)
        packets[:count] = state.packets
        unused[:free] = state.unused[:free]
        unused[free : free + count] = numpy.arange(count, 2 * count)
        state = state._replace(packets=packets, unused=unused)
        state.counts[FREE] = free + count


def _process_events(state: SimulationState) -> bool:
    """Process simulated packets' events; return False if packet records run out."""
    links, flows, events, counts = state.links, state.flows, state.events, state.counts
    while True:
        # One event lets a sender fill all its windows at most, and its receiver send two ACKs.
        if counts[FREE] < state.frames.most * state.frames.subflows + 3:
            return False
        now = events.due_s[events.heap[0]] if events.size[0] > 0 else NEVER
        begins = NEVER
        if counts[BEGUN] < len(state.order):
            begins = flows[state.order[counts[BEGUN]]].begin_s
        now = min(now, begins)
        while counts[NOTED] < len(state.moments_s) and state.moments_s[counts[NOTED]] < now:
            state.delivered[counts[NOTED]] = state.total[0]
            state.active[counts[NOTED]] = counts[ACTIVE]
            _sample_queues(state, counts[NOTED])
            counts[NOTED] += 1
        if now == NEVER or now > state.until_s:
            return True
        counts[EVENTS] += 1
        if begins == now:
            one = state.order[counts[BEGUN]]
            counts[BEGUN] += 1
            if flows[one].path == flows[one].path_end:
                continue
            counts[ACTIVE] += 1
            counts[MOST_ACTIVE] = max(counts[MOST_ACTIVE], counts[ACTIVE])
            _send_all_windows(state, one, now)
        elif events.heap[0] < len(links):
            _leave_link(state, events.heap[0], now)
        else:
            _expire_timer(state, events.heap[0] - len(links), now)


def _leave_link(state: SimulationState, at: int, now: float) -> None:
    """Move the first packet of a link to the next link of its path, or deliver the packet."""
    link = state.links[at]
    number = link.first
    packet = state.packets[number]
    one, count = packet.flow, packet.count
    leaves_home = packet.at == state.flows[one].path
    link.first = packet.behind
    if link.waits == number:
        link.waits = packet.behind
    if link.first == NONE:
        remove_earliest_event(state.events)
    else:
        move_event(state.events, at, state.packets[link.first].due_s)
    packet.at += 1
    if packet.at < packet.end:
        _enqueue_or_drop(state, number, now)
        if leaves_home:
            state.flows[one].own -= count
            _send_window(state, one, now)
        return
    # The record is freed before others are allocated: it is still read, but no longer written.
    state.unused[state.counts[FREE]] = number
    state.counts[FREE] += 1
    if packet.is_ack:
        flow = state.flows[one]
        opens_window = flow.connection != NONE and _process_data_ack(state, one, packet)
        process_ack(flow, packet, now, state.frames.most)
        _set_timer(state, one, SENDERS, timer_expiry_s(flow, now))
        if opens_window:
            _send_all_windows(state, one, now)
        else:
            _send_window(state, one, now)
    else:
        _receive_data(state, packet, now)
        if (
            leaves_home
        ):  # the packet leaves its sender's own port: a path of one cable between two servers
            state.flows[one].own -= count
            _send_window(state, one, now)


def _enqueue_or_drop(state: SimulationState, number: int, now: float) -> None:
    """Put a packet into the queue of the next link of its path, or drop it."""
    packet = state.packets[number]
    at = state.paths[packet.at]
    link = state.links[at]
    flow = state.flows[packet.flow]
    takes_s = _transmission_s(link, state.frames, flow, packet)
    begins_s = max(link.turn_s, now)
    if link.free_s - begins_s > link.owed_s:
        begins_s = link.free_s
    limit_s = link.limit_s * (1 + ROUNDING)
    if begins_s > now and _queueing_s(link, state.packets, now) + takes_s > limit_s:
        link.dropped += packet.count
        flow.drops += packet.count
        state.unused[state.counts[FREE]] = number
        state.counts[FREE] += 1
        return
    link.passed += packet.count
    if packet.at == flow.path:
        flow.own += packet.count
    link.turn_s = begins_s
    link.free_s = max(link.free_s, begins_s - link.owed_s) + takes_s
    if link.mark_s < NEVER:
        link.busy_s = max(link.busy_s, now) + takes_s
        if packet.capable and link.busy_s - now > link.mark_s:
            packet.marked = True
    packet.leaves_s = begins_s if link.owed_s > 0.0 else link.free_s
    chance = state.chance[link.passed * STRIDE + at & len(state.chance) - 1]
    later_s = link.delay_s + chance * link.jitter_s * packet.count
    packet.due_s = max(link.last_s, packet.leaves_s + later_s)
    link.last_s = packet.due_s
    packet.behind = NONE
    if link.first == NONE:
        link.first = number
        add_event(state.events, at, packet.due_s)
    else:
        state.packets[link.last].behind = number
    link.last = number
    if link.waits == NONE:
        link.waits = number


def _transmission_s(link: Link, frames: FrameParameters, flow: TcpFlow, packet: Packet) -> float:
    """Return the transmission time of a packet on a link, in seconds."""
    size = packet.count * frames.overhead
    if not packet.is_ack:
        size += packet.count * frames.segment
        if packet.number <= flow.last < packet.number + packet.count:
            size += flow.last_bytes - frames.segment
    return size * link.byte_s + packet.count * link.packet_s


def _queueing_s(link: Link, packets: Records[Packet], now: float) -> float:
    """Return the time in seconds that a link needs for the packets in its queue."""
    while link.waits != NONE and packets[link.waits].leaves_s <= now:
        link.waits = packets[link.waits].behind
    if link.waits == NONE:
        return 0.0
    return link.free_s - packets[link.waits].leaves_s


def _sample_queues(state: SimulationState, moment: int) -> None:
    """Store the number of bytes in the sampled links' queues."""
    for place in range(len(state.sampled)):
        link = state.links[state.sampled[place]]
        waiting_s = _queueing_s(link, state.packets, state.moments_s[moment])
        state.queued[moment, place] = waiting_s / link.byte_s


def _send_window(state: SimulationState, one: int, now: float) -> None:
    """Send the segments that a flow's congestion window allows, lost ones first."""
    flow = state.flows[one]
    sent, full = flow.sent, False
    while True:
        room = int(flow.window - (flow.sent - flow.newest))
        if room < 1:
            full = True
            break
        if flow.connection != NONE:
            offer_data(state.shared, state.flows, one, state.frames.most)
        first = next_segment_to_send(flow, state.arrived, state.sent_as)
        if first >= flow.segments:
            break
        most = min(state.frames.together, room)
        count = segments_of_next_packet(flow, first, most, state.arrived, state.sent_as)
        if flow.own >= most_segments_at_own_port(flow, max(OWN_PACKETS * count, state.frames.own)):
            break
        _transmit(state, one, first, count, now)
    # A full window is remembered for one round trip (Linux' tcp_cwnd_validate).
    if full or (flow.sent > sent and flow.acked >= flow.full_until):
        flow.full, flow.full_until = full, flow.next
    if flow.sent > sent:
        _set_timer(state, one, SENDERS, timer_expiry_s(flow, now))


def _send_all_windows(state: SimulationState, one: int, now: float) -> None:
    """Send the segments that the windows of all subflows of a connection allow."""
    first, end = _subflows(state, one)
    for subflow in range(first, end):
        _send_window(state, subflow, now)


def _process_data_ack(state: SimulationState, one: int, packet: Packet) -> bool:
    """Process a subflow's ACK for its connection; return True if all subflows may now send."""
    first, end = _subflows(state, one)
    flow = state.flows[one]
    flow.increase = lia_increase(state.flows, first, end)
    return process_data_ack(state.shared, flow, packet.data_acked)


def _subflows(state: SimulationState, one: int) -> tuple[int, int]:
    """Return the first subflow of a flow's connection, and the one after the last."""
    number = state.flows[one].connection
    if number == NONE:
        return one, one + 1
    connection = state.shared.connections[number]
    return connection.first, connection.first + connection.subflows


def _transmit(state: SimulationState, one: int, first: int, count: int, now: float) -> None:
    """Send a simulated packet of `count` TCP segments, from segment `first` on."""
    flow = state.flows[one]
    is_new = first == flow.next
    for segment in range(first, first + count):
        if segment == flow.next:
            if flow.connection != NONE:
                take_data(state.shared, state.flows, one, state.frames.most)
            flow.next += 1
        else:
            flow.repeats += 1
        flow.sent += 1
        state.sent_as[flow.segment + segment] = flow.sent
    state.counts[FREE] -= 1
    number = state.unused[state.counts[FREE]]
    packet = state.packets[number]
    packet.flow, packet.is_ack, packet.has_holes = one, False, False
    packet.number, packet.count = first, count
    packet.newest, packet.stamp_s = flow.sent, now
    # Retransmissions are not marked (RFC 3168, section 6.1.5), except DCTCP's, as in Linux.
    packet.capable, packet.marked = is_new or flow.control == DCTCP, False
    packet.reduced = is_new and flow.owes_notice
    flow.owes_notice = flow.owes_notice and not is_new
    packet.at, packet.end = flow.path, flow.path_end
    _enqueue_or_drop(state, number, now)


def _receive_data(state: SimulationState, packet: Packet, now: float) -> None:
    """Receive a data packet: acknowledge every second segment, and any that is out of order."""
    # An ACK may take the packet's record: read the record first.
    one, first, end = packet.flow, packet.number, packet.number + packet.count
    newest, stamp_s = packet.newest, packet.stamp_s
    flow = state.flows[one]
    has_changed = _note_mark(state, one, packet.marked, packet.reduced, now)
    flow.arrived, flow.newest_s = newest, stamp_s
    if flow.unacked == 0:
        flow.echo_s = stamp_s
    flow.unacked += end - first
    flow.segments_in += end - first
    in_order = first == flow.expected and flow.highest == flow.expected
    for segment in range(first, end):
        at = flow.segment + segment
        if not state.arrived[at]:
            state.arrived[at] = True
            if flow.connection == NONE or receive_data_segment(state.shared, flow, segment):
                is_last = segment == flow.last
                state.total[0] += flow.last_bytes if is_last else state.frames.segment
    flow.highest = max(flow.highest, end)
    while flow.expected < flow.highest and state.arrived[flow.segment + flow.expected]:
        flow.expected += 1
    if flow.connection == NONE:
        done, whole = flow.expected == flow.segments, flow
    else:
        connection = state.shared.connections[flow.connection]
        done, whole = connection.missing == 0, state.flows[connection.first]
    if done and not whole.end_s < now:  # end_s is NaN until the flow ends
        whole.end_s = now
        state.counts[ACTIVE] -= 1
    if in_order and not done and not has_changed and flow.unacked < SEGMENTS_PER_ACK:
        _set_timer(state, one, RECEIVERS, now + DELAYED_ACK_S)
    else:
        _send_ack(state, one, now)


def _note_mark(state: SimulationState, one: int, marked: bool, reduced: bool, now: float) -> bool:
    """Note a data packet's ECN mark at the receiver; return True if the packet needs an ACK now.

    RFC 3168, section 6.1.3: ACKs report a mark until the sender has reduced its window. DCTCP's
    ACKs report exactly which packets were marked (RFC 8257, section 3.2).
    """
    flow = state.flows[one]
    if flow.control != DCTCP:
        flow.echoes = marked or (flow.echoes and not reduced)
        return False
    if marked == flow.echoes:
        return False
    if flow.unacked > 0:
        _send_ack(state, one, now)  # for the packets before this one
    flow.echoes = marked
    return True


def _send_ack(state: SimulationState, one: int, now: float) -> None:
    flow = state.flows[one]
    flow.unacked = 0
    _set_timer(state, one, RECEIVERS, NEVER)
    state.counts[FREE] -= 1
    number = state.unused[state.counts[FREE]]
    packet = state.packets[number]
    packet.flow, packet.is_ack, packet.has_holes = one, True, flow.highest > flow.expected
    packet.number, packet.count, packet.taken = flow.expected, 1, flow.segments_in
    packet.newest, packet.stamp_s, packet.newest_s = flow.arrived, flow.echo_s, flow.newest_s
    packet.capable, packet.marked, packet.reduced = False, flow.echoes, False
    if flow.connection != NONE:
        packet.data_acked = state.shared.connections[flow.connection].expected
    packet.at, packet.end = flow.back, flow.back_end
    _enqueue_or_drop(state, number, now)


# -- timers --------------------------------------------------------------------------------------


def _set_timer(state: SimulationState, one: int, whose: int, when_s: float) -> None:
    """Set a TCP timer. If the heap has it earlier, `_expire_timer` puts it back at that time."""
    timer = 2 * one + whose
    state.wanted_s[timer] = when_s
    item = len(state.links) + timer
    due_s = state.events.due_s[item]
    if due_s == NEVER and when_s < NEVER:
        add_event(state.events, item, when_s)
    elif due_s > when_s:
        move_event(state.events, item, when_s)


def _expire_timer(state: SimulationState, timer: int, now: float) -> None:
    """Handle a TCP timer that is first in the heap: send an ACK, a tail loss probe, or time out."""
    item = len(state.links) + timer
    wanted_s = state.wanted_s[timer]
    if now < wanted_s < NEVER:
        move_event(state.events, item, wanted_s)
        return
    remove_earliest_event(state.events)
    state.events.due_s[item] = NEVER
    if wanted_s == NEVER:
        return
    one = timer // 2
    flow = state.flows[one]
    if timer % 2 == RECEIVERS:
        _send_ack(state, one, now)
    elif is_tail_loss_probe(flow):
        flow.probed = True
        if flow.connection != NONE:
            offer_data(state.shared, state.flows, one, state.frames.most)
        segment = min(flow.next, flow.segments - 1)
        _transmit(state, one, segment, 1, now)
        _set_timer(state, one, SENDERS, timer_expiry_s(flow, now))
    else:
        process_timeout(flow, now)
        # The segment may have arrived and only its ACK be lost: the sender cannot know.
        _transmit(state, one, flow.acked, 1, now)
        _set_timer(state, one, SENDERS, timer_expiry_s(flow, now))
        if flow.connection != NONE:
            connection = state.shared.connections[flow.connection]
            connection.stranded = connection.acked
            _send_all_windows(state, one, now)
