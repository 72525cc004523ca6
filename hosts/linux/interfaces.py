"""Interfaces of a server's namespace: what is to change at them, and what is asked of them.

What changes goes by rtnetlink, all in one system call, settings too that otherwise are files below
/proc/sys: to open one takes as long as all changes together. Questions go by ioctl.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import struct
from collections.abc import Mapping
from typing import NamedTuple

SIOCGIFFLAGS = 0x8913
IFF_UP, IFF_RUNNING = 0x1, 0x40

RTM_SETLINK, RTM_NEWADDR, RTM_NEWROUTE = 19, 20, 24
RTM_NEWQDISC, RTM_NEWTFILTER, RTM_DELTFILTER = 36, 44, 45
NLM_F_REQUEST, NLM_F_ACK = 0x1, 0x4
NLM_F_REPLACE, NLM_F_EXCL, NLM_F_CREATE = 0x100, 0x200, 0x400
IFLA_MTU, IFLA_AF_SPEC, IFLA_INET_CONF = 4, 26, 1
IFA_ADDRESS, IFA_LOCAL, RTA_OIF = 1, 2, 4
RP_FILTER, ACCEPT_LOCAL = 8, 23  # settings of linux/ip.h, as net.ipv4.conf has them
RT_TABLE_MAIN, RTPROT_STATIC, RT_SCOPE_LINK, RTN_UNICAST = 254, 4, 253, 1
TCA_KIND, TCA_OPTIONS, TCA_BPF_FD, TCA_BPF_NAME, TCA_BPF_FLAGS = 1, 2, 6, 7, 8
CLSACT, CLSACT_HANDLE, DIRECT_ACTION = 0xFFFFFFF1, 0xFFFF0000, 1
INCOMING, OUTGOING = 0xFFFFFFF2, 0xFFFFFFF3  # where a program runs
FILTER, FIRST, ETH_P_ALL = 1, 1 << 16, 0x0003  # our filter's handle, and its priority
_MESSAGE = struct.Struct("=IHHII")
_LINK_BODY = struct.Struct("=BxHiII")  # family, type, index, flags, which of them change
_ADDRESS_BODY = struct.Struct("=BBBBI")
_FILTER_BODY = struct.Struct("=BxHiIII")  # family, -, index, handle, parent, priority and protocol
_ROUTE_BODY = struct.Struct("=BBBBBBBBI")
_ATTRIBUTE, _NUMBER = struct.Struct("=HH"), struct.Struct("=I")
LONGEST_ANSWER = 1 << 16


class _Change(NamedTuple):
    kind: int
    flags: int
    body: bytes
    deed: str
    well: int = 0  # an error that is none


class Changes:
    """Changes at interfaces, to be made together and in this order."""

    def __init__(self) -> None:
        self._asked: list[_Change] = []

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
        self._ask(RTM_SETLINK, 0, body, f"set up interface {index}")

    def add_address(self, index: int, ipv4: int, prefix_length: int) -> None:
        """Give an interface its address."""
        packed = ipv4.to_bytes(4, "big")
        body = _ADDRESS_BODY.pack(socket.AF_INET, prefix_length, 0, 0, index)
        body += _attribute(IFA_LOCAL, packed) + _attribute(IFA_ADDRESS, packed)
        self._ask(RTM_NEWADDR, NLM_F_CREATE, body, f"give interface {index} its address")

    def route_everything_to(self, index: int) -> None:
        """Make an interface the way to everywhere."""
        how = RT_TABLE_MAIN, RTPROT_STATIC, RT_SCOPE_LINK, RTN_UNICAST
        body = _ROUTE_BODY.pack(socket.AF_INET, 0, 0, 0, *how, 0) + _number(RTA_OIF, index)
        self._ask(RTM_NEWROUTE, NLM_F_CREATE, body, f"route everything to interface {index}")

    def attach(self, index: int, program: int, *, egress: bool) -> None:
        """Let a loaded program see what an interface sends, or else receives."""
        deed = f"attach a program to interface {index}"
        place = _FILTER_BODY.pack(socket.AF_UNSPEC, 0, index, CLSACT_HANDLE, CLSACT, 0)
        place += _text(TCA_KIND, b"clsact")
        # There already, perhaps, and perhaps for what comes in alone.
        self._ask(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_EXCL, place, deed, errno.EEXIST)
        options = _number(TCA_BPF_FD, program) + _text(TCA_BPF_NAME, b"pillarbox")
        options += _number(TCA_BPF_FLAGS, DIRECT_ACTION)
        body = _filter(index, egress=egress) + _attribute(TCA_OPTIONS, options)
        self._ask(RTM_NEWTFILTER, NLM_F_CREATE | NLM_F_REPLACE, body, deed)

    def detach(self, index: int, *, egress: bool) -> None:
        """Take away what `attach` put there."""
        deed = f"detach a program from interface {index}"
        self._ask(RTM_DELTFILTER, 0, _filter(index, egress=egress), deed)

    def _ask(self, kind: int, flags: int, body: bytes, deed: str, well: int = 0) -> None:
        self._asked.append(_Change(kind, flags | NLM_F_REQUEST | NLM_F_ACK, body, deed, well))

    def make(self) -> None:
        """Make them, or raise OSError for the first that the kernel refuses."""
        asked, self._asked = self._asked, []
        if not asked:
            return  # the kernel would say that there is nothing
        parts = [
            _MESSAGE.pack(_MESSAGE.size + len(one.body), one.kind, one.flags, 0, 0) + one.body
            for one in asked
        ]
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
            kernel.send(b"".join(parts))
            for one in asked:  # each is answered by itself, in order
                error = -struct.unpack_from("=i", kernel.recv(LONGEST_ANSWER), _MESSAGE.size)[0]
                if error not in (0, one.well):
                    raise OSError(error, f"cannot {one.deed}: {os.strerror(error)}")


def _filter(index: int, *, egress: bool) -> bytes:
    where = OUTGOING if egress else INCOMING
    body = _FILTER_BODY.pack(
        socket.AF_UNSPEC, 0, index, FILTER, where, FIRST | socket.htons(ETH_P_ALL)
    )
    return body + _text(TCA_KIND, b"bpf")


def _text(kind: int, value: bytes) -> bytes:
    return _attribute(kind, value + b"\0")


def _attribute(kind: int, data: bytes) -> bytes:
    """Return an attribute of netlink's."""
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(data), kind) + data + bytes(-len(data) % 4)


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
