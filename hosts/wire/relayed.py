"""What a data plane needs to know of a relayed packet, to do the same with those like it.

By what such packets are known, and what a relay changes in their header. A header says it of itself
(`relay_key` and `change` of `DcnHeader` and `BCubeHeader`), a router puts it into its answers
(`hosts.base.actions`), and the tables of a live server (`hosts.live.table`) look packets up by it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from hosts.wire.header import ByHeader
from hosts.wire.ipv4 import FlowKey

# No tuples: equal numbers of two kinds are different keys.


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
    """An IP packet in a tunnel: the tunnel's direction and end, and the packet's destination.

    Neither source counts: next hops do not depend on them.
    """

    direction: int
    outer_destination: int
    destination: int


RelayKey: TypeAlias = ByHeader | ByDestination | ByFlow | ByTunnel


class Change(NamedTuple):
    """What a relay changes in a header, beside what it counts at every hop.

    Parameters
    ----------
    becomes : ByHeader, optional
        Form and key fields of the header as it goes on, where they are others.
    counts : tuple of str
        What it counts this time only (`hosts.wire.header.Header.at_times`).
    """

    becomes: ByHeader | None = None
    counts: tuple[str, ...] = ()


HOP = Change()  # nothing else
