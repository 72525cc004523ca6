"""The fat-tree of Al-Fares, Loukissas and Vahdat (SIGCOMM 2008), of any number of levels.

A fat-tree of n-port switches and L levels (3 in that paper) has 2 (n/2)^L servers, and every level
has the total bandwidth of the servers. A switch of level l is identified by a pair: the digits of
the servers below it without the last l + 1, and l "up" digits, the upward ports that lead to it::

    server  d_{L-1} ... d_1 d_0                        pod . edge . host for L = 3
    level l switch  (d_{L-1} ... d_{l+1} ; u_1 ... u_l)
    down port i (0 .. n/2-1)  leads to  (d_{L-1} ... d_{l+1} i ; u_1 ... u_{l-1})
    up port n/2 + x           leads to  (d_{L-1} ... d_{l+2} ; u_1 ... u_l x)

The top level has no up ports and n down ports. BCube's section 6 uses five levels of 8-port
switches. Three-level fat-trees have the addresses 10.pod.switch.host of Al-Fares's section 3.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pillarbox.topos.base.addressing import NETWORK
from pillarbox.topos.base.errors import require
from pillarbox.topos.base.layout import (
    LETTER,
    ROW_HEIGHT,
    DrawingBox,
    DrawingText,
    Layout,
    name_size,
    row_height,
)
from pillarbox.topos.base.polymorphic import Number, select
from pillarbox.topos.base.topology import Bound, Plug, Topology

LEVELS = 3  # default number of switch levels of a fat-tree, as in the paper


class FatTree(Topology):
    """Fat-tree of n-port switches with `levels` levels of switches (default: 3).

    >>> fattree = FatTree(4)
    >>> fattree.servers, fattree.switches, fattree.ip(fattree.server("3.1.1"))
    (16, 20, '10.3.1.3')
    >>> FatTree(8, levels=5).servers, FatTree(8, levels=5).switches
    (2048, 2304)
    """

    title = "Fat-tree"
    paper = "Al-Fares 2008"
    examples = ("fattree,4", "fattree,6", "fattree,4,levels=2", "fattree,4,levels=5")
    switches_interconnect = True

    def __init__(self, n: int, levels: int | None = None) -> None:
        require(
            n >= 4 and n % 2 == 0,
            f"the fat-tree's switches have an even number n >= 4 of ports, half up and half down, "
            f"not {n} (Al-Fares 2008, section 3)",
        )
        count = LEVELS if levels is None else levels
        require(2 <= count <= 31, f"the fat-tree has 2 to 31 levels of switches, not {count}")
        super().__init__(n=n, levels=None if count == LEVELS else count)
        self.n, self.levels = n, count
        self.half = n // 2
        self.servers = 2 * self.half**count
        self.width = 2 * self.half ** (count - 1)  # number of switches per level below the top
        self.switches = (count - 1) * self.width + self.width // 2
        self.cables = count * self.servers
        self.ports = 1
        self.switch_ports = n
        self.check_size()

    def server_plug(self, server: Number, port: int) -> Plug:
        """Return the edge switch and its port to which a fat-tree server's only port is cabled."""
        return Plug(self.servers + server // self.half, server % self.half, 0)

    def switch_plug(self, switch: Number, port: int) -> Plug:
        """Return the far end of a fat-tree switch's port (rules in the module's docstring).

        The level of a cable is that of the switch at its upper end.
        """
        half, last = self.half, self.levels - 1
        level, index = switch // self.width, switch % self.width
        ups = half**level  # number of upward routes from one server to this level
        prefix, up = index // ups, index % ups
        if port < half:
            downward: Any = level == level
            choice = port
        else:
            downward = level == last
            choice = port - half
        below = (prefix * half + port) * (ups // half) + up // half
        lower = select(
            level == 0, index * half + port, self.servers + (level - 1) * self.width + below
        )
        lower_port = select(level == 0, 0, half + up % half)
        # Upward cables of the level below the top drop the pod digit, which has n values, not
        # n/2.
        pods = level == last - 1
        above = select(pods, 0, prefix // half) * (ups * half) + up * half + choice
        upper = self.servers + (level + 1) * self.width + above
        upper_port = select(pods, prefix, prefix % half)
        return Plug(
            select(downward, lower, upper),
            select(downward, lower_port, upper_port),
            select(downward, level, level + 1),
        )

    def digits(self, server: Number) -> tuple[Number, ...]:
        """Return the digits of a fat-tree address: pod (n values), ..., edge, host (n/2 each)."""
        return tuple(
            server // self.half**i % (self.n if i == self.levels - 1 else self.half)
            for i in range(self.levels - 1, -1, -1)
        )

    def server_at(self, digits: Sequence[Number]) -> Any:
        """Return the fat-tree server with these address digits, numbered from left to right."""
        return sum(digit * self.half**i for i, digit in enumerate(reversed(digits)))

    def radices(self) -> tuple[int, ...]:
        """Return the number of values of each fat-tree address digit: ``n, n/2, ..., n/2``."""
        return (self.n, *[self.half] * (self.levels - 1))

    def check_addressable(self) -> None:
        """Raise PillarboxError unless pods and hosts fit the octets of 10.pod.switch.host."""
        super().check_addressable()
        require(
            self.levels != LEVELS or self.n <= 254,
            f"{self.spec} has more pods than the addresses 10.pod.switch.host can name "
            "(Al-Fares 2008, section 3.2): it can be simulated, but has no IPv4 addresses",
        )

    def ipv4(self, server: Number) -> Number:
        """Return a fat-tree server's IPv4 address ``10.pod.switch.host`` (Al-Fares 2008, 3.2)."""
        if self.levels != LEVELS:
            return super().ipv4(server)
        self.check_addressable()
        pod, edge, host = self.digits(server)
        return NETWORK + pod * 65536 + edge * 256 + host + 2

    def server_of_ipv4(self, ipv4: Number) -> Number:
        """Return the fat-tree server with the IPv4 address ``10.pod.switch.host``."""
        if self.levels != LEVELS:
            return super().server_of_ipv4(ipv4)
        low = ipv4 - NETWORK
        group = [low // 65536, low // 256 % 256, low % 256 - 2]
        return self.server_at(group)  # type: ignore[no-any-return]

    def switch_ipv4(self, switch: int) -> int:
        """Return a fat-tree switch's IPv4 address: ``10.pod.switch.1``, core ``10.n.j.i`` (3.2).

        >>> from pillarbox.topos.base.addressing import dotted_quad
        >>> fattree = FatTree(4)
        >>> [dotted_quad(fattree.switch_ipv4(switch)) for switch in (1, 8, 19)]
        ['10.0.1.1', '10.0.2.1', '10.4.2.2']
        """
        if self.levels != LEVELS:
            return super().switch_ipv4(switch)
        level, index = divmod(switch, self.width)
        group, position = divmod(index, self.half)
        if level == LEVELS - 1:
            octets = (self.n, group + 1, position + 1)
        else:
            octets = (group, level * self.half + position, 1)
        return NETWORK + int.from_bytes(bytes(octets), "big")

    def switch_label(self, switch: int) -> str:
        """Return a switch label: ``edge 0.1``, ``aggregation 0.1``, ``core 2``, ``level 3:17``."""
        level, index = divmod(switch, self.width)
        if level == self.levels - 1:
            return f"core {index}"
        if self.levels == LEVELS:
            pod, position = divmod(index, self.half)
            return f"{('edge', 'aggregation')[level]} {pod}.{position}"
        return f"level {level}:{index}"

    def diameter_bound(self) -> Bound:
        """Return the fat-tree's longest path: 1 server hop, through at most 2L - 1 switches."""
        return Bound(1, "1 (up to 2L - 1 switches)", "the structure")

    def bisection(self) -> Bound:
        """Return the fat-tree's full bisection width: one cable per two servers."""
        return Bound(self.servers / 2, "N / 2", "Liao 2012, Table 2")

    def disjoint_paths(self) -> Bound:
        """Return the number of disjoint paths, 1: a fat-tree's server has one cable."""
        return Bound(1, "1", "Liao 2012, Table 2")

    def description(self) -> str:
        """Return a sentence that describes the fat-tree: servers, switches and levels."""
        return (
            f"Fat-tree of {self.servers_text()} with {self.n}-port switches on {self.levels} "
            "levels: each server has 1 port and relays nothing."
        )

    def layout(self) -> Layout:
        """Return the fat-tree's drawing: servers at the bottom, the core switches on top."""
        gap = 0.35 if self.half > 2 else 0.6  # horizontal gap between edge switches in the drawing
        layout = Layout({s: (s + s // self.half * gap, 0.0) for s in range(self.servers)})
        width = layout.positions[self.servers - 1][0] + gap + 1
        heights = [ROW_HEIGHT]
        for level in range(1, self.levels):
            # Drawn rows of switches get farther apart towards the core, where cables span all.
            span = width if level == self.levels - 1 else self.half**level * (self.half + gap)
            heights.append(heights[-1] + row_height(1.5 * span))
        for switch in range(self.switches):
            level, index = divmod(switch, self.width)
            count = self.width if level < self.levels - 1 else self.width // 2
            x = (index + 0.5) * width / count - (gap + 1) / 2
            layout.positions[self.servers + switch] = (x, heights[level])
        if self.levels == LEVELS:
            layout.level_names = ("servers to edge", "edge to aggregation", "aggregation to core")
            names = ["edge", "aggregation", "core"]
        else:
            names = [*(f"level {level}" for level in range(self.levels - 1)), "core"]
        self._frame_pods(layout, gap)
        layout.name_rows([(0.0, "servers"), *zip(heights, names, strict=True)])
        return layout

    def _frame_pods(self, layout: Layout, gap: float) -> None:
        """Add a frame to the drawing for each pod, with the pod's name below its servers."""
        # Number of servers per pod, of switches per pod and level.
        size, switches = (self.servers // self.n, self.width // self.n)
        width = layout.positions[size - 1][0] + 1.0
        letters = min(name_size(layout.positions[self.servers - 1][0]), width / (LETTER * 6))
        for pod in range(self.n):
            nodes = [*range(pod * size, (pod + 1) * size)]
            for level in range(self.levels - 1):
                first = self.servers + level * self.width + pod * switches
                nodes += range(first, first + switches)
            frame = DrawingBox(nodes, f"pod {pod}", min(0.62, (1.0 + gap) / 2 - 0.1), letters + 0.1)
            left, low, right, _ = layout.sides(frame)
            layout.frames.append(frame)
            middle = (left + right) / 2, low + letters / 2 + 0.1
            layout.notes.append(DrawingText(middle, frame.name, letters))
