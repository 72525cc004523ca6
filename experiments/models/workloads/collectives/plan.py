"""Plan of a collective operation on a network: its servers, transfers and flows.

The workload's pattern names the operation, the system's `algorithm` its algorithm. `volume_bytes`
is the size of every server's data: at the end of a broadcast or all-gather, and at the start of
other operations. Of synchronized reads it is the size of a block.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain, takewhile
from math import gcd
from random import Random
from typing import Any, NamedTuple

from pillarbox.experiments.models.workloads.collectives import schedules
from pillarbox.experiments.models.workloads.collectives import shares as uneven
from pillarbox.experiments.models.workloads.collectives.graph import (
    MOST_SENT,
    TransferGraph,
    TransferGraphBuilder,
)
from pillarbox.experiments.models.workloads.collectives.schedules import AllReduceSchedule
from pillarbox.experiments.models.workloads.distribution_plan import plan_of
from pillarbox.experiments.models.workloads.flows import Flow
from pillarbox.experiments.models.workloads.workload import Workload
from pillarbox.topos.base.digits import DigitNetwork
from pillarbox.topos.base.errors import UnknownNameError, meant, require
from pillarbox.topos.base.topology import Topology
from pillarbox.topos.bcube import BCube

ELEMENT_BYTES = 4  # size of a data element (int32) in bytes
MOST_BYTES = 1 << 31  # maximum data of all ranks in bytes, held in one process's memory
PAPER, RANDOM = "paper", "random"  # placements of ranks on servers: by address, or random
PIECES = 32  # number of pieces into which a broadcast tree's data is split
SYNCHRONIZED_READS = "synchronized-reads"
READS = 10  # number of reads of each fan-in


class AlgorithmRequest(NamedTuple):
    """Input of a collective algorithm: network, server of each rank, workload options."""

    topology: Topology
    servers: tuple[int, ...]  # server that runs each rank
    options: Mapping[str, Any]

    @property
    def ranks(self) -> int:
        """Number of ranks of the collective operation."""
        return len(self.servers)

    def whole_number(self, name: str, usual: int, least: int, most: int | None = None) -> int:
        """Return a collective operation's option that is a whole number, `usual` by default."""
        value = self.options.get(name, usual)
        limit = f"from {least} to {most}" if most is not None else f"of at least {least}"
        require(
            isinstance(value, int) and not isinstance(value, bool),
            f"the option {name} is a whole number, not {value!r}",
        )
        require(
            least <= value and (most is None or value <= most),
            f"the option {name} is a number {limit} here, not {value}",
        )
        return int(value)

    def fan_ins(self) -> list[int]:
        """Return the numbers of ranks that rank 0 reads a block from, in the order of reads."""
        value = self.options.get("fan_in", self.ranks - 1)
        found = list(value) if isinstance(value, list | tuple) else [value]
        for one in found:
            require(
                isinstance(one, int) and not isinstance(one, bool) and 1 <= one < self.ranks,
                f"the option fan_in is a number from 1 to {self.ranks - 1} here, or a list of "
                f"such numbers, not {one!r}",
            )
        require(bool(found), "the option fan_in is an empty list: give a number of ranks to read")
        return found

    def gloo_base(self) -> int:
        """Return the base of Gloo's all-reduce: BCube's ports per switch, 2 in other networks."""
        n = self.topology.n if isinstance(self.topology, BCube) else 2
        return self.whole_number("base", n, 2)

    def ranks_of_switch(self) -> int:
        """Return the number of ranks of each group of a hierarchical all-reduce.

        By default these are the ranks of one switch, or a divisor of their number.
        """
        first = [next(self.topology.neighbours(server))[1].node for server in self.servers]
        near = sum(1 for _ in takewhile(lambda node: node == first[0], first))
        return self.whole_number("inner", gcd(near, self.ranks), 1)

    def bml_schedules(self) -> list[schedules.DigitSchedule]:
        """Return the exchange schedules of BML's threads, one thread per level (digit)."""
        require(
            isinstance(self.topology, DigitNetwork),
            "BML needs a BCube, or another network with a level for each digit of an address, and "
            f"{self.topology.spec} is not one: choose another algorithm",
        )
        require(
            self.ranks == self.topology.servers,
            f"BML needs all {self.topology.servers} servers of {self.topology.spec} as ranks, "
            f"not {self.ranks}: omit options.ranks",
        )
        return schedules.bml_threads(self.topology.radices()[::-1])

    def root_rank(self) -> int:
        """Return the rank whose data is broadcast."""
        return self.whole_number("root", 0, 0, self.ranks - 1)


Make = Callable[[AlgorithmRequest], TransferGraph]
HALVES = {  # methods of `AllReduceSchedule` to call, by collective operation
    "all-reduce": ("scatter", "gather"),
    "reduce-scatter": ("scatter",),
    "all-gather": ("gather",),
}


def _schedule_graph_maker(
    threads_of: Callable[[AlgorithmRequest], Sequence[AllReduceSchedule]], operation: str
) -> Make:
    """Return a function that makes a collective operation's graph from threads' schedules.

    Each thread has its own chunks.
    """

    def make_graph(asked: AlgorithmRequest) -> TransferGraph:
        builder, threads = TransferGraphBuilder(), threads_of(asked)
        for thread in threads:
            step = 0
            for half in HALVES[operation]:
                step = getattr(thread, half)(builder, step)
        everything = [range(asked.ranks * len(threads))] * asked.ranks
        shares = [[thread.final_chunk(rank) for thread in threads] for rank in range(asked.ranks)]
        begins = shares if operation == "all-gather" else everything
        return builder.finished_graph(
            begins, shares if operation == "reduce-scatter" else everything
        )

    return make_graph


EXCHANGES: dict[str, Callable[[AlgorithmRequest], Sequence[AllReduceSchedule]]] = {
    "ring": lambda asked: [schedules.RingSchedule(asked.ranks)],
    "halving-doubling": lambda asked: [schedules.halving_schedule(asked.ranks)],
    "bcube": lambda asked: [schedules.bcube_scheme(asked.ranks, asked.gloo_base())],
    "bml": AlgorithmRequest.bml_schedules,
    "hierarchical": lambda asked: [
        schedules.HierarchicalSchedule(asked.ranks, asked.ranks_of_switch())
    ],
}


def _graph_with_one_parameter_server(asked: AlgorithmRequest) -> TransferGraph:
    return _parameter_server_graph(asked, 1)


def _graph_with_parameter_servers(asked: AlgorithmRequest) -> TransferGraph:
    return _parameter_server_graph(
        asked, asked.whole_number("parameter_servers", asked.ranks, 1, asked.ranks)
    )


def _parameter_server_graph(asked: AlgorithmRequest, count: int) -> TransferGraph:
    builder = TransferGraphBuilder()
    schedules.parameter_servers(builder, asked.ranks, count)
    everything = [range(count)] * asked.ranks
    return builder.finished_graph(everything, everything)


def _tree_broadcast_graph(asked: AlgorithmRequest) -> TransferGraph:
    """Return the transfer graph of a broadcast over the network's trees, or down a pipeline."""
    source, rank_of = asked.servers[asked.root_rank()], {s: r for r, s in enumerate(asked.servers)}
    others = [server for server in asked.servers if server != source]
    trees = plan_of(asked.topology, source, others).trees
    require(
        {end for tree in trees for hop in tree for end in hop} <= set(rank_of),
        f"the broadcast trees of {asked.topology.spec} pass servers that are no ranks: omit "
        "options.ranks, or choose the algorithm binomial",
    )
    found = [[(rank_of[a], rank_of[b]) for a, b in tree] for tree in trees]
    return _broadcast_graph(asked, found, asked.whole_number("pieces", PIECES, 1))


def _binomial_broadcast_graph(asked: AlgorithmRequest) -> TransferGraph:
    tree = schedules.binomial_tree(asked.ranks, asked.root_rank())
    return _broadcast_graph(asked, [tree], asked.whole_number("pieces", 1, 1))


def _broadcast_graph(
    asked: AlgorithmRequest, trees: Sequence[schedules.Tree], pieces: int
) -> TransferGraph:
    builder, everything = TransferGraphBuilder(), range(len(trees) * pieces)
    schedules.broadcast_by_trees(builder, trees, pieces)
    begins = [everything if rank == asked.root_rank() else () for rank in range(asked.ranks)]
    return builder.finished_graph(begins, [everything] * asked.ranks)


def _total_exchange_maker(*, at_once: bool) -> Make:
    def make_graph(asked: AlgorithmRequest) -> TransferGraph:
        builder, ranks = TransferGraphBuilder(), range(asked.ranks)
        schedules.direct_exchange(builder, asked.ranks, at_once=at_once)
        size = asked.ranks
        begins = [range(rank * size, (rank + 1) * size) for rank in ranks]
        return builder.finished_graph(begins, [range(rank, size * size, size) for rank in ranks])

    return make_graph


def _synchronized_reads_graph(asked: AlgorithmRequest) -> TransferGraph:
    """Return the transfer graph of a rank that reads blocks from several others (incast)."""
    fan_ins, reads = asked.fan_ins(), asked.whole_number("reads", READS, 1)
    builder = TransferGraphBuilder()
    shares = schedules.synchronized_reads(builder, fan_ins, reads)
    begins: list[list[int]] = [[] for _ in range(asked.ranks)]
    for number, share in zip(chain(*(range(1, n + 1) for n in fan_ins)), shares, strict=True):
        begins[number] += share
    everything = range(len(fan_ins) * max(fan_ins))
    return builder.finished_graph(begins, [everything, *[()] * (asked.ranks - 1)])


def _schedule_graph_makers(operation: str) -> dict[str, Make]:
    return {name: _schedule_graph_maker(threads, operation) for name, threads in EXCHANGES.items()}


# Makers of transfer graphs by collective operation and algorithm, the default algorithm first.
ALGORITHMS: dict[str, dict[str, Make]] = {
    "all-reduce": {
        **_schedule_graph_makers("all-reduce"),
        "parameter-server": _graph_with_one_parameter_server,
        "parameter-servers": _graph_with_parameter_servers,
    },
    "reduce-scatter": _schedule_graph_makers("reduce-scatter"),
    "all-gather": _schedule_graph_makers("all-gather"),
    "total-exchange": {
        "pairwise": _total_exchange_maker(at_once=False),
        "at-once": _total_exchange_maker(at_once=True),
    },
    "broadcast": {"trees": _tree_broadcast_graph, "binomial": _binomial_broadcast_graph},
    SYNCHRONIZED_READS: {"at-once": _synchronized_reads_graph},
}
# Options of collective operations: every algorithm accepts all of them, as an experiment compares
# algorithms with the same workload.
OPTIONS = (
    *("ranks", "placement", "parameter_servers", "base", "inner", "root", "pieces", "reads"),
    *("fan_in", *uneven.OPTIONS),
)


def is_collective(workload: Workload) -> bool:
    """Return True if a workload's pattern is a collective operation, such as all-reduce."""
    return workload.pattern in ALGORITHMS


@dataclass(frozen=True)
class CollectivePlan:
    """A collective operation on a network: algorithm, transfer graph, servers and data size."""

    operation: str
    algorithm: str
    graph: TransferGraph
    servers: tuple[int, ...]  # server that runs each rank
    size_bytes: int  # total size of all chunks of the graph
    # Byte offset of each chunk, and the end of the last one; empty if all have the same size.
    offsets: tuple[int, ...] = ()

    def offset(self, chunk: int) -> int:
        """Return the byte offset of a chunk; chunks of one size differ by one element at most."""
        if self.offsets:
            return self.offsets[chunk]
        elements = self.size_bytes // ELEMENT_BYTES
        return chunk * elements // self.graph.chunks * ELEMENT_BYTES

    def bytes_of_chunks(self, first: int, count: int = 1) -> int:
        """Return the size of `count` chunks from `first` on, in bytes."""
        return self.offset(first + count) - self.offset(first)

    @cached_property
    def volumes(self) -> tuple[int, ...]:
        """Size in bytes of each transfer of the collective operation."""
        return tuple(self.bytes_of_chunks(one.first, one.size) for one in self.graph.transfers)

    @cached_property
    def pairs(self) -> dict[tuple[int, int], int]:
        """Number of the flow from rank to rank, which carries all transfers of this pair."""
        found: dict[tuple[int, int], int] = {}
        for one in self.graph.transfers:
            if one.sender != one.receiver:
                found.setdefault((one.sender, one.receiver), len(found))
        return found

    @cached_property
    def flow_of(self) -> tuple[int, ...]:
        """Number of the flow that carries each transfer."""
        return tuple(self.pairs[one.sender, one.receiver] for one in self.graph.transfers)

    @property
    def queues(self) -> int:
        """Number of queues in which transfers wait for one another: one for each flow."""
        return len(self.pairs)

    def flows(self) -> list[Flow]:
        """Return the flows of the collective operation: one for each pair of ranks that sends."""
        volumes = [0] * len(self.pairs)
        for one, volume in zip(self.graph.transfers, self.volumes, strict=True):
            if one.sender != one.receiver:
                volumes[self.pairs[one.sender, one.receiver]] += volume
        return [
            Flow(number, self.servers[a], self.servers[b], volume_bytes=volumes[number])
            for (a, b), number in self.pairs.items()
        ]


def collective_of(
    topology: Topology, workload: Workload, algorithm: str, seed: int
) -> CollectivePlan | None:
    """Return the plan of a collective operation, or None for other workloads.

    An algorithm is refused for other workloads, since it would have no effect.
    """
    if is_collective(workload):
        return plan_for(topology, workload, algorithm, seed)
    require(
        not algorithm,
        f"algorithm = {algorithm} is for collective operations ({', '.join(ALGORITHMS)}), and the "
        f"pattern {workload.pattern} is not one: omit algorithm",
    )
    return None


def plan_for(topology: Topology, workload: Workload, algorithm: str, seed: int) -> CollectivePlan:
    """Return the plan of a collective operation; raise PillarboxError if it is invalid.

    >>> from pillarbox import topos
    >>> plan = plan_for(topos.parse("bcube,3,1"), Workload("all-reduce", 7200), "bml", seed=1)
    >>> plan.graph.steps, len(plan.flows()), plan.volumes[0]
    (4, 36, 1200)
    """
    known = ALGORITHMS[workload.pattern]
    name = algorithm or next(iter(known))
    require(
        name in known,
        f"the collective operation {workload.pattern} has no algorithm {name!r}: "
        f"{meant(name, list(known))}",
        UnknownNameError,
    )
    require(
        workload.volume_bytes is not None,
        f"the collective operation {workload.pattern} ends after a volume: set volume_bytes, and "
        "no duration_s",
    )
    assert workload.volume_bytes is not None
    require(
        workload.tool == "auto",
        f"the collective operation {workload.pattern} has its own traffic tool: omit "
        f"tool = {workload.tool}",
    )
    for option in workload.options:
        require(
            option in OPTIONS,
            f"the collective operation {workload.pattern} has no option {option!r}: "
            f"{meant(option, OPTIONS)}",
            UnknownNameError,
        )
    asked = AlgorithmRequest(topology, _rank_servers(topology, workload, seed), workload.options)
    graph = known[name](asked)
    copies = _copies(asked, workload)
    _check_volume(workload, graph, copies)
    size_bytes = copies * workload.volume_bytes // ELEMENT_BYTES * ELEMENT_BYTES
    offsets = _uneven_offsets(asked, workload, seed)
    return CollectivePlan(workload.pattern, name, graph, asked.servers, size_bytes, offsets)


def _uneven_offsets(asked: AlgorithmRequest, workload: Workload, seed: int) -> tuple[int, ...]:
    """Return the offsets of an exchange's chunks if its destinations have shares, or ()."""
    given = [option for option in uneven.OPTIONS if option in workload.options]
    require(
        not given or workload.pattern == "total-exchange",
        f"the option {next(iter(given), '')} is for total-exchange, and not for {workload.pattern}",
    )
    draw = Random(f"{seed} shares")
    shares = uneven.drawn_or_read_shares(workload.options, asked.ranks, draw)
    if shares is None:
        return ()
    assert workload.volume_bytes is not None
    # A part has at least one element, as each connection has data to carry.
    parts = uneven.apportioned(workload.volume_bytes // ELEMENT_BYTES, shares, least=1)
    sizes = [part * ELEMENT_BYTES for part in parts] * asked.ranks
    return tuple(accumulate(sizes, initial=0))


def _copies(asked: AlgorithmRequest, workload: Workload) -> int:
    """Return the number of different data of `volume_bytes` in a collective operation."""
    if workload.pattern == SYNCHRONIZED_READS:
        return len(asked.fan_ins())
    return asked.ranks if workload.pattern == "total-exchange" else 1


def most_bytes(ranks: int) -> int:
    """Return the maximum bytes of a rank's data: all ranks are in one process's memory."""
    return MOST_BYTES // ranks


def _check_volume(workload: Workload, graph: TransferGraph, copies: int) -> None:
    """Raise PillarboxError if `volume_bytes` is too small for the chunks, or too large."""
    assert workload.volume_bytes is not None
    least = -(-graph.chunks // copies) * ELEMENT_BYTES
    require(
        workload.volume_bytes >= least,
        f"{workload.pattern} of {graph.ranks} ranks splits its data into "
        f"{graph.chunks // copies} parts of at least {ELEMENT_BYTES} bytes: volume_bytes must be "
        f"{least} or more, not {workload.volume_bytes}",
    )
    each = workload.volume_bytes * min(copies, 2)
    total = each * graph.ranks
    require(
        each <= most_bytes(graph.ranks),
        f"{graph.ranks} ranks with {workload.volume_bytes} bytes each need {total / 1e9:.1f} GB of "
        f"memory, and the limit is {MOST_BYTES / 1e9:.1f} GB: choose less volume_bytes, or fewer "
        "ranks",
    )


def _rank_servers(topology: Topology, workload: Workload, seed: int) -> tuple[int, ...]:
    """Return the server of each rank: in the order of server addresses, or random."""
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
    return placed_servers(topology, ranks, workload.options.get("placement", PAPER), seed)


def placed_servers(
    topology: Topology, ranks: int, placement: str, seed: int, least: int = 2
) -> tuple[int, ...]:
    """Return the server of each rank: in the order of server addresses, or random."""
    require(
        least <= ranks <= topology.servers,
        f"{topology.spec} has {topology.servers} servers, and this workload {ranks} ranks: choose "
        "another network, or another number of ranks",
    )
    require(
        placement in (PAPER, RANDOM),
        f"options.placement is {PAPER} (ranks in the order of server addresses) or {RANDOM}, not "
        f"{placement!r}",
    )
    servers = range(topology.servers)
    if placement == RANDOM:
        return tuple(Random(f"{seed} placement").sample(servers, ranks))
    return tuple(servers[:ranks])
