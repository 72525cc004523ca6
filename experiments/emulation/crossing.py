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
every ping arrives. There servers send single packets instead, which costs processor time only.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import Any

from experiments.emulation.links import LabLink, panel_name
from experiments.emulation.network import HEADER_ROOM, LabNet
from experiments.emulation.nodes import ApplicationIntf, LabIntf, LabNode, index_in
from experiments.linux import bpf, netlink, offloads, shaping
from experiments.linux.namespaces import fabric
from experiments.linux.netlink import End, Netlink, Tunnel
from topos.base.emulated import emulated
from topos.base.errors import require
from topos.base.topology import Cable, Topology

PORT = 14789  # of UDP: not VXLAN's own 4789, which clouds and containers use
LOOPBACK = 1  # its index, in every namespace
TUNNEL_BYTES = 14 + 8 + 8 + 20  # inner Ethernet, VXLAN, UDP, IPv4
GONE = {errno.ENOENT, errno.EINVAL, errno.ENODEV}  # what the kernel says of what is no more
MOST_PACKET = 65535 - 1024  # of a super-packet with all its headers, inside and outside


class Underlay:
    """The machine's side of all crossing cables, opened in the machine's own namespace.

    Parameters
    ----------
    addresses : sequence of str
        Of all machines, in their own network.
    machine : int
        Which of them this is.
    """

    def __init__(self, addresses: Sequence[str], machine: int) -> None:
        self.addresses, self.machine = list(addresses), machine
        self.netlink = Netlink()
        card = self.netlink.link_with(addresses[machine])
        require(
            card is not None,
            f"machine {machine} has no interface with the address {addresses[machine]}",
        )
        assert card
        self.card = card
        self._hooked: set[bpf.Tap] = set()
        self.cuts_tunnels = offloads.is_on(card.name, offloads.TUNNEL_SEGMENTS)

    def check_mtu(self, mtu: int) -> None:
        """Refuse packets that would not fit into the machines' network with all headers."""
        most = self.card.mtu - TUNNEL_BYTES - HEADER_ROOM
        require(
            mtu <= most,
            f"the card {self.card.name} of machine {self.machine} sends packets of up to "
            f"{self.card.mtu} bytes, and {TUNNEL_BYTES + HEADER_ROOM} of them are headers: "
            f"choose --mtu {most} or less, or let all machines' cards send larger ones",
        )

    def guard(self) -> None:
        """Let tunnels hear no one but these machines, on whatever card: VXLAN itself would."""
        program = bpf.load(bpf.only_from(PORT, self.addresses))
        for tap in self._taps():
            try:
                self.netlink.send([bpf.hook(tap, new=True)])
                self._hooked.add(tap)
            except netlink.NetlinkError as error:
                if error.errno != errno.EEXIST:  # others have programs there
                    raise
            deed = f"guard interface {tap.ifindex} against other tunnels"
            self.netlink.send([bpf.attach(tap, bpf.GUARD, program, deed)])
        os.close(program)

    def unguard(self) -> None:
        """Take the guards away, with the tunnels, and what they were attached to."""
        for tap in self._taps():
            gone = bpf.detach(tap, bpf.GUARD, f"take the guard from interface {tap.ifindex}")
            self.netlink.send([gone], ignore=GONE)
            if tap in self._hooked and bpf.is_empty(self.netlink, tap):
                self.netlink.send([bpf.unhook(tap)], ignore=GONE)
                self._hooked.remove(tap)

    def _taps(self) -> list[bpf.Tap]:
        others = (link for link in self.netlink.links() if link.ifindex != LOOPBACK)
        return [bpf.Tap(link.ifindex, bpf.INGRESS) for link in others]

    def move(self, machine: int, address: str) -> None:
        """Let another machine be at another address from now on."""
        self.addresses[machine] = address
        self.guard()

    def tunnel(self, end: End, vni: int, machine: int, mtu: int) -> None:
        """Make this end of a tunnel to another machine."""
        outside = Tunnel(vni, self.addresses[self.machine], self.addresses[machine], PORT)
        self.netlink.send([netlink.tunnel(end, outside, mtu=mtu, group=fabric().group)])


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
        vni: int,
        machine: int,
        **how: Any,
    ) -> None:
        self.vni = vni
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
            tap = bpf.Tap(port.ifindex, bpf.INGRESS)
            self._run_at(tap, bpf.OWN, bpf.hurry(), f"let heart-beats by at {port.name}")
        self._underlay.tunnel(device, self.vni, self.machine, self.mtu)
        self._device = device.ifindex
        self.cuts = [side.ifindex]
        self._taps = [bpf.Tap(index, bpf.INGRESS) for index in (side.ifindex, device.ifindex)]
        # Past the far end's queue where the kernel can: its peer has to be in another namespace.
        arrive = bpf.hand_to_peer(side.ifindex) if of_host else bpf.send_by(side.ifindex)
        for tap, program in zip(self._taps, (bpf.send_by(device.ifindex), arrive), strict=True):
            self._run_at(tap, bpf.PATCH, program, f"join {port.name} and {device.name}")
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
    whole
        Whether the cards of all machines take super-packets whole through tunnels.
    options
        As for any network: see `LabNet`.
    """

    def __init__(
        self,
        topology: Topology,
        machine_of: Sequence[int],
        underlay: Underlay,
        *,
        whole: bool = True,
        **options: Any,
    ) -> None:
        self._machine_of, self._underlay, self._whole = machine_of, underlay, whole
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
                packets = None if self._whole else 1
                host.send(shaping.bound_super_packets(index, size, packets))
