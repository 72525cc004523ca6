"""A network as a Mininet Topo: the one place of topos/ where Mininet objects are made."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Any

from mininet.topo import Topo

from topos.base.errors import PillarboxError, require
from topos.base.spec import parse
from topos.base.topology import Topology

# Mininet keeps every name and cable in Python objects: beyond this it would only fill the memory.
MOST_EMULATED = 100_000


class EmulatedTopo(Topo):
    """The graph of a network with its host names, addresses, ports and MACs.

    Hosts are ``h0 ...``, switches ``s0 ...``; ports are numbered as the network numbers them, so
    that interface ``h3-eth1`` is port 1 of server 3. `self.network` is the network itself.
    """

    def build(
        self,
        topology: Topology,
        link: Mapping[str, Any] | None = None,
        nodes: Container[int] | None = None,
    ) -> None:
        """Add servers, switches and cables; `link` are Mininet's options of a link."""
        topology.check_addressable()
        require(
            topology.nodes <= MOST_EMULATED,
            f"{topology.spec} has {topology.nodes} servers and switches; Mininet is given "
            f"{MOST_EMULATED} at most: choose a smaller network, or simulate",
        )
        self.network = topology
        here = range(topology.nodes) if nodes is None else nodes
        for server in range(topology.servers):
            if server not in here:
                continue
            ip = f"{topology.ip(server)}/{topology.ip_prefix_length}"
            self.addHost(topology.node_name(server), ip=ip, mac=topology.mac(server, 0))
        for switch in range(topology.switches):
            node = topology.servers + switch
            if node not in here:
                continue
            # Mininet forms a bridge's datapath id from digits in its name only from 1 on.
            self.addSwitch(topology.node_name(node), dpid=f"{switch + 1:016x}")
        for cable in topology.links():
            if cable.a not in here or cable.b not in here:
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
    """Return the network as a Mininet Topo.

    Parameters
    ----------
    topology
        What is wired to what.
    link
        Options for every link, as Mininet's TCLink takes them: ``{"bw": 100}`` (Mbit/s).
    nodes
        Only these servers and switches, and the cables between them; else all.
    """
    return EmulatedTopo(topology, link, nodes)


def mininet_constructor(kind: str) -> Callable[..., EmulatedTopo]:
    """Return what ``mn --topo KIND,...`` calls with the numbers behind the name."""

    def construct(*numbers: object, **options: object) -> EmulatedTopo:
        words = [kind, *map(str, numbers), *(f"{name}={value}" for name, value in options.items())]
        try:
            return emulated(parse(",".join(words)))
        except PillarboxError as error:
            # An exception would make mn print a traceback and clean up machine-wide, other
            # people's bridges included.
            raise SystemExit(f"pillarbox: {error}") from None

    return construct
