"""Algorithms of collective operations, as the transfers that they make.

Each takes a `Weaver` and adds transfers to it, step by step. Ranks are numbers from 0; their places
in a network are unknown here.

- Ring: Patarasuk, Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations",
  JPDC 2009.
- Halving and doubling: Thakur, Rabenseifner, Gropp, "Optimization of collective communication
  operations in MPICH", IJHPCA 2005.
- BCube: Gloo's `allreduce_bcube`, and BML (Wang et al., "BML: A High-performance, Low-cost Gradient
  Synchronization Algorithm for DML Training", NeurIPS 2018). Both exchange by the digits of the
  ranks, one digit per step, as halving and doubling does by bits. BML does so in as many threads as
  there are digits, each with its own part of the data, and each starting with another digit: all
  ports of a BCube server are busy in every step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Protocol

from experiments.traffic.collectives.graph import Weaver
from topos.base.errors import require

Tree = Sequence[tuple[int, int]]  # hops in an order in which every sender already has the data


class Exchange(Protocol):
    """Two halves of an all-reduce: reduce-scatter, then all-gather."""

    def share(self, rank: int) -> int:
        """Return the chunk whose sum a rank has between the halves of an all-reduce."""

    def scatter(self, weaver: Weaver, step: int = 0) -> int:
        """Sum each rank's share at that rank (reduce-scatter); return the next step."""

    def gather(self, weaver: Weaver, step: int = 0) -> int:
        """Send each rank's share to all ranks (all-gather); return the next step."""


class Ring:
    """Ring algorithm of an all-reduce: each rank sends only to the next one."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks

    def share(self, rank: int) -> int:
        """Return the chunk whose sum a rank keeps in the ring."""
        return rank

    def scatter(self, weaver: Weaver, step: int = 0) -> int:
        """Pass chunks around the ring, adding to each sum, up to the rank that keeps it."""
        return self._pass_around(weaver, step, behind=1, reduce=True)

    def gather(self, weaver: Weaver, step: int = 0) -> int:
        """Pass each finished sum around the ring of ranks (all-gather)."""
        return self._pass_around(weaver, step, behind=0, reduce=False)

    def _pass_around(self, weaver: Weaver, step: int, behind: int, *, reduce: bool) -> int:
        for turn in range(self.ranks - 1):
            for rank in range(self.ranks):
                chunk, to = (rank - turn - behind) % self.ranks, (rank + 1) % self.ranks
                weaver.send(rank, to, chunk, reduce=reduce, step=step + turn)
        return step + self.ranks - 1


class Digits:
    """Exchange by digits: ranks are numbers of several digits, and exchange by one digit per step.

    In each step the ranks that differ in one digit only split their data among them, and continue
    with one part each: at the end all have the same share, one over the number of ranks.

    Parameters
    ----------
    radices : sequence of int
        Number of values of each digit, starting with a rank's last digit.
    order : sequence of int
        Order of the digits.
    first : int
        Number of the first chunk; there are as many chunks as ranks.
    """

    def __init__(self, radices: Sequence[int], order: Sequence[int], first: int = 0) -> None:
        self.radices, self.order, self.first = radices, order, first
        self.ranks = prod(radices)
        self._weights = [prod(radices[:digit]) for digit in range(len(radices))]

    def share(self, rank: int) -> int:
        """Return the chunk whose sum a rank keeps after exchanging by the last digit."""
        return self._chunk_range(rank, len(self.order))[0]

    def _digit(self, rank: int, digit: int) -> int:
        return rank // self._weights[digit] % self.radices[digit]

    def _chunk_range(self, rank: int, depth: int) -> tuple[int, int]:
        """Return a rank's first chunk and chunk count after exchanging by `depth` digits."""
        first, count = self.first, self.ranks
        for digit in self.order[:depth]:
            count //= self.radices[digit]
            first += self._digit(rank, digit) * count
        return first, count

    def _exchange_partners(self, rank: int, digit: int) -> Iterator[int]:
        """Yield the ranks whose numbers differ in this digit only, the rank's next one first."""
        own, radix = self._digit(rank, digit), self.radices[digit]
        for ahead in range(1, radix):
            yield rank + ((own + ahead) % radix - own) * self._weights[digit]

    def pairs(self, depth: int) -> Iterator[tuple[int, int]]:
        """Yield sender and receiver of all transfers by one digit, the same in both halves."""
        for rank in range(self.ranks):
            for other in self._exchange_partners(rank, self.order[depth]):
                yield rank, other

    def scatter(self, weaver: Weaver, step: int = 0) -> int:
        """Sum each rank's share at that rank; return the next step."""
        for depth in range(len(self.order)):
            for rank, other in self.pairs(depth):
                part = self._chunk_range(other, depth + 1)
                weaver.send(rank, other, *part, reduce=True, step=step + depth)
        return step + len(self.order)

    def gather(self, weaver: Weaver, step: int = 0) -> int:
        """Send each rank's share to all ranks, in reverse order of digits; return the next step."""
        for turn, depth in enumerate(reversed(range(len(self.order)))):
            for rank, other in self.pairs(depth):
                part = self._chunk_range(rank, depth + 1)
                weaver.send(rank, other, *part, reduce=False, step=step + turn)
        return step + len(self.order)


def digits_of(ranks: int, base: int) -> int:
    """Return the number of digits for `ranks` in a base; refuse ranks that are not its power."""
    require(base >= 2, f"ranks are counted in a base of at least 2, not {base}")
    digits, power = 0, 1
    while power < ranks:
        digits, power = digits + 1, power * base
    near = sorted({max(base, power // base), power})
    require(
        power == ranks,
        f"this algorithm takes a power of {base} as the number of ranks, not {ranks}: "
        f"choose ranks = {' or '.join(map(str, near))}, or another algorithm",
    )
    return digits


def halving(ranks: int) -> Digits:
    """Return the exchange by bits, the farthest ranks first: most data go in the first step.

    >>> [halving(4).share(rank) for rank in range(4)]
    [0, 1, 2, 3]
    """
    digits = digits_of(ranks, 2)
    return Digits([2] * digits, range(digits)[::-1])


def bcube_scheme(ranks: int, base: int) -> Digits:
    """Return Gloo's exchange by digits, the nearest ranks first."""
    digits = digits_of(ranks, base)
    return Digits([base] * digits, range(digits))


def bml_threads(radices: Sequence[int]) -> list[Digits]:
    """Return BML's threads, which start with different digits and continue in the same order.

    >>> [thread.order for thread in bml_threads([3, 3])]
    [[0, 1], [1, 0]]
    """
    count = len(radices)
    return [
        Digits(radices, [(thread + at) % count for at in range(count)], thread * prod(radices))
        for thread in range(count)
    ]


def parameter_servers(weaver: Weaver, ranks: int, count: int) -> None:
    """Sum at `count` of the ranks, one chunk at each, and send the sums to all ranks from there.

    The parameter servers are spread evenly over the ranks. The other ranks send to all servers
    simultaneously, starting with different ones.
    """
    servers = [number * ranks // count for number in range(count)]
    for reduce in (True, False):
        for turn in range(count):
            for rank in range(ranks):
                number = (rank + turn) % count
                server = servers[number]
                ends = (rank, server) if reduce else (server, rank)
                if rank != server:
                    weaver.send(*ends, number, reduce=reduce, step=int(not reduce))


def direct_exchange(weaver: Weaver, ranks: int, *, at_once: bool) -> None:
    """Send chunk (i, j) from i to j: all simultaneously, or one other rank at a time."""
    latest: dict[int, list[int]] = {}
    for turn in range(1, ranks):
        sent: dict[int, list[int]] = {rank: [] for rank in range(ranks)}
        for rank in range(ranks):
            other = (rank + turn) % ranks
            waits = () if at_once else latest.get(rank, ())
            step = 0 if at_once else turn - 1
            number = weaver.send(
                rank, other, rank * ranks + other, reduce=False, step=step, after=waits
            )
            sent[rank].append(number)
            sent[other].append(number)
        latest = sent


def by_trees(weaver: Weaver, trees: Sequence[Tree], pieces: int) -> None:
    """Send each tree's part from its root to all ranks by pieces, hop after hop."""
    for tree, hops in enumerate(trees):
        depth = {hops[0][0]: 0}
        for sender, receiver in hops:
            depth[receiver] = depth[sender] + 1
        for piece in range(pieces):
            chunk = tree * pieces + piece
            for sender, receiver in hops:
                step = depth[sender] + piece
                weaver.send(sender, receiver, chunk, reduce=False, step=step)


def binomial(ranks: int, root: int) -> list[tuple[int, int]]:
    """Return a binomial tree, in which each rank with the data sends to one more rank per step.

    >>> binomial(5, 0)
    [(0, 1), (0, 2), (1, 3), (0, 4)]
    """
    hops: list[tuple[int, int]] = []
    reached = 1
    while reached < ranks:
        new = range(min(reached, ranks - reached))
        hops += [((at + root) % ranks, (at + reached + root) % ranks) for at in new]
        reached *= 2
    return hops
