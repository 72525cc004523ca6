"""Networks with one switch for each group of servers that differ only in one digit.

A server has a port per level. Its level-l port leads to the level-l switch that is named by the
server's other digits; the port of the switch is digit l. Switches are numbered level by level. The
sizes of levels may differ: BCube (Guo 2009, section 3.1) is the case of equal sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate

from pillarbox.topos.base.digits import DigitNetwork
from pillarbox.topos.base.layout import (
    LETTER,
    ROW_HEIGHT,
    DrawingBox,
    DrawingText,
    Layout,
    name_size,
    row_height,
)
from pillarbox.topos.base.polymorphic import NOTHING, Number, insert_digit, remove_digit, select
from pillarbox.topos.base.topology import Plug


class SwitchedDigits(DigitNetwork):
    """Base class of networks with a switch per level for each group of servers.

    A subclass calls `set_levels` before `check_size`, and names cells by `cell_title`.
    """

    _first_switches: tuple[int, ...]  # first switch of each level, and at last their number

    def set_levels(self, sizes: Sequence[int], switch_ports: int) -> None:
        """Set the sizes of all levels, level 0 first, and the counts that follow from them."""
        self.sizes = tuple(sizes)
        self.servers = self.weights[-1]
        of_levels = (self.servers // size for size in self.sizes)
        self._first_switches = tuple(accumulate(of_levels, initial=0))
        self.switches = self._first_switches[-1]
        self.ports = len(self.sizes)
        self.switch_ports = switch_ports
        self.cables = self.servers * self.ports

    def cell_title(self, level: int, digits: Sequence[int]) -> str:
        """Return the name of a cell in the drawing: the servers with these upper digits."""
        raise NotImplementedError

    def level_title(self, level: int) -> str:
        """Return the name of a level's row of switches in the drawing."""
        return f"level {level}"

    def server_plug(self, server: Number, port: int) -> Plug:
        """Return the far end of a server's port: a port of its switch of level `port`.

        The switch is the address without digit `port`; that digit is the number of its port.
        """
        rest, digit = remove_digit(server, self.weights[port], self.sizes[port])
        return Plug(self.servers + self._first_switches[port] + rest, digit, port)

    def switch_plug(self, switch: Number, port: int) -> Plug:
        """Return the server at port i of a level-l switch: its digits with i inserted as digit l.

        The upper ports of a switch with more ports than servers are empty.
        """
        server, level = NOTHING, 0
        for number, size in enumerate(self.sizes):
            rest = switch - self._first_switches[number]
            at_port = insert_digit(rest, self.weights[number], size, port)
            server = select(rest >= 0, at_port if port < size else NOTHING, server)
            level = select(rest >= 0, number, level)
        return Plug(server, level, level)

    def switch_of(self, server: int, level: int) -> int:
        """Return the node number of a server's switch of a level."""
        node: int = self.server_plug(server, level).node
        return node

    def switch_place(self, switch: int) -> tuple[int, list[int]]:
        """Return a switch's level, and the digits that its servers share, top level first."""
        level = max(i for i in range(self.ports) if switch >= self._first_switches[i])
        rest, digits = switch - self._first_switches[level], []
        for other, size in enumerate(self.sizes):
            if other != level:
                digits.append(rest % size)
                rest //= size
        return level, digits[::-1]

    def layout(self) -> Layout:
        """Return the drawing as in Guo 2009, Fig. 1: servers in one row, levels of switches above.

        Every cell is framed: servers of the same upper digits, with their lower switches.
        """
        gap = 0.8  # gap in the drawing between cells of level 0; additional gap between larger ones

        def x_of(server: int) -> float:
            gaps: int = sum(server // self.weights[level] for level in range(1, self.ports))
            return server + gap * gaps

        layout = Layout({server: (x_of(server), 0.0) for server in range(self.servers)})
        height = row_height(1.5 * x_of(self.servers - 1))
        rows = []
        for level in range(self.ports):
            y = ROW_HEIGHT + height * level
            rows.append((y, self.level_title(level)))
            count = self.weights[level]  # number of switches of the level above one cell
            size = self.weights[level + 1]  # number of servers in one cell
            for i in range(self.servers // self.sizes[level]):
                cell, j = divmod(i, count)
                left, right = x_of(cell * size), x_of(cell * size + size - 1)
                x = left + (j + 0.5) * (right - left + 1) / count - 0.5
                layout.positions[self.servers + self._first_switches[level] + i] = (x, y)
        self._frame_cells(layout, x_of)
        layout.name_rows(rows)
        return layout

    def _frame_cells(self, layout: Layout, x_of: Callable[[int], float]) -> None:
        """Add a named frame for each cell below the top level to the drawing, larger ones first."""
        foot = 0.0
        for level in range(max(self.k, 1)):
            size, count = self.weights[level + 1], self.weights[level]
            width = x_of(size - 1) - x_of(0) + 1.0
            frames = []
            for cell in range(self.servers // size):
                digits = self.digits(cell * size)[: self.k - level]
                first = cell * size
                base = self.servers + self._first_switches[level]
                nodes = range(base + cell * count, base + (cell + 1) * count)
                frames.append(
                    DrawingBox(
                        [*range(first, first + size), *nodes],
                        self.cell_title(level, digits),
                        0.62 + 0.2 * level,
                    )
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
