"""Parts of a flow's completion time, along the critical path of its packets.

The critical path (Barford and Crovella 2000, "Critical Path Analysis of TCP Transactions", SIGCOMM)
is the chain of packets, each sent because of the one before, that ends with the delivery of the
flow's last missing byte. It is followed back from there to the flow's start::

    delivery of data       <- passed its links, one after another <- the data was sent
    new data was sent      <- the latest event at its sender before: an ACK arrived, or data of the
                              flow left the sender's own port
    data was sent again    <- the transmission before, which was lost or late
    an ACK was sent        <- the latest delivery of data at its receiver before

Each step covers the time from its begin to its end, so the parts always add up to the whole. The
time of a packet between two links is divided by the bytes that the link's port sent: the last bytes
up to the packet that take the packet's time at the port's rate, in so far as the port sent them
after the packet arrived or, in a lab, as a burst just before. Bytes of other flows are waiting, own
bytes are sending. Time that these bytes do not explain is the machine's.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy

from pillarbox.experiments.models.arrays import Floats, Ints
from pillarbox.experiments.models.packets.packet_log import NO_LINK, PacketLog
from pillarbox.topos.base.errors import require

# Kinds of parts.
SENDING = "sending"  # The port sends the flow's own bytes.
WAITING = "waiting"  # The port sends other flows' bytes.
PROPAGATION = "propagation"  # Delay of cables.
TIMEOUT = "timeout"  # Data waits for its repetition, or new data for ACKs, until a timer expires.
RECOVERY = "recovery"  # Data waits for its repetition by an ACK, without timeouts meanwhile.
REROUTING = "rerouting"  # Data that was lost at a fault waits for its repetition.
ACK_DELAY = "ack delay"  # Data is delivered, and its ACK is not sent yet.
SENDER = "sender"  # The window stays full until a timer expires, or a program is late.
START = "start"  # The planned start has passed, and no packet is sent yet.
MACHINE = "machine"  # Late timers and slow programs.
UNKNOWN = "unknown"  # Packets that were not logged.
# longest time by which a flow's recorded end may precede its last delivery: a program reads the
# clock before it reads the data
EARLY_END_S = 1e-3
LEAST_SILENCE_S = 1e-3  # shortest time without ACKs before a repetition by a timer


class Part(NamedTuple):
    """A part of a flow's completion time."""

    kind: str
    seconds: float
    link: int = NO_LINK  # link of whose port the part is; of a repetition: that lost the packet
    flows: float = 0.0  # mean number of other flows that are ahead, weighted by time
    fault: int = -1  # number of the fault that lost the packet


class Ports(NamedTuple):
    """Ports of a network, as arrays by directed link."""

    heads: Ints  # node at the end of the link
    rate_bps: Floats  # infinite: no limit
    burst_s: Floats  # time at its rate for a port's largest burst; 0 for a network card
    delay_s: Floats


class FlowToExplain(NamedTuple):
    """A completed flow of a packet log."""

    flow: int
    source: int
    destination: int
    start_s: float
    end_s: float
    volume_bytes: int


class Outage(NamedTuple):
    """Time of a fault in which packets are lost until servers have rerouted them."""

    fault: int
    begin_s: float
    end_s: float


class _Departures(NamedTuple):
    """Packets that a link's port has sent, in order."""

    rows: Ints
    at_s: Floats
    bytes: Ints
    flows: Ints


@dataclass
class _Packet:
    """A packet of the explained flow: the rows of its events in the log."""

    number: int
    is_ack: bool
    first: int
    end: int
    sent: int | None = None
    hops: list[int] = field(default_factory=list)
    delivered: bool = False


class CriticalPaths:
    """Explains flows of one packet log."""

    def __init__(self, log: PacketLog, ports: Ports, outages: Sequence[Outage] = ()) -> None:
        self._log, self._ports, self._outages = log, ports, outages
        self._of_flow = _rows_by_value(log.flow)
        passed = numpy.flatnonzero(log.link != NO_LINK)
        self._departures: dict[int, _Departures] = {}
        for link, places in _rows_by_value(log.link[passed]).items():
            rows = passed[places]
            self._departures[link] = _Departures(
                rows, log.at_s[rows], log.bytes[rows], log.flow[rows]
            )

    def parts(self, wanted: FlowToExplain) -> list[Part]:
        """Return the parts of a flow's completion time, the longest first; they add up to it.

        The time ends with the last delivery, if that is up to EARLY_END_S after the recorded end.
        """
        found = _Walk(self, wanted).run()
        return sorted(found, key=lambda part: -part.seconds)

    def rows_of(self, flow: int) -> Ints:
        """Return the rows of a flow's packets in the log."""
        return self._of_flow.get(flow, numpy.empty(0, numpy.int64))

    def time_s(self, row: int) -> float:
        """Return the time of a row of the log."""
        return float(self._log.at_s[row])

    def hop(self, flow: int, link: int, before_s: float, row: int) -> list[Part]:
        """Return the parts of a packet's time from one link's end to the next link's, at `row`."""
        whole_s = self.time_s(row) - before_s
        delay_s = min(whole_s, float(self._ports.delay_s[link]))
        left_s = whole_s - delay_s
        parts = [Part(PROPAGATION, delay_s, link)]
        rate_bytes_s = float(self._ports.rate_bps[link]) / 8
        if not numpy.isfinite(rate_bytes_s):
            return [*parts, Part(MACHINE, left_s, link)]
        port = self._departures[link]
        last = int(numpy.searchsorted(port.rows, row))
        earliest_s = before_s + delay_s - float(self._ports.burst_s[link])
        earliest = int(numpy.searchsorted(port.at_s, earliest_s, "right"))
        need, own, others = left_s * rate_bytes_s, 0.0, 0.0
        ahead: set[int] = set()
        at = last
        while at >= min(earliest, last) and need > 0:
            size = min(float(port.bytes[at]), need)
            need -= size
            if port.flows[at] == flow:
                own += size
            else:
                others += size
                ahead.add(int(port.flows[at]))
            at -= 1
        own_s, others_s = own / rate_bytes_s, others / rate_bytes_s
        return [
            *parts,
            Part(SENDING, own_s, link),
            Part(WAITING, others_s, link, len(ahead)),
            Part(MACHINE, max(0.0, left_s - own_s - others_s), link),
        ]

    def fault_at(self, begin_s: float, end_s: float) -> int:
        """Return the fault whose outage a lost packet and its repetition meet; -1 without one."""
        for outage in self._outages:
            if begin_s <= outage.end_s and end_s >= outage.begin_s:
                return outage.fault
        return -1

    def packets_of(self, wanted: FlowToExplain) -> list[_Packet]:
        """Return a flow's packets, in order of their first event."""
        log, found = self._log, dict[int, _Packet]()
        for row in self.rows_of(wanted.flow).tolist():
            number = int(log.packet[row])
            one = found.get(number)
            if one is None:
                ends = int(log.first[row]), int(log.end[row])
                one = found[number] = _Packet(number, bool(log.is_ack[row]), *ends)
            link = int(log.link[row])
            if link == NO_LINK:
                one.sent = row
            else:
                one.hops.append(row)
                end = wanted.source if one.is_ack else wanted.destination
                one.delivered = one.delivered or int(self._ports.heads[link]) == end
        return _with_pieces(list(found.values()))

    def link(self, row: int) -> int:
        """Return the link of a row of the log."""
        return int(self._log.link[row])


class _Walk:
    """Follows the critical path of one flow, backwards."""

    def __init__(self, paths: CriticalPaths, wanted: FlowToExplain) -> None:
        self._paths, self._wanted = paths, wanted
        packets = paths.packets_of(wanted)
        self._data = [one for one in packets if not one.is_ack]
        self._deliveries = {
            kind: sorted(
                (one.hops[-1], at)
                for at, one in enumerate(packets)
                if one.delivered and one.is_ack == kind
            )
            for kind in (False, True)
        }
        self._departed = sorted(
            (one.hops[0], at) for at, one in enumerate(packets) if one.hops and not one.is_ack
        )
        self._packets = packets
        self._repeated = self._repetitions()
        self._silences = self._silent_times()
        self._next_links = self._following_links()
        self._found: defaultdict[tuple[str, int, int], list[float]] = defaultdict(lambda: [0, 0])

    def run(self) -> list[Part]:
        """Return the parts of the flow's completion time."""
        end_s, last = self._wanted.end_s, self._completing()
        if last is None:
            self._add(Part(UNKNOWN, end_s - self._wanted.start_s))
        else:
            row = last.hops[-1]
            read_s = max(0.0, end_s - self._paths.time_s(row))
            self._add(Part(MACHINE, read_s, self._paths.link(row)))
            step: tuple[_Packet, int] | None = last, row
            while step is not None:
                step = self._step(*step)
        return [
            Part(kind, seconds, link, weighted / seconds if seconds else 0.0, fault)
            for (kind, link, fault), (seconds, weighted) in self._found.items()
            if seconds
        ]

    def _add(self, part: Part) -> None:
        sums = self._found[part.kind, part.link, part.fault]
        sums[0] += part.seconds
        sums[1] += part.flows * part.seconds

    def _completing(self) -> _Packet | None:
        """Return the packet that delivers the flow's last missing byte, None if none does."""
        latest_s = self._wanted.end_s + EARLY_END_S
        missing = self._wanted.volume_bytes
        covered: list[tuple[int, int]] = []  # disjoint ranges of delivered bytes, sorted
        for row, at in self._deliveries[False]:
            one = self._packets[at]
            if self._paths.time_s(row) > latest_s:
                break
            missing -= _add_range(covered, one.first, min(one.end, self._wanted.volume_bytes))
            if missing <= 0:
                return one
        return None

    def _step(self, packet: _Packet, row: int) -> tuple[_Packet, int] | None:
        """Add the parts of a packet up to `row`; return the packet that caused it, and its row.

        None if the flow's start is reached. Raises PillarboxError if the packet was sent after
        `row`: such a path has no end.
        """
        require(
            packet.sent is None or packet.sent <= row,
            f"the packet log is damaged: packet {packet.number} of flow {self._wanted.flow} "
            "arrives before it is sent",
        )
        rows = [one for one in packet.hops if one <= row]
        if packet.sent is None:
            first_s = self._paths.time_s(rows[0] if rows else row)
            self._add_hops(self._paths.time_s(rows[0]) if rows else first_s, rows[1:])
            self._add(Part(UNKNOWN, first_s - self._wanted.start_s))
            return None
        sent_s = self._paths.time_s(packet.sent)
        self._add_hops(sent_s, rows)
        if packet.is_ack:
            return self._caused(ACK_DELAY, packet.sent, self._latest(False, packet.sent))
        before = self._transmission_before(packet)
        if before is not None and before.sent is not None:
            for part in self._repetition(before, packet.sent):
                self._add(part)
            return before, before.sent
        return self._caused(SENDER, packet.sent, self._latest_at_sender(packet.sent))

    def _caused(
        self, kind: str, sent: int, cause: tuple[int, int] | None
    ) -> tuple[_Packet, int] | None:
        """Add the time from a cause to the packet that it caused; return the cause, if any."""
        sent_s = self._paths.time_s(sent)
        if cause is None or self._paths.time_s(cause[0]) < self._wanted.start_s:
            none = START if kind == SENDER else UNKNOWN
            self._add(Part(none, sent_s - self._wanted.start_s))
            return None
        cause_s, lost = self._paths.time_s(cause[0]), None
        if kind == SENDER and sent_s - cause_s > self._longest_pause_s(sent):
            # A timer sends new data if ACKs, or data before it, are lost.
            lost = self._latest_lost(cause_s - self._round_trip_s(sent), sent)
        if lost is not None:
            self._add(self._after_loss(TIMEOUT, lost, cause_s, sent_s))
        else:
            self._add(Part(kind, sent_s - cause_s))
        return self._packets[cause[1]], cause[0]

    def _add_hops(self, sent_s: float, rows: list[int]) -> None:
        before_s = sent_s
        for row in rows:
            for part in self._paths.hop(self._wanted.flow, self._paths.link(row), before_s, row):
                self._add(part)
            before_s = self._paths.time_s(row)

    def _latest(self, is_ack: bool, row: int) -> tuple[int, int] | None:
        """Return the row and number of the latest ACK or data delivered before a row."""
        found = self._deliveries[is_ack]
        at = bisect_left(found, (row, -1)) - 1
        return found[at] if at >= 0 else None

    def _latest_at_sender(self, row: int) -> tuple[int, int] | None:
        """Return the latest ACK at the sender, or data that left its port, before a row."""
        at = bisect_left(self._departed, (row, -1)) - 1
        left = self._departed[at] if at >= 0 else None
        return max(filter(None, (left, self._latest(True, row))), default=None)

    def _transmission_before(self, packet: _Packet) -> _Packet | None:
        """Return the latest transmission of a packet's data before it, a lost one if possible."""
        if packet.number not in self._repeated or packet.sent is None:
            return None
        before = [
            one
            for one in self._data
            if one.sent is not None
            and one.sent < packet.sent
            and one.first < packet.end
            and packet.first < one.end
        ]
        return max(before, key=lambda one: (not one.delivered, one.sent or 0), default=None)

    def _repetitions(self) -> set[int]:
        """Return the numbers of the packets with data that were sent before."""
        found, highest = set(), 0
        for one in sorted(self._data, key=lambda one: (one.sent or 0, one.first)):
            if one.first < highest:
                found.add(one.number)
            highest = max(highest, one.end)
        return found

    def _repetition(self, before: _Packet, sent: int) -> list[Part]:
        """Return the parts from a transmission to its repetition."""
        assert before.sent is not None
        begin_s, end_s = self._paths.time_s(before.sent), self._paths.time_s(sent)
        lost = None if before.delivered else before
        whole = self._after_loss(TIMEOUT, lost, begin_s, end_s)
        if sent in self._silences or whole.kind == REROUTING:
            return [whole]
        silent_s = sum(
            max(0.0, min(until_s, end_s) - max(from_s, begin_s))
            for from_s, until_s in self._silences.values()
        )
        rest_s = max(0.0, whole.seconds - silent_s)
        return [whole._replace(seconds=silent_s), whole._replace(kind=RECOVERY, seconds=rest_s)]

    def _after_loss(self, kind: str, lost: _Packet | None, begin_s: float, end_s: float) -> Part:
        """Return the part after a loss: of a kind, or re-routing if the loss meets a fault."""
        if lost is None:
            return Part(kind, end_s - begin_s)
        reached = self._paths.link(lost.hops[-1]) if lost.hops else NO_LINK
        lost_at = self._next_links.get((lost.is_ack, reached), NO_LINK)
        fault = self._paths.fault_at(begin_s, end_s)
        return Part(kind if fault < 0 else REROUTING, end_s - begin_s, lost_at, 0.0, fault)

    def _latest_lost(self, since_s: float, row: int) -> _Packet | None:
        """Return the lost packet that was sent last, since a time and before a row."""
        lost = (
            one
            for one in self._packets
            if one.sent is not None
            and one.sent < row
            and not one.delivered
            and self._paths.time_s(one.sent) >= since_s
        )
        return max(lost, key=lambda one: one.sent or 0, default=None)

    def _silent_times(self) -> dict[int, tuple[float, float]]:
        """Return the time without ACKs before each repetition by a timer, by its row."""
        found: dict[int, tuple[float, float]] = {}
        from_s = self._wanted.start_s
        for one in sorted(self._data, key=lambda one: one.sent or 0):
            if (
                one.sent is None
                or one.number not in self._repeated
                or not self._is_silent(one.sent)
            ):
                continue
            latest, until_s = self._latest(True, one.sent), self._paths.time_s(one.sent)
            if latest is not None:
                from_s = max(from_s, self._paths.time_s(latest[0]))
            found[one.sent] = min(from_s, until_s), until_s
            from_s = until_s
        return found

    def _is_silent(self, sent: int) -> bool:
        """Return True if no ACK arrived within half a round trip before a packet was sent."""
        latest = self._latest(True, sent)
        if latest is None:
            return True
        silent_s = self._paths.time_s(sent) - self._paths.time_s(latest[0])
        return silent_s > self._longest_pause_s(sent)

    def _longest_pause_s(self, sent: int) -> float:
        """Return the time without ACKs from which a packet is sent by a timer."""
        return max(self._round_trip_s(sent) / 2, LEAST_SILENCE_S)

    def _round_trip_s(self, row: int) -> float:
        """Return the round trip of the latest ACK before a row; 0 if there is none."""
        latest = self._latest(True, row)
        ack = self._packets[latest[1]] if latest else None
        if latest is None or ack is None or ack.sent is None:
            return 0.0
        data = self._latest(False, ack.sent)
        sent = self._packets[data[1]].sent if data else None
        return 0.0 if sent is None else self._paths.time_s(latest[0]) - self._paths.time_s(sent)

    def _following_links(self) -> dict[tuple[bool, int], int]:
        """Return the link that most data packets, or ACKs, pass after each link.

        After NO_LINK it is the first link.
        """
        counts: defaultdict[tuple[bool, int], Counter[int]] = defaultdict(Counter)
        for one in self._packets:
            before = NO_LINK
            for link in map(self._paths.link, one.hops):
                counts[one.is_ack, before][link] += 1
                before = link
        return {before: count.most_common(1)[0][0] for before, count in counts.items()}


def _with_pieces(packets: list[_Packet]) -> list[_Packet]:
    """Return packets with the pieces of super-packets in place of them.

    A program that forwards a super-packet may split it: then the log has no link of the
    super-packet, and no sender of its pieces.
    """
    whole = [one for one in packets if one.sent is not None and not one.hops and not one.is_ack]
    split: set[int] = set()
    for one in packets:
        if one.sent is not None or one.is_ack:
            continue
        for other in reversed(whole):
            assert other.sent is not None
            if other.sent < one.hops[0] and other.first <= one.first and one.end <= other.end:
                one.sent = other.sent
                split.add(other.number)
                break
    return [one for one in packets if one.number not in split]


def _rows_by_value(column: Ints) -> dict[int, Ints]:
    """Return the rows of each value of a column, ascending."""
    order = numpy.argsort(column, kind="stable")
    values, starts = numpy.unique(column[order], return_index=True)
    return (
        dict(zip(values.tolist(), numpy.split(order, starts[1:]), strict=True))
        if len(order)
        else {}
    )


def _add_range(covered: list[tuple[int, int]], first: int, end: int) -> int:
    """Add a range of numbers to disjoint sorted ranges; return how many numbers are new.

    >>> ranges = [(0, 10), (20, 30)]
    >>> _add_range(ranges, 5, 25), ranges
    (10, [(0, 30)])
    >>> _add_range(ranges, 3, 8), _add_range(ranges, 40, 41), ranges
    (0, 1, [(0, 30), (40, 41)])
    """
    new = max(0, end - first)
    at = max(0, bisect_left(covered, (first, first)) - 1)
    while at < len(covered) and covered[at][0] <= end:
        low, high = covered[at]
        if high < first:
            at += 1
            continue
        new -= max(0, min(high, end) - max(low, first))
        first, end = min(first, low), max(end, high)
        del covered[at]
    insort(covered, (first, end))
    return new
