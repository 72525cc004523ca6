"""What a data plane may repeat without asking the router again: what frames are known by, and what
is done to them.

- `install_flow`: packets of this server's applications, by their flow, get a header and leave by a
  port (`Push`),
- `install_relay`: frames that come in by a port, by what the router reads in them
  (`hosts.wire.relayed`), are sent on (`Relay`, `Unwrap`) or handed to the applications (`Deliver`).

Two tables do so: that of the kernel (kernel_table.py) and that of the forwarder itself
(python_table.py). `Decisions` fills either.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeAlias

from hosts.wire.ipv4 import FlowKey
from hosts.wire.relayed import HOP, Change, RelayKey

# -- what is done to them ------------------------------------------------------------------------


class Push(NamedTuple):
    """Send an application's packet to the neighbour with that MAC address, behind a header.

    The header is that of DCN or BCube, or the outer one of a tunnel, as the router has written it
    for any packet of the flow: length, identification and checksum are made to fit each packet.
    Without a header the packet goes as it is.
    """

    port: int
    peer: bytes
    header: bytes = b""


class Relay(NamedTuple):
    """Send a frame on: TTL is lowered, or BCube's next hop index raised, and what else changes."""

    port: int
    peer: bytes
    change: Change = HOP


class Unwrap(NamedTuple):
    """Take a packet out of its tunnel and send it on, its own TTL lowered."""

    port: int
    peer: bytes


class Deliver(NamedTuple):
    """Hand the packet, without its header, to this server's applications."""


Action: TypeAlias = Relay | Unwrap | Deliver


class Used(NamedTuple):
    """What a decision was used for; of a super-packet, all the packets into which it is cut."""

    packets: int
    bytes: int


class Usage(NamedTuple):
    """The decisions that were used, and how much."""

    flows: dict[FlowKey, Used]
    relays: dict[RelayKey, Used]


class Table(Protocol):
    """What `Decisions` asks of either."""

    counted: int  # entries that the last call of flows_used or relays_used has looked at

    def install_flow(self, flow: FlowKey, push: Push) -> None:
        """Carry out that decision for the packets of a flow of this server's applications."""

    def install_relay(self, key: RelayKey, action: Action) -> None:
        """Carry out that decision for the frames that have the key."""

    def forget(self, flow: FlowKey) -> None:
        """Take back the decisions about one flow, where they are by flow."""

    def take_back(self, key: FlowKey | RelayKey) -> None:
        """Take back one decision, if there is one."""

    def flush(self, *, relays: bool = True) -> None:
        """Take all decisions back, or only those about packets of this server's applications."""

    def counters(self) -> dict[str, int]:
        """Return how many packets were treated how."""

    def repeated(self) -> int:
        """Return how many packets were forwarded without the router."""

    def rest(self, rests: bool) -> None:
        """Let the forwarder know when anything is forwarded again, or no more."""

    def flows_used(self) -> dict[FlowKey, Used]:
        """Return what was used since this was last asked, of packets of this server's own."""

    def relays_used(self) -> dict[RelayKey, Used]:
        """Return the others."""
