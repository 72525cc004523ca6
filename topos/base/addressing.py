"""IPv4 and MAC addresses by arithmetic: no server ever has to ask who has an address."""

from __future__ import annotations

from typing import Any, ClassVar

from topos.base.errors import PillarboxError, require
from topos.base.polymorphic import Number

NETWORK = 10 << 24  # 10.0.0.0/8
FIRST_HOST = NETWORK + 1  # 10.0.0.0 itself names the network
MOST_HOSTS = 2**24 - 2
# Locally administered, unicast; the last four octets hold the node, the second its port.
MAC_PREFIX = 0x02


class UidAddresses:
    """The address scheme of most networks: server ``uid`` has the uid-th address of 10.0.0.0/8.

    The paper's own scheme replaces `ipv4` and `server_of_ipv4` (DPillar's Fig. 5, the fat-tree's
    section 3.2). Both take a number or an array.
    """

    servers: int
    spec: Any
    ip_prefix_length: ClassVar[int] = 8

    def uid(self, server: Number) -> Number:
        """Return the paper's number of a server: the same, but where a network is partial."""
        return server

    def server_of_uid(self, uid: Number) -> Number:
        """Return the server with that uid."""
        return uid

    def check_addressable(self) -> None:
        """Refuse, in one sentence, a network with more servers than IPv4 addresses for them."""
        require(
            self.servers <= MOST_HOSTS,
            f"{self.spec} has {self.servers} servers, and 10.0.0.0/8 holds {MOST_HOSTS} addresses: "
            "it can be computed and simulated, not addressed",
        )

    def ipv4(self, server: Number) -> Number:
        """Return the server's IPv4 address as a 32-bit number."""
        self.check_addressable()
        return FIRST_HOST + self.uid(server)

    def server_of_ipv4(self, ipv4: Number) -> Number:
        """Return the server that has the address (not checked: see `server_of_ip`)."""
        return self.server_of_uid(ipv4 - FIRST_HOST)

    def switch_ipv4(self, switch: int) -> int:
        """Return the IPv4 address of a switch that routes: the first ones behind the servers'."""
        return FIRST_HOST + self.servers + switch

    def ip(self, server: int) -> str:
        """Return the server's IPv4 address as text."""
        return dotted_quad(self.ipv4(server))

    def server_of_ip(self, ip: str) -> int:
        """Return the server with that IPv4 address, or raise PillarboxError."""
        number = parse_dotted_quad(ip)
        # Several bit patterns can lead to one server's digits: only the server's own counts.
        server = self.server_of_ipv4(number) if number >= NETWORK else -1
        if 0 <= server < self.servers and self.ipv4(server) == number:
            return server
        raise PillarboxError(f"{ip} is not the address of a server of {self.spec}")

    def mac_number(self, node: Number, port: Number) -> Number:
        """Return the MAC address of a node's port as a 48-bit number."""
        return (MAC_PREFIX << 40) + port * (1 << 32) + node

    def mac(self, node: int, port: int) -> str:
        """Return the MAC address of a node's port as text."""
        octets = self.mac_number(node, port).to_bytes(6, "big")
        return ":".join(f"{octet:02x}" for octet in octets)


def dotted_quad(number: int) -> str:
    """Return a 32-bit number as a dotted IPv4 address.

    >>> dotted_quad(10 << 24 | 258)
    '10.0.1.2'
    """
    return ".".join(str(octet) for octet in int(number).to_bytes(4, "big"))


def parse_dotted_quad(text: str) -> int:
    """Return the 32-bit number of a dotted IPv4 address, or raise PillarboxError."""
    octets = text.split(".")
    require(
        len(octets) == 4 and all(o.isascii() and o.isdecimal() and int(o) < 256 for o in octets),
        f"{text!r} is not an IPv4 address such as 10.0.0.1",
    )
    return int.from_bytes(bytes(int(octet) for octet in octets), "big")
