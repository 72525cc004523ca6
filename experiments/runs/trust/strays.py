"""Stray packets: packets dropped outside the shaped queues.

A full queue drops packets, and TCP is made for that. A packet dropped elsewhere, because a bridge
port, a TUN device or a forwarder was too slow, is lost by the emulation and not by the emulated
network. Drop counters are read at the beginning and at the end of a trial: those of every interface
(``h3-eth0 in``, ``dcn0 of h3 out``), of each processor's backlog queue, and of the forwarders,
which report a reason for every drop.
"""

from __future__ import annotations

import errno
import os
import struct
from collections import Counter
from collections.abc import Mapping

from pillarbox.hosts.linux import netlink_numbers as nl
from pillarbox.hosts.linux.netlink import LINK, Netlink, attributes, interface

_COUNTERS = struct.Struct("=8Q")  # The first 8 counters of the kernel's rtnl_link_stats64.
DROPPED_IN, DROPPED_OUT = 6, 7
MOST_NAMED = 20  # Maximum number of interfaces whose dropped packets are listed.
# Words in the drop reasons of forwarders that do not count as strays: control messages, whose
# loss is expected, frames that the shaped queue has already counted, and a bridge's copies.
NO_STRAYS = (
    "probe", "failure", "link state", "in use", "another mac", os.strerror(errno.ENOBUFS)
)  # fmt: skip


def dropped(kernel: Netlink, owner: str) -> Counter[str]:
    """Return the number of packets that each interface of a namespace has dropped so far.

    `owner` is the node of the namespace; it is added to interface names that do not contain it.
    """
    found: Counter[str] = Counter()
    for payload in kernel.dump(nl.RTM_GETLINK, interface(), "read the interfaces' counters"):
        link = dict(attributes(payload, LINK.size))
        if nl.IFLA_STATS64 not in link or _is_bridge(link.get(nl.IFLA_LINKINFO, b"")):
            continue
        name = link[nl.IFLA_IFNAME].rstrip(b"\0").decode()
        numbers = _COUNTERS.unpack_from(link[nl.IFLA_STATS64])
        where = name if "-" in name or not owner else f"{name} of {owner}"
        found[f"{where} in"] += numbers[DROPPED_IN]
        found[f"{where} out"] += numbers[DROPPED_OUT]
    return found


def _is_bridge(about: bytes) -> bool:
    """Return True for a bridge's IFLA_LINKINFO: a bridge drops broadcast frames by design."""
    return dict(attributes(about, 0)).get(nl.IFLA_INFO_KIND, b"").rstrip(b"\0") == b"bridge"


def of_packets(reasons: Mapping[str, int]) -> Counter[str]:
    """Return the packets that forwarders dropped unexpectedly, by drop reason.

    >>> full = "port refused the frame: No buffer space available"
    >>> of_packets({"TTL expired": 3, "answer to no probe": 9, full: 20})
    Counter({'forwarders: TTL expired': 3})
    """
    return Counter(
        {
            f"forwarders: {reason}": number
            for reason, number in reasons.items()
            if not any(word in reason for word in NO_STRAYS)
        }
    )


def since(first: Counter[str], last: Counter[str]) -> dict[str, int]:
    """Return the packets dropped between two readings by interface: the 20 largest and the rest.

    >>> since(Counter(a=5), Counter(a=5, b=2))
    {'b': 2}
    """
    found = (last - first).most_common()
    rest = sum(number for _, number in found[MOST_NAMED:])
    return dict(found[:MOST_NAMED]) | ({"elsewhere": rest} if rest else {})
