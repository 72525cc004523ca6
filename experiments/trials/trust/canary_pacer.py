"""Whether the kernel keeps its times: packets that a shaper has to let go at known moments.

Packets of one size wait in a shaper of their own, which has the timer that every cable's has and
sends in no bursts, at a rate that lets one go every 2 ms. Each goes to another namespace, whose
kernel answers it, and the kernel notes when it is back. So it takes the steps of every packet that
the kernel forwards: a timer, and soft interrupts on both sides. No program has a part in it, for
there none has: enough packets always wait that their writer may come half a second late.

A packet's turn is counted from the packet that came earliest, and how long after its turn it was
back is how late the kernel was. A shaper is allowed to catch up for a second, so that one delay
does not put off all that follow.
"""

from __future__ import annotations

import socket
import struct
import time

from experiments.linux import netlink, shaping
from experiments.linux.namespaces import Namespace
from experiments.trials.trust.readings import DurationStatistics, spread

INTERVAL_S, CATCH_UP_S, AHEAD_S = 0.002, 1.0, 0.5
AT_ONCE, AHEAD = round(CATCH_UP_S / INTERVAL_S), round(AHEAD_S / INTERVAL_S)
START_S = 5.0  # a second's worth of packets takes a few milliseconds to go through
FRAME_BYTES = 126
BYTES_S = round(FRAME_BYTES / INTERVAL_S)
ADDRESSES = "10.255.254.1", "10.255.254.2"
MACS = "02:00:00:00:fe:01", "02:00:00:00:fe:02"  # known beforehand: ARP would take a turn
NAME, INDEXES = "pacer", (2, 3)  # the two must differ: see `netlink.cable`
BUFFER_BYTES = 4 << 20
SO_TIMESTAMPNS = 35
ECHO_REQUEST, ICMP = 8, struct.Struct("!BBHHH")
NUMBER, MOMENT = struct.Struct("=Q"), struct.Struct("=qq")
PADDING = bytes(
    FRAME_BYTES - 14 - 20 - ICMP.size - NUMBER.size
)  # behind Ethernet's, IPv4's, ICMP's
NUMBER_AT = 20 + ICMP.size  # in an answer, which comes with its IPv4 header


class CanaryPacer:
    """A cable on which packets are due; `tend` has to be called a few times a second."""

    def __init__(self) -> None:
        self._socket = _cable()
        self._sent = 0
        self._back: list[tuple[int, float]] = []  # number, moment of CLOCK_MONOTONIC; in order
        deadline = time.monotonic() + START_S
        while self._next < AT_ONCE:  # what an idle shaper lets go at once is over then
            if time.monotonic() > deadline:
                raise OSError("the pacer's own cable carries nothing")
            self.tend()

    @property
    def _next(self) -> int:
        return self._back[-1][0] + 1 if self._back else 0

    def tend(self) -> None:
        """Note what is back, and write what will be due."""
        self._note()
        try:
            while self._sent < self._next + AHEAD:
                self._socket.send(_echo(self._sent))
                self._sent += 1
        except BlockingIOError:  # as much as the socket holds
            pass

    def heard(self, begin_s: float, end_s: float) -> tuple[DurationStatistics, int]:
        """Return how late packets were that were due between two moments, and how many got lost."""
        self._note()
        return lateness(self._back[AT_ONCE:], begin_s, end_s)

    def _note(self) -> None:
        # Answers bear the time of day, which may be set while this runs.
        day_s = time.time() - time.monotonic()
        try:
            while True:
                answer, ((_, _, moment), *_), _, _ = self._socket.recvmsg(256, 64)
                seconds, nanoseconds = MOMENT.unpack_from(moment)
                (number,) = NUMBER.unpack_from(answer, NUMBER_AT)
                self._back.append((number, seconds - day_s + nanoseconds * 1e-9))
        except BlockingIOError:
            pass


def lateness(
    back: list[tuple[int, float]], begin_s: float, end_s: float
) -> tuple[DurationStatistics, int]:
    """Return how late packets were, and how many of those that were due never came.

    >>> late, lost = lateness([(0, 7.0), (1, 7.002), (3, 7.009), (4, 7.009)], 7.001, 7.009)
    >>> late.times, round(late.median_s, 6), round(late.most_s, 6), lost
    (3, 0.001, 0.003, 1)
    """
    if not back:
        return spread([]), round((end_s - begin_s) / INTERVAL_S)
    first_s = min(at_s - number * INTERVAL_S for number, at_s in back)  # the turn of number 0
    late = [
        at_s - first_s - number * INTERVAL_S
        for number, at_s in back
        if begin_s <= first_s + number * INTERVAL_S < end_s
    ]
    due = round((end_s - max(begin_s, first_s)) / INTERVAL_S)
    return spread(late), max(0, due - len(late))


def joined(name: str, addresses: tuple[str, str]) -> tuple[Namespace, Namespace]:
    """Return two namespaces with a cable between them, whose ends have these addresses."""
    places = Namespace(), Namespace()
    ends = [
        netlink.End(name, index, place.descriptor, mac)
        for index, place, mac in zip(INDEXES, places, MACS, strict=True)
    ]
    places[0].netlink.send([netlink.cable(*ends, mtu=1500)])
    for this, place in enumerate(places):
        index, other = INDEXES[this], 1 - this
        address = netlink.add_address(index, addresses[this], 24)
        neighbour = netlink.add_neighbour(index, addresses[other], MACS[other])
        place.netlink.send([address, netlink.change(index, up=True), neighbour])
    return places


def _cable() -> socket.socket:
    """Make the cable; return the socket at its near end, which sends into the shaper."""
    near, _ = joined(NAME, ADDRESSES)
    near.netlink.send(shaping.paced(INDEXES[0], BYTES_S, round(BYTES_S * CATCH_UP_S)))
    with near:
        made = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    made.connect((ADDRESSES[1], 0))
    made.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    for option in (netlink.SO_SNDBUFFORCE, netlink.SO_RCVBUFFORCE):
        made.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
    made.setblocking(False)
    return made


def _echo(number: int) -> bytes:
    """Return an echo request with that number in it."""
    content = NUMBER.pack(number) + PADDING
    total = (ECHO_REQUEST << 8) + sum(struct.unpack(f"!{len(content) // 2}H", content))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ICMP.pack(ECHO_REQUEST, 0, ~total & 0xFFFF, 0, 0) + content
