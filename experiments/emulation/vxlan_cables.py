"""Cables that leave the machine: half of each, and a VXLAN tunnel to the other half.

    h0-eth1 ======= h0-eth1~ > < x7 . . the machines' network . . x7 > < s4-eth0~ ======= s4-eth0

The port, its far end (``~``) and the programs ``> <`` are those of any cable with a panel. The
device of the tunnel is born in the fabric, and goes with it; its socket stays in the machine's own
namespace, where the request was made. Each cable has a tunnel of its own, so that nothing has to be
told apart by what is inside.

What a port sends is shaped there, as of any cable, before it is wrapped up; what is lost is lost
there too. A tunnel has no carrier to lose: a cut takes down both far ends, each on its machine.

A super-packet of TCP's stays whole through a tunnel as long as nobody has to cut it. Where the
machine's card has to (it has no ``tx-udp_tnl-segmentation``), the kernel would do it, asks the
inner frame how, and drops what has a header that it does not know (0x88B5): TCP would crawl while
every ping arrives. There tunnels' headers are written by eBPF, so that the kernel knows how
(`packing`), or servers send single packets, which costs processor time only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiments.emulation.cable_links import LabLink, panel_name
from experiments.emulation.lab_network import LabNet
from experiments.emulation.nodes import ApplicationIntf, LabIntf, LabNode, index_in
from experiments.emulation.tunnel_programs import PATCH, EncapsulatedHalf, TunnelPrograms
from experiments.emulation.underlay import Underlay
from experiments.linux import cable_programs, netlink, shaping
from experiments.linux.namespaces import fabric
from experiments.linux.netlink import End
from topos.base.emulated import emulated
from topos.base.errors import require
from topos.base.topology import Cable, Topology

WHOLE, PACKED, SINGLE = "whole", "packed", "single"  # how super-packets cross
MOST_PACKET = 65535 - 1024  # of a super-packet with all its headers, inside and outside


class Elsewhere(LabNode):
    """Stands for all nodes of other machines; the near halves of cables end here."""

    def __init__(self) -> None:
        super().__init__("elsewhere", inNamespace=False)


class CrossLink(LabLink):
    """The near half of a cable to another machine; the second node is `Elsewhere`."""

    def __init__(
        self,
        near: Any,
        elsewhere: Elsewhere,
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
        )

    def _make(self, ports: list[End], nodes: Any) -> None:
        home, (port, side) = fabric(), ports
        of_host = port.namespace != home.descriptor
        # With the MAC address of the port: what is for that one is not for others.
        device = End(f"x{self.vni}", home.new_index(), home.descriptor, port.mac)
        if of_host:
            home.send(netlink.cable(side, port, mtu=self.mtu, group=home.group))
            self._arrivals = {port.ifindex: side.ifindex}
        else:
            home.send(
                netlink.cable(port, side, mtu=self.mtu, group=home.group, bridge=nodes[0].bridge)
            )
            tap = cable_programs.CableTap(port.ifindex, cable_programs.INGRESS)
            home.places.run(
                cable_programs.hurry(),
                [tap],
                cable_programs.OWN,
                f"let heart-beats by at {port.name}",
            )
        self._underlay.tunnel(device, self.vni, self.machine, self.mtu)
        self._device = device.ifindex
        self.cuts = [side.ifindex]
        self._taps = [
            cable_programs.CableTap(index, cable_programs.INGRESS)
            for index in (side.ifindex, device.ifindex)
        ]
        # Past the far end's queue where the kernel can: its peer has to be in another namespace.
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
            home.places.put(come, cable_programs.PATCH, packing.programs["mend"], PATCH)
        else:
            home.places.run(
                arrive, [come], cable_programs.PATCH, f"let {port.name} hear {device.name}"
            )
        if packing and not self._underlay.cuts_tunnels:
            home.places.put(go, cable_programs.PATCH, packing.programs["pack"], PATCH)
        else:
            send = cable_programs.send_by(device.ifindex)
            home.places.run(send, [go], cable_programs.PATCH, f"use {device.name}")
        for one in (device, side):
            home.send(netlink.change(one.ifindex, up=True))

    def move(self) -> None:
        """Let the tunnel lead to where its machine is now."""
        remote = self._underlay.addresses[self.machine]
        fabric().send(netlink.redirect_tunnel(self._device, remote))

    def shape(self, intf: LabIntf, *how: Any) -> None:
        """Set what the near end sends; what arrives was shaped where it was sent."""
        if not isinstance(intf.node, Elsewhere):
            super().shape(intf, *how)


class PartNet(LabNet):
    """What one machine has of a network.

    Parameters
    ----------
    topology
        The whole network.
    machine_of
        Where each node is.
    underlay
        This machine's side of the cables that leave it.
    crossing
        How super-packets cross, the same on all machines: WHOLE, PACKED, or else SINGLE packets.
    options
        As for any network: see `LabNet`.
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
        self.crossing: dict[int, CrossLink] = {}  # by the cable's place in `Topology.links`
        here = {node for node, machine in enumerate(machine_of) if machine == underlay.machine}
        topo = emulated(topology, nodes=here)
        super().__init__(topology, topo=topo, **options)

    def buildFromTopo(self, topo: Any = None) -> None:  # noqa: N802
        """Make nodes and cables, those too that leave the machine."""
        assert self.topology
        super().buildFromTopo(topo)
        elsewhere = Elsewhere()
        for number, cable in enumerate(self.topology.links()):
            machines = self._machine_of[cable.a], self._machine_of[cable.b]
            if machines[0] != machines[1] and self._underlay.machine in machines:
                self.crossing[number] = self._half(elsewhere, number, cable, machines)

    def move(self, machine: int, address: str) -> None:
        """Let all tunnels to another machine lead to another address."""
        self._underlay.move(machine, address)
        for link in self.crossing.values():
            if link.machine == machine:
                link.move()
        if self.packing:
            self.packing.move(machine)

    def cables(self) -> dict[int, LabLink]:
        """Return all cables with an end here, by their place in `Topology.links`."""
        assert self.topology
        by_end = {intf.name: link for link in self.links for intf in (link.intf1, link.intf2)}
        found = {}
        for number, cable in enumerate(self.topology.links()):
            for end in ((cable.a, cable.a_port), (cable.b, cable.b_port)):
                link = by_end.get(self.topology.interface(*end))
                if link:
                    found[number] = link
        return found

    def _half(
        self, elsewhere: Elsewhere, number: int, cable: Cable, machines: tuple[int, int]
    ) -> CrossLink:
        assert self.topology
        ends = [(cable.a, cable.a_port), (cable.b, cable.b_port)]
        if machines[0] != self._underlay.machine:
            ends, machines = ends[::-1], machines[::-1]
        (near, port), far = ends
        name = self.topology.interface(near, port)
        link: CrossLink = self.addLink(
            self.topology.node_name(near),
            elsewhere,
            port,
            None,
            cls=CrossLink,
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
        """Bound what TCP hands to dcn0 at once by what tunnels carry whole."""
        mtu = self.cable["mtu"]
        size = min(MOST_PACKET, shaping.super_packet_bytes(self.rate_mbit, mtu))
        for host in self.hosts:
            index = index_in(host, ApplicationIntf.NAME)
            if index:
                packets = 1 if self._how == SINGLE else None
                host.send(shaping.bound_super_packets(index, size, packets))
