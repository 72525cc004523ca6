"""The DCN header of DCell (Guo 2008, section 7.1, Fig. 10), DCell's network-layer header.

The header is between Ethernet and IP (section 7.2: layer 2.5) or in front of a control message, and
addresses servers by 32-bit uids. It holds the fields of fault-tolerant routing: the remaining
number of local reroutes (Retry), the remaining number of hops (TTL), and the proxy server, if any.
Identification has 32 bits (16 in IP), since the links are fast.

An address with top bit 0 is the uid of a server. An address with top bit 1 is multicast: three bits
of scope, which is the level of the DCell that receives the packet, and 28 bits of group. The only
defined group is broadcast, all ones.

The paper assigns no numbers to versions and protocols. Version 1 is this header; version 2 is
BCube's, which begins with the same 20 bytes (`pillarbox.hosts.wire.bcube`). DHL counts words of 4
bytes, like IP's IHL. Flags other than PF are undefined and rejected.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from pillarbox.hosts.wire.header import ByHeader, Header
from pillarbox.hosts.wire.header_layout import (
    CHECKSUM,
    Field,
    HeaderLayout,
    WireError,
    payload_behind,
    value_texts,
)
from pillarbox.hosts.wire.relay_keys import HeaderChange

VERSION = 1
FIRST_MESSAGE, MESSAGE_MASK = 0xE0, 0xF0  # protocol numbers of control messages: 0xE0 to 0xEF
PROXY_FLAG = 0b0001  # proxy flag (PF) of the DCN header: bit 3 of its four flags, as in the paper
MOST_UID = 2**31 - 1

_MULTICAST = 1 << 31
_SCOPE_SHIFT = 28
_ALL_GROUPS = (1 << _SCOPE_SHIFT) - 1
_MOST_SCOPE = 0b111


class Protocol(IntEnum):
    """Protocol numbers in DCN headers: IPv4 packet (as for IP in IP), or a kind of message.

    The numbers of messages are unassigned in IP as well, so that IPv4 headers can use them.
    RETURNED is an IPv4 packet that a relay sends back to its source because the next hop is down.
    Like a message, it is always handled by a router, not by the data plane alone.
    """

    IPV4 = 4
    HEARTBEAT = 0xE0
    LINK_STATE = 0xE1
    PROBE = 0xE2
    PROBE_RESPONSE = 0xE3
    PATH_FAILURE = 0xE4
    UNREACHABLE = 0xE5
    PATH_PROBE = 0xE6
    CABLE_CUT = 0xE7
    RETURNED = 0xE8


def beginning(version: int, size: int) -> list[Field]:
    """Return the fields of the first four bytes of every header between Ethernet and IP."""
    return [
        Field("version", 4, constant=version, reason="bad version"),
        Field("dhl", 4, "DHL", constant=size // 4, reason="bad length"),
        Field("protocol", 8, meaning=value_texts(Protocol)),
        Field("payload_length", 16, reason="bad length"),
    ]


def first_fields(
    version: int, size: int, *, retry: int | None = None, flags: int = 0, network: str = "DCN"
) -> list[Field]:
    """Return the fields of the first 20 bytes, which DCell and BCube headers share."""
    return [
        *beginning(version, size),
        Field("identification", 32),
        Field("retry", 4, constant=retry),
        Field("flags", 4, constant=flags, meaning={PROXY_FLAG: "proxy"}),
        Field("ttl", 8, "TTL"),
        Field(CHECKSUM, 16, "Header Checksum"),
        Field("source", 32, f"Source {network} Address", most=MOST_UID),
        Field("destination", 32, f"Destination {network} Address"),
    ]


PLAIN = HeaderLayout(first_fields(VERSION, 20), title="DCN header")
PROXIED = HeaderLayout(
    [
        *first_fields(VERSION, 24, flags=PROXY_FLAG),
        Field("proxy", 32, "Proxy DCN Address", most=MOST_UID),
    ],
    title="DCN header with proxy",
)


class DcnHeader(NamedTuple):
    """DCN header of one packet; without a proxy, PF is 0 and the last word is omitted.

    ::

         0                   1                   2                   3
         0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
        +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
        |Version|  DHL  |    Protocol   |         Payload Length        |
        +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
        |                         Identification                        |
        +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
        | Retry | Flags |      TTL      |        Header Checksum        |
        +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
        |                       Source DCN Address                      |
        +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
        |                    Destination DCN Address                    |
        +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
        |                       Proxy DCN Address                       |
        +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+

    >>> header = DcnHeader(source=3, destination=17, protocol=Protocol.IPV4, proxy=9)
    >>> packet = header.pack(b"hello")
    >>> len(packet), DcnHeader.parse(packet) == (header, b"hello")
    (29, True)
    """

    source: int
    destination: int
    protocol: int
    identification: int = 0
    retry: int = 5
    ttl: int = 64
    proxy: int | None = None

    def pack(self, payload: bytes) -> bytes:
        """Return the packet: this DCN header followed by the payload."""
        source, destination, protocol, identification, retry, ttl, proxy = self
        values = (protocol, len(payload), identification, retry, ttl, source, destination)
        if proxy is None:
            return PLAIN.pack(*values) + payload
        return PROXIED.pack(*values, proxy) + payload

    @classmethod
    def parse(cls, data: bytes) -> tuple[DcnHeader, bytes]:
        """Return the DCN header and the payload of a packet, or raise WireError."""
        layout = PROXIED if data and data[0] & 0xF == PROXIED.size // 4 else PLAIN
        protocol, length, identification, retry, ttl, source, destination, *proxy = layout.unpack(
            data
        )
        header = cls(source, destination, protocol, identification, retry, ttl, *proxy)
        return header, payload_behind(data, layout.size, length)

    def relay_key(self, port: int | None = None) -> ByHeader:
        """Return the key of packets with the same forwarding action, for an ingress port."""
        plain, proxied = DCN.forms
        if self.proxy is None:
            return plain.by(port, self.destination)
        return proxied.by(port, self.destination, self.proxy)

    def change(self, after: DcnHeader) -> HeaderChange:
        """Return the change from this received header to the forwarded header `after`."""
        becomes = after.relay_key() if after.proxy != self.proxy else None
        return HeaderChange(becomes, ("retry",) if after.retry < self.retry else ())


DCN = Header(
    "dcn",
    {"dcn": PLAIN, "proxied": PROXIED},
    DcnHeader.parse,
    key=("destination", "proxy"),
    every_hop={"ttl": -1},
    at_times={"retry": -1},
)


def broadcast(scope: int) -> int:
    """Return the multicast address of all servers of the sender's DCell of level `scope`.

    >>> hex(broadcast(1))
    '0x9fffffff'
    """
    if not 0 <= scope <= _MOST_SCOPE:
        raise WireError("bad field", f"the scope of a multicast is from 0 to 7, not {scope}")
    return _MULTICAST | scope << _SCOPE_SHIFT | _ALL_GROUPS


def is_multicast(address: int) -> bool:
    """Return True if a DCN address is a multicast address."""
    return bool(address & _MULTICAST)


def scope_of(address: int) -> int:
    """Return the scope of a multicast address: the level of the receiving DCell.

    >>> scope_of(broadcast(2))
    2
    """
    if not is_multicast(address):
        raise WireError("bad field", f"{address} is the address of a server, it has no scope")
    return address >> _SCOPE_SHIFT & _MOST_SCOPE
