"""Headers with a source route: a path length, the number of completed hops, and hops of one byte.

They begin with the 20 bytes of `pillarbox.hosts.wire.dcn.first_fields`. Hops after the end of the
path are zero.
"""

from __future__ import annotations

from typing import NamedTuple

from pillarbox.hosts.wire.header_layout import (
    CHECKSUM,
    HeaderLayout,
    WireError,
    payload_behind,
    with_changed_byte,
)


class RouteFields(NamedTuple):
    """Values of a header with a source route; a hop is a byte."""

    source: int
    destination: int
    protocol: int
    path: tuple[int, ...]
    next_hop: int  # number of completed hops
    identification: int
    ttl: int


class RouteLayout:
    """Layout of a header with a source route of up to `most` hops.

    The fields `path_length`, `next_hop` and the hops follow the first 20 bytes in this order.
    """

    def __init__(self, layout: HeaderLayout, most: int) -> None:
        self._layout, self._most, self._no_hops = layout, most, (0,) * most
        self._checksum = layout.byte(CHECKSUM)
        self._length, self._next = layout.byte("path_length"), layout.byte("next_hop")

    def pack(self, fields: RouteFields, payload: bytes) -> bytes:
        """Return the packet: a header with these values, followed by the payload."""
        source, destination, protocol, path, next_hop, identification, ttl = fields
        hops = len(path)
        if not 0 <= next_hop <= hops <= self._most:
            raise self._path_error(next_hop, hops)
        first = protocol, len(payload), identification, ttl, source, destination
        return self._layout.pack(*first, hops, next_hop, *path, *self._no_hops[hops:]) + payload

    def parse(self, data: bytes) -> tuple[RouteFields, bytes]:
        """Return the header's values and the payload of a packet, or raise WireError."""
        protocol, length, identification, ttl, source, destination, hops, next_hop, *path = (
            self._layout.unpack(data)
        )
        if next_hop > hops or any(path[hops:]):
            raise self._path_error(next_hop, hops)
        taken = tuple(path[:hops])
        fields = RouteFields(source, destination, protocol, taken, next_hop, identification, ttl)
        return fields, payload_behind(data, self._layout.size, length)

    def advance(self, data: bytes) -> bytes:
        """Return a verified packet with the next hop index in its header incremented.

        The result equals that of `parse` and `pack`, but is computed faster.
        """
        layout = self._layout
        if len(data) < layout.size:
            raise WireError(
                "truncated", f"the {layout.title} has {layout.size} bytes, not {len(data)}"
            )
        if data[self._next] >= data[self._length]:
            raise self._path_error(data[self._next] + 1, data[self._length])
        return with_changed_byte(data, self._next, 1, self._checksum)

    def _path_error(self, taken: int, hops: int) -> WireError:
        """Return the error for an invalid path length or next hop index."""
        return WireError(
            "bad path",
            f"{taken} of {hops} hops are taken: a path has at most {self._most}, followed by zeros",
        )
