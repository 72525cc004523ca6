"""What waits in shaped ports' queues, and what they have sent and dropped, by the kernel's counts.

The kernel lists all queues of a namespace in one answer, which takes microseconds.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from experiments.linux.netlink import Netlink, attributes

RTM_GETQDISC = 38
TCA_STATS = 3
HTB = b"htb\0"
ALL_INTERFACES = struct.pack("=BxHiIII", 0, 0, 0, 0, 0, 0)
_TCMSG = struct.Struct("=BxHiIII")
_STATS = struct.Struct("=QIIIIIII")  # tc_stats of linux/pkt_sched.h


class Queue(NamedTuple):
    """The kernel's counters of a shaped port."""

    sent_bytes: int
    sent_packets: int
    drops: int
    waiting_bytes: int


def queues(kernel: Netlink) -> dict[int, Queue]:
    """Return the shaped ports of a namespace, by the index of their interface."""
    found = {}
    for payload in kernel.dump(RTM_GETQDISC, ALL_INTERFACES, "list the queues"):
        if payload[24:28] != HTB:  # the kind comes first, and most are others
            continue
        for kind, data in attributes(payload, _TCMSG.size):
            if kind == TCA_STATS:
                sent, packets, drops, _, _, _, _, waiting = _STATS.unpack_from(data)
                index = _TCMSG.unpack_from(payload)[2]
                found[index] = Queue(sent, packets, drops, waiting)
    return found
