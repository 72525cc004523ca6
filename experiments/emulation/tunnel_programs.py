"""eBPF tunnels to other machines, for super-packets that no card segments (see tunnels.bpf.c).

    h0-eth1 ======= h0-eth1~ > < x7 . . . . . . . . . . the machines' network, by VXLAN
                       `- > trunk === pillarbox-trunk > card . . the same, packed by eBPF

The trunk connects the fabric with the machine's own namespace, and is removed with the fabric.
"""

from __future__ import annotations

import socket
import struct
from typing import NamedTuple

from experiments.emulation.underlay import Underlay
from experiments.linux import cable_programs, netlink
from experiments.linux.namespaces import fabric
from experiments.linux.netlink import End
from hosts.linux.bpf import BpfError, Object
from hosts.live.lab_programs import TUNNELS, build

TRUNK, AT_MACHINE = "trunk", "pillarbox-trunk"
TRUNK_MTU = 65535
PATCH = "send super-packets to other machines"
_CABLE, _SIDE, _NUMBER, _COUNT = (struct.Struct(form) for form in ("=III4s4s", "=II", "=I", "=Q"))


class EncapsulatedHalf(NamedTuple):
    """The interfaces of a half cable, and the parameters of its tunnel."""

    far_end: int
    device: int  # interface index of the tunnel
    of_host: bool  # True if the near end is in another namespace
    vni: int
    machine: int  # machine of the other half


def missing() -> str:
    """Return the reason why super-packets cannot be packed here, "" if they can."""
    try:
        Object(build(TUNNELS)).close()
    except BpfError as error:
        return str(error)
    return ""


class TunnelPrograms:
    """The eBPF programs of all half cables of a lab's part, and the trunk.

    Parameters
    ----------
    underlay : Underlay
        Machine's side of the cables.
    most : int
        Maximum number of cables.
    """

    def __init__(self, underlay: Underlay, most: int) -> None:
        self._underlay = underlay
        self._loaded = Object(build(TUNNELS), {"cables": most, "sides": most})
        self.programs, self._maps = self._loaded.programs, self._loaded.maps
        self._halves: list[EncapsulatedHalf] = []
        home = fabric()
        self._trunk = home.new_index()
        here = End(TRUNK, self._trunk, home.descriptor)
        there = End(AT_MACHINE, 0, underlay.namespace)  # the kernel assigns the index
        home.netlink.send(
            [
                netlink.cable(here, there, mtu=TRUNK_MTU, group=home.group),
                netlink.change(self._trunk, up=True, no_ipv6_address=True),
            ]
        )
        [out] = (link.ifindex for link in underlay.netlink.links() if link.name == AT_MACHINE)
        tap = cable_programs.CableTap(out, cable_programs.INGRESS)
        underlay.netlink.send(
            [
                netlink.change(out, no_ipv6_address=True),
                netlink.change(out, up=True),
                cable_programs.hook(tap),
                cable_programs.attach(tap, cable_programs.PATCH, self.programs["leave"], PATCH),
            ]
        )
        self._maps["card"][_NUMBER.pack(0)] = _NUMBER.pack(underlay.card.ifindex)

    def add(self, half: EncapsulatedHalf) -> None:
        """Enable packing of a half cable's super-packets, and repair of their segments."""
        self._halves.append(half)
        self._lead(half)
        side = _SIDE.pack(half.far_end, half.of_host)
        self._maps["sides"][_NUMBER.pack(half.device)] = side

    def _lead(self, half: EncapsulatedHalf) -> None:
        addresses = self._underlay.addresses
        ends = (addresses[self._underlay.machine], addresses[half.machine])
        cable = half.vni, half.device, self._trunk, *map(socket.inet_aton, ends)
        self._maps["cables"][_NUMBER.pack(half.far_end)] = _CABLE.pack(*cable)

    def move(self, machine: int) -> None:
        """Redirect all tunnels to a machine to its current address."""
        for half in self._halves:
            if half.machine == machine:
                self._lead(half)

    def tallies(self) -> dict[str, int]:
        """Return the numbers of super-packets packed, segments repaired, and frames refused."""
        names = "packed", "mended", "refused"
        values = (self._maps["tallies"][_NUMBER.pack(one)] for one in range(len(names)))
        return {name: _COUNT.unpack(one)[0] for name, one in zip(names, values, strict=True)}

    def close(self) -> None:
        """Release the programs; attached programs stay until their interface is removed."""
        self._loaded.close()
