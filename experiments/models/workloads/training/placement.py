"""Placement of training jobs: the servers of each job's ranks.

`packed` gives each job the next servers in the order of addresses; `random` draws the servers of
all jobs. `paper` gives each job sub-structures of the network of its own: a DCell_l contains
DCell_(l-1)s (Guo 2008, section 3.1), and likewise BCube (Guo 2009, 3.1), FiConn (Li 2009, III) and
the domains of Rail-only (Wang 2023). Traffic between two servers of a sub-structure stays in it:
DCellRouting splits a path at the lowest level that both share (Guo 2008, 4.1.1), and BCubeRouting
changes only digits in which they differ (Guo 2009, 3.2).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from random import Random
from typing import Any

from pillarbox.topos.base.errors import require
from pillarbox.topos.base.topology import Topology

PACKED, RANDOM, PAPER = "packed", "random", "paper"
PLACEMENTS = (PACKED, RANDOM, PAPER)
Cell = tuple[Any, ...]  # digits that the servers of a sub-structure share


def servers_of_jobs(
    topology: Topology, ranks: Sequence[int], placement: str, seed: int
) -> list[tuple[int, ...]]:
    """Return the server of each rank of each job, given the jobs' numbers of ranks.

    Raises PillarboxError if the network has too few servers.

    >>> from pillarbox import topos
    >>> servers_of_jobs(topos.parse("dcell,4,1"), [3, 4], "paper", seed=1)
    [(0, 1, 2), (4, 5, 6, 7)]
    """
    total = sum(ranks)
    whose = "this workload has" if len(ranks) == 1 else f"these {len(ranks)} jobs have"
    require(
        total <= topology.servers,
        f"{topology.spec} has {topology.servers} servers, and {whose} {total} ranks: choose "
        "another network, or another number of ranks",
    )
    require(
        placement in PLACEMENTS,
        f"options.placement is {PACKED} (ranks in the order of server addresses), {RANDOM} or "
        f"{PAPER} (each job in sub-structures of its own), not {placement!r}",
    )
    if placement == PAPER:
        return _servers_in_cells(topology, ranks)
    servers: Sequence[int] = range(topology.servers)
    if placement == RANDOM:
        servers = Random(f"{seed} placement").sample(servers, total)
    return [tuple(servers[a:b]) for a, b in pairwise(accumulate(ranks, initial=0))]


def _servers_in_cells(topology: Topology, ranks: Sequence[int]) -> list[tuple[int, ...]]:
    """Return servers of which no two jobs share a sub-structure of level 0.

    A job is in the smallest sub-structure that has enough free ones of level 0.
    """
    cell = topology.cell
    require(
        bool(cell),
        f"no paper describes sub-structures of {topology.spec} for jobs: choose the placement "
        f"{PACKED} or {RANDOM}",
    )
    taken: set[Cell] = set()
    found = []
    for count in ranks:
        servers = next(
            (free[:count] for free in _free_servers(topology, taken) if len(free) >= count), None
        )
        require(
            servers is not None,
            f"{topology.spec} has no {cell} of its own for each of {len(ranks)} jobs: choose the "
            f"placement {PACKED}, or fewer or smaller jobs",
        )
        assert servers is not None
        taken |= {topology.digits(server)[:-1] for server in servers}
        found.append(tuple(servers))
    return found


def _free_servers(topology: Topology, taken: set[Cell]) -> Iterator[list[int]]:
    """Yield the servers of each sub-structure in cells of level 0 that are not taken."""
    digits = sorted((topology.digits(server), server) for server in range(topology.servers))
    for width in range(1, len(topology.radices()) + 1):
        cells: dict[Cell, list[int]] = defaultdict(list)
        for of_server, server in digits:
            if of_server[:-1] not in taken:
                cells[of_server[:-width]].append(server)
        yield from cells.values()
