"""Actions of a router: send a frame, deliver a packet, or drop it with a reason.

An action that is valid for later packets too has the key of those packets (`repeat`, `key`). The
data plane then caches the action and repeats it without calling the router, until the router's
`generation` changes or the action's `ground` is in the router's `gone` set. Actions without a key
(messages, broadcasts, time-dependent decisions) are valid once.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple, TypeAlias

from hosts.wire.frame import Frame
from hosts.wire.ipv4 import FlowKey
from hosts.wire.relay_keys import HOP, HeaderChange, RelayKey

# Peer of a `Send` to all servers that the port reaches (broadcast MAC address).
EVERYONE = -1


class Pushed(NamedTuple):
    """Repeat key of a packet from this server: add the same header to all packets of the flow."""

    flow: FlowKey
    header: bytes = b""  # empty if IP packets are sent without an added header
    ground: Hashable = None  # the state on which the action depends; None means its hop


class Relayed(NamedTuple):
    """Repeat key of a relayed frame: apply the same header change to all frames with this key.

    The frame may also be a message that precedes such frames and sets up their path.
    """

    key: RelayKey
    change: HeaderChange = HOP
    ground: Hashable = None


class Unwrapped(NamedTuple):
    """Repeat key of a tunnelled packet: remove the outer header and decrement the inner TTL."""

    key: RelayKey


class Send(NamedTuple):
    """Send the frame out of a port, to the MAC address of a peer (or of EVERYONE)."""

    port: int
    peer: int
    frame: Frame
    repeat: Pushed | Relayed | Unwrapped | None = None


class Deliver(NamedTuple):
    """Deliver the IPv4 packet, and later packets with the same key, to local applications."""

    packet: bytes
    key: RelayKey | None = None


class Drop(NamedTuple):
    """Drop the packet and count the reason; `packet` is for tracers."""

    reason: str
    packet: bytes = b""


Action: TypeAlias = Send | Deliver | Drop
