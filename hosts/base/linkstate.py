"""Link-state database of a server, and the shortest paths computed from it.

Every server of a set of members (a DCell_b, or a whole network) floods the list of its working
links, each time with a higher sequence number. The database keeps the newest link state of each
member, and of no other server. The database determines

- the working links: those that both ends list. For a link that leaves the set of members, only the
  inner end's link state is available and is sufficient. If two servers share two switches, the
  inner end's port identifies the link. The heartbeats of `neighbours` ensure that a link is up in
  both directions or down;
- the next hop to each reachable member: Dijkstra's algorithm (Guo 2008, section 4.3.2), which is a
  breadth-first search since each hop costs one. Among several shortest paths it selects the path
  whose hops, from this server on, come first in an `order` (by default the lowest port, then the
  lowest peer). The next server selects the rest of the same path by the same rule, so that servers
  with the same database form no loops.

Sequence numbers wrap around: the newer of two numbers is the one that is less than half of the
number space ahead (RFC 1982). So every sequence number has a newer successor.

At first all links of the topology count as working, as if each member had sent its link state when
this server started. A link state that is not refreshed within the timeout counts as down. From a
member without a valid link state, any sequence number is accepted. Every change of a link
increments `generation` and calls `on_change`: values computed from link states may be cached until
the next change.

`pillarbox.hosts.base.flood` sends link states. They are not acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import Any, NamedTuple

from pillarbox.hosts.base.path import Step
from pillarbox.topos.base.topology import Topology

SEQUENCES = 2**32  # size of the sequence number space of link states


class ReceivedLinkState(Enum):
    """Classification of a received link state."""

    NEWS = "news"
    REPEATED = "repeated"
    OUTDATED = "outdated"  # a newer link state is known
    FOREIGN = "foreign"  # the link state's origin is not in this server's flooding area


class MemberState(NamedTuple):
    """The newest link state of a member (a server in the flooding area)."""

    sequence: int | None  # None for a link state that is assumed, not received
    links: frozenset[Step]
    heard_s: float

    def lists_link_to(self, peer: int) -> bool:
        """Return True if this member's link state lists a link to the server `peer`."""
        return any(step.peer == peer for step in self.links)


class LinkStates:
    """Link-state database: the newest link state of every member.

    >>> from pillarbox import topos
    >>> dcell = topos.parse("dcell,4,1")
    >>> states = LinkStates(dcell, server=0, members=range(20), timeout_s=3.5, now=0.0)
    >>> states.next_steps[19]
    Step(port=0, peer=3)
    >>> states.hear(3, 1, [Step(0, peer) for peer in (0, 1, 2)], now=0.1)  # 0.3 has lost 4.0
    <ReceivedLinkState.NEWS: 'news'>
    >>> states.next_steps[19], states.generation
    (Step(port=0, peer=2), 1)
    """

    def __init__(
        self,
        topology: Topology,
        server: int,
        members: Iterable[int],
        timeout_s: float,
        now: float,
        order: Callable[[Step], Any] = tuple,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self.topology: Any = topology  # type Any, since a caller knows the class of its network
        self.server = server
        self.timeout_s = timeout_s
        self.order = order
        self.on_change = on_change
        self.generation = 0
        self._topology_links = {member: _links_of(topology, member) for member in members}
        self._states = {
            member: MemberState(None, links, now) for member, links in self._topology_links.items()
        }
        self._next_steps: dict[int, Step] = {}
        # generation of the database for which the next hops were computed
        self._computed_generation = -1

    def resize(self, topology: Topology, members: Iterable[int], now: float) -> None:
        """Update the link-state database's members after a resize; new links count as working."""
        self.topology = topology
        before = self._topology_links
        self._topology_links = {member: _links_of(topology, member) for member in members}
        for member, links in self._topology_links.items():
            known = self._states.get(member, MemberState(None, links, now))
            new = links - before.get(member, frozenset())
            self._states[member] = known._replace(links=known.links & links | new)
        self._states = {member: self._states[member] for member in self._topology_links}
        self.generation += 1

    def __contains__(self, server: int) -> bool:
        return server in self._states

    def __getitem__(self, member: int) -> MemberState:
        return self._states[member]

    def __iter__(self) -> Iterator[int]:
        return iter(self._states)

    def say(self, sequence: int, links: Iterable[Step], now: float) -> None:
        """Store this server's own link state in its link-state database."""
        self._store(self.server, MemberState(sequence, frozenset(links), now))

    def hear(
        self, origin: int, sequence: int, links: Iterable[Step], now: float
    ) -> ReceivedLinkState:
        """Store a received link state if it is new; links that the topology lacks are ignored."""
        known = self._states.get(origin)
        if known is None:
            return ReceivedLinkState.FOREIGN
        if sequence == known.sequence:
            return ReceivedLinkState.REPEATED
        if known.sequence is not None and not newer(sequence, known.sequence):
            return ReceivedLinkState.OUTDATED
        self._store(
            origin, MemberState(sequence, self._topology_links[origin].intersection(links), now)
        )
        return ReceivedLinkState.NEWS

    def expire(self, now: float) -> None:
        """Mark all links of servers as down whose link state was not refreshed in time."""
        for member, state in self._states.items():
            if member != self.server and state.heard_s + self.timeout_s <= now:
                self._store(member, MemberState(None, frozenset(), now))

    @property
    def next_expiry(self) -> float:
        """Earliest time at which a link state in the database can expire."""
        heard = (state.heard_s for member, state in self._states.items() if member != self.server)
        return min(heard, default=float("inf")) + self.timeout_s

    def works(self, server: int, step: Step) -> bool:
        """Return True if a server's link is up according to the link-state database."""
        state = self._states.get(server)
        if state is None or step not in state.links:
            return False
        far = self._states.get(step.peer)
        return far is None or far.lists_link_to(server)

    def down(self) -> Iterator[tuple[int, Step]]:
        """Yield the failed links in the link-state database, as (member, step)."""
        for member, links in self._topology_links.items():
            for step in sorted(links):
                if not self.works(member, step):
                    yield member, step

    def members_with_failures(self) -> list[int]:
        """Return the servers whose own link state lists failed links."""
        return [
            member
            for member, state in self._states.items()
            if state.sequence is not None and state.links != self._topology_links[member]
        ]

    def steps(self, server: int) -> Iterator[Step]:
        """Yield a server's working links to servers in its flooding area, most preferred first."""
        for step in sorted(self._states[server].links, key=self.order):
            if step.peer in self._states and self.works(server, step):
                yield step

    @property
    def next_steps(self) -> dict[int, Step]:
        """Next hop to each reachable server of the link-state database, nearest first.

        Members at equal distance are sorted by uid.
        """
        if self._computed_generation != self.generation:
            self._next_steps = next_steps(self.server, self.steps, self.topology.uid)
            self._computed_generation = self.generation
        return self._next_steps

    def _store(self, member: int, state: MemberState) -> None:
        """Store a server's link state; increment `generation` if its links have changed."""
        if state.links != self._states[member].links:
            self.generation += 1
            self.on_change()
        self._states[member] = state


def newer(sequence: int, than: int) -> bool:
    """Return True if a sequence number is newer than another (RFC 1982).

    >>> newer(2, 1), newer(1, 1), newer(0, SEQUENCES - 1), newer(SEQUENCES - 1, 0)
    (True, False, True, False)
    """
    return 0 < (sequence - than) % SEQUENCES < SEQUENCES // 2


def next_steps(
    server: int, steps: Callable[[int], Iterable[Step]], rank: Callable[[int], int] = int
) -> dict[int, Step]:
    """Return the next hop of the shortest path to each reachable server, nearest server first.

    Parameters
    ----------
    server : int
        Source of the paths; not part of the result.
    steps : callable
        Function that returns the working hops of a server. The order of these hops decides
        between equally short paths.
    rank : callable
        Sort key of servers at equal distance, lowest first.
    """
    first_hops: dict[int, Step] = {}
    order: list[int] = []
    layer = [server]
    while layer:
        previous_layer, layer = layer, []
        for node in previous_layer:
            for step in steps(node):
                if step.peer not in first_hops and step.peer != server:
                    # Paths over a neighbour of the source start with the hop to that neighbour.
                    first_hops[step.peer] = first_hops.get(node, step)
                    layer.append(step.peer)
        order += sorted(layer, key=rank)
    return {peer: first_hops[peer] for peer in order}


def _links_of(topology: Topology, server: int) -> frozenset[Step]:
    """Return all links of a server in the topology."""
    ports = range(topology.ports)
    return frozenset(Step(port, peer) for port in ports for peer in topology.peers(server, port))
