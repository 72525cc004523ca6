"""Actions of a router: send a frame, deliver a packet, or drop it with a reason.

An action that is valid for later packets too has the key of those packets (`repeat`, `key`). The
data plane then caches the action and repeats it without calling the router, until the router's
`generation` changes or the action's `ground` is in the router's `gone` set. Actions without a key
(messages, broadcasts, time-dependent decisions) are valid once.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple, TypeAlias

from pillarbox.hosts.wire.frame import Frame
from pillarbox.hosts.wire.ipv4 import FlowKey
from pillarbox.hosts.wire.relay_keys import HOP, HeaderChange, RelayKey

# Value of `Send.peer` for the broadcast MAC address: all servers that the port reaches.
EVERYONE = -1


class OtherPath(NamedTuple):
    """Another path of a sprayed flow: its first hop, and the header that the data plane adds."""

    port: int
    peer: int
    header: bytes


class Pushed(NamedTuple):
    """Cache key of a local flow's action: the data plane adds one header to all packets.

    A sprayed flow has `others`: its next packets take these paths, in turn with the action's own.
    """

    flow: FlowKey
    header: bytes = b""  # DCN or BCube header; empty if IP packets are sent without an added header
    ground: Hashable = None  # state whose change invalidates the cached action (None: its next hop)
    others: tuple[OtherPath, ...] = ()


class Relayed(NamedTuple):
    """Cache key of an action that relays frames: all frames with this key are changed alike.

    The frame may also be a message that precedes such frames and sets up their path.
    """

    key: RelayKey
    change: HeaderChange = HOP
    ground: Hashable = None


class Unwrapped(NamedTuple):
    """Cache key of an action that removes a packet's outer IP header at a DPillar tunnel's end."""

    key: RelayKey


class Send(NamedTuple):
    """Router action: send a frame out of a port, to the MAC address of a peer (or of EVERYONE)."""

    port: int
    peer: int
    frame: Frame
    repeat: Pushed | Relayed | Unwrapped | None = None


class Deliver(NamedTuple):
    """Router action: deliver an IPv4 packet, and later ones with the same key, to applications."""

    packet: bytes
    key: RelayKey | None = None


class Drop(NamedTuple):
    """Router action: drop a packet and count the drop reason; `packet` is for `pillarbox trace`.

    `unreached` is True if no path to the packet's destination is known: its sender is told.
    """

    reason: str
    packet: bytes = b""
    unreached: bool = False


Action: TypeAlias = Send | Deliver | Drop
