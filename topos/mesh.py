"""nD-FullMesh, the topology of UB-Mesh (Liao 2025, arXiv 2503.20377): servers without switches.

Servers are addressed by digits, one per dimension. In every dimension each server has a cable to
all servers whose addresses differ only in that digit (section 3.1, Fig. 4), so a server has
sum(size - 1) ports and relays packets of others::

    0.0 ---- 0.1 ---- 0.2         dimension 0: the servers of a row are a full mesh
     | \\______________/ |         dimension 1: so are the servers of a column
    1.0 ---- 1.1 ---- 1.2

The ports of dimension 0 come first. Within a dimension of s servers, the i-th of the s - 1 ports
leads to the server whose digit is larger by i + 1, modulo s.

Left out: the switches that the paper uses between racks (section 3.3), the spare NPU of a rack
(section 3.3.2), and the Clos network between pods (section 3.3.4).
"""

from __future__ import annotations

import math
from functools import cached_property

from pillarbox.topos.base.digits import DigitNetwork
from pillarbox.topos.base.errors import require
from pillarbox.topos.base.layout import DrawingDisc, Layout, Point, polar
from pillarbox.topos.base.polymorphic import NOTHING, Number
from pillarbox.topos.base.topology import Bound, Plug, count_text

MOST_PORTS = (
    127  # maximum number of ports per server in the simulator, whose ports are signed bytes
)


class Mesh(DigitNetwork):
    """nD-FullMesh with the given number of servers per dimension, dimension 0 first.

    >>> mesh = Mesh(4, 3)
    >>> mesh.servers, mesh.ports, mesh.cables
    (12, 5, 30)
    >>> [mesh.address(mesh.server_plug(mesh.server("1.2"), port).node) for port in range(5)]
    ['1.3', '1.0', '1.1', '2.2', '0.2']
    """

    title = "nD-FullMesh"
    paper = "Liao 2025"
    examples = ("mesh,3,3", "mesh,4,2", "mesh,3,2,2", "mesh,5")

    def __init__(self, *sizes: int) -> None:
        require(bool(sizes), "mesh takes the number of servers per dimension: write mesh,4,4")
        require(min(sizes) >= 2, f"each size of a mesh is 2 or more, not {min(sizes)}")
        super().__init__(*sizes)
        self.sizes = sizes
        self.servers, self.switches, self.switch_ports = self.weights[-1], 0, 0
        self.ports = sum(sizes) - len(sizes)
        require(
            self.ports <= MOST_PORTS,
            f"a server of {self.spec} has {self.ports} ports, more than the {MOST_PORTS} that are "
            "supported: choose smaller sizes",
        )
        self.cables = self.servers * self.ports // 2
        self.check_size()

    @cached_property
    def first_ports(self) -> tuple[int, ...]:
        """First port of each dimension, and at last the number of ports."""
        return tuple(sum(self.sizes[:level]) - level for level in range(len(self.sizes) + 1))

    def level_of_port(self, port: int) -> int:
        """Return the dimension of a server's port."""
        return max(level for level in range(len(self.sizes)) if port >= self.first_ports[level])

    def port_towards(self, server: int, level: int, value: int) -> int:
        """Return the port of a server towards the server whose digit of a dimension is `value`."""
        own = server // self.weights[level] % self.sizes[level]
        return self.first_ports[level] + (value - own) % self.sizes[level] - 1

    def server_plug(self, server: Number, port: int) -> Plug:
        """Return the far end of a server's port: a port of the server with another digit."""
        level = self.level_of_port(port)
        weight, size = self.weights[level], self.sizes[level]
        by = port - self.first_ports[level] + 1
        own = server // weight % size
        peer = server + ((own + by) % size - own) * weight
        return Plug(peer, self.first_ports[level] + size - by - 1, level)

    def switch_plug(self, switch: Number, port: int) -> Plug:
        """Return no far end: a full mesh has no switches."""
        return Plug(NOTHING, 0, 0)

    def switch_label(self, switch: int) -> str:
        """Return a label as the contract needs it; a full mesh has no switches."""
        return f"switch {switch}"

    def diameter_bound(self) -> Bound:
        """Return the length of the longest path: each hop corrects one digit."""
        return Bound(len(self.sizes), "number of dimensions", "the structure")

    def bisection(self) -> Bound:
        """Return the cut between the halves of the smallest dimension, if its size is even."""
        size = min(self.sizes)
        value = self.servers * size / 4 if size % 2 == 0 else None
        return Bound(value, "N s / 4 (s: the smallest size, if even)", "the structure")

    def disjoint_paths(self) -> Bound:
        """Return the number of disjoint paths: one per port (see `pillarbox.hosts.mesh`)."""
        return Bound(self.ports, "sum of (size - 1)", "the structure")

    def description(self) -> str:
        """Return a sentence that describes the mesh: servers, dimensions, ports."""
        sizes = " x ".join(map(str, self.sizes))
        return (
            f"nD-FullMesh of {self.servers_text()} ({sizes}) without switches: "
            f"each server has {count_text(self.ports, 'port')}, one to every server that differs "
            "in one digit."
        )

    def layout(self) -> Layout:
        """Return the drawing: circles of servers on circles of circles, one per dimension."""
        positions: dict[int, Point] = dict.fromkeys(range(self.servers), (0.0, 0.0))
        reach = 0.65  # radius of the disc around a cell, which grows from level to level
        discs: list[tuple[int, float]] = []  # servers and radius of a cell, by level
        for weight, size in zip(self.weights, self.sizes, strict=False):
            radius = 1.1 * reach / math.sin(math.pi / size)
            for server, (x, y) in positions.items():
                turn = 2 * math.pi * (server // weight % size) / size + len(discs)
                positions[server] = polar((x, y), radius, turn)
            reach += radius
            discs.append((weight * size, reach))
        layout = Layout(positions)
        for servers, radius in reversed(discs[:-1]):
            for first in range(0, self.servers, servers):
                xs, ys = zip(*(positions[first + i] for i in range(servers)), strict=True)
                centre = sum(xs) / servers, sum(ys) / servers
                layout.frames.append(DrawingDisc(centre, radius))
        return layout
