"""What a server's port takes and gives: an Ethernet frame without its addresses.

A port has one cable, and the paper's headers name servers themselves; MAC addresses are the
business of the data plane.
"""

from __future__ import annotations

from typing import NamedTuple

ETH_IP = 0x0800
ETH_DCN = 0x88B5  # IEEE 802's first ethertype for local experiments: the papers name none


class Frame(NamedTuple):
    """An ethertype, and the bytes that follow the Ethernet header (padding perhaps included)."""

    ethertype: int
    data: bytes
