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
RP_FILTER, ACCEPT_LOCAL = 8, 23  # numbers of settings of net.ipv4.conf, from linux/ip.h
RT_TABLE_MAIN, RTPROT_STATIC, RT_SCOPE_LINK, RTN_UNICAST = 254, 4, 253, 1
TCA_KIND, TCA_OPTIONS, TCA_BPF_FD, TCA_BPF_NAME, TCA_BPF_FLAGS = 1, 2, 6, 7, 8
CLSACT, CLSACT_HANDLE, DIRECT_ACTION = 0xFFFFFFF1, 0xFFFF0000, 1
INCOMING, OUTGOING = 0xFFFFFFF2, 0xFFFFFFF3  # parent handles of clsact: ingress, egress filters
FILTER, FIRST, ETH_P_ALL = 1, 1 << 16, 0x0003  # filter handle, filter priority, all protocols
_MESSAGE = struct.Struct("=IHHII")
_LINK_BODY = struct.Struct("=BxHiII")  # struct ifinfomsg: family, type, index, flags, changed flags
_ADDRESS_BODY = struct.Struct("=BBBBI")
_FILTER_BODY = struct.Struct("=BxHiIII")  # struct tcmsg: family, index, handle, parent, info
_ROUTE_BODY = struct.Struct("=BBBBBBBBI")
_ATTRIBUTE, _NUMBER = struct.Struct("=HH"), struct.Struct("=I")
LONGEST_ANSWER = 1 << 16  # buffer size for netlink answers, in bytes


class _NetlinkRequest(NamedTuple):
    """A netlink request for an interface change, with its description for error messages."""

    kind: int
    flags: int
    body: bytes
    action: str
    ignored_error: int = 0  # errno in the kernel's answer that counts as success


class InterfaceChanges:
    """A batch of network interface changes, sent to the kernel together and in order."""

    def __init__(self) -> None:
        self._requests: list[_NetlinkRequest] = []

    def set_link(
        self, index: int, settings: Mapping[int, int], *, mtu: int | None = None, up: bool = False
    ) -> None:
        """Add to the batch: IPv4 settings and MTU of an interface, and with `up` bring it up."""
        flags = IFF_UP if up else 0
        body = _LINK_BODY.pack(socket.AF_UNSPEC, 0, index, flags, flags)
        if mtu is not None:
            body += _number_attribute(IFLA_MTU, mtu)
        values = b"".join(_number_attribute(kind, value) for kind, value in settings.items())
        of_ipv4 = _attribute(socket.AF_INET, _attribute(IFLA_INET_CONF, values))
        body += _attribute(IFLA_AF_SPEC, of_ipv4)
        self._add_request(RTM_SETLINK, 0, body, f"set up interface {index}")

    def add_address(self, index: int, ipv4: int, prefix_length: int) -> None:
        """Add to the batch: give an interface an IPv4 address."""
        packed = ipv4.to_bytes(4, "big")
        body = _ADDRESS_BODY.pack(socket.AF_INET, prefix_length, 0, 0, index)
        body += _attribute(IFA_LOCAL, packed) + _attribute(IFA_ADDRESS, packed)
        self._add_request(RTM_NEWADDR, NLM_F_CREATE, body, f"give interface {index} its address")

    def route_everything_to(self, index: int) -> None:
        """Add a default route through an interface to the batch of changes."""
        how = RT_TABLE_MAIN, RTPROT_STATIC, RT_SCOPE_LINK, RTN_UNICAST
        body = _ROUTE_BODY.pack(socket.AF_INET, 0, 0, 0, *how, 0) + _number_attribute(
            RTA_OIF, index
        )
        self._add_request(
            RTM_NEWROUTE, NLM_F_CREATE, body, f"route everything to interface {index}"
        )

    def attach(self, index: int, program: int, *, egress: bool) -> None:
        """Add to the batch: attach an eBPF program to an interface as a clsact filter."""
        action = f"attach a program to interface {index}"
        place = _FILTER_BODY.pack(socket.AF_UNSPEC, 0, index, CLSACT_HANDLE, CLSACT, 0)
        place += _text_attribute(TCA_KIND, b"clsact")
        # The interface may already have a clsact qdisc, or an ingress qdisc in its place.
        self._add_request(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_EXCL, place, action, errno.EEXIST)
        options = _number_attribute(TCA_BPF_FD, program) + _text_attribute(
            TCA_BPF_NAME, b"pillarbox"
        )
        options += _number_attribute(TCA_BPF_FLAGS, DIRECT_ACTION)
        body = _filter_body(index, egress=egress) + _attribute(TCA_OPTIONS, options)
        self._add_request(RTM_NEWTFILTER, NLM_F_CREATE | NLM_F_REPLACE, body, action)

    def detach(self, index: int, *, egress: bool) -> None:
        """Add to the batch: remove the eBPF filter that `attach` has added to an interface."""
        action = f"detach a program from interface {index}"
        self._add_request(RTM_DELTFILTER, 0, _filter_body(index, egress=egress), action)

    def _add_request(
        self, kind: int, flags: int, body: bytes, action: str, ignored: int = 0
    ) -> None:
        self._requests.append(
            _NetlinkRequest(kind, flags | NLM_F_REQUEST | NLM_F_ACK, body, action, ignored)
        )

    def apply(self) -> None:
        """Apply all interface changes; raise OSError for the first that the kernel refuses."""
        requests, self._requests = self._requests, []
        if not requests:
            return  # no changes: the kernel rejects an empty netlink batch
        parts = [
            _MESSAGE.pack(_MESSAGE.size + len(each.body), each.kind, each.flags, 0, 0) + each.body
            for each in requests
        ]
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
            kernel.send(b"".join(parts))
            for request in requests:  # the kernel answers each netlink request, in order
                error = -struct.unpack_from("=i", kernel.recv(LONGEST_ANSWER), _MESSAGE.size)[0]
                if error not in (0, request.ignored_error):
                    raise OSError(error, f"cannot {request.action}: {os.strerror(error)}")


def _filter_body(index: int, *, egress: bool) -> bytes:
    """Return the netlink message body that identifies Pillarbox's filter at an interface."""
    parent = OUTGOING if egress else INCOMING
    body = _FILTER_BODY.pack(
        socket.AF_UNSPEC, 0, index, FILTER, parent, FIRST | socket.htons(ETH_P_ALL)
    )
    return body + _text_attribute(TCA_KIND, b"bpf")


def _text_attribute(kind: int, value: bytes) -> bytes:
    """Return a netlink attribute with a text value."""
    return _attribute(kind, value + b"\0")


def _attribute(kind: int, data: bytes) -> bytes:
    """Return a netlink attribute with header and padding."""
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(data), kind) + data + bytes(-len(data) % 4)


def _number_attribute(kind: int, value: int) -> bytes:
    """Return a netlink attribute with a 32-bit value."""
    return _attribute(kind, _NUMBER.pack(value))


class InterfaceQueries:
    """Queries of the network interfaces in this thread's namespace: carrier, byte counters."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        # The counter file (/proc/net/dev) stays open, since a lab reads it hundreds of times per
        # second.
        self._counters = os.open("/proc/thread-self/net/dev", os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        """Close the ioctl socket and the file of byte counters (/proc/net/dev)."""
        self._socket.close()
        os.close(self._counters)

    def has_carrier(self, name: str) -> bool:
        """Return True if an interface has carrier; False without one, or if it does not exist."""
        try:
            return bool(self._interface_flags(name) & IFF_RUNNING)
        except OSError:
            return False

    def byte_counters(self) -> dict[str, tuple[int, int]]:
        """Return the byte counters (received, sent) of all interfaces by name."""
        counters = {}
        for line in os.pread(self._counters, 1 << 16, 0).splitlines()[2:]:
            name, *numbers = line.split()
            counters[name.rstrip(b":").decode()] = (int(numbers[0]), int(numbers[8]))
        return counters

    def _interface_flags(self, name: str) -> int:
        """Return the flags (IFF_UP, ...) of a network interface."""
        flags: int = struct.unpack_from("=H", self._ioctl(SIOCGIFFLAGS, name, b""), 16)[0]
        return flags

    def _ioctl(self, request: int, name: str, argument: bytes) -> bytes:
        """Execute an ioctl(2) for a network interface; return the resulting struct ifreq."""
        return fcntl.ioctl(self._socket, request, struct.pack("16s24s", name.encode(), argument))
