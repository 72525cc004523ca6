"""An interface's address and state, by ioctl.

A forwarder configures one interface, its own; for that it needs no library.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct

SIOCGIFFLAGS, SIOCSIFFLAGS = 0x8913, 0x8914
SIOCSIFADDR, SIOCSIFNETMASK, SIOCSIFMTU = 0x8916, 0x891C, 0x8922
IFF_UP, IFF_RUNNING = 0x1, 0x40

RTM_NEWROUTE, RTA_OIF = 24, 4
RT_TABLE_MAIN, RTPROT_STATIC = 254, 4
NLM_F_REQUEST, NLM_F_ACK, NLM_F_CREATE = 0x1, 0x4, 0x400
_MESSAGE = struct.Struct("=IHHII")
_ROUTE = struct.Struct("=BBBBBBBBI")  # the last two bytes but one: scope "link", type "unicast"
_ATTRIBUTE = struct.Struct("=HHI")


class Interfaces:
    """Interfaces of the namespace that this thread is in."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        # Open all the time: a lab of hundreds of servers reads hundreds of times a second.
        self._counters = os.open("/proc/thread-self/net/dev", os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        """Release what is open."""
        self._socket.close()
        os.close(self._counters)

    def set_address(self, name: str, ipv4: int, prefix_length: int) -> None:
        """Give an interface its address."""
        mask = 0xFFFFFFFF << (32 - prefix_length) & 0xFFFFFFFF
        for request, number in ((SIOCSIFADDR, ipv4), (SIOCSIFNETMASK, mask)):
            address = struct.pack(">H4s8x", 0, number.to_bytes(4, "big"))
            family = struct.pack("=H", socket.AF_INET)
            self._ioctl(request, name, family + address)

    def set_mtu(self, name: str, mtu: int) -> None:
        """Set the largest packet."""
        self._ioctl(SIOCSIFMTU, name, struct.pack("=i", mtu))

    def set_up(self, name: str) -> None:
        """Switch an interface on."""
        self._ioctl(SIOCSIFFLAGS, name, struct.pack("=h", self._flags(name) | IFF_UP))

    def route_everything_to(self, name: str) -> None:
        """Make an interface the way to everywhere."""
        index = _ATTRIBUTE.pack(_ATTRIBUTE.size, RTA_OIF, socket.if_nametoindex(name))
        route = _ROUTE.pack(socket.AF_INET, 0, 0, 0, RT_TABLE_MAIN, RTPROT_STATIC, 253, 1, 0)
        size = _MESSAGE.size + len(route) + len(index)
        flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
            kernel.send(_MESSAGE.pack(size, RTM_NEWROUTE, flags, 1, 0) + route + index)
            error = -struct.unpack_from("=i", kernel.recv(1 << 12), _MESSAGE.size)[0]
        if error:
            raise OSError(error, f"cannot route everything to {name}: {os.strerror(error)}")

    def has_carrier(self, name: str) -> bool:
        """Tell whether the cable of a port is live; False where there is no such port."""
        try:
            return bool(self._flags(name) & IFF_RUNNING)
        except OSError:
            return False

    def byte_counters(self) -> dict[str, tuple[int, int]]:
        """Return, by interface, how many bytes it received and sent."""
        found = {}
        for line in os.pread(self._counters, 1 << 16, 0).splitlines()[2:]:
            name, *numbers = line.split()
            found[name.rstrip(b":").decode()] = (int(numbers[0]), int(numbers[8]))
        return found

    def _flags(self, name: str) -> int:
        flags: int = struct.unpack_from("=H", self._ioctl(SIOCGIFFLAGS, name, b""), 16)[0]
        return flags

    def _ioctl(self, request: int, name: str, argument: bytes) -> bytes:
        return fcntl.ioctl(self._socket, request, struct.pack("16s24s", name.encode(), argument))
