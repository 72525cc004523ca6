"""VL2, a Clos network between aggregation and intermediate switches (Greenberg 2011, Fig. 4).

With aggregation switches of D_A ports and intermediate switches of D_I ports there are D_A/2
intermediate switches, D_I aggregation switches and D_A D_I / 4 top-of-rack (ToR) switches. An
aggregation switch has one cable to each intermediate switch, and D_A/2 to ToR switches; a ToR
switch has 20 servers and two uplinks, to two aggregation switches::

    ToR t            ports 0 .. tor-1 servers, port tor + u to aggregation 2 floor(2t / D_A) + u
    aggregation x    ports 0 .. D_A/2-1 ToRs of its pair, port D_A/2 + m to intermediate m
    intermediate m   port x to aggregation x

The two aggregation switches of a ToR switch are neighbours, x and x + 1, by this file's choice. In
Fig. 4 the cables between switches have 10 Gbit/s; where all cables have one rate, `tor=2` gives a
ToR switch as many servers as uplinks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pillarbox.topos.base.errors import require
from pillarbox.topos.base.layout import ROW_HEIGHT, Layout, row_height
from pillarbox.topos.base.polymorphic import Number, select
from pillarbox.topos.base.topology import Bound, Plug, Topology

SERVERS_PER_TOR = 20  # default number of servers of a ToR switch, as in the paper
UPLINKS = 2  # number of uplinks of a ToR switch
SERVER_LEVEL, TOR_LEVEL, CLOS_LEVEL = 0, 1, 2


class VL2(Topology):
    """VL2 network of `a`-port aggregation and `i`-port intermediate switches (D_A and D_I).

    >>> VL2(4, 4).servers, VL2(4, 4).switches, VL2(4, 4).cables
    (80, 10, 96)
    >>> vl2 = VL2(4, 4, tor=2)
    >>> [vl2.switch_label(switch) for switch in (0, 4, 8)]
    ['ToR 0', 'aggregation 0', 'intermediate 0']
    """

    title = "VL2"
    paper = "Greenberg 2011"
    examples = ("vl2,4,4,tor=2", "vl2,4,2,tor=3", "vl2,2,4,tor=1")
    switches_interconnect = True

    def __init__(self, a: int, i: int, tor: int | None = None) -> None:
        require(
            a >= 2 and i >= 2 and a % 2 == i % 2 == 0,
            f"VL2's aggregation and intermediate switches have even numbers a, i >= 2 of ports, "
            f"not {a} and {i} (Greenberg 2011, Fig. 4)",
        )
        self.tor = SERVERS_PER_TOR if tor is None else tor
        require(self.tor >= 1, f"a ToR switch of VL2 has tor >= 1 servers, not {self.tor}")
        super().__init__(a=a, i=i, tor=None if self.tor == SERVERS_PER_TOR else tor)
        self.a, self.i, self.half = a, i, a // 2
        self.tors = self.half * i // UPLINKS
        self.servers = self.tors * self.tor
        self.switches = self.tors + i + self.half
        self.cables = self.servers + UPLINKS * self.tors + i * self.half
        self.ports = 1
        self.switch_ports = max(self.tor + UPLINKS, a, i)
        self.check_size()

    def server_plug(self, server: Number, port: int) -> Plug:
        """Return the ToR switch and its port to which a VL2 server's only port is cabled."""
        return Plug(self.servers + server // self.tor, server % self.tor, SERVER_LEVEL)

    def switch_plug(self, switch: Number, port: int) -> Plug:
        """Return the far end of a VL2 switch's port (rules in the module's docstring)."""
        first = self.servers + self.tors  # node number of the first aggregation switch
        aggregation = switch - self.tors
        intermediate = aggregation - self.i
        kind = select(aggregation < 0, 0, select(intermediate < 0, 1, 2))
        nothing = Plug(-1, 0, 0)
        of_tor = of_aggregation = of_intermediate = nothing
        if port < self.tor:
            of_tor = Plug(switch * self.tor + port, 0, SERVER_LEVEL)
        elif port < self.tor + UPLINKS:
            pair, place = switch // self.half, switch % self.half
            of_tor = Plug(first + pair * UPLINKS + port - self.tor, place, TOR_LEVEL)
        if port < self.half:
            pair, uplink = aggregation // UPLINKS, aggregation % UPLINKS
            of_aggregation = Plug(
                self.servers + pair * self.half + port, self.tor + uplink, TOR_LEVEL
            )
        elif port < self.a:
            of_aggregation = Plug(first + self.i + port - self.half, aggregation, CLOS_LEVEL)
        if port < self.i:
            of_intermediate = Plug(first + port, self.half + intermediate, CLOS_LEVEL)
        ends = zip(of_tor, of_aggregation, of_intermediate, strict=True)
        return Plug(*(select(kind == 0, t, select(kind == 1, x, m)) for t, x, m in ends))

    def digits(self, server: Number) -> tuple[Number, ...]:
        """Return the digits of a VL2 server's address: ToR switch, then index on it."""
        return server // self.tor, server % self.tor

    def server_at(self, digits: Sequence[Number]) -> Any:
        """Return the VL2 server with this ToR switch and index."""
        return digits[0] * self.tor + digits[1]

    def radices(self) -> tuple[int, ...]:
        """Return the number of values of each digit of a VL2 address."""
        return self.tors, self.tor

    def switch_label(self, switch: int) -> str:
        """Return a VL2 switch's label: ``ToR 0``, ``aggregation 1`` or ``intermediate 0``."""
        if switch < self.tors:
            return f"ToR {switch}"
        aggregation = switch - self.tors
        if aggregation < self.i:
            return f"aggregation {aggregation}"
        return f"intermediate {aggregation - self.i}"

    def diameter_bound(self) -> Bound:
        """Return VL2's longest path: 1 server hop, through at most five switches."""
        return Bound(1, "1 (up to 5 switches)", "the structure")

    def bisection(self) -> Bound:
        """Return a bound without a value: it depends on the servers of a ToR switch."""
        return Bound(None, "not in the paper", "Greenberg 2011")

    def disjoint_paths(self) -> Bound:
        """Return the number of disjoint paths, 1: a VL2 server has one cable."""
        return Bound(1, "1", "the structure")

    def description(self) -> str:
        """Return a sentence that describes the VL2 network: servers and switches."""
        return (
            f"VL2 of {self.servers_text()}: {self.tors} ToR, {self.i} aggregation and {self.half} "
            "intermediate switches; each server has 1 port and relays nothing."
        )

    def layout(self) -> Layout:
        """Return VL2's drawing: a row each of servers, ToR, aggregation, intermediate switches."""
        pitch = max(self.tor, 2) + 0.6
        width = self.tors * pitch
        layout = Layout({}, level_names=("servers to ToR", "ToR to aggregation", "Clos"))
        for server in range(self.servers):
            tor, index = divmod(server, self.tor)
            layout.positions[server] = ((tor + 0.5) * pitch + index - (self.tor - 1) / 2, 0.0)
        heights = [0.0, ROW_HEIGHT]
        heights += [heights[-1] + step * row_height(1.5 * width) for step in (1, 2)]
        node = self.servers
        for count, height in zip((self.tors, self.i, self.half), heights[1:], strict=True):
            for place in range(count):
                layout.positions[node] = ((place + 0.5) * width / count, height)
                node += 1
        names = ("servers", "ToR", "aggregation", "intermediate")
        layout.name_rows(list(zip(heights, names, strict=True)))
        return layout
