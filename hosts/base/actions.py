"""What a router answers: a frame to send, a packet to deliver, or a reason for a drop.

An answer that holds for the packets that follow says so, and what makes a packet like the one that
was answered: then a data plane repeats it without asking again, until the router's `generation`
changes, or its ground is among those that are `gone`. Everything else (messages, broadcasts, what
depends on the moment) says nothing.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple, TypeAlias

from hosts.wire.frame import Frame
from hosts.wire.ipv4 import FlowKey
from hosts.wire.relayed import HOP, Change, RelayKey

# As the peer of a `Send`: every server that this port reaches, by a broadcast MAC address.
EVERYONE = -1


class Pushed(NamedTuple):
    """The frame is a packet of this server's own behind a header; so are all of its flow."""

    flow: FlowKey
    header: bytes = b""  # none where IP packets go as they are
    ground: Hashable = None  # what the answer follows from; where none is named, its hop


class Relayed(NamedTuple):
    """The frame is the one that came, with a header that was changed like that.

    Or it is a message ahead of such frames, and sets up their way.
    """

    key: RelayKey
    change: Change = HOP
    ground: Hashable = None


class Unwrapped(NamedTuple):
    """The frame is the packet that came in a tunnel, its own TTL lowered."""

    key: RelayKey


class Send(NamedTuple):
    """Put the frame on that port, to that peer's MAC address (or EVERYONE's)."""

    port: int
    peer: int
    frame: Frame
    repeat: Pushed | Relayed | Unwrapped | None = None


class Deliver(NamedTuple):
    """Hand the IPv4 packet to the server's own applications; so all that come with that key."""

    packet: bytes
    key: RelayKey | None = None


class Drop(NamedTuple):
    """Forget the packet; the reason is counted. `packet` tells tracers what was lost."""

    reason: str
    packet: bytes = b""


Action: TypeAlias = Send | Deliver | Drop
