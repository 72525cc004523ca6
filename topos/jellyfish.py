"""Jellyfish (Singla 2012): servers on switches that a random regular graph joins.

Each of N switches has k ports: r lead to other switches and k - r to servers, N (k - r) in total.
The random graph is made as section 3 of the paper says: a random pair of switches with free ports
that are not neighbours is joined, until there is no such pair. As long as a switch with two free
ports is left, a random cable (x, y) is replaced by cables from that switch to x and to y. Switches
numbered s have the servers s (k - r) ... on their first ports; port k - r + j is the switch's j-th
cable to another switch.

The graph depends on `seed` alone (default: 1). If it is not connected, the next graph of the same
random sequence is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from pillarbox.topos.base.errors import require
from pillarbox.topos.base.layout import Layout, polar
from pillarbox.topos.base.polymorphic import Number, select
from pillarbox.topos.base.ports import PortTable
from pillarbox.topos.base.topology import Bound, Plug, Topology

SEED = 1  # default seed of the random graph
TRIES = 100  # maximum number of graphs made until one is connected
DRAWS = 50  # random pairs tried before all possible pairs are listed
MOST_CABLES = 1_000_000  # maximum number of cables between switches
SERVER_LEVEL, SWITCH_LEVEL = 0, 1

Edges = list[tuple[int, int]]


class Jellyfish(Topology):
    """Jellyfish of `switches` switches with k ports, of which r lead to other switches.

    >>> jellyfish = Jellyfish(10, 4, 3)
    >>> jellyfish.servers, jellyfish.cables
    (10, 25)
    >>> Jellyfish(10, 4, 3, seed=2).switch_plug(0, 1) == jellyfish.switch_plug(0, 1)
    False
    """

    title = "Jellyfish"
    paper = "Singla 2012"
    examples = ("jellyfish,8,4,3", "jellyfish,6,5,3", "jellyfish,5,4,2,seed=7")
    switches_interconnect = True

    def __init__(self, N: int, k: int, r: int, seed: int | None = None) -> None:  # noqa: N803 - the paper's symbol
        require(k > r, f"a switch of Jellyfish has k > r ports, not k = {k} and r = {r}")
        require(
            2 <= r < N and N * r % 2 == 0,
            f"Jellyfish's N switches have r ports each to other switches, with 2 <= r < N and N r "
            f"even: N = {N} and r = {r} do not fit",
        )
        require(
            N * r // 2 <= MOST_CABLES,
            f"jellyfish,{N},{k},{r} has {N * r // 2} cables between switches, more than "
            f"{MOST_CABLES}: choose smaller parameters",
        )
        super().__init__(N=N, k=k, r=r, seed=None if seed == SEED else seed)
        self.k, self.r, self.each = k, r, k - r
        self.servers, self.switches = N * self.each, N
        self.cables = self.servers + N * r // 2
        self.ports, self.switch_ports = 1, k
        self.check_size()
        edges = regular_graph(N, r, SEED if seed is None else seed)
        self._table = PortTable(N, ((*edge, SWITCH_LEVEL) for edge in edges))

    def server_plug(self, server: Number, port: int) -> Plug:
        """Return the switch and its port to which a Jellyfish server's only port is cabled."""
        return Plug(self.servers + server // self.each, server % self.each, SERVER_LEVEL)

    def switch_plug(self, switch: Number, port: int) -> Plug:
        """Return the far end of a Jellyfish switch's port: a server, or another switch."""
        if port < self.each:
            return Plug(switch * self.each + port, 0, SERVER_LEVEL)
        far, far_port, level = self._table.plug(switch, port - self.each)
        node = select(far >= 0, self.servers + far, far)
        return Plug(node, self.each + far_port, level)

    def digits(self, server: Number) -> tuple[Number, ...]:
        """Return the digits of a Jellyfish server's address: switch, then index on it."""
        return server // self.each, server % self.each

    def server_at(self, digits: Sequence[Number]) -> Any:
        """Return the Jellyfish server with this switch and index."""
        return digits[0] * self.each + digits[1]

    def radices(self) -> tuple[int, ...]:
        """Return the number of values of each digit of a Jellyfish address."""
        return self.switches, self.each

    def switch_label(self, switch: int) -> str:
        """Return a Jellyfish switch's label: ``ToR 3``."""
        return f"ToR {switch}"

    def diameter_bound(self) -> Bound:
        """Return Jellyfish's longest path: 1 server hop, through switches of a random graph."""
        return Bound(1, "1 (switches of a random graph)", "the structure")

    def bisection(self) -> Bound:
        """Return a bound without a value: the graph is random."""
        return Bound(None, "random", "Singla 2012")

    def disjoint_paths(self) -> Bound:
        """Return the number of disjoint paths, 1: a Jellyfish server has one cable."""
        return Bound(1, "1", "the structure")

    def layout(self) -> Layout:
        """Return Jellyfish's drawing: switches on a circle, servers outside."""
        turn = 6.283185307179586 / self.servers
        outer = max(1.3 / turn, 4.0)
        layout = Layout({}, level_names=("servers", "random graph"))
        for server in range(self.servers):
            layout.positions[server] = polar((0.0, 0.0), outer, server * turn)
        for switch in range(self.switches):
            middle = (switch * self.each + (self.each - 1) / 2) * turn
            layout.positions[self.servers + switch] = polar((0.0, 0.0), outer - 2.0, middle)
        return layout


def regular_graph(nodes: int, degree: int, seed: int) -> Edges:
    """Return the edges of a connected random regular graph, the same for the same seed.

    >>> sorted(regular_graph(4, 3, seed=1))  # the only one: a full mesh
    [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
    """
    random = Random(seed)
    for _ in range(TRIES):
        edges = _random_edges(nodes, degree, random)
        if len(edges) == nodes * degree // 2 and _connected(nodes, edges):
            return edges
    require(False, f"no connected graph of {nodes} switches with {degree} cables each was found")
    return []


def _random_edges(nodes: int, degree: int, random: Random) -> Edges:
    """Return the edges of one random graph, in which at most one port stays free."""
    around: list[set[int]] = [set() for _ in range(nodes)]
    free = list(range(nodes))  # nodes with free ports
    edges: Edges = []

    def join(a: int, b: int) -> None:
        around[a].add(b)
        around[b].add(a)
        edges.append((min(a, b), max(a, b)))

    while pair := _free_pair(free, around, random):
        join(*pair)
        free = [n for n in free if n not in pair or len(around[n]) < degree]
    for node in free:
        # The rest of the graph may be too small for a swap, as in a full mesh without an edge.
        while degree - len(around[node]) >= 2:
            others = [i for i, edge in enumerate(edges) if _can_split(edge, node, around)]
            if not others:
                return edges
            x, y = edges.pop(random.choice(others))
            around[x].remove(y)
            around[y].remove(x)
            join(node, x)
            join(node, y)
    return edges


def _free_pair(free: list[int], around: list[set[int]], random: Random) -> tuple[int, int] | None:
    """Return a random pair of nodes with free ports that are not neighbours, None without any."""
    if len(free) < 2:
        return None
    for _ in range(DRAWS):
        a, b = random.sample(free, 2)
        if b not in around[a]:
            return a, b
    pairs = [(a, b) for a in free for b in free if a < b and b not in around[a]]
    return random.choice(pairs) if pairs else None


def _can_split(edge: tuple[int, int], node: int, around: list[set[int]]) -> bool:
    """Return True if both ends of an edge differ from a node and are no neighbours of it."""
    return node not in edge and around[node].isdisjoint(edge)


def _connected(nodes: int, edges: Edges) -> bool:
    """Return True if the edges connect all nodes."""
    around: list[list[int]] = [[] for _ in range(nodes)]
    for a, b in edges:
        around[a].append(b)
        around[b].append(a)
    visited = {0}
    for node in (queue := [0]):
        for far in around[node]:
            if far not in visited:
                visited.add(far)
                queue.append(far)
    return len(visited) == nodes
