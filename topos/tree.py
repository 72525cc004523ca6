"""The two-level tree with which the papers compare their testbeds (Guo 2008, 2009).

m leaf switches of n servers each under one root switch. Leaf j's ports 0 .. n-1 lead to its
servers and port n to port j of the root, which is the last switch. The servers have one port and
do not relay: learning bridges forward all packets. With `servers=` the last leaf is not full.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pillarbox.topos.base.errors import require
from pillarbox.topos.base.layout import Layout, row_height
from pillarbox.topos.base.polymorphic import NOTHING, Number, select
from pillarbox.topos.base.topology import Bound, Plug, Topology, count_text

HOSTS_LEVEL, ROOT_LEVEL = 0, 1


class Tree(Topology):
    """Tree of m leaf switches with n servers each under one root switch.

    >>> tree = Tree(4, 5)
    >>> tree.servers, tree.switches, tree.cables
    (20, 6, 25)
    >>> tree.address(19)
    '4.3'
    """

    title = "Two-level tree"
    paper = "Guo 2008, section 7.3; Guo 2009, section 7.5"
    examples = ("tree,4,5", "tree,4,4", "tree,3,1", "tree,48,3,servers=100")
    switches_interconnect = True

    def __init__(self, n: int, m: int, servers: int | None = None) -> None:
        require(n >= 1, f"a leaf switch of the tree has n >= 1 servers, not {n}")
        require(m >= 1, f"the tree has m >= 1 leaf switches, not {m}")
        self.n, self.m = n, m
        full = n * m
        self.servers = full if servers is None else servers
        require(
            full - n < self.servers <= full,
            f"tree,{n},{m} holds {full - n + 1} to {full} servers (only its last leaf may be "
            f"partial), not {self.servers}",
        )
        super().__init__(n=n, m=m, servers=None if self.servers == full else servers)
        self.switches = m + 1
        self.cables = self.servers + m
        self.ports = 1
        self.switch_ports = max(n + 1, m)
        self.check_size()

    def server_plug(self, server: Number, port: int) -> Plug:
        """Return the leaf switch and its port to which a tree server's only port is cabled."""
        return Plug(self.servers + server // self.n, server % self.n, HOSTS_LEVEL)

    def switch_plug(self, switch: Number, port: int) -> Plug:
        """Return the far end of a tree switch's port: a server or another switch.

        A leaf's first n ports lead to its servers and the next port to the root. The root's ports
        lead to the leaves.
        """
        root = switch == self.m
        if port < self.n:
            server = switch * self.n + port
            of_leaf = Plug(select(server < self.servers, server, NOTHING), 0, HOSTS_LEVEL)
        elif port == self.n:
            of_leaf = Plug(self.servers + self.m, switch, ROOT_LEVEL)
        else:
            of_leaf = Plug(NOTHING, 0, ROOT_LEVEL)
        of_root = Plug(self.servers + port if port < self.m else NOTHING, self.n, ROOT_LEVEL)
        return Plug(*(select(root, *both) for both in zip(of_root, of_leaf, strict=True)))

    def digits(self, server: Number) -> tuple[Number, ...]:
        """Return the digits of a tree server's address: leaf switch, then index on the leaf."""
        return server // self.n, server % self.n

    def server_at(self, digits: Sequence[Number]) -> Any:
        """Return the tree's server with this leaf switch and index; numbering goes leaf by leaf."""
        leaf, index = digits
        return leaf * self.n + index

    def radices(self) -> tuple[int, ...]:
        """Return the number of values of each digit of a tree's addresses: ``m, n``."""
        return self.m, self.n

    def switch_label(self, switch: int) -> str:
        """Return the label of a tree's switch: ``root`` or ``leaf 3``."""
        return "root" if switch == self.m else f"leaf {switch}"

    def diameter_bound(self) -> Bound:
        """Return the tree's longest path: 1 server hop, through at most three switches."""
        return Bound(1, "1 (up to 3 switches)", "the structure")

    def bisection(self) -> Bound:
        """Return the tree's bisection width: the uplinks of half the leaf switches are cut.

        If m is odd, the middle leaf is cut in half as well.
        """
        if self.m == 1:
            return Bound(self.servers // 2, "N / 2", "one leaf: half of its cables")
        half, odd = divmod(self.m, 2)
        middle = self.servers // 2 - half * self.n if odd else 0
        return Bound(half + max(middle, 0), "floor(m/2) + (n/2 if m is odd)", "the structure")

    def disjoint_paths(self) -> Bound:
        """Return the number of disjoint paths, 1: a tree's server has one cable."""
        return Bound(1, "1", "Guo 2009, Table 1")

    def description(self) -> str:
        """Return a sentence that describes the tree: servers, leaves and root."""
        return (
            f"Two-level tree of {self.servers_text()}: {count_text(self.m, 'leaf switch')} below "
            "one root switch; each server has 1 port and relays nothing."
        )

    def layout(self) -> Layout:
        """Return the tree's drawing: servers at the bottom, leaf switches above, root on top."""
        pitch = max(self.n, 2) + 0.6  # horizontal distance between leaf switches in the drawing
        layout = Layout({}, level_names=("servers to leaves", "leaves to the root"))
        for server in range(self.servers):
            leaf, index = divmod(server, self.n)
            layout.positions[server] = (leaf * pitch + index - (self.n - 1) / 2, 0.0)
        height = row_height(self.m * pitch)
        for leaf in range(self.m):
            layout.positions[self.servers + leaf] = (leaf * pitch, row_height(self.n))
        x = (self.m - 1) * pitch / 2
        layout.positions[self.servers + self.m] = (x, row_height(self.n) + height)
        layout.name_rows(
            [
                (0.0, "servers"),
                (row_height(self.n), "leaves"),
                (row_height(self.n) + height, "root"),
            ]
        )
        return layout
