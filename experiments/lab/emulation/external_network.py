"""The outside of a BCube, and the uplinks of its gateways (Guo 2009, section 5.3).

The outside is a namespace with its own address; every gateway has a cable to it, which represents
the gateway's path over the aggregator. Packets keep their addresses, as in the paper: a gateway
removes the BCube header, and its kernel forwards by ordinary routes. Towards the BCube, the outside
spreads its flows over the uplinks that have a carrier::

    outside 192.0.2.1 ====== uplink of 0.0, dcn0 ... BCube ... any server
                      ====== uplink of 3.0, dcn0 ...

# Departs from the paper: there the gateways' own ports lead to the aggregator, in place of some
mini-switches; here the mini-switches stay, and uplinks are cables without a rate limit.
"""

from __future__ import annotations

import inspect
from typing import Any

from pillarbox.experiments.lab.emulation.lab_network import LabNet
from pillarbox.experiments.lab.emulation.routers import multipath_route_request
from pillarbox.experiments.lab.linux import link_requests
from pillarbox.experiments.lab.linux.namespaces import fabric, write_sysctl
from pillarbox.hosts.base.load import router_for
from pillarbox.topos.base.errors import require
from pillarbox.topos.base.topology import Topology

OUTSIDE = "outside"
ADDRESS, PREFIX, PREFIX_LENGTH = "192.0.2.1", "192.0.2.0", 24  # RFC 5737: documentation
LOOPBACK = 1
SYSCTLS = {
    # sysctl: the multipath hash covers addresses and ports, so that each flow has one path
    "net/ipv4/fib_multipath_hash_policy": "1",
    "net/ipv4/conf/all/ignore_routes_with_linkdown": "1",
    "net/ipv4/conf/default/ignore_routes_with_linkdown": "1",
}


def gateway_options(topology: Topology, routing: str, gateways: list[int]) -> dict[str, Any]:
    """Return routing options for gateway servers to an external network, or raise an error."""
    parameters = inspect.signature(router_for(topology, routing)).parameters
    require(
        "gateways" in parameters,
        f"{routing} of {topology.spec} has no gateways: use BCube's bsr (Guo 2009, section 5.3)",
    )
    return {"gateways": {f"{PREFIX}/{PREFIX_LENGTH}": gateways}}


class ExternalNetwork:
    """The external network of a lab, reached through gateway servers.

    Parameters
    ----------
    net : LabNet
        Running network.
    gateways : list of int
        Servers with an uplink to the outside.
    mtu : int
        MTU of the uplinks, in bytes.
    """

    def __init__(self, net: LabNet, gateways: list[int], mtu: int) -> None:
        topology = net.topology
        assert topology is not None
        self._links: dict[int, Any] = {}
        with fabric().batch():
            node = net.add_bystander(OUTSIDE)
            with node.live_namespace():
                for name, value in SYSCTLS.items():
                    write_sysctl(name, value)
            node.config()
            node.send(link_requests.add_address(LOOPBACK, ADDRESS, 32))
            for number, server in enumerate(gateways):
                host = net[topology.node_name(server)]
                names = {"intfName1": f"{OUTSIDE}-eth{number}", "intfName2": f"uplink{server}"}
                link = net.addLink(node, host, bw=None, mtu=mtu, **names)
                self._links[server] = link
                with host.live_namespace():
                    write_sysctl("net/ipv4/ip_forward", "1")
                ours, theirs = link.intf1, link.intf2
                ip = topology.ip(server)
                node.send(link_requests.add_neighbour(ours.ifindex, ip, theirs.mac))
                host.send(
                    link_requests.add_neighbour(theirs.ifindex, ADDRESS, ours.mac),
                    link_requests.add_route(PREFIX, PREFIX_LENGTH, theirs.ifindex),
                )
            hops = [
                (topology.ip(server), link.intf1.ifindex) for server, link in self._links.items()
            ]
            node.send(multipath_route_request("10.0.0.0", 8, hops, "route the servers outside"))

    def set_gateway_link(self, server: int, alive: bool) -> None:
        """Set the link of a gateway server to the external network up, or down if it is dead."""
        for index in self._links[server].cuts if server in self._links else ():
            fabric().send(link_requests.change(index, up=alive, deed="switch an uplink"))
