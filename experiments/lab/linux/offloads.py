"""Hardware offloads of an interface, by ethtool's names (ethtool(8), linux/ethtool.h)."""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence

from pillarbox.hosts.linux.calls import ethtool

ETHTOOL_GSTRINGS, ETHTOOL_GFEATURES, ETHTOOL_SFEATURES = 0x1B, 0x3A, 0x3B
ETH_SS_FEATURES, ETH_GSTRING_LEN, MOST_FEATURES = 4, 32, 128
TUNNEL_SEGMENTS = "tx-udp_tnl-segmentation"  # segmentation of super-packets inside VXLAN


def is_on(interface: str, feature: str) -> bool:
    """Return True if an offload feature of a network interface is switched on."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        names = _names(any_socket, interface)
        if feature not in names:
            return False
        blocks = _blocks(names)
        asked = struct.pack("=II", ETHTOOL_GFEATURES, blocks)
        answer = ethtool(any_socket, interface, asked + bytes(16 * blocks))
    block, bit = divmod(names.index(feature), 32)
    # 32-bit words of ethtool's feature block: available, requested, active, never changed.
    active: int = struct.unpack_from("=I", answer, len(asked) + 16 * block + 8)[0]
    return bool(active >> bit & 1)


def switch_off(interface: str, features: Sequence[str]) -> None:
    """Switch off offload features of an interface of this namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        names = _names(any_socket, interface)
        chosen = sum(1 << names.index(feature) for feature in features if feature in names)
        blocks = _blocks(names)
        words = [chosen >> 32 * block & 0xFFFFFFFF for block in range(blocks)]
        pairs = [number for valid in words for number in (valid, 0)]
        wanted = struct.pack(f"=II{len(pairs)}I", ETHTOOL_SFEATURES, blocks, *pairs)
        ethtool(any_socket, interface, wanted)


def _names(any_socket: socket.socket, interface: str) -> list[str]:
    """Return the kernel's names of offload features, in the order of their ethtool bits."""
    # 0: names of all offload features
    asked = struct.pack("=III", ETHTOOL_GSTRINGS, ETH_SS_FEATURES, 0)
    answer = ethtool(any_socket, interface, asked + bytes(MOST_FEATURES * ETH_GSTRING_LEN))
    count = struct.unpack_from("=I", answer, 8)[0]
    return [
        answer[at : at + ETH_GSTRING_LEN].rstrip(b"\0").decode()
        for at in range(len(asked), len(asked) + count * ETH_GSTRING_LEN, ETH_GSTRING_LEN)
    ]


def _blocks(names: Sequence[str]) -> int:
    return -(-len(names) // 32)
