"""A header of a network's own, declared for those who repeat what its relays do.

A `Layout` says how a header looks. What a data plane must know beside it stands here: by which
fields packets are looked up, what every hop counts, and where a path stands that is part of it.
From that come the kernel's program (`hosts.live.generated`), the forwarder's own table
(`hosts.live.numbers`), and the Wireshark dissector; so a new header is forwarded at the planes'
speed, and seen, like the others.

Headers stand between Ethernet and IP under one ethertype (`hosts.wire.frame`). They begin with the
same four bytes (`hosts.wire.dcn.beginning`); the first, version and length, tells them apart. The
rest is a network's own, but for a checksum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from hosts.wire.layout import CHECKSUM, Field, Layout
from topos.base.errors import require

WORD_BYTES = 4
MOST_BYTES = 60  # the length field counts words, up to 15
MOST_KEY = 4  # fields
IP_VERSION = 4
# The fields with which every header begins, and their bits (`hosts.wire.dcn.beginning`).
BEGIN = [("version", 4), ("dhl", 4), ("protocol", 8), ("payload_length", 16)]


class Route(NamedTuple):
    """A path in the header, by the names of its fields.

    A hop is a byte, which names the next server among a server's neighbours.
    """

    hops: str  # the first of them; the others follow
    length: str
    taken: str  # hops so far: counted at every hop


class Form:
    """One form that a header has on the wire.

    Attributes
    ----------
    first : int
        Its first byte.
    key : tuple of Field
        What packets are looked up by; behind the last hop of a path, where there is one.
    """

    def __init__(self, header: Header, name: str, layout: Layout, key: Sequence[str]) -> None:
        self.header, self.name, self.layout, self.size = header, name, layout, layout.size
        fields = {field.name: field for field in layout.fields}
        begin = [(field.name, field.bits) for field in layout.fields[:4]]
        for right, what in (
            (name.isidentifier(), "has a name that C can have"),
            (layout.fields[0].constant != IP_VERSION, "has another version than IP's"),
            (begin == BEGIN, "begins with hosts.wire.dcn.beginning()"),
            (layout.size % WORD_BYTES == 0 and layout.size <= MOST_BYTES, "has 15 words at most"),
            (CHECKSUM in fields, f"has a {CHECKSUM}"),
            (0 < len(key) <= MOST_KEY, f"is looked up by 1 to {MOST_KEY} of its fields"),
            (all(fields[one].bits <= 32 for one in key), "is looked up by fields of up to 32 bits"),
        ):
            require(right, f"the {layout.title} cannot be relayed: such a header {what}")
        self.first = (layout.fields[0].constant or 0) << 4 | (layout.fields[1].constant or 0)
        self.key = tuple(fields[one] for one in key)

    def __repr__(self) -> str:
        return self.name

    @property
    def hops(self) -> tuple[Field, ...]:
        """The fields of its path, where it has one."""
        route, fields = self.header.route, self.layout.fields
        if route is None:
            return ()
        names = [field.name for field in fields]
        first = names.index(route.hops)
        return fields[first : first + fields[names.index(route.length)].most]

    def template(self, values: Sequence[int]) -> int:
        """Return the header as one number: what it has constant, these key fields, and zeros.

        >>> from hosts.wire.dcn import DCN
        >>> DCN.forms[1].template((5, 9)).to_bytes(24, "big").hex(" ", 4)
        '16000000 00000000 01000000 00000000 00000005 00000009'
        """
        wanted = dict(zip((field.name for field in self.key), values, strict=True))
        number = 0
        for _, field in self.layout.places():
            value = wanted.get(field.name, field.constant or 0)
            require(0 <= value <= field.most, str(field.refusal(value)))
            number = number << field.bits | value
        return number

    def by(self, port: int | None, *values: int) -> ByHeader:
        """Return by what packets are known whose key fields have these values."""
        return ByHeader(self, values, port)

    def by_hop(self, hop: int) -> ByHeader:
        """Return by what packets are known whose path has that hop next."""
        return ByHeader(self, (hop,), next_hop=True)


@dataclass(frozen=True, slots=True)
class ByHeader:
    """A header of a network's own: its form, what its key fields say, the port by which it came.

    Where it has a path, `next_hop` tells apart its next hop, and its key fields at the path's end.
    """

    form: Form
    values: tuple[int, ...]
    port: int | None = None  # None where it makes no difference
    next_hop: bool = False


class Header:
    """A header, in one or two forms.

    Parameters
    ----------
    name : str
        What its fields are found by in Wireshark.
    forms : mapping of str to Layout
        Where there are two, one is a word longer.
    parse : callable
        Returns header (whose `protocol` says what it carries) and payload of a packet, or raises
        WireError.
    key : sequence of str
        The fields on which a relay's decision depends, and all that it may set to other values; a
        form need not have all of them.
    every_hop : mapping of str to int
        What a relay adds to which fields. A field that is counted down is never less than 1 on
        the wire.
    at_times : mapping of str to int
        The same, where a relay's decision says so.
    route : Route, optional
        A path in the header. Then a relay looks nothing up but the next hop.
    """

    def __init__(
        self,
        name: str,
        forms: Mapping[str, Layout],
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
            Form(self, one, layout, [k for k in key if _has(layout, k)])
            for one, layout in forms.items()
        )
        self.version = self.forms[0].first >> 4
        sizes = sorted(form.size for form in self.forms)
        require(
            (len(sizes) == 1 or sizes[1:] == [sizes[0] + WORD_BYTES])
            and all(form.first >> 4 == self.version for form in self.forms),
            f"the {name} header has one form, or two of one version that differ by one word",
        )


def _has(layout: Layout, name: str) -> bool:
    return any(field.name == name for field in layout.fields)
