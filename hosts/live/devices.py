"""Network devices of a live server: its ports, its application interface and carrier events.

This module makes no routing decisions. All sockets are non-blocking, for use in one event loop.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from hosts.linux.sieve import Byte, keep, shared
from hosts.live import segments
from hosts.wire.dcn import FIRST_MESSAGE, MESSAGE_MASK, Protocol
from hosts.wire.frame import ETH_DCN, ETH_IP, Frame
from topos.base.errors import require

APPLICATION_INTERFACE = "dcn0"
BROADCAST_MAC = b"\xff" * 6
TO_A_GROUP = 0x01  # group bit of a MAC address's first byte
LARGEST_FRAME = 65600

TUNSETIFF = 0x400454CA
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000
SOL_PACKET, PACKET_IGNORE_OUTGOING, PACKET_VNET_HDR = 263, 23, 15
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33
SO_TIMESTAMPNS, SO_TIMESTAMPING, SOF_TIMESTAMPING_SOFTWARE = 35, 37, 1 << 4
NOTE_BYTES = 128  # size of recvmsg's ancillary data, which holds a frame's receive time
OLDEST_S = 1.0  # upper bound for a frame's age in seconds, in case the clock was set
SOCKET_BUFFER_BYTES = 4 << 20
# Packets with this priority bypass the classes of a shaper (HTB) with this handle, uncounted and
# ahead of all others. Heart-beats use it: they take only some kbit/s, and classifying them would
# cost as much as sending them.
PAST_SHAPERS = 0x5 << 16

RTMGRP_LINK, RTM_NEWLINK, RTM_DELLINK = 1, 16, 17
IFF_LOWER_UP = 0x10000
_MESSAGE = struct.Struct("=IHHII")
_LINK = struct.Struct("=BBHiII")
_ETHERTYPE = struct.Struct(">H")
_TIMESPEC = struct.Struct("@qq")
TUN = Path("/dev/net/tun")
MEND_TUN = f"load the module (modprobe tun); a container needs the device (--device {TUN})"
SOURCE_END_AT = 11  # offset of the last byte of a frame's source MAC address
# Receiving sockets per port and frame kind (a power of two), chosen by source MAC address.
SHARES = 4
# Offset in a DCN frame: after the Ethernet header and the first byte of the DCN header.
PROTOCOL_AT = 15
_DCN, _LINK_STATE = _ETHERTYPE.pack(ETH_DCN), bytes([Protocol.LINK_STATE])
# Filters for DCN frames: heart-beats, all other messages, and packets.
HEART_BEAT = Byte(PROTOCOL_AT, Protocol.HEART_BEAT)
MESSAGE = Byte(PROTOCOL_AT, FIRST_MESSAGE, mask=MESSAGE_MASK)
MESSAGES = (MESSAGE, HEART_BEAT._replace(equal=False))
PACKETS = (MESSAGE._replace(equal=False),)
# Socket filters that distribute received frames over a port's sockets by source MAC address.
_SHARES = [(Byte(SOURCE_END_AT, share, mask=SHARES - 1),) for share in range(SHARES)]


def check_tun() -> None:
    """Raise PillarboxError if this machine has no TUN device for application interfaces."""
    require(TUN.exists(), f"no server can relay, since there is no {TUN}: {MEND_TUN}")


class Tun:
    """The TUN interface of the server's applications, which carries whole IPv4 packets."""

    def __init__(self, name: str = APPLICATION_INTERFACE) -> None:
        self.fd = os.open(TUN, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        request = struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI)
        fcntl.ioctl(self.fd, TUNSETIFF, request)

    def receive(self) -> bytes | None:
        """Return the next packet sent by an application, None if there is no packet."""
        try:
            return os.read(self.fd, LARGEST_FRAME)
        except BlockingIOError:
            return None

    def put(self, packet: bytes) -> None:
        """Pass a packet to the applications, or raise OSError."""
        os.write(self.fd, packet)

    def send(self, packet: bytes) -> str:
        """Pass a packet to the applications; return the drop reason if that fails."""
        try:
            self.put(packet)
        except OSError as error:
            return self.refusal(error)
        return ""

    @staticmethod
    def refusal(error: OSError) -> str:
        """Return the drop reason for an error of the application interface."""
        if isinstance(error, BlockingIOError):
            return "application interface is full"
        return "application interface refused the packet"  # EINVAL: not an IP packet


class Received(NamedTuple):
    """A received frame and its source MAC address."""

    source_mac: bytes
    frame: Frame


class Port:
    """One network port with its packet sockets for packets, control messages and heart-beats.

    A frame with a tunnel header counts as a packet here, even if it contains a message. On a port
    with several neighbours, each kind has one socket per share of the neighbours, by their MAC
    addresses. The forwarder serves the sockets in turn: a flood from some neighbours fills the
    queue of their own share, and frames of other shares are still served. If a program forwards
    (`ebpf`), it limits the packets it passes up to a budget, but a busy machine may be too slow
    even for these.

    Heart-beats have a separate socket, so that they need not wake up the process one by one.
    Sockets bound to an ethertype receive only what the port's traffic-control hook passes, so
    frames that a program has forwarded are not received again. With such a program super-packets
    can arrive, which are segmented; and the program records the receive time of heart-beats.
    Otherwise the kernel is asked for receive times, which it then records for every packet of the
    machine.
    """

    def __init__(
        self, number: int, name: str, mac: bytes, *, ebpf: bool, shared: bool = True
    ) -> None:
        self.number, self.name, self.mac = number, name, mac
        self._note = segments.NOTHING_TO_DO if ebpf else b""
        shares = _SHARES if shared else [()]

        def taking(ethertype: int, *kind: Byte) -> list[socket.socket]:
            return [_packet_socket(name, ethertype, (*kind, *share), ebpf) for share in shares]

        self.messages = taking(ETH_DCN, *MESSAGES)
        self.packets = [*taking(ETH_DCN, *PACKETS), *taking(ETH_IP)]
        self.heart_beats = _packet_socket(name, ETH_DCN, (HEART_BEAT,), ebpf)
        self._clock = time.monotonic_ns if ebpf else time.time_ns
        if ebpf:
            self.heart_beats.setsockopt(
                socket.SOL_SOCKET, SO_TIMESTAMPING, SOF_TIMESTAMPING_SOFTWARE
            )
        else:
            self.heart_beats.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self._out = self.messages[0]

    @property
    def sockets(self) -> list[socket.socket]:
        """All receiving sockets of the port."""
        return [*self.messages, *self.packets, self.heart_beats]

    def close(self) -> None:
        """Close all sockets of the port."""
        for each in self.sockets:
            each.close()

    def take(self, which: socket.socket) -> bytes | None:
        """Return the next raw frame of a port's socket, None if there is none."""
        try:
            # Unlike `recv`, `recvfrom` queries the kernel for the port's name with every frame.
            return which.recv(LARGEST_FRAME)
        # No frame is waiting, or the port went down, which a carrier event reports.
        except OSError:
            return None

    def cut(self, taken: bytes) -> Iterator[Received]:
        """Yield the packets of a raw frame, segmented as they would be on the wire."""
        note, frame = taken[: len(self._note)], taken[len(self._note) :]
        source, (ethertype,) = frame[6:12], _ETHERTYPE.unpack_from(frame, 12)
        if note:
            for packet in segments.cut(note, frame):
                yield Received(source, Frame(ethertype, packet))
        elif frame[:6] == self.mac or frame[0] & TO_A_GROUP:
            yield Received(source, Frame(ethertype, frame[14:]))
        # Frames to other MAC addresses were flooded by a learning bridge, and are ignored.

    def is_link_state(self, taken: bytes) -> bool:
        """Return True if a raw frame is a link-state message, which is no sign of traffic."""
        at = len(self._note) + PROTOCOL_AT
        return taken[at - 3 : at - 1] == _DCN and taken[at : at + 1] == _LINK_STATE

    def hear(self, most: int) -> Iterator[tuple[float, Received]]:
        """Yield up to `most` received heart-beats, each with its age in seconds."""
        for _ in range(most):
            try:
                data, notes, _, _ = self.heart_beats.recvmsg(LARGEST_FRAME, NOTE_BYTES)
            except OSError:  # no heart-beat is waiting, or the port went down
                return
            age_s = 0.0
            for level, kind, value in notes:
                if level == socket.SOL_SOCKET and kind in (SO_TIMESTAMPNS, SO_TIMESTAMPING):
                    came_s, came_ns = _TIMESPEC.unpack(value[: _TIMESPEC.size])
                    age_s = min(max(0.0, (self._clock() - came_ns) / 1e9 - came_s), OLDEST_S)
            data = data[len(self._note) :]
            yield age_s, Received(data[6:12], Frame(ETH_DCN, data[14:]))

    def framed(self, destination_mac: bytes, frame: Frame) -> bytes:
        """Return a frame's bytes with its Ethernet header."""
        return destination_mac + self.mac + _ETHERTYPE.pack(frame.ethertype) + frame.data

    def put(self, data: bytes) -> None:
        """Send a frame including its Ethernet header out of the port, or raise OSError."""
        self._out.send(self._note + data)

    def send(self, destination_mac: bytes, frame: Frame) -> str:
        """Send a frame out of the port; return the drop reason if that fails."""
        try:
            self.put(self.framed(destination_mac, frame))
        except OSError as error:
            return self.refusal(error)
        return ""

    @staticmethod
    def refusal(error: OSError) -> str:
        """Return the drop reason of a frame for an OSError of the port."""
        if isinstance(error, BlockingIOError):
            return "port is full"
        return f"port refused the frame: {os.strerror(error.errno or 0)}"


def sender(name: str) -> socket.socket:
    """Return a socket that only sends heart-beats, out of the named port."""
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, PAST_SHAPERS)
    made.bind((name, 0))
    made.setblocking(False)
    return made


def prepare() -> None:
    """Load the packet sockets' filters once, for all forwarders forked from this process."""
    for kind in (MESSAGES, PACKETS, ()):
        for share in _SHARES:
            shared((*kind, *share))
    for kind in (MESSAGES, PACKETS, (HEART_BEAT,)):
        shared(kind)


def _packet_socket(
    name: str, ethertype: int, wanted: tuple[Byte, ...], notes: bool
) -> socket.socket:
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
    made.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    made.setsockopt(SOL_PACKET, PACKET_VNET_HDR, int(notes))
    for option in (SO_SNDBUFFORCE, SO_RCVBUFFORCE):
        made.setsockopt(socket.SOL_SOCKET, option, SOCKET_BUFFER_BYTES)
    if wanted:
        keep(made, *wanted)
    made.bind((name, ethertype))
    made.setblocking(False)
    return made


class Carriers:
    """Carrier events from the kernel: interface index, and True if the cable is live."""

    def __init__(self) -> None:
        self.socket = socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE
        )
        self.socket.bind((0, RTMGRP_LINK))
        self.socket.setblocking(False)
        # True if carrier events were lost, so that every port's state must be read
        self.overrun = False

    def news(self) -> Iterator[tuple[int, bool]]:
        """Yield (interface index, live) for all pending carrier events."""
        while True:
            try:
                data = self.socket.recv(1 << 16)
            except BlockingIOError:
                return
            except OSError:  # ENOBUFS
                self.overrun = True
                return
            yield from _link_states(data)


def _link_states(data: bytes) -> Iterator[tuple[int, bool]]:
    at = 0
    while at + _MESSAGE.size <= len(data):
        length, kind, *_ = _MESSAGE.unpack_from(data, at)
        if kind in (RTM_NEWLINK, RTM_DELLINK) and length >= _MESSAGE.size + _LINK.size:
            _, _, _, index, flags, _ = _LINK.unpack_from(data, at + _MESSAGE.size)
            yield index, kind == RTM_NEWLINK and bool(flags & IFF_LOWER_UP)
        at += max(_MESSAGE.size, length + 3 & ~3)
