"""Headers as integers, for a table in Python: the declaration of a header in few operations.

A header of 20 to 60 bytes is one integer in Python. Validating it, building its lookup key and
changing its fields then take one mask, comparison or addition each, whatever header it is.
"""

from __future__ import annotations

from typing import NamedTuple

from pillarbox.hosts.wire.dcn import Protocol
from pillarbox.hosts.wire.header import ByHeader, Form, Route
from pillarbox.hosts.wire.header_layout import CHECKSUM, checksum_of
from pillarbox.hosts.wire.relay_keys import HeaderChange

WORST = 0xFFFF  # checksum value that Pillarbox never writes, as it equals 0 (RFC 1624, section 3)
NEXT_HOP, NO_PORT = -2, -1  # special port numbers in lookup keys: key by next hop, any port

Key = tuple[int, int, int]  # lookup key: header's first byte, port, header's key bits


class NumericHeaderForm:
    """A packet header form, with masks and shifts that process headers as integers."""

    def __init__(self, form: Form) -> None:
        self.form, self.first, self.size = form, form.first, form.size
        bits = 8 * form.size
        self._shifts = {f.name: bits - at - f.bits for at, f in form.layout.places()}
        self._masks = {f.name: (1 << f.bits) - 1 for f in form.layout.fields}
        # Fixed header bits of an application's packet: constants, upper bits of limited fields.
        self._fixed = self._right = 0
        self._limits: list[tuple[int, int, int]] = []
        for at, field in form.layout.places():
            shift = bits - at - field.bits
            constant = int(Protocol.IPV4) if field.name == "protocol" else field.constant
            if constant is not None:
                self._fixed |= (1 << field.bits) - 1 << shift
                self._right |= constant << shift
            elif field.most & field.most + 1:
                self._limits.append((shift, (1 << field.bits) - 1, field.most))
            else:
                self._fixed |= (1 << field.bits) - 1 - field.most << shift
        self._constants = sum(
            (1 << f.bits) - 1 << bits - at - f.bits
            for at, f in form.layout.places()
            if f.constant is not None
        )
        self._key = sum(self._masks[f.name] << self._shifts[f.name] for f in form.key)
        self._checksum = self._shifts[CHECKSUM]
        self._no_checksum = (1 << bits) - 1 - (WORST << self._checksum)
        self._number = self._shifts.get("identification", 0)
        self._most_number = self._masks.get("identification", 0)
        self._length = self._shifts["payload_length"]
        own = WORST << self._length | self._most_number << self._number
        self._no_numbers = self._no_checksum & ~own
        self._route = self._route_shifts(form.header.route) if form.header.route else None
        self._hops = len(form.hops)
        self._counts = [self._counter_step(n, step) for n, step in form.header.every_hop.items()]

    def _route_shifts(self, route: Route) -> tuple[int, int, int]:
        return self._shifts[route.hops], self._shifts[route.length], self._shifts[route.taken]

    def _counter_step(self, name: str, step: int) -> tuple[int, int, int]:
        return self._shifts[name], self._masks[name], step

    # -- packets ---------------------------------------------------------------------------------

    def key_of(self, number: int, port: int) -> Key | None:
        """Return the lookup key of a received packet's header, None if the header is invalid."""
        if (
            number & self._fixed != self._right
            or number % WORST
            or number >> self._checksum & WORST == WORST
        ):
            return None
        for shift, mask, most in self._limits:
            if number >> shift & mask > most:
                return None
        if self._route is None:
            return self.first, port, number & self._key
        hops, length_at, taken_at = self._route
        length, taken = number >> length_at & 0xFF, number >> taken_at & 0xFF
        most = self._hops
        behind = number >> hops - 8 * (most - 1) & (1 << 8 * (most - length)) - 1
        if taken > length or behind:
            return None
        if taken == length:
            return self.first, NO_PORT, number & self._key
        return self.first, NEXT_HOP, number >> hops - 8 * taken & 0xFF

    def decision_key(self, key: ByHeader) -> Key:
        """Return the lookup key of a router's decision on packets with this header form."""
        if key.next_hop:
            return self.first, NEXT_HOP, key.values[0]
        bits = 0
        for field, value in zip(self.form.key, key.values, strict=True):
            bits |= value << self._shifts[field.name]
        return self.first, NO_PORT if key.port is None else key.port, bits

    def as_number(self, header: bytes) -> int:
        """Return a packet header as an integer, without length, identification and checksum."""
        return int.from_bytes(header, "big") & self._no_numbers

    def header_of_packet(self, number: int, length: int, count: int) -> bytes:
        """Return the header of a packet, with the packet's length and identification filled in."""
        number |= length << self._length | (count & self._most_number) << self._number
        return self.header_with_checksum(number)

    def header_with_checksum(self, number: int) -> bytes:
        """Return the header bytes of `number` with the checksum; its bits in `number` are zero."""
        return (number | checksum_of(number) << self._checksum).to_bytes(self.size, "big")

    def relay_operations(
        self, change: HeaderChange, forms: dict[int, NumericHeaderForm]
    ) -> RelayOperations:
        """Return the integer operations by which a relay changes headers of this form."""
        header = self.form.header
        counts = self._counts + [self._counter_step(n, header.at_times[n]) for n in change.counts]
        added = sum(step << shift for shift, _, step in counts)
        after, new = self, 0
        kept = self._no_checksum
        if change.becomes:
            after = forms[change.becomes.form.first]
            new = after.form.template(change.becomes.values)
            kept = after._no_checksum & ~(after._constants | after._key)
        return RelayOperations(after, counts, added, 8 * (after.size - self.size), kept, new)


class RelayOperations(NamedTuple):
    """Integer operations by which a relay changes the header of a packet that it forwards."""

    after: NumericHeaderForm
    counts: list[tuple[int, int, int]]
    added: int
    shift: int  # increase of the header size by the relay, in bits
    kept: int
    set: int

    def forwarded_header(self, number: int) -> bytes | None:
        """Return the header of the forwarded packet, None if its TTL or retry count is used up."""
        for shift, mask, step in self.counts:
            if step < 0 and number >> shift & mask <= -step:
                return None
        number += self.added
        number = number << self.shift if self.shift >= 0 else number >> -self.shift
        return self.after.header_with_checksum(number & self.kept | self.set)
