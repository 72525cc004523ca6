"""Interface of a data plane's table: look-up keys of packets, and actions on them.

- `install_flow`: packets of this server's applications, looked up by flow, get a header and leave
  by a port (`Push`),
- `install_relay`: received frames, looked up by port and the fields that the router reads
  (`hosts.wire.relay_keys`), are forwarded (`RelayDecision`, `Unwrap`) or delivered to the
  applications (`DeliverDecision`).

There are two tables: that of the kernel (kernel_table.py) and that of the forwarder itself
(python_table.py). `Decisions` fills either.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeAlias

from hosts.wire.ipv4 import FlowKey
from hosts.wire.relay_keys import HOP, HeaderChange, RelayKey

# -- actions -------------------------------------------------------------------------------------


class Push(NamedTuple):
    """Cached action: send an application's packet to a neighbour, with a header prepended.

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


class Unwrap(NamedTuple):
    """Cached action: remove a packet's tunnel header and forward it with TTL decremented."""

    port: int
    peer: bytes


class DeliverDecision(NamedTuple):
    """Cached action: deliver a packet, without its header, to this server's applications."""


Action: TypeAlias = RelayDecision | Unwrap | DeliverDecision


class DecisionUse(NamedTuple):
    """Packets and bytes handled by a cached action; a super-packet (GSO) counts as its segments."""

    packets: int
    bytes: int


class Usage(NamedTuple):
    """Cached actions that were used, with their packets and bytes."""

    flows: dict[FlowKey, DecisionUse]
    relays: dict[RelayKey, DecisionUse]


class DecisionTable(Protocol):
    """Table of cached actions of a data plane (eBPF or Python)."""

    counted: int  # entries read by the last call of flows_used or relays_used

    def install_flow(self, flow: FlowKey, push: Push) -> None:
        """Install the cached action for packets of a local application's flow."""

    def install_relay(self, key: RelayKey, action: Action) -> None:
        """Install the cached action for received frames with a look-up key."""

    def forget(self, flow: FlowKey) -> None:
        """Remove the cached actions for one flow, if actions are cached by flow."""

    def take_back(self, key: FlowKey | RelayKey) -> None:
        """Remove the cached action with a look-up key, if it exists."""

    def flush(self, *, relays: bool = True) -> None:
        """Remove all cached actions, or only those for packets of local applications."""

    def counters(self) -> dict[str, int]:
        """Return the data plane's packet counts by treatment."""

    def repeated(self) -> int:
        """Return the number of packets forwarded without the router."""

    def rest(self, rests: bool) -> None:
        """Enable or disable the notification about the next forwarded packet."""

    def flows_used(self) -> dict[FlowKey, DecisionUse]:
        """Return the counts of decisions on this server's own packets since the last call."""

    def relays_used(self) -> dict[RelayKey, DecisionUse]:
        """Return the counts of decisions on relayed packets since the last call."""
