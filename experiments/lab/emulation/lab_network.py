"""A topology as a Mininet network, made, started and stopped in batches.

>>> with LabNet(topos.parse("bcube,4,1"), rate_mbit=100) as net:       # doctest: +SKIP
...     net["h0"].cmd("ip link")

Hosts are h0 ..., switches s0 ..., and the topology computes interface names, addresses and MACs.
Every bridge has an entry for each server's port, so that no frame is ever flooded. Programs on
servers that relay use ``dcn0``, which the forwarder makes; ports then have no addresses, and
their MTU leaves room for the papers' headers. If servers have one port and switches forward all
packets (the tree), that port has the address.
"""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from mininet.log import info
from mininet.net import Mininet

from pillarbox.experiments.lab.emulation.cable_links import ETHERNET_MTU, LabLink
from pillarbox.experiments.lab.emulation.cable_shapes import CableShape, CableShapes, usual_shape
from pillarbox.experiments.lab.emulation.nodes import (
    ApplicationIntf,
    LabHost,
    LabNode,
    LabSwitch,
    interface_index_in,
)
from pillarbox.experiments.lab.linux import cgroups, link_requests, shaping
from pillarbox.experiments.lab.linux.delays import delay_line
from pillarbox.experiments.lab.linux.kernel_settings import KernelSettings
from pillarbox.experiments.lab.linux.namespaces import fabric
from pillarbox.experiments.lab.linux.queueing import Queue
from pillarbox.topos.base.emulated import emulated
from pillarbox.topos.base.errors import NotPermittedError, PillarboxError, require
from pillarbox.topos.base.polymorphic import NOTHING
from pillarbox.topos.base.topology import Plug, Topology

MOST_OPEN_FILES = 1 << 20


class LabNet(Mininet):
    """The Mininet network of a lab: its hosts, switches and cables.

    Parameters
    ----------
    topology
        Topology of the network; None for an empty network, to be filled with Mininet's methods.
    rate_mbit, delay, jitter, loss, queue_packets
        Shape of every cable, in each direction; see `LabLink`. Levels of cables of the topology
        may multiply rate and delay.
    queue
        Queueing discipline of every port; see `pillarbox.experiments.lab.linux.queueing`.
    mtu
        MTU of ports and switches in bytes (default: 1500, or 1564 with headers below IP).
    forwarders
        Whether servers run forwarders, and therefore have dcn0 (default: True if servers have
        several ports).
    spanning_tree
        Whether switches run the spanning tree protocol, needed if their cables form loops; it
        takes some seconds.
    before_cables
        Called with this network when its nodes exist, before the kernel makes the cables.
    options
        Options of Mininet, such as ``autoStaticArp``.
    """

    def __init__(
        self,
        topology: Topology | None = None,
        *,
        rate_mbit: float | None = None,
        delay: str | None = None,
        jitter: str | None = None,
        loss: float | None = None,
        queue_packets: int | None = None,
        queue: Queue = shaping.DROPTAIL,
        mtu: int | None = None,
        forwarders: bool | None = None,
        spanning_tree: bool = False,
        before_cables: Callable[[LabNet], object] = lambda _: None,
        **options: Any,
    ) -> None:
        shaping.check_queue(queue)
        self._before_cables = before_cables
        self.topology = topology
        several = topology is not None and topology.ports > 1
        self.forwarders = several if forwarders is None else forwarders
        if mtu is None:
            mtu = shaping.port_mtu(ETHERNET_MTU, self.forwarders)
        self.spanning_tree = spanning_tree
        self.rate_mbit = rate_mbit
        self.cable: dict[str, Any] = {
            "bw": rate_mbit,
            "delay": delay,
            "jitter": jitter,
            "loss": loss,
        }
        self.shapes = CableShapes(self, CableShape(rate_mbit, delay, loss))
        self.cable |= {"max_queue_size": queue_packets, "mtu": mtu}
        options = {
            "switch": LabSwitch,
            "host": LabHost,
            "link": LabLink,
            "controller": None,
        } | options
        topo = options.pop("topo", None)
        if topo is None and topology is not None:
            topo = emulated(topology)
        allow_open_files()
        self._kernel = KernelSettings()
        self.cable["queue"] = queue._replace(in_bursts=shaping.in_bursts())
        Mininet.inited = True  # skips Mininet's init, which changes the machine's sysctls
        try:
            super().__init__(topo=topo, **options)
        except BaseException:
            self._kernel.end()
            raise

    @property
    def queue_bytes(self) -> int | None:
        """Queue limit of every port of a slowest cable in bytes; None without a rate limit."""
        if self.slowest_mbit is None:
            return None
        cable = self.cable
        packets = cable["max_queue_size"] or shaping.QUEUE_PACKETS
        frame_bytes = cable["mtu"] + shaping.ETHERNET_BYTES
        return shaping.queue_bytes(self.slowest_mbit, packets, frame_bytes, cable["queue"])

    @property
    def slowest_mbit(self) -> float | None:
        """Rate of the slowest level of cables in Mbit/s; None without a rate limit."""
        if self.rate_mbit is None or self.topology is None:
            return self.rate_mbit
        return self.rate_mbit * min(self.topology.factors.rates, default=1)

    def __enter__(self) -> LabNet:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    # -- up ------------------------------------------------------------------------------------

    def build(self) -> None:
        """Create all hosts, switches and cables by one batch of netlink requests, or none."""
        try:
            with fabric().batch():
                super().build()
                self.install_bridge_entries()
                self._before_cables(self)
        except BaseException:
            self.stop()
            raise

    def install_bridge_entries(self) -> None:
        """Install the MAC addresses of the servers' ports in every bridge's forwarding table."""
        if self.topology is None or self.spanning_tree:
            return
        ports: dict[LabSwitch, dict[str, int]] = {}
        for node, port, mac in fdb_entries(self.topology):
            switch = self.nameToNode.get(self.topology.node_name(node))
            # A switch that is a router or on Open vSwitch has no kernel bridge.
            if switch and switch.bridge:
                ports.setdefault(switch, {})[mac] = switch.intfs[port].ifindex
        for switch, each in ports.items():
            switch.install_entries(each)
        for node, port in ports_without_floods(self.topology):
            switch = self.nameToNode.get(self.topology.node_name(node))
            if switch and switch.bridge:
                switch.send(link_requests.no_flood(switch.intfs[port].ifindex))

    def start(self) -> None:
        """Start all hosts and switches of the network."""
        with fabric().batch():
            super().start()

    def addHost(self, name: str, cls: Any = None, **params: Any) -> Any:  # noqa: N802
        """Add a host, and its application interface if servers run forwarders."""
        host = super().addHost(name, cls=cls, **params)
        if self.forwarders:
            ApplicationIntf(host)
        return host

    def add_bystander(self, name: str) -> Any:
        """Add a host without a forwarder, which is not a server."""
        return super().addHost(name)

    def addSwitch(self, name: str, cls: Any = None, **params: Any) -> Any:  # noqa: N802
        """Add a switch, by default a kernel bridge."""
        if self.spanning_tree:
            params.setdefault("stp", True)
        return super().addSwitch(name, cls=cls, **params)

    def addNAT(self, *_: object, **__: object) -> Any:  # noqa: N802
        """Raise PillarboxError: Mininet's NAT routes by the machine's kernel, not by forwarders."""
        raise PillarboxError(
            "a lab has no NAT: give servers of a BCube an uplink with `up --gateway SERVER`, or "
            "run Mininet's own classes"
        )

    def addLink(self, node1: Any, node2: Any, *ports: Any, **params: Any) -> Any:  # noqa: N802
        """Add a cable with the default parameters of its level, overridden by `params`."""
        return super().addLink(node1, node2, *ports, **self._cable_at(node1, ports, params))

    def _cable_at(
        self, node: Any, ports: tuple[Any, ...], params: dict[str, Any]
    ) -> dict[str, Any]:
        """Return the parameters of the cable at a port of a node, by its level."""
        found = self.cable | params
        topology = self.topology
        if topology is None or not (topology.factors.rates or topology.factors.delays):
            return found
        name = node if isinstance(node, str) else node.name
        port = ports[0] if ports else params.get("port1")
        # A lab's other nodes, such as its gateways, have cables that are not of the network.
        if port is None or name[:1] not in "hs" or not name[1:].isdecimal():
            return found
        number = topology.node(name)
        if port >= topology.ports_of(number) or topology.plug(number, port).node == NOTHING:
            return found
        level = topology.plug(number, port).level
        usual = CableShape(self.rate_mbit, self.cable["delay"], None)
        rate_mbit, delay, _ = usual_shape(topology, usual, level)
        return self.cable | {"bw": rate_mbit, "delay": delay} | params

    def staticArp(self) -> None:  # noqa: N802
        """Add a static ARP entry for every other host to every host."""
        with fabric().batch():
            super().staticArp()

    def bound_super_packets(self) -> None:
        """Limit the size of TCP's super-packets on dcn0; requires running forwarders."""
        mtu = self.cable["mtu"] - shaping.HEADER_ROOM  # MTU of interface dcn0
        single = self.cable["queue"].single_packets
        for host in self.hosts:
            index = interface_index_in(host, ApplicationIntf.NAME)
            if index:
                host.set_super_packet_size(index, self.slowest_mbit, mtu, single=single)

    # -- down ----------------------------------------------------------------------------------

    def stop(self) -> None:
        """End all programs of the network and remove it; repeated calls have no effect."""
        for controller in self.controllers:
            controller.stop()
        if self.terms:
            self.stopXterms()
        nodes = [
            node
            for node in self.hosts + self.switches
            if isinstance(node, LabNode) and node.namespace is not None
        ]
        for node in nodes:
            node.end_programs()
        end_programs_in({n.live_namespace().descriptor for n in nodes if n.inNamespace})
        delay_line.stop()
        fabric().delete_links()
        for node in self.hosts + self.switches:
            if node in nodes:
                node.bridge = 0
            elif node in self.switches and not isinstance(node, LabNode):
                node.stop()
            node.terminate()
        cgroups.remove()
        self._kernel.end()
        info("*** Done\n")


def allow_open_files() -> None:
    """Raise this process's limit of open files, for networks with many namespaces."""
    require(os.geteuid() == 0, "a network that runs needs root: use sudo", NotPermittedError)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # A container may refuse to raise the hard limit of open files.
    for most in (max(hard, MOST_OPEN_FILES), hard):
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        except ValueError:
            continue
        return


def fdb_entries(topology: Topology) -> Iterator[tuple[int, int, str]]:
    """Yield the forwarding table entries of all bridges: switch node, port, server's MAC.

    Every switch that a frame can reach gets an entry, for a shortest path to the server's port.
    Among equal paths, the server's port number on its own switch selects one: this spreads the
    servers of a switch over the cables between switches. Where servers do not relay and cables
    between switches form a loop, the switches route instead, and there are no entries.
    """
    if topology.ports == 1 and switches_form_loops(topology):
        return
    for server in range(topology.servers):
        for port, plug in topology.neighbours(server):
            if plug.node >= topology.servers:
                mac = topology.mac(server, port)
                for switch, towards in _switch_ports_towards(topology, plug):
                    yield switch, towards, mac


def switches_form_loops(topology: Topology) -> bool:
    """Return True if the cables between a network's switches form loops, unlike in a tree."""
    return next(ports_without_floods(topology), None) is not None


def ports_without_floods(topology: Topology) -> Iterator[tuple[int, int]]:
    """Yield switch node and port of both ends of the cables that would close a loop of switches.

    Broadcasts (heartbeats) do not pass these ports, so that no frame goes round.
    """
    if not topology.switches_interconnect:
        return
    root = list(range(topology.nodes))  # union-find forest of the switches that are joined

    def root_of(node: int) -> int:
        while root[node] != node:
            root[node] = node = root[root[node]]
        return node

    for cable in topology.links():
        if cable.a >= topology.servers:
            a, b = root_of(cable.a), root_of(cable.b)
            if a == b:
                yield cable.a, cable.a_port
                yield cable.b, cable.b_port
            root[a] = b


def _switch_ports_towards(topology: Topology, plug: Plug) -> Iterator[tuple[int, int]]:
    """Yield each switch that can reach a server's port, with the switch port towards it."""
    yield plug.node, plug.port
    visited, edge = {plug.node}, [plug.node]
    while edge and topology.switches_interconnect:
        reached: dict[int, list[int]] = {}  # ports towards the edge, by switch
        for switch in edge:
            for _, far in topology.neighbours(switch):
                if far.node >= topology.servers and far.node not in visited:
                    reached.setdefault(far.node, []).append(far.port)
        for switch, ports in reached.items():
            yield switch, sorted(ports)[plug.port % len(ports)]
        visited.update(reached)
        edge = list(reached)


def end_programs_in(descriptors: set[int]) -> None:
    """Kill every process in the given network namespaces, including daemons in other sessions.

    The namespaces have no name and no other owner, so all their processes belong to the lab.
    """
    places = {os.fstat(descriptor).st_ino for descriptor in descriptors}
    group = cgroups.existing()
    with group.no_new_processes() if group else nullcontext():
        _kill_processes_in(places)


def _kill_processes_in(places: set[int]) -> None:
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                if (entry / "ns/net").stat().st_ino in places:
                    os.kill(int(entry.name), signal.SIGKILL)
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                # The process has ended, or a container denies access to the process's /proc entry.
                continue
