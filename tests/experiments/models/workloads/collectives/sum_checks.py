"""Check that a graph of transfers computes its operation in every possible order of arrival.

The check uses only the graph, and does not know how graphs are made.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from pillarbox.experiments.models.workloads.collectives.graph import Transfer, TransferGraph


def transfer_graph_errors(graph: TransferGraph) -> Iterator[str]:
    """Yield an error message for each error in a collective operation's transfer graph.

    In a correct graph no transfer sends a chunk that its sender does not have, no transfer adds a
    part that a sum already contains, every rank ends with the sum of all holders' initial parts,
    and of two transfers that access the same chunk of a rank one waits for the other, unless both
    only read or both add.
    """
    yield from _invalid_transfer_errors(graph)
    yield from _sum_errors(graph)
    yield from _race_errors(graph)


def _invalid_transfer_errors(graph: TransferGraph) -> Iterator[str]:
    for number, one in enumerate(graph.transfers):
        if one.sender == one.receiver:
            yield f"transfer {number} goes from rank {one.sender} to itself"
        if not 0 <= one.first < one.first + one.size <= graph.chunks:
            yield f"transfer {number} sends chunks that do not exist"
        if any(not 0 <= other < number for other in one.after):
            yield f"transfer {number} waits for a transfer that is not before it"


def _sum_errors(graph: TransferGraph) -> Iterator[str]:
    """Yield errors of sums that are wrong when the transfers are applied in order.

    The sum that a rank has of a chunk is a set of bits: the ranks whose parts it contains.

    Without races, every other order that respects the dependencies has the same result.
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
                yield f"transfer {number} sends chunk {chunk} that rank {one.sender} does not have"
            if one.reduce:
                if brought & parts[one.receiver, chunk]:
                    yield f"transfer {number} adds to chunk {chunk} a part that is already in it"
                brought |= parts[one.receiver, chunk]
            parts[one.receiver, chunk] = brought
    for rank, wanted in enumerate(graph.ends):
        for chunk in wanted:
            if parts[rank, chunk] != whole[chunk]:
                yield f"rank {rank} does not end with the whole of chunk {chunk}"


def _race_errors(graph: TransferGraph) -> Iterator[str]:
    # transfers that precede each transfer, directly or indirectly, as a set of bits
    before = [0] * len(graph.transfers)
    touched: dict[tuple[int, int], list[int]] = defaultdict(list)
    for number, one in enumerate(graph.transfers):
        for other in one.after:
            before[number] |= before[other] | 1 << other
        for place in _written_and_read_chunks(one):
            for other in touched[place]:
                if not before[number] >> other & 1 and _is_conflict(
                    graph.transfers[other], one, place
                ):
                    yield (
                        f"transfers {other} and {number} race for chunk {place[1]} of rank "
                        f"{place[0]}"
                    )
            touched[place].append(number)


def _written_and_read_chunks(one: Transfer) -> Iterator[tuple[int, int]]:
    for chunk in one.chunks:
        yield one.sender, chunk
        yield one.receiver, chunk


def _is_conflict(first: Transfer, second: Transfer, place: tuple[int, int]) -> bool:
    """Return True if two transfers must not access the same chunk of a rank simultaneously."""
    writes = [one.receiver == place[0] for one in (first, second)]
    if not any(writes):
        return False
    return not (all(writes) and first.reduce and second.reduce)
