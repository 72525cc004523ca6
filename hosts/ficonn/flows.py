"""What a server of FiConn remembers of flows: the ways of those it relays, the state of its own."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hosts.base.actions import Action, Drop, Relayed
from hosts.base.agenda import Agenda
from hosts.base.bandwidth import Bandwidth, Direction
from hosts.base.bounded import Bounded
from hosts.base.path import Step
from hosts.ficonn.tar import Way
from hosts.wire.ipv4 import FlowKey
from hosts.wire.relayed import ByFlow
from topos.base.topology import Topology
from topos.ficonn import BACKUP, SWITCH

MOST_ENTRIES = 4096
MOST_QUEUED = 1024  # packets, of all flows
MOST_QUEUED_OF_FLOW = 64


class Tag(NamedTuple):
    """Which probe set a way up: its round, and whether it was the answer to one."""

    round: int
    returning: bool


@dataclass
class Entry:
    """The routing entry of one flow: the way in use, and the one that a newer probe is setting up.

    A new way is not used at once, unless there is no other: Source ReRoute may still take it back,
    and the servers behind it may not know the flow yet. After `settle_s` it is.

    >>> old, new = Way(None, Step(0, 1)), Way(None, Step(1, 9))
    >>> entry = Entry(settle_s=0.2)
    >>> entry.put(Tag(1, False), old, now=0.0)
    >>> entry.put(Tag(2, False), new, now=5.0)
    >>> [entry.current(lambda step: True, now) == new for now in (5.1, 5.2)]
    [False, True]
    >>> entry.current(lambda step: step != old.next, now=5.1) == new
    True
    """

    settle_s: float
    bytes: int = 0  # of the flow, since the last probe
    probed_s: float = 0.0
    _ways: list[tuple[Tag, float, Way]] = field(default_factory=list)  # oldest first, at most two

    def put(self, tag: Tag, way: Way, now: float) -> None:
        """Note the way that a probe sets up, instead of what it has set up before."""
        others = [one for one in self._ways if one[0] != tag]
        if len(others) == 2:
            others = others[1:] if self._settled(others[1], now) else others[:1]
        self._ways = [*others, (tag, now, way)]
        self.bytes, self.probed_s = 0, now

    def of(self, tag: Tag) -> Way | None:
        """Return the way that a probe has set up."""
        return next((way for known, _, way in self._ways if known == tag), None)

    def current(self, works: Callable[[Step], bool], now: float) -> Way | None:
        """Return the way that packets take."""
        usable = [one for one in self._ways if works(one[2].next)]
        if len(usable) == 2 and not self._settled(usable[1], now):
            return usable[0][2]
        return usable[-1][2] if usable else None

    def forget(self, tag: Tag) -> None:
        """Forget what a probe has set up."""
        self._ways = [one for one in self._ways if one[0] != tag]

    def forget_all_but(self, tag: Tag | None) -> None:
        """Forget every way but the one that a probe is setting up."""
        self._ways = [one for one in self._ways if one[0] == tag]

    def forget_next(self, step: Step) -> list[Way]:
        """Forget every way that leads there; return those."""
        gone = [way for _, _, way in self._ways if way.next == step]
        self._ways = [one for one in self._ways if one[2].next != step]
        return gone

    def rate_bps(self, now: float) -> float:
        """Return how much of the flow came through since the last probe."""
        return self.bytes * 8 / (now - self.probed_s) if now > self.probed_s else 0.0

    @property
    def ways(self) -> list[tuple[Tag, Way]]:
        """Every way, oldest first."""
        return [(tag, way) for tag, _, way in self._ways]

    def _settled(self, one: tuple[Tag, float, Way], now: float) -> bool:
        return now >= one[1] + self.settle_s


class Ways(Bounded[FlowKey, Entry]):
    """The entry of every flow that passes a server."""

    def __init__(self, settle_s: float, idle_s: float, works: Callable[[Step], bool]) -> None:
        super().__init__(MOST_ENTRIES, idle_s)
        self.settle_s, self.works = settle_s, works

    def of(self, flow: FlowKey, tag: Tag) -> Way | None:
        """Return the way that a probe has set up."""
        entry = self.get(flow)
        return entry.of(tag) if entry else None

    def next(self, flow: FlowKey, now: float) -> Step | None:
        """Return where packets of a flow go."""
        entry = self.get(flow)
        way = entry.current(self.works, now) if entry else None
        return way.next if way else None

    def set_up(
        self, flow: FlowKey, tag: Tag, way: Way, now: float, *, alone: bool
    ) -> FlowKey | None:
        """Note the way of a probe, perhaps as the only one; return which flow had to go for it."""
        entry, gone = self.use(flow, now), None
        if entry is None:
            entry = Entry(self.settle_s)
            gone = self.put(flow, entry, now)
        elif alone:
            entry.forget_all_but(tag)
        entry.put(tag, way, now)
        return gone

    def behind(self, flow: FlowKey, tag: Tag, step: Step, now: float) -> Relayed | None:
        """Return which packets follow a probe that goes to `step`, if they do.

        A source lets many go when the answer is in; a data plane that knows of them beforehand has
        to ask about none.
        """
        way = self.of(flow, tag)
        if way is None or way.previous is None or not way.next == step == self.next(flow, now):
            return None
        return Relayed(ByFlow(flow, way.previous.port))

    def take_back(self, flow: FlowKey, tag: Tag, now: float) -> None:
        """Forget what a probe has set up, and the entry with its last way."""
        entry = self.use(flow, now)
        if entry:
            entry.forget(tag)
            self.tidy(flow)

    def tidy(self, flow: FlowKey) -> None:
        """Forget an entry that has no way left."""
        entry = self.get(flow)
        if entry and not entry.ways:
            self.pop(flow)


@dataclass
class Flow:
    """A flow of this server's own.

    `ready` means that its path is set up as far as is known. Without one packets go by TOR, or are
    queued where TOR has a failure.
    """

    destination: int
    round: int
    ready: bool = False
    follows: bool = False  # the other end's packets came first: its probes set up both directions
    announced: bool = False  # the other end knows, or need not know, which end came first
    waiting: bool = False  # for the answer to a probe, or for a turn to send one
    awaits_turn: bool = False  # the latter, or for the other end's probe: none is on its way
    probed_s: float = 0.0  # when the last probe was sent
    probe_from_s: float = -math.inf  # earlier no packet that goes by TOR begins a search
    tries: int = 0  # probes in a row without an answer, while there is no path
    failed: bool = False  # the path in use has failed, and no other is known yet
    queue: deque[bytes] = field(default_factory=deque)
    # Of those probes: the way that each has set up, and when it was sent.
    unanswered: dict[Tag, tuple[Way, float]] = field(default_factory=dict)

    def rest(self) -> None:
        """Wait for nothing."""
        self.waiting = self.awaits_turn = False
        self.tries = 0
        self.failed = False
        self.unanswered.clear()

    @property
    def probing(self) -> Tag | None:
        """The probe that is on its way."""
        on_its_way = self.waiting and not self.awaits_turn
        return Tag(self.round, returning=False) if on_its_way else None


class Queues:
    """The packets that wait for their flows' paths: so many of a flow, so many of all."""

    def __init__(self) -> None:
        self.packets = 0

    def add(self, own: Flow, packet: bytes) -> list[Action]:
        """Let a packet wait, or drop it where too many do."""
        if len(own.queue) >= MOST_QUEUED_OF_FLOW:
            return [Drop("queue of the flow is full", packet)]
        if self.packets >= MOST_QUEUED:
            return [Drop("queues are full", packet)]
        own.queue.append(packet)
        self.packets += 1
        return []

    def take(self, own: Flow) -> list[bytes]:
        """Return what waits for a flow's path, which waits no more."""
        taken = list(own.queue)
        self.packets -= len(taken)
        own.queue.clear()
        return taken

    def drop(self, own: Flow, reason: str) -> list[Action]:
        """Drop what waits for a flow's path."""
        return [Drop(reason, packet) for packet in self.take(own)]


class Moves:
    """Tells the data plane, which repeats answers, when packets of a flow go elsewhere than before.

    Some do at once, others when a new way has settled: there is one timer for all of those.
    """

    def __init__(
        self,
        settle_s: float,
        next_of: Callable[[FlowKey, float], Step | None],
        changed: Callable[[FlowKey], None],
        agenda: Agenda,
    ) -> None:
        self.next_of, self.changed, self.agenda = next_of, changed, agenda
        self.period_s = 1.01 * settle_s  # ways have settled then, however times are rounded
        self._before: Bounded[FlowKey, Step] = Bounded(MOST_ENTRIES, settle_s)

    def note(self, flow: FlowKey, before: Step | None, now: float) -> None:
        """Take note of a probe that passed; its flow's packets went to `before` until then."""
        if before is None:
            return
        if self.next_of(flow, now) != before:
            self.changed(flow)
            return
        self._before.put(flow, before, now)
        if "settle" not in self.agenda:
            self.agenda.set("settle", now + self.period_s, self._settle)

    def _settle(self, now: float) -> list[Action]:
        for flow, before in self._before.expire(now):
            if self.next_of(flow, now) != before:
                self.changed(flow)
        if len(self._before):
            self.agenda.set("settle", now + self.period_s, self._settle)
        return []


def free_bps(
    bandwidth: Bandwidth, own: tuple[int, float] | None, flows: int, virtual: int
) -> tuple[float, float]:
    """Return what a flow finds free on the backup and on the level-0 link, virtual flows taken off.

    Parameters
    ----------
    own : tuple of int and float, optional
        The port that the flow takes now, and its rate.
    flows, virtual : int
        How many flows pass, and how many are virtual ones.
    """
    out = Direction.OUT
    used = {port: bandwidth.used_bps(port, out) for port in (SWITCH, BACKUP)}
    free = {port: bandwidth.available_bps(port, out) for port in used}
    # Departs from the paper: a flow does not compete with itself. It would leave the link it
    # fills at every round, and come back at the next.
    if own:
        port, rate_bps = own
        free[port] += min(rate_bps, used[port])
    volume_bps = sum(used.values()) / max(1, flows)  # of the average flow
    return free[BACKUP], max(0.0, free[SWITCH] - volume_bps * virtual)


def described(
    topology: Topology, flows: Bounded[FlowKey, Flow], ways: Bounded[FlowKey, Entry]
) -> dict[str, Any]:
    """Return the flows and entries of a server as plain data, servers by their addresses."""

    def name(step: Step | None) -> str | None:
        return topology.address(step.peer) if step else None

    return {
        "flows": [
            {
                "flow": tuple(flow),
                "destination": topology.address(own.destination),
                "ready": own.ready,
                "round": own.round,
                "queued": len(own.queue),
            }
            for flow, own in flows.items()
        ],
        "entries": [
            {
                "flow": tuple(flow),
                "round": tag.round,
                "previous": name(way.previous),
                "next": name(way.next),
            }
            for flow, entry in ways.items()
            for tag, way in entry.ways
        ],
    }
