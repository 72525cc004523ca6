"""IPv4 and MAC addresses computed from node numbers, so that no server needs ARP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, TypeAlias

from pillarbox.topos.base.errors import PillarboxError, require
from pillarbox.topos.base.polymorphic import Number

NETWORK = 10 << 24  # 10.0.0.0/8
FIRST_HOST = NETWORK + 1  # IPv4 address of server 0; 10.0.0.0 is the network address
MOST_HOSTS = 2**24 - 2  # number of host addresses in 10.0.0.0/8
# Addresses of servers' ports (RFC 1918): port p of all servers has the p-th /16 of 172.16.0.0/12.
PORT_NETWORK = 172 << 24 | 16 << 16
PORT_PREFIX_LENGTH = 12
MOST_PORTS = 16
MOST_PORT_HOSTS = 2**16 - 2  # number of servers' addresses in a port's /16
# First octet of a MAC address: locally administered, unicast.
# The second octet of a MAC address is the port, the last four are the node number.
MAC_PREFIX = 0x02


class ServerPort(NamedTuple):
    """A port of a server, which has an IPv4 address of its own in labs with port addresses."""

    server: int
    port: int


class End(NamedTuple):
    """An end of a packet: a server, and a port if the address is that of the port."""

    server: int
    port: int | None = None


# Ports of a packet's source and destination address; None for a server's own address.
EndPorts: TypeAlias = tuple[int | None, int | None]
NO_PORTS: EndPorts = (None, None)


class UidAddresses:
    """Default addresses of a network: server ``uid`` has the uid-th host address of 10.0.0.0/8.

    A network whose paper defines an address scheme overrides `ipv4` and `server_of_ipv4` (DPillar:
    Fig. 5; fat-tree: section 3.2). Both methods take a number or an array.
    """

    servers: int
    ports: int
    spec: Any
    ip_prefix_length: ClassVar[int] = 8

    def uid(self, server: Number) -> Number:
        """Return a server's uid, its number in the paper; it differs only in partial DCells."""
        return server

    def server_of_uid(self, uid: Number) -> Number:
        """Return the server whose number in the paper is `uid`."""
        return uid

    def check_addressable(self) -> None:
        """Raise PillarboxError if the network has more servers than 10.0.0.0/8 has addresses."""
        require(
            self.servers <= MOST_HOSTS,
            f"{self.spec} has {self.servers} servers, and 10.0.0.0/8 holds {MOST_HOSTS} addresses: "
            "it can be simulated, but has no IPv4 addresses",
        )

    def ipv4(self, server: Number) -> Number:
        """Return the server's IPv4 address as a 32-bit number."""
        self.check_addressable()
        return FIRST_HOST + self.uid(server)

    def server_of_ipv4(self, ipv4: Number) -> Number:
        """Return the server with this 32-bit IPv4 address, unchecked (`server_of_ip` checks it)."""
        return self.server_of_uid(ipv4 - FIRST_HOST)

    def switch_ipv4(self, switch: int) -> int:
        """Return a routing switch's IPv4 address; these addresses follow the servers'."""
        return FIRST_HOST + self.servers + switch

    def ip(self, server: int) -> str:
        """Return the server's IPv4 address as text."""
        return dotted_quad(self.ipv4(server))

    def server_of_ip(self, ip: str) -> int:
        """Return the server with that IPv4 address, or raise PillarboxError."""
        number = parse_dotted_quad(ip)
        # Several IPv4 addresses can decode to the same server: accept only the one that `ipv4`
        # returns.
        server = self.server_of_ipv4(number) if number >= NETWORK else -1
        if 0 <= server < self.servers and self.ipv4(server) == number:
            return server
        raise PillarboxError(f"{ip} is not the address of a server of {self.spec}")

    def check_ports_addressable(self) -> None:
        """Raise PillarboxError if servers have one port, or ports have too few addresses."""
        require(
            self.ports > 1,
            f"a server of {self.spec} has one port: port addresses need several",
        )
        last = int(self.uid(self.servers - 1)) + 1
        require(
            self.ports <= MOST_PORTS and last <= MOST_PORT_HOSTS,
            f"{self.spec} has no addresses for its ports: they exist in networks of at most "
            f"{MOST_PORT_HOSTS} servers with at most {MOST_PORTS} ports",
        )

    def port_ipv4(self, server: int, port: int) -> int:
        """Return the IPv4 address of a server's port as a 32-bit number, unchecked."""
        return PORT_NETWORK + (port << 16) + 1 + int(self.uid(server))

    def port_of_ipv4(self, ipv4: int) -> ServerPort | None:
        """Return the server's port with this IPv4 address, None for all other addresses."""
        port, host = divmod(ipv4 - PORT_NETWORK, 1 << 16)
        if not 0 <= port < min(self.ports, MOST_PORTS) or not 1 <= host <= MOST_PORT_HOSTS:
            return None
        server = int(self.server_of_uid(host - 1))
        if 0 <= server < self.servers and self.port_ipv4(server, port) == ipv4:
            return ServerPort(server, port)
        return None

    def end_ipv4(self, end: End) -> int:
        """Return the IPv4 address of a server or of one of its ports, as a 32-bit number."""
        server, port = end
        return int(self.ipv4(server)) if port is None else self.port_ipv4(server, port)

    def end_ip(self, end: End) -> str:
        """Return the IPv4 address of a server or of one of its ports, as text."""
        return dotted_quad(self.end_ipv4(end))

    def mac_number(self, node: Number, port: Number) -> Number:
        """Return the MAC address of a node's port as a 48-bit number."""
        return (MAC_PREFIX << 40) + port * (1 << 32) + node

    def mac(self, node: int, port: int) -> str:
        """Return the MAC address of a node's port as text."""
        octets = self.mac_number(node, port).to_bytes(6, "big")
        return ":".join(f"{octet:02x}" for octet in octets)


class NumberedServers:
    """Addresses of a network whose servers have numbers only: an address is one number."""

    servers: int

    def digits(self, server: Number) -> tuple[Number, ...]:
        """Return the server's number, which is its address."""
        return (server,)

    def server_at(self, digits: Sequence[Number]) -> Any:
        """Return the server with this number."""
        return digits[0]

    def radices(self) -> tuple[int, ...]:
        """Return the number of servers: an address is one number."""
        return (self.servers,)


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
