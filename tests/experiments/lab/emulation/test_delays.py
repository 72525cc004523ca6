"""What the process that delays cables does when the kernel takes no frame."""

from __future__ import annotations

import errno
import random
import socket
import struct
from collections.abc import Callable
from unittest.mock import Mock

import pytest

from pillarbox.experiments.lab.linux.delays import DelayedDirection, sendable
from pillarbox.hosts.wire.bcube import BCubeHeader, Hop
from pillarbox.hosts.wire.dcn import DcnHeader, Protocol
from pillarbox.hosts.wire.frame import ETH_DCN, ETH_IP
from pillarbox.hosts.wire.header_layout import checksum
from pillarbox.hosts.wire.ipv4 import Ipv4Header, Tunnel, decapsulate, encapsulate

LOST, SENT = bytes(10) + b"lost", bytes(10) + b"sent"  # with empty headers of packet sockets


def direction(error: int) -> tuple[DelayedDirection, Mock]:
    """Return one with two frames, of which the kernel takes only the second."""
    target = Mock(spec=socket.socket)
    target.send.side_effect = [OSError(error, "refused"), 4]
    made = DelayedDirection(Mock(spec=socket.socket), target)
    made.take(LOST, 0.0)
    made.take(SENT, 0.0)
    return made, target


@pytest.mark.parametrize("error", [errno.ENOBUFS, errno.ENOMEM, errno.EAGAIN, errno.ENETDOWN])
def test_a_frame_that_finds_no_room_is_lost_and_the_next_is_sent(error: int) -> None:
    made, target = direction(error)
    assert made.release(1.0) == float("inf")
    assert [call.args for call in target.send.call_args_list] == [(LOST,), (SENT,)]
    assert made.held_bytes == 0


def test_what_else_goes_wrong_is_told() -> None:
    made, _ = direction(errno.EPERM)
    with pytest.raises(OSError, match="refused"):
        made.release(1.0)


PAYLOAD = random.Random(0).randbytes(2500)
SEQUENCE, DATA_OFFSET = 2**32 - 1000, 8 << 4
FLAGS = 0x80 | 0x40 | 0x08 | 0x01  # CWR, ECE, PSH, FIN
SOURCE, DESTINATION = 0x0A000001, 0x0B000004


def below_dcell(packet: bytes) -> bytes:
    return DcnHeader(3, 17, Protocol.IPV4, proxy=9).pack(packet)


def below_bcube(packet: bytes) -> bytes:
    return BCubeHeader(3, 17, Protocol.IPV4, (Hop(0, 1), Hop(1, 1))).pack(packet)


def below_tunnel(packet: bytes) -> bytes:
    return encapsulate(packet, Tunnel(0x0B000002, 0x0A000004, 1), ttl=64, identification=7)


def pseudo_header_sum(length: int) -> int:
    """Return the sum with which a kernel begins the checksum of a TCP segment."""
    addresses = struct.pack("!IIHH", SOURCE, DESTINATION, socket.IPPROTO_TCP, length)
    return checksum(addresses) ^ 0xFFFF


def super_packet(ethertype: int, below: Callable[[bytes], bytes]) -> bytes:
    """Return a super-packet of TCP with 12 bytes of options, as a packet socket receives it."""
    tcp = struct.pack("!HHIIBBHHH", 1, 2, SEQUENCE, 0, DATA_OFFSET, FLAGS, 9, 0, 0)
    tcp = bytearray(tcp + b"\1" * 12 + PAYLOAD)
    struct.pack_into("!H", tcp, 16, pseudo_header_sum(len(tcp)))
    packet = below(Ipv4Header(SOURCE, DESTINATION, socket.IPPROTO_TCP).pack(bytes(tcp)))
    at = 14 + len(packet) - len(tcp)
    vnet_header = struct.pack("=BBHHHH", 1, 1 | 0x80, at + 32, 1000, at, 16)
    return vnet_header + bytes(12) + struct.pack("!H", ethertype) + packet


def inner_packet(frame: bytes) -> bytes:
    """Return the IPv4 packet of a frame; the header below it is verified."""
    data = frame[14:]
    if frame[12:14] == b"\x08\x00":
        return decapsulate(data)[2]
    return (DcnHeader if data[0] >> 4 == 1 else BCubeHeader).parse(data)[1]


@pytest.mark.parametrize(
    ("ethertype", "below"),
    [(ETH_DCN, below_dcell), (ETH_DCN, below_bcube), (ETH_IP, below_tunnel)],
)
def test_super_packets_with_headers_unknown_to_the_kernel_leave_as_frames(
    ethertype: int, below: Callable[[bytes], bytes]
) -> None:
    packets = sendable(super_packet(ethertype, below))
    segments = []
    for packet in packets:
        flags, kind, _, _, at, checksum_at = struct.unpack("=BBHHHH", packet[:10])
        header, segment = Ipv4Header.parse(inner_packet(packet[10:]))
        assert (flags, kind, packet[10 + at :], checksum_at) == (1, 0, segment, 16)
        assert (header.source, header.destination) == (SOURCE, DESTINATION)
        (begun,) = struct.unpack_from("!H", segment, 16)
        assert begun == pseudo_header_sum(len(segment))
        segments.append(segment)
    assert b"".join(segment[32:] for segment in segments) == PAYLOAD
    numbers = [struct.unpack_from("!I", segment, 4)[0] for segment in segments]
    assert numbers == [SEQUENCE, 0, 1000]
    assert [segment[13] for segment in segments] == [0xC0, 0x40, 0x49]


def test_other_packets_leave_as_they_arrive() -> None:
    whole = super_packet(ETH_IP, lambda packet: packet)
    frame = bytes(10) + whole[10:]
    vlan = super_packet(0x8100, below_dcell)
    for packet in (whole, frame, vlan):
        assert sendable(packet) == [packet]
