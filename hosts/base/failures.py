"""What has failed in a network: servers, switches, cables, and links between servers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from hosts.base.faults import Fault, read
from hosts.base.path import Path, Step, switches_between
from topos.base.errors import require
from topos.base.topology import Topology

Pair = frozenset[int]


@dataclass(frozen=True)
class Failures:
    """Failed nodes (servers and switches), and failed links by the two nodes at their ends.

    A link between two servers is their direct cable or, where they only share a switch, the way
    between them over any switch: other servers on that switch still reach both.
    """

    nodes: frozenset[int] = frozenset()
    links: frozenset[Pair] = frozenset()

    def of_hop(self, topology: Topology, server: int, step: Step) -> tuple[int, ...] | None:
        """Return the node, or the two nodes of the link, that stops this hop; None if none does.

        A link that a partial network does not have is one that has failed (Guo 2008, section 5).
        """
        try:
            passed = [server, *_switches(topology, server, step, self), step.peer]
        except ValueError:
            return server, step.peer
        for node in passed:
            if node in self.nodes:
                return (node,)
        for ends in [*pairwise(passed), (server, step.peer)]:
            if frozenset(ends) in self.links:
                return ends
        return None

    def first_on(self, topology: Topology, path: Path) -> tuple[int, ...] | None:
        """Return what stops a packet on the path, None if nothing does."""
        if path.source in self.nodes:
            return (path.source,)
        for server, step in zip(path.servers, path.steps, strict=False):
            stopped = self.of_hop(topology, server, step)
            if stopped:
                return stopped
        return None


NONE = Failures()


def _switches(topology: Topology, server: int, step: Step, failures: Failures) -> list[int]:
    """Return the switches of a hop, around the failed ones where switches have several ways."""
    try:
        return switches_between(topology, server, step, failures.nodes, failures.links)
    except ValueError:
        return switches_between(topology, server, step)


def parse_failures(topology: Topology, texts: Iterable[str]) -> Failures:
    """Return the failures written as ``kill 0.3``, ``stop s2``, ``rack s2``, ``cut 0.3-4.0``.

    Raises PillarboxError for what is not in the network, and for a moment: these are in effect
    from the beginning.
    """
    nodes: set[int] = set()
    links = set()
    for text in texts:
        fault = read(text)
        require(
            (fault.at_s, fault.until_s) == (0.0, None),
            f"nothing begins or ends here: write {fault.named!r}",
        )
        if len(fault.what) == 2:
            links.add(_link(topology, *fault.what))
        elif fault.kind == "server":
            nodes.add(topology.server(fault.what[0]))
        else:
            switch = topology.servers + topology.switch(fault.what[0])
            nodes |= {switch, *(rack(topology, switch) if fault.kind == "rack" else ())}
    return Failures(frozenset(nodes), frozenset(links))


def rack(topology: Topology, switch: int) -> list[int]:
    """Return the servers that lose their power with a switch: those plugged into it."""
    around = (plug.node for _, plug in topology.neighbours(switch))
    return [node for node in around if node < topology.servers]


def failure_texts(topology: Topology, failures: Failures) -> list[str]:
    """Return failures as `parse_failures` takes them.

    >>> import topos
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
    ends = [topology.node(end) for end in (a, b)]
    around = {plug.node for _, plug in topology.neighbours(ends[0])}
    if ends[0] < topology.servers and ends[1] < topology.servers:
        around.update(p for port in range(topology.ports) for p in topology.peers(ends[0], port))
    require(ends[1] in around, f"there is no link between {a} and {b} in {topology.spec}")
    return frozenset(ends)
