"""Counters and queue depth of one machine's network card during a trial.

The queue of each emulated port shows whether its cable kept its rate. Packets lost or queued in
the network between the machines do not show there. So the card's queues are sampled while flows
are sent, and the packets that entered tunnels are compared, over all machines, with the packets
that left tunnels.
"""

from __future__ import annotations

import struct
import threading
import time
from typing import NamedTuple

from pillarbox.experiments.lab.linux.queue_counters import ALL_INTERFACES
from pillarbox.hosts.linux import netlink_numbers as nl
from pillarbox.hosts.linux.netlink import LINK, TC, Netlink, attributes, interface

EVERY_S = 0.04
TC_H_ROOT = 0xFFFFFFFF
_QDISC_STATS = struct.Struct("=QIIIIIII")  # tc_stats of linux/pkt_sched.h
_COUNTERS = struct.Struct("=8Q")  # rtnl_link_stats64: packets in and out, bytes, errors, drops
# backlog in bytes above which a network card's queue counts as full
FULL_BYTES = 1 << 16


class CardReadings(NamedTuple):
    """Counters of a machine's network card, and the number of samples with a full queue."""

    sent_bytes: int
    received_bytes: int
    dropped: int  # packets dropped by the card and by its queueing disciplines
    looks: int  # number of samples of the card's queue length
    full_looks: int  # samples in which the card's queue was full
    crossed_out: int  # packets that this machine sent into tunnels
    crossed_in: int  # packets that this machine received from tunnels


class _Counters(NamedTuple):
    sent_bytes: int
    received_bytes: int
    dropped: int
    crossed_out: int
    crossed_in: int


class CardWatch:
    """Samples one machine's network card in a background thread, from construction until `end`.

    Parameters
    ----------
    kernel : Netlink
        Netlink socket in the machine's own namespace.
    card : str
        Interface name of the machine's card.
    fabric : Netlink
        Netlink socket in the namespace of the tunnels' near ends, named ``x`` and a number.
    """

    def __init__(self, kernel: Netlink, card: str, fabric: Netlink) -> None:
        self._kernel, self._card, self._fabric = kernel, card, fabric
        self._index = self._interface_counters(kernel)[card][0]
        self._looks = self._full_samples = 0
        self._ended = threading.Event()
        self._before = self._counters()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def end(self) -> CardReadings:
        """Stop sampling a network card; return its counters since the start."""
        self._ended.set()
        self._thread.join()
        after = self._counters()
        counted = _Counters(
            *(last - first for first, last in zip(self._before, after, strict=True))
        )
        return CardReadings(
            counted.sent_bytes,
            counted.received_bytes,
            counted.dropped,
            self._looks,
            self._full_samples,
            counted.crossed_out,
            counted.crossed_in,
        )

    def _watch(self) -> None:
        due = time.monotonic()
        while not self._ended.wait(max(0.0, due - time.monotonic())):
            self._looks += 1
            self._full_samples += self._backlog_and_drops()[0] > FULL_BYTES
            due = max(due + EVERY_S, time.monotonic())

    def _backlog_and_drops(self) -> tuple[int, int]:
        """Return the backlog of the card's queues in bytes, and their dropped packets."""
        waiting = dropped = 0
        for payload in self._kernel.dump(nl.RTM_GETQDISC, ALL_INTERFACES, "list the card's queues"):
            _, _, index, _, parent, _ = TC.unpack_from(payload)
            # the root queueing discipline's counters include its children's
            if index != self._index or parent != TC_H_ROOT:
                continue
            for kind, data in attributes(payload, TC.size):
                if kind == nl.TCA_STATS:
                    _, _, drops, _, _, _, _, backlog = _QDISC_STATS.unpack_from(data)
                    waiting, dropped = backlog, drops
        return waiting, dropped

    def _counters(self) -> _Counters:
        _, counters = self._interface_counters(self._kernel)[self._card]
        bytes_in, bytes_out, drops = counters[2], counters[3], counters[6] + counters[7]
        tunnels = [
            found for name, (_, found) in self._interface_counters(self._fabric).items()
            if name[0] == "x" and name[1:].isdecimal()
        ]  # fmt: skip
        return _Counters(
            bytes_out,
            bytes_in,
            drops + self._backlog_and_drops()[1],
            sum(found[1] for found in tunnels),
            sum(found[0] for found in tunnels),
        )

    @staticmethod
    def _interface_counters(kernel: Netlink) -> dict[str, tuple[int, tuple[int, ...]]]:
        """Return index and counters of each network interface by name."""
        found = {}
        for payload in kernel.dump(nl.RTM_GETLINK, interface(), "read the interfaces' counters"):
            link = dict(attributes(payload, LINK.size))
            if nl.IFLA_STATS64 in link:
                (index,) = struct.unpack_from("=i", payload, 4)
                name = link[nl.IFLA_IFNAME].rstrip(b"\0").decode()
                found[name] = index, _COUNTERS.unpack_from(link[nl.IFLA_STATS64])
        return found
