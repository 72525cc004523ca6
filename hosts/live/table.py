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
    """Send an application's packet to a neighbour, with a header prepended.

    The header is that of DCN or BCube, or the outer one of a tunnel, as the router has written it
    for any packet of the flow: length, identification and checksum are set for each packet. If the
    header is empty, the packet is sent unchanged.
    """

    port: int
    peer: bytes
    header: bytes = b""


class RelayDecision(NamedTuple):
    """Forward a frame: decrement its TTL, or advance BCube's hop index, and apply `change`."""

    port: int
    peer: bytes
    change: HeaderChange = HOP


class Unwrap(NamedTuple):
    """Remove a packet's tunnel header and forward the packet, with its own TTL decremented."""

    port: int
    peer: bytes


class DeliverDecision(NamedTuple):
    """Deliver a packet, without its header, to this server's applications."""


Action: TypeAlias = RelayDecision | Unwrap | DeliverDecision


class DecisionUse(NamedTuple):
    """Packets and bytes that a decision was used for; a super-packet counts as its segments."""

    packets: int
    bytes: int


class Usage(NamedTuple):
    """The decisions that were used, with their packets and bytes."""

    flows: dict[FlowKey, DecisionUse]
    relays: dict[RelayKey, DecisionUse]


class DecisionTable(Protocol):
    """The operations of a data plane's table that `Decisions` uses."""

    counted: int  # entries read by the last call of flows_used or relays_used

    def install_flow(self, flow: FlowKey, push: Push) -> None:
        """Install a decision on the packets of a flow of this server's applications."""

    def install_relay(self, key: RelayKey, action: Action) -> None:
        """Install a decision on the received frames with a look-up key."""

    def forget(self, flow: FlowKey) -> None:
        """Withdraw the decisions on one flow, if decisions are by flow."""

    def take_back(self, key: FlowKey | RelayKey) -> None:
        """Withdraw the decision with a look-up key, if it exists."""

    def flush(self, *, relays: bool = True) -> None:
        """Withdraw all decisions, or only those on packets of this server's applications."""

    def counters(self) -> dict[str, int]:
        """Return packet counts by treatment."""

    def repeated(self) -> int:
        """Return the number of packets forwarded without the router."""

    def rest(self, rests: bool) -> None:
        """Enable or disable the notification about the next forwarded packet."""

    def flows_used(self) -> dict[FlowKey, DecisionUse]:
        """Return the counts of decisions on this server's own packets since the last call."""

    def relays_used(self) -> dict[RelayKey, DecisionUse]:
        """Return the counts of decisions on relayed packets since the last call."""
