"""What a router answers: a frame to send, a packet to deliver, or a reason for a drop."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from hosts.wire.frame import Frame

# As the peer of a `Send`: every server that this port reaches, by a broadcast MAC address.
EVERYONE = -1


class Send(NamedTuple):
    """Put the frame on that port, to that peer's MAC address (or EVERYONE's)."""

    port: int
    peer: int
    frame: Frame


class Deliver(NamedTuple):
    """Hand the IPv4 packet to the server's own applications."""

    packet: bytes


class Drop(NamedTuple):
    """Forget the packet; the reason is counted. `packet` tells tracers what was lost."""

    reason: str
    packet: bytes = b""


Action: TypeAlias = Send | Deliver | Drop
