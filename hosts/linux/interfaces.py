"""Configuration and queries of the network interfaces in a server's namespace.

Changes use rtnetlink, all in one system call, including settings that are usually written to files
below /proc/sys: opening one such file takes as long as all changes together. Queries use ioctl.
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
RP_FILTER, ACCEPT_LOCAL = 8, 23  # settings of net.ipv4.conf, numbered in linux/ip.h
RT_TABLE_MAIN, RTPROT_STATIC, RT_SCOPE_LINK, RTN_UNICAST = 254, 4, 253, 1
TCA_KIND, TCA_OPTIONS, TCA_BPF_FD, TCA_BPF_NAME, TCA_BPF_FLAGS = 1, 2, 6, 7, 8
CLSACT, CLSACT_HANDLE, DIRECT_ACTION = 0xFFFFFFF1, 0xFFFF0000, 1
INCOMING, OUTGOING = 0xFFFFFFF2, 0xFFFFFFF3  # parent handle of an ingress or egress filter (clsact)
FILTER, FIRST, ETH_P_ALL = 1, 1 << 16, 0x0003  # handle and priority of the filter; all protocols
_MESSAGE = struct.Struct("=IHHII")
_LINK_BODY = struct.Struct("=BxHiII")  # family, type, index, flags, mask of changed flags
_ADDRESS_BODY = struct.Struct("=BBBBI")
_FILTER_BODY = struct.Struct("=BxHiIII")  # family, -, index, handle, parent, priority and protocol
_ROUTE_BODY = struct.Struct("=BBBBBBBBI")
_ATTRIBUTE, _NUMBER = struct.Struct("=HH"), struct.Struct("=I")
LONGEST_ANSWER = 1 << 16  # buffer size for netlink answers, in bytes


class _Change(NamedTuple):
    """A netlink request of a batch, with its description for error messages."""

    kind: int
    flags: int
    body: bytes
    action: str
    ignored_error: int = 0  # errno that counts as success


class Changes:
    """A batch of interface changes, applied together and in order."""

    def __init__(self) -> None:
        self._requests: list[_Change] = []

    def set_link(
        self, index: int, settings: Mapping[int, int], *, mtu: int | None = None, up: bool = False
    ) -> None:
        """Set IPv4 settings and MTU of an interface, and with `up` bring the interface up."""
        flags = IFF_UP if up else 0
        body = _LINK_BODY.pack(socket.AF_UNSPEC, 0, index, flags, flags)
        if mtu is not None:
            body += _number(IFLA_MTU, mtu)
        values = b"".join(_number(kind, value) for kind, value in settings.items())
        of_ipv4 = _attribute(socket.AF_INET, _attribute(IFLA_INET_CONF, values))
        body += _attribute(IFLA_AF_SPEC, of_ipv4)
        self._add(RTM_SETLINK, 0, body, f"set up interface {index}")

    def add_address(self, index: int, ipv4: int, prefix_length: int) -> None:
        """Add an IPv4 address to an interface."""
        packed = ipv4.to_bytes(4, "big")
        body = _ADDRESS_BODY.pack(socket.AF_INET, prefix_length, 0, 0, index)
        body += _attribute(IFA_LOCAL, packed) + _attribute(IFA_ADDRESS, packed)
        self._add(RTM_NEWADDR, NLM_F_CREATE, body, f"give interface {index} its address")

    def route_everything_to(self, index: int) -> None:
        """Add a default route through an interface."""
        how = RT_TABLE_MAIN, RTPROT_STATIC, RT_SCOPE_LINK, RTN_UNICAST
        body = _ROUTE_BODY.pack(socket.AF_INET, 0, 0, 0, *how, 0) + _number(RTA_OIF, index)
        self._add(RTM_NEWROUTE, NLM_F_CREATE, body, f"route everything to interface {index}")

    def attach(self, index: int, program: int, *, egress: bool) -> None:
        """Attach a loaded program to an interface's egress or ingress as a clsact filter."""
        action = f"attach a program to interface {index}"
        place = _FILTER_BODY.pack(socket.AF_UNSPEC, 0, index, CLSACT_HANDLE, CLSACT, 0)
        place += _text(TCA_KIND, b"clsact")
        # The clsact qdisc may exist already, possibly as an ingress qdisc only.
        self._add(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_EXCL, place, action, errno.EEXIST)
        options = _number(TCA_BPF_FD, program) + _text(TCA_BPF_NAME, b"pillarbox")
        options += _number(TCA_BPF_FLAGS, DIRECT_ACTION)
        body = _filter(index, egress=egress) + _attribute(TCA_OPTIONS, options)
        self._add(RTM_NEWTFILTER, NLM_F_CREATE | NLM_F_REPLACE, body, action)

    def detach(self, index: int, *, egress: bool) -> None:
        """Remove the filter that `attach` has added to an interface."""
        action = f"detach a program from interface {index}"
        self._add(RTM_DELTFILTER, 0, _filter(index, egress=egress), action)

    def _add(self, kind: int, flags: int, body: bytes, action: str, ignored: int = 0) -> None:
        self._requests.append(
            _Change(kind, flags | NLM_F_REQUEST | NLM_F_ACK, body, action, ignored)
        )

    def make(self) -> None:
        """Apply all interface changes; raise OSError for the first that the kernel refuses."""
        requests, self._requests = self._requests, []
        if not requests:
            return  # the kernel rejects an empty batch
        parts = [
            _MESSAGE.pack(_MESSAGE.size + len(each.body), each.kind, each.flags, 0, 0) + each.body
            for each in requests
        ]
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
            kernel.send(b"".join(parts))
            for request in requests:  # the kernel answers each request, in order
                error = -struct.unpack_from("=i", kernel.recv(LONGEST_ANSWER), _MESSAGE.size)[0]
                if error not in (0, request.ignored_error):
                    raise OSError(error, f"cannot {request.action}: {os.strerror(error)}")


def _filter(index: int, *, egress: bool) -> bytes:
    """Return the message body that identifies this package's filter at an interface."""
    parent = OUTGOING if egress else INCOMING
    body = _FILTER_BODY.pack(
        socket.AF_UNSPEC, 0, index, FILTER, parent, FIRST | socket.htons(ETH_P_ALL)
    )
    return body + _text(TCA_KIND, b"bpf")


def _text(kind: int, value: bytes) -> bytes:
    """Return a netlink attribute with a text value."""
    return _attribute(kind, value + b"\0")


def _attribute(kind: int, data: bytes) -> bytes:
    """Return a netlink attribute with header and padding."""
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(data), kind) + data + bytes(-len(data) % 4)


def _number(kind: int, value: int) -> bytes:
    """Return a netlink attribute with a 32-bit value."""
    return _attribute(kind, _NUMBER.pack(value))


class Interfaces:
    """Queries of the interfaces in this thread's network namespace."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        # The counter file (/proc/net/dev) stays open, since a lab reads it hundreds of times per
        # second.
        self._counters = os.open("/proc/thread-self/net/dev", os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        """Close the socket and the counter file."""
        self._socket.close()
        os.close(self._counters)

    def has_carrier(self, name: str) -> bool:
        """Return True if a port has carrier; False if the interface does not exist."""
        try:
            return bool(self._flags(name) & IFF_RUNNING)
        except OSError:
            return False

    def byte_counters(self) -> dict[str, tuple[int, int]]:
        """Return the byte counters (received, sent) of all interfaces by name."""
        counters = {}
        for line in os.pread(self._counters, 1 << 16, 0).splitlines()[2:]:
            name, *numbers = line.split()
            counters[name.rstrip(b":").decode()] = (int(numbers[0]), int(numbers[8]))
        return counters

    def _flags(self, name: str) -> int:
        """Return the flags (IFF_UP, ...) of an interface."""
        flags: int = struct.unpack_from("=H", self._ioctl(SIOCGIFFLAGS, name, b""), 16)[0]
        return flags

    def _ioctl(self, request: int, name: str, argument: bytes) -> bytes:
        """Execute an interface ioctl and return struct ifreq."""
        return fcntl.ioctl(self._socket, request, struct.pack("16s24s", name.encode(), argument))
