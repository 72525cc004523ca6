"""Collective operations as data: transfers between ranks, and their dependencies.

All data of an operation are a sequence of `chunks`. A rank holds some of them at the start, and
must have some at the end, each with the sum of all holders' initial content: with a single holder,
the sum is its content. A transfer sends a range of chunks; the receiver adds it to its own data, or
replaces them.

    all-reduce, 3 ranks      begins      ends          a ring's first transfers
    rank 0                   a b c       A B C         0 -> 1: c, to be added
    rank 1                   a b c       A B C         1 -> 2: a
    rank 2                   a b c       A B C         2 -> 0: b

Dependencies are not written by hand: a `TransferGraphBuilder` takes transfers in a valid sequential
order, and finds the transfers that each has to wait for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pillarbox.topos.base.errors import require

Chunks = Sequence[int]

# Limits of all transfers of a collective operation, so that its graph fits into memory.
MOST_SENT = 2_000_000  # maximum number of chunks sent in a collective operation
MOST_NEEDED = 20_000_000  # maximum number of dependencies between its transfers


class Transfer(NamedTuple):
    """Transfer of a collective operation: a range of data chunks sent from rank to rank.

    A transfer from a rank to itself is a local step of a training iteration: it carries no chunks.
    """

    sender: int
    receiver: int
    first: int
    size: int  # number of chunks that the transfer carries
    reduce: bool  # whether the receiver adds the data to its own, or replaces its own
    step: int  # step of the algorithm; transfers of a step run simultaneously
    after: tuple[int, ...] = ()  # numbers of transfers that must arrive first
    lasts_s: float = 0.0  # duration of a local step (a computation) in seconds

    @property
    def chunks(self) -> range:
        """Numbers of the data chunks that the transfer carries."""
        return range(self.first, self.first + self.size)


@dataclass(frozen=True)
class TransferGraph:
    """A collective operation as a graph: transfers between ranks, and their dependencies."""

    ranks: int
    chunks: int
    begins: tuple[Chunks, ...]  # chunks that each rank has at the start
    ends: tuple[Chunks, ...]  # chunks that each rank must have at the end
    transfers: tuple[Transfer, ...]  # sorted: a transfer is after those that it waits for

    @property
    def steps(self) -> int:
        """Number of steps of the collective operation's algorithm."""
        return 1 + max((one.step for one in self.transfers), default=-1)


class TransferGraphBuilder:
    """Builder of a collective operation's graph: finds the dependencies of added transfers.

    Data must have arrived before it is sent. Data that is replaced or added to must not be in use
    by an earlier transfer. Sums may be added in any order.
    """

    def __init__(self) -> None:
        self.transfers: list[Transfer] = []
        # Transfers that wrote a rank's current data of a chunk, and transfers that have sent it
        # since, by rank and chunk.
        self._makers: dict[tuple[int, int], set[int]] = defaultdict(set)
        self._summed: dict[tuple[int, int], bool] = {}
        self._readers: dict[tuple[int, int], set[int]] = defaultdict(set)
        self._sent_chunks = 0
        self._dependencies = 0

    def add_transfer(
        self,
        sender: int,
        receiver: int,
        first: int,
        count: int = 1,
        *,
        reduce: bool,
        step: int,
        after: Iterable[int] = (),
    ) -> int:
        """Add a transfer of chunks between two ranks; return the transfer's number.

        `after` has numbers of additional transfers that it waits for.

        Raises PillarboxError if the operation has more transfers than memory holds.
        """
        self._sent_chunks += count
        require(
            self._sent_chunks <= MOST_SENT,
            f"the transfers of this collective operation send more than {MOST_SENT:,} chunks: "
            "choose fewer ranks (options.ranks), fewer pieces (options.pieces), or another "
            "algorithm",
        )
        number = len(self.transfers)
        needed = set(after)
        for chunk in range(first, first + count):
            needed |= self._makers[sender, chunk]
            self._readers[sender, chunk].add(number)
            needed |= self._record_write((receiver, chunk), number, reduce)
        self._dependencies += len(needed)
        require(
            self._dependencies <= MOST_NEEDED,
            f"the transfers of this collective operation have more than {MOST_NEEDED:,} "
            "dependencies: choose fewer ranks (options.ranks), or another algorithm",
        )
        self.transfers.append(
            Transfer(sender, receiver, first, count, reduce, step, tuple(sorted(needed)))
        )
        return number

    def _record_write(self, rank_and_chunk: tuple[int, int], number: int, reduce: bool) -> set[int]:
        """Record a transfer that writes a rank's chunk; return the transfers it must wait for."""
        makers, readers = self._makers[rank_and_chunk], self._readers[rank_and_chunk]
        if reduce and not readers and self._summed.get(rank_and_chunk, True):
            makers.add(number)
            self._summed[rank_and_chunk] = True
            return set()
        needed = makers | readers
        self._makers[rank_and_chunk], self._readers[rank_and_chunk] = {number}, set()
        self._summed[rank_and_chunk] = reduce
        return needed

    def finished_graph(self, begins: Sequence[Chunks], ends: Sequence[Chunks]) -> TransferGraph:
        """Return the finished graph, given the chunks of each rank at the start and the end."""
        chunks = 1 + max((max(held) for held in (*begins, *ends) if held), default=-1)
        return TransferGraph(len(begins), chunks, tuple(begins), tuple(ends), tuple(self.transfers))
