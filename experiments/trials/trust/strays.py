"""Packets that were dropped elsewhere than in the shaped queues.

A full queue drops, and TCP is made for it. A packet that vanishes elsewhere, because a bridge's
port, a TUN or a forwarder did not keep up, is lost by the emulation and not by the network that is
emulated. Each place that counts is asked at the beginning and at the end: every interface
(``h3-eth0 in``, ``dcn0 of h3 out``), each processor's own queue, and the forwarders, whose reasons
they give themselves.
"""

from __future__ import annotations

import errno
import os
import struct
from collections import Counter
from collections.abc import Mapping

from experiments.linux.netlink import (
    IFLA_IFNAME,
    IFLA_INFO_KIND,
    IFLA_LINKINFO,
    RTM_GETLINK,
    Netlink,
    attributes,
    interface,
)

IFLA_STATS64 = 23
_COUNTERS = struct.Struct("=8Q")  # the first of rtnl_link_stats64
DROPPED_IN, DROPPED_OUT = 6, 7
_LINK_BYTES = 16
MOST_NAMED = 20
# What reasons of drops say that are no strays: forwarders' own messages, which go astray in good
# order, frames that found the shaped queue full, which has counted them, and a bridge's copies.
NO_STRAYS = (
    "probe", "failure", "link state", "in use", "another mac", os.strerror(errno.ENOBUFS)
)  # fmt: skip


def dropped(kernel: Netlink, owner: str) -> Counter[str]:
    """Return how many packets each interface of a namespace has dropped so far.

    `owner` is the node whose namespace it is; it is named where an interface's name does not.
    """
    found: Counter[str] = Counter()
    for payload in kernel.dump(RTM_GETLINK, interface(), "read the interfaces' counters"):
        link = dict(attributes(payload, _LINK_BYTES))
        if IFLA_STATS64 not in link or _is_bridge(link.get(IFLA_LINKINFO, b"")):
            continue
        name = link[IFLA_IFNAME].rstrip(b"\0").decode()
        numbers = _COUNTERS.unpack_from(link[IFLA_STATS64])
        where = name if "-" in name or not owner else f"{name} of {owner}"
        found[f"{where} in"] += numbers[DROPPED_IN]
        found[f"{where} out"] += numbers[DROPPED_OUT]
    return found


def _is_bridge(about: bytes) -> bool:
    """Tell whether an interface is a bridge: broadcast frames come to it and are not read."""
    return dict(attributes(about, 0)).get(IFLA_INFO_KIND, b"").rstrip(b"\0") == b"bridge"


def of_packets(reasons: Mapping[str, int]) -> Counter[str]:
    """Return the packets that forwarders dropped, but for what is no stray.

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
    """Return what was dropped in between, the most first; small ones beyond twenty as one.

    >>> since(Counter(a=5), Counter(a=5, b=2))
    {'b': 2}
    """
    found = (last - first).most_common()
    rest = sum(number for _, number in found[MOST_NAMED:])
    return dict(found[:MOST_NAMED]) | ({"elsewhere": rest} if rest else {})
