"""A server's application interface where /dev/net/tun is closed, as for an ordinary user.

`VethTun` replaces `devices.Tun`: dcn0 is one end of a veth pair, and the forwarder has a packet
socket at the other end::

    programs of the server -- dcn0 ========= far -- packet socket of the forwarder

The far end is in a network namespace that only this socket keeps. When the forwarder ends for any
reason, the kernel removes the namespace and both ends, as it removes a TUN interface. Only the
Python plane works with it: packets at dcn0 have an Ethernet header, which the eBPF plane's do not.
"""

from __future__ import annotations

import errno
import os
import socket
import struct

from pillarbox.hosts.linux.calls import (
    current_namespace,
    ethtool,
    in_new_namespace,
    set_buffer_bytes,
)
from pillarbox.hosts.linux.interfaces import InterfaceChanges
from pillarbox.hosts.live.devices import (
    APPLICATION_INTERFACE,
    LARGEST_FRAME,
    SOCKET_BUFFER_BYTES,
    Tun,
)
from pillarbox.hosts.wire.frame import ETH_IP

FAR = "far"
MAC = bytes.fromhex("027062000001")  # MAC address of dcn0, the same on every server
# Ethernet header of packets to programs; the kernel sends to the same address, without ARP.
HEADER = MAC + bytes(6) + struct.pack("!H", ETH_IP)
ETHTOOL_STXCSUM = 0x17  # linux/ethtool.h: switch checksums by the interface on or off
IPV4 = 0x40  # version in the upper half of a packet's first byte


class VethTun(Tun):
    """Interface between a server's applications and its forwarder, without a TUN device."""

    def __init__(self, name: str = APPLICATION_INTERFACE) -> None:
        home = current_namespace()
        changes = InterfaceChanges()
        changes.delete(name)  # a dead forwarder's, which the kernel has not removed yet
        changes.apply()
        try:
            with in_new_namespace():
                changes.create_veth_pair((FAR, None), (name, MAC), home)
                changes.apply()
                self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
                set_buffer_bytes(self._socket, SOCKET_BUFFER_BYTES)
                self._socket.bind((FAR, ETH_IP))
        finally:
            os.close(home)
        self._socket.setblocking(False)
        self.fd = self._socket.fileno()
        # The kernel has to finish checksums and super-packets, as for a TUN interface.
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            ethtool(any_socket, name, struct.pack("=II", ETHTOOL_STXCSUM, 0))

    def receive(self) -> bytes | None:
        """Return the next IPv4 packet sent by an application, None if none is waiting."""
        try:
            return self._socket.recv(LARGEST_FRAME)[len(HEADER) :]
        except OSError:  # no packet is waiting, or the interface is down
            return None

    def put(self, packet: bytes) -> None:
        """Deliver a packet to the server's applications, or raise OSError."""
        if not packet or packet[0] & 0xF0 != IPV4:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        self._socket.send(HEADER + packet)

    @staticmethod
    def drop_reason(error: OSError) -> str:
        """Return the drop reason for an error of the application interface."""
        full = error.errno == errno.ENOBUFS  # the queue of received packets is full
        return Tun.drop_reason(BlockingIOError() if full else error)


def application_interface(plane: str) -> Tun:
    """Open a server's application interface: a TUN device, or a `VethTun` if that is closed."""
    try:
        return Tun()
    except (PermissionError, FileNotFoundError):
        if plane == "ebpf":
            raise
        return VethTun()
