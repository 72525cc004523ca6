"""The network card of a machine, used by cables to other machines: tunnels and their guard."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

from pillarbox.experiments.lab.linux import cable_programs, link_requests, offloads
from pillarbox.experiments.lab.linux.link_requests import End, VxlanTunnel
from pillarbox.experiments.lab.linux.namespaces import fabric
from pillarbox.experiments.lab.linux.shaping import HEADER_ROOM
from pillarbox.hosts.linux import netlink
from pillarbox.hosts.linux import netlink_numbers as nl
from pillarbox.hosts.linux.calls import current_namespace
from pillarbox.hosts.linux.netlink import Netlink
from pillarbox.topos.base.errors import require

PORT = 14789  # UDP port of the lab's VXLAN tunnels; clouds and containers use 4789
LOOPBACK = 1  # index of the loopback interface in every namespace
TUNNEL_BYTES = 14 + 8 + 8 + 20  # headers of a tunnel: inner Ethernet, VXLAN, UDP, IPv4
GONE = {
    errno.ENOENT,
    errno.EINVAL,
    errno.ENODEV,
}  # error numbers of the kernel when an interface or its clsact is already removed


class Underlay:
    """A machine's network card and namespace, as the base of VXLAN tunnels to other machines.

    Parameters
    ----------
    addresses : sequence of str
        Addresses of all machines, in the machines' network.
    machine : int
        Number of this machine.
    """

    def __init__(self, addresses: Sequence[str], machine: int) -> None:
        self.addresses, self.machine = list(addresses), machine
        self.netlink, self.namespace = Netlink(), current_namespace()
        card = self.netlink.link_with(addresses[machine])
        require(
            card is not None,
            f"machine {machine} has no interface with the address {addresses[machine]}",
        )
        assert card
        self.card = card
        self._hooked: set[cable_programs.CableTap] = set()
        self.cuts_tunnels = offloads.is_on(card.name, offloads.TUNNEL_SEGMENTS)

    def check_mtu(self, mtu: int) -> None:
        """Raise PillarboxError if packets with all headers exceed the MTU of the card."""
        most = self.card.mtu - TUNNEL_BYTES - HEADER_ROOM
        require(
            mtu <= most,
            f"the card {self.card.name} of machine {self.machine} sends packets of up to "
            f"{self.card.mtu} bytes, and {TUNNEL_BYTES + HEADER_ROOM} of them are headers: "
            f"choose --mtu {most} or less (of `run`: --set mtu={most}), or let all machines' cards "
            "send larger ones",
        )

    def guard(self) -> None:
        """Drop tunnel packets that do not come from the lab's machines, by BPF on all cards."""
        program = cable_programs.load(cable_programs.drop_from_other_sources(PORT, self.addresses))
        for tap in self._taps():
            try:
                self.netlink.send([cable_programs.hook(tap, new=True)])
                self._hooked.add(tap)
            except netlink.NetlinkError as error:
                # EEXIST: the card has a clsact already, made by other software.
                if error.errno != errno.EEXIST:
                    raise
            deed = f"guard interface {tap.ifindex} against other tunnels"
            self.netlink.send([cable_programs.attach(tap, cable_programs.GUARD, program, deed)])
        os.close(program)

    def unguard(self) -> None:
        """Detach the BPF programs of `guard` from all cards, and remove clsacts left empty."""
        for tap in self._taps():
            gone = cable_programs.detach(
                tap, cable_programs.GUARD, f"remove the guard of interface {tap.ifindex}"
            )
            self.netlink.send([gone], ignore=GONE)
            if tap in self._hooked and cable_programs.is_empty(self.netlink, tap):
                self.netlink.send([cable_programs.clsact_removal_request(tap)], ignore=GONE)
                self._hooked.remove(tap)

    def _taps(self) -> list[cable_programs.CableTap]:
        others = (link for link in self.netlink.links() if link.ifindex != LOOPBACK)
        return [cable_programs.CableTap(link.ifindex, nl.CLSACT_INGRESS) for link in others]

    def move(self, machine: int, address: str) -> None:
        """Store another machine's new IP address, and accept tunnel packets from this address."""
        self.addresses[machine] = address
        self.guard()

    def tunnel(self, end: End, vni: int, machine: int, mtu: int) -> None:
        """Create this machine's VXLAN device for the cable to another machine."""
        outside = VxlanTunnel(vni, self.addresses[self.machine], self.addresses[machine], PORT)
        self.netlink.send([link_requests.tunnel(end, outside, mtu=mtu, group=fabric().group)])
