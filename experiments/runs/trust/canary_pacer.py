"""Scheduling latency of the kernel: a shaper must send packets at known times.

Packets of one size wait in a separate shaper that uses the same timer as the shapers of cables and
sends without bursts, one packet every 2 ms. Each packet goes to another namespace, whose kernel
answers it, and the kernel records the arrival time of the answer. So each packet takes the steps of
every packet that the kernel forwards: a timer, and soft interrupts on both sides. No program is
involved: enough packets always wait that the program that writes them may be half a second late.

Due times are counted from the earliest packet; the kernel's lateness is the time from a packet's
due time to its answer. The shaper may catch up for a second, so that one delay does not postpone
all packets after it.
"""

from __future__ import annotations

import socket
import struct
import time

from pillarbox.experiments.lab.linux import link_requests, shaping
from pillarbox.experiments.lab.linux.namespaces import Namespace
from pillarbox.experiments.runs.trust.readings import DurationStatistics, spread
from pillarbox.hosts.linux.calls import set_buffer_bytes

# Interval between packets, burst allowance of the shaper, and lead of the writer, in seconds.
INTERVAL_S, CATCH_UP_S, AHEAD_S = 0.002, 1.0, 0.5
# Packets of an idle shaper's initial burst, and packets that wait in the shaper.
BURST_PACKETS, AHEAD_PACKETS = round(CATCH_UP_S / INTERVAL_S), round(AHEAD_S / INTERVAL_S)
START_S = 5.0  # Timeout for the initial burst (usually a few milliseconds), in seconds.
FRAME_BYTES = 126
BYTES_S = round(FRAME_BYTES / INTERVAL_S)
ADDRESSES = "10.255.254.1", "10.255.254.2"
# Static MAC addresses: an ARP request would take the time slot of a packet.
MACS = "02:00:00:00:fe:01", "02:00:00:00:fe:02"
NAME, INDEXES = "pacer", (2, 3)  # Interface name, and interface indexes, which must differ.
BUFFER_BYTES = 4 << 20
SO_TIMESTAMPNS = 35
ECHO_REQUEST, ICMP = 8, struct.Struct("!BBHHH")
NUMBER, MOMENT = struct.Struct("=Q"), struct.Struct("=qq")
# Padding of a pacer packet, after its Ethernet, IPv4 and ICMP headers and its number.
PADDING = bytes(FRAME_BYTES - 14 - 20 - ICMP.size - NUMBER.size)
NUMBER_AT = 20 + ICMP.size  # Offset of the packet number in an answer, IPv4 header included.


class CanaryPacer:
    """A cable with a shaper whose packets' lateness shows the kernel's scheduling latency."""

    def __init__(self) -> None:
        self._socket = _shaped_socket()
        self._sent = 0
        # Packet number and arrival time (CLOCK_MONOTONIC) of every answer, in order.
        self._answers: list[tuple[int, float]] = []
        deadline = time.monotonic() + START_S
        while (
            self._next_number < BURST_PACKETS
        ):  # The initial burst of an idle shaper has no due times.
            if time.monotonic() > deadline:
                raise OSError("the pacer's cable carries no packets")
            self.tend()

    @property
    def _next_number(self) -> int:
        return self._answers[-1][0] + 1 if self._answers else 0

    def tend(self) -> None:
        """Record the ICMP echo replies that have arrived, and refill the shaper with packets."""
        self._receive_answers()
        try:
            while self._sent < self._next_number + AHEAD_PACKETS:
                self._socket.send(_echo_request(self._sent))
                self._sent += 1
        except BlockingIOError:  # The socket's send buffer is full.
            pass

    def heard(self, begin_s: float, end_s: float) -> tuple[DurationStatistics, int]:
        """Return lateness and loss count of the pacer's packets due between two times."""
        self._receive_answers()
        return lateness(self._answers[BURST_PACKETS:], begin_s, end_s)

    def _receive_answers(self) -> None:
        # Answers have wall-clock timestamps: the clock may be set during a trial.
        day_s = time.time() - time.monotonic()
        try:
            while True:
                answer, ((_, _, moment), *_), _, _ = self._socket.recvmsg(256, 64)
                seconds, nanoseconds = MOMENT.unpack_from(moment)
                (number,) = NUMBER.unpack_from(answer, NUMBER_AT)
                self._answers.append((number, seconds - day_s + nanoseconds * 1e-9))
        except BlockingIOError:
            pass


def lateness(
    back: list[tuple[int, float]], begin_s: float, end_s: float
) -> tuple[DurationStatistics, int]:
    """Return the lateness of the pacer's packets, and the number that never arrived.

    >>> late, lost = lateness([(0, 7.0), (1, 7.002), (3, 7.009), (4, 7.009)], 7.001, 7.009)
    >>> late.times, round(late.median_s, 6), round(late.most_s, 6), lost
    (3, 0.001, 0.003, 1)
    """
    if not back:
        return spread([]), round((end_s - begin_s) / INTERVAL_S)
    # Due time of packet number 0, from the packet that arrived earliest.
    first_s = min(at_s - number * INTERVAL_S for number, at_s in back)
    late = [
        at_s - first_s - number * INTERVAL_S
        for number, at_s in back
        if begin_s <= first_s + number * INTERVAL_S < end_s
    ]
    due = round((end_s - max(begin_s, first_s)) / INTERVAL_S)
    return spread(late), max(0, due - len(late))


def joined(name: str, addresses: tuple[str, str]) -> tuple[Namespace, Namespace]:
    """Create two namespaces joined by a cable with these addresses; return the namespaces."""
    places = Namespace(), Namespace()
    ends = [
        link_requests.End(name, index, place.descriptor, mac)
        for index, place, mac in zip(INDEXES, places, MACS, strict=True)
    ]
    places[0].netlink.send([link_requests.cable(*ends, mtu=1500)])
    for this, place in enumerate(places):
        index, other = INDEXES[this], 1 - this
        address = link_requests.add_address(index, addresses[this], 24)
        neighbour = link_requests.add_neighbour(index, addresses[other], MACS[other])
        place.netlink.send([address, link_requests.change(index, up=True), neighbour])
    return places


def _shaped_socket() -> socket.socket:
    """Create the pacer's cable; return the ICMP socket at its near end, before the shaper."""
    near, _ = joined(NAME, ADDRESSES)
    near.netlink.send(
        shaping.token_bucket_requests(INDEXES[0], BYTES_S, round(BYTES_S * CATCH_UP_S))
    )
    with near:
        icmp = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    icmp.connect((ADDRESSES[1], 0))
    icmp.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    set_buffer_bytes(icmp, BUFFER_BYTES)
    icmp.setblocking(False)
    return icmp


def _echo_request(number: int) -> bytes:
    """Return an ICMP echo request that carries a packet number."""
    content = NUMBER.pack(number) + PADDING
    total = (ECHO_REQUEST << 8) + sum(struct.unpack(f"!{len(content) // 2}H", content))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ICMP.pack(ECHO_REQUEST, 0, ~total & 0xFFFF, 0, 0) + content
