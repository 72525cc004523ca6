"""Rtnetlink client: many requests in one system call, with an error message for each.

Tools such as ``ip`` cost a process for each request, 3 ms; a request in a batch costs 0.25 ms for a
cable, nearly all of it the kernel's own work. A request is a `Message`; this module creates
requests for links, addresses, routes and neighbours (`shaping` and `cable_programs` create those
for queues and filters). Names of constants are the kernel's (rtnetlink(7), ``linux/if_link.h``).
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import threading
from collections.abc import Container, Iterator, Sequence
from typing import NamedTuple

from topos.base.errors import PillarboxError

NLMSG_ERROR, NLMSG_DONE = 2, 3
NLM_F_REQUEST, NLM_F_ACK, NLM_F_DUMP = 0x1, 0x4, 0x300
NLM_F_REPLACE, NLM_F_EXCL, NLM_F_CREATE = 0x100, 0x200, 0x400
NLM_F_CAPPED, NLM_F_ACK_TLVS = 0x100, 0x200
NLMSGERR_ATTR_MSG = 1
SOL_NETLINK, NETLINK_CAP_ACK, NETLINK_EXT_ACK = 270, 10, 11
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33

RTM_NEWLINK, RTM_DELLINK, RTM_GETLINK = 16, 17, 18
RTM_NEWADDR, RTM_DELADDR, RTM_GETADDR = 20, 21, 22
RTM_NEWROUTE, RTM_NEWNEIGH = 24, 28

IFF_UP, IFF_LOWER_UP = 0x1, 0x10000
IFLA_ADDRESS, IFLA_IFNAME, IFLA_MTU, IFLA_MASTER, IFLA_LINKINFO = 1, 3, 4, 10, 18
IFLA_AF_SPEC, IFLA_GROUP, IFLA_NET_NS_FD = 26, 27, 28
IFLA_NUM_TX_QUEUES, IFLA_NUM_RX_QUEUES = 31, 32
IFLA_INFO_KIND, IFLA_INFO_DATA, VETH_INFO_PEER = 1, 2, 1
IFLA_BR_FORWARD_DELAY, IFLA_BR_STP_STATE, IFLA_BR_PRIORITY, IFLA_BR_MCAST_SNOOPING = 1, 5, 6, 23
IFLA_VXLAN_ID, IFLA_VXLAN_GROUP, IFLA_VXLAN_LOCAL, IFLA_VXLAN_TTL = 1, 2, 4, 5
IFLA_VXLAN_LEARNING, IFLA_VXLAN_PORT, IFLA_VXLAN_UDP_CSUM, TTL = 7, 15, 18, 64
IFLA_INET6_ADDR_GEN_MODE, IN6_ADDR_GEN_MODE_NONE = 8, 1
AF_BRIDGE = 7
NUD_NOARP, NUD_PERMANENT, NTF_MASTER = 0x40, 0x80, 0x04

CHUNK_BYTES = 64 * 1024  # bytes of netlink requests per system call
BUFFER_BYTES = 8 << 20  # netlink socket's buffer in bytes, for the answers to many requests
STP_DELAY_CS = 200  # minimum forward delay of the STP standard, in 1/100 s


class Message(NamedTuple):
    """A netlink request to the kernel; `deed` names its purpose in error messages."""

    kind: int
    flags: int
    body: bytes
    deed: str


class NetlinkError(PillarboxError):
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


def interface(index: int = 0, flags: int = 0, change: int = 0, family: int = 0) -> bytes:
    """Return the fixed part (ifinfomsg) of a request about a link."""
    return struct.pack("=BxHiII", family, 0, index, flags, change)


def mac_bytes(mac: str) -> bytes:
    """Return the six octets of a MAC address."""
    return bytes.fromhex(mac.replace(":", ""))


# -- links -------------------------------------------------------------------------------------


class End(NamedTuple):
    """One end of a new cable: interface name and index, and its namespace as an open file."""

    name: str
    ifindex: int
    namespace: int
    mac: str | None = None


def cable(near: End, far: End, *, mtu: int, group: int = 0, bridge: int = 0) -> Message:
    """Return the request for a veth pair; with `bridge` the near end becomes a port of the bridge.

    Both ends are created down: an end whose peer does not exist yet cannot be brought up. The two
    indexes must differ: if they are equal, loss of carrier is reported up to a second late.
    """
    inner = _end_attributes(far, mtu, group)
    body = _end_attributes(near, mtu, group)
    if bridge:
        body += number(IFLA_MASTER, bridge)
    kind = text(IFLA_INFO_KIND, "veth") + attribute(
        IFLA_INFO_DATA, attribute(VETH_INFO_PEER, inner)
    )
    body += attribute(IFLA_LINKINFO, kind)
    deed = f"make the cable {near.name} - {far.name}"
    return Message(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, body, deed)


def _end_attributes(end: End, mtu: int, group: int) -> bytes:
    body = interface(end.ifindex) + text(IFLA_IFNAME, end.name) + number(IFLA_MTU, mtu)
    body += number(IFLA_NUM_TX_QUEUES, 1) + number(IFLA_NUM_RX_QUEUES, 1)
    body += number(IFLA_GROUP, group) + number(IFLA_NET_NS_FD, end.namespace)
    if end.mac:
        body += attribute(IFLA_ADDRESS, mac_bytes(end.mac))
    return body


def bridge(name: str, index: int, *, group: int = 0, priority: int | None = None) -> Message:
    """Return the request for a bridge without forward delay; with `priority`, a spanning tree."""
    data = number(IFLA_BR_FORWARD_DELAY, 0 if priority is None else STP_DELAY_CS)
    data += number(IFLA_BR_STP_STATE, priority is not None)
    if priority is not None:
        data += attribute(IFLA_BR_PRIORITY, struct.pack("=H", priority))
    data += attribute(IFLA_BR_MCAST_SNOOPING, b"\0")
    body = interface(index) + text(IFLA_IFNAME, name) + number(IFLA_GROUP, group)
    kind = text(IFLA_INFO_KIND, "bridge") + attribute(IFLA_INFO_DATA, data)
    body += attribute(IFLA_LINKINFO, kind)
    return Message(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, body, f"make the switch {name}")


class VxlanTunnel(NamedTuple):
    """One end of a VXLAN tunnel (RFC 7348): its number, and the two outer addresses."""

    vni: int
    local: str
    remote: str
    port: int


def tunnel(end: End, outside: VxlanTunnel, *, mtu: int, group: int = 0) -> Message:
    """Return the request for a VXLAN device, to be sent in the namespace of the outer address.

    The device is created in the namespace of `end`; its UDP socket in the request's namespace.
    """
    data = number(IFLA_VXLAN_ID, outside.vni)
    data += attribute(IFLA_VXLAN_GROUP, socket.inet_aton(outside.remote))
    data += attribute(IFLA_VXLAN_LOCAL, socket.inet_aton(outside.local))
    data += attribute(IFLA_VXLAN_TTL, bytes([TTL]))
    data += attribute(IFLA_VXLAN_LEARNING, b"\0")
    data += attribute(IFLA_VXLAN_PORT, struct.pack("!H", outside.port))
    data += attribute(IFLA_VXLAN_UDP_CSUM, b"\0")  # "SHOULD be transmitted as zero": section 5
    kind = text(IFLA_INFO_KIND, "vxlan") + attribute(IFLA_INFO_DATA, data)
    body = _end_attributes(end, mtu, group) + attribute(IFLA_LINKINFO, kind)
    deed = f"make the tunnel {end.name} to {outside.remote}"
    return Message(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, body, deed)


def redirect_tunnel(index: int, remote: str) -> Message:
    """Return the request that changes the remote address of a VXLAN device."""
    data = attribute(IFLA_VXLAN_GROUP, socket.inet_aton(remote))
    kind = text(IFLA_INFO_KIND, "vxlan") + attribute(IFLA_INFO_DATA, data)
    body = interface(index) + attribute(IFLA_LINKINFO, kind)
    return Message(RTM_NEWLINK, 0, body, f"let tunnel {index} lead to {remote}")


def change(
    index: int,
    *,
    up: bool | None = None,
    name: str | None = None,
    mac: str | None = None,
    bridge: int | None = None,
    no_ipv6_address: bool = False,
    deed: str = "",
) -> Message:
    """Return the request that changes a link; `bridge` 0 removes a port from its bridge."""
    flags = IFF_UP if up else 0
    body = interface(index, flags, 0 if up is None else IFF_UP)
    if name is not None:
        body += text(IFLA_IFNAME, name)
    if mac is not None:
        body += attribute(IFLA_ADDRESS, mac_bytes(mac))
    if bridge is not None:
        body += number(IFLA_MASTER, bridge)
    if no_ipv6_address:
        mode = attribute(IFLA_INET6_ADDR_GEN_MODE, bytes([IN6_ADDR_GEN_MODE_NONE]))
        body += attribute(IFLA_AF_SPEC, attribute(socket.AF_INET6, mode))
    return Message(RTM_NEWLINK, 0, body, deed or f"change interface {index}")


def delete(index: int, deed: str = "") -> Message:
    """Return the request that deletes one link (and with a veth its peer)."""
    return Message(RTM_DELLINK, 0, interface(index), deed or f"delete interface {index}")


def delete_group(group: int) -> Message:
    """Return the netlink request that deletes all interfaces of a device group.

    Individual deletions would take 20 ms each, waiting for other processors.
    """
    body = interface() + number(IFLA_GROUP, group)
    return Message(RTM_DELLINK, 0, body, f"delete the links of group {group:#x}")


# -- addresses, routes, neighbours -------------------------------------------------------------


def add_address(index: int, ip: str, prefix_length: int) -> Message:
    """Return the request that gives an interface an IPv4 address."""
    packed = socket.inet_aton(ip)
    host_bits = 0xFFFFFFFF >> prefix_length
    broadcast = (int.from_bytes(packed, "big") | host_bits).to_bytes(4, "big")
    body = _address(index, packed, prefix_length)
    if prefix_length < 31:
        body += attribute(4, broadcast)
    return Message(
        RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE, body, f"set the address {ip}/{prefix_length}"
    )


def delete_address(index: int, ip: str, prefix_length: int) -> Message:
    """Return the request that removes an IPv4 address from an interface."""
    body = _address(index, socket.inet_aton(ip), prefix_length)
    return Message(RTM_DELADDR, 0, body, f"remove the address {ip}/{prefix_length}")


def _address(index: int, packed: bytes, prefix_length: int) -> bytes:
    fixed = struct.pack("=BBBBI", socket.AF_INET, prefix_length, 0, 0, index)
    return fixed + attribute(2, packed) + attribute(1, packed)  # IFA_LOCAL, IFA_ADDRESS


def add_route(destination: str, prefix_length: int, index: int, gateway: str = "") -> Message:
    """Return the request for an IPv4 route through an interface."""
    scope = 0 if gateway else 253  # route scope: universe, or link
    fixed = struct.pack(
        "=BBBBBBBBI", socket.AF_INET, prefix_length, 0, 0, 254, 4, scope, 1, 0
    )  # routing table main, protocol static, type unicast
    body = fixed + number(4, index)  # RTA_OIF
    if prefix_length:
        body += attribute(1, socket.inet_aton(destination))  # RTA_DST
    if gateway:
        body += attribute(5, socket.inet_aton(gateway))  # RTA_GATEWAY
    deed = f"set the route to {destination}/{prefix_length}"
    return Message(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, body, deed)


def add_neighbour(index: int, ip: str, mac: str) -> Message:
    """Return the request for a permanent entry in the neighbour (ARP) table."""
    fixed = struct.pack("=BxHiHBB", socket.AF_INET, 0, index, NUD_PERMANENT, 0, 0)
    body = fixed + attribute(1, socket.inet_aton(ip)) + attribute(2, mac_bytes(mac))
    return Message(RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE, body, f"set the MAC address of {ip}")


def add_fdb_entry(index: int, mac: str) -> Message:
    """Return the request for a bridge's forwarding entry: the port of a MAC address."""
    fixed = struct.pack("=BxHiHBB", AF_BRIDGE, 0, index, NUD_NOARP, NTF_MASTER, 0)
    body = fixed + attribute(2, mac_bytes(mac))
    return Message(RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE, body, f"set the port of {mac}")


# -- the socket --------------------------------------------------------------------------------


class Netlink:
    """A rtnetlink socket of the network namespace in which it was opened."""

    def __init__(self) -> None:
        self._socket = socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE
        )
        self._socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
        self._socket.setsockopt(SOL_NETLINK, NETLINK_CAP_ACK, 1)
        self._socket.setsockopt(SOL_NETLINK, NETLINK_EXT_ACK, 1)
        self._socket.bind((0, 0))
        self._sequence = 0
        self._lock = threading.Lock()  # one thread at a time sends requests and reads answers

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
            flags = message.flags | NLM_F_REQUEST | (NLM_F_ACK if i == len(messages) - 1 else 0)
            length = 16 + len(message.body)
            parts.append(struct.pack("=IHHII", length, message.kind, flags, base + i, 0))
            parts.append(message.body + bytes(-length % 4))
        self._sequence = base + len(messages) - 1
        self._socket.send(b"".join(parts))
        first_error = None
        while True:
            for kind, flags, sequence, payload in self._answers():
                if kind != NLMSG_ERROR or sequence < base:
                    continue
                code = -struct.unpack_from("=i", payload)[0]
                if code and code not in ignore and first_error is None:
                    deed = messages[sequence - base].deed
                    first_error = NetlinkError(code, deed, _detail(flags, payload))
                if sequence == self._sequence:
                    return first_error

    def _answers(self) -> Iterator[tuple[int, int, int, bytes]]:
        data = self._socket.recv(1 << 18)
        offset = 0
        while offset + 16 <= len(data):
            length, kind, flags, sequence, _ = struct.unpack_from("=IHHII", data, offset)
            yield kind, flags, sequence, data[offset + 16 : offset + length]
            offset += length + (-length % 4)

    def links(self) -> list[Interface]:
        """Return all network interfaces of the namespace."""
        return [_link(payload) for payload in self.dump(RTM_GETLINK, interface(), "list the links")]

    def link_with(self, ip: str) -> Interface | None:
        """Return the network interface with an IPv4 address, None if no interface has it."""
        family = struct.pack("=BBBBI", socket.AF_INET, 0, 0, 0, 0)
        for payload in self.dump(RTM_GETADDR, family, "list the addresses"):
            index = struct.unpack_from("=I", payload, 4)[0]
            if dict(attributes(payload, 8)).get(2) == socket.inet_aton(ip):  # IFA_LOCAL
                return next(link for link in self.links() if link.ifindex == index)
        return None

    def dump(self, kind: int, body: bytes, deed: str) -> list[bytes]:
        """Return a netlink dump: the payload of each object of a kind, such as a link."""
        with self._lock:
            return list(self._dump(kind, body, deed))

    def _dump(self, kind: int, body: bytes, deed: str) -> Iterator[bytes]:
        self._sequence += 1
        flags = NLM_F_REQUEST | NLM_F_DUMP
        header = struct.pack("=IHHII", 16 + len(body), kind, flags, self._sequence, 0)
        self._socket.send(header + body)
        while True:
            for answer, _, _, payload in self._answers():
                if answer == NLMSG_DONE:
                    return
                if answer == NLMSG_ERROR:
                    code = -struct.unpack_from("=i", payload)[0]
                    raise NetlinkError(code, deed, "")
                yield payload


def _detail(flags: int, payload: bytes) -> str:
    """Return the kernel's error text (extended ack) in the payload of a netlink error."""
    if not flags & NLM_F_ACK_TLVS:
        return ""
    length = struct.unpack_from("=I", payload, 4)[0]
    offset = 20 if flags & NLM_F_CAPPED else 4 + length + (-length % 4)
    for kind, data in attributes(payload, offset):
        if kind == NLMSGERR_ATTR_MSG:
            return data.rstrip(b"\0").decode(errors="replace")
    return ""


def _link(payload: bytes) -> Interface:
    _, _, index, flags, _ = struct.unpack_from("=BxHiII", payload)
    found = dict(attributes(payload, 16))

    def value(kind: int) -> int:
        return int.from_bytes(found.get(kind, b""), "little" if _LITTLE else "big")

    return Interface(
        ifindex=index,
        name=found[IFLA_IFNAME].rstrip(b"\0").decode(),
        up=bool(flags & IFF_UP),
        carrier=bool(flags & IFF_LOWER_UP),
        master=value(IFLA_MASTER),
        group=value(IFLA_GROUP),
        mac=found.get(IFLA_ADDRESS, b"").hex(":"),
        mtu=value(IFLA_MTU),
    )


_LITTLE = struct.pack("=H", 1) == b"\1\0"
