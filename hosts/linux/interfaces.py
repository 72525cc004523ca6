"""Interfaces of a server's namespace: what is to change at them, and what is asked of them.

What changes goes by rtnetlink, all in one system call, settings too that otherwise are files below
/proc/sys: to open one takes as long as all changes together. Questions go by ioctl.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
from collections.abc import Mapping

SIOCGIFFLAGS = 0x8913
IFF_UP, IFF_RUNNING = 0x1, 0x40

RTM_SETLINK, RTM_NEWADDR, RTM_NEWROUTE = 19, 20, 24
NLM_F_REQUEST, NLM_F_ACK, NLM_F_CREATE = 0x1, 0x4, 0x400
IFLA_MTU, IFLA_AF_SPEC, IFLA_INET_CONF = 4, 26, 1
IFA_ADDRESS, IFA_LOCAL, RTA_OIF = 1, 2, 4
RP_FILTER, ACCEPT_LOCAL = 8, 23  # settings of linux/ip.h, as net.ipv4.conf has them
RT_TABLE_MAIN, RTPROT_STATIC, RT_SCOPE_LINK, RTN_UNICAST = 254, 4, 253, 1
_MESSAGE = struct.Struct("=IHHII")
_LINK_BODY = struct.Struct("=BxHiII")  # family, type, index, flags, which of them change
_ADDRESS_BODY = struct.Struct("=BBBBI")
_ROUTE_BODY = struct.Struct("=BBBBBBBBI")
_ATTRIBUTE, _NUMBER = struct.Struct("=HH"), struct.Struct("=I")
LONGEST_ANSWER = 1 << 16


class Changes:
    """Changes at interfaces, to be made together and in this order."""

    def __init__(self) -> None:
        self._asked: list[tuple[int, bytes, str]] = []

    def set_link(
        self, index: int, settings: Mapping[int, int], *, mtu: int | None = None, up: bool = False
    ) -> None:
        """Give an interface these IPv4 settings and its largest packet, and switch it on."""
        flags = IFF_UP if up else 0
        body = _LINK_BODY.pack(socket.AF_UNSPEC, 0, index, flags, flags)
        if mtu is not None:
            body += _number(IFLA_MTU, mtu)
        values = b"".join(_number(kind, value) for kind, value in settings.items())
        of_ipv4 = _attribute(socket.AF_INET, _attribute(IFLA_INET_CONF, values))
        body += _attribute(IFLA_AF_SPEC, of_ipv4)
        self._asked.append((RTM_SETLINK, body, f"set up interface {index}"))

    def add_address(self, index: int, ipv4: int, prefix_length: int) -> None:
        """Give an interface its address."""
        packed = ipv4.to_bytes(4, "big")
        body = _ADDRESS_BODY.pack(socket.AF_INET, prefix_length, 0, 0, index)
        body += _attribute(IFA_LOCAL, packed) + _attribute(IFA_ADDRESS, packed)
        self._asked.append((RTM_NEWADDR, body, f"give interface {index} its address"))

    def route_everything_to(self, index: int) -> None:
        """Make an interface the way to everywhere."""
        how = RT_TABLE_MAIN, RTPROT_STATIC, RT_SCOPE_LINK, RTN_UNICAST
        body = _ROUTE_BODY.pack(socket.AF_INET, 0, 0, 0, *how, 0) + _number(RTA_OIF, index)
        self._asked.append((RTM_NEWROUTE, body, f"route everything to interface {index}"))

    def make(self) -> None:
        """Make them, or raise OSError for the first that the kernel refuses."""
        if not self._asked:
            return  # the kernel would say that there is nothing
        flags = NLM_F_REQUEST | NLM_F_CREATE | NLM_F_ACK
        parts = [
            _MESSAGE.pack(_MESSAGE.size + len(body), kind, flags, number, 0) + body
            for number, (kind, body, _) in enumerate(self._asked)
        ]
        deeds, self._asked = [deed for _, _, deed in self._asked], []
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
            kernel.send(b"".join(parts))
            answered = 0
            while answered < len(deeds):  # in order, each by itself
                answer = kernel.recv(LONGEST_ANSWER)
                error = -struct.unpack_from("=i", answer, _MESSAGE.size)[0]
                if error:
                    raise OSError(error, f"cannot {deeds[answered]}: {os.strerror(error)}")
                answered += 1


def _attribute(kind: int, data: bytes) -> bytes:
    """Return an attribute of netlink's; all of these have whole words."""
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(data), kind) + data


def _number(kind: int, value: int) -> bytes:
    return _attribute(kind, _NUMBER.pack(value))


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
