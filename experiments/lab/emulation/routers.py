"""Switches as Linux routers: one namespace each, kernel forwarding, static neighbours without ARP.

Each entry of `switch_tables` becomes one route for a server, with several next hops if several
ports lead to it; the kernel then selects one by a hash of addresses and ports (equal-cost
multi-path). No cable has a subnet. A route names the next node's own address, and a permanent
neighbour entry gives the MAC address of its port, so no ARP request is ever sent. Likewise, a
server sends all packets to the switch it is attached to::

    h0   10.0.0.0/8 via 10.0.0.1 dev h0-eth0 onlink
    s8   10.2.0.3   via 10.4.1.2 dev s8-eth3 onlink

No routing protocol runs. The kernel detects a cable without a carrier, and uses the remaining next
hops; the lab reports remote failures, except for silent cuts, to the switches (`set_failures`), as
a routing protocol would.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable
from typing import Any
from zlib import crc32

from pillarbox.experiments.lab.emulation.defaults import chosen_plane
from pillarbox.experiments.lab.emulation.nodes import LabNode
from pillarbox.experiments.lab.emulation.switch_tables import PORT, Ports, Table, adapts, tables
from pillarbox.experiments.lab.linux import link_requests
from pillarbox.experiments.lab.linux.namespaces import fabric, write_sysctl
from pillarbox.hosts.base.failures import Failures
from pillarbox.hosts.linux import netlink_numbers as nl
from pillarbox.hosts.linux.netlink import Message, attribute, number
from pillarbox.topos.base.addressing import NETWORK, dotted_quad
from pillarbox.topos.base.topology import Plug, Topology

RTNH_F_ONLINK = 4
LOOPBACK = 1  # index of the loopback interface in every namespace
HASH_SEED = "net/ipv4/fib_multipath_hash_seed"

ROUTER_SYSCTLS = {
    "net/ipv4/ip_forward": "1",
    # multipath hash over addresses and ports, not addresses alone
    "net/ipv4/fib_multipath_hash_policy": "1",
    "net/ipv4/conf/all/ignore_routes_with_linkdown": "1",
    "net/ipv4/conf/all/send_redirects": "0",
    "net/ipv4/conf/default/send_redirects": "0",
    "net/ipv4/icmp_ratelimit": "0",  # no limit of ICMP errors: traceroute gets every answer
}


class SwitchNode(LabNode):
    """A switch that is not a kernel bridge; its start needs no action."""

    bridge = 0  # interface index of the switch's kernel bridge; 0: no bridge

    def start(self, _controllers: object) -> None:
        """Do nothing: the switch needs no start."""

    def stop(self, deleteIntfs: bool = True) -> None:  # noqa: N803 - as Mininet calls it
        """Remove the ports of a routing switch."""
        if deleteIntfs:
            self.deleteIntfs()


class Switches:
    """The routing switches of a running lab.

    Parameters
    ----------
    topology : Topology
        The network.
    routing : str
        Name of one of the network's algorithms.
    seed : int
        Seed of the hash that selects next hops.
    """

    name: str
    node: type[SwitchNode]

    def __init__(self, topology: Topology, routing: str, seed: int) -> None:
        self.topology, self.routing, self.seed = topology, routing, seed

    def start(self, net: Any) -> None:
        """Set each server's default gateway to its switch; subclasses also start routing."""
        with fabric().batch():
            for server in range(self.topology.servers):
                # servers on other machines have no Mininet host in this process
                if self.topology.node_name(server) in net:
                    self.admit(net, server)

    def admit(self, net: Any, server: int) -> None:
        """Set the gateway of a server that has started to its switch."""
        set_default_gateway(net, self.topology, server)

    def servers_plane(self, asked: str) -> str:
        """Return the forwarding plane (``python`` or ``ebpf``) of servers that relay packets."""
        return chosen_plane(asked)

    def stop(self) -> None:
        """End the processes of routing switches that would outlive the lab's namespaces."""

    def set_failures(self, failures: Failures) -> None:
        """Report failures of cables and nodes to switches that do not detect failures."""


class LabRouter(SwitchNode):
    """A switch that is a Linux router: a network namespace in which the kernel forwards IP."""

    def __init__(self, name: str, *args: Any, **params: Any) -> None:
        super().__init__(name, *args, **params | {"inNamespace": True})
        with self.live_namespace():
            for setting, value in ROUTER_SYSCTLS.items():
                write_sysctl(setting, value)
        self.send(link_requests.change(LOOPBACK, up=True, deed=f"set {name}'s loopback up"))


class Routers(Switches):
    """Switches of a lab that are Linux routers, with IP addresses and kernel routing tables."""

    name = "routers"
    node = LabRouter

    def __init__(self, topology: Topology, routing: str, seed: int) -> None:
        super().__init__(topology, routing, seed)
        self._net: Any = None
        self._tables: list[Table] = [{} for _ in range(topology.switches)]

    def start(self, net: Any) -> None:
        """Install ARP entries in every node, and the routing table of every switch."""
        self._net = net
        with fabric().batch():
            super().start(net)
            for switch in range(self.topology.switches):
                if f"s{switch}" in net:
                    self._set_addresses(switch)
            self.set_failures(Failures())

    def set_failures(self, failures: Failures) -> None:
        """Replace those kernel routes of switches that the routing changes because of failures."""
        if self._net is None or (any(self._tables) and not adapts(self.topology, self.routing)):
            return
        wanted = tables(self.topology, self.routing, failures)
        with fabric().batch():
            for switch, table in enumerate(wanted):
                if f"s{switch}" not in self._net:
                    continue
                before = self._tables[switch]
                gone = [
                    self._delete_route_request(server) for server in before.keys() - table.keys()
                ]
                new = [
                    self._add_route_request(switch, server, ports)
                    for server, ports in table.items()
                    if before.get(server) != ports
                ]
                self._node(switch).send(*gone, *new)
        self._tables = wanted

    def _set_addresses(self, switch: int) -> None:
        node = self._node(switch)
        own = dotted_quad(self.topology.switch_ipv4(switch))
        node.send(link_requests.add_address(LOOPBACK, own, 32))
        for port, plug in self.topology.neighbours(self.topology.servers + switch):
            node.send(
                link_requests.add_neighbour(
                    node.intfs[port].ifindex,
                    self._ip(plug),
                    self.topology.mac(plug.node, plug.port),
                )
            )
        # Switches with equal hashes would all make the same choice for the same flows (hash
        # polarisation): each switch gets its own seed if the kernel supports it (Linux 6.11).
        with node.live_namespace():
            write_sysctl(HASH_SEED, str(1 + crc32(b"%d %d" % (self.seed, switch)) % 0xFFFFFFFF))

    def _add_route_request(self, switch: int, server: int, ports: Ports) -> Message:
        intfs, ip = self._node(switch).intfs, self.topology.ip(server)
        plugs = ((port, self.topology.switch_plug(switch, port)) for port in ports)
        hops = ((self._ip(plug), intfs[port].ifindex) for port, plug in plugs)
        return multipath_route_request(ip, 32, hops, f"route {ip} on s{switch}")

    def _delete_route_request(self, server: int) -> Message:
        ip = self.topology.ip(server)
        return Message(nl.RTM_DELROUTE, 0, _route_request_header(ip), f"remove the route to {ip}")

    def _ip(self, plug: Plug) -> str:
        if plug.node < self.topology.servers:
            return self.topology.ip(plug.node)
        return dotted_quad(self.topology.switch_ipv4(plug.node - self.topology.servers))

    def _node(self, switch: int) -> Any:
        return self._net[f"s{switch}"]


def multipath_route_request(
    ip: str, prefix_length: int, hops: Iterable[tuple[str, int]], deed: str
) -> Message:
    """Return the request for a multipath route; each hop is an address and an interface."""
    several = b""
    for gateway, index in hops:
        via = attribute(nl.RTA_GATEWAY, socket.inet_aton(gateway))
        several += struct.pack("=HBBi", 8 + len(via), RTNH_F_ONLINK, 0, index) + via
    body = _route_request_header(ip, prefix_length) + attribute(nl.RTA_MULTIPATH, several)
    return Message(nl.RTM_NEWROUTE, nl.NLM_F_CREATE | nl.NLM_F_REPLACE, body, deed)


def set_default_gateway(net: Any, topology: Topology, server: int) -> None:
    """Set the gateway of a server to the switch it is attached to."""
    host, plug = net[topology.node_name(server)], topology.server_plug(server, PORT)
    gateway = dotted_quad(topology.switch_ipv4(plug.node - topology.servers))
    intf = host.intfs[PORT]
    intf.setIP(topology.ip(server), 32)
    body = _route_request_header(dotted_quad(NETWORK), 8, RTNH_F_ONLINK) + number(
        nl.RTA_OIF, intf.ifindex
    )
    body += attribute(nl.RTA_GATEWAY, socket.inet_aton(gateway))
    deed = f"set the gateway of {host.name}"
    host.send(
        link_requests.add_neighbour(intf.ifindex, gateway, topology.mac(plug.node, plug.port)),
        Message(nl.RTM_NEWROUTE, nl.NLM_F_CREATE | nl.NLM_F_REPLACE, body, deed),
    )


def _route_request_header(ip: str, prefix_length: int = 32, flags: int = 0) -> bytes:
    """Return the header of a request about the route to a prefix."""
    fixed = struct.pack(
        "=BBBBBBBBI",
        *(
            socket.AF_INET,
            prefix_length,
            0,
            0,
            nl.RT_TABLE_MAIN,
            nl.RTPROT_STATIC,
            0,
            nl.RTN_UNICAST,
            flags,
        ),
    )
    return fixed + attribute(nl.RTA_DST, socket.inet_aton(ip))
