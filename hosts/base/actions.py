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

# Peer of a `Send` to all servers that a port reaches (broadcast MAC address).
EVERYONE = -1


class Pushed(NamedTuple):
    """Repeat key for a local flow: the data plane adds the same header to all of its packets."""

    flow: FlowKey
    header: bytes = b""  # DCN or BCube header; empty if IP packets are sent without an added header
    ground: Hashable = None  # state whose change invalidates the action; None means the next hop


class Relayed(NamedTuple):
    """Repeat key of a relayed frame: the data plane changes all frames with this key alike.

    The frame may also be a message that precedes such frames and sets up their path.
    """

    key: RelayKey
    change: HeaderChange = HOP
    ground: Hashable = None


class Unwrapped(NamedTuple):
    """Repeat key of a packet leaving a DPillar tunnel: its outer IP header is removed."""

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
    """Router action: drop a packet and count the drop reason; `packet` is for `pillarbox trace`."""

    reason: str
    packet: bytes = b""


Action: TypeAlias = Send | Deliver | Drop
