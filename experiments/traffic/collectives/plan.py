"""Plan of a collective operation on a network: its servers, transfers and flows.

The workload's pattern names the operation, the system's `algorithm` its algorithm. `volume_bytes`
is the size of every server's data: at the end of a broadcast or all-gather, and at the start of
other operations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Any, NamedTuple

from experiments.traffic.collectives import schedules
from experiments.traffic.collectives.graph import MOST_SENT, Graph, Weaver
from experiments.traffic.collectives.schedules import Exchange
from experiments.traffic.distribution_plan import plan_of
from experiments.traffic.flows import Flow
from experiments.traffic.workload import Workload
from topos.base.errors import meant, require
from topos.base.topology import Topology

ELEMENT_BYTES = 4  # size of an int32
MOST_BYTES = 1 << 31  # total of all servers: their data is in one process's memory
PAPER, RANDOM = "paper", "random"  # placements of ranks
BCUBE = "bcube"
PIECES = 32  # number of pieces of each tree's part of a broadcast


class AlgorithmRequest(NamedTuple):
    """Input of a collective algorithm: network, servers and options."""

    topology: Topology
    servers: tuple[int, ...]  # server of each rank
    options: Mapping[str, Any]

    @property
    def ranks(self) -> int:
        """Number of ranks of the collective operation."""
        return len(self.servers)

    def number(self, name: str, usual: int, least: int, most: int | None = None) -> int:
        """Return the value of an option that is a whole number."""
        value = self.options.get(name, usual)
        limit = f"from {least} to {most}" if most is not None else f"of at least {least}"
        require(
            isinstance(value, int) and not isinstance(value, bool),
            f"{name} is a whole number, not {value!r}",
        )
        require(
            least <= value and (most is None or value <= most),
            f"{name} is a number {limit} here, not {value}",
        )
        return int(value)

    def base(self) -> int:
        """Return the base of Gloo's scheme: the ports of BCube's switches, 2 in other networks."""
        return self.number("base", getattr(self.topology, "n", 2) if self.is_bcube else 2, 2)

    @property
    def is_bcube(self) -> bool:
        """Whether the network is a BCube."""
        return self.topology.kind == BCUBE

    def bml(self) -> list[schedules.Digits]:
        """Return BML's threads, a digit for each level of BCube."""
        require(
            self.is_bcube,
            f"BML needs a BCube, and {self.topology.spec} is not one: choose another algorithm",
        )
        require(
            self.ranks == self.topology.servers,
            f"BML needs all {self.topology.servers} servers of {self.topology.spec}, "
            f"not {self.ranks}: omit ranks",
        )
        return schedules.bml_threads(self.topology.radices()[::-1])

    def root(self) -> int:
        """Return the rank whose data is broadcast."""
        return self.number("root", 0, 0, self.ranks - 1)


Make = Callable[[AlgorithmRequest], Graph]
HALVES = {  # phases of each operation: reduce-scatter and all-gather
    "all-reduce": ("scatter", "gather"),
    "reduce-scatter": ("scatter",),
    "all-gather": ("gather",),
}


def _maker_of_threads(
    threads_of: Callable[[AlgorithmRequest], Sequence[Exchange]], operation: str
) -> Make:
    """Return a function that makes an operation's graph of threads with separate chunks."""

    def make(asked: AlgorithmRequest) -> Graph:
        weaver, threads = Weaver(), threads_of(asked)
        for thread in threads:
            step = 0
            for half in HALVES[operation]:
                step = getattr(thread, half)(weaver, step)
        everything = [range(asked.ranks * len(threads))] * asked.ranks
        shares = [[thread.share(rank) for thread in threads] for rank in range(asked.ranks)]
        begins = shares if operation == "all-gather" else everything
        return weaver.graph(begins, shares if operation == "reduce-scatter" else everything)

    return make


EXCHANGES: dict[str, Callable[[AlgorithmRequest], Sequence[Exchange]]] = {
    "ring": lambda asked: [schedules.Ring(asked.ranks)],
    "halving-doubling": lambda asked: [schedules.halving(asked.ranks)],
    "bcube": lambda asked: [schedules.bcube_scheme(asked.ranks, asked.base())],
    "bml": AlgorithmRequest.bml,
}


def _one_server(asked: AlgorithmRequest) -> Graph:
    return _parameter_servers(asked, 1)


def _several_servers(asked: AlgorithmRequest) -> Graph:
    return _parameter_servers(asked, asked.number("parameter_servers", asked.ranks, 1, asked.ranks))


def _parameter_servers(asked: AlgorithmRequest, count: int) -> Graph:
    weaver = Weaver()
    schedules.parameter_servers(weaver, asked.ranks, count)
    everything = [range(count)] * asked.ranks
    return weaver.graph(everything, everything)


def _trees(asked: AlgorithmRequest) -> Graph:
    """Return a broadcast over the network's own trees, or down a pipeline."""
    source, rank_of = asked.servers[asked.root()], {s: r for r, s in enumerate(asked.servers)}
    others = [server for server in asked.servers if server != source]
    trees = plan_of(asked.topology, source, others).trees
    require(
        {end for tree in trees for hop in tree for end in hop} <= set(rank_of),
        f"the trees of {asked.topology.spec} pass servers that do not take part: omit ranks, or "
        "choose the algorithm binomial",
    )
    found = [[(rank_of[a], rank_of[b]) for a, b in tree] for tree in trees]
    return _broadcast(asked, found, asked.number("pieces", PIECES, 1))


def _binomial(asked: AlgorithmRequest) -> Graph:
    tree = schedules.binomial(asked.ranks, asked.root())
    return _broadcast(asked, [tree], asked.number("pieces", 1, 1))


def _broadcast(asked: AlgorithmRequest, trees: Sequence[schedules.Tree], pieces: int) -> Graph:
    weaver, everything = Weaver(), range(len(trees) * pieces)
    schedules.by_trees(weaver, trees, pieces)
    begins = [everything if rank == asked.root() else () for rank in range(asked.ranks)]
    return weaver.graph(begins, [everything] * asked.ranks)


def _total_exchange(*, at_once: bool) -> Make:
    def make(asked: AlgorithmRequest) -> Graph:
        weaver, ranks = Weaver(), range(asked.ranks)
        schedules.direct_exchange(weaver, asked.ranks, at_once=at_once)
        size = asked.ranks
        begins = [range(rank * size, (rank + 1) * size) for rank in ranks]
        return weaver.graph(begins, [range(rank, size * size, size) for rank in ranks])

    return make


def _exchange_makers(operation: str) -> dict[str, Make]:
    return {name: _maker_of_threads(threads, operation) for name, threads in EXCHANGES.items()}


# By operation and algorithm; the first algorithm is the default.
ALGORITHMS: dict[str, dict[str, Make]] = {
    "all-reduce": {
        **_exchange_makers("all-reduce"),
        "parameter-server": _one_server,
        "parameter-servers": _several_servers,
    },
    "reduce-scatter": _exchange_makers("reduce-scatter"),
    "all-gather": _exchange_makers("all-gather"),
    "total-exchange": {
        "pairwise": _total_exchange(at_once=False),
        "at-once": _total_exchange(at_once=True),
    },
    "broadcast": {"trees": _trees, "binomial": _binomial},
}
# All algorithms accept these options, since other systems of an experiment may need them.
OPTIONS = ("ranks", "placement", "parameter_servers", "base", "root", "pieces")


def is_collective(workload: Workload) -> bool:
    """Return True if a workload is a collective operation."""
    return workload.pattern in ALGORITHMS


@dataclass(frozen=True)
class CollectivePlan:
    """A collective operation of a given size on given servers."""

    operation: str
    algorithm: str
    graph: Graph
    servers: tuple[int, ...]  # server of each rank
    size_bytes: int  # total size of the graph's chunks

    def offset(self, chunk: int) -> int:
        """Return the offset of a chunk in bytes; chunk sizes differ by at most one element."""
        elements = self.size_bytes // ELEMENT_BYTES
        return chunk * elements // self.graph.chunks * ELEMENT_BYTES

    def bytes_of(self, first: int, count: int = 1) -> int:
        """Return the size of a range of chunks in bytes."""
        return self.offset(first + count) - self.offset(first)

    @cached_property
    def volumes(self) -> tuple[int, ...]:
        """Size of each transfer of the collective operation in bytes."""
        return tuple(self.bytes_of(one.first, one.size) for one in self.graph.transfers)

    @cached_property
    def pairs(self) -> dict[tuple[int, int], int]:
        """Flow numbers by sending and receiving rank: a connection carries all their transfers."""
        found: dict[tuple[int, int], int] = {}
        for one in self.graph.transfers:
            found.setdefault((one.sender, one.receiver), len(found))
        return found

    @cached_property
    def flow_of(self) -> tuple[int, ...]:
        """Number of the flow that carries each transfer."""
        return tuple(self.pairs[one.sender, one.receiver] for one in self.graph.transfers)

    def flows(self) -> list[Flow]:
        """Return the connections as flows, each with the total of its transfers' bytes."""
        volumes = [0] * len(self.pairs)
        for flow, volume in zip(self.flow_of, self.volumes, strict=True):
            volumes[flow] += volume
        return [
            Flow(number, self.servers[a], self.servers[b], volume_bytes=volumes[number])
            for (a, b), number in self.pairs.items()
        ]


def collective_of(
    topology: Topology, workload: Workload, algorithm: str, seed: int
) -> CollectivePlan | None:
    """Return a workload's collective operation, or None if it is not one.

    An algorithm is refused for other workloads, since it would have no effect.
    """
    if is_collective(workload):
        return plan_for(topology, workload, algorithm, seed)
    require(
        not algorithm,
        f"algorithm = {algorithm} is for collective operations ({', '.join(ALGORITHMS)}), and "
        f"{workload.pattern} is not one",
    )
    return None


def plan_for(topology: Topology, workload: Workload, algorithm: str, seed: int) -> CollectivePlan:
    """Return a workload's collective operation; raise PillarboxError if it is invalid.

    >>> import topos
    >>> plan = plan_for(topos.parse("bcube,3,1"), Workload("all-reduce", 7200), "bml", seed=1)
    >>> plan.graph.steps, len(plan.flows()), plan.volumes[0]
    (4, 36, 1200)
    """
    known = ALGORITHMS[workload.pattern]
    name = algorithm or next(iter(known))
    require(
        name in known,
        f"{workload.pattern} has no algorithm {name!r}: {meant(name, list(known))}",
    )
    require(
        workload.volume_bytes is not None,
        f"{workload.pattern} ends after a volume: set volume_bytes, and no duration_s",
    )
    assert workload.volume_bytes is not None
    require(
        workload.tool == "auto",
        f"{workload.pattern} has its own tool: omit tool = {workload.tool}",
    )
    for option in workload.options:
        require(
            option in OPTIONS,
            f"{workload.pattern} has no option {option!r}: {meant(option, OPTIONS)}",
        )
    asked = AlgorithmRequest(topology, _rank_servers(topology, workload, seed), workload.options)
    graph = known[name](asked)
    copies = asked.ranks if workload.pattern == "total-exchange" else 1
    _check_size(workload, graph, copies)
    size_bytes = copies * workload.volume_bytes // ELEMENT_BYTES * ELEMENT_BYTES
    return CollectivePlan(workload.pattern, name, graph, asked.servers, size_bytes)


def most_bytes(ranks: int) -> int:
    """Return the maximum size of each rank's data: all data is in one process's memory."""
    return MOST_BYTES // ranks


def _check_size(workload: Workload, graph: Graph, copies: int) -> None:
    """Raise PillarboxError if chunks would be empty, or if the data exceeds the memory limit."""
    assert workload.volume_bytes is not None
    least = -(-graph.chunks // copies) * ELEMENT_BYTES
    require(
        workload.volume_bytes >= least,
        f"{workload.pattern} of {graph.ranks} ranks goes in {graph.chunks // copies} parts of at "
        f"least {ELEMENT_BYTES} bytes: volume_bytes is {least} or more, not "
        f"{workload.volume_bytes}",
    )
    each = workload.volume_bytes * min(copies, 2)
    total = each * graph.ranks
    require(
        each <= most_bytes(graph.ranks),
        f"{graph.ranks} ranks with {workload.volume_bytes} bytes each need {total / 1e9:.1f} GB of "
        f"memory, and {MOST_BYTES / 1e9:.1f} GB is the most: choose less volume_bytes, or fewer "
        "ranks",
    )


def _rank_servers(topology: Topology, workload: Workload, seed: int) -> tuple[int, ...]:
    """Return the server of each rank: in the order of addresses, or random."""
    ranks = workload.options.get("ranks", topology.servers)
    require(
        isinstance(ranks, int) and 2 <= ranks <= topology.servers,
        f"{workload.pattern} on {topology.spec} takes 2 to {topology.servers} ranks, not {ranks!r}",
    )
    require(
        ranks <= MOST_SENT,
        f"a collective operation has at most {MOST_SENT:,} ranks, not {ranks:,}: choose fewer "
        "(options.ranks)",
    )
    placement = workload.options.get("placement", PAPER)
    require(
        placement in (PAPER, RANDOM),
        f"ranks are placed as {PAPER} (in the order of addresses) or {RANDOM}, not {placement!r}",
    )
    servers = range(topology.servers)
    if placement == RANDOM:
        return tuple(Random(f"{seed} placement").sample(servers, ranks))
    return tuple(servers[:ranks])
