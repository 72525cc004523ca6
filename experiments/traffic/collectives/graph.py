"""A collective operation as data: transfers between ranks, each after those that it needs.

All data of an operation are a row of `chunks`. A rank holds some of them at the beginning, and is
to have some at the end, each with the sum of what all its holders began with: one holder's sum is
its own content. A transfer sends a range of chunks; the receiver adds it to what it has, or puts it
in its place.

    all-reduce, 3 ranks      begins      ends          a ring's first transfers
    rank 0                   a b c       A B C         0 -> 1: c, to be added
    rank 1                   a b c       A B C         1 -> 2: a
    rank 2                   a b c       A B C         2 -> 0: b

Who needs whom is not written by hand: a `Weaver` takes transfers in an order in which they could be
done one by one, and finds what each has to wait for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from topos.base.errors import require

Chunks = Sequence[int]

# Upper bounds for an operation, all its transfers together: about what memory holds.
MOST_SENT = 2_000_000  # chunks sent
MOST_NEEDED = 20_000_000  # dependencies between transfers


class Transfer(NamedTuple):
    """A range of chunks on its way from one rank to another."""

    sender: int
    receiver: int
    first: int
    size: int  # how many chunks
    reduce: bool  # added at the receiver, else put in place
    step: int  # as the algorithm counts: those of one step could go at once
    after: tuple[int, ...] = ()  # transfers that must have arrived

    @property
    def chunks(self) -> range:
        """The chunks that it takes along."""
        return range(self.first, self.first + self.size)


@dataclass(frozen=True)
class Graph:
    """A collective operation."""

    ranks: int
    chunks: int
    begins: tuple[Chunks, ...]  # what each rank holds
    ends: tuple[Chunks, ...]  # and what it is to have
    transfers: tuple[Transfer, ...]  # none stands before one that it needs

    @property
    def steps(self) -> int:
        """How many steps there are."""
        return 1 + max((one.step for one in self.transfers), default=-1)


class Weaver:
    """Takes transfers one by one, and finds which need which.

    What is sent must have arrived. What is put in the place of something, or added to it, must not
    disturb what is still being sent from there. Sums may come in any order.
    """

    def __init__(self) -> None:
        self.transfers: list[Transfer] = []
        # By rank and chunk: which transfers made what is there, and which have sent it since.
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
        """Add a transfer; return its number. `after` has those that it waits for besides.

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
            needed |= self._written((receiver, chunk), number, reduce)
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

    def _written(self, place: tuple[int, int], number: int, reduce: bool) -> set[int]:
        """Take note that a transfer writes a place; return what it has to wait for there."""
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
        """Return the operation, for what ranks hold at the beginning and have at the end."""
        chunks = 1 + max((max(held) for held in (*begins, *ends) if held), default=-1)
        return Graph(len(begins), chunks, tuple(begins), tuple(ends), tuple(self.transfers))
