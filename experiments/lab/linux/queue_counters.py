"""Queue lengths, sent bytes and drops of shaped ports, from the kernel's counters.

The kernel lists all queueing disciplines of a namespace in one answer, within microseconds.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from pillarbox.hosts.linux import netlink_numbers as nl
from pillarbox.hosts.linux.netlink import TC, Netlink, attributes, tc_header

HTB = b"htb\0"
ALL_INTERFACES = tc_header(0, 0, 0)
_STATS = struct.Struct("=QIIIIIII")  # tc_stats of linux/pkt_sched.h


class QueueCounters(NamedTuple):
    """The kernel's counters of a shaped port: sent, dropped and queued traffic."""

    sent_bytes: int
    sent_packets: int
    drops: int
    waiting_bytes: int


def queues(kernel: Netlink) -> dict[int, QueueCounters]:
    """Return the queue counters of all ports with a rate limit, by interface index."""
    found = {}
    for payload in kernel.dump(nl.RTM_GETQDISC, ALL_INTERFACES, "list the queues"):
        # first attribute: the kind of queueing discipline; only shapers count
        if payload[24:28] != HTB:
            continue
        for kind, data in attributes(payload, TC.size):
            if kind == nl.TCA_STATS:
                sent, packets, drops, _, _, _, _, waiting = _STATS.unpack_from(data)
                index = TC.unpack_from(payload)[2]
                found[index] = QueueCounters(sent, packets, drops, waiting)
    return found
