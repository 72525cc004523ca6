"""Torus of servers, as in CamCube (Abu-Libdeh 2010): servers are cabled directly, without switches.

The address of a server is its coordinates, dimension 0 first. Servers whose addresses differ in one
coordinate only form a ring; a ring of two is a single cable::

    0.0 --- 0.1 --- 0.2 --- (0.0)      torus,3,3: ports 0 and 1 lead to the next and the previous
     |       |       |                 server of dimension 0 (down and up), ports 2 and 3 to those
    1.0 --- 1.1 --- 1.2 --- (1.0)      of dimension 1 (right and left)
     |       |       |
    2.0 --- 2.1 --- 2.2 --- (2.0)

CamCube is a 3-D torus, `torus,a,a,a`; a hypercube is a torus of sizes 2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

from pillarbox.topos.base.errors import require
from pillarbox.topos.base.layout import Layout
from pillarbox.topos.base.polymorphic import NOTHING, Number
from pillarbox.topos.base.topology import Bound, Plug, Topology, count_text

# Distance of neighbours in a drawing, and height of the arc that a ring's servers form over the
# straight cable that closes the ring.
PITCH, BULGE = 2.0, 1.2


class Torus(Topology):
    """Torus of any number of dimensions, each of size 2 or more.

    >>> torus = Torus(4, 4, 2)
    >>> torus.servers, torus.ports, torus.cables
    (32, 5, 80)
    >>> server = torus.server("0.3.1")
    >>> [torus.address(torus.peers(server, port)[0]) for port in range(torus.ports)]
    ['1.3.1', '3.3.1', '0.0.1', '0.2.1', '0.3.0']
    """

    title = "Torus"
    paper = "Abu-Libdeh 2010"
    examples = ("torus,3,3", "torus,4,2", "torus,2,3,2", "torus,5")

    def __init__(self, *sizes: int) -> None:
        require(
            bool(sizes) and min(sizes) >= 2,
            f"a torus has one or more dimensions of size 2 or more, not {list(sizes)}",
        )
        super().__init__(*sizes)
        # Dimension and step (1 or -1) of each port; a dimension of size 2 has one port.
        self.directions = [
            (dimension, step)
            for dimension, size in enumerate(sizes)
            for step in ((1, -1) if size > 2 else (1,))
        ]
        # Size, distance of the numbers of neighbours, and first port of each dimension.
        self.rings = tuple(
            (size, math.prod(sizes[i + 1 :]), self.directions.index((i, 1)))
            for i, size in enumerate(sizes)
        )
        self.servers = math.prod(sizes)
        self.switches = self.switch_ports = 0
        self.ports = len(self.directions)
        self.cables = self.servers * self.ports // 2
        self.check_size()

    def server_plug(self, server: Number, port: int) -> Plug:
        """Return the next server in a port's direction, and its port of the opposite direction."""
        dimension, step = self.directions[port]
        size, weight, _ = self.rings[dimension]
        coordinate = server // weight % size
        peer = server + ((coordinate + step) % size - coordinate) * weight
        return Plug(peer, port + step if size > 2 else port, dimension)

    def switch_plug(self, switch: Number, port: int) -> Plug:
        """Return no far end: a torus has no switches."""
        return Plug(NOTHING, 0, 0)

    def digits(self, server: Number) -> tuple[Number, ...]:
        """Return the coordinates of a torus server, dimension 0 first."""
        return tuple(server // weight % size for size, weight, _ in self.rings)

    def server_at(self, digits: Sequence[Number]) -> Any:
        """Return the torus server with these coordinates."""
        return sum(digit * ring[1] for digit, ring in zip(digits, self.rings, strict=True))

    def radices(self) -> tuple[int, ...]:
        """Return the torus's sizes: the number of values of each coordinate."""
        return self.dimensions

    def switch_label(self, switch: int) -> str:
        """Return an empty label: a torus has no switches."""
        return ""

    def diameter_bound(self) -> Bound:
        """Return the torus's diameter: half of a ring in each dimension."""
        return Bound(sum(a // 2 for a in self.dimensions), "sum of floor(a / 2)", "the structure")

    def bisection(self) -> Bound:
        """Return the torus's bisection width: two cables of each ring of one dimension are cut.

        If that size is odd, the middle layer is cut in half in the same way.
        """
        formula = "2 N / a, a the largest size" + (
            "; the middle layer is cut likewise if a is odd"
            if any(a % 2 for a in self.dimensions)
            else ""
        )
        return Bound(_bisection(tuple(sorted(self.dimensions))), formula, "Arjona Aroca 2012")

    def disjoint_paths(self) -> Bound:
        """Return the torus's number of disjoint paths: one per port."""
        return Bound(self.ports, "2 per dimension, 1 if its size is 2", "the structure")

    def description(self) -> str:
        """Return a sentence that describes the torus: sizes, servers and ports."""
        sizes = " x ".join(map(str, self.dimensions))
        return (
            f"Torus of {self.servers_text()} ({sizes}) without switches: each server has "
            f"{count_text(self.ports, 'port')}, cabled to its neighbours in "
            f"{count_text(len(self.dimensions), 'dimension')}."
        )

    def layout(self) -> Layout:
        """Return the torus's drawing: a grid of the last two dimensions, other dimensions of grids.

        The dimensions extend to the right and downwards in turn, the last one to the right. Rings
        are drawn as open curves, so that a straight cable closes each.
        """
        names = tuple(f"dimension {i}" for i in range(len(self.dimensions)))
        layout = Layout(dict.fromkeys(range(self.servers), (0.0, 0.0)), level_names=names)
        pitch = [PITCH, PITCH]  # distance of neighbours along the dimension, right and downwards
        for turn, (size, weight, _) in enumerate(reversed(self.rings)):
            axis = turn % 2
            for server, place in layout.positions.items():
                coordinate = server // weight % size
                along = coordinate * pitch[axis]
                aside = BULGE * (1 - (2 * coordinate / (size - 1) - 1) ** 2)
                x, y = (along, aside) if axis == 0 else (aside, -along)
                layout.positions[server] = (place[0] + x, place[1] + y)
            # The next dimension on this axis has grids as neighbours, with a gap between them.
            pitch[axis] = (size - 1) * pitch[axis] + PITCH + BULGE + 1.0
        return layout


@cache
def _bisection(sizes: tuple[int, ...]) -> int:
    """Return the fewest cables of a cut across one dimension, odd ones continued in the middle."""
    cuts = []
    for i, size in enumerate(sizes):
        rest = sizes[:i] + sizes[i + 1 :]
        across = math.prod(rest) * (2 if size > 2 else 1)
        cuts.append(across + (_bisection(rest) if size % 2 and rest else 0))
    return min(cuts)
