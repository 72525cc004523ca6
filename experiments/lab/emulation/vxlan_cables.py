"""Cables to other machines: half of each cable, and a VXLAN tunnel to the other half.

    h0-eth1 ======= h0-eth1~ > < x7 . . the machines' network . . x7 > < s4-eth0~ ======= s4-eth0

The port, its far end (``~``) and the programs ``> <`` are the same as in any cable with a panel.
The device of the tunnel is created in the fabric, and removed with it; its socket stays in the
machine's own namespace, where the request was made. Each cable has its own tunnel, so that frames
of different cables need not be distinguished by their content.

Frames are shaped at the sending port, as in any cable, before encapsulation; frame losses also
occur there. A tunnel has no carrier: a cut sets both far ends down, each on its machine.

A TCP super-packet stays whole through a tunnel unless it has to be segmented. If the machine's card
cannot segment tunnel packets (no ``tx-udp_tnl-segmentation``), the kernel segments them according
to the inner frame, and drops frames with an unknown header (0x88B5): TCP would be very slow while
every ping arrives. There eBPF writes the tunnels' headers, so that the kernel can segment
(`packing`), or servers send single packets, which only costs CPU time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pillarbox.experiments.lab.emulation.cable_links import LabLink, panel_name
from pillarbox.experiments.lab.emulation.lab_network import LabNet
from pillarbox.experiments.lab.emulation.nodes import (
    ApplicationIntf,
    LabIntf,
    LabNode,
    interface_index_in,
)
from pillarbox.experiments.lab.emulation.tunnel_programs import (
    PATCH,
    EncapsulatedHalf,
    TunnelPrograms,
)
from pillarbox.experiments.lab.emulation.underlay import Underlay
from pillarbox.experiments.lab.linux import cable_programs, link_requests, shaping
from pillarbox.experiments.lab.linux.link_requests import End
from pillarbox.experiments.lab.linux.namespaces import fabric
from pillarbox.experiments.models import port_bursts
from pillarbox.hosts.linux import netlink_numbers as nl
from pillarbox.topos.base.emulated import emulated
from pillarbox.topos.base.errors import UnsupportedError, require
from pillarbox.topos.base.topology import Cable, Topology

# how tunnels carry TCP's super-packets: unchanged, packed by eBPF, or not
WHOLE, PACKED, SINGLE = "whole", "packed", "single"
# maximum super-packet in bytes; leaves 1 KiB of 64 KiB to all headers
MOST_PACKET = 65535 - 1024


class RemoteNodes(LabNode):
    """Placeholder for all nodes of other machines, the remote end of near halves of cables."""

    def __init__(self) -> None:
        super().__init__("elsewhere", inNamespace=False)


class CableHalf(LabLink):
    """One machine's half of a cable to another machine; the second node is `RemoteNodes`."""

    def __init__(
        self,
        near: Any,
        elsewhere: RemoteNodes,
        *,
        underlay: Underlay,
        packing: TunnelPrograms | None,
        vni: int,
        machine: int,
        **how: Any,
    ) -> None:
        self.vni, self._packing = vni, packing
        self._underlay, self.machine = underlay, machine
        super().__init__(near, elsewhere, **how)
        require(
            self.delay is None or shaping.kernel_has_netem(),
            "this kernel has no netem, so cables between machines can have no delay: leave it out",
            UnsupportedError,
        )

    @property
    def own_taps(self) -> tuple[cable_programs.CableTap, ...]:
        """Tap of the frames that leave this machine; the other machine has the other direction."""
        return self.taps[:1]

    def _create_ports(self, ports: list[End], nodes: Any) -> None:
        home, (port, side) = fabric(), ports
        of_host = port.namespace != home.descriptor
        # The VXLAN device has the port's MAC address, and so accepts only frames to the port.
        device = End(f"x{self.vni}", home.new_index(), home.descriptor, port.mac)
        if of_host:
            home.send(link_requests.cable(side, port, mtu=self.mtu, group=home.group))
            self._arrivals = {port.ifindex: side.ifindex}
        else:
            home.send(
                link_requests.cable(
                    port, side, mtu=self.mtu, group=home.group, bridge=nodes[0].bridge
                )
            )
            tap = cable_programs.CableTap(port.ifindex, nl.CLSACT_INGRESS)
            home.places.run(
                cable_programs.bypass_shapers_for_heartbeats(),
                [tap],
                cable_programs.OWN,
                f"let heartbeats bypass the queue of {port.name}",
            )
        self._underlay.tunnel(device, self.vni, self.machine, self.mtu)
        self._device = device.ifindex
        self.cuts = [side.ifindex]
        self._taps = [
            cable_programs.CableTap(index, nl.CLSACT_INGRESS)
            for index in (side.ifindex, device.ifindex)
        ]
        # The kernel can skip the receive queue of a veth's far end in another namespace.
        arrive = (
            cable_programs.hand_to_peer(side.ifindex)
            if of_host
            else cable_programs.send_by(side.ifindex)
        )
        go, come = self._taps
        packing = self._packing
        if packing:
            packing.add(
                EncapsulatedHalf(side.ifindex, device.ifindex, of_host, self.vni, self.machine)
            )
            home.places.attach(come, cable_programs.PATCH, packing.programs["mend"], PATCH)
        else:
            home.places.run(
                arrive, [come], cable_programs.PATCH, f"let {port.name} hear {device.name}"
            )
        if packing and not self._underlay.cuts_tunnels:
            home.places.attach(go, cable_programs.PATCH, packing.programs["pack"], PATCH)
        else:
            send = cable_programs.send_by(device.ifindex)
            home.places.run(send, [go], cable_programs.PATCH, f"use {device.name}")
        for one in (device, side):
            home.send(link_requests.change(one.ifindex, up=True))

    def move(self) -> None:
        """Redirect a cable's VXLAN tunnel to the current IP address of the other machine."""
        remote = self._underlay.addresses[self.machine]
        fabric().send(link_requests.redirect_tunnel(self._device, remote))

    def shape(self, intf: LabIntf, *how: Any) -> None:
        """Set the rate, delay and loss of the frames that this machine's end of a cable sends."""
        if not isinstance(intf.node, RemoteNodes):
            super().shape(intf, *how)


class PartNet(LabNet):
    """The servers, switches and cables of a lab's network that are on one machine.

    Parameters
    ----------
    topology
        Topology of the whole network.
    machine_of
        Machine of each node.
    underlay
        This machine's side of the cables to other machines.
    crossing
        Mode of super-packets in tunnels, the same on all machines: WHOLE, PACKED or SINGLE.
    options
        Options of any network; see `LabNet`.
    """

    def __init__(
        self,
        topology: Topology,
        machine_of: Sequence[int],
        underlay: Underlay,
        *,
        crossing: str = WHOLE,
        **options: Any,
    ) -> None:
        self._machine_of, self._underlay, self._how = machine_of, underlay, crossing
        packed = crossing == PACKED
        self.packing = TunnelPrograms(underlay, topology.cables) if packed else None
        self.crossing: dict[int, CableHalf] = {}  # cables by index in `Topology.links`
        here = {node for node, machine in enumerate(machine_of) if machine == underlay.machine}
        topo = emulated(topology, nodes=here)
        super().__init__(topology, topo=topo, **options)

    def buildFromTopo(self, topo: Any = None) -> None:  # noqa: N802
        """Make nodes and cables, including cables to other machines."""
        assert self.topology
        super().buildFromTopo(topo)
        elsewhere = RemoteNodes()
        for number, cable in enumerate(self.topology.links()):
            machines = self._machine_of[cable.a], self._machine_of[cable.b]
            if machines[0] != machines[1] and self._underlay.machine in machines:
                self.crossing[number] = self._add_half_cable(elsewhere, number, cable, machines)

    def move(self, machine: int, address: str) -> None:
        """Redirect all VXLAN tunnels to another machine to that machine's new IP address."""
        self._underlay.move(machine, address)
        for link in self.crossing.values():
            if link.machine == machine:
                link.move()
        if self.packing:
            self.packing.move(machine)

    def cables(self) -> dict[int, LabLink]:
        """Return all cables with an end on this machine, by index in `Topology.links`."""
        assert self.topology
        by_end = {intf.name: link for link in self.links for intf in (link.intf1, link.intf2)}
        found = {}
        for number, cable in enumerate(self.topology.links()):
            for end in ((cable.a, cable.a_port), (cable.b, cable.b_port)):
                link = by_end.get(self.topology.interface(*end))
                if link:
                    found[number] = link
        return found

    def _add_half_cable(
        self, elsewhere: RemoteNodes, number: int, cable: Cable, machines: tuple[int, int]
    ) -> CableHalf:
        assert self.topology
        ends = [(cable.a, cable.a_port), (cable.b, cable.b_port)]
        if machines[0] != self._underlay.machine:
            ends, machines = ends[::-1], machines[::-1]
        (near, port), far = ends
        name = self.topology.interface(near, port)
        link: CableHalf = self.addLink(
            self.topology.node_name(near),
            elsewhere,
            port,
            None,
            cls=CableHalf,
            intfName1=name,
            intfName2=panel_name(name),
            addr1=self.topology.mac(near, port),
            addr2=self.topology.mac(*far),
            underlay=self._underlay,
            packing=self.packing,
            vni=number + 1,
            machine=machines[1],
        )
        return link

    def bound_super_packets(self) -> None:
        """Limit TCP's super-packets on dcn0 to the size that tunnels carry whole."""
        mtu = self.cable["mtu"]
        size = min(MOST_PACKET, port_bursts.super_packet_bytes(self.slowest_mbit, mtu))
        for host in self.hosts:
            index = interface_index_in(host, ApplicationIntf.NAME)
            if index:
                packets = 1 if self._how == SINGLE else None
                host.send(shaping.bound_super_packets(index, size, packets))
