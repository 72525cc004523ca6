"""Algorithms of collective operations, as the transfers that they make.

Each takes a `TransferGraphBuilder` and adds transfers to it, step by step. Ranks are numbers from
0; their places in a network are unknown here.

- Ring: Patarasuk, Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations",
  JPDC 2009.
- Halving and doubling: Thakur, Rabenseifner, Gropp, "Optimization of collective communication
  operations in MPICH", IJHPCA 2005.
- BCube: Gloo's `allreduce_bcube`, and BML (Wang et al., "BML: A High-performance, Low-cost Gradient
  Synchronization Algorithm for DML Training", NeurIPS 2018). Both exchange by the digits of the
  ranks, one digit per step, as halving and doubling does by bits. BML does so in as many threads as
  there are digits, each with its own part of the data, and each starting with another digit: all
  ports of a BCube server are busy in every step.
- Synchronized reads: Phanishayee et al., "Measurement and analysis of TCP throughput collapse in
  cluster-based storage systems", FAST 2008; the block of fixed size is that of Alizadeh et al.,
  "Data center TCP (DCTCP)", SIGCOMM 2010, section 4.2.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import prod
from typing import Protocol

from pillarbox.experiments.models.workloads.collectives.graph import TransferGraphBuilder
from pillarbox.topos.base.errors import require

Tree = Sequence[
    tuple[int, int]
]  # hops (sender, receiver), a server's incoming hop before its outgoing ones


class AllReduceSchedule(Protocol):
    """Algorithm of an all-reduce in two halves: reduce-scatter, then all-gather."""

    def final_chunk(self, rank: int) -> int:
        """Return the chunk whose sum a rank has after the reduce-scatter half."""

    def scatter(self, builder: TransferGraphBuilder, step: int = 0) -> int:
        """Add the transfers that sum each rank's chunk (reduce-scatter); return the next step."""

    def gather(self, builder: TransferGraphBuilder, step: int = 0) -> int:
        """Add the transfers of each rank's sum to all ranks (all-gather); return the next step."""


class RingSchedule:
    """Ring algorithm of an all-reduce: each rank sends only to the next one."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks

    def final_chunk(self, rank: int) -> int:
        """Return the chunk whose sum a rank of the ring has after reduce-scatter."""
        return rank

    def scatter(self, builder: TransferGraphBuilder, step: int = 0) -> int:
        """Add the ring's reduce-scatter transfers: each chunk goes around, and ranks add to it."""
        return self._send_around_ring(builder, step, behind=1, reduce=True)

    def gather(self, builder: TransferGraphBuilder, step: int = 0) -> int:
        """Add the ring's all-gather transfers: each finished sum goes around the ring of ranks."""
        return self._send_around_ring(builder, step, behind=0, reduce=False)

    def _send_around_ring(
        self, builder: TransferGraphBuilder, step: int, behind: int, *, reduce: bool
    ) -> int:
        for turn in range(self.ranks - 1):
            for rank in range(self.ranks):
                chunk, to = (rank - turn - behind) % self.ranks, (rank + 1) % self.ranks
                builder.add_transfer(rank, to, chunk, reduce=reduce, step=step + turn)
        return step + self.ranks - 1


class HierarchicalSchedule:
    """All-reduce in rings of two levels: within groups of ranks, then between the groups.

    In reduce-scatter the ranks of a group sum each other's data around a ring and have a share
    each; then the ranks with the same place in their groups sum this share around a ring. All
    groups have `inner` consecutive ranks.
    """

    def __init__(self, ranks: int, inner: int) -> None:
        require(
            inner >= 1 and ranks % inner == 0,
            f"a hierarchical all-reduce has groups of one size: {ranks} ranks are no multiple of "
            f"{inner} (options.inner)",
        )
        self.ranks, self.inner, self.groups = ranks, inner, ranks // inner

    def final_chunk(self, rank: int) -> int:
        """Return the chunk whose sum a rank has after the reduce-scatter half."""
        return rank % self.inner * self.groups + rank // self.inner

    def scatter(self, builder: TransferGraphBuilder, step: int = 0) -> int:
        """Add the transfers that sum each rank's chunk, in groups first; return the next step."""
        step = self._send_in_groups(builder, step, behind=1, reduce=True)
        return self._send_between_groups(builder, step, behind=1, reduce=True)

    def gather(self, builder: TransferGraphBuilder, step: int = 0) -> int:
        """Add the transfers of each sum to all ranks, in groups last; return the next step."""
        step = self._send_between_groups(builder, step, behind=0, reduce=False)
        return self._send_in_groups(builder, step, behind=0, reduce=False)

    def _send_in_groups(
        self, builder: TransferGraphBuilder, step: int, behind: int, *, reduce: bool
    ) -> int:
        """Add a ring in each group, over shares of one chunk per group; return the next step."""
        for turn in range(self.inner - 1):
            for rank in range(self.ranks):
                place = rank % self.inner
                to = rank - place + (place + 1) % self.inner
                first = (place - turn - behind) % self.inner * self.groups
                builder.add_transfer(rank, to, first, self.groups, reduce=reduce, step=step + turn)
        return step + self.inner - 1

    def _send_between_groups(
        self, builder: TransferGraphBuilder, step: int, behind: int, *, reduce: bool
    ) -> int:
        """Add a ring among the ranks of one place, over their share; return the next step."""
        for turn in range(self.groups - 1):
            for rank in range(self.ranks):
                group, place = divmod(rank, self.inner)
                to = (rank + self.inner) % self.ranks
                chunk = place * self.groups + (group - turn - behind) % self.groups
                builder.add_transfer(rank, to, chunk, reduce=reduce, step=step + turn)
        return step + self.groups - 1


class DigitSchedule:
    """All-reduce schedule in which ranks that differ in one digit of their number exchange data.

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

    def final_chunk(self, rank: int) -> int:
        """Return the chunk whose sum a rank has after exchanging by all digits."""
        return self._chunk_range(rank, len(self.order))[0]

    def _digit(self, rank: int, digit: int) -> int:
        return rank // self._weights[digit] % self.radices[digit]

    def _chunk_range(self, rank: int, depth: int) -> tuple[int, int]:
        """Return the first chunk and chunk count of a rank after exchanging by `depth` digits."""
        first, count = self.first, self.ranks
        for digit in self.order[:depth]:
            count //= self.radices[digit]
            first += self._digit(rank, digit) * count
        return first, count

    def _exchange_partners(self, rank: int, digit: int) -> Iterator[int]:
        """Yield the ranks that differ from a rank in one digit only, the rank's next one first."""
        own, radix = self._digit(rank, digit), self.radices[digit]
        for ahead in range(1, radix):
            yield rank + ((own + ahead) % radix - own) * self._weights[digit]

    def pairs(self, depth: int) -> Iterator[tuple[int, int]]:
        """Yield sending and receiving rank of all transfers in the exchange by one digit."""
        for rank in range(self.ranks):
            for other in self._exchange_partners(rank, self.order[depth]):
                yield rank, other

    def scatter(self, builder: TransferGraphBuilder, step: int = 0) -> int:
        """Add the reduce-scatter transfers of an exchange by digits; return the next step."""
        for depth in range(len(self.order)):
            for rank, other in self.pairs(depth):
                part = self._chunk_range(other, depth + 1)
                builder.add_transfer(rank, other, *part, reduce=True, step=step + depth)
        return step + len(self.order)

    def gather(self, builder: TransferGraphBuilder, step: int = 0) -> int:
        """Add the all-gather transfers, in reverse order of digits; return the next step."""
        for turn, depth in enumerate(reversed(range(len(self.order)))):
            for rank, other in self.pairs(depth):
                part = self._chunk_range(rank, depth + 1)
                builder.add_transfer(rank, other, *part, reduce=False, step=step + turn)
        return step + len(self.order)


def digit_count(ranks: int, base: int) -> int:
    """Return the exponent for which `ranks` is a power of `base`, or raise PillarboxError."""
    require(base >= 2, f"the option base of a collective operation is at least 2, not {base}")
    digits, power = 0, 1
    while power < ranks:
        digits, power = digits + 1, power * base
    near = sorted({max(base, power // base), power})
    require(
        power == ranks,
        f"this collective algorithm takes a power of {base} as the number of ranks, not {ranks}: "
        f"choose {' or '.join(map(str, near))} ranks, or another algorithm",
    )
    return digits


def halving_schedule(ranks: int) -> DigitSchedule:
    """Return the recursive halving schedule: ranks exchange by bits, the farthest ranks first.

    Most data is sent in the first step.

    >>> [halving_schedule(4).final_chunk(rank) for rank in range(4)]
    [0, 1, 2, 3]
    """
    digits = digit_count(ranks, 2)
    return DigitSchedule([2] * digits, range(digits)[::-1])


def bcube_scheme(ranks: int, base: int) -> DigitSchedule:
    """Return Gloo's "bcube" all-reduce: exchange by digits, the nearest ranks first."""
    digits = digit_count(ranks, base)
    return DigitSchedule([base] * digits, range(digits))


def bml_threads(radices: Sequence[int]) -> list[DigitSchedule]:
    """Return the schedules of BML's threads, which start with different address digits.

    >>> [thread.order for thread in bml_threads([3, 3])]
    [[0, 1], [1, 0]]
    """
    count = len(radices)
    return [
        DigitSchedule(
            radices, [(thread + at) % count for at in range(count)], thread * prod(radices)
        )
        for thread in range(count)
    ]


def parameter_servers(builder: TransferGraphBuilder, ranks: int, count: int) -> None:
    """Add the transfers of an all-reduce over `count` parameter servers, each summing one chunk.

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
                    builder.add_transfer(*ends, number, reduce=reduce, step=int(not reduce))


def direct_exchange(builder: TransferGraphBuilder, ranks: int, *, at_once: bool) -> None:
    """Add the transfers of a total exchange: simultaneously, or with one rank at a time."""
    latest: dict[int, list[int]] = {}
    for turn in range(1, ranks):
        sent: dict[int, list[int]] = {rank: [] for rank in range(ranks)}
        for rank in range(ranks):
            other = (rank + turn) % ranks
            waits = () if at_once else latest.get(rank, ())
            step = 0 if at_once else turn - 1
            number = builder.add_transfer(
                rank, other, rank * ranks + other, reduce=False, step=step, after=waits
            )
            sent[rank].append(number)
            sent[other].append(number)
        latest = sent


def synchronized_reads(
    builder: TransferGraphBuilder, fan_ins: Sequence[int], reads: int
) -> list[range]:
    """Add the transfers of rank 0 that reads blocks, each from several ranks simultaneously.

    A block is read `reads` times from the first n other ranks for each n of `fan_ins`, a share of
    it from each; a read begins when the last one is complete. Blocks of different fan-ins are
    different chunks, as many as the largest fan-in. Return the chunks of each fan-in, by rank from
    1 on.

    >>> builder = TransferGraphBuilder()
    >>> synchronized_reads(builder, [1, 2], 1)
    [range(0, 2), range(2, 3), range(3, 4)]
    >>> [(one.sender, one.size, one.step, one.after) for one in builder.transfers]
    [(1, 2, 0, ()), (1, 1, 1, (0,)), (2, 1, 1, (0,))]
    """
    parts, latest, step = max(fan_ins), list[int](), 0
    held = []
    for number, fan_in in enumerate(fan_ins):
        bounds = [number * parts + rank * parts // fan_in for rank in range(fan_in + 1)]
        shares = [range(*ends) for ends in pairwise(bounds)]
        held += shares
        for _ in range(reads):
            latest = [
                builder.add_transfer(
                    rank, 0, share.start, len(share), reduce=False, step=step, after=latest
                )
                for rank, share in enumerate(shares, start=1)
            ]
            step += 1
    return held


def broadcast_by_trees(builder: TransferGraphBuilder, trees: Sequence[Tree], pieces: int) -> None:
    """Add the transfers of a broadcast: each tree carries its pieces from the root to all ranks."""
    for tree, hops in enumerate(trees):
        depth = {hops[0][0]: 0}
        for sender, receiver in hops:
            depth[receiver] = depth[sender] + 1
        for piece in range(pieces):
            chunk = tree * pieces + piece
            for sender, receiver in hops:
                step = depth[sender] + piece
                builder.add_transfer(sender, receiver, chunk, reduce=False, step=step)


def binomial_tree(ranks: int, root: int) -> list[tuple[int, int]]:
    """Return the hops of a binomial tree: every rank with data sends to a new rank per step.

    >>> binomial_tree(5, 0)
    [(0, 1), (0, 2), (1, 3), (0, 4)]
    """
    hops: list[tuple[int, int]] = []
    reached = 1
    while reached < ranks:
        new = range(min(reached, ranks - reached))
        hops += [((at + root) % ranks, (at + reached + root) % ranks) for at in new]
        reached *= 2
    return hops
