"""The source-route header: 40 bytes with the complete path of the packet, for every network.

Packets of port addresses (`pillarbox.hosts.base.pinned_paths`) carry it. A hop is one byte: the
index of the next server among the sender's links, in the order of their ports and, at a port, of
the servers (`pillarbox.hosts.base.pinned_paths.links_in_order`). The first 20 bytes are those of
DCell's header (`pillarbox.hosts.wire.dcn`) with version 5 and without retries and proxy, as in
BCube's header. A relay looks the next hop up and changes two fields: the next hop index, which
counts completed hops, and the checksum. The path length limits the number of hops, so relays do not
decrement TTL.

Not in any paper. Hops after the end of the path are zero.
"""

from __future__ import annotations

from typing import NamedTuple

from pillarbox.hosts.wire.dcn import first_fields
from pillarbox.hosts.wire.header import ByHeader, Header, Route
from pillarbox.hosts.wire.header_layout import Field, HeaderLayout
from pillarbox.hosts.wire.route_layout import RouteFields, RouteLayout

VERSION = 5  # 3 is the example's in docs/extending-routing.md, 4 is IP's
SIZE = 40
MOST_HOPS = 16
MOST_LINKS = 256  # number of links of a server that a hop's byte can distinguish

LAYOUT = HeaderLayout(
    [
        *first_fields(VERSION, SIZE, retry=0, network="DCN"),
        Field("path_length", 8, most=MOST_HOPS, reason="bad path"),
        Field("next_hop", 8, "Next Hop", most=MOST_HOPS, reason="bad path"),
        Field("reserved", 16, constant=0),
        *(Field(f"hop_{i}", 8, f"Hop {i}", reason="bad path") for i in range(MOST_HOPS)),
    ],
    title="source-route header",
)
ROUTE = RouteLayout(LAYOUT, MOST_HOPS)
advance = ROUTE.advance


class SourceRouteHeader(NamedTuple):
    """Source-route header of one packet.

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
        |  Path Length  |    Next Hop   |            Reserved           |
        +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
        |     Hop 0     |     Hop 1     |     Hop 2     |     Hop 3     |
        +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
        |     Hop 4     |     Hop 5     |     Hop 6     |     Hop 7     |
        +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
        |     Hop 8     |     Hop 9     |     Hop 10    |     Hop 11    |
        +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
        |     Hop 12    |     Hop 13    |     Hop 14    |     Hop 15    |
        +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+

    >>> header = SourceRouteHeader(source=0, destination=5, protocol=4, path=(3, 0, 6))
    >>> packet = header.pack(b"hello")
    >>> len(packet), SourceRouteHeader.parse(packet) == (header, b"hello")
    (45, True)
    >>> SourceRouteHeader.parse(advance(packet)) == (header._replace(next_hop=1), b"hello")
    True
    """

    source: int
    destination: int
    protocol: int
    path: tuple[int, ...]
    next_hop: int = 0
    identification: int = 0
    ttl: int = 64

    def pack(self, payload: bytes) -> bytes:
        """Return the packet: this source-route header followed by the payload."""
        return ROUTE.pack(RouteFields(*self), payload)

    @classmethod
    def parse(cls, data: bytes) -> tuple[SourceRouteHeader, bytes]:
        """Return the source-route header and the payload of a packet, or raise WireError."""
        fields, payload = ROUTE.parse(data)
        return cls(*fields), payload

    def relay_key(self) -> ByHeader:
        """Return the key of packets with the same forwarding action: next hop or destination."""
        (form,) = SOURCE_ROUTE.forms
        if self.next_hop == len(self.path):
            return form.by(None, self.destination)
        return form.by_hop(self.path[self.next_hop])


SOURCE_ROUTE = Header(
    "source_route",
    {"source_route": LAYOUT},
    SourceRouteHeader.parse,
    every_hop={"next_hop": 1},
    route=Route("hop_0", "path_length", "next_hop"),
)
