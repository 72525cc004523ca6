"""The way to other machines for super-packets that no card cuts: tunnels.bpf.c says how.

    h0-eth1 ======= h0-eth1~ > < x7 . . . . . . . . . . the machines' network, by VXLAN
                       `- > trunk === pillarbox-trunk > card . . the same, packed by eBPF

The trunk leads from the fabric to the machine's own namespace, and goes with the fabric.
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
PATCH = "let super-packets go to other machines"
_CABLE, _SIDE, _NUMBER, _COUNT = (struct.Struct(form) for form in ("=III4s4s", "=II", "=I", "=Q"))


class EncapsulatedHalf(NamedTuple):
    """The interfaces of a half cable, and what its tunnel is."""

    far_end: int
    device: int  # the tunnel's
    of_host: bool  # whether the near end is in another namespace
    vni: int
    machine: int  # where the other half is


def missing() -> str:
    """Return why super-packets cannot be packed here; nothing if they can."""
    try:
        Object(build(TUNNELS)).close()
    except BpfError as error:
        return str(error)
    return ""


class TunnelPrograms:
    """The programs of all half cables of a part, and the trunk.

    Parameters
    ----------
    underlay : Underlay
        The machine's side of the cables.
    most : int
        How many cables there can be.
    """

    def __init__(self, underlay: Underlay, most: int) -> None:
        self._underlay = underlay
        self._loaded = Object(build(TUNNELS), {"cables": most, "sides": most})
        self.programs, self._maps = self._loaded.programs, self._loaded.maps
        self._halves: list[EncapsulatedHalf] = []
        home = fabric()
        self._trunk = home.new_index()
        here = End(TRUNK, self._trunk, home.descriptor)
        there = End(AT_MACHINE, 0, underlay.namespace)  # by which number the kernel says
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
        """Let super-packets of a half cable be packed, and their pieces be mended."""
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
        """Let all that goes to a machine go to where it is now."""
        for half in self._halves:
            if half.machine == machine:
                self._lead(half)

    def tallies(self) -> dict[str, int]:
        """Return how many super-packets were packed, pieces mended, and frames refused."""
        names = "packed", "mended", "refused"
        values = (self._maps["tallies"][_NUMBER.pack(one)] for one in range(len(names)))
        return {name: _COUNT.unpack(one)[0] for name, one in zip(names, values, strict=True)}

    def close(self) -> None:
        """Let go of the programs; where they are attached they stay as long as their interface."""
        self._loaded.close()
