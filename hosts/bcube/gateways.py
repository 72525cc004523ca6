"""Gateways to external networks (Guo 2009, section 5.3): servers with a link out of the BCube.

An aggregator replaces some of the mini-switches, and the servers below the aggregator become
gateways. The mapping from external prefixes to gateways is configured by hand, equally on all
servers.

The paper does not specify how flows are spread over gateways. Here every flow ranks the gateways of
its prefix by a hash of flow and gateway, and uses the first reachable gateway: flows spread evenly,
and when a gateway fails only the flows through that gateway move.
"""

from __future__ import annotations

import hashlib
import ipaddress
import struct
from collections.abc import Mapping, Sequence

from pillarbox.hosts.wire.ipv4 import FlowKey
from pillarbox.topos.base.digits import DigitNetwork
from pillarbox.topos.base.errors import PillarboxError, require

_RANKED = struct.Struct(">IIBHHI")


class Gateways:
    """Table of the gateway servers for each external IPv4 prefix.

    >>> from pillarbox.topos.bcube import BCube
    >>> gateways = Gateways(BCube(4, 1), {"0.0.0.0/0": [0, 5], "192.0.2.0/24": [7]})
    >>> gateways.serving(0xC0000201), gateways.serving(0x08080808)
    ((7,), (0, 5))
    """

    def __init__(self, bcube: DigitNetwork, servers_of: Mapping[str, Sequence[int]]) -> None:
        found = []
        for text, servers in servers_of.items():
            network = _parse_prefix(text)
            require(
                bool(servers),
                f"the external prefix {text} has no gateway: name at least one gateway server",
            )
            for server in servers:
                require(
                    0 <= server < bcube.servers,
                    f"gateway {server} of {text} is no server of {bcube.spec}: they are 0 to "
                    f"{bcube.servers - 1}",
                )
            found.append((int(network.netmask), int(network.network_address), tuple(servers)))
        # Prefixes sorted by length, longest first (longest prefix match).
        self._prefixes = sorted(found, reverse=True)

    def serving(self, address: int) -> tuple[int, ...]:
        """Return the gateway servers of an external address's longest matching prefix, else ()."""
        for mask, network, servers in self._prefixes:
            if address & mask == network:
                return servers
        return ()


def ranked(flow: FlowKey, gateways: Sequence[int]) -> list[int]:
    """Return the gateways in a flow's order of preference (highest random weight hashing).

    >>> flows = [FlowKey(1, 2, 17, port, 53) for port in range(1000)]
    >>> sum(ranked(flow, [0, 5])[0] == 5 for flow in flows)
    510
    """

    def weight(gateway: int) -> bytes:
        return hashlib.blake2b(_RANKED.pack(*flow, gateway), digest_size=8).digest()

    return sorted(gateways, key=weight, reverse=True)


def _parse_prefix(text: str) -> ipaddress.IPv4Network:
    try:
        return ipaddress.IPv4Network(text)
    except ValueError as error:
        raise PillarboxError(f"{text!r} is no prefix such as 192.0.2.0/24: {error}") from error
