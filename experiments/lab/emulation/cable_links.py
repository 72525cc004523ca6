"""Cables as Mininet links: one veth pair, or two veth pairs joined by a patch panel.

A host's port is always in the host's namespace, and its other end always in the fabric, where the
cable can be cut without touching the host: for the host, setting the fabric's end down has the
effect of a pulled plug. ::

    host and switch      h0-eth0 ======= s0-eth0 of the bridge s0
    switch and switch    s0-eth4 ======= s4-eth0
    host and host        h0-eth1 ======= h0-eth1~ > < h5-eth1~ ======= h5-eth1
    any, with a delay    h0-eth0 ======= h0-eth0~ > < s0-eth0~ ======= s0-eth0

``> <`` is the panel: a BPF program on each side that redirects incoming frames to the far end of
the other side (2 us less than a bridge with two ports, without learning or flooding), or the
process of `delays`.
"""

from __future__ import annotations

import functools
from functools import partial
from typing import Any

from mininet.link import Intf, Link, TCIntf

from pillarbox.experiments.lab.emulation.nodes import (
    ApplicationIntf,
    LabHost,
    LabIntf,
    LabNode,
    refuse_options,
)
from pillarbox.experiments.lab.linux import cable_programs, link_requests, shaping
from pillarbox.experiments.lab.linux.delays import delay_line
from pillarbox.experiments.lab.linux.namespaces import Namespace, fabric
from pillarbox.experiments.lab.linux.queueing import Queue
from pillarbox.hosts.linux import netlink_numbers as nl
from pillarbox.hosts.linux.bpf import may_load_programs
from pillarbox.topos.base.errors import UnsupportedError, require

ETHERNET_MTU = 1500
PANEL_MARK = "~"
LONGEST_NAME = 15

# Options of Mininet's Link and Intf, which LabIntf accepts.
LINK_OPTIONS = {"port1", "port2", "intfName1", "intfName2", "addr1", "addr2", "intf"}
LINK_OPTIONS |= {"cls1", "cls2", "params1", "params2", "fast", "mac", "ip", "ifconfig", "up"}
LINK_OPTIONS |= {"bw", "loss", "max_queue_size"}


class LabLink(Link):
    """A Mininet link of a lab: a veth pair between the ports of two servers or switches.

    Parameters
    ----------
    node1, node2
        Nodes at the ends: hosts or switches of a lab, or nodes in the fabric's own namespace.
    mtu
        MTU of both ports, in bytes.
    bw
        Rate of each direction in Mbit/s; None means no limit.
    delay, jitter
        Delay and jitter of each direction, in Mininet's notation: ``"5ms"``.
    loss
        Frame loss of each direction, in percent.
    max_queue_size
        Queue limit of each port as a number of full-sized packets; the queue counts bytes.
    queue
        Queueing discipline of each port, and optionally its limit.
    """

    def __init__(
        self,
        node1: Any,
        node2: Any,
        *,
        mtu: int = ETHERNET_MTU,
        delay: str | float | None = None,
        jitter: str | float | None = None,
        queue: Queue = shaping.DROPTAIL,
        **params: Any,
    ) -> None:
        self.queue = queue
        refuse_options({name: params[name] for name in params.keys() - LINK_OPTIONS})
        self.mtu = mtu
        self.delay = shaping.checked_delay(delay, jitter)
        # the cable's interfaces in the switches' namespace; set down to cut it
        self.cuts: list[int] = []
        self._indexes: dict[tuple[Any, str], int] = {}
        # interfaces at which BPF programs see the frames that the first, the second node sends
        self._taps: list[cable_programs.CableTap] = []
        self._panel = False
        self._shaped: set[LabIntf] = set()
        self._lossy: set[cable_programs.CableTap] = set()
        # Switch port that receives a host port's frames, by host port.
        self._arrivals: dict[int, int] = {}
        # Switch ports with the BPF program `detach_from_socket`.
        self._owning: set[int] = set()
        for key in ("intf", "cls1", "cls2"):
            if params.get(key) in (Intf, TCIntf) or (key == "intf" and not params.get(key)):
                params[key] = LabIntf
        super().__init__(node1, node2, delay=delay, jitter=jitter, **params)

    @property
    def taps(self) -> tuple[cable_programs.CableTap, ...]:
        """Interfaces at which BPF programs can drop the cable's frames, one for each direction."""
        return tuple(self._taps)

    @property
    def own_taps(self) -> tuple[cable_programs.CableTap, ...]:
        """Taps of the directions for which this machine runs programs: both, in one machine."""
        return self.taps

    def index_of(self, node: Any, name: str) -> int:
        """Return the kernel's interface index of the cable's end on one of its two nodes."""
        return self._indexes[node, name]

    def makeIntfPair(  # noqa: N802 - as Mininet calls it
        self,
        intfname1: str,
        intfname2: str,
        addr1: str | None = None,
        addr2: str | None = None,
        node1: Any = None,
        node2: Any = None,
        deleteIntfs: bool = True,  # noqa: N803
    ) -> None:
        """Create both end interfaces of a cable in the network namespaces of its nodes."""
        home = fabric()
        nodes = (node1, node2)
        ports = []
        for node, name, mac in zip(nodes, (intfname1, intfname2), (addr1, addr2), strict=True):
            namespace = _namespace(node)
            ports.append(link_requests.End(name, home.new_index(), namespace.descriptor, mac))
            self._indexes[node, name] = ports[-1].ifindex
        self._create_ports(ports, nodes)
        for node, port in zip(nodes, ports, strict=True):
            awaited = isinstance(node, LabHost) and ApplicationIntf.NAME in node.nameToIntf
            if awaited and home.places.by_filters:
                # Add the clsact for the forwarder's BPF program before the port is up: later, the
                # kernel would first stop all queues, and block changes of all other interfaces.
                incoming = cable_programs.CableTap(port.ifindex, nl.CLSACT_INGRESS, alone=True)
                _namespace(node).send(cable_programs.hook(incoming))
        if home.speaks_ipv6:
            in_fabric = [port.ifindex for port in ports if port.namespace == home.descriptor]
            for index in {*self.cuts, *in_fabric}:
                home.send(link_requests.change(index, no_ipv6_address=True))
        for index in self.cuts if self._panel else ():
            home.send(link_requests.change(index, up=True))

    def _create_ports(self, ports: list[link_requests.End], nodes: Any) -> None:
        """Create the two ports of the cable, and the interfaces that connect the ports."""
        hosts = [_namespace(node) is not fabric() for node in nodes]
        by_process = self.delay is not None and not shaping.kernel_has_netem()
        by_copies = any(map(_sends_directly, nodes)) and not may_load_programs()
        self._panel = all(hosts) or by_process or by_copies
        if self._panel:
            self._make_panel(ports, nodes, by_process)
        else:
            self._create_veth_pair(ports, nodes, hosts)

    def _create_veth_pair(
        self, ports: list[link_requests.End], nodes: Any, hosts: list[bool]
    ) -> None:
        home = fabric()
        # creates the switch's port first: it joins the switch's bridge in the same netlink request
        first, second = (1, 0) if hosts[0] else (0, 1)
        master = getattr(nodes[first], "bridge", 0)
        home.send(
            link_requests.cable(
                ports[first], ports[second], mtu=self.mtu, group=home.group, bridge=master
            )
        )
        self.cuts = [port.ifindex for port, host in zip(ports, hosts, strict=True) if not host]
        if any(hosts):
            switch = self.cuts[0]
            # Open vSwitch, or a capture at the port, would also receive the clones that
            # `detach_from_socket` sends.
            self._arrivals = {ports[second].ifindex: switch} if master else {}
            incoming, outgoing = (
                cable_programs.CableTap(switch, nl.CLSACT_INGRESS),
                cable_programs.CableTap(switch, nl.CLSACT_EGRESS),
            )
            self._taps = [incoming, outgoing] if hosts[0] else [outgoing, incoming]
        else:
            self._add_to_bridge(nodes[second], ports[second].ifindex)
            self._taps = [cable_programs.CableTap(port.ifindex, nl.CLSACT_EGRESS) for port in ports]

    def _make_panel(self, ports: list[link_requests.End], nodes: Any, by_process: bool) -> None:
        home = fabric()
        sides = []
        for port, other in zip(ports, reversed(ports), strict=True):
            name = panel_name(port.name)
            # The patch panel's interface has the MAC address of the port at the other end.
            side = link_requests.End(name, home.new_index(), home.descriptor, other.mac)
            home.send(link_requests.cable(side, port, mtu=self.mtu, group=home.group))
            sides.append(side)
        for node, port in zip(nodes, ports, strict=True):
            self._add_to_bridge(node, port.ifindex)
        self.cuts = [side.ifindex for side in sides]
        if by_process:
            self._taps = [
                cable_programs.CableTap(side.ifindex, nl.CLSACT_EGRESS) for side in reversed(sides)
            ]
        else:
            self._taps = [
                cable_programs.CableTap(side.ifindex, nl.CLSACT_INGRESS, alone=True)
                for side in sides
            ]
            for port, side in zip(ports, sides, strict=True):
                self._arrivals[port.ifindex] = side.ifindex
            for tap, target in zip(self._taps, reversed(sides), strict=True):
                program = cable_programs.hand_to_peer(target.ifindex)
                home.places.run(program, [tap], cable_programs.PATCH, f"patch {target.name}")

    def rename(self, intf: LabIntf, name: str, mac: str) -> None:
        """Rename the interface at one end of a cable and set its MAC address, while in use."""
        deed = f"rename {intf.name}"
        fresh = name if name != intf.name else None
        fabric().send(link_requests.change(intf.ifindex, name=fresh, mac=mac, deed=deed))
        if self._panel and fresh:
            side = self.cuts[self._side_of(intf)]
            fabric().send(link_requests.change(side, name=panel_name(name), deed=deed))
        intf.name, intf.mac = name, mac

    def _add_to_bridge(self, node: Any, index: int) -> None:
        bridge = getattr(node, "bridge", 0)
        if bridge:
            fabric().send(link_requests.change(index, bridge=bridge, deed=f"plug into {node.name}"))

    # -- shape ---------------------------------------------------------------------------------

    def shape(
        self,
        intf: LabIntf,
        bw: float | None,
        delay: str | float | None,
        jitter: str | float | None,
        loss: float | None,
        max_queue_size: int | None,
    ) -> None:
        """Set the rate, delay and loss of one direction of a cable; default: keep the loss."""
        wanted = shaping.checked_delay(delay, jitter)
        by_process = self._panel and self.delay is not None and not shaping.kernel_has_netem()
        if wanted and by_process:
            self._set_delay(intf, wanted)
        require(
            wanted is None or by_process or shaping.kernel_has_netem(),
            f"{intf.name} cannot be delayed: this kernel has no netem, so a link has its "
            "delay from the start or not at all",
            UnsupportedError,
        )
        by_kernel = None if by_process else wanted
        messages = shaping.unlimited(intf.ifindex) if intf in self._shaped else []
        messages += shaping.limited(
            intf.ifindex, bw, by_kernel, max_queue_size, self.mtu + 14, self.queue
        )
        self._shaped = self._shaped | {intf} if bw or by_kernel else self._shaped - {intf}
        self._detach_frames_from_sockets(intf, bw is not None)
        intf.node.live_namespace().send(*messages)
        if messages and _sends_directly(intf.node):
            intf.node.set_super_packet_size(
                intf.ifindex, bw, self.mtu, single=self.queue.single_packets
            )
        if loss is not None:
            self._set_loss(intf, loss)

    def _detach_frames_from_sockets(self, intf: LabIntf, wanted: bool) -> None:
        """Have a host's frames wait in its switch's queue, not in TCP's sockets, or undo that.

        Without eBPF the panel does so, since it passes clones on (`classic_filters`).
        """
        if not may_load_programs():
            return
        arrival = self._arrivals.get(intf.ifindex)
        if arrival is not None and wanted != (arrival in self._owning):
            tap, deed = (
                cable_programs.CableTap(arrival, nl.CLSACT_INGRESS),
                f"move the queue of {intf.name} to its switch",
            )
            if wanted:
                fabric().places.attach(tap, cable_programs.OWN, _owning_program(), deed)
            else:
                fabric().places.detach(tap, cable_programs.OWN, deed)
            self._owning ^= {arrival}

    def _side_of(self, intf: LabIntf) -> int:
        """Return the cable end of an interface: 0 at the first node, 1 at the second."""
        return list(self._indexes.values()).index(intf.ifindex)

    def _set_loss(self, intf: LabIntf, percent: float) -> None:
        shaping.check_loss(percent)
        tap = self._taps[self._side_of(intf)]
        if percent:
            deed = f"set a loss of {percent:g} % on {intf.name}"
            fabric().places.run(
                cable_programs.drop_randomly(percent / 100), [tap], cable_programs.LOSS, deed
            )
            self._lossy.add(tap)
        elif tap in self._lossy:
            fabric().places.detach(tap, cable_programs.LOSS, f"remove the loss on {intf.name}")
            self._lossy.remove(tap)

    def _set_delay(self, intf: LabIntf, delay: shaping.LinkDelay) -> None:
        side = self._side_of(intf)
        source, target = self.cuts[side], self.cuts[1 - side]
        fabric().call_after_requests(partial(delay_line.join, source, target, *delay))


def panel_name(port: str) -> str:
    """Return the name of the veth peer of a node's port, the interface at the patch panel."""
    return port[: LONGEST_NAME - 1] + PANEL_MARK


@functools.cache
def _owning_program() -> int:
    """Load the BPF program that detaches frames from sockets, once for all cables of a lab."""
    return cable_programs.load(
        cable_programs.detach_from_socket(by_filter=fabric().places.by_filters)
    )


def _sends_directly(node: Any) -> bool:
    """Return True if programs of a host send through its port, and not through dcn0."""
    return isinstance(node, LabHost) and ApplicationIntf.NAME not in node.nameToIntf


def _namespace(node: Any) -> Namespace:
    if isinstance(node, LabNode):
        return node.live_namespace()
    require(
        not node.inNamespace,
        f"{node.name} is a stock Mininet node in a separate namespace: make it a LabHost",
    )
    return fabric()
