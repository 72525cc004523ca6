"""What a server knows of the links of others: link states, and the shortest ways over them.

Every server of a set of members (a DCell_b; a whole network) floods which of its links work, each
time with a higher sequence number. Kept is, for each member and no other server, the newest of
these. From them follows

- which links work: those that both ends list. Of a link that leaves the set only the inner end is
  heard, so its word is enough. That two servers may share two switches is left to the inner end's
  port; the heart-beats of `neighbours` see to it that a link works both ways or not at all;
- the next hop to each member that can be reached: Dijkstra's algorithm (Guo 2008, section 4.3.2),
  which is a search in breadth where each hop costs one. Of several shortest paths it takes the one
  whose hops, from this server on, come first in an `order` (by default the lowest port, then the
  lowest peer). The rest of that path is what the next server takes by the same rule, so that
  servers who know the same links make no loops.

Sequence numbers go round: of two, the newer is the one that is less than half of all numbers ahead
(RFC 1982). So there is no number, however a server came by it, that its next one does not follow.

At first everything that the topology has counts as working, as if each member had said so when
this server started. What is not refreshed within the timeout counts as down. Who was not heard, or
not for that long, is believed with any sequence number. Every change of a link raises `generation`
and is told (`on_change`): what follows from link states may be cached only while nothing changes.

`hosts.base.flood` lets link states travel. They are not acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import Any, NamedTuple

from hosts.base.path import Step
from topos.base.topology import Topology

SEQUENCES = 2**32


class Heard(Enum):
    """What a link state is to a server that heard it."""

    NEWS = "news"
    REPEATED = "repeated"
    OUTDATED = "outdated"  # a newer one is known
    FOREIGN = "foreign"  # of a server that is no member


class State(NamedTuple):
    """What a member said last."""

    sequence: int | None  # None for what was assumed, not said
    links: frozenset[Step]
    heard_s: float

    def lists(self, peer: int) -> bool:
        """Tell whether any link leads to that server."""
        return any(step.peer == peer for step in self.links)


class LinkStates:
    """The newest link state of every member.

    >>> import topos
    >>> dcell = topos.parse("dcell,4,1")
    >>> states = LinkStates(dcell, server=0, members=range(20), timeout_s=3.5, now=0.0)
    >>> states.next_steps[19]
    Step(port=0, peer=3)
    >>> states.hear(3, 1, [Step(0, peer) for peer in (0, 1, 2)], now=0.1)  # 0.3 has lost 4.0
    <Heard.NEWS: 'news'>
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
        self.topology: Any = topology  # a user knows which network it is
        self.server = server
        self.timeout_s = timeout_s
        self.order = order
        self.on_change = on_change
        self.generation = 0
        self._possible = {member: _links(topology, member) for member in members}
        self._states = {member: State(None, links, now) for member, links in self._possible.items()}
        self._next_steps: dict[int, Step] = {}
        self._computed = -1  # the generation of the next steps

    def resize(self, topology: Topology, members: Iterable[int], now: float) -> None:
        """Take in who the members are in a network of another size; new links count as working."""
        self.topology = topology
        before, self._possible = self._possible, {one: _links(topology, one) for one in members}
        for member, links in self._possible.items():
            known = self._states.get(member, State(None, links, now))
            new = links - before.get(member, frozenset())
            self._states[member] = known._replace(links=known.links & links | new)
        self._states = {member: self._states[member] for member in self._possible}
        self.generation += 1

    def __contains__(self, server: int) -> bool:
        return server in self._states

    def __getitem__(self, member: int) -> State:
        return self._states[member]

    def __iter__(self) -> Iterator[int]:
        return iter(self._states)

    def say(self, sequence: int, links: Iterable[Step], now: float) -> None:
        """Take in what this server itself says of its links."""
        self._set(self.server, State(sequence, frozenset(links), now))

    def hear(self, origin: int, sequence: int, links: Iterable[Step], now: float) -> Heard:
        """Take in what a member says of its links; what the topology does not have is ignored."""
        known = self._states.get(origin)
        if known is None:
            return Heard.FOREIGN
        if sequence == known.sequence:
            return Heard.REPEATED
        if known.sequence is not None and not newer(sequence, known.sequence):
            return Heard.OUTDATED
        self._set(origin, State(sequence, self._possible[origin].intersection(links), now))
        return Heard.NEWS

    def expire(self, now: float) -> None:
        """Count as down whatever was not refreshed in time."""
        for member, state in self._states.items():
            if member != self.server and state.heard_s + self.timeout_s <= now:
                self._set(member, State(None, frozenset(), now))

    @property
    def next_expiry(self) -> float:
        """When `expire` has something to do, at the earliest."""
        heard = (state.heard_s for member, state in self._states.items() if member != self.server)
        return min(heard, default=float("inf")) + self.timeout_s

    def works(self, server: int, step: Step) -> bool:
        """Tell whether a member's link works, as far as is known."""
        state = self._states.get(server)
        if state is None or step not in state.links:
            return False
        far = self._states.get(step.peer)
        return far is None or far.lists(server)

    def down(self) -> Iterator[tuple[int, Step]]:
        """Yield the links that do not work, as far as is known: a member, and its step."""
        for member, links in self._possible.items():
            for step in sorted(links):
                if not self.works(member, step):
                    yield member, step

    def hurt(self) -> list[int]:
        """Return the members that said themselves that not all their links work."""
        return [
            member
            for member, state in self._states.items()
            if state.sequence is not None and state.links != self._possible[member]
        ]

    def steps(self, server: int) -> Iterator[Step]:
        """Yield a member's links to other members that work, in the order of preference."""
        for step in sorted(self._states[server].links, key=self.order):
            if step.peer in self._states and self.works(server, step):
                yield step

    @property
    def next_steps(self) -> dict[int, Step]:
        """The next hop to each other member that can be reached, the nearest member first.

        Of those that are equally near, the one with the lowest uid.
        """
        if self._computed != self.generation:
            self._next_steps = next_steps(self.server, self.steps, self.topology.uid)
            self._computed = self.generation
        return self._next_steps

    def _set(self, member: int, state: State) -> None:
        if state.links != self._states[member].links:
            self.generation += 1
            self.on_change()
        self._states[member] = state


def newer(sequence: int, than: int) -> bool:
    """Tell which of two sequence numbers comes later.

    >>> newer(2, 1), newer(1, 1), newer(0, SEQUENCES - 1), newer(SEQUENCES - 1, 0)
    (True, False, True, False)
    """
    return 0 < (sequence - than) % SEQUENCES < SEQUENCES // 2


def next_steps(
    server: int, steps: Callable[[int], Iterable[Step]], rank: Callable[[int], int] = int
) -> dict[int, Step]:
    """Return the next hop of the shortest path to each server that can be reached, nearest first.

    Parameters
    ----------
    server : int
        Where the paths begin; it is not in the answer.
    steps : callable
        Returns the hops that work from a server. Of several shortest paths the first counts, in
        the order of these hops.
    rank : callable
        Of servers that are equally near, the one with the lowest rank comes first in the answer.
    """
    found: dict[int, Step] = {}
    ranked: list[int] = []
    layer = [server]
    while layer:
        nearer, layer = layer, []
        for at in nearer:
            for step in steps(at):
                if step.peer not in found and step.peer != server:
                    found[step.peer] = found.get(at, step)  # the own first hop has none before it
                    layer.append(step.peer)
        ranked += sorted(layer, key=rank)
    return {peer: found[peer] for peer in ranked}


def _links(topology: Any, server: int) -> frozenset[Step]:
    ports = range(topology.ports)
    return frozenset(Step(port, peer) for port in ports for peer in topology.peers(server, port))
