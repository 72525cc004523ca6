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

from collections.abc import Sequence

from pillarbox.topos.base.errors import require
from pillarbox.topos.base.layout import cell_name
from pillarbox.topos.base.switched_digits import SwitchedDigits
from pillarbox.topos.base.topology import Bound, count_text


class BCube(SwitchedDigits):
    """BCube_k of n-port switches, or a partial BCube of its first `servers` servers.

    >>> bcube = BCube(4, 1)
    >>> bcube.address(13), bcube.server("3.1")
    ('3.1', 13)
    >>> BCube(8, 3, servers=2048).switches, BCube(8, 3, servers=2048).cables
    (1280, 8192)
    """

    title = "BCube"
    paper = "Guo 2009"
    cell = "BCube_0"
    examples = ("bcube,4,1", "bcube,2,3", "bcube,3,2", "bcube,5,0", "bcube,4,2,servers=32")

    def __init__(self, n: int, k: int, servers: int | None = None) -> None:
        require(n >= 2, f"BCube needs switches of n >= 2 ports, not {n} (Guo 2009, section 3.1)")
        require(0 <= k <= 32, f"BCube's level k goes from 0 to 32 (32-bit addresses), not {k}")
        self.n = n
        block: int = n**k  # number of servers in a BCube_{k-1}
        self.growth, full = block, n * block
        count = full if servers is None else servers
        require(
            0 < count <= full and count % block == 0,
            f"bcube,{n},{k} holds {full} servers; a partial BCube has whole BCube_{k - 1}s: "
            f"servers= takes a multiple of {block} up to {full}, not {count} "
            "(Guo 2009, section 5.1)",
        )
        super().__init__(n=n, k=k, servers=None if count == full else servers)
        # The top digit of a partial BCube has fewer values; its switches have n ports all the same.
        self.set_levels([n] * k + [count // block], switch_ports=n)
        self.check_size()

    def cell_title(self, level: int, digits: Sequence[int]) -> str:
        """Return the name of a BCube_l in the drawing."""
        return cell_name("BCube", level, digits)

    def switch_label(self, switch: int) -> str:
        """Return a BCube switch's label ``<l,s>`` (level, number) as in Fig. 1."""
        level, digits = self.switch_place(switch)
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
