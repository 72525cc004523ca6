"""What a data plane needs to know of a relayed packet, to do the same with those like it.

By what such packets are known, and what a relay changes in their header. A header says it of itself
(`relay_key` and `change` of `DcnHeader` and `BCubeHeader`), a router puts it into its answers
(`hosts.base.actions`), and the tables of a live server (`hosts.live.table`) look packets up by it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypeAlias

from hosts.wire.ipv4 import FlowKey

# No tuples: equal numbers of two kinds are different keys.


@dataclass(frozen=True, slots=True)
class ByDcn:
    """A DCN header: where to, over which proxy, and the port by which it came."""

    destination: int
    proxy: int | None
    port: int


@dataclass(frozen=True, slots=True)
class ByHop:
    """A BCube header within its path: the byte that names the next hop."""

    nha: int


@dataclass(frozen=True, slots=True)
class ByEnd:
    """A BCube header at the end of its path: where to."""

    destination: int


@dataclass(frozen=True, slots=True)
class ByDestination:
    """A plain IP packet: its address, and the port by which it came."""

    destination: int
    port: int


@dataclass(frozen=True, slots=True)
class ByFlow:
    """A plain IP packet where each flow has its own way (`by_flow`), and the port by which it came.

    The two kinds of plain IP exclude one another.
    """

    flow: FlowKey
    port: int


@dataclass(frozen=True, slots=True)
class ByTunnel:
    """An IP packet within another: the addresses of both as they are, NIC bit included."""

    outer_source: int
    outer_destination: int
    source: int
    destination: int


RelayKey: TypeAlias = ByDcn | ByHop | ByEnd | ByDestination | ByFlow | ByTunnel


class Proxy(Enum):
    """What becomes of the proxy in a packet's header, other than a new one."""

    KEEP = 0
    CLEAR = 2


class Change(NamedTuple):
    """What a relay changes in a header, beside what it counts at every hop (TTL, or the index).

    `proxy` (a uid sets it) and `rerouted` (one retry less) are for DCN headers.
    """

    proxy: Proxy | int = Proxy.KEEP
    rerouted: bool = False


HOP = Change()  # nothing else
