"""Options of TCP headers (RFC 9293, section 3.1), as far as routing depends on them."""

from __future__ import annotations

from collections.abc import Iterator

from pillarbox.hosts.wire.ipv4 import TCP

MPTCP = 30  # kind of the Multipath TCP option (RFC 8684, section 3)
_END, _NO_OPERATION = 0, 1  # kinds of options that consist of one byte
_PROTOCOL_AT, _OFFSET_AT, _OPTIONS_AT = 9, 12, 20


def is_mptcp(packet: bytes) -> bool:
    """Return True if a valid IPv4 packet carries a TCP segment with a Multipath TCP option."""
    return packet[_PROTOCOL_AT] == TCP and MPTCP in option_kinds(packet[4 * (packet[0] & 0xF) :])


def option_kinds(segment: bytes) -> Iterator[int]:
    """Yield the kinds of a TCP segment's options, up to the first malformed option.

    >>> list(option_kinds(bytes(12) + bytes.fromhex("70000000 00000000 01 02 04 05b4 1e 03 00")))
    [1, 2, 30]
    """
    if len(segment) < _OPTIONS_AT:
        return
    end = min(4 * (segment[_OFFSET_AT] >> 4), len(segment))
    at = _OPTIONS_AT
    while at < end and segment[at] != _END:
        size = 1 if segment[at] == _NO_OPERATION else segment[at + 1] if at + 1 < end else 0
        if size < 1 or at + size > end or (size < 2 and segment[at] != _NO_OPERATION):
            return
        yield segment[at]
        at += size
