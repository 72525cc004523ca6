"""What one machine's card carried of a lab, and whether it was full.

Each port's own queue says whether its cable kept its rate; what is lost or waits in the network
between the machines shows nowhere there. So the card's queues are looked at while flows are sent,
and what went into tunnels is compared, over all machines, with what came out.
"""

from __future__ import annotations

import struct
import threading
import time
from typing import NamedTuple

from experiments.linux.backlogs import ALL_INTERFACES, RTM_GETQDISC, TCA_STATS
from experiments.linux.netlink import IFLA_IFNAME, RTM_GETLINK, Netlink, attributes, interface

EVERY_S = 0.04
_TCMSG, TC_H_ROOT = struct.Struct("=BxHiIII"), 0xFFFFFFFF
_QDISC_STATS = struct.Struct("=QIIIIIII")  # tc_stats of linux/pkt_sched.h
IFLA_STATS64, _LINK_BYTES = 23, 16
_COUNTERS = struct.Struct("=8Q")  # packets in and out, bytes, errors, drops: rtnl_link_stats64
FULL_BYTES = 1 << 16  # so much waits where a card cannot keep up: one super-packet is under way


class Card(NamedTuple):
    """What a card has done, and how often it was full."""

    sent_bytes: int
    received_bytes: int
    dropped: int  # by its queues, and by itself
    looks: int
    full_looks: int  # at which more waited than one super-packet
    crossed_out: int  # packets that went into tunnels
    crossed_in: int  # that came out of them


class _Counters(NamedTuple):
    sent_bytes: int
    received_bytes: int
    dropped: int
    crossed_out: int
    crossed_in: int


class CardWatch:
    """Looks at one machine's card from its making on, in a thread of its own.

    Parameters
    ----------
    kernel : Netlink
        Of the machine's own namespace.
    card : str
        Its card.
    fabric : Netlink
        Where the near ends of tunnels are, which are called ``x`` and a number.
    """

    def __init__(self, kernel: Netlink, card: str, fabric: Netlink) -> None:
        self._kernel, self._card, self._fabric = kernel, card, fabric
        self._index = self._links(kernel)[card][0]
        self._looks = self._full = 0
        self._ended = threading.Event()
        self._before = self._counters()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def end(self) -> Card:
        """Look no more; return what was seen."""
        self._ended.set()
        self._thread.join()
        after = self._counters()
        counted = _Counters(
            *(last - first for first, last in zip(self._before, after, strict=True))
        )
        return Card(
            counted.sent_bytes,
            counted.received_bytes,
            counted.dropped,
            self._looks,
            self._full,
            counted.crossed_out,
            counted.crossed_in,
        )

    def _watch(self) -> None:
        due = time.monotonic()
        while not self._ended.wait(max(0.0, due - time.monotonic())):
            self._looks += 1
            self._full += self._queue()[0] > FULL_BYTES
            due = max(due + EVERY_S, time.monotonic())

    def _queue(self) -> tuple[int, int]:
        """Return how much waits at the card, and how many packets its queues have dropped."""
        waiting = dropped = 0
        for payload in self._kernel.dump(RTM_GETQDISC, ALL_INTERFACES, "list the card's queues"):
            _, _, index, _, parent, _ = _TCMSG.unpack_from(payload)
            if index != self._index or parent != TC_H_ROOT:  # what is below counts in its root
                continue
            for kind, data in attributes(payload, _TCMSG.size):
                if kind == TCA_STATS:
                    _, _, drops, _, _, _, _, backlog = _QDISC_STATS.unpack_from(data)
                    waiting, dropped = backlog, drops
        return waiting, dropped

    def _counters(self) -> _Counters:
        _, counters = self._links(self._kernel)[self._card]
        bytes_in, bytes_out, drops = counters[2], counters[3], counters[6] + counters[7]
        tunnels = [
            found for name, (_, found) in self._links(self._fabric).items()
            if name[0] == "x" and name[1:].isdecimal()
        ]  # fmt: skip
        return _Counters(
            bytes_out,
            bytes_in,
            drops + self._queue()[1],
            sum(found[1] for found in tunnels),
            sum(found[0] for found in tunnels),
        )

    @staticmethod
    def _links(kernel: Netlink) -> dict[str, tuple[int, tuple[int, ...]]]:
        """Return the index and the counters of each interface by its name."""
        found = {}
        for payload in kernel.dump(RTM_GETLINK, interface(), "read the interfaces' counters"):
            link = dict(attributes(payload, _LINK_BYTES))
            if IFLA_STATS64 in link:
                (index,) = struct.unpack_from("=i", payload, 4)
                name = link[IFLA_IFNAME].rstrip(b"\0").decode()
                found[name] = index, _COUNTERS.unpack_from(link[IFLA_STATS64])
        return found
