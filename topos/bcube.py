"""BCube (Guo 2009): servers addressed by k + 1 digits, with one port and one switch per digit.

A BCube_k of n-port switches has n^(k+1) servers ``a_k ... a_0``. Each level-l switch connects the
level-l ports of the n servers whose addresses differ only in digit l (section 3.1, Fig. 1)::

    <1,0>    <1,1>    <1,2>    <1,3>      level-1 switches: digit 1 removed
     |||\\     ...                          port i leads to server i.s
    0.0 0.1 0.2 0.3   1.0 ...             servers a_1.a_0
     \\  |   |  /
       <0,0>          <0,1> ...           level-0 switches: digit 0 removed

A partial BCube (section 5.1) holds the first m BCube_{k-1}s, and *all* n^k level-k switches, so
that BCubeRouting works as in a full BCube. Switches are numbered level by level.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from topos.base.errors import require
from topos.base.layout import (
    LETTER,
    ROW_HEIGHT,
    DrawingBox,
    DrawingText,
    Layout,
    cell_name,
    name_size,
    row_height,
)
from topos.base.polymorphic import NOTHING, Number, insert_digit, remove_digit, select
from topos.base.topology import Bound, Plug, Topology, count_text


class BCube(Topology):
    """BCube_k of n-port switches, or a partial BCube of its first `servers` servers.

    >>> bcube = BCube(4, 1)
    >>> bcube.address(13), bcube.server("3.1")
    ('3.1', 13)
    >>> BCube(8, 3, servers=2048).switches, BCube(8, 3, servers=2048).cables
    (1280, 8192)
    """

    title = "BCube"
    paper = "Guo 2009"
    examples = ("bcube,4,1", "bcube,2,3", "bcube,3,2", "bcube,5,0", "bcube,4,2,servers=32")

    def __init__(self, n: int, k: int, servers: int | None = None) -> None:
        require(n >= 2, f"BCube needs switches of n >= 2 ports, not {n} (Guo 2009, section 3.1)")
        require(0 <= k <= 32, f"BCube's level k goes from 0 to 32 (32-bit addresses), not {k}")
        self.n, self.k = n, k
        # Number of servers in a BCube_{k-1}, which is also the number of switches at the top level.
        self.block: int = n**k
        self.growth = self.block
        full = n * self.block
        self.servers = full if servers is None else servers
        require(
            0 < self.servers <= full and self.servers % self.block == 0,
            f"bcube,{n},{k} holds {full} servers; a partial BCube has whole BCube_{k - 1}s: "
            f"servers= takes a multiple of {self.block} up to {full}, not {self.servers} "
            "(Guo 2009, section 5.1)",
        )
        super().__init__(n=n, k=k, servers=None if self.servers == full else servers)
        # Number of switches per level below the top; a partial BCube has all top-level switches.
        self._lower_switches = self.servers // n if k else 0
        self.switches = k * self._lower_switches + self.block
        self.ports = k + 1
        self.switch_ports = n
        self.cables = self.servers * self.ports
        self.check_size()

    def server_plug(self, server: Number, port: int) -> Plug:
        """Return the far end of a BCube server's port: a port of its switch of level `port`.

        The switch is the address without digit `port`; that digit is the number of its port.
        """
        rest, digit = remove_digit(server, self.n**port, self.n)
        return Plug(self.servers + port * self._lower_switches + rest, digit, port)

    def switch_plug(self, switch: Number, port: int) -> Plug:
        """Return the server at port i of switch <l, s>: the digits s with i inserted as digit l."""
        level = select(
            switch < self.k * self._lower_switches, switch // max(self._lower_switches, 1), self.k
        )
        weight = self.n**level
        server = insert_digit(switch - level * self._lower_switches, weight, self.n, port)
        return Plug(select(server < self.servers, server, NOTHING), level, level)

    def digits(self, server: Number) -> tuple[Number, ...]:
        """Return the digits of a BCube server's address: ``a_k, ..., a_0``."""
        return tuple(server // self.n**i % self.n for i in range(self.k, -1, -1))

    def server_at(self, digits: Sequence[Number]) -> Any:
        """Return the BCube server with the digits a_i, whose number is the sum of a_i n^i."""
        return sum(digit * self.n**i for i, digit in enumerate(reversed(digits)))

    def radices(self) -> tuple[int, ...]:
        """Return each address digit's number of values: n, fewer for a partial BCube's first."""
        return (self.servers // self.block, *[self.n] * self.k)

    def switch_label(self, switch: int) -> str:
        """Return a BCube switch's label ``<l,s>`` (level, number) as in Fig. 1."""
        level = min(switch // self._lower_switches, self.k) if self._lower_switches else 0
        rest = switch - level * self._lower_switches
        digits = [rest // self.n**i % self.n for i in range(self.k - 1, -1, -1)]
        separator = "" if self.n <= 10 else "."
        return f"<{level},{separator.join(map(str, digits))}>"

    def diameter_bound(self) -> Bound:
        """Return the length of BCube's longest path, k + 1 hops: each hop corrects one digit."""
        return Bound(self.k + 1, "k + 1", "Guo 2009, Theorem 1")

    def bisection(self) -> Bound:
        """Return BCube's bisection width: half the cables of every top-level switch are cut."""
        return Bound(self.servers / 2, "N / 2", "Liao 2012, Table 2")

    def disjoint_paths(self) -> Bound:
        """Return BCube's number of disjoint paths, k + 1: one per first digit of BuildPathSet."""
        return Bound(self.k + 1, "k + 1", "Guo 2009, Theorem 3")

    def description(self) -> str:
        """Return a sentence that describes the BCube: servers, switches and ports."""
        ports = f"{count_text(self.ports, 'port')}, one per level" if self.k else "1 port"
        return (
            f"{cell_name('BCube', self.k)} of {self.servers_text()} with {self.n}-port switches: "
            f"each server has {ports}."
        )

    def layout(self) -> Layout:
        """Return BCube's drawing as in Fig. 1: servers in one row, levels of switches above."""
        gap = 0.8  # gap in the drawing between BCube_0s; additional gap between larger cells

        def x_of(server: int) -> float:
            gaps: int = sum(server // self.n**level for level in range(1, self.k + 1))
            return server + gap * gaps

        layout = Layout({server: (x_of(server), 0.0) for server in range(self.servers)})
        height = row_height(1.5 * x_of(self.servers - 1))
        rows = []
        for level in range(self.ports):
            y = ROW_HEIGHT + height * level
            rows.append((y, f"level {level}"))
            # Number of switches of a level above one cell.
            count = self.block if level == self.k else self.n**level
            # Number of servers in one cell.
            size = self.servers if level == self.k else self.n ** (level + 1)
            for i in range(self.block if level == self.k else self._lower_switches):
                cell, j = divmod(i, count)
                left, right = x_of(cell * size), x_of(cell * size + size - 1)
                x = left + (j + 0.5) * (right - left + 1) / count - 0.5
                layout.positions[self.servers + level * self._lower_switches + i] = (x, y)
        self._frame_cells(layout, x_of)
        layout.name_rows(rows)
        return layout

    def _frame_cells(self, layout: Layout, x_of: Callable[[int], float]) -> None:
        """Add to BCube's drawing a named frame for each BCube_l with l < k, larger frames first."""
        foot = 0.0
        for level in range(max(self.k, 1)):
            size = self.n ** (level + 1)
            width = x_of(size - 1) - x_of(0) + 1.0
            cells, frames = self.servers // size, []
            for cell in range(cells):
                digits = self.digits(cell * size)[: self.k - level]
                first = cell * size
                below = range(cell * self.n**level, (cell + 1) * self.n**level)
                nodes = [self.servers + level * self._lower_switches + switch for switch in below]
                name = cell_name("BCube", level, digits)
                frames.append(
                    DrawingBox([*range(first, first + size), *nodes], name, 0.62 + 0.2 * level)
                )
            letters = min(
                name_size(x_of(self.servers - 1)),
                *(width / (LETTER * len(frame.name)) for frame in frames),
            )
            foot += letters + 0.1
            for frame in frames:
                frame.foot = foot
                left, low, right, _ = layout.sides(frame)
                middle = (left + right) / 2, low + letters / 2 + 0.1
                layout.notes.append(DrawingText(middle, frame.name, letters))
            layout.frames[:0] = frames
