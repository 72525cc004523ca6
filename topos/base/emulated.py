"""Conversion of a network to a Mininet Topo; the only Mininet code of topos/."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Any

from mininet.topo import Topo

from pillarbox.topos.base.errors import PillarboxError, require
from pillarbox.topos.base.spec import parse
from pillarbox.topos.base.topology import Topology

# Maximum number of nodes for Mininet, whose Python objects per node and cable fill the memory.
MOST_EMULATED = 100_000


class EmulatedTopo(Topo):
    """Mininet graph of a network with host names, IP addresses, port numbers and MAC addresses.

    Hosts are ``h0 ...``, switches ``s0 ...``; port numbers are those of the network, so
    that interface ``h3-eth1`` is port 1 of server 3. `self.network` is the Topology.
    """

    def build(
        self,
        topology: Topology,
        link: Mapping[str, Any] | None = None,
        nodes: Container[int] | None = None,
    ) -> None:
        """Add a network's nodes and cables to the Mininet graph; `link` holds link options."""
        topology.check_addressable()
        require(
            topology.nodes <= MOST_EMULATED,
            f"{topology.spec} has {topology.nodes} servers and switches; the maximum for "
            f"Mininet is {MOST_EMULATED}: choose a smaller network, or simulate",
        )
        self.network = topology
        included = range(topology.nodes) if nodes is None else nodes
        for server in range(topology.servers):
            if server not in included:
                continue
            ip = f"{topology.ip(server)}/{topology.ip_prefix_length}"
            self.addHost(topology.node_name(server), ip=ip, mac=topology.mac(server, 0))
        for switch in range(topology.switches):
            node = topology.servers + switch
            if node not in included:
                continue
            # Explicit OpenFlow datapath id, since Mininet derives none from the switch name s0.
            self.addSwitch(topology.node_name(node), dpid=f"{switch + 1:016x}")
        for cable in topology.links():
            if cable.a not in included or cable.b not in included:
                continue
            ends = {"port1": cable.a_port, "port2": cable.b_port}
            names = {
                "intfName1": topology.interface(cable.a, cable.a_port),
                "intfName2": topology.interface(cable.b, cable.b_port),
            }
            macs = {
                "addr1": topology.mac(cable.a, cable.a_port),
                "addr2": topology.mac(cable.b, cable.b_port),
            }
            name_a, name_b = topology.node_name(cable.a), topology.node_name(cable.b)
            self.addLink(name_a, name_b, **ends, **names, **macs, **(link or {}))


def emulated(
    topology: Topology,
    link: Mapping[str, Any] | None = None,
    nodes: Container[int] | None = None,
) -> EmulatedTopo:
    """Return the Mininet graph (class Topo) of a network: hosts, switches and links.

    Parameters
    ----------
    topology
        The network to convert.
    link
        Options of every link, in the form of Mininet's TCLink: ``{"bw": 100}`` (Mbit/s).
    nodes
        Servers and switches to include, with the cables between them (default: all).
    """
    return EmulatedTopo(topology, link, nodes)


def mininet_constructor(kind: str) -> Callable[..., EmulatedTopo]:
    """Return the constructor that ``mn --topo KIND,...`` calls with the numbers after the kind."""

    def construct_topo(*numbers: object, **options: object) -> EmulatedTopo:
        words = [kind, *map(str, numbers), *(f"{name}={value}" for name, value in options.items())]
        try:
            return emulated(parse(",".join(words)))
        except PillarboxError as error:
            # Exceptions other than SystemExit make mn print a traceback and clean up the machine.
            # That clean-up of Mininet (mn -c) also deletes bridges of other users.
            raise SystemExit(f"pillarbox: {error}") from None

    return construct_topo
