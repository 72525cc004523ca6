"""A training iteration as a trace: the nodes of each rank, and checks that they fit together.

A node is a computation, one end of a message, or a rank's part in a collective operation. It begins
when the nodes that it depends on have ended. Nodes of two ranks are connected as follows:

- the k-th send from rank a to rank b with a tag belongs to the k-th receive of rank b from rank a
  with that tag;
- the k-th collective operation of each member of a process group is the same operation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from pillarbox.topos.base.errors import require

COMPUTE, SEND, RECEIVE, COLLECTIVE = "compute", "send", "receive", "collective"
KINDS = (COMPUTE, SEND, RECEIVE, COLLECTIVE)
MOST_NODES = 500_000  # maximum number of nodes of a trace, all ranks together
MOST_DURATION_US = 10**12  # maximum duration of a computation in microseconds: eleven days
MOST_MESSAGE_BYTES = 1 << 40  # maximum size of a message or of a rank's data in a collective
LONGEST_CYCLE = 6  # maximum number of nodes of a cycle that an error message shows


@dataclass(frozen=True, slots=True)
class TraceNode:
    """A node of a rank's trace: a computation, a message's end or a collective operation."""

    number: int  # number of the node, unique in its rank
    name: str
    kind: str
    after: tuple[int, ...] = ()  # numbers of the nodes of this rank that must end first
    duration_us: int = 0  # duration of a computation in microseconds
    size_bytes: int = 0  # size of a message, or of the rank's data before a collective operation
    peer: int | None = None  # rank at the other end of a message
    tag: int = 0
    operation: str = ""  # collective operation, such as all-reduce
    group: str = ""  # process group of a collective operation; "" is all ranks
    # Bytes that the rank sends to each member in an uneven total exchange, in group order, with the
    # sum `size_bytes`. Empty if all are equal.
    parts: tuple[int, ...] = ()
    root: int = 0  # index in the group of the rank that broadcasts, reduces, gathers or scatters
    on_cpu: bool = False  # a rank's CPU and its accelerator compute simultaneously
    parallelism: str = ""  # parallelism that sends the data, such as tensor, if known

    @property
    def label(self) -> str:
        """Class of the node's traffic: its parallelism if known, or its operation."""
        return self.parallelism or self.operation or self.kind


class Place(NamedTuple):
    """Rank of a node, and the node's position in the rank's trace."""

    rank: int
    position: int


class Operation(NamedTuple):
    """A collective operation: its process group, and the node of each member, in group order."""

    members: tuple[int, ...]
    places: tuple[Place, ...]


@dataclass(frozen=True)
class Trace:
    """A training iteration: the nodes of each rank, and the ranks of each process group."""

    ranks: tuple[tuple[TraceNode, ...], ...]
    groups: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def node(self, place: Place) -> TraceNode:
        """Return the node at a place of the trace."""
        return self.ranks[place.rank][place.position]

    def members(self, group: str) -> tuple[int, ...]:
        """Return the ranks of a process group; all ranks for a group without a name."""
        return self.groups[group] if group else self._all_ranks

    @cached_property
    def _all_ranks(self) -> tuple[int, ...]:
        return tuple(range(len(self.ranks)))

    @cached_property
    def messages(self) -> dict[Place, Place]:
        """Place of each send node by the place of its receive node.

        Raises PillarboxError if a node has no peer, or if the two sizes differ.
        """
        sends, receives = self._ends_of_messages(SEND), self._ends_of_messages(RECEIVE)
        found: dict[Place, Place] = {}
        for key in {**sends, **receives}:
            source, destination, tag = key
            out, into = sends.get(key, []), receives.get(key, [])
            surplus = out[len(into) :] + into[len(out) :]
            if surplus:
                node, what = self.node(surplus[0]), "receive" if out[len(into) :] else "send"
                require(
                    False,
                    f"{self.name_of(surplus[0])} ({node.kind}) has no peer: the trace has no "
                    f"matching {what} from rank {source} to rank {destination} with tag {tag}",
                )
            for sender, receiver in zip(out, into, strict=True):
                sizes = self.node(sender).size_bytes, self.node(receiver).size_bytes
                require(
                    sizes[0] == sizes[1],
                    f"{self.name_of(sender)} sends {sizes[0]} bytes and {self.name_of(receiver)} "
                    f"receives {sizes[1]}: both ends of a message have one size",
                )
                found[receiver] = sender
        return found

    def _ends_of_messages(self, kind: str) -> dict[tuple[int, int, int], list[Place]]:
        found: dict[tuple[int, int, int], list[Place]] = defaultdict(list)
        for place, node in self._nodes():
            if node.kind == kind:
                require(
                    node.peer is not None,
                    f"{self.name_of(place)} ({kind}) has no peer: it needs the attribute "
                    f"{'comm_dst' if kind == SEND else 'comm_src'}",
                )
                assert node.peer is not None
                ends = (place.rank, node.peer) if kind == SEND else (node.peer, place.rank)
                found[(*ends, node.tag)].append(place)
        return found

    @cached_property
    def operations(self) -> dict[Place, Operation]:
        """Collective operation of each node that takes part in one.

        Raises PillarboxError if the members of a process group have different operations.
        """
        of_group: dict[str, dict[int, list[Place]]] = defaultdict(lambda: defaultdict(list))
        for place, node in self._nodes():
            if node.kind == COLLECTIVE:
                of_group[node.group][place.rank].append(place)
        found: dict[Place, Operation] = {}
        for group, of_rank in of_group.items():
            members = self.members(group)
            outside = next(iter(sorted(of_rank.keys() - set(members))), None)
            require(
                outside is None,
                f"rank {outside} takes part in a collective operation of process group {group}, "
                "which does not contain it",
            )
            counts = {rank: len(of_rank.get(rank, ())) for rank in members}
            least, most = min(counts, key=counts.__getitem__), max(counts, key=counts.__getitem__)
            require(
                counts[least] == counts[most],
                f"rank {least} has {counts[least]} collective operations of {_group_name(group)} "
                f"and rank {most} has {counts[most]}: a peer is missing",
            )
            for places in zip(*(of_rank[rank] for rank in members), strict=True):
                self._check_same_operation(places)
                found |= dict.fromkeys(places, Operation(members, places))
        return found

    def _check_same_operation(self, places: Sequence[Place]) -> None:
        """Raise PillarboxError if nodes of a collective operation differ in type, size or root.

        In an uneven total exchange each rank has data of its own size.
        """
        first = self.node(places[0])
        for place in places[1:]:
            other = self.node(place)
            for name, texts in (
                ("operation", (first.operation, other.operation)),
                ("parts", (_evenness(first), _evenness(other))),
                ("size", ("", "") if first.parts else _sizes(first, other)),
                ("root", (f"root {first.root}", f"root {other.root}")),
            ):
                require(
                    texts[0] == texts[1],
                    f"{self.name_of(places[0])} and {self.name_of(place)} are the same collective "
                    f"operation and differ in {name}: {texts[0]} and {texts[1]}",
                )

    def _nodes(self) -> Iterator[tuple[Place, TraceNode]]:
        for rank, nodes in enumerate(self.ranks):
            for index, node in enumerate(nodes):
                yield Place(rank, index), node

    def name_of(self, place: Place) -> str:
        """Return a node's name for error messages."""
        node = self.node(place)
        return f"rank {place.rank}, node {node.number}{f' {node.name!r:.60}' if node.name else ''}"

    @cached_property
    def order(self) -> tuple[Place, ...]:
        """Places of all nodes, each after the nodes that it depends on, on all ranks.

        A collective operation begins on each member after the nodes that any member depends on.
        Raises PillarboxError if dependencies form a cycle.
        """
        needs = self._dependencies()
        waiting = {place: len(needed) for place, needed in needs.items()}
        needed_by: dict[Place, list[Place]] = defaultdict(list)
        for place, needed in needs.items():
            for other in needed:
                needed_by[other].append(place)
        ready = [place for place, count in waiting.items() if not count]
        found: list[Place] = []
        for place in ready:
            operation = self.operations.get(place)
            found.extend(operation.places if operation else (place,))
            for onward in needed_by[place]:
                waiting[onward] -= 1
                if not waiting[onward]:
                    ready.append(onward)
        if len(ready) < len(needs):
            self._raise_cycle(needs, {place for place, count in waiting.items() if count})
        return tuple(found)

    def _representative(self, place: Place) -> Place:
        """Return the first member's node for a node of a collective operation, or the node."""
        operation = self.operations.get(place)
        return operation.places[0] if operation else place

    def _dependencies(self) -> dict[Place, list[Place]]:
        """Return the nodes that each node depends on; a collective operation is one node here."""
        needs: dict[Place, list[Place]] = {}
        for rank, nodes in enumerate(self.ranks):
            index_of = {node.number: index for index, node in enumerate(nodes)}
            for index, node in enumerate(nodes):
                place = Place(rank, index)
                needed = needs.setdefault(self._representative(place), [])
                needed += (self._representative(Place(rank, index_of[n])) for n in node.after)
                if place in self.messages:
                    needed.append(self.messages[place])
        return needs

    def _raise_cycle(self, needs: Mapping[Place, Sequence[Place]], stuck: set[Place]) -> None:
        """Raise PillarboxError with a cycle among nodes that wait for each other."""
        path: dict[Place, int] = {}  # places of a chain of dependencies, with their positions
        place = min(stuck)
        while place not in path:
            path[place] = len(path)
            place = next(other for other in needs[place] if other in stuck)
        cycle = [*list(path)[path[place] :], place]
        names = list(map(self.name_of, cycle[:LONGEST_CYCLE]))
        shown = names if len(cycle) <= LONGEST_CYCLE else [*names, "..."]
        require(False, f"the trace has a cycle of dependencies: {' waits for '.join(shown)}")


def _evenness(node: TraceNode) -> str:
    return "uneven parts" if node.parts else "even parts"


def _sizes(first: TraceNode, other: TraceNode) -> tuple[str, str]:
    return f"{first.size_bytes} bytes", f"{other.size_bytes} bytes"


def _group_name(group: str) -> str:
    return f"process group {group}" if group else "all ranks"


def check_trace(trace: Trace) -> None:
    """Raise PillarboxError with a sentence if a trace cannot be run."""
    count = len(trace.ranks)
    total = sum(map(len, trace.ranks))
    require(total > 0, "the trace has no nodes")
    require(total <= MOST_NODES, f"a trace has at most {MOST_NODES:,} nodes, not {total:,}")
    for group, members in trace.groups.items():
        strange = next((rank for rank in members if not 0 <= rank < count), None)
        require(
            strange is None and len(set(members)) == len(members) > 0,
            f"process group {group} has the unknown rank {strange}: ranks are 0 to {count - 1}"
            if strange is not None
            else f"process group {group} has no ranks, or one rank twice",
        )
    for rank, nodes in enumerate(trace.ranks):
        known: set[int] = set()
        for index, node in enumerate(nodes):
            require(node.number not in known, f"rank {rank} has two nodes {node.number}")
            known.add(node.number)
            _check_node(trace, Place(rank, index), node)
        for index, node in enumerate(nodes):
            missing = next((one for one in node.after if one not in known), None)
            require(
                missing is None,
                f"{trace.name_of(Place(rank, index))} depends on node {missing}, which rank {rank} "
                "does not have; a trace converted from PyTorch needs --pytorch (option pytorch)",
            )
    _ = trace.order  # raises PillarboxError for missing peers and cycles


def _check_node(trace: Trace, place: Place, node: TraceNode) -> None:
    """Raise PillarboxError if a value of a node is out of range."""
    count, name = len(trace.ranks), trace.name_of(place)
    require(
        0 <= node.duration_us <= MOST_DURATION_US,
        f"{name} has a negative duration: {node.duration_us} microseconds"
        if node.duration_us < 0
        else f"{name} takes {node.duration_us} microseconds, and at most {MOST_DURATION_US} are "
        "allowed",
    )
    require(
        0 <= node.size_bytes <= MOST_MESSAGE_BYTES,
        f"{name} has a size of {node.size_bytes} bytes: it is from 0 to {MOST_MESSAGE_BYTES}",
    )
    if node.peer is not None:
        require(
            0 <= node.peer < count,
            f"{name} names the unknown rank {node.peer}: ranks are 0 to {count - 1}",
        )
        require(node.peer != place.rank, f"{name} sends to its own rank")
    if node.kind == COLLECTIVE:
        require(
            not node.group or node.group in trace.groups,
            f"{name} names the unknown process group {node.group!r:.60}: add it to the file of "
            "process groups",
        )
        size = len(trace.members(node.group))
        _check_parts(name, node, size)
        require(
            0 <= node.root < size,
            f"{name} has the unknown root {node.root}: its process group has {size} ranks",
        )


def _check_parts(name: str, node: TraceNode, members: int) -> None:
    """Raise PillarboxError if the parts of an uneven total exchange do not fit the operation."""
    if not node.parts:
        return
    require(
        node.operation == "total-exchange",
        f"{name} has parts of different sizes: they are for total-exchange, not {node.operation}",
    )
    require(
        len(node.parts) == members and min(node.parts) >= 0 and sum(node.parts) == node.size_bytes,
        f"{name} has {len(node.parts)} parts of {sum(node.parts)} bytes in total: its process "
        f"group has {members} ranks, and its size is {node.size_bytes} bytes",
    )
