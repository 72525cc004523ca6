"""FiConn (Li 2009): commodity switches, and cables between the backup ports of servers.

A FiConn_0 is n servers on an n-port switch (port 0). Each further level cables half of the servers
whose backup port (port 1) is still free, so that a FiConn_k is a full mesh of
g_k = N_{k-1} / 2^k + 1 FiConn_{k-1}s (section III.A, Algorithm 1)::

    server u of a FiConn_{l-1} is a level-l server  when  u mod 2^l = 2^(l-1) - 1
    [i, j] -- [i', j']   with i < i',  j = (i' - 1) 2^l + 2^(l-1) - 1,  j' = i 2^l + 2^(l-1) - 1

The other half of the free ports stay free for the next level; at level k, N / 2^k servers have a
backup port without a cable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pillarbox.topos.base.errors import require
from pillarbox.topos.base.layout import Layout, cell_name
from pillarbox.topos.base.polymorphic import NOTHING, Number, select
from pillarbox.topos.base.topology import MOST_SERVERS, Bound, Plug, Topology
from pillarbox.topos.structures.circles import nested_circles

SWITCH, BACKUP = 0, 1


class FiConn(Topology):
    """Network FiConn_k of n-port switches and servers with two ports.

    >>> ficonn = FiConn(4, 2)
    >>> ficonn.servers, ficonn.sizes
    (48, [4, 12, 48])
    >>> ficonn.address(ficonn.peers(ficonn.server("0.2.1"), BACKUP)[0])
    '3.0.1'
    """

    title = "FiConn"
    paper = "Li 2009"
    cell = "FiConn_0"
    examples = ("ficonn,4,2", "ficonn,4,1", "ficonn,8,1", "ficonn,6,2", "ficonn,10,0")

    def __init__(self, n: int, k: int) -> None:
        require(
            n >= 2 and n % 2 == 0,
            f"FiConn's switches have an even number n of ports, not {n}: half of the servers are "
            "cabled at the next level (Li 2009, section III.A)",
        )
        require(k >= 0, f"FiConn's level k is 0 or more, not {k}")
        super().__init__(n=n, k=k)
        self.n, self.k = n, k
        self.sizes = [n]  # N_0 to N_k: number of servers of a FiConn of each level
        for level in range(1, k + 1):
            below = self.sizes[-1]
            require(
                below <= MOST_SERVERS,
                f"{self.spec} has more servers than 32-bit addresses can name; level "
                f"{level - 2} is the largest for n = {n}",
            )
            self.sizes.append(below * (below // 2**level + 1))
        self.servers = self.sizes[k]
        self.switches = self.servers // n
        self.ports = 2 if k else 1
        self.switch_ports = n
        # Theorem 3 of the paper: N/4 cables at level 1, at each higher level half as many as below.
        self.cables = self.servers + sum(self.servers // 2 ** (i + 1) for i in range(1, k + 1))
        self.check_size()

    def level(self, server: Number) -> Number:
        """Return the level of the cable at a FiConn server's backup port, 0 if the port is free.

        >>> [FiConn(4, 2).level(server) for server in range(4)]
        [1, 2, 1, 0]
        """
        found: Any = 0 * server
        for level in range(self.k, 0, -1):
            # The server's number serves as u_{level-1}, since N_{level-1} is a multiple of 2^level.
            found = select(server % 2**level == 2 ** (level - 1) - 1, level, found)
        return found  # type: ignore[no-any-return]

    def server_plug(self, server: Number, port: int) -> Plug:
        """Return the far end of a FiConn server's port: switch (port 0) or Algorithm 1's peer."""
        if port == SWITCH:
            return Plug(self.servers + server // self.n, server % self.n, 0)
        peer: Any = 0 * server + NOTHING
        level_of = self.level(server)
        for level in range(1, self.k + 1):
            step, start = 2**level, 2 ** (level - 1) - 1
            below, size = self.sizes[level - 1], self.sizes[level]
            own, j = server % size // below, server % below
            # Server j of FiConn_{l-1} number `own` has a cable to the (j - start) / step-th other
            # FiConn_{l-1}.
            rank = (j - start) // step
            other = rank + (rank >= own)
            other_j = (own - (own > other)) * step + start
            far = server // size * size + other * below + other_j
            peer = select(level_of == level, far, peer)
        return Plug(peer, BACKUP, level_of)

    def switch_plug(self, switch: Number, port: int) -> Plug:
        """Return the server at port i of a FiConn_0's switch: the i-th server of the FiConn_0."""
        return Plug(switch * self.n + port, SWITCH, 0)

    def digits(self, server: Number) -> tuple[Number, ...]:
        """Return the digits of a FiConn server's address: ``a_k, ..., a_0``."""
        upper: list[Any] = [
            server % self.sizes[i] // self.sizes[i - 1] for i in range(self.k, 0, -1)
        ]
        return (*upper, server % self.n)

    def server_at(self, digits: Sequence[Number]) -> Any:
        """Return the FiConn server with these digits: ``u_k = a_0 + sum of a_l N_{l-1}``."""
        return sum(d * w for d, w in zip(reversed(digits), [1, *self.sizes], strict=False))

    def radices(self) -> tuple[int, ...]:
        """Return the number of values of each FiConn address digit: ``g_k, ..., g_1, n``."""
        upper = (self.sizes[i] // self.sizes[i - 1] for i in range(self.k, 0, -1))
        return (*upper, self.n)

    def switch_label(self, switch: int) -> str:
        """Return a FiConn switch's label ``[a_k,...,a_1]``, the address prefix of its servers."""
        prefix = self.digits(switch * self.n)[:-1]
        return f"[{','.join(map(str, prefix))}]" if prefix else "switch"

    def diameter_bound(self) -> Bound:
        """Return the length of the longest path of FiConn's traffic-oblivious routing (TOR)."""
        return Bound(2 ** (self.k + 1) - 1, "<= 2^(k+1) - 1", "Li 2009, Theorem 4")

    def bisection(self) -> Bound:
        """Return the lower bound of the bisection width of a FiConn, in cables."""
        return Bound(self.servers / (4 * 2**self.k), ">= N / (4 * 2^k)", "Li 2009, Theorem 5")

    def disjoint_paths(self) -> Bound:
        """Return FiConn's number of disjoint paths, 1: some servers have only one cable."""
        return Bound(1, "1", "Liao 2012, Table 2")

    def description(self) -> str:
        """Return a sentence that describes the FiConn: servers, switches and ports."""
        ports = "1 port"
        if self.k:
            used = self.servers - self.servers // 2**self.k
            ports = (
                f"2 ports, one to its switch and a backup port; {used} of these lead to other cells"
            )
        return (
            f"{cell_name('FiConn', self.k)} of {self.servers_text()} with {self.n}-port switches: "
            f"each server has {ports}."
        )

    def layout(self) -> Layout:
        """Return FiConn's drawing (Fig. 3): FiConn_0s on a circle, framed FiConn_1s."""
        layout = nested_circles(self, "FiConn")
        layout.styles = ("dashdot", "solid", "dashed")
        return layout
