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

from pillarbox.hosts.linux import netlink_numbers as nl
from pillarbox.hosts.linux.calls import set_buffer_bytes
from pillarbox.hosts.linux.interfaces import ACCEPT_LOCAL, InterfaceChanges
from pillarbox.hosts.linux.netlink import LINK, received_messages
from pillarbox.hosts.linux.sieve import ByteTest, attach_byte_filter, shared_filter
from pillarbox.hosts.live import segments
from pillarbox.hosts.live.settings import LabSettings
from pillarbox.hosts.wire.dcn import FIRST_MESSAGE, MESSAGE_MASK, Protocol
from pillarbox.hosts.wire.frame import ETH_DCN, ETH_IP, Frame
from pillarbox.topos.base.addressing import PORT_NETWORK, PORT_PREFIX_LENGTH
from pillarbox.topos.base.topology import Topology

APPLICATION_INTERFACE = "dcn0"
BROADCAST_MAC = b"\xff" * 6
TO_A_GROUP = 0x01  # group bit (broadcast, multicast) of a MAC address's first byte
LARGEST_FRAME = 65600

TUNSETIFF = 0x400454CA
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000
SOL_PACKET, PACKET_IGNORE_OUTGOING, PACKET_VNET_HDR = 263, 23, 15
SO_TIMESTAMPNS, SO_TIMESTAMPING, SOF_TIMESTAMPING_SOFTWARE = 35, 37, 1 << 4
NOTE_BYTES = 128  # bytes of recvmsg's ancillary data, which holds a frame's receive time
OLDEST_S = 1.0  # maximum assumed age of a frame in seconds, in case the clock was set
SOCKET_BUFFER_BYTES = 4 << 20
# Packets with a shaper's handle as socket priority bypass the shaper's classes (HTB), uncounted and
# ahead of all others. Heartbeats use it: they take only some kbit/s, and classifying them would
# cost as much as sending them.
PAST_SHAPERS = 0x5 << 16

_ETHERTYPE = struct.Struct(">H")
_TIMESPEC = struct.Struct("@qq")
TUN = Path("/dev/net/tun")
MEND_TUN = f"load the module (modprobe tun); a container needs the device (--device {TUN})"
SOURCE_END_AT = 11  # offset of the last byte of a frame's source MAC address
# Receiving sockets per port and kind of frame (a power of two), chosen by source MAC address.
SHARES = 4
# Byte offset of the protocol field in a DCN frame: the second byte after the Ethernet header.
PROTOCOL_AT = 15
_DCN, _LINK_STATE = _ETHERTYPE.pack(ETH_DCN), bytes([Protocol.LINK_STATE])
# Socket filters for DCN frames: heartbeats, all other control messages, and data packets.
HEARTBEAT = ByteTest(PROTOCOL_AT, Protocol.HEARTBEAT)
MESSAGE = ByteTest(PROTOCOL_AT, FIRST_MESSAGE, mask=MESSAGE_MASK)
MESSAGES = (MESSAGE, HEARTBEAT._replace(equal=False))
PACKETS = (MESSAGE._replace(equal=False),)
# Socket filters that distribute a port's received frames over its sockets by source MAC address.
_SHARES = [(ByteTest(SOURCE_END_AT, share, mask=SHARES - 1),) for share in range(SHARES)]


def missing_tun() -> str:
    """Return why the eBPF plane has no TUN device for applications, "" if it has one."""
    return "" if TUN.exists() else f"this machine has no {TUN}: {MEND_TUN}"


class Tun:
    """TUN interface between a server's applications and its forwarder; it carries IPv4 packets."""

    def __init__(self, name: str = APPLICATION_INTERFACE) -> None:
        self.fd = os.open(TUN, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        request = struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI)
        fcntl.ioctl(self.fd, TUNSETIFF, request)

    def receive(self) -> bytes | None:
        """Return the next IPv4 packet sent by an application, None if none is waiting."""
        try:
            return os.read(self.fd, LARGEST_FRAME)
        except BlockingIOError:
            return None

    def put(self, packet: bytes) -> None:
        """Deliver a packet to the server's applications, or raise OSError."""
        os.write(self.fd, packet)

    def send(self, packet: bytes) -> str:
        """Deliver a packet to the server's applications; return the drop reason if that fails."""
        try:
            self.put(packet)
        except OSError as error:
            return self.drop_reason(error)
        return ""

    @staticmethod
    def drop_reason(error: OSError) -> str:
        """Return the drop reason for an error of the application interface."""
        if isinstance(error, BlockingIOError):
            return "application interface is full"
        return "application interface refused the packet"  # EINVAL: the packet is no IP packet


def configure_application_interface(topology: Topology, server: int, settings: LabSettings) -> None:
    """Bring a server's application interface up, with its addresses and routes.

    All other addresses are routed to the interface too: a gateway may reach them (Guo 2009, section
    5.3). Without one, the router answers by ICMP from the server's own address, which the kernel
    must accept.
    """
    index = socket.if_nametoindex(APPLICATION_INTERFACE)
    changes = InterfaceChanges()
    changes.set_link(index, {ACCEPT_LOCAL: 1}, mtu=settings.mtu, up=True)
    own = topology.ipv4(server)
    changes.add_address(index, own, topology.ip_prefix_length)
    if settings.port_addresses:
        ports = [topology.port_ipv4(server, port) for port in range(topology.ports)]
        changes.add_address_network(index, ports, (PORT_NETWORK, PORT_PREFIX_LENGTH), own)
    changes.route_everything_to(index)
    changes.apply()


class ReceivedFrame(NamedTuple):
    """A received frame and its source MAC address."""

    source_mac: bytes
    frame: Frame


class Port:
    """A server's network port, with its sockets for packets, control messages and heartbeats.

    A frame with a tunnel header counts as a packet here, even if it contains a message. On a port
    with several neighbours, each kind has one socket per share of the neighbours, by their MAC
    addresses. The forwarder serves the sockets in turn: a flood from some neighbours fills the
    queue of their own share, and frames of other shares are still served. If a program forwards
    (`ebpf`), it limits the packets it passes up to a budget, but a busy machine may be too slow
    even for these.

    Heartbeats have a separate socket, so that they need not wake up the process one by one.
    Sockets bound to an ethertype receive only what the port's traffic-control hook passes, so
    frames that a program has forwarded are not received again. With such a program super-packets
    can arrive, which are segmented; and the program records the receive time of heartbeats.
    Otherwise the kernel is asked for receive times, which it then records for every packet of the
    machine.
    """

    def __init__(
        self, number: int, name: str, mac: bytes, *, ebpf: bool, shared: bool = True
    ) -> None:
        self.number, self.name, self.mac = number, name, mac
        self._note = segments.NOTHING_TO_DO if ebpf else b""
        shares = _SHARES if shared else [()]

        def open_receiving_sockets(ethertype: int, *kind: ByteTest) -> list[socket.socket]:
            return [_packet_socket(name, ethertype, (*kind, *share), ebpf) for share in shares]

        self.messages = open_receiving_sockets(ETH_DCN, *MESSAGES)
        self.packets = [*open_receiving_sockets(ETH_DCN, *PACKETS), *open_receiving_sockets(ETH_IP)]
        self.heartbeats = _packet_socket(name, ETH_DCN, (HEARTBEAT,), ebpf)
        self._clock = time.monotonic_ns if ebpf else time.time_ns
        if ebpf:
            self.heartbeats.setsockopt(
                socket.SOL_SOCKET, SO_TIMESTAMPING, SOF_TIMESTAMPING_SOFTWARE
            )
        else:
            self.heartbeats.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self._out = self.messages[0]

    @property
    def sockets(self) -> list[socket.socket]:
        """All packet sockets by which the port receives."""
        return [*self.messages, *self.packets, self.heartbeats]

    def close(self) -> None:
        """Close all packet sockets of the port."""
        for each in self.sockets:
            each.close()

    def receive_raw(self, which: socket.socket) -> bytes | None:
        """Return the next received frame of one of the port's sockets, None if none is waiting."""
        try:
            # `recv` is faster than `recvfrom`, which asks the kernel for the port's name per frame.
            return which.recv(LARGEST_FRAME)
        # No frame is waiting, or the port went down, which a carrier event reports separately.
        except OSError:
            return None

    def packets_of(self, taken: bytes) -> Iterator[ReceivedFrame]:
        """Yield a received frame's packets; a super-packet (GSO) is segmented as on the wire."""
        note, frame = taken[: len(self._note)], taken[len(self._note) :]
        source, (ethertype,) = frame[6:12], _ETHERTYPE.unpack_from(frame, 12)
        if note:
            for packet in segments.split_frame(note, frame):
                yield ReceivedFrame(source, Frame(ethertype, packet))
        elif frame[:6] == self.mac or frame[0] & TO_A_GROUP:
            yield ReceivedFrame(source, Frame(ethertype, frame[14:]))
        # Ignore frames to other MAC addresses, which a learning bridge has flooded.

    def is_link_state(self, taken: bytes) -> bool:
        """Return True if a received frame is a link-state message, which is no sign of traffic."""
        at = len(self._note) + PROTOCOL_AT
        return taken[at - 3 : at - 1] == _DCN and taken[at : at + 1] == _LINK_STATE

    def receive_heartbeats(self, most: int) -> Iterator[tuple[float, ReceivedFrame]]:
        """Yield up to `most` received heartbeats, each with its age in seconds."""
        for _ in range(most):
            try:
                data, notes, _, _ = self.heartbeats.recvmsg(LARGEST_FRAME, NOTE_BYTES)
            except OSError:  # no heartbeat is waiting, or the port is down
                return
            age_s = 0.0
            for level, kind, value in notes:
                if level == socket.SOL_SOCKET and kind in (SO_TIMESTAMPNS, SO_TIMESTAMPING):
                    came_s, came_ns = _TIMESPEC.unpack(value[: _TIMESPEC.size])
                    age_s = min(max(0.0, (self._clock() - came_ns) / 1e9 - came_s), OLDEST_S)
            data = data[len(self._note) :]
            yield age_s, ReceivedFrame(data[6:12], Frame(ETH_DCN, data[14:]))

    def with_ethernet_header(self, destination_mac: bytes, frame: Frame) -> bytes:
        """Return the bytes of a frame to this MAC address, with its Ethernet header."""
        return destination_mac + self.mac + _ETHERTYPE.pack(frame.ethertype) + frame.data

    def put(self, data: bytes) -> None:
        """Send bytes that include an Ethernet header out of the port, or raise OSError."""
        self._out.send(self._note + data)

    def send(self, destination_mac: bytes, frame: Frame) -> str:
        """Send a frame out of the port; return the drop reason if that fails."""
        try:
            self.put(self.with_ethernet_header(destination_mac, frame))
        except OSError as error:
            return self.drop_reason(error)
        return ""

    @staticmethod
    def drop_reason(error: OSError) -> str:
        """Return the drop reason of a frame that could not be sent, by the port's OSError."""
        if isinstance(error, BlockingIOError):
            return "port is full"
        return f"port refused the frame: {os.strerror(error.errno or 0)}"


def heartbeat_socket(name: str) -> socket.socket:
    """Return a send-only packet socket for heartbeats out of the named interface."""
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, PAST_SHAPERS)
    made.bind((name, 0))
    made.setblocking(False)
    return made


def load_socket_filters() -> None:
    """Load the filters of ports' packet sockets once, for all forwarders forked from now on."""
    for kind in (MESSAGES, PACKETS, ()):
        for share in _SHARES:
            shared_filter((*kind, *share))
    for kind in (MESSAGES, PACKETS, (HEARTBEAT,)):
        shared_filter(kind)


def _packet_socket(
    name: str, ethertype: int, wanted: tuple[ByteTest, ...], vnet_header: bool
) -> socket.socket:
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
    made.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    made.setsockopt(SOL_PACKET, PACKET_VNET_HDR, int(vnet_header))
    set_buffer_bytes(made, SOCKET_BUFFER_BYTES)
    if wanted:
        attach_byte_filter(made, *wanted)
    made.bind((name, ethertype))
    made.setblocking(False)
    return made


class CarrierEvents:
    """Socket for the kernel's carrier events: interface index, and True if its cable is live."""

    def __init__(self) -> None:
        self.socket = socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE
        )
        self.socket.bind((0, nl.RTMGRP_LINK))
        self.socket.setblocking(False)
        # True if carrier events were lost, so that every port's carrier must be read
        self.overrun = False

    def pending(self) -> Iterator[tuple[int, bool]]:
        """Yield (interface index, True if it has carrier) for all pending carrier events."""
        while True:
            try:
                data = self.socket.recv(1 << 16)
            except BlockingIOError:
                return
            except OSError:  # ENOBUFS: carrier events were lost
                self.overrun = True
                return
            yield from _carrier_states(data)


def _carrier_states(data: bytes) -> Iterator[tuple[int, bool]]:
    for kind, _, _, payload in received_messages(data):
        if kind in (nl.RTM_NEWLINK, nl.RTM_DELLINK) and len(payload) >= LINK.size:
            _, _, index, flags, _ = LINK.unpack_from(payload)
            yield index, kind == nl.RTM_NEWLINK and bool(flags & nl.IFF_LOWER_UP)
