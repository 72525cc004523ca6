"""Racks and wires of a container (Guo 2009, section 5.2), counted cable by cable.

Servers fill the racks in the order of their numbers, racks fill the rack columns in order. A switch
whose servers are all in one rack is in that rack; switches that connect the same racks are spread
evenly over them. For the paper's 2048 servers this is the paper's packaging: each rack holds a
BCube_1, with 8 + 8 switches inside it, 8 level-2 and 16 level-3 switches.

A wire between racks runs along its column on top of the racks. A wire between two columns can cross
over at either end, so half of these wires count in each column. The paper's figures follow like
this, where p is the place in a column between racks p - 1 and p:

- Level 2: a super-rack has 8 racks and 64 level-2 switches, 8 in each rack, each with one wire to
  every rack. In the middle of the super-rack, 4 wires of each switch pass: 64 x 4 = 256.
- Level 3: a level-3 switch connects one server in each of the four super-racks, at the same rack
  of each. Between the super-racks of a column (p = 8), 2 wires of each of the 512 switches pass,
  in both columns together: 512 x 2 / 2 = 512 for each column.

So 256 and 512 are the maxima at different places, and the paper's 768 is their sum: enough space,
but more wires than pass at any place (576, at p = 6).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy

from pillarbox.experiments.models.arrays import Floats, Ints
from pillarbox.topos.base.errors import require
from pillarbox.topos.base.topology import Topology

MOST_PACKED = 1 << 21


@dataclass(frozen=True)
class ContainerDimensions:
    """Dimensions of a container and its racks; the defaults are those of Guo 2009."""

    servers_per_rack: int = 64
    rack_columns: int = 2
    racks_per_super_rack: int = 8
    servers_per_unit: int = 2
    switches_per_unit: int = 4
    units_per_rack: int = 44
    wire_diameter_cm: float = 0.54


@dataclass(frozen=True)
class LevelWires:
    """Number of wires, by their course, of one level of a network packed into racks."""

    level: int
    inside_racks: int
    inside_super_racks: int  # wires between racks of the same super-rack
    between_super_racks: int
    most_along_column: (
        int  # maximum number of wires that pass one rack position of a column of racks
    )
    most_at: int  # rack position of that maximum: number of racks in front of it


@dataclass(frozen=True)
class Packing:
    """Racks, rack units and wires that a network needs in a container."""

    racks: int
    super_racks: int
    racks_per_column: int
    switches_per_rack: tuple[int, int]  # minimum and maximum number of switches per rack
    units_used: int  # number of rack units used in the fullest rack
    levels: list[LevelWires]
    sum_of_most: int  # sum of the levels' maximum wire counts (`most_along_column`), as in Guo 2009
    most_at_one_place: int
    space_cm2: float  # cross-section of the wires in `sum_of_most`

    @property
    def between_racks(self) -> int:
        """Number of wires between different racks of the container."""
        return sum(wires.inside_super_racks + wires.between_super_racks for wires in self.levels)


def pack_into_racks(topology: Topology, room: ContainerDimensions) -> Packing:
    """Return the network's racks and wires; raise PillarboxError if packaging does not apply."""
    require(
        not topology.switches_interconnect,
        f"packaging does not apply to {topology.spec}: it places each switch with its servers "
        "(Guo 2009, section 5.2), and here switches are cabled to switches",
    )
    require(
        topology.servers <= MOST_PACKED,
        f"{topology.spec} has {topology.servers} servers; packaging counts every cable and handles "
        f"up to {MOST_PACKED}",
    )
    cables = topology.cable_arrays()
    a, b = cables.a.astype(numpy.int64), cables.b.astype(numpy.int64)
    rack = _racks_of_nodes(topology, a, b, room.servers_per_rack)
    racks = -(-topology.servers // room.servers_per_rack)
    length = -(-racks // room.rack_columns)
    levels, profiles = [], []
    for level in sorted(set(cables.level.tolist())):
        here = cables.level == level
        near, far = rack[a[here]], rack[b[here]]
        profile = _wires_along_columns(near, far, length, room.rack_columns)
        levels.append(_level_wires(level, near, far, profile, room.racks_per_super_rack))
        profiles.append(profile)
    total = sum(wires.most_along_column for wires in levels)
    held = numpy.bincount(rack[topology.servers :], minlength=racks)
    servers = min(topology.servers, room.servers_per_rack)
    units = -(-servers // room.servers_per_unit) + -(-int(held.max()) // room.switches_per_unit)
    return Packing(
        racks,
        -(-racks // room.racks_per_super_rack),
        length,
        (int(held.min()), int(held.max())),
        units,
        levels,
        total,
        math.ceil(numpy.sum(profiles, axis=0).max()),
        total * math.pi / 4 * room.wire_diameter_cm**2,
    )


def _racks_of_nodes(topology: Topology, a: Ints, b: Ints, servers_per_rack: int) -> Ints:
    """Return the rack of every node: servers in order, switches as in the module's docstring."""
    rack = numpy.zeros(topology.nodes, numpy.int64)
    rack[: topology.servers] = numpy.arange(topology.servers) // servers_per_rack
    uplink = b >= topology.servers
    joined: list[set[int]] = [set() for _ in range(topology.switches)]
    for server, switch in zip(a[uplink].tolist(), b[uplink].tolist(), strict=True):
        joined[switch - topology.servers].add(server // servers_per_rack)
    placed: dict[frozenset[int], int] = {}
    for switch, racks in enumerate(joined):
        key = frozenset(racks)
        turn = placed.get(key, 0)
        placed[key] = turn + 1
        rack[topology.servers + switch] = sorted(racks)[turn % len(racks)]
    return rack


def _wires_along_columns(near: Ints, far: Ints, length: int, columns: int) -> Floats:
    """Return the number of wires passing each rack position of each column of racks."""
    change = numpy.zeros((columns, length + 1))
    low = numpy.minimum(near % length, far % length)
    high = numpy.maximum(near % length, far % length)
    for ends in (near, far):
        numpy.add.at(change, (ends // length, low + 1), 0.5)
        numpy.add.at(change, (ends // length, numpy.minimum(high + 1, length)), -0.5)
    passing: Floats = change.cumsum(axis=1)
    return passing


def _level_wires(level: int, near: Ints, far: Ints, profile: Floats, super_rack: int) -> LevelWires:
    inside = near == far
    within = near // super_rack == far // super_rack
    return LevelWires(
        int(level),
        int(inside.sum()),
        int((within & ~inside).sum()),
        int((~within).sum()),
        math.ceil(profile.max()),
        int(profile.max(axis=0).argmax()),
    )
