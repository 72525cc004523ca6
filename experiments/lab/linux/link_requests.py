"""Rtnetlink requests for links, addresses, routes and neighbours; see `pillarbox.hosts.linux`."""

from __future__ import annotations

import socket
import struct
from typing import NamedTuple

from pillarbox.hosts.linux import netlink_numbers as nl
from pillarbox.hosts.linux.netlink import Message, attribute, interface, number, text

STP_DELAY_CS = 200  # minimum forward delay of the STP standard, in 1/100 s
TUNNEL_TTL = 64  # time to live of a VXLAN tunnel's outer IP packets


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
        body += number(nl.IFLA_MASTER, bridge)
    kind = text(nl.IFLA_INFO_KIND, "veth") + attribute(
        nl.IFLA_INFO_DATA, attribute(nl.VETH_INFO_PEER, inner)
    )
    body += attribute(nl.IFLA_LINKINFO, kind)
    deed = f"make the cable {near.name} - {far.name}"
    return Message(nl.RTM_NEWLINK, nl.NLM_F_CREATE | nl.NLM_F_EXCL, body, deed)


def _end_attributes(end: End, mtu: int, group: int) -> bytes:
    body = interface(end.ifindex) + text(nl.IFLA_IFNAME, end.name) + number(nl.IFLA_MTU, mtu)
    body += number(nl.IFLA_NUM_TX_QUEUES, 1) + number(nl.IFLA_NUM_RX_QUEUES, 1)
    body += number(nl.IFLA_GROUP, group) + number(nl.IFLA_NET_NS_FD, end.namespace)
    if end.mac:
        body += attribute(nl.IFLA_ADDRESS, mac_bytes(end.mac))
    return body


def bridge(name: str, index: int, *, group: int = 0, priority: int | None = None) -> Message:
    """Return the request for a bridge without forward delay; with `priority`, a spanning tree."""
    data = number(nl.IFLA_BR_FORWARD_DELAY, 0 if priority is None else STP_DELAY_CS)
    data += number(nl.IFLA_BR_STP_STATE, priority is not None)
    if priority is not None:
        data += attribute(nl.IFLA_BR_PRIORITY, struct.pack("=H", priority))
    data += attribute(nl.IFLA_BR_MCAST_SNOOPING, b"\0")
    body = interface(index) + text(nl.IFLA_IFNAME, name) + number(nl.IFLA_GROUP, group)
    kind = text(nl.IFLA_INFO_KIND, "bridge") + attribute(nl.IFLA_INFO_DATA, data)
    body += attribute(nl.IFLA_LINKINFO, kind)
    return Message(nl.RTM_NEWLINK, nl.NLM_F_CREATE | nl.NLM_F_EXCL, body, f"make the switch {name}")


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
    data = number(nl.IFLA_VXLAN_ID, outside.vni)
    data += attribute(nl.IFLA_VXLAN_GROUP, socket.inet_aton(outside.remote))
    data += attribute(nl.IFLA_VXLAN_LOCAL, socket.inet_aton(outside.local))
    data += attribute(nl.IFLA_VXLAN_TTL, bytes([TUNNEL_TTL]))
    data += attribute(nl.IFLA_VXLAN_LEARNING, b"\0")
    data += attribute(nl.IFLA_VXLAN_PORT, struct.pack("!H", outside.port))
    data += attribute(nl.IFLA_VXLAN_UDP_CSUM, b"\0")  # "SHOULD be transmitted as zero": section 5
    kind = text(nl.IFLA_INFO_KIND, "vxlan") + attribute(nl.IFLA_INFO_DATA, data)
    body = _end_attributes(end, mtu, group) + attribute(nl.IFLA_LINKINFO, kind)
    deed = f"make the tunnel {end.name} to {outside.remote}"
    return Message(nl.RTM_NEWLINK, nl.NLM_F_CREATE | nl.NLM_F_EXCL, body, deed)


def redirect_tunnel(index: int, remote: str) -> Message:
    """Return the request that changes the remote address of a VXLAN device."""
    data = attribute(nl.IFLA_VXLAN_GROUP, socket.inet_aton(remote))
    kind = text(nl.IFLA_INFO_KIND, "vxlan") + attribute(nl.IFLA_INFO_DATA, data)
    body = interface(index) + attribute(nl.IFLA_LINKINFO, kind)
    return Message(nl.RTM_NEWLINK, 0, body, f"let tunnel {index} lead to {remote}")


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
    flags = nl.IFF_UP if up else 0
    body = interface(index, flags, 0 if up is None else nl.IFF_UP)
    if name is not None:
        body += text(nl.IFLA_IFNAME, name)
    if mac is not None:
        body += attribute(nl.IFLA_ADDRESS, mac_bytes(mac))
    if bridge is not None:
        body += number(nl.IFLA_MASTER, bridge)
    if no_ipv6_address:
        mode = attribute(nl.IFLA_INET6_ADDR_GEN_MODE, bytes([nl.IN6_ADDR_GEN_MODE_NONE]))
        body += attribute(nl.IFLA_AF_SPEC, attribute(socket.AF_INET6, mode))
    return Message(nl.RTM_NEWLINK, 0, body, deed or f"change interface {index}")


def no_flood(port: int) -> Message:
    """Return the request that keeps broadcasts and unknown addresses from leaving a bridge port."""
    off = b"".join(
        attribute(flag, b"\0")
        for flag in (
            nl.IFLA_BRPORT_UNICAST_FLOOD,
            nl.IFLA_BRPORT_MCAST_FLOOD,
            nl.IFLA_BRPORT_BCAST_FLOOD,
        )
    )
    kind = text(nl.IFLA_INFO_SLAVE_KIND, "bridge") + attribute(nl.IFLA_INFO_SLAVE_DATA, off)
    body = interface(port) + attribute(nl.IFLA_LINKINFO, kind)
    return Message(nl.RTM_NEWLINK, 0, body, f"end floods at port {port}")


def delete(index: int, deed: str = "") -> Message:
    """Return the request that deletes one link (and with a veth its peer)."""
    return Message(nl.RTM_DELLINK, 0, interface(index), deed or f"delete interface {index}")


def delete_group(group: int) -> Message:
    """Return the netlink request that deletes all interfaces of a device group.

    Individual deletions would take 20 ms each, waiting for other processors.
    """
    body = interface() + number(nl.IFLA_GROUP, group)
    return Message(nl.RTM_DELLINK, 0, body, f"delete the links of group {group:#x}")


# -- addresses, routes, neighbours -------------------------------------------------------------


def add_address(index: int, ip: str, prefix_length: int) -> Message:
    """Return the request that gives an interface an IPv4 address."""
    packed = socket.inet_aton(ip)
    host_bits = 0xFFFFFFFF >> prefix_length
    broadcast = (int.from_bytes(packed, "big") | host_bits).to_bytes(4, "big")
    body = _address(index, packed, prefix_length)
    if prefix_length < 31:
        body += attribute(nl.IFA_BROADCAST, broadcast)
    return Message(
        nl.RTM_NEWADDR,
        nl.NLM_F_CREATE | nl.NLM_F_REPLACE,
        body,
        f"set the address {ip}/{prefix_length}",
    )


def delete_address(index: int, ip: str, prefix_length: int) -> Message:
    """Return the request that removes an IPv4 address from an interface."""
    body = _address(index, socket.inet_aton(ip), prefix_length)
    return Message(nl.RTM_DELADDR, 0, body, f"remove the address {ip}/{prefix_length}")


def _address(index: int, packed: bytes, prefix_length: int) -> bytes:
    fixed = struct.pack("=BBBBI", socket.AF_INET, prefix_length, 0, 0, index)
    return fixed + attribute(nl.IFA_LOCAL, packed) + attribute(nl.IFA_ADDRESS, packed)


def add_route(destination: str, prefix_length: int, index: int, gateway: str = "") -> Message:
    """Return the request for an IPv4 route through an interface."""
    scope = nl.RT_SCOPE_UNIVERSE if gateway else nl.RT_SCOPE_LINK
    how = nl.RT_TABLE_MAIN, nl.RTPROT_STATIC, scope, nl.RTN_UNICAST
    body = struct.pack("=BBBBBBBBI", socket.AF_INET, prefix_length, 0, 0, *how, 0)
    body += number(nl.RTA_OIF, index)
    if prefix_length:
        body += attribute(nl.RTA_DST, socket.inet_aton(destination))
    if gateway:
        body += attribute(nl.RTA_GATEWAY, socket.inet_aton(gateway))
    deed = f"set the route to {destination}/{prefix_length}"
    return Message(nl.RTM_NEWROUTE, nl.NLM_F_CREATE | nl.NLM_F_REPLACE, body, deed)


def add_neighbour(index: int, ip: str, mac: str) -> Message:
    """Return the request for a permanent entry in the neighbour (ARP) table."""
    fixed = struct.pack("=BxHiHBB", socket.AF_INET, 0, index, nl.NUD_PERMANENT, 0, 0)
    body = fixed + attribute(nl.NDA_DST, socket.inet_aton(ip))
    body += attribute(nl.NDA_LLADDR, mac_bytes(mac))
    return Message(
        nl.RTM_NEWNEIGH, nl.NLM_F_CREATE | nl.NLM_F_REPLACE, body, f"set the MAC address of {ip}"
    )


def add_fdb_entry(index: int, mac: str) -> Message:
    """Return the request for a bridge's forwarding entry: the port of a MAC address."""
    fixed = struct.pack("=BxHiHBB", nl.AF_BRIDGE, 0, index, nl.NUD_NOARP, nl.NTF_MASTER, 0)
    body = fixed + attribute(nl.NDA_LLADDR, mac_bytes(mac))
    return Message(
        nl.RTM_NEWNEIGH, nl.NLM_F_CREATE | nl.NLM_F_REPLACE, body, f"set the port of {mac}"
    )
