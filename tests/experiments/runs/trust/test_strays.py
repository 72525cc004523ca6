"""Packets that interfaces and forwarders dropped, by place."""

from __future__ import annotations

import struct
from collections import Counter
from typing import Any

from pillarbox.experiments.runs.trust import strays
from pillarbox.hosts.linux import netlink_numbers as nl


class Kernel:
    """Answers with these interfaces: name, dropped in, dropped out, kind."""

    def __init__(self, *interfaces: tuple[str, int, int, str]) -> None:
        self.interfaces = interfaces

    def dump(self, *_: Any) -> list[bytes]:
        return [self._link(*one) for one in self.interfaces]

    @staticmethod
    def _link(name: str, dropped_in: int, dropped_out: int, kind: str) -> bytes:
        def attribute(number: int, content: bytes) -> bytes:
            padding = bytes(-len(content) % 4)
            return struct.pack("=HH", len(content) + 4, number) + content + padding

        counters = struct.pack("=8Q", 1, 2, 3, 4, 5, 6, dropped_in, dropped_out)
        link = bytes(16) + attribute(nl.IFLA_IFNAME, name.encode() + b"\0")
        if kind:
            content = attribute(nl.IFLA_INFO_KIND, kind.encode() + b"\0")
            link += attribute(nl.IFLA_LINKINFO, content)
        return link + attribute(nl.IFLA_STATS64, counters)


def test_drops_of_interfaces_by_place_and_none_of_bridges() -> None:
    kernel: Any = Kernel(
        ("s0-eth1", 7, 8, ""),
        ("dcn0", 0, 9, "tun"),
        ("lo", 1, 0, "bridged"),
        ("s0", 5, 5, "bridge"),
    )
    found = strays.dropped(kernel, "0.1")
    assert found == Counter(
        {"s0-eth1 in": 7, "s0-eth1 out": 8, "dcn0 of 0.1 out": 9, "lo of 0.1 in": 1}
    )
    assert strays.dropped(kernel, "")["dcn0 out"] == 9


def test_strays_beyond_twenty_places_are_added_up() -> None:
    last = Counter({f"place {n}": 100 - n for n in range(23)})
    found = strays.since(Counter({"place 0": 1}), last)
    assert len(found) == 21
    assert found["elsewhere"] == 80 + 79 + 78
    assert found["place 0"] == 99
    assert "elsewhere" not in strays.since(Counter(), Counter(dict([*last.items()][:20])))


def test_numbers_of_the_kernel() -> None:
    # linux/if_link.h: IFLA_STATS64, and rx_dropped and tx_dropped in rtnl_link_stats64
    assert (nl.IFLA_STATS64, strays.DROPPED_IN, strays.DROPPED_OUT) == (23, 6, 7)


def test_messages_of_forwarders_are_no_strays() -> None:
    reasons = {"TTL expired": 3, "answer to no probe": 9, "link state": 1, "in use": 2}
    assert strays.of_packets(reasons) == {"forwarders: TTL expired": 3}
    assert strays.of_packets({}) == {}
