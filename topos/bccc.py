"""BCCC, BCube Connected Crossbars (Li 2014): a BCube of groups of servers with two ports.

Each server of a BCube_k becomes a *crossbar*: a switch with k + 1 servers, one per digit. The
second port of server i of a crossbar leads to a level-i switch, which joins the n servers whose
addresses differ in digit i only. Lu 2022 (section 2.2) calls level switches type A, and crossbars
type B::

    [0*]         [*0]    ...       level switches: * is the digit in which their servers differ
     | \\          | \\
    0.0.0 ...   0.0.1 ...         servers a_k ... a_0 and place i; port 1 leads to a level-i switch
       \\         /
          [00]  ...                crossbars: port 0 of the k + 1 servers with the same digits

Level switches are numbered first, level by level, then crossbars. A BCCC(n, 0) is n servers on one
switch, without crossbars. The order of digits and the numbering are Pillarbox's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pillarbox.topos.base.errors import require
from pillarbox.topos.base.layout import ROW_HEIGHT, DrawingBox, Layout, row_height
from pillarbox.topos.base.polymorphic import NOTHING, Number, insert_digit, remove_digit, select
from pillarbox.topos.base.topology import Bound, Plug, Topology

# Level of cables to a crossbar; a cable to a level-i switch has level i + 1.
CROSSBAR = 0


class BCCC(Topology):
    """BCCC(n, k) of n-port switches, crossbars and servers with two ports.

    >>> bccc = BCCC(3, 1)
    >>> bccc.servers, bccc.switches, bccc.cables
    (18, 15, 36)
    >>> server = bccc.server("2.0.1")
    >>> [[bccc.address(peer) for peer in bccc.peers(server, port)] for port in range(2)]
    [['2.0.0'], ['0.0.1', '1.0.1']]
    """

    title = "BCCC"
    paper = "Li 2014"
    examples = ("bccc,2,1", "bccc,3,1", "bccc,2,2", "bccc,4,0")

    def __init__(self, n: int, k: int) -> None:
        require(n >= 2, f"BCCC needs switches of n >= 2 ports, not {n}")
        require(0 <= k <= 32, f"BCCC's level k goes from 0 to 32 (32-bit addresses), not {k}")
        super().__init__(n=n, k=k)
        self.n, self.k, self.places = n, k, k + 1
        self.crossbars: int = n ** (k + 1)
        self.level_switches: int = n**k  # number of switches per level
        self.servers = self.crossbars * self.places
        self.switches = self.places * self.level_switches + (self.crossbars if k else 0)
        self.ports = 2 if k else 1
        self.switch_ports = max(n, self.places)
        self.cables = self.servers * self.ports
        self.check_size()

    def server_plug(self, server: Number, port: int) -> Plug:
        """Return the far end of a BCCC server's port: its crossbar (port 0) or level switch."""
        crossbar, place = server // self.places, server % self.places
        if self.k and port == 0:
            first = self.servers + self.places * self.level_switches
            return Plug(first + crossbar, place, CROSSBAR)
        rest, digit = remove_digit(crossbar, self.n**place, self.n)
        return Plug(self.servers + place * self.level_switches + rest, digit, place + 1)

    def switch_plug(self, switch: Number, port: int) -> Plug:
        """Return the server at a switch's port: place i of a crossbar, or value i of a digit."""
        crossbar = switch - self.places * self.level_switches
        of_level = crossbar < 0
        place = select(of_level, switch // self.level_switches, 0)
        group = insert_digit(switch - place * self.level_switches, self.n**place, self.n, port)
        at_level = select(port < self.n, group * self.places + place, NOTHING)
        at_crossbar = select(port < self.places, crossbar * self.places + port, NOTHING)
        return Plug(
            select(of_level, at_level, at_crossbar),
            select(of_level, self.ports - 1, 0),
            select(of_level, place + 1, CROSSBAR),
        )

    def digits(self, server: Number) -> tuple[Number, ...]:
        """Return the digits of a BCCC server's address and its place: ``a_k, ..., a_0, i``."""
        crossbar = server // self.places
        upper: list[Any] = [crossbar // self.n**i % self.n for i in range(self.k, -1, -1)]
        return (*upper, server % self.places)

    def server_at(self, digits: Sequence[Number]) -> Any:
        """Return the BCCC server with these digits and place, numbered crossbar by crossbar."""
        *upper, place = digits
        crossbar = sum(digit * self.n**i for i, digit in enumerate(reversed(upper)))
        return crossbar * self.places + place

    def radices(self) -> tuple[int, ...]:
        """Return the number of values of each digit, and of the place: ``n, ..., n, k + 1``."""
        return (*[self.n] * self.places, self.places)

    def switch_label(self, switch: int) -> str:
        """Return a BCCC switch's label: ``[02]`` for a crossbar, ``[0*]`` for a level-0 switch."""
        level, rest = divmod(switch, self.level_switches)
        if level >= self.places:
            rest, level = switch - self.places * self.level_switches, self.places
        count = self.k + (level == self.places)
        digits = [str(rest // self.n**i % self.n) for i in range(count)]
        if level < self.places:
            digits.insert(level, "*")
        return f"[{('' if self.n <= 10 else '.').join(reversed(digits))}]"

    def diameter_bound(self) -> Bound:
        """Return BCCC's diameter: k + 1 hops correct digits, k + 1 change the place and return."""
        if not self.k:
            return Bound(1, "1", "the structure")
        return Bound(2 * self.k + 2, "2k + 2", "the structure")

    def bisection(self) -> Bound:
        """Return BCCC's bisection width: half the cables of the top-level switches are cut."""
        return Bound(self.crossbars / 2, "n^(k+1) / 2", "the structure")

    def disjoint_paths(self) -> Bound:
        """Return BCCC's number of disjoint paths: one per port of a server."""
        return Bound(self.ports, "2 (1 if k = 0)", "the structure")

    def description(self) -> str:
        """Return a sentence that describes the BCCC: servers, switches and ports."""
        ports = "1 port"
        if self.k:
            ports = f"2 ports, to a crossbar of {self.places} servers and to a level switch"
        return (
            f"BCCC({self.n}, {self.k}) of {self.servers_text()} with {self.n}-port switches: "
            f"each server has {ports}."
        )

    def layout(self) -> Layout:
        """Return BCCC's drawing: crossbars at the bottom, levels of switches above, as in BCube."""

        def x_of(crossbar: int) -> float:
            gaps: int = sum(crossbar // self.n**level for level in range(1, self.places))
            return crossbar * (self.places + 0.6) + 0.8 * gaps

        middle = (self.places - 1) / 2
        layout = Layout({}, level_names=("crossbars", *(f"level {i}" for i in range(self.places))))
        for server in range(self.servers):
            crossbar, place = divmod(server, self.places)
            layout.positions[server] = (x_of(crossbar) + place, 0.0)
        height = row_height(1.5 * x_of(self.crossbars - 1))
        rows = [(0.0, "servers")]
        for level in range(self.places):
            y = ROW_HEIGHT + height * level
            rows.append((y, f"level {level}"))
            weight = self.n**level  # number of level switches above one cell of n weight crossbars
            for switch in range(self.level_switches):
                cell, j = divmod(switch, weight)
                left = x_of(cell * self.n * weight)
                right = x_of((cell + 1) * self.n * weight - 1) + self.places - 1
                x = left + (j + 0.5) * (right - left + 1) / weight - 0.5
                layout.positions[self.servers + level * self.level_switches + switch] = (x, y)
        if self.k:
            rows.append((-ROW_HEIGHT, "crossbars"))
            first = self.servers + self.places * self.level_switches
            for crossbar in range(self.crossbars):
                layout.positions[first + crossbar] = (x_of(crossbar) + middle, -ROW_HEIGHT)
                servers = range(crossbar * self.places, (crossbar + 1) * self.places)
                layout.frames.append(DrawingBox(list(servers)))
        layout.name_rows(rows)
        return layout
