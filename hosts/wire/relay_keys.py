"""Lookup keys and header changes with which a data plane repeats a relay's actions.

Headers compute keys and changes (`relay_key` and `change` of `DcnHeader` and `BCubeHeader`),
routers add them to their actions (`pillarbox.hosts.base.actions`), and the tables of a live server
(`pillarbox.hosts.live.table`) use the keys to look packets up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from pillarbox.hosts.wire.header import ByHeader
from pillarbox.hosts.wire.ipv4 import FlowKey

# Lookup keys are dataclasses, not tuples, so that keys of different kinds never equal.


@dataclass(frozen=True, slots=True)
class ByDestination:
    """Lookup key of plain IP packets by destination address and ingress port."""

    destination: int
    port: int


@dataclass(frozen=True, slots=True)
class ByFlow:
    """Lookup key of plain IP packets by flow and ingress port, for routers with `by_flow`.

    A network uses either this key or `ByDestination`.
    """

    flow: FlowKey
    port: int


@dataclass(frozen=True, slots=True)
class ByTunnel:
    """Lookup key of tunnelled packets: direction, tunnel destination and inner destination.

    The outer and inner source are not part of the key, since next hops do not depend on them.
    """

    direction: int
    outer_destination: int
    destination: int


RelayKey: TypeAlias = ByHeader | ByDestination | ByFlow | ByTunnel


class HeaderChange(NamedTuple):
    """Changes of a header by a relay, in addition to the counters of every hop.

    Attributes
    ----------
    becomes : ByHeader, optional
        Form and key fields of the forwarded header, if they differ.
    counts : tuple of str
        Names of fields that this relay also counts (`pillarbox.hosts.wire.header.Header.at_times`).
    """

    becomes: ByHeader | None = None
    counts: tuple[str, ...] = ()


HOP = HeaderChange()  # only the fields that change at every hop are changed
