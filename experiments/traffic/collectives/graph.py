"""Collective operations as data: transfers between ranks, and their dependencies.

All data of an operation are a sequence of `chunks`. A rank holds some of them at the start, and
must have some at the end, each with the sum of all holders' initial content: with a single holder,
the sum is its content. A transfer sends a range of chunks; the receiver adds it to its own data, or
replaces them.

    all-reduce, 3 ranks      begins      ends          a ring's first transfers
    rank 0                   a b c       A B C         0 -> 1: c, to be added
    rank 1                   a b c       A B C         1 -> 2: a
    rank 2                   a b c       A B C         2 -> 0: b

Dependencies are not written by hand: a `Weaver` takes transfers in a valid sequential order, and
finds the transfers that each has to wait for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from topos.base.errors import require

Chunks = Sequence[int]

# Limits of an operation, over all its transfers: approximate limits of memory.
MOST_SENT = 2_000_000  # maximum number of chunks sent in an operation
MOST_NEEDED = 20_000_000  # maximum number of dependencies between transfers


class Transfer(NamedTuple):
    """A range of chunks sent from one rank to another."""

    sender: int
    receiver: int
    first: int
    size: int  # number of chunks that the transfer carries
    reduce: bool  # whether the receiver adds the data, instead of replacing its own
    step: int  # algorithm's step: transfers of the same step can run simultaneously
    after: tuple[int, ...] = ()  # transfers that must have arrived before this one starts

    @property
    def chunks(self) -> range:
        """Numbers of the chunks that the transfer carries."""
        return range(self.first, self.first + self.size)


@dataclass(frozen=True)
class Graph:
    """A collective operation as a graph of transfers."""

    ranks: int
    chunks: int
    begins: tuple[Chunks, ...]  # chunks that each rank holds at the start
    ends: tuple[Chunks, ...]  # chunks that each rank must have at the end
    transfers: tuple[Transfer, ...]  # no transfer precedes one that it needs

    @property
    def steps(self) -> int:
        """Number of steps of the collective operation."""
        return 1 + max((one.step for one in self.transfers), default=-1)


class Weaver:
    """Builder of a collective's transfer graph: finds each added transfer's dependencies.

    Data must have arrived before it is sent. Data that is replaced or added to must not be in use
    by an earlier transfer. Sums may be added in any order.
    """

    def __init__(self) -> None:
        self.transfers: list[Transfer] = []
        # By rank and chunk: transfers that wrote the current data, and transfers that sent it
        # since.
        self._makers: dict[tuple[int, int], set[int]] = defaultdict(set)
        self._summed: dict[tuple[int, int], bool] = {}
        self._readers: dict[tuple[int, int], set[int]] = defaultdict(set)
        self._sent_chunks = 0
        self._dependencies = 0

    def send(
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
        """Add a transfer; return its number. `after` has additional transfers that it waits for.

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

    def _record_write(self, place: tuple[int, int], number: int, reduce: bool) -> set[int]:
        """Record that a transfer writes a rank's chunk; return the transfers that it waits for."""
        makers, readers = self._makers[place], self._readers[place]
        if reduce and not readers and self._summed.get(place, True):
            makers.add(number)
            self._summed[place] = True
            return set()
        needed = makers | readers
        self._makers[place], self._readers[place] = {number}, set()
        self._summed[place] = reduce
        return needed

    def graph(self, begins: Sequence[Chunks], ends: Sequence[Chunks]) -> Graph:
        """Return the collective operation, given each rank's chunks at the start and the end."""
        chunks = 1 + max((max(held) for held in (*begins, *ends) if held), default=-1)
        return Graph(len(begins), chunks, tuple(begins), tuple(ends), tuple(self.transfers))
