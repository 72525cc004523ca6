"""Whether a graph of transfers does what it is to do, whatever order the network brings them in.

This looks at a graph from outside: it knows nothing of how graphs are made.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from experiments.traffic.collectives.graph import Graph, Transfer


def problems(graph: Graph) -> Iterator[str]:
    """Yield a sentence for all that is wrong; nothing where the graph is right.

    Right is: no transfer takes a chunk that its sender does not have, none adds what is in a sum
    already, every rank ends with the sum of what the holders began with, and of two transfers that
    touch the same chunk of a rank one waits for the other, unless both only read or both add.
    """
    yield from _malformed(graph)
    yield from _wrong_sums(graph)
    yield from _races(graph)


def _malformed(graph: Graph) -> Iterator[str]:
    for number, one in enumerate(graph.transfers):
        if one.sender == one.receiver:
            yield f"transfer {number} goes from rank {one.sender} to itself"
        if not 0 <= one.first < one.first + one.size <= graph.chunks:
            yield f"transfer {number} takes chunks that there are not"
        if any(not 0 <= other < number for other in one.after):
            yield f"transfer {number} waits for one that does not stand before it"


def _wrong_sums(graph: Graph) -> Iterator[str]:
    """Do the transfers in their order; what a rank has of a chunk is a set of whose parts, in bits.

    Where there are no races, every other order that keeps to what transfers wait for is as good.
    """
    parts: dict[tuple[int, int], int] = defaultdict(int)
    whole: dict[int, int] = defaultdict(int)
    for rank, held in enumerate(graph.begins):
        for chunk in held:
            parts[rank, chunk] |= 1 << rank
            whole[chunk] |= 1 << rank
    for number, one in enumerate(graph.transfers):
        for chunk in one.chunks:
            brought = parts[one.sender, chunk]
            if not brought:
                yield f"transfer {number} takes chunk {chunk}, which rank {one.sender} has not got"
            if one.reduce:
                if brought & parts[one.receiver, chunk]:
                    yield f"transfer {number} adds to chunk {chunk} what is in it already"
                brought |= parts[one.receiver, chunk]
            parts[one.receiver, chunk] = brought
    for rank, wanted in enumerate(graph.ends):
        for chunk in wanted:
            if parts[rank, chunk] != whole[chunk]:
                yield f"rank {rank} does not end with the whole of chunk {chunk}"


def _races(graph: Graph) -> Iterator[str]:
    before = [0] * len(graph.transfers)  # which transfers each comes after for certain, in bits
    touched: dict[tuple[int, int], list[int]] = defaultdict(list)
    for number, one in enumerate(graph.transfers):
        for other in one.after:
            before[number] |= before[other] | 1 << other
        for place in _places(one):
            for other in touched[place]:
                if not before[number] >> other & 1 and _clash(graph.transfers[other], one, place):
                    yield f"transfers {other} and {number} race for chunk {place[1]} of {place[0]}"
            touched[place].append(number)


def _places(one: Transfer) -> Iterator[tuple[int, int]]:
    for chunk in one.chunks:
        yield one.sender, chunk
        yield one.receiver, chunk


def _clash(first: Transfer, second: Transfer, place: tuple[int, int]) -> bool:
    """Tell whether two transfers at a place must not be under way together."""
    writes = [one.receiver == place[0] for one in (first, second)]
    if not any(writes):
        return False
    return not (all(writes) and first.reduce and second.reduce)
