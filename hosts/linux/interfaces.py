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
from collections.abc import Iterable, Mapping

from pillarbox.hosts.linux import netlink_numbers as nl
from pillarbox.hosts.linux.netlink import (
    Message,
    Netlink,
    NetlinkError,
    attribute,
    interface,
    number,
    tc_header,
    text,
)

SIOCGIFFLAGS = 0x8913
RP_FILTER, ACCEPT_LOCAL = 8, 23  # numbers of settings of net.ipv4.conf, from linux/ip.h
# tc filter of a server at an interface: handle 1; priority 1, in the upper 16 bits of tcm_info
FILTER, FIRST = 1, 1 << 16
MOST_MTU = 65535  # largest MTU of a veth interface, in bytes


class InterfaceChanges:
    """A batch of network interface changes, sent to the kernel together and in order."""

    def __init__(self) -> None:
        self._requests: list[Message] = []

    def _request(
        self, kind: int, flags: int, body: bytes, deed: str, ignored_error: int = 0
    ) -> None:
        self._requests.append(Message(kind, flags, body, deed, ignored_error))

    def set_link(
        self, index: int, settings: Mapping[int, int], *, mtu: int | None = None, up: bool = False
    ) -> None:
        """Add to the batch: IPv4 settings and MTU of an interface, and with `up` bring it up."""
        flags = nl.IFF_UP if up else 0
        body = interface(index, flags, flags)
        if mtu is not None:
            body += number(nl.IFLA_MTU, mtu)
        values = b"".join(number(kind, value) for kind, value in settings.items())
        of_ipv4 = attribute(socket.AF_INET, attribute(nl.IFLA_INET_CONF, values))
        body += attribute(nl.IFLA_AF_SPEC, of_ipv4)
        self._request(nl.RTM_SETLINK, 0, body, f"set up interface {index}")

    def create_veth_pair(
        self, near: tuple[str, bytes | None], far: tuple[str, bytes | None], namespace: int
    ) -> None:
        """Add to the batch: a veth pair by names and MAC addresses, the far end in a namespace.

        The near end is up, and neither end uses ARP.
        """
        flags = nl.IFF_NOARP
        peer = _end_of_pair(*far, flags) + number(nl.IFLA_NET_NS_FD, namespace)
        pair = text(nl.IFLA_INFO_KIND, "veth")
        pair += attribute(nl.IFLA_INFO_DATA, attribute(nl.VETH_INFO_PEER, peer))
        body = _end_of_pair(*near, flags | nl.IFF_UP) + attribute(nl.IFLA_LINKINFO, pair)
        exclusive = nl.NLM_F_CREATE | nl.NLM_F_EXCL
        self._request(nl.RTM_NEWLINK, exclusive, body, f"create {far[0]}")

    def delete(self, name: str) -> None:
        """Add to the batch: delete an interface, if it exists."""
        body = interface() + text(nl.IFLA_IFNAME, name)
        self._request(nl.RTM_DELLINK, 0, body, f"delete {name}", errno.ENODEV)

    def add_address(self, index: int, ipv4: int, prefix_length: int) -> None:
        """Add to the batch: give an interface an IPv4 address."""
        packed = ipv4.to_bytes(4, "big")
        body = struct.pack("=BBBBI", socket.AF_INET, prefix_length, 0, 0, index)
        body += attribute(nl.IFA_LOCAL, packed) + attribute(nl.IFA_ADDRESS, packed)
        self._request(nl.RTM_NEWADDR, nl.NLM_F_CREATE, body, f"give interface {index} its address")

    def route_everything_to(self, index: int) -> None:
        """Add a default route through an interface to the batch of changes."""
        how = nl.RT_TABLE_MAIN, nl.RTPROT_STATIC, nl.RT_SCOPE_LINK, nl.RTN_UNICAST
        body = struct.pack("=BBBBBBBBI", socket.AF_INET, 0, 0, 0, *how, 0) + number(
            nl.RTA_OIF, index
        )
        self._request(
            nl.RTM_NEWROUTE, nl.NLM_F_CREATE, body, f"route everything to interface {index}"
        )

    def add_address_network(
        self, index: int, addresses: Iterable[int], network: tuple[int, int], source: int
    ) -> None:
        """Add to the batch: addresses of an interface, and the route to their network.

        `network` is address and prefix length; packets to it have the source address `source`.
        """
        for address in addresses:  # a shorter prefix would make the kernel add another route
            self.add_address(index, address, 32)
        first, prefix_length = network
        how = nl.RT_TABLE_MAIN, nl.RTPROT_STATIC, nl.RT_SCOPE_LINK, nl.RTN_UNICAST
        body = struct.pack("=BBBBBBBBI", socket.AF_INET, prefix_length, 0, 0, *how, 0)
        body += attribute(nl.RTA_DST, first.to_bytes(4, "big")) + number(nl.RTA_OIF, index)
        body += attribute(nl.RTA_PREFSRC, source.to_bytes(4, "big"))
        deed = f"route a network to interface {index}"
        self._request(nl.RTM_NEWROUTE, nl.NLM_F_CREATE, body, deed)

    def attach(self, index: int, program: int, *, egress: bool) -> None:
        """Add to the batch: attach an eBPF program to an interface as a clsact filter."""
        action = f"attach a program to interface {index}"
        place = tc_header(index, nl.CLSACT_HANDLE, nl.CLSACT_PARENT)
        place += text(nl.TCA_KIND, "clsact")
        # The interface may already have a clsact qdisc, or an ingress qdisc in its place.
        self._request(nl.RTM_NEWQDISC, nl.NLM_F_CREATE | nl.NLM_F_EXCL, place, action, errno.EEXIST)
        options = number(nl.TCA_BPF_FD, program) + text(nl.TCA_BPF_NAME, "pillarbox")
        options += number(nl.TCA_BPF_FLAGS, nl.TCA_BPF_FLAG_ACT_DIRECT)
        body = _filter_body(index, egress=egress) + attribute(nl.TCA_OPTIONS, options)
        self._request(nl.RTM_NEWTFILTER, nl.NLM_F_CREATE | nl.NLM_F_REPLACE, body, action)

    def detach(self, index: int, *, egress: bool) -> None:
        """Add to the batch: remove the eBPF filter that `attach` has added to an interface."""
        action = f"detach a program from interface {index}"
        self._request(nl.RTM_DELTFILTER, 0, _filter_body(index, egress=egress), action)

    def apply(self) -> None:
        """Apply all interface changes; raise OSError for the first that the kernel refuses."""
        requests, self._requests = self._requests, []
        kernel = Netlink()
        try:
            kernel.send(requests)
        except NetlinkError as error:
            raise OSError(error.errno, str(error)) from None
        finally:
            kernel.close()


def _end_of_pair(name: str, mac: bytes | None, flags: int) -> bytes:
    """Return the netlink message body of one end of a veth pair."""
    body = interface(0, flags, flags) + text(nl.IFLA_IFNAME, name) + number(nl.IFLA_MTU, MOST_MTU)
    body += number(nl.IFLA_NUM_TX_QUEUES, 1) + number(nl.IFLA_NUM_RX_QUEUES, 1)
    return body + (attribute(nl.IFLA_ADDRESS, mac) if mac else b"")


def _filter_body(index: int, *, egress: bool) -> bytes:
    """Return the netlink message body that identifies Pillarbox's filter at an interface."""
    parent = nl.CLSACT_EGRESS if egress else nl.CLSACT_INGRESS
    protocol = FIRST | socket.htons(nl.ETH_P_ALL)
    return tc_header(index, FILTER, parent, protocol) + text(nl.TCA_KIND, "bpf")


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
            return bool(self._interface_flags(name) & nl.IFF_RUNNING)
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
