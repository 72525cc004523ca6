"""Queues of links: packets that wait, are marked, or are dropped; and the queues' lengths."""

from __future__ import annotations

from pillarbox.experiments.models.arrays import Records
from pillarbox.experiments.models.packets.link_events import add_link_event
from pillarbox.experiments.models.packets.simulation_state import (
    FREE,
    Samples,
    SimulationState,
    entry_link,
    entry_part,
)
from pillarbox.experiments.models.packets.state import ACK, AT_HOME, NEVER, NONE, Link, Packet
from pillarbox.experiments.models.packets.windows import mail_packet, mailbox

ROUNDING = 1e-9
STRIDE = 7919  # step from one of a link's random numbers to its next: a prime, so that all are used


def enqueue_or_drop(state: SimulationState, number: int, now: float) -> None:
    """Put a packet into the queue of its current link, or drop it."""
    packet = state.packets[number]
    entry = state.paths[packet.at]
    at = entry_link(entry)
    link = state.links[at]
    takes_s = _transmission_s(link, state, packet)
    begins_s = max(link.turn_s, now)
    if link.free_s - begins_s > link.owed_s:
        begins_s = link.free_s
    limit_s = link.limit_s * (1 + ROUNDING)
    # The queue is never longer than the time until the link is free: most packets fit by that.
    if (
        begins_s > now
        and link.free_s - now + takes_s > limit_s
        and queueing_s(link, state.packets, now) + takes_s > limit_s
    ):
        link.dropped += packet.count
        state.drops[packet.flow] += packet.count
        state.unused[state.counts[FREE]] = number
        state.counts[FREE] += 1
        return
    link.passed += packet.count
    if packet.kind == AT_HOME:
        state.flows[packet.flow].own += packet.count
    link.turn_s = begins_s
    link.free_s = max(link.free_s, begins_s - link.owed_s) + takes_s
    if link.mark_s < NEVER:
        link.busy_s = max(link.busy_s, now) + takes_s
        if packet.capable and link.busy_s - now > link.mark_s:
            packet.marked = True
    packet.leaves_s = begins_s if link.owed_s > 0.0 else link.free_s
    later_s = link.delay_s
    if link.jitter_s > 0.0:
        chance = state.chance[link.passed * STRIDE + at & len(state.chance) - 1]
        later_s += chance * link.jitter_s * packet.count
    due_s = max(link.last_s, packet.leaves_s + later_s)
    packet.due_s = link.last_s = due_s
    _append_packet(state, number, at)
    if link.waits == NONE:
        link.waits = number
    to = entry_part(entry)
    if to != state.exchange.part:
        mail_packet(state.exchange, packet, to)


def receive_mail(state: SimulationState) -> None:
    """Put packets that other parts have mailed onto the links by which they arrive."""
    exchange, packets = state.exchange, state.packets
    for sender in range(exchange.parts):
        if sender == exchange.part:
            continue
        first, end = mailbox(exchange, sender)
        for place in range(first, end):
            state.counts[FREE] -= 1
            number = state.unused[state.counts[FREE]]
            packets[number] = exchange.boxes[place]
            _append_packet(state, number, entry_link(state.paths[packets[number].at]))


def _append_packet(state: SimulationState, number: int, at: int) -> None:
    """Append a packet to those that are on their way on link `at`."""
    packet, link = state.packets[number], state.links[at]
    packet.behind = NONE
    if link.first == NONE:
        link.first = number
        add_link_event(state.calendar, state.links, at, packet.due_s)
    else:
        state.packets[link.last].behind = number
    link.last = number


def _transmission_s(link: Link, state: SimulationState, packet: Packet) -> float:
    """Return the transmission time of a packet on a link, in seconds."""
    frames = state.frames
    size = packet.count * frames.overhead
    if packet.kind != ACK:
        size += packet.count * frames.segment
        if packet.is_last:
            size += state.flows[packet.flow].last_bytes - frames.segment
    return size * link.byte_s + packet.count * link.packet_s


def queueing_s(link: Link, packets: Records[Packet], now: float) -> float:
    """Return the time in seconds that a link needs for the packets in its queue."""
    while link.waits != NONE and packets[link.waits].leaves_s <= now:
        link.waits = packets[link.waits].behind
    if link.waits == NONE:
        return 0.0
    return link.free_s - packets[link.waits].leaves_s


def sample_queues(state: SimulationState, samples: Samples, moment: int) -> None:
    """Store the number of bytes in the sampled links' queues."""
    for place in range(len(samples.links)):
        link = state.links[samples.links[place]]
        waiting_s = queueing_s(link, state.packets, samples.moments_s[moment])
        samples.queued[moment, place] = waiting_s / link.byte_s
