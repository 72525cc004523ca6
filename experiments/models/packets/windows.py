"""Windows of time in which the parts of a network are simulated in parallel.

Each part is simulated by a thread, with its own event queue and packets (`partition`). A packet
that reaches another part is mailed to that part as soon as the packet is in the queue of its link.
The lookahead is the shortest time from then until the packet arrives, over all links between parts.
So all events within the lookahead after the earliest event of all parts, a window, are independent
of the packets that other parts mail in this window: conservative synchronization, as in Unison for
ns-3 (EuroSys 2024, "Unison: A Parallel-Efficient and User-Transparent Network Simulation Kernel").
At the end of a window all threads wait for one another, exchange packets, and agree on the next
window. Events of a part are in the order of their times and numbers, so results depend neither on
the number of parts nor on the speed of threads.

Mailboxes and reports exist twice, for windows of even and of odd number: a thread may be in the
next window while another one still reads the mail of the last window, but not further. With up to
six parts, all numbers that a thread reports are in one cache line.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy

from pillarbox.experiments.models.arrays import (
    CACHE_LINE,
    Float64,
    Floats,
    Int64,
    Ints,
    Records,
    zero_records,
    zeros_alone,
)
from pillarbox.experiments.models.packets.state import AT_HOME, AWAY, NEVER, Packet
from pillarbox.experiments.models.simulator.atomics import (
    load_acquire,
    store_release,
    yield_processor,
)

MAILED = 1024  # number of packets that a part may mail in a window, before its last event
SPINS = 4096  # number of looks at another thread's report before the processor is yielded
# Numbers in a part's report: windows that it has completed, the earliest event that it knows, and,
# for each receiving part, the number of packets in the mailbox
COMPLETED, EARLIEST_S, IN_BOX = 0, 1, 2


class WindowClock:
    """Record of a part's current window."""

    end_s: Float64  # events before this time belong to the window
    first_s: Float64  # earliest event of all parts; NEVER after the last one
    mailed_s: Float64  # earliest arrival of the packets mailed in the window; NEVER without any
    lookahead_s: Float64
    number: Int64  # number of the window
    mailed: Int64  # number of packets mailed in the window


class Exchange(NamedTuple):
    """Mailboxes and reports of all parts, as one of them sees them."""

    part: int  # number of the part
    parts: int
    room: int  # number of packets for which each mailbox has room
    width: int  # number of numbers per report
    clocks: Records[WindowClock]  # the part's own: an array of one record
    mailed: Ints  # the part's own: number of packets mailed to each part in the window
    # reports of all parts for even windows, then for odd ones; then a number that is 1 to abort
    reports: Floats
    # mailboxes: for even and odd windows, each sending part, and each receiving part
    boxes: Records[Packet]


def exchanges(parts: int, most: int, lookahead_s: float) -> list[Exchange]:
    """Return the exchange of each part; all have the same reports and mailboxes.

    `most` is the maximum number of packets per event.
    """
    room = most + MAILED if parts > 1 else 0
    in_line = 2 * CACHE_LINE // numpy.dtype(numpy.float64).itemsize
    width = -(-(IN_BOX + parts) // in_line) * in_line
    reports = zeros_alone(((2 * parts + 1) * width,), numpy.float64)
    boxes = zero_records(Packet, 2 * parts * parts * room)
    found = []
    for part in range(parts):
        clocks = zero_records(WindowClock, 1)
        # A single part has one window without end; several agree on the first window.
        clocks["end_s"] = NEVER if parts == 1 else -NEVER
        clocks["mailed_s"], clocks["lookahead_s"] = NEVER, lookahead_s
        mailed = zeros_alone((parts,), numpy.int64)
        found.append(Exchange(part, parts, room, width, clocks, mailed, reports, boxes))
    return found


def mail_packet(exchange: Exchange, packet: Packet, to: int) -> None:
    """Mail a copy of a packet, with the time of its arrival, to the part with number `to`."""
    clock = exchange.clocks[0]
    place = exchange.mailed[to]
    exchange.mailed[to] = place + 1
    copy = exchange.boxes[_first_in_box(exchange, clock.number & 1, exchange.part, to) + place]
    copy.due_s, copy.leaves_s = packet.due_s, packet.leaves_s
    copy.stamp_s, copy.newest_s = packet.stamp_s, packet.newest_s
    copy.flow, copy.at = packet.flow, packet.at
    copy.number, copy.newest, copy.taken = packet.number, packet.newest, packet.taken
    copy.count, copy.is_last, copy.has_holes = packet.count, packet.is_last, packet.has_holes
    copy.capable, copy.marked, copy.reduced = packet.capable, packet.marked, packet.reduced
    # Only the sender's part has to know when a packet has left its server.
    copy.kind = AWAY if packet.kind == AT_HOME else packet.kind
    clock.mailed += 1
    clock.mailed_s = min(clock.mailed_s, packet.due_s)


def begin_next_window(exchange: Exchange, next_s: float) -> None:
    """Wait until all parts have completed the window, and agree with them on the next one.

    `next_s` is the earliest event of this part, except for packets not yet received.
    """
    clock, reports = exchange.clocks[0], exchange.reports
    parity = clock.number & 1
    first_s = min(next_s, clock.mailed_s)
    clock.number += 1
    own = _report(exchange, parity, exchange.part)
    reports[own + EARLIEST_S] = first_s
    for part in range(exchange.parts):
        reports[own + IN_BOX + part] = exchange.mailed[part]
        exchange.mailed[part] = 0
    store_release(reports, own + COMPLETED, float(clock.number))
    for part in range(exchange.parts):
        other = _report(exchange, parity, part)
        if not _has_completed(exchange, other, clock.number):
            first_s = NEVER  # end as after the last event
            break
        first_s = min(first_s, reports[other + EARLIEST_S])
    clock.first_s, clock.end_s = first_s, first_s + clock.lookahead_s
    clock.mailed, clock.mailed_s = 0, NEVER


def mailbox(exchange: Exchange, sender: int) -> tuple[int, int]:
    """Return the first packet, and the one after the last, that a part has mailed to this one.

    The packets are those of the window before the current one, as indices into `boxes`.
    """
    parity = 1 - (exchange.clocks[0].number & 1)
    first = _first_in_box(exchange, parity, sender, exchange.part)
    count = exchange.reports[_report(exchange, parity, sender) + IN_BOX + exchange.part]
    return first, first + int(count)


def abort(exchange: Exchange) -> None:
    """End the simulation of all parts at the end of their windows."""
    exchange.reports[2 * exchange.parts * exchange.width] = 1


def _has_completed(exchange: Exchange, report: int, windows: int) -> bool:
    """Wait until a part's report is of this window or a later one; return False after `abort`."""
    looks = 0
    while load_acquire(exchange.reports, report + COMPLETED) < windows:
        looks += 1
        if looks > SPINS:
            yield_processor()
            if _is_aborted(exchange):
                return False
    return not _is_aborted(exchange)


def _is_aborted(exchange: Exchange) -> bool:
    return load_acquire(exchange.reports, 2 * exchange.parts * exchange.width) > 0


def _report(exchange: Exchange, parity: int, part: int) -> int:
    """Return the place of a part's report, as an index into `reports`."""
    return (parity * exchange.parts + part) * exchange.width


def _first_in_box(exchange: Exchange, parity: int, sender: int, receiver: int) -> int:
    parts = exchange.parts
    return ((parity * parts + sender) * parts + receiver) * exchange.room
