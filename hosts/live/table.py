"""Interface of a data plane's table: lookup keys of packets, and actions on them.

- `install_flow`: packets of this server's applications, looked up by flow, get a header and leave
  by a port (`PushDecision`); those of a sprayed flow have several such decisions in turn,
- `install_relay`: received frames, looked up by port and the fields that the router reads
  (`pillarbox.hosts.wire.relay_keys`), are forwarded (`RelayDecision`, `UnwrapDecision`) or
  delivered to the applications (`DeliverDecision`).

There are two tables: that of the kernel (kernel_table.py) and that of the forwarder itself
(python_table.py). `Decisions` fills either.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeAlias

from pillarbox.hosts.wire.ipv4 import FlowKey
from pillarbox.hosts.wire.relay_keys import HOP, HeaderChange, RelayKey

# -- actions -------------------------------------------------------------------------------------


class PushDecision(NamedTuple):
    """Cached action: send a local application's packet to a neighbour, with a header prepended.

    The header is that of DCN or BCube, or the outer one of a tunnel, as the router has written it
    for any packet of the flow: length, identification and checksum are set for each packet. If the
    header is empty, the packet is sent unchanged.
    """

    port: int
    peer: bytes
    header: bytes = b""


class RelayDecision(NamedTuple):
    """Cached action: forward a frame with `change` and a lower TTL (or the next BCube hop)."""

    port: int
    peer: bytes
    change: HeaderChange = HOP


class UnwrapDecision(NamedTuple):
    """Cached action: remove a packet's tunnel header and forward it with TTL decremented."""

    port: int
    peer: bytes


class DeliverDecision(NamedTuple):
    """Cached action: deliver a packet, without its header, to this server's applications."""


Action: TypeAlias = RelayDecision | UnwrapDecision | DeliverDecision


class DecisionUse(NamedTuple):
    """Packets and bytes handled by a cached action; a super-packet (GSO) counts as its segments."""

    packets: int
    bytes: int


class TableUsage(NamedTuple):
    """Cached actions used since the last report, each with its packet and byte counts."""

    flows: dict[FlowKey, DecisionUse]
    relays: dict[RelayKey, DecisionUse]


class DecisionTable(Protocol):
    """Table of cached actions of a data plane (eBPF or Python)."""

    counted: int  # number of entries that the last call of flows_used or relays_used has read

    def install_flow(
        self, flow: FlowKey, push: PushDecision, others: Sequence[PushDecision] = ()
    ) -> None:
        """Install the cached action for packets of a local application's flow.

        With `others`, the flow is sprayed: its packets get each of these actions and the first one
        in turn, beginning with `others`, since the router has just carried out the first one.
        """

    def install_relay(self, key: RelayKey, action: Action) -> None:
        """Install the cached action for received frames with a lookup key."""

    def forget_flow(self, flow: FlowKey) -> None:
        """Remove the cached actions for one flow, if the router decides by flow."""

    def remove_decision(self, key: FlowKey | RelayKey) -> None:
        """Remove the cached action with a lookup key, if it exists."""

    def flush(self, *, relays: bool = True) -> None:
        """Remove all cached actions, or only those for packets of local applications."""

    def counters(self) -> dict[str, int]:
        """Return the data plane's packet counts by treatment."""

    def forwarded_packets(self) -> int:
        """Return the number of packets that the data plane forwarded without the router."""

    def set_rest(self, rests: bool) -> None:
        """Enable or disable the data plane's notification about the next forwarded packet."""

    def flows_used(self) -> dict[FlowKey, DecisionUse]:
        """Return counts since the last call of cached actions for this server's own packets."""

    def relays_used(self) -> dict[RelayKey, DecisionUse]:
        """Return counts since the last call of cached actions for relayed packets."""
