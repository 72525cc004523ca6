"""DPillar (Liao 2012): columns of dual-port servers and columns of switches, alternating in a ring.

An (n, k) DPillar has k columns H_0 .. H_{k-1} of (n/2)^k servers and, between H_i and H_{i+1}, the
switch column S_i of (n/2)^(k-1) n-port switches (sections 2.1-2.3, Fig. 2)::

    H_0 ---- S_0 ---- H_1 ---- S_1 ---- H_2 ... H_{k-1} ---- S_{k-1} ---- H_0
        v^0 is free       v^1 is free                v^{k-1} is free

Server (C, v^{k-1}...v^0) reaches S_C, where symbol v^C is free, by its clockwise port 0, and
S_{C-1}, where v^{C-1} is free, by its counter-clockwise port 1. A switch's first n/2 ports lead to
the previous column, the others to the next column, each in the order of the free symbol.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from pillarbox.topos.base.addressing import NETWORK
from pillarbox.topos.base.errors import require
from pillarbox.topos.base.layout import LETTER, SUBSCRIPTS, DrawingText, Layout, name_size
from pillarbox.topos.base.polymorphic import Number, insert_digit, remove_digit
from pillarbox.topos.base.topology import Bound, Plug, Topology

CLOCKWISE, COUNTER_CLOCKWISE = 0, 1
LOW_BITS = 24  # number of bits of a DPillar IPv4 address below the octet of the column


class DPillar(Topology):
    """Network DPillar(n, k) of n-port switches and k columns of servers.

    >>> dpillar = DPillar(8, 2)
    >>> dpillar.servers, dpillar.switches
    (32, 8)
    >>> [dpillar.address(s) for s in dpillar.peers(dpillar.server("0.3.3"), CLOCKWISE)]
    ['0.3.0', '0.3.1', '0.3.2', '1.3.0', '1.3.1', '1.3.2', '1.3.3']
    """

    title = "DPillar"
    paper = "Liao 2012"
    examples = ("dpillar,8,2", "dpillar,4,2", "dpillar,6,2", "dpillar,4,3", "dpillar,4,4")
    # IPv4 addresses start with the octet 10 + column, so no single /8 covers all servers.
    ip_prefix_length: ClassVar[int] = 32

    def __init__(self, n: int, k: int) -> None:
        require(
            n >= 4 and n % 2 == 0,
            f"DPillar's switches have an even number n >= 4 of ports, half for each neighbouring "
            f"column, not {n} (Liao 2012, section 2.1)",
        )
        require(
            2 <= k <= 31,
            f"DPillar's columns k go from 2 to 31 (32-bit addresses), not {k}: with one column "
            "both ports of a server would be on the same switch",
        )
        super().__init__(n=n, k=k)
        self.n, self.k = n, k
        self.half = n // 2  # number of values of each symbol in a server's label
        self.column_servers: int = self.half**k
        self.column_switches: int = self.half ** (k - 1)
        self.servers = k * self.column_servers
        self.switches = k * self.column_switches
        self.ports = 2
        self.switch_ports = n
        self.cables = 2 * self.servers
        self.symbol_bits = (self.half - 1).bit_length()
        self.check_size()

    def server_plug(self, server: Number, port: int) -> Plug:
        """Return the switch at a DPillar server's port: clockwise in S_C, else in S_{C-1}."""
        column, label = server // self.column_servers, server % self.column_servers
        switch_column = (column - port) % self.k
        weight = self.half**switch_column
        rest, symbol = remove_digit(label, weight, self.half)
        switch = switch_column * self.column_switches + rest
        switch_port = port * self.half + symbol
        return Plug(self.servers + switch, switch_port, switch_column)

    def switch_plug(self, switch: Number, port: int) -> Plug:
        """Return the server at a DPillar switch port: of H_i at the first n/2, else of H_{i+1}."""
        side, symbol = divmod(port, self.half)
        switch_column, rest = switch // self.column_switches, switch % self.column_switches
        label = insert_digit(rest, self.half**switch_column, self.half, symbol)
        column = (switch_column + side) % self.k
        return Plug(column * self.column_servers + label, side, switch_column)

    def digits(self, server: Number) -> tuple[Number, ...]:
        """Return the digits of a DPillar address: column C, then label ``v^{k-1}, ..., v^0``."""
        symbols: list[Any] = [server // self.half**i % self.half for i in range(self.k - 1, -1, -1)]
        return (server // self.column_servers, *symbols)

    def server_at(self, digits: Sequence[Number]) -> Any:
        """Return the DPillar server with this column and label, numbered column by column."""
        column, *symbols = digits
        label = sum(symbol * self.half**i for i, symbol in enumerate(reversed(symbols)))
        return column * self.column_servers + label

    def radices(self) -> tuple[int, ...]:
        """Return each DPillar address digit's number of values: k columns, then n/2 per symbol."""
        return (self.k, *[self.half] * self.k)

    # -- addresses of Fig. 5 ---------------------------------------------------------------------

    def check_addressable(self) -> None:
        """Raise PillarboxError unless label and NIC bit fit into 24 address bits (Fig. 5)."""
        bits = self.k * self.symbol_bits + 1
        require(
            bits <= LOW_BITS,
            f"{self.spec} needs {bits} bits for label and NIC, and Fig. 5 of Liao 2012 leaves "
            f"{LOW_BITS}: it can be simulated, but has no IPv4 addresses",
        )

    def ipv4(self, server: Number, nic: int = 0) -> Any:
        """Return the IPv4 address of one of a DPillar server's two NICs (Fig. 5).

        The top octet holds the column, then follow symbols of ceil(log2(n/2)) bits, and the lowest
        bit is the NIC. Departs from the paper: the top octet is 10 + column, since 0.x.x.x is not a
        host address.
        """
        self.check_addressable()
        column, *symbols = self.digits(server)
        low: Any = 0
        for symbol in symbols:
            low = low * 2**self.symbol_bits + symbol
        return NETWORK + column * 2**LOW_BITS + low * 2 + nic

    def server_of_ipv4(self, ipv4: Number) -> Any:
        """Return the DPillar server that has this IPv4 address at one of its two NICs."""
        column = ipv4 // 2**LOW_BITS - NETWORK // 2**LOW_BITS
        low = ipv4 % 2**LOW_BITS // 2
        size = 2**self.symbol_bits
        symbols: list[Any] = [low // size**i % size for i in range(self.k - 1, -1, -1)]
        return self.server_at([column, *symbols])

    # -- text and bounds -------------------------------------------------------------------------

    def switch_label(self, switch: int) -> str:
        """Return a DPillar switch's label such as ``S1:*0``: column, symbols (star: any symbol)."""
        column, rest = divmod(switch, self.column_switches)
        symbols = [str(rest // self.half**i % self.half) for i in range(self.k - 1)]
        symbols.insert(column, "*")
        separator = "" if self.half <= 10 else "."
        return f"S{column}:{separator.join(reversed(symbols))}"

    def diameter_bound(self) -> Bound:
        """Return the length of DPillarSP's longest path: k hops set the symbols, k - 1 follow."""
        return Bound(2 * self.k - 1, "<= 2k - 1", "Liao 2012, Proposition 3.1")

    def bisection(self) -> Bound:
        """Return DPillar's bisection width: half the cables of one column's switches are cut."""
        return Bound(self.column_servers, "(n/2)^k", "Liao 2012, Proposition 2.3")

    def disjoint_paths(self) -> Bound:
        """Return the number of DPillar's disjoint paths, n / 2: one per first symbol."""
        return Bound(self.half, "n / 2", "Liao 2012, Table 2")

    def description(self) -> str:
        """Return a sentence that describes the DPillar: columns, servers, switches and ports."""
        return (
            f"DPillar of {self.servers_text()} in {self.k} columns with {self.n}-port switches: "
            "each server has 2 ports, one to a switch on each side of its column."
        )

    def layout(self) -> Layout:
        """Return DPillar's drawing as in Fig. 2: columns left to right, column 0 on both sides."""
        step = max(3.0, self.column_servers / 3.5)
        layout = Layout({}, styles=("solid",))
        layout.level_names = tuple(f"H{c}-S{c}-H{(c + 1) % self.k}" for c in range(self.k))
        separator = "" if self.half <= 10 else "."
        for server in range(self.servers):
            column, label = divmod(server, self.column_servers)
            layout.positions[server] = (2 * column * step, -1.05 * label)
            layout.labels[server] = separator.join(map(str, self.digits(server)[1:]))
            if column == 0:
                layout.repeated[server] = (2 * self.k * step, -1.05 * label)
                layout.wrapped.add((server, self.server_plug(server, COUNTER_CLOCKWISE).node))
        for switch in range(self.switches):
            column, rest = divmod(switch, self.column_switches)
            y = -1.05 * ((rest + 0.5) * self.half - 0.5)
            layout.positions[self.servers + switch] = ((2 * column + 1) * step, y)
        # Two adjacent node names must fit between two columns of the drawing.
        size = min(name_size(2 * self.k * step), step / (10 * LETTER))
        for c in range(2 * self.k + 1):
            column, of_switches = c // 2 % self.k, c % 2
            name = f"{'switches S' if of_switches else 'column H'}{column}".translate(SUBSCRIPTS)
            layout.notes.append(DrawingText((c * step, 1.0 + size / 2), name, size))
        return layout
