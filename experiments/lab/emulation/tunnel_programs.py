"""eBPF tunnels to other machines, for super-packets that no card segments (see tunnels.bpf.c).

    h0-eth1 ======= h0-eth1~ > < x7 . . . . . . . . . . the machines' network, by VXLAN
                       `- > trunk === pillarbox-trunk > card . . the same, packed by eBPF

The trunk connects the fabric with the machine's own namespace, and is removed with the fabric.
"""

from __future__ import annotations

import socket
import struct
from typing import NamedTuple

from pillarbox.experiments.lab.emulation.underlay import Underlay
from pillarbox.experiments.lab.linux import cable_programs, link_requests
from pillarbox.experiments.lab.linux.link_requests import End
from pillarbox.experiments.lab.linux.namespaces import fabric
from pillarbox.hosts.linux import netlink_numbers as nl
from pillarbox.hosts.linux.bpf import BpfError, BpfObject
from pillarbox.hosts.live.lab_programs import TUNNELS, build

TRUNK, AT_MACHINE = "trunk", "pillarbox-trunk"
TRUNK_MTU = 65535
PATCH = "send super-packets to other machines"
_CABLE, _SIDE, _NUMBER, _COUNT = (struct.Struct(form) for form in ("=III4s4s", "=II", "=I", "=Q"))


class EncapsulatedHalf(NamedTuple):
    """Interfaces and VXLAN tunnel of this machine's half of a cable to another machine."""

    far_end: int
    device: int  # interface index of the VXLAN device
    of_host: bool  # True if this machine's end is a host's port
    vni: int
    machine: int  # number of the machine with the other half of the cable


def missing() -> str:
    """Return why TCP's super-packets cannot be packed into tunnels here, "" if they can."""
    try:
        BpfObject(build(TUNNELS)).close()
    except BpfError as error:
        return str(error)
    return ""


class TunnelPrograms:
    """eBPF programs that carry TCP's super-packets through the VXLAN tunnels of this machine.

    Parameters
    ----------
    underlay : Underlay
        Machine's side of the cables.
    most : int
        Maximum number of cables.
    """

    def __init__(self, underlay: Underlay, most: int) -> None:
        self._underlay = underlay
        self._loaded = BpfObject(build(TUNNELS), {"cables": most, "sides": most})
        self.programs, self._maps = self._loaded.programs, self._loaded.maps
        self._halves: list[EncapsulatedHalf] = []
        home = fabric()
        self._trunk = home.new_index()
        here = End(TRUNK, self._trunk, home.descriptor)
        there = End(AT_MACHINE, 0, underlay.namespace)  # index 0: the kernel assigns an index
        home.netlink.send(
            [
                link_requests.cable(here, there, mtu=TRUNK_MTU, group=home.group),
                link_requests.change(self._trunk, up=True, no_ipv6_address=True),
            ]
        )
        [out] = (link.ifindex for link in underlay.netlink.links() if link.name == AT_MACHINE)
        tap = cable_programs.CableTap(out, nl.CLSACT_INGRESS)
        underlay.netlink.send(
            [
                link_requests.change(out, no_ipv6_address=True),
                link_requests.change(out, up=True),
                cable_programs.hook(tap),
                cable_programs.attach(tap, cable_programs.PATCH, self.programs["leave"], PATCH),
            ]
        )
        self._maps["card"][_NUMBER.pack(0)] = _NUMBER.pack(underlay.card.ifindex)

    def add(self, half: EncapsulatedHalf) -> None:
        """Pack the super-packets of a cable to another machine, and repair their segments."""
        self._halves.append(half)
        self._set_tunnel_addresses(half)
        side = _SIDE.pack(half.far_end, half.of_host)
        self._maps["sides"][_NUMBER.pack(half.device)] = side

    def _set_tunnel_addresses(self, half: EncapsulatedHalf) -> None:
        addresses = self._underlay.addresses
        ends = (addresses[self._underlay.machine], addresses[half.machine])
        cable = half.vni, half.device, self._trunk, *map(socket.inet_aton, ends)
        self._maps["cables"][_NUMBER.pack(half.far_end)] = _CABLE.pack(*cable)

    def move(self, machine: int) -> None:
        """Redirect the eBPF programs' tunnels to a machine to that machine's current IP address."""
        for half in self._halves:
            if half.machine == machine:
                self._set_tunnel_addresses(half)

    def packet_tallies(self) -> dict[str, int]:
        """Return the numbers of packets that the tunnels' eBPF has packed, repaired and refused."""
        names = "packed", "mended", "refused"
        values = (self._maps["tallies"][_NUMBER.pack(one)] for one in range(len(names)))
        return {name: _COUNT.unpack(one)[0] for name, one in zip(names, values, strict=True)}

    def close(self) -> None:
        """Release the programs; attached programs stay until their interface is removed."""
        self._loaded.close()
