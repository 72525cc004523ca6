"""Packets from link to link, event by event, in native code.

An event is a packet that has reached the end of a link, a timer, or a flow that begins. A link
sends in the order in which packets came: when one comes it is known when it will have left. So only
the first packet of each link waits in the heap of what is due, and the others behind it.

A packet that has to wait, and for which the queue has no room beside those that wait already, is
dropped. The one that is being sent is not in the queue any more.

In a lab a packet is a super-packet (ADR 19): segments that a sender hands down together, and that
go through all queues together, are dropped together, and acknowledged by one ACK. And a lab's port
sends in bursts (ADR 16): until it owes one, and then it waits until it owes nothing.

Without chance, packets of one flow could find a place in a queue again and again where those of
another never do (Floyd and Jacobson 1991, "On traffic phase effects"). So servers take a random
time to send, as they propose: up to what the packet itself takes, if its segments are full.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy
from numpy.typing import NDArray

from experiments.analysis.arrivals.due import moved, put, take_first
from experiments.analysis.packets.sender import (
    acknowledged,
    is_probe,
    most_own,
    next_lost,
    one_packet,
    timed_out,
    timer_s,
)
from experiments.analysis.packets.state import NEVER, NONE, PACKET
from experiments.analysis.simulator.compiled import native

if TYPE_CHECKING:
    Floats = NDArray[numpy.float64]

FIRST_PACKETS = 1 << 12
DELAYED_ACK_S = 0.04  # Linux' minimum
OWN_PACKETS = 2  # of the size of the next one
SEGMENTS_PER_ACK = 2  # RFC 5681, section 4.2
SENDERS, RECEIVERS = 0, 1  # timers
FREE, SIZE, BEGUN, EVENTS, NOTED, ACTIVE, MOST_ACTIVE = range(7)  # of `counts`
ROUNDING = 1e-9
STRIDE = 7919  # from one random number to a link's next: a prime, so that all have their turn


class Frames(NamedTuple):
    """How long they are, and how TCP behaves."""

    segment: int  # bytes that a full one delivers
    overhead: int  # bytes of headers, which are all of an ACK
    most: float  # segments that the receiver lets be under way
    together: int  # segments that are one packet, at most
    own: int  # segments that may wait at the sender's own port, at least
    cubic: bool


class Given(NamedTuple):
    """All that changes while time goes by, and the links of paths."""

    links: Any  # LINK
    flows: Any  # FLOW
    paths: Any
    order: Any  # flows by their beginnings
    arrived: Any  # of each segment: whether it has
    sent_as: Any  # and the number of its last transmission
    heap: Any  # of links, senders' timers and receivers'
    at: Any
    due_s: Any
    wanted_s: Any  # when timers are really due: no earlier than they stand in the heap
    moments_s: Any
    delivered: Any  # bytes, up to each of these moments
    active: Any
    counts: Any
    total: Any  # bytes delivered so far
    chance: Any  # random numbers from 0 to 1, a power of two of them
    until_s: float


def run(given: Given, frames: Frames) -> int:
    """Let time go by until then, or until nothing is under way; return the most packets at once."""
    packets = numpy.zeros(FIRST_PACKETS, PACKET)
    unused = numpy.arange(FIRST_PACKETS, dtype=numpy.int32)
    given.counts[FREE] = FIRST_PACKETS
    while not native(_run)(given, frames, packets, unused):
        # As many again. Those unused stand first, and all that are new behind them.
        count, free = len(packets), int(given.counts[FREE])
        packets = numpy.concatenate([packets, numpy.zeros(count, PACKET)])
        more = numpy.arange(count, 2 * count, dtype=numpy.int32)
        unused = numpy.concatenate([unused[:free], more, numpy.zeros(count - free, numpy.int32)])
        given.counts[FREE] = free + count
    return len(packets)


def _run(given: Any, frames: Any, packets: Any, unused: Any) -> bool:
    """Do the same until there is no room for packets; tell whether all is done."""
    links, flows, heap, due_s, counts = (
        given.links, given.flows, given.heap, given.due_s, given.counts
    )  # fmt: skip
    while True:
        # One event lets a sender fill its window at most, and its receiver answer.
        if counts[FREE] < frames.most + 2:
            return False
        now = due_s[heap[0]] if counts[SIZE] > 0 else NEVER
        begins = NEVER
        if counts[BEGUN] < len(given.order):
            begins = flows[given.order[counts[BEGUN]]].begin_s
        now = min(now, begins)
        while counts[NOTED] < len(given.moments_s) and given.moments_s[counts[NOTED]] < now:
            given.delivered[counts[NOTED]] = given.total[0]
            given.active[counts[NOTED]] = counts[ACTIVE]
            counts[NOTED] += 1
        if now == NEVER or now > given.until_s:
            return True
        counts[EVENTS] += 1
        if begins == now:
            one = given.order[counts[BEGUN]]
            counts[BEGUN] += 1
            if flows[one].path == flows[one].path_end:
                continue
            counts[ACTIVE] += 1
            counts[MOST_ACTIVE] = max(counts[MOST_ACTIVE], counts[ACTIVE])
            _send(given, frames, packets, unused, one, now)
        elif heap[0] < len(links):
            _arrive(given, frames, packets, unused, heap[0], now)
        else:
            _timer(given, frames, packets, unused, heap[0] - len(links), now)


def _arrive(given: Any, frames: Any, packets: Any, unused: Any, at: int, now: float) -> None:
    """Let the first packet of a link leave it, for the next one or its end."""
    link = given.links[at]
    number = link.first
    packet = packets[number]
    one, count = packet.flow, packet.count
    leaves_home = packet.at == given.flows[one].path
    link.first = packet.behind
    if link.waits == number:
        link.waits = packet.behind
    if link.first == NONE:
        take_first(given.heap, given.at, given.due_s, given.counts[SIZE])
        given.counts[SIZE] -= 1
    else:
        given.due_s[at] = packets[link.first].due_s
        moved(given.heap, given.at, given.due_s, given.counts[SIZE], at)
    packet.at += 1
    if packet.at < packet.end:
        _forward(given, frames, packets, unused, number, now)
        if leaves_home:
            given.flows[one].own -= count
            _send(given, frames, packets, unused, one, now)
        return
    # Given back before others are taken: it is read, but not written any more.
    unused[given.counts[FREE]] = number
    given.counts[FREE] += 1
    if packet.is_ack:
        acknowledged(given.flows[one], packet, now, frames.cubic, frames.most)
        _set_timer(given, one, SENDERS, timer_s(given.flows[one], now))
        _send(given, frames, packets, unused, one, now)
    else:
        _receive(given, frames, packets, unused, packet, now)
        if leaves_home:  # by a cable between two servers
            given.flows[one].own -= count
            _send(given, frames, packets, unused, one, now)


def _forward(given: Any, frames: Any, packets: Any, unused: Any, number: int, now: float) -> None:
    """Put a packet into the queue of the link that is next on its path, or drop it."""
    packet = packets[number]
    at = given.paths[packet.at]
    link = given.links[at]
    flow = given.flows[packet.flow]
    takes_s = _takes_s(link, frames, flow, packet)
    begins_s = max(link.turn_s, now)
    if link.free_s - begins_s > link.owed_s:
        begins_s = link.free_s
    limit_s = link.limit_s * (1 + ROUNDING)
    if begins_s > now and _waiting_s(link, packets, now) + takes_s > limit_s:
        link.dropped += packet.count
        flow.drops += packet.count
        unused[given.counts[FREE]] = number
        given.counts[FREE] += 1
        return
    link.passed += packet.count
    if packet.at == flow.path:
        flow.own += packet.count
    link.turn_s = begins_s
    link.free_s = max(link.free_s, begins_s - link.owed_s) + takes_s
    packet.leaves_s = begins_s if link.owed_s > 0.0 else link.free_s
    chance = given.chance[link.passed * STRIDE + at & len(given.chance) - 1]
    later_s = link.delay_s + chance * link.jitter_s * packet.count
    packet.due_s = max(link.last_s, packet.leaves_s + later_s)
    link.last_s = packet.due_s
    packet.behind = NONE
    if link.first == NONE:
        link.first = number
        given.due_s[at] = packet.due_s
        put(given.heap, given.at, given.due_s, given.counts[SIZE], at)
        given.counts[SIZE] += 1
    else:
        packets[link.last].behind = number
    link.last = number
    if link.waits == NONE:
        link.waits = number


def _takes_s(link: Any, frames: Any, flow: Any, packet: Any) -> float:
    """Return how long a link takes to send a packet."""
    size = packet.count * frames.overhead
    if not packet.is_ack:
        size += packet.count * frames.segment
        if packet.number + packet.count == flow.segments:
            size += flow.last_bytes - frames.segment
    return float(size * link.byte_s + packet.count * link.packet_s)


def _waiting_s(link: Any, packets: Any, now: float) -> float:
    """Return how long a link will take for what waits in its queue."""
    while link.waits != NONE and packets[link.waits].leaves_s <= now:
        link.waits = packets[link.waits].behind
    if link.waits == NONE:
        return 0.0
    return float(link.free_s - packets[link.waits].leaves_s)


def _send(given: Any, frames: Any, packets: Any, unused: Any, one: int, now: float) -> None:
    """Send what a flow's window allows, and what is lost first."""
    flow = given.flows[one]
    sent, full = flow.sent, False
    while True:
        room = int(flow.window - (flow.sent - flow.newest))
        if room < 1:
            full = True
            break
        first = next_lost(flow, given.arrived, given.sent_as)
        if first >= flow.segments:
            break
        most = min(frames.together, room)
        count = one_packet(flow, first, most, given.arrived, given.sent_as)
        if flow.own >= most_own(flow, max(OWN_PACKETS * count, frames.own)):
            break
        _transmit(given, frames, packets, unused, one, first, count, now)
    # That it was full counts for a round trip (Linux' tcp_cwnd_validate).
    if full or (flow.sent > sent and flow.acked >= flow.full_until):
        flow.full, flow.full_until = full, flow.next
    if flow.sent > sent:
        _set_timer(given, one, SENDERS, timer_s(flow, now))


def _transmit(
    given: Any, frames: Any, packets: Any, unused: Any, one: int, first: int, count: int, now: float
) -> None:
    """Send so many segments in one packet."""
    flow = given.flows[one]
    for segment in range(first, first + count):
        if segment == flow.next:
            flow.next += 1
        else:
            flow.repeats += 1
        flow.sent += 1
        given.sent_as[flow.segment + segment] = flow.sent
    given.counts[FREE] -= 1
    number = unused[given.counts[FREE]]
    packet = packets[number]
    packet.flow, packet.is_ack, packet.has_holes = one, False, False
    packet.number, packet.count = first, count
    packet.newest, packet.stamp_s = flow.sent, now
    packet.at, packet.end = flow.path, flow.path_end
    _forward(given, frames, packets, unused, number, now)


def _receive(given: Any, frames: Any, packets: Any, unused: Any, packet: Any, now: float) -> None:
    """Take a packet; acknowledge two segments or more, and at once whatever is out of order."""
    one = packet.flow
    flow = given.flows[one]
    flow.arrived = packet.newest
    if flow.unacked == 0:
        flow.echo_s = packet.stamp_s
    flow.unacked += packet.count
    flow.segments_in += packet.count
    in_order = packet.number == flow.expected and flow.highest == flow.expected
    for segment in range(packet.number, packet.number + packet.count):
        at = flow.segment + segment
        if not given.arrived[at]:
            given.arrived[at] = True
            is_last = segment == flow.segments - 1
            given.total[0] += flow.last_bytes if is_last else frames.segment
    flow.highest = max(flow.highest, packet.number + packet.count)
    while flow.expected < flow.highest and given.arrived[flow.segment + flow.expected]:
        flow.expected += 1
    done = flow.expected == flow.segments
    if done and not flow.end_s < now:  # missing until then
        flow.end_s = now
        given.counts[ACTIVE] -= 1
    if in_order and not done and flow.unacked < SEGMENTS_PER_ACK:
        _set_timer(given, one, RECEIVERS, now + DELAYED_ACK_S)
    else:
        _acknowledge(given, frames, packets, unused, one, now)


def _acknowledge(given: Any, frames: Any, packets: Any, unused: Any, one: int, now: float) -> None:
    flow = given.flows[one]
    flow.unacked = 0
    _set_timer(given, one, RECEIVERS, NEVER)
    given.counts[FREE] -= 1
    number = unused[given.counts[FREE]]
    packet = packets[number]
    packet.flow, packet.is_ack, packet.has_holes = one, True, flow.highest > flow.expected
    packet.number, packet.count, packet.taken = flow.expected, 1, flow.segments_in
    packet.newest, packet.stamp_s = flow.arrived, flow.echo_s
    packet.at, packet.end = flow.back, flow.back_end
    _forward(given, frames, packets, unused, number, now)


# -- timers --------------------------------------------------------------------------------------


def _set_timer(given: Any, one: int, whose: int, when_s: float) -> None:
    """Set a timer. One that stands in the heap already comes up too early, and is put back then."""
    timer = 2 * one + whose
    given.wanted_s[timer] = when_s
    item = len(given.links) + timer
    if given.due_s[item] > when_s:
        is_new = given.due_s[item] == NEVER
        given.due_s[item] = when_s
        if is_new:
            put(given.heap, given.at, given.due_s, given.counts[SIZE], item)
            given.counts[SIZE] += 1
        else:
            moved(given.heap, given.at, given.due_s, given.counts[SIZE], item)


def _timer(given: Any, frames: Any, packets: Any, unused: Any, timer: int, now: float) -> None:
    """Take the first timer of the heap."""
    item = len(given.links) + timer
    wanted_s = given.wanted_s[timer]
    if now < wanted_s < NEVER:
        given.due_s[item] = wanted_s
        moved(given.heap, given.at, given.due_s, given.counts[SIZE], item)
        return
    take_first(given.heap, given.at, given.due_s, given.counts[SIZE])
    given.counts[SIZE] -= 1
    given.due_s[item] = NEVER
    if wanted_s == NEVER:
        return
    one = timer // 2
    flow = given.flows[one]
    if timer % 2 == RECEIVERS:
        _acknowledge(given, frames, packets, unused, one, now)
    elif is_probe(flow):
        flow.probed = True
        segment = min(flow.next, flow.segments - 1)
        _transmit(given, frames, packets, unused, one, segment, 1, now)
        _set_timer(given, one, SENDERS, timer_s(flow, now))
    else:
        timed_out(flow, now, frames.cubic)
        # It may have arrived, and its ACK be lost: the sender cannot know.
        _transmit(given, frames, packets, unused, one, flow.acked, 1, now)
        _set_timer(given, one, SENDERS, timer_s(flow, now))
