"""Declaration of a network's header for data planes, which repeat the actions of relays.

A `HeaderLayout` declares the fields of a header. This module adds the information for data planes:
the fields that form the lookup key, the counters that change at every hop, and the fields of a path
in the header. The eBPF program (`pillarbox.hosts.live.generated`), the forwarder's table
(`pillarbox.hosts.live.numbers`) and the Wireshark dissector are generated from the declaration, so
a new header is forwarded at full speed and is dissected like the others.

Headers are between Ethernet and IP under one ethertype (`pillarbox.hosts.wire.frame`). All begin
with the same four bytes (`pillarbox.hosts.wire.dcn.beginning`); the first byte, version and length,
distinguishes them. Each network defines the rest, which must include a checksum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pillarbox.hosts.wire.header_layout import CHECKSUM, Field, HeaderLayout
from pillarbox.topos.base.errors import require

WORD_BYTES = 4
MOST_BYTES = 60  # maximum header size in bytes: 15 words in the length field
MOST_KEY = 4  # maximum number of header fields in a lookup key
IP_VERSION = 4
# Names and sizes in bits of every header's first fields (`pillarbox.hosts.wire.dcn.beginning`).
BEGIN = [("version", 4), ("dhl", 4), ("protocol", 8), ("payload_length", 16)]


class Route(NamedTuple):
    """Names of the header fields that hold a source route (BCube).

    A hop is one byte that identifies the next server among a server's neighbours.
    """

    hops: str  # name of the first hop field; the other hops follow
    length: str  # name of the field with the number of hops
    taken: str  # name of the field with the number of completed hops


class Form:
    """One of a packet header's forms on the wire, such as DCell's with or without proxy.

    Attributes
    ----------
    first : int
        First byte of the header: version and length.
    key : tuple of Field
        Fields of the lookup key; if the header has a path, used after its last hop only.
    """

    def __init__(self, header: Header, name: str, layout: HeaderLayout, key: Sequence[str]) -> None:
        self.header, self.name, self.layout, self.size = header, name, layout, layout.size
        fields = {field.name: field for field in layout.fields}
        begin = [(field.name, field.bits) for field in layout.fields[:4]]
        for valid, requirement in (
            (name.isidentifier(), "has a name that C can have"),
            (layout.fields[0].constant != IP_VERSION, "has another version than IP's"),
            (begin == BEGIN, "begins with pillarbox.hosts.wire.dcn.beginning()"),
            (layout.size % WORD_BYTES == 0 and layout.size <= MOST_BYTES, "has 15 words at most"),
            (CHECKSUM in fields, f"has a {CHECKSUM}"),
            (0 < len(key) <= MOST_KEY, f"is looked up by 1 to {MOST_KEY} of its fields"),
            (
                all(fields[each].bits <= 32 for each in key),
                "is looked up by fields of up to 32 bits",
            ),
        ):
            require(valid, f"relays cannot forward the {layout.title}: every header {requirement}")
        self.first = (layout.fields[0].constant or 0) << 4 | (layout.fields[1].constant or 0)
        self.key = tuple(fields[each] for each in key)

    def __repr__(self) -> str:
        return self.name

    @property
    def hops(self) -> tuple[Field, ...]:
        """Hop fields of the source route in this header form; empty without a route."""
        route, fields = self.header.route, self.layout.fields
        if route is None:
            return ()
        names = [field.name for field in fields]
        first = names.index(route.hops)
        return fields[first : first + fields[names.index(route.length)].most]

    def template(self, values: Sequence[int]) -> int:
        """Return a header as one number: constants, these values of key fields, else zeros.

        >>> from pillarbox.hosts.wire.dcn import DCN
        >>> DCN.forms[1].template((5, 9)).to_bytes(24, "big").hex(" ", 4)
        '16000000 00000000 01000000 00000000 00000005 00000009'
        """
        key_values = dict(zip((field.name for field in self.key), values, strict=True))
        number = 0
        for _, field in self.layout.places():
            value = key_values.get(field.name, field.constant or 0)
            require(0 <= value <= field.most, str(field.refusal(value)))
            number = number << field.bits | value
        return number

    def by(self, port: int | None, *values: int) -> ByHeader:
        """Return the lookup key of packets with these key field values and ingress port."""
        return ByHeader(self, values, port)

    def by_hop(self, hop: int) -> ByHeader:
        """Return the lookup key of packets with this next hop in their path."""
        return ByHeader(self, (hop,), next_hop=True)


@dataclass(frozen=True, slots=True)
class ByHeader:
    """Lookup key of packets by header: form, values of the key fields, and ingress port.

    For headers with a path, `next_hop` distinguishes keys by next hop (True) from keys by
    destination at the end of the path (False).
    """

    form: Form
    values: tuple[int, ...]
    port: int | None = None  # ingress port of the packets; None for any port
    next_hop: bool = False


class Header:
    """A packet header format between Ethernet and IP, with one or two forms (sizes).

    Parameters
    ----------
    name : str
        Prefix of the fields' names in Wireshark.
    forms : mapping of str to Layout
        Layouts of the forms by name; a second form is one word longer.
    parse : callable
        Function that splits a packet into header (with the payload's `protocol`) and payload, or
        raises WireError.
    key : sequence of str
        Names of the fields on which a relay's decision depends, including all fields that it may
        change; a form need not have all of them.
    every_hop : mapping of str to int
        Increments that every relay adds to fields, by name. A decremented field is never less than
        1 on the wire.
    at_times : mapping of str to int
        Increments that a relay adds only if its decision requires them.
    route : Route, optional
        Path in the header. If present, relays look up only the next hop.
    """

    def __init__(
        self,
        name: str,
        forms: Mapping[str, HeaderLayout],
        parse: Callable[[bytes], tuple[Any, bytes]],
        *,
        key: Sequence[str] = ("destination",),
        every_hop: Mapping[str, int],
        at_times: Mapping[str, int] | None = None,
        route: Route | None = None,
    ) -> None:
        self.name, self.parse, self.route = name, parse, route
        self.every_hop, self.at_times = dict(every_hop), dict(at_times or {})
        self.forms = tuple(
            Form(self, form, layout, [k for k in key if _has_field(layout, k)])
            for form, layout in forms.items()
        )
        self.version = self.forms[0].first >> 4
        sizes = sorted(form.size for form in self.forms)
        require(
            (len(sizes) == 1 or sizes[1:] == [sizes[0] + WORD_BYTES])
            and all(form.first >> 4 == self.version for form in self.forms),
            f"the {name} header has one form, or two of one version that differ by one word",
        )


def _has_field(layout: HeaderLayout, name: str) -> bool:
    """Return True if the header layout has a field with this name."""
    return any(field.name == name for field in layout.fields)
