"""Failed servers, switches, cables and links of a network."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pillarbox.hosts.base.fault_kinds import CABLE, RACK, SERVER, fault_kind
from pillarbox.hosts.base.faults import Fault, read
from pillarbox.hosts.base.path import Path, Step, switches_between
from pillarbox.topos.base.errors import UnknownNameError, require
from pillarbox.topos.base.topology import Topology

Pair = frozenset[int]


@dataclass(frozen=True)
class Failures:
    """Failed nodes (servers and switches), and failed links by the two nodes at their ends.

    A link between two servers is their direct cable or, if they only share a switch, the
    connection between them over any switch: other servers on that switch still reach both.
    """

    nodes: frozenset[int] = frozenset()
    links: frozenset[Pair] = frozenset()

    def union(self, other: Failures) -> Failures:
        """Return the failures of both."""
        return Failures(self.nodes | other.nodes, self.links | other.links)

    def of_hop(self, topology: Topology, server: int, step: Step) -> tuple[int, ...] | None:
        """Return the failed node (one number) or link (two numbers) on a hop; None if the hop
        works.

        A link that is missing in a partial network counts as failed (Guo 2008, section 5).
        """
        try:
            hop_nodes = [server, *_hop_switches(topology, server, step, self), step.peer]
        except ValueError:
            return server, step.peer
        for node in hop_nodes:
            if node in self.nodes:
                return (node,)
        for ends in [*pairwise(hop_nodes), (server, step.peer)]:
            if frozenset(ends) in self.links:
                return ends
        return None

    def first_on(self, topology: Topology, path: Path) -> tuple[int, ...] | None:
        """Return the first failed node or link on the path, None if the path works."""
        if path.source in self.nodes:
            return (path.source,)
        for server, step in zip(path.servers, path.steps, strict=False):
            failed = self.of_hop(topology, server, step)
            if failed:
                return failed
        return None


NONE = Failures()


def _hop_switches(topology: Topology, server: int, step: Step, failures: Failures) -> list[int]:
    """Return the switches that a hop crosses, around failed switches and links if possible."""
    try:
        return switches_between(topology, server, step, failures.nodes, failures.links)
    except ValueError:
        return switches_between(topology, server, step)


def parse_failures(topology: Topology, texts: Iterable[str]) -> Failures:
    """Parse failures from texts: ``kill 0.3``, ``stop s2``, ``rack s2``, ``cut 0.3-4.0``.

    Raises PillarboxError for unknown nodes and cables, for `at` and `until`, as these failures
    last from the beginning to the end, and for faults that let some packets through.
    """
    found = Failures()
    for text in texts:
        fault = read(text)
        require(
            (fault.at_s, fault.until_s) == (0.0, None),
            f"failures of a path have no times (at, until): write {fault.named!r}",
        )
        kind = fault_kind(fault.kind)
        require(
            kind.breaks, f"{kind.verb!r} is not a failure: packets still pass the {kind.target}"
        )
        found = found.union(affected(topology, kind.target, _nodes(topology, kind.target, fault)))
    return found


def affected(topology: Topology, target: str, nodes: Sequence[int]) -> Failures:
    """Return the failed nodes and links of a fault, by its kind of target and the nodes it names.

    >>> from pillarbox import topos
    >>> affected(topos.parse("tree,2,2"), RACK, [5])
    Failures(nodes=frozenset({2, 3, 5}), links=frozenset())
    """
    if target == CABLE:
        return Failures(links=frozenset([frozenset(nodes)]))
    return Failures(frozenset([*nodes, *(rack(topology, *nodes) if target == RACK else ())]))


def _nodes(topology: Topology, target: str, fault: Fault) -> list[int]:
    """Return the nodes that a fault names; raise PillarboxError for nodes of another kind."""
    if target == CABLE:
        return list(_link(topology, *fault.what))
    (name,) = fault.what
    return [topology.server(name) if target == SERVER else topology.servers + topology.switch(name)]


def rack(topology: Topology, switch: int) -> list[int]:
    """Return the servers of a rack: the servers cabled to its switch, which share its power."""
    around = (plug.node for _, plug in topology.neighbours(switch))
    return [node for node in around if node < topology.servers]


def failure_texts(topology: Topology, failures: Failures) -> list[str]:
    """Return failures as texts in the form that `parse_failures` reads.

    >>> from pillarbox import topos
    >>> bcube, texts = topos.parse("bcube,4,1"), ["kill 0.3", "stop s2", "cut 0.0-s0"]
    >>> failure_texts(bcube, parse_failures(bcube, texts)) == texts
    True
    """
    faults = [
        Fault("server" if node < topology.servers else "switch", (topology.name(node),))
        for node in sorted(failures.nodes)
    ]
    links = sorted(sorted(link) for link in failures.links)
    faults += [Fault("cut", tuple(map(topology.name, link))) for link in links]
    return list(map(str, faults))


def _link(topology: Topology, a: str, b: str) -> Pair:
    """Return the link between two named nodes, or raise PillarboxError."""
    ends = [topology.node(end) for end in (a, b)]
    around = {plug.node for _, plug in topology.neighbours(ends[0])}
    if ends[0] < topology.servers and ends[1] < topology.servers:
        around.update(p for port in range(topology.ports) for p in topology.peers(ends[0], port))
    require(
        ends[1] in around,
        f"there is no link between {a} and {b} in {topology.spec}",
        UnknownNameError,
    )
    return frozenset(ends)
