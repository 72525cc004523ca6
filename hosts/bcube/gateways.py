"""Gateways to external networks (Guo 2009, section 5.3): which server leads out of the BCube.

An aggregator takes the place of some mini-switches, and the servers below it become gateways. The
mapping from external addresses to gateways is configured by hand, the same for all servers.

The paper leaves open how flows are spread. Here every flow ranks the gateways of its prefix by a
hash of its own and theirs, and uses the first that can be reached: flows spread evenly, and when
a gateway fails only its own flows move.
"""

from __future__ import annotations

import hashlib
import ipaddress
import struct
from collections.abc import Mapping, Sequence

from hosts.wire.ipv4 import FlowKey
from topos.base.errors import PillarboxError, require
from topos.bcube import BCube

_RANKED = struct.Struct(">IIBHHI")


class Gateways:
    """The gateway servers of each external prefix.

    >>> gateways = Gateways(BCube(4, 1), {"0.0.0.0/0": [0, 5], "192.0.2.0/24": [7]})
    >>> gateways.serving(0xC0000201), gateways.serving(0x08080808)
    ((7,), (0, 5))
    """

    def __init__(self, bcube: BCube, servers_of: Mapping[str, Sequence[int]]) -> None:
        found = []
        for text, servers in servers_of.items():
            network = _parse_prefix(text)
            require(bool(servers), f"the prefix {text} has no gateway: name at least one server")
            for server in servers:
                require(
                    0 <= server < bcube.servers,
                    f"gateway {server} of {text} is no server of {bcube.spec}: they are 0 to "
                    f"{bcube.servers - 1}",
                )
            found.append((int(network.netmask), int(network.network_address), tuple(servers)))
        # The longest prefix has the greatest mask.
        self._prefixes = sorted(found, reverse=True)

    def serving(self, address: int) -> tuple[int, ...]:
        """Return the gateways of the longest prefix that holds an address; none if none does."""
        for mask, network, servers in self._prefixes:
            if address & mask == network:
                return servers
        return ()


def ranked(flow: FlowKey, gateways: Sequence[int]) -> list[int]:
    """Return the gateways in the order in which a flow prefers them (highest random weight).

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
