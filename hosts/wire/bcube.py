"""The BCube header (Guo 2009, sections 7.1-7.2): 36 bytes, which hold the packet's whole path.

The source decides the path. Two neighbours differ in one digit of their addresses, so one byte
(NHA) names the next hop: DP, which digit changes (2 bits: k <= 3), and DV, its new value (6 bits:
n <= 64). A relay looks the byte up in a table of 256 neighbours, and changes two things in the
packet: the next hop index (NHI), which counts the hops taken, and the checksum. `advance` does
just that. The path ends the packet, so no relay has to count TTL down.

The paper fixes the size, not the order. Here the first 20 bytes are DCell's (`hosts.wire.dcn`)
with version 2 and neither retries nor proxy; path length and NHI stand before the eight NHAs, and
what remains of 36 bytes is reserved. Reserved bytes and the NHAs behind the path's end are zero.
"""

from __future__ import annotations

from typing import NamedTuple

from hosts.wire.dcn import first_fields
from hosts.wire.header import ByHeader, Header, Route
from hosts.wire.layout import CHECKSUM, Field, Layout, WireError, payload_behind, raised

VERSION = 2
SIZE = 36
MOST_HOPS = 8
MOST_LEVEL = 3
MOST_VALUE = 63

_VALUE_BITS = 6
_NO_NHAS = (0,) * MOST_HOPS


class Hop(NamedTuple):
    """One hop: the digit that changes (DP), and its new value (DV).

    >>> Hop(level=1, value=3).nha, Hop.of(67)
    (67, Hop(level=1, value=3))
    """

    level: int
    value: int

    @property
    def nha(self) -> int:
        """The hop as the header holds it, in one byte."""
        if not (0 <= self.level <= MOST_LEVEL and 0 <= self.value <= MOST_VALUE):
            raise WireError(
                "bad path",
                f"a hop has a level up to {MOST_LEVEL} and a value up to {MOST_VALUE}, "
                f"not {self.level} and {self.value}",
            )
        return self.level << _VALUE_BITS | self.value

    @classmethod
    def of(cls, nha: int) -> Hop:
        """Return the hop that a byte names."""
        return HOPS[nha]


HOPS = tuple(Hop(nha >> _VALUE_BITS, nha & MOST_VALUE) for nha in range(256))

_MEANING = {nha: f"digit {level} becomes {value}" for nha, (level, value) in enumerate(HOPS)}
LAYOUT = Layout(
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
_CHECKSUM = LAYOUT.byte(CHECKSUM)
_LENGTH = LAYOUT.byte("path_length")
_NEXT = LAYOUT.byte("next_hop")


class BCubeHeader(NamedTuple):
    """The header of one packet.

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
        """Return the packet: this header in front of the payload."""
        hops = len(self.path)
        if not 0 <= self.next_hop <= hops <= MOST_HOPS:
            raise _bad_path(self.next_hop, hops)
        header = LAYOUT.pack(
            self.protocol,
            len(payload),
            self.identification,
            self.ttl,
            self.source,
            self.destination,
            hops,
            self.next_hop,
            *[hop.nha for hop in self.path],
            *_NO_NHAS[hops:],
        )
        return header + payload

    @classmethod
    def parse(cls, data: bytes) -> tuple[BCubeHeader, bytes]:
        """Return header and payload of a packet, or raise WireError."""
        protocol, length, identification, ttl, source, destination, hops, next_hop, *nhas = (
            LAYOUT.unpack(data)
        )
        if next_hop > hops or any(nhas[hops:]):
            raise _bad_path(next_hop, hops)
        path = tuple([HOPS[nha] for nha in nhas[:hops]])
        header = cls(source, destination, protocol, path, next_hop, identification, ttl)
        return header, payload_behind(data, SIZE, length)

    def advanced(self) -> BCubeHeader:
        """Return the header as the next hop is to see it."""
        return self._replace(next_hop=self.next_hop + 1)

    def relay_key(self) -> ByHeader:
        """Return by what packets are known that are relayed, or delivered, like this one."""
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


def advance(data: bytes) -> bytes:
    """Return the packet as the next hop is to see it, with the header taken to be verified.

    The bytes are those of `BCubeHeader.advanced`, only sooner.
    """
    if len(data) < SIZE:
        raise WireError("truncated", f"the BCube header has {SIZE} bytes, not {len(data)}")
    if data[_NEXT] >= data[_LENGTH]:
        raise _bad_path(data[_NEXT] + 1, data[_LENGTH])
    return raised(data, _NEXT, 1, _CHECKSUM)


def _bad_path(taken: int, hops: int) -> WireError:
    return WireError(
        "bad path",
        f"{taken} of {hops} hops are taken: a path has at most {MOST_HOPS}, and zeros behind it",
    )
