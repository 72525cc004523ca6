"""Rtnetlink client: many requests in one system call, with an error message for each.

Tools such as ``ip`` cost a process for each request, 3 ms; a request in a batch costs 0.25 ms for a
cable, nearly all of it the kernel's own work. A request is a `Message`. Modules that create
requests: `pillarbox.hosts.linux.interfaces` for the interfaces of a server, and in
`pillarbox.experiments.lab.linux` `link_requests`, `shaping` and `cable_programs` for links, queues
and filters of a lab.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from _thread import allocate_lock  # `threading` would make every forked server larger
from collections.abc import Container, Iterator, Sequence
from typing import NamedTuple

from pillarbox.hosts.linux import netlink_numbers as nl
from pillarbox.hosts.linux.calls import set_buffer_bytes
from pillarbox.topos.base.errors import KernelError

HEADER = struct.Struct("=IHHII")  # struct nlmsghdr: length, type, flags, sequence, port
LINK = struct.Struct("=BxHiII")  # struct ifinfomsg: family, type, index, flags, changed flags
TC = struct.Struct("=BxHiIII")  # struct tcmsg: family, interface index, handle, parent, info
LONGEST_ANSWER = 1 << 18  # size of the receive buffer of netlink answers, in bytes
CHUNK_BYTES = 64 * 1024  # bytes of netlink requests per system call
BUFFER_BYTES = 8 << 20  # netlink socket's buffer in bytes, for the answers to many requests


class Message(NamedTuple):
    """A netlink request to the kernel; `deed` names its purpose in error messages."""

    kind: int
    flags: int
    body: bytes
    deed: str
    ignored_error: int = 0  # errno in the kernel's answer that counts as success


class NetlinkError(KernelError):
    """Error of a netlink request that the kernel refused; `errno` is its error number."""

    def __init__(self, code: int, deed: str, detail: str) -> None:
        self.errno = code
        reason = os.strerror(code) + (f" ({detail})" if detail else "")
        if code == errno.EPERM:
            hint = ": run as root"
        elif code == errno.EEXIST:
            hint = ": another lab or program uses that name; end it, or use the sandbox"
        else:
            hint = ""
        super().__init__(f"the kernel refused to {deed}: {reason}{hint}")


class Interface(NamedTuple):
    """A network interface, as the kernel describes it."""

    ifindex: int
    name: str
    up: bool
    carrier: bool
    master: int  # interface index of the bridge whose port it is, or 0
    group: int
    mac: str
    mtu: int


# -- attributes --------------------------------------------------------------------------------


def attribute(kind: int, data: bytes) -> bytes:
    """Return a netlink attribute: length, kind, data, padding to 4 bytes."""
    length = len(data) + 4
    return struct.pack("=HH", length, kind) + data + bytes(-length % 4)


def number(kind: int, value: int) -> bytes:
    """Return a netlink attribute that holds a 32-bit number."""
    return struct.pack("=HHI", 8, kind, value)


def text(kind: int, value: str) -> bytes:
    """Return a netlink attribute that holds a string."""
    return attribute(kind, value.encode() + b"\0")


def attributes(data: bytes, offset: int) -> Iterator[tuple[int, bytes]]:
    """Yield kind and data of each netlink attribute in a message, from an offset."""
    while offset + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, offset)
        if length < 4:
            return
        yield kind & 0x3FFF, data[offset + 4 : offset + length]
        offset += length + (-length % 4)


def received_messages(data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """Yield type, flags, sequence number and payload of each netlink message from the kernel."""
    offset = 0
    while offset + HEADER.size <= len(data):
        length, kind, flags, sequence, _ = HEADER.unpack_from(data, offset)
        yield kind, flags, sequence, data[offset + HEADER.size : offset + length]
        offset += max(HEADER.size, length + (-length % 4))


def interface(index: int = 0, flags: int = 0, change: int = 0, family: int = 0) -> bytes:
    """Return the fixed part (ifinfomsg) of a request about a link."""
    return LINK.pack(family, 0, index, flags, change)


def tc_header(index: int, handle: int, parent: int, info: int = 0) -> bytes:
    """Return the fixed part (tcmsg) of a request about a queueing discipline, class or filter."""
    return TC.pack(0, 0, index, handle, parent, info)


# -- the socket --------------------------------------------------------------------------------


class Netlink:
    """A netlink socket of the network namespace in which it was opened.

    Its protocol is rtnetlink, or generic netlink (`nl.NETLINK_GENERIC`).
    """

    def __init__(self, protocol: int = socket.NETLINK_ROUTE) -> None:
        self._socket = socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol
        )
        set_buffer_bytes(self._socket, BUFFER_BYTES, sending=False)
        self._socket.setsockopt(nl.SOL_NETLINK, nl.NETLINK_CAP_ACK, 1)
        self._socket.setsockopt(nl.SOL_NETLINK, nl.NETLINK_EXT_ACK, 1)
        self._socket.bind((0, 0))
        self._sequence = 0
        self._lock = allocate_lock()  # one thread at a time sends requests and reads answers

    def close(self) -> None:
        """Close the netlink socket."""
        self._socket.close()

    def send(self, messages: Sequence[Message], ignore: Container[int] = ()) -> None:
        """Send netlink requests in order; raise NetlinkError for the first that is refused.

        Requests after a refused one are executed as well. Errors in `ignore` are ignored.
        """
        first_error: NetlinkError | None = None
        start = 0
        while start < len(messages):
            end, size = start, 0
            while end < len(messages) and size < CHUNK_BYTES:
                size += 20 + len(messages[end].body)
                end += 1
            with self._lock:
                error = self._send_chunk(messages[start:end], ignore)
            first_error = first_error or error
            start = end
        if first_error:
            raise first_error

    def _send_chunk(
        self, messages: Sequence[Message], ignore: Container[int]
    ) -> NetlinkError | None:
        base = self._sequence + 1
        parts = []
        for i, message in enumerate(messages):
            # The kernel acknowledges the last request only, and reports every refused request.
            flags = (
                message.flags | nl.NLM_F_REQUEST | (nl.NLM_F_ACK if i == len(messages) - 1 else 0)
            )
            length = HEADER.size + len(message.body)
            parts.append(HEADER.pack(length, message.kind, flags, base + i, 0))
            parts.append(message.body + bytes(-length % 4))
        self._sequence = base + len(messages) - 1
        self._socket.send(b"".join(parts))
        first_error = None
        while True:
            for kind, flags, sequence, payload in received_messages(
                self._socket.recv(LONGEST_ANSWER)
            ):
                if kind != nl.NLMSG_ERROR or sequence < base:
                    continue
                code = -struct.unpack_from("=i", payload)[0]
                deed, ignored = messages[sequence - base][-2:]
                if code not in (0, ignored) and code not in ignore and first_error is None:
                    first_error = NetlinkError(code, deed, _detail(flags, payload))
                if sequence == self._sequence:
                    return first_error

    def links(self) -> list[Interface]:
        """Return all network interfaces of the namespace."""
        return [
            _link(payload) for payload in self.dump(nl.RTM_GETLINK, interface(), "list the links")
        ]

    def link_with(self, ip: str) -> Interface | None:
        """Return the network interface with an IPv4 address, None if no interface has it."""
        family = struct.pack("=BBBBI", socket.AF_INET, 0, 0, 0, 0)
        for payload in self.dump(nl.RTM_GETADDR, family, "list the addresses"):
            index = struct.unpack_from("=I", payload, 4)[0]
            if dict(attributes(payload, 8)).get(2) == socket.inet_aton(ip):  # nl.IFA_LOCAL
                return next(link for link in self.links() if link.ifindex == index)
        return None

    def dump(self, kind: int, body: bytes, deed: str) -> list[bytes]:
        """Return a netlink dump: the payload of each object of a kind, such as a link."""
        with self._lock:
            return list(self._dump(kind, body, deed))

    def _dump(self, kind: int, body: bytes, deed: str) -> Iterator[bytes]:
        self._sequence += 1
        flags = nl.NLM_F_REQUEST | nl.NLM_F_DUMP
        header = HEADER.pack(HEADER.size + len(body), kind, flags, self._sequence, 0)
        self._socket.send(header + body)
        while True:
            for answer, _, _, payload in received_messages(self._socket.recv(LONGEST_ANSWER)):
                if answer == nl.NLMSG_DONE:
                    return
                if answer == nl.NLMSG_ERROR:
                    code = -struct.unpack_from("=i", payload)[0]
                    raise NetlinkError(code, deed, "")
                yield payload


def _detail(flags: int, payload: bytes) -> str:
    """Return the kernel's error text (extended ack) in the payload of a netlink error."""
    if not flags & nl.NLM_F_ACK_TLVS:
        return ""
    length = struct.unpack_from("=I", payload, 4)[0]
    offset = 20 if flags & nl.NLM_F_CAPPED else 4 + length + (-length % 4)
    for kind, data in attributes(payload, offset):
        if kind == nl.NLMSGERR_ATTR_MSG:
            return data.rstrip(b"\0").decode(errors="replace")
    return ""


def _link(payload: bytes) -> Interface:
    _, _, index, flags, _ = LINK.unpack_from(payload)
    found = dict(attributes(payload, 16))

    def value(kind: int) -> int:
        return int.from_bytes(found.get(kind, b""), "little" if _LITTLE else "big")

    return Interface(
        ifindex=index,
        name=found[nl.IFLA_IFNAME].rstrip(b"\0").decode(),
        up=bool(flags & nl.IFF_UP),
        carrier=bool(flags & nl.IFF_LOWER_UP),
        master=value(nl.IFLA_MASTER),
        group=value(nl.IFLA_GROUP),
        mac=found.get(nl.IFLA_ADDRESS, b"").hex(":"),
        mtu=value(nl.IFLA_MTU),
    )


_LITTLE = struct.pack("=H", 1) == b"\1\0"
