"""Event-driven packet simulation, link by link, in native code.

An event is a packet that has reached the end of a link, a timer, or the start of a flow. A link
sends packets in their order of arrival, so the time at which a packet leaves is known when it
arrives. Therefore only the first packet of each link is in the event queue (`link_events`); the
packets behind it are a linked list. Events at the same time are processed in the order: starts of
flows, links, timers; links and timers in the order of their numbers.

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

from pillarbox.experiments.models.arrays import Floats, Ints
from pillarbox.experiments.models.arrivals.event_heap import (
    add_event,
    move_event,
    remove_earliest_event,
)
from pillarbox.experiments.models.packets.congestion import DCTCP
from pillarbox.experiments.models.packets.controls.lia import lia_increase
from pillarbox.experiments.models.packets.link_events import (
    add_link_event,
    first_link_event,
    remove_link_event,
)
from pillarbox.experiments.models.packets.link_queues import (
    enqueue_or_drop,
    receive_mail,
    sample_queues,
)
from pillarbox.experiments.models.packets.multipath import (
    offer_data,
    process_data_ack,
    receive_data_segment,
    take_data,
)
from pillarbox.experiments.models.packets.packet_log import NO_LINK
from pillarbox.experiments.models.packets.sender import (
    is_tail_loss_probe,
    most_segments_at_own_port,
    next_segment_to_send,
    process_ack,
    process_timeout,
    segments_of_next_packet,
    timer_expiry_s,
)
from pillarbox.experiments.models.packets.simulation_state import (
    ACTIVE,
    BEGUN,
    DELIVERED,
    EVENTS,
    FREE,
    LOGGED,
    SAMPLED,
    Samples,
    SimulationState,
    entry_link,
    entry_part,
    is_last_entry,
    most_packets_sent,
)
from pillarbox.experiments.models.packets.state import (
    ACK,
    AT_HOME,
    AWAY,
    NEVER,
    NONE,
    NOT_ARRIVED,
    Packet,
)
from pillarbox.experiments.models.packets.windows import begin_next_window
from pillarbox.experiments.models.simulator.atomics import prefetch
from pillarbox.experiments.models.simulator.references import by_reference

DELAYED_ACK_S = 0.04  # delayed-ACK timeout in seconds: Linux' minimum
OWN_PACKETS = (
    2  # number of packets, as large as the next one, that may wait at a sending server's own port
)
SEGMENTS_PER_ACK = 2  # TCP segments per delayed ACK (RFC 5681, section 4.2)
# least number of links from which records of the next events are prefetched: those of smaller
# networks fit into the processor's second cache
LEAST_LINKS = 4096
ALL = 1 << 62  # more rows than any log has
EVENTS_PER_CALL = 1 << 21  # number of events per call of compiled code: calls are not interrupted
SENDER, RECEIVER = 0, 1  # indices of a TCP flow's two timers


def most_logged(state: SimulationState) -> int:
    """Return the number of rows up to which the log has room for an event; ALL without a log."""
    return len(state.log) - most_packets_sent(state.frames) if len(state.log) > 0 else ALL


def least_free_packets(state: SimulationState) -> int:
    """Return the number of free packet records that an event and the other parts' mail may take."""
    return most_packets_sent(state.frames) + state.exchange.parts * state.exchange.room


def process_events(
    state: SimulationState, samples: Samples, order: Ints, start_s: Floats, until_s: float
) -> bool:
    """Process events of a part of the network; return True after the last one.

    Call the function again if it returns False: after EVENTS_PER_CALL events; or after more packet
    records or rows of the log are allocated, if these run out.

    `order` has the part's flows in the order of their start times `start_s`.
    """
    state = by_reference(state)
    links, flows, timers, counts = state.links, state.flows, state.timers, state.counts
    window = state.exchange.clocks[0]
    most = most_packets_sent(state.frames)
    least_free, most_events = least_free_packets(state), counts[EVENTS] + EVENTS_PER_CALL
    most_mailed = state.exchange.room - most if state.exchange.parts > 1 else ALL
    most_rows = most_logged(state)
    prefetches = len(links) >= LEAST_LINKS
    while True:
        if counts[FREE] < least_free or counts[LOGGED] > most_rows or counts[EVENTS] >= most_events:
            return False
        link = first_link_event(state.calendar, links)
        if prefetches:
            _prefetch_upcoming(state)
        now = links[link].due_s if link != NONE else NEVER
        if timers.size[0] > 0 and timers.due_s[timers.heap[0]] < now:
            link, now = NONE, timers.due_s[timers.heap[0]]
        begun = counts[BEGUN]
        begins = begun < len(order) and start_s[begun] <= now
        if begins:
            now = start_s[begun]
        _take_samples(state, samples, min(now, window.end_s))
        if now >= window.end_s or now > until_s or window.mailed > most_mailed:
            if state.exchange.parts > 1:
                begin_next_window(state.exchange, now)
                receive_mail(state)
            if state.exchange.parts == 1 or window.first_s == NEVER or window.first_s > until_s:
                _take_samples(state, samples, NEVER)
                return True
            continue
        counts[EVENTS] += 1
        if begins:
            counts[BEGUN] += 1
            if flows[order[begun]].path == NONE:
                continue
            counts[ACTIVE] += 1
            _send_all_windows(state, order[begun], now)
        elif link != NONE:
            _leave_link(state, link, now)
        else:
            _expire_timer(state, timers.heap[0], now)


def _prefetch_upcoming(state: SimulationState) -> None:
    """Load records of the next events into the processor's cache.

    The events are those in the next buckets of the calendar. The later one of them, the fewer of
    its records are known: first its link, then the packet, the packet's path, and the next link.
    """
    links, packets, buckets = state.links, state.packets, state.calendar.buckets
    bucket, last = state.calendar.clocks[0].bucket, len(buckets) - 1
    link = buckets[bucket + 4 & last]
    if link != NONE:
        prefetch(links, link)
    link = buckets[bucket + 3 & last]
    if link != NONE:
        prefetch(packets, links[link].first)
    link = buckets[bucket + 2 & last]
    if link != NONE:
        prefetch(state.paths, packets[links[link].first].at)
    link = buckets[bucket + 1 & last]
    if link != NONE:
        packet = packets[links[link].first]
        if is_last_entry(state.paths[packet.at]):
            prefetch(state.flows, packet.flow)
        else:
            prefetch(links, entry_link(state.paths[packet.at + 1]))


def _take_samples(state: SimulationState, samples: Samples, until_s: float) -> None:
    """Sample the simulation at all moments before `until_s` that are not sampled yet."""
    counts = state.counts
    while counts[SAMPLED] < len(samples.moments_s) and samples.moments_s[counts[SAMPLED]] < until_s:
        samples.delivered[counts[SAMPLED]] = counts[DELIVERED]
        samples.active[counts[SAMPLED]] = counts[ACTIVE]
        sample_queues(state, samples, counts[SAMPLED])
        counts[SAMPLED] += 1


def _leave_link(state: SimulationState, at: int, now: float) -> None:
    """Move the first packet of a link to the next link of its path, or deliver the packet."""
    link = state.links[at]
    number = link.first
    packet = state.packets[number]
    one, count, kind = packet.flow, packet.count, packet.kind
    remove_link_event(state.calendar, state.links, at)
    link.first = packet.behind
    if link.waits == number:
        link.waits = packet.behind
    if link.first != NONE:
        add_link_event(state.calendar, state.links, at, state.packets[link.first].due_s)
    if len(state.log) > 0:
        _log_packet(state, packet, at, now)
    entry = state.paths[packet.at]
    if entry_part(entry) != state.exchange.part:
        # The other part has a copy of the packet, and counts the event.
        state.unused[state.counts[FREE]] = number
        state.counts[FREE] += 1
        state.counts[EVENTS] -= 1
    elif not is_last_entry(entry):
        if kind == AT_HOME:
            packet.kind = AWAY
        packet.at += 1
        enqueue_or_drop(state, number, now)
    else:
        # The record is freed before others are allocated: it is read, but no longer written.
        state.unused[state.counts[FREE]] = number
        state.counts[FREE] += 1
        if kind == ACK:
            _receive_ack(state, number, now)
            return
        _receive_data(state, packet, now)
    if kind == AT_HOME:
        state.flows[one].own -= count
        _send_window(state, one, now)


def _receive_ack(state: SimulationState, number: int, now: float) -> None:
    packet = state.packets[number]
    one = packet.flow
    flow = state.flows[one]
    opens_window = flow.connection != NONE and _process_data_ack(
        state, one, state.data_acked[number]
    )
    flow.reported = max(flow.reported, packet.newest)
    process_ack(flow, packet, now, state.frames.most)
    _set_sender_timer(state, one, timer_expiry_s(flow, now))
    if opens_window:
        _send_all_windows(state, one, now)
    else:
        _send_window(state, one, now)


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
        first = next_segment_to_send(flow, state.arrived_as, state.sent_as)
        if first >= flow.segments:
            break
        most = min(state.frames.together, room)
        count = segments_of_next_packet(flow, first, most, state.arrived_as, state.sent_as)
        if flow.own >= most_segments_at_own_port(flow, max(OWN_PACKETS * count, state.frames.own)):
            break
        _transmit(state, one, first, count, now)
    # A full window is remembered for one round trip (Linux' tcp_cwnd_validate).
    if full or (flow.sent > sent and flow.acked >= flow.full_until):
        flow.full, flow.full_until = full, flow.next
    if flow.sent > sent:
        _set_sender_timer(state, one, timer_expiry_s(flow, now))


def _send_all_windows(state: SimulationState, one: int, now: float) -> None:
    """Send the segments that the windows of all subflows of a connection allow."""
    first, end = _subflows(state, one)
    for subflow in range(first, end):
        _send_window(state, subflow, now)


def _process_data_ack(state: SimulationState, one: int, acked: int) -> bool:
    """Process a subflow's ACK for its connection; return True if all subflows may now send."""
    first, end = _subflows(state, one)
    flow = state.flows[one]
    flow.increase = lia_increase(state.flows, first, end)
    return process_data_ack(state.shared, flow, acked)


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
    packet.flow, packet.kind, packet.has_holes = one, AT_HOME, False
    packet.number, packet.count = first, count
    packet.is_last = first <= flow.last < first + count
    packet.newest, packet.stamp_s = flow.sent, now
    # Retransmissions are not marked (RFC 3168, section 6.1.5), except DCTCP's, as in Linux.
    packet.capable, packet.marked = is_new or flow.control == DCTCP, False
    packet.reduced = is_new and flow.owes_notice
    flow.owes_notice = flow.owes_notice and not is_new
    _send_packet(state, number, flow.path, now)


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
        if state.arrived_as[at] == NOT_ARRIVED:
            state.arrived_as[at] = newest
            if flow.connection == NONE or receive_data_segment(state.shared, flow, segment):
                is_last = segment == flow.last
                state.counts[DELIVERED] += flow.last_bytes if is_last else state.frames.segment
    flow.highest = max(flow.highest, end)
    while (
        flow.expected < flow.highest
        and state.arrived_as[flow.segment + flow.expected] != NOT_ARRIVED
    ):
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
        _set_receiver_timer(state, one, now + DELAYED_ACK_S)
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
    _set_receiver_timer(state, one, NEVER)
    state.counts[FREE] -= 1
    number = state.unused[state.counts[FREE]]
    packet = state.packets[number]
    packet.flow, packet.kind, packet.has_holes = one, ACK, flow.highest > flow.expected
    packet.is_last = False
    packet.number, packet.count, packet.taken = flow.expected, 1, flow.segments_in
    packet.newest, packet.stamp_s, packet.newest_s = flow.arrived, flow.echo_s, flow.newest_s
    packet.capable, packet.marked, packet.reduced = False, flow.echoes, False
    if flow.connection != NONE:
        state.data_acked[number] = state.shared.connections[flow.connection].expected
    _send_packet(state, number, flow.back, now)


def _send_packet(state: SimulationState, number: int, at: int, now: float) -> None:
    """Put a new packet into the queue of the first link of its path, which begins at `at`."""
    state.packets[number].at = at
    if len(state.log) > 0:
        _log_packet(state, state.packets[number], NO_LINK, now)
    enqueue_or_drop(state, number, now)


def _log_packet(state: SimulationState, packet: Packet, link: int, now: float) -> None:
    """Log that a packet has passed a link, or that it is sent (NO_LINK)."""
    row = state.log[state.counts[LOGGED]]
    state.counts[LOGGED] += 1
    row.at_s, row.flow, row.link, row.is_ack = now, packet.flow, link, packet.kind == ACK
    row.newest, row.number, row.count = packet.newest, packet.number, packet.count


# -- timers --------------------------------------------------------------------------------------


def _set_sender_timer(state: SimulationState, one: int, when_s: float) -> None:
    """Set a TCP sender's timer. If the heap has it earlier, `_expire_timer` puts it back."""
    flow = state.flows[one]
    flow.timer_s = when_s
    if when_s < flow.timer_due_s:
        _put_into_heap(state, 2 * one + SENDER, flow.timer_due_s, when_s)
        flow.timer_due_s = when_s


def _set_receiver_timer(state: SimulationState, one: int, when_s: float) -> None:
    """Set a TCP receiver's timer in the same way."""
    flow = state.flows[one]
    flow.answer_s = when_s
    if when_s < flow.answer_due_s:
        _put_into_heap(state, 2 * one + RECEIVER, flow.answer_due_s, when_s)
        flow.answer_due_s = when_s


def _put_into_heap(state: SimulationState, timer: int, before_s: float, when_s: float) -> None:
    if before_s == NEVER:
        add_event(state.timers, timer, when_s)
    else:
        move_event(state.timers, timer, when_s)


def _expire_timer(state: SimulationState, timer: int, now: float) -> None:
    """Handle a TCP timer that is first in the heap: send an ACK, a tail loss probe, or time out."""
    one = timer // 2
    flow = state.flows[one]
    is_sender = timer % 2 == SENDER
    when_s = flow.timer_s if is_sender else flow.answer_s
    if now < when_s < NEVER:
        move_event(state.timers, timer, when_s)
    else:
        remove_earliest_event(state.timers)
    due_s = when_s if when_s > now else NEVER
    if is_sender:
        flow.timer_due_s = due_s
    else:
        flow.answer_due_s = due_s
    if when_s > now:
        return
    if not is_sender:
        _send_ack(state, one, now)
    elif is_tail_loss_probe(flow):
        flow.probed = True
        if flow.connection != NONE:
            offer_data(state.shared, state.flows, one, state.frames.most)
        segment = min(flow.next, flow.segments - 1)
        _transmit(state, one, segment, 1, now)
        _set_sender_timer(state, one, timer_expiry_s(flow, now))
    else:
        process_timeout(flow, now)
        # The segment may have arrived and only its ACK be lost: the sender cannot know.
        _transmit(state, one, flow.acked, 1, now)
        _set_sender_timer(state, one, timer_expiry_s(flow, now))
        if flow.connection != NONE:
            connection = state.shared.connections[flow.connection]
            connection.stranded = connection.acked
            _send_all_windows(state, one, now)
