"""Ethernet frames without MAC addresses, as routers send and receive them.

A port has one cable, and the papers' headers address servers; the data plane adds MAC addresses.
"""

from __future__ import annotations

from typing import NamedTuple

ETH_IP = 0x0800
ETH_DCN = 0x88B5  # first local experimental ethertype of IEEE 802; the papers define none


class Frame(NamedTuple):
    """Ethertype and payload of an Ethernet frame; the payload may include padding."""

    ethertype: int
    data: bytes
