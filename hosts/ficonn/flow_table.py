"""Flow tables of a FiConn server: routing entries of passing flows, and state of its own flows."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pillarbox.hosts.base.actions import Action, Drop, Relayed
from pillarbox.hosts.base.agenda import Agenda
from pillarbox.hosts.base.bandwidth import Bandwidth, Direction
from pillarbox.hosts.base.bounded import Bounded
from pillarbox.hosts.base.path import Step
from pillarbox.hosts.ficonn.link_choice import free_bandwidth
from pillarbox.hosts.ficonn.rules import NOWHERE
from pillarbox.hosts.ficonn.tar import RouteEntry
from pillarbox.hosts.wire.ipv4 import FlowKey
from pillarbox.hosts.wire.relay_keys import ByFlow
from pillarbox.topos.base.topology import Topology
from pillarbox.topos.ficonn import BACKUP, SWITCH

MOST_ENTRIES = 4096
MOST_QUEUED = 1024  # maximum number of queued packets of all flows
MOST_QUEUED_OF_FLOW = 64  # maximum number of queued packets of one flow


class Tag(NamedTuple):
    """Identification of a flow's path probe (probe round), or of the probe's response."""

    round: int
    returning: bool


@dataclass
class FlowEntry:
    """The routing entry of one flow: hops of the path in use, and hops that a newer probe sets up.

    If both exist, the new hops are used only after `settle_s`: until then Source ReRoute may still
    remove them, and servers further along the path may not have an entry for the flow yet.

    >>> old, new = RouteEntry(None, Step(0, 1)), RouteEntry(None, Step(1, 9))
    >>> entry = FlowEntry(settle_s=0.2)
    >>> entry.put(Tag(1, False), old, now=0.0)
    >>> entry.put(Tag(2, False), new, now=5.0)
    >>> [entry.current(lambda step: True, now) == new for now in (5.1, 5.2)]
    [False, True]
    >>> entry.current(lambda step: step != old.next, now=5.1) == new
    True
    """

    settle_s: float
    bytes: int = 0  # bytes of the flow's packets since its last probe
    probed_s: float = 0.0
    _route_entries: list[tuple[Tag, float, RouteEntry]] = field(
        default_factory=list
    )  # oldest first, at most two

    def put(self, tag: Tag, route_entry: RouteEntry, now: float) -> None:
        """Store the previous and next hop that a probe sets up for the flow."""
        others = [one for one in self._route_entries if one[0] != tag]
        if len(others) == 2:
            others = others[1:] if self._is_settled(others[1], now) else others[:1]
        self._route_entries = [*others, (tag, now, route_entry)]
        self.bytes, self.probed_s = 0, now

    def of(self, tag: Tag) -> RouteEntry | None:
        """Return the hops that a probe has set up for the flow, None if it has set up none."""
        return next(
            (route_entry for known, _, route_entry in self._route_entries if known == tag), None
        )

    def current(self, works: Callable[[Step], bool], now: float) -> RouteEntry | None:
        """Return the hops that the flow's packets use, None if no link to a next hop works."""
        usable = [one for one in self._route_entries if works(one[2].next)]
        if len(usable) == 2 and not self._is_settled(usable[1], now):
            return usable[0][2]
        return usable[-1][2] if usable else None

    def forget(self, tag: Tag) -> None:
        """Remove the hops that a probe has set up for the flow."""
        self._route_entries = [one for one in self._route_entries if one[0] != tag]

    def forget_all_but(self, tag: Tag | None) -> None:
        """Remove all hops of the flow except those that the given probe is setting up."""
        self._route_entries = [one for one in self._route_entries if one[0] == tag]

    def forget_next(self, step: Step) -> list[RouteEntry]:
        """Remove all of the flow's hops whose next hop is `step`; return the removed ones."""
        gone = [
            route_entry for _, _, route_entry in self._route_entries if route_entry.next == step
        ]
        self._route_entries = [one for one in self._route_entries if one[2].next != step]
        return gone

    def rate_bps(self, now: float) -> float:
        """Return the data rate of the flow since its last probe, in bit/s."""
        return self.bytes * 8 / (now - self.probed_s) if now > self.probed_s else 0.0

    @property
    def route_entries(self) -> list[tuple[Tag, RouteEntry]]:
        """The flow's hops with the probes that set them up, oldest first."""
        return [(tag, route_entry) for tag, _, route_entry in self._route_entries]

    def _is_settled(self, one: tuple[Tag, float, RouteEntry], now: float) -> bool:
        return now >= one[1] + self.settle_s


class FlowTable(Bounded[FlowKey, FlowEntry]):
    """TAR's routing table of a server: one entry per flow."""

    def __init__(self, settle_s: float, idle_s: float, works: Callable[[Step], bool]) -> None:
        super().__init__(MOST_ENTRIES, idle_s)
        self.settle_s, self.works = settle_s, works

    def of(self, flow: FlowKey, tag: Tag) -> RouteEntry | None:
        """Return the hops that a probe has set up for a flow, None if it has set up none."""
        entry = self.get(flow)
        return entry.of(tag) if entry else None

    def next(self, flow: FlowKey, now: float) -> Step | None:
        """Return the next hop of a flow's packets, None without a usable entry."""
        entry = self.get(flow)
        route_entry = entry.current(self.works, now) if entry else None
        return route_entry.next if route_entry else None

    def set_up(
        self, flow: FlowKey, tag: Tag, route_entry: RouteEntry, now: float, *, alone: bool
    ) -> FlowKey | None:
        """Store the hops that a probe sets up for a flow; return the evicted flow, if any.

        `alone` removes all other hops of the flow.
        """
        entry, gone = self.use(flow, now), None
        if entry is None:
            entry = FlowEntry(self.settle_s)
            gone = self.put(flow, entry, now)
        elif alone:
            entry.forget_all_but(tag)
        entry.put(tag, route_entry, now)
        return gone

    def repeat_key_after_probe(
        self, flow: FlowKey, tag: Tag, step: Step, now: float
    ) -> Relayed | None:
        """Return the cache key of packets that will follow a probe to next hop `step`, else None.

        A source sends a burst when the probe response arrives; a data plane that has the entry in
        advance need not ask about any of these packets.
        """
        route_entry = self.of(flow, tag)
        if (
            route_entry is None
            or route_entry.previous is None
            or not route_entry.next == step == self.next(flow, now)
        ):
            return None
        return Relayed(ByFlow(flow, route_entry.previous.port))

    def remove_probe_hops(self, flow: FlowKey, tag: Tag, now: float) -> None:
        """Remove the hops that a probe has set up for a flow, and the flow's empty entry."""
        entry = self.use(flow, now)
        if entry:
            entry.forget(tag)
            self.tidy(flow)

    def tidy(self, flow: FlowKey) -> None:
        """Remove a flow's entry from the routing table if the entry has no hops left."""
        entry = self.get(flow)
        if entry and not entry.route_entries:
            self.pop(flow)


@dataclass
class SourceFlow:
    """Probing state of a FiConn flow whose source is this server.

    `ready` means that its path is set up, as far as this server knows. Without a path, packets are
    forwarded by TOR, or queued if a failure is known on TOR's path.
    """

    destination: int
    round: int
    ready: bool = False
    # True if the other end sent the flow's first packet: that end's probes set up both directions
    follows: bool = False
    # False if the other end still has to be told that this server sent the first packet
    announced: bool = False
    waiting: bool = False  # True while waiting for a probe response, or for a turn to send a probe
    # True while waiting for a turn, or for the other end's probe: no probe is outstanding
    awaits_turn: bool = False
    probed_s: float = 0.0  # time at which the last probe was sent
    # Earliest time at which a packet forwarded by TOR starts a search.
    probe_from_s: float = -math.inf
    tries: int = 0  # consecutive unanswered probes while the flow has no path
    failed: bool = False  # True if the path in use has failed and no other is known yet
    queue: deque[bytes] = field(default_factory=deque)
    # Unanswered probes of the flow: the hops that each has set up, and its sending time.
    unanswered: dict[Tag, tuple[RouteEntry, float]] = field(default_factory=dict)

    def reset_probing(self) -> None:
        """Reset the flow's probing state at the end of a probe round."""
        self.waiting = self.awaits_turn = False
        self.tries = 0
        self.failed = False
        self.unanswered.clear()

    @property
    def probing(self) -> Tag | None:
        """The outstanding probe of the flow, None if no probe is outstanding."""
        on_its_way = self.waiting and not self.awaits_turn
        return Tag(self.round, returning=False) if on_its_way else None


class Queues:
    """Packets queued until a path for their flow is set up, limited per flow and in total."""

    def __init__(self) -> None:
        self.packets = 0

    def add(self, own: SourceFlow, packet: bytes) -> list[Action]:
        """Queue a packet of a flow, or drop the packet if a queue limit is reached."""
        if len(own.queue) >= MOST_QUEUED_OF_FLOW:
            return [Drop("queue of the flow is full", packet)]
        if self.packets >= MOST_QUEUED:
            return [Drop("queues are full", packet)]
        own.queue.append(packet)
        self.packets += 1
        return []

    def take(self, own: SourceFlow) -> list[bytes]:
        """Remove and return a flow's queued packets."""
        taken = list(own.queue)
        self.packets -= len(taken)
        own.queue.clear()
        return taken

    def drop(self, own: SourceFlow, reason: str, *, unreached: bool = False) -> list[Action]:
        """Drop all queued packets of a flow."""
        return [Drop(reason, packet, unreached) for packet in self.take(own)]


class NextHopChanges:
    """Notifies the data plane when packets of a flow change to another next hop.

    Some flows change immediately, others when a new path has settled; the latter share one timer.
    """

    def __init__(
        self,
        settle_s: float,
        next_of: Callable[[FlowKey, float], Step | None],
        changed: Callable[[FlowKey], None],
        agenda: Agenda,
    ) -> None:
        self.next_of, self.changed, self.agenda = next_of, changed, agenda
        # timer period: slightly longer than settle_s, because of rounding errors
        self.period_s = 1.01 * settle_s
        self._before: Bounded[FlowKey, Step] = Bounded(MOST_ENTRIES, settle_s)

    def note(self, flow: FlowKey, before: Step | None, now: float) -> None:
        """Record that a passing probe changed a flow's next hop, which was `before`."""
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
    """Return the bandwidth available to a flow on the backup link and the level-0 link, in bit/s.

    `own` is the port that the flow uses now, and its rate in bit/s (see `free_bandwidth`).
    """
    backup_bps, switch_bps = (bandwidth.used_bps(port, Direction.OUT) for port in (BACKUP, SWITCH))
    port, rate_bps = own or (NOWHERE, 0.0)
    backup_rate_bps, switch_rate_bps = map(bandwidth.port_rate_bps, (BACKUP, SWITCH))
    return free_bandwidth(
        *(backup_bps, switch_bps, backup_rate_bps, switch_rate_bps),
        *(port, rate_bps, flows, virtual),
    )


def flows_for_display(
    topology: Topology,
    flows: Bounded[FlowKey, SourceFlow],
    route_entries: Bounded[FlowKey, FlowEntry],
) -> dict[str, Any]:
    """Return a server's flows and routing entries as plain data for display."""

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
                "previous": name(route_entry.previous),
                "next": name(route_entry.next),
            }
            for flow, entry in route_entries.items()
            for tag, route_entry in entry.route_entries
        ],
    }
