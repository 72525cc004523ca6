"""DCell (Guo 2008): recursive complete graphs; a DCell_0 is n servers on one mini-switch.

A DCell_0 is n servers on a switch (port 0). A DCell_l is g_l = t_{l-1} + 1 DCell_{l-1}s of t_{l-1}
servers each. One cable between level-l ports (port l) joins every two DCell_{l-1}s, by the rule of
section 3.2, Fig. 2::

    [i, j - 1] -- [j, i]     for all i < j,  numbers of DCell_{l-1} and of a server in it

A server is identified by its digits [a_k, ..., a_0] or by its uid = a_0 + sum of a_j t_{j-1}.

A partial DCell grows by whole DCell_1s, top down (section 5, AddDCell): in a DCell_l with l > 2,
the first t_1 + 1 DCell_1s go each to a new DCell_{l-1}; then the first of these is filled, then
the second, ...; then further DCell_{l-1}s are filled one by one. So every intermediate structure
is complete at each level except for its last member (Theorem 7). Servers of a partial DCell are
numbered in joining order: when the DCell grows, servers keep their numbers and addresses. A DCell
that has grown to full size (``dcell,2,3,servers=1806``) keeps that order; other full DCells number
their servers by uid. The last DCell_1 may itself be partial: it holds its lowest servers. A cable
whose other end has not joined is missing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from pillarbox.topos.base.errors import require
from pillarbox.topos.base.layout import Layout, cell_name
from pillarbox.topos.base.polymorphic import NOTHING, Number, select
from pillarbox.topos.base.topology import MOST_SERVERS, Bound, Plug, Topology
from pillarbox.topos.structures.circles import nested_circles


class DCell(Topology):
    """Network DCell_k of n-port switches, or a partial DCell of the first servers by AddDCell.

    >>> dcell = DCell(4, 1)
    >>> dcell.servers, dcell.sizes
    (20, [4, 20])
    >>> dcell.address(dcell.peers(dcell.server("0.3"), port=1)[0])
    '4.0'
    """

    title = "DCell"
    paper = "Guo 2008"
    cell = "DCell_0"
    examples = (
        "dcell,4,1",
        "dcell,2,2",
        "dcell,4,2",
        "dcell,5,0",
        "dcell,3,2,servers=41",
        "dcell,2,3,servers=154",
    )

    def __init__(self, n: int, k: int, servers: int | None = None) -> None:
        require(n >= 2, f"a DCell_0 has n >= 2 servers, not {n} (Guo 2008, section 3.1)")
        require(k >= 0, f"DCell's level k is 0 or more, not {k}")
        self.n, self.k = n, k
        self.sizes = [n]  # t_0 to t_k: number of servers of a DCell of each level
        for level in range(1, k + 1):
            require(
                self.sizes[-1] <= MOST_SERVERS,
                f"dcell,{n},{k} has more servers than 32-bit addresses can name; level "
                f"{level - 2} is the largest for n = {n}",
            )
            self.sizes.append(self.sizes[-1] * (self.sizes[-1] + 1))
        full = self.sizes[k]
        self.servers = full if servers is None else servers
        require(
            0 < self.servers <= full,
            f"dcell,{n},{k} holds 1 to {full} servers, not {self.servers}",
        )
        # Up to level 2, servers join a growing DCell (AddDCell) in the order of their uids.
        # A full DCell whose spec has servers= has grown: its servers are numbered as they joined.
        self._in_uid_order = k <= 2 or servers is None
        whole = self._in_uid_order and self.servers == full
        super().__init__(n=n, k=k, servers=None if whole else servers)
        # Number of servers in a DCell_1, which AddDCell adds as a unit.
        self.unit = self.sizes[min(1, k)]
        self.growth = self.unit if k > 1 else n  # servers per growth step; up to level 1, a DCell_0
        self.switches = -(-self.servers // n)
        self.ports = k + 1
        self.switch_ports = n
        self.check_size()
        self.cables = self.servers + sum(self._direct_cables(level) for level in range(1, k + 1))

    # -- numbers ---------------------------------------------------------------------------------

    def uid(self, server: Number) -> Number:
        """Return the uid of a DCell server, its number in the paper."""
        if self._in_uid_order:
            return server
        unit = self._unit_position(server // self.unit, self.k)
        return unit * self.unit + server % self.unit  # type: ignore[no-any-return]

    def server_of_uid(self, uid: Number) -> Number:
        """Return the DCell server with this uid; a partial DCell lacks results >= `servers`."""
        if self._in_uid_order:
            return uid
        joined = self._unit_joining_order(uid // self.unit, self.k)
        return joined * self.unit + uid % self.unit  # type: ignore[no-any-return]

    def _unit_position(self, joined: Any, level: int) -> Any:
        """Return the position by uid of the DCell_1 that AddDCell adds as number `joined`."""
        if level <= 2:
            return joined
        size = self.sizes[level - 1] // self.unit  # number of DCell_1s in a DCell_{level-1}
        opened = self.unit + 1  # number of DCell_{level-1}s, each of which gets one DCell_1 first
        early = joined < opened
        filling = joined < opened * size
        past = joined - opened
        cell = select(early, joined, select(filling, past // (size - 1), joined // size))
        inner = select(early, 0, select(filling, 1 + past % (size - 1), joined % size))
        return cell * size + self._unit_position(inner, level - 1)

    def _unit_joining_order(self, place: Any, level: int) -> Any:
        """Return a DCell_1's place in the order of AddDCell: the inverse of `_unit_position`."""
        if level <= 2:
            return place
        size = self.sizes[level - 1] // self.unit
        opened = self.unit + 1
        cell, inner = place // size, self._unit_joining_order(place % size, level - 1)
        filling = select(inner == 0, cell, opened + cell * (size - 1) + inner - 1)
        return select(cell < opened, filling, cell * size + inner)

    def digits(self, server: Number) -> tuple[Number, ...]:
        """Return the digits of a DCell server's address: ``a_k, ..., a_0``."""
        uid = self.uid(server)
        upper: list[Any] = [uid % self.sizes[i] // self.sizes[i - 1] for i in range(self.k, 0, -1)]
        return (*upper, uid % self.n)

    def server_at(self, digits: Sequence[Number]) -> Any:
        """Return the DCell server with the address digits ``a_k, ..., a_0``."""
        uid: Any = sum(d * w for d, w in zip(reversed(digits), [1, *self.sizes], strict=False))
        return self.server_of_uid(uid)

    def radices(self) -> tuple[int, ...]:
        """Return the number of values of each DCell address digit: ``g_k, ..., g_1, n``."""
        return (*(self.sizes[i - 1] + 1 for i in range(self.k, 0, -1)), self.n)

    # -- wiring ----------------------------------------------------------------------------------

    def server_plug(self, server: Number, port: int) -> Plug:
        """Return the far end of a DCell server's port: the switch (port 0) or the level-l peer."""
        if port == 0:
            return Plug(self.servers + server // self.n, server % self.n, 0)
        below, size = self.sizes[port - 1], self.sizes[port]
        uid = self.uid(server)
        cell, inner = uid % size // below, uid % below
        # Server number `inner` of a DCell is cabled to the inner-th DCell, not counting its own.
        other = inner + (inner >= cell)
        other_inner = cell - (cell > other)
        far = self.server_of_uid(uid // size * size + other * below + other_inner)
        return Plug(select(far < self.servers, far, NOTHING), port, port)

    def switch_plug(self, switch: Number, port: int) -> Plug:
        """Return the server at port i of a DCell_0's switch: the i-th server of the DCell_0."""
        server = switch * self.n + port
        return Plug(select(server < self.servers, server, NOTHING), 0, 0)

    # -- counts of a partial DCell ---------------------------------------------------------------

    def _direct_cables(self, level: int) -> int:
        """Return the number of cables of a level that have both ends in the partial DCell."""
        units, rest = divmod(self.servers, self.unit)
        return self._cables_in_cell(self.k, units, rest, level)

    def _cables_in_cell(self, cell: int, units: int, rest: int, level: int) -> int:
        """Return the number of cables of a level in a partial DCell of level `cell`.

        The DCell_cell has `units` DCell_1s and `rest` further servers.
        """
        if cell <= 2:
            whole, part = divmod(units * self.unit + rest, self.sizes[level])
            return whole * math.comb(self.sizes[level - 1] + 1, 2) + self._top_cables(part, level)
        size = self.sizes[cell - 1] // self.unit
        opened = self.unit + 1
        if level < cell:
            members = self._sub_cells(cell, units, rest)
            return sum(
                count * self._cables_in_cell(cell - 1, u, r, level) for count, u, r in members
            )
        if units < opened:
            return math.comb(units, 2) + min(units, rest)
        if units < opened * size:
            return math.comb(opened, 2)
        whole, part = divmod(units, size)
        return math.comb(whole, 2) + self._servers_below(whole, cell - 1, part, rest)

    def _top_cables(self, servers: int, level: int) -> int:
        """Return the number of top-level cables of a DCell_level's first `servers` servers."""
        whole, part = divmod(servers, self.sizes[level - 1])
        return math.comb(whole, 2) + min(whole, part)

    def _sub_cells(self, cell: int, units: int, rest: int) -> list[tuple[int, int, int]]:
        """Return a partial DCell's sub-DCells: (count, DCell_1s in each, further servers)."""
        size = self.sizes[cell - 1] // self.unit
        opened = self.unit + 1
        if units < opened:
            return [(units, 1, 0), (1, 0, rest)]
        if units < opened * size:
            whole, part = divmod(units - opened, size - 1)
            return [(whole, size, 0), (1, 1 + part, rest), (opened - whole - 1, 1, 0)]
        whole, part = divmod(units, size)
        return [(whole, size, 0), (1, part, rest)]

    def _servers_below(self, uid: int, cell: int, units: int, rest: int) -> int:
        """Return the number of servers of a partial DCell_cell that have a uid lower than `uid`."""
        if cell <= 2:
            return min(uid, units * self.unit + rest)
        present, size = 0, self.sizes[cell - 1]
        for count, of_each, more in self._sub_cells(cell, units, rest):
            whole_members = min(count, uid // size)
            present += whole_members * (of_each * self.unit + more)
            uid -= whole_members * size
            if whole_members < count:
                return present + self._servers_below(uid, cell - 1, of_each, more)
        return present

    # -- text and bounds -------------------------------------------------------------------------

    def switch_label(self, switch: int) -> str:
        """Return a DCell switch's label ``[a_k,...,a_1]``, the address prefix of its servers."""
        prefix = self.digits(switch * self.n)[:-1]
        return f"[{','.join(map(str, prefix))}]" if prefix else "switch"

    def diameter_bound(self) -> Bound:
        """Return the length of DCellRouting's longest path, with value None in a partial DCell."""
        value = 2 ** (self.k + 1) - 1
        return self._bound_if_full(value, "<= 2^(k+1) - 1", "Guo 2008, section 4.1")

    def bisection(self) -> Bound:
        """Return the lower bound of DCell's bisection width, with value None if it is partial."""
        if self.k == 0:
            return Bound(self.servers // 2, "N / 2", "one switch: half of its cables")
        value = self.servers / (4 * math.log(self.servers, self.n)) if self.servers > 1 else 0.0
        return self._bound_if_full(value, "> t_k / (4 log_n t_k)", "Guo 2008, Theorem 2")

    def _bound_if_full(self, value: float, formula: str, source: str) -> Bound:
        """Return a bound of the DCell paper, with value None if the DCell is partial."""
        if self.servers == self.sizes[self.k]:
            return Bound(value, formula, source)
        return Bound(None, formula, f"{source}, for full DCells only")

    def disjoint_paths(self) -> Bound:
        """Return the number of disjoint paths between DCell servers, k + 1: one per port."""
        return Bound(self.k + 1, "k + 1", "Liao 2012, Table 2")

    def description(self) -> str:
        """Return a sentence that describes the DCell: servers, switches and ports."""
        ports = {
            0: "1 port",
            1: f"2 ports, one to its switch and one to a server of another {cell_name('DCell', 0)}",
        }.get(
            self.k,
            f"{self.ports} ports, one to its switch and one per level to a server of another cell",
        )
        return (
            f"{cell_name('DCell', self.k)} of {self.servers_text()} with {self.n}-port switches: "
            f"each server has {ports}."
        )

    def layout(self) -> Layout:
        """Return DCell's drawing (Fig. 1): DCell_0s on a circle; nested circles from level 2 on."""
        return nested_circles(self, "DCell")
