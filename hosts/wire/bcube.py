"""The BCube header (Guo 2009, sections 7.1-7.2): 36 bytes with the complete path of the packet.

The source chooses the path. The addresses of two neighbours differ in one digit, so one byte (NHA)
identifies the next hop: DP, the number of the digit (2 bits: k <= 3), and DV, its new value (6
bits: n <= 64). A relay looks the NHA up in a table of 256 neighbours and changes two fields of the
packet: the next hop index (NHI), which counts completed hops, and the checksum (see `advance`). The
path length limits the number of hops, so relays do not decrement TTL.

The paper specifies the size, but not the order of fields. Here the first 20 bytes are those of
DCell's header (`pillarbox.hosts.wire.dcn`) with version 2 and without retries and proxy. Then
follow the path length, the NHI and eight NHAs; the rest of the 36 bytes is reserved. Reserved bytes
and unused NHAs after the end of the path are zero.
"""

from __future__ import annotations

from typing import NamedTuple

from pillarbox.hosts.wire.dcn import first_fields
from pillarbox.hosts.wire.header import ByHeader, Header, Route
from pillarbox.hosts.wire.header_layout import Field, HeaderLayout, WireError
from pillarbox.hosts.wire.route_layout import RouteFields, RouteLayout

VERSION = 2
SIZE = 36
MOST_HOPS = 8
MOST_LEVEL = 3
MOST_VALUE = 63

_VALUE_BITS = 6


class Hop(NamedTuple):
    """One hop of a BCube path: level of the address digit that changes (DP), new value (DV).

    >>> Hop(level=1, value=3).nha, Hop.of(67)
    (67, Hop(level=1, value=3))
    """

    level: int
    value: int

    @property
    def nha(self) -> int:
        """The BCube hop encoded as one byte, as in the next hop array (NHA)."""
        if not (0 <= self.level <= MOST_LEVEL and 0 <= self.value <= MOST_VALUE):
            raise WireError(
                "bad path",
                f"a hop has a level up to {MOST_LEVEL} and a value up to {MOST_VALUE}, "
                f"not {self.level} and {self.value}",
            )
        return self.level << _VALUE_BITS | self.value

    @classmethod
    def of(cls, nha: int) -> Hop:
        """Return the BCube hop that a byte of the next hop array (NHA) encodes."""
        return HOPS[nha]


HOPS = tuple(Hop(nha >> _VALUE_BITS, nha & MOST_VALUE) for nha in range(256))

_MEANING = {nha: f"digit {level} becomes {value}" for nha, (level, value) in enumerate(HOPS)}
LAYOUT = HeaderLayout(
    [
        *first_fields(VERSION, SIZE, retry=0, network="BCube"),
        Field("path_length", 8, most=MOST_HOPS, reason="bad path"),
        Field("next_hop", 8, "NHI", most=MOST_HOPS, reason="bad path"),
        Field("reserved", 16, constant=0),
        *(
            Field(f"nha_{i}", 8, f"NHA {i}", meaning=_MEANING, reason="bad path")
            for i in range(MOST_HOPS)
        ),
        Field("reserved", 32, constant=0),
    ],
    title="BCube header",
)
ROUTE = RouteLayout(LAYOUT, MOST_HOPS)
advance = ROUTE.advance


class BCubeHeader(NamedTuple):
    """BCube header of one packet.

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
        |                      Source BCube Address                     |
        +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
        |                   Destination BCube Address                   |
        +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
        |  Path Length  |      NHI      |            Reserved           |
        +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
        |     NHA 0     |     NHA 1     |     NHA 2     |     NHA 3     |
        +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
        |     NHA 4     |     NHA 5     |     NHA 6     |     NHA 7     |
        +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
        |                            Reserved                           |
        +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+

    >>> header = BCubeHeader(source=0, destination=5, protocol=4, path=(Hop(0, 1), Hop(1, 1)))
    >>> packet = header.pack(b"hello")
    >>> len(packet), BCubeHeader.parse(packet) == (header, b"hello")
    (41, True)
    >>> BCubeHeader.parse(advance(packet)) == (header.advanced(), b"hello")
    True
    """

    source: int
    destination: int
    protocol: int
    path: tuple[Hop, ...]
    next_hop: int = 0
    identification: int = 0
    ttl: int = 64

    def pack(self, payload: bytes) -> bytes:
        """Return the packet: this BCube header followed by the payload."""
        source, destination, protocol, path, *others = self
        nhas = tuple([hop.nha for hop in path])
        return ROUTE.pack(RouteFields(source, destination, protocol, nhas, *others), payload)

    @classmethod
    def parse(cls, data: bytes) -> tuple[BCubeHeader, bytes]:
        """Return the BCube header and the payload of a packet, or raise WireError."""
        (source, destination, protocol, nhas, *others), payload = ROUTE.parse(data)
        path = tuple([HOPS[nha] for nha in nhas])
        return cls(source, destination, protocol, path, *others), payload

    def advanced(self) -> BCubeHeader:
        """Return the BCube header with the next hop index incremented."""
        return self._replace(next_hop=self.next_hop + 1)

    def relay_key(self) -> ByHeader:
        """Return the key of packets with the same forwarding action: next hop or destination."""
        (form,) = BCUBE.forms
        if self.next_hop == len(self.path):
            return form.by(None, self.destination)
        return form.by_hop(self.path[self.next_hop].nha)


BCUBE = Header(
    "bcube",
    {"bcube": LAYOUT},
    BCubeHeader.parse,
    every_hop={"next_hop": 1},
    route=Route("nha_0", "path_length", "next_hop"),
)
