"""DPillarMP that probes its paths: fault-tolerant (Liao 2012, section 4.5.1).

For every destination in use, the source keeps the disjoint paths and what is known of each. It
probes them all, at once when the first packet is sent and then at each probe interval; a little
more at random keeps sources from probing in step, and rounds of many destinations keep apart. The
answer goes back over the links by which the probe came (see tunnel.py). A path has failed when

- a relay tells so, because its next hop is or has gone down: it answers a probe or any other
  packet with a path failure, which names the link, or tells those who sent there last;
- its first hop goes down;
- its probe is not answered in time.

A path failure also begins the next round of probes at once: what broke one path may have broken
others, and to ask costs less than a packet on each.

All packets to a destination take the path in use. It is left the moment that it fails, for the
shortest of those that work; at the end of each round the shortest that works is used, so that
traffic returns to a better path that was repaired (`Probing.choose`). Until the first answers are
in, that is the shortest path. Where all that is known is that no answer came, a path goes on being
used: servers may be too busy to answer in time. With no path left, packets are dropped, and
probing goes on. What one destination finds to work again is news for those that have no path: they
are probed at once where it has links of theirs.

State: a `Destination` for each server that this one sends to, at most DESTINATIONS of them; one
without packets for `flow_idle_s` is forgotten, and no longer probed. Two timers for each, and
one for all whose path has failed.

Invariants: a path whose first hop is down is neither probed nor used; the path in use is one that
works, if one is known to work.

A path with a link that relays have reported as failed (`failed_links`) is not used for a new
destination until its probe is answered, unless all paths have such a link. Left out: leaving the
paths of destinations already in use. Each learns from its own probes, or from packets.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

from hosts.base.actions import Action
from hosts.base.bounded import Bounded
from hosts.base.path import Path, Step
from hosts.base.probing import Pace, Probing, State
from hosts.dpillar.choices import Link, links, reserves
from hosts.dpillar.paths import Proxies
from hosts.dpillar.tunnel import Tunnelling
from hosts.wire.ipv4 import FlowKey
from hosts.wire.messages import ProbeResponse
from topos.dpillar import CLOCKWISE, COUNTER_CLOCKWISE

DESTINATIONS = 1024  # at most so many are probed at a time
MOST_PATHS = 256  # a probe's path number has 8 bits
MOST_PATIENCE = 8
MOST_FLOWS = 256  # that one destination remembers


@dataclass
class Destination:
    """What a source knows of its paths to one server; `tunnels` is that of each candidate."""

    probing: Probing
    tunnels: dict[Path, Proxies]
    asked_s: float = -math.inf  # when the last round of probes began
    patience: int = 1  # how many times the usual timeout to wait: servers may be busy
    # Whose packets were sent there since the path in use was chosen: a data plane may repeat that.
    flows: set[FlowKey] = field(default_factory=set)

    @property
    def is_in_doubt(self) -> bool:
        """Whether it was probed, and no path in use is known to work any more."""
        return self.asked_s > -math.inf and not self.probing.works and self.probing.finished


class FaultTolerant(Tunnelling):
    """DPillarMP clockwise, with probes: see the module's text."""

    # Whether paths are told apart by their available bandwidth: section 4.5.1 only asks for one
    # that works.
    by_bandwidth: ClassVar[bool] = False

    def __init__(self, *network: Any, **options: Any) -> None:
        super().__init__(*network, **options)
        self.destinations: Bounded[int, Destination] = Bounded(
            DESTINATIONS, self.timers.flow_idle_s
        )
        self._pace = Pace(self.timers.probe_spacing_s, 0.0, self.random)

    # -- packets ---------------------------------------------------------------------------------

    def tunnel_for(
        self, packet: bytes, flow: FlowKey, destination: int, now: float
    ) -> Proxies | None:
        """Return the tunnel of the path that the packet is to take."""
        known = self.destinations.use(destination, now) or self._begin(destination, now)
        if len(known.flows) >= MOST_FLOWS:
            self._take_back(known)
        known.flows.add(flow)
        path = self.path_for(packet, flow, known, now)
        return None if path is None else known.tunnels[path]

    def path_for(self, packet: bytes, flow: FlowKey, known: Destination, now: float) -> Path | None:
        """Return one of the destination's paths, None if none works: the one in use."""
        return known.probing.current_path

    def _begin(self, destination: int, now: float) -> Destination:
        every = self.tunnels_to(destination)
        some = dict(list(every.items())[:MOST_PATHS])
        known = Destination(Probing(some), some)
        forgotten = self.destinations.put(destination, known, now)
        if forgotten is not None:
            self._forget(forgotten)
        self.failed_links.expire(now)
        reported = set(filter(self.has_failed, some))
        if len(reported) == len(some) and not self.has_reserves:
            reported.clear()  # the reports are all that there is to go by
        self._fail(known, lambda path: path in reported or not self.first_works(some[path]))
        self.agenda.set(("probe", destination), now, partial(self._probe_in_turn, destination))
        return known

    def used(self, flow: FlowKey, sent_bytes: int, now: float) -> list[Action]:
        """Remember that packets go to that destination."""
        destination = self.server_of(flow.destination)
        if destination is not None:
            self.destinations.use(destination, now)
        return []

    def has_sent(self, flow: FlowKey) -> bool:
        """Tell whether packets go to the flow's destination."""
        destination = self.server_of(flow.destination)
        return destination is not None and destination in self.destinations

    # -- rounds of probes ------------------------------------------------------------------------

    def _probe_in_turn(self, destination: int, now: float) -> list[Action]:
        """Begin a round when those of other destinations leave it time."""
        turn = self._pace.turn(now)
        if turn <= now:
            return self._probe(destination, now)
        self.agenda.set(("probe", destination), turn, partial(self._probe, destination))
        return []

    def _probe_now(self, destination: int, now: float) -> list[Action]:
        """Begin a round that cannot wait."""
        self._pace.turn(now, urgent=True)
        return self._probe(destination, now)

    def _probe(self, destination: int, now: float) -> list[Action]:
        for idle, _ in self.destinations.expire(now):
            self._forget(idle)
        known = self.destinations.get(destination)
        if known is None:
            return []
        probing, timers = known.probing, self.timers
        known.asked_s = now
        actions: list[Action] = []
        for index in probing.begin():
            proxies = known.tunnels[probing.candidates[index].path]
            if self.first_works(proxies):
                actions.append(self.probe(destination, proxies, probing.round, index))
            else:
                probing.fail(index)
        self.choose(known)
        give_up = partial(self._give_up, destination)
        again = partial(self._probe_in_turn, destination)
        deadline = now + timers.probe_timeout_s * known.patience
        self.agenda.set(("give up", destination), deadline, give_up)
        self.agenda.set(("probe", destination), now + timers.next_probe_s(self.random), again)
        return actions

    def _search(self, now: float) -> list[Action]:
        """Probe, of the destinations whose path has failed, the one that has waited longest.

        They do not wait for rounds that look for a better path. There may be many of them: one is
        probed at a time, and what it finds is news for the others (`_search_over`).
        """
        due = [
            (self._again_s(known), destination)
            for destination, known in self.destinations.items()
            if known.is_in_doubt
        ]
        if not due:
            return []
        next_s, destination = min(due)
        if next_s > now:
            self.agenda.set("search", next_s, self._search)
            return []
        self.agenda.set("search", now + self.timers.probe_spacing_s, self._search)
        return self._probe(destination, now)

    def _again_s(self, known: Destination) -> float:
        """Return when a destination whose path has failed may be probed again."""
        timers = self.timers
        pause_s = min(timers.unreachable_hold_s, timers.probe_interval_s)
        waits_s = 0.0 if known.probing.finished else timers.probe_timeout_s * known.patience
        return known.asked_s + waits_s + pause_s

    def _search_soon(self, known: Destination) -> None:
        if known.is_in_doubt and "search" not in self.agenda:
            self.agenda.set("search", self._again_s(known), self._search)

    def _give_up(self, destination: int, now: float) -> list[Action]:
        known = self.destinations.get(destination)
        if known is not None:
            lost = known.probing.give_up()
            self.counters["probes lost"] += len(lost)
            known.patience = min(2 * known.patience, MOST_PATIENCE) if lost else 1
            if lost:
                self.paths_failed()
            self.choose(known)
            self._search_soon(known)
        return []

    def _forget(self, destination: int) -> None:
        self.agenda.cancel(("probe", destination))
        self.agenda.cancel(("give up", destination))

    # -- news ------------------------------------------------------------------------------------

    def answered(self, destination: int, answer: ProbeResponse, now: float) -> list[Action]:
        """Note that a path works."""
        known = self.destinations.get(destination)
        available = answer.available_bps if self.by_bandwidth else 0
        searched = known is not None and not known.probing.works
        if known is None or not known.probing.answer(answer.round, answer.path, available):
            return super().answered(destination, answer, now)
        if known.probing.finished or not known.probing.works:
            self.choose(known)
        if searched and known.probing.current_path:
            self._search_over(known.probing.current_path, now)
        return []

    def _search_over(self, found: Path, now: float) -> None:
        """Let those that have no path look at once for one over links that work again."""
        mended = set(links(found))
        for destination, known in self.destinations.items():
            if known.probing.current is None and any(
                not mended.isdisjoint(links(path)) for path in known.tunnels
            ):
                soon = now + self.random.random() * self.timers.search_timeout_s
                self.agenda.set(("probe", destination), soon, partial(self._probe_now, destination))

    def failed(self, destination: int, flow: FlowKey, link: Link, now: float) -> list[Action]:
        """Note that the paths over that link have failed."""
        known = self.destinations.get(destination)
        if known is None:
            return super().failed(destination, flow, link, now)
        self.failed_links.expire(now)
        self._fail(known, lambda path: link in links(path))
        if now >= known.asked_s + self.timers.probe_timeout_s:
            self.agenda.set(("probe", destination), now, partial(self._probe_now, destination))
        return []

    def link_changed(self, step: Step, up: bool, now: float) -> list[Action]:
        """Leave the paths over a first hop that is down; probe those over one that is up again."""
        actions = super().link_changed(step, up, now)
        for destination, known in self.destinations.items():
            first = [path for path in known.tunnels if path.steps[0] == step]
            if first and up:
                # Not all destinations in the same instant.
                soon = now + self.random.random() * self.timers.probe_timeout_s
                self.agenda.set(("probe", destination), soon, partial(self._probe_now, destination))
            elif first:
                self._fail(known, first.__contains__)
        return actions

    def _fail(self, known: Destination, broken: Callable[[Path], bool]) -> None:
        self.paths_failed()
        if known.probing.fail_where(broken) or known.probing.finished:
            self.choose(known)
        self._search_soon(known)

    def paths_failed(self) -> None:
        """Note that paths have failed, which may be in use: those of a destination are in `choose`.

        To forget every answer whenever some probe is late would send all packets through Python.
        """

    def choose(self, known: Destination) -> None:
        """Use the shortest path that works; without any, one of which no report says it has failed.

        Reports age: what failed a while ago, and was not probed since, may work again.
        """
        switched = known.probing.choose()
        if known.probing.current is None and self._reconsider(known):
            switched = known.probing.choose() or switched
        if switched:
            self.counters["paths switched"] += 1
            self._take_back(known)

    def _reconsider(self, known: Destination) -> bool:
        """Take failed paths for untried ones if no report about them holds any more."""
        aged = [
            one
            for one in known.probing.candidates
            if one.state == State.FAILED
            and not one.waiting
            and self.first_works(known.tunnels[one.path])
            and not self.has_failed(one.path)
        ]
        for one in aged:
            one.state = State.UNTRIED
        return bool(aged)

    def _take_back(self, known: Destination) -> None:
        """Tell a data plane that the flows to that destination have to be asked about again."""
        for flow in known.flows:
            self.flow_answers_change(flow)
        known.flows.clear()

    # -- for a user to see -----------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return what a user may want to see: destinations, their paths and which are in use."""
        used = self.in_use()
        return {
            **super().state(),
            "destinations": [
                {
                    "server": self.topology.address(destination),
                    "paths": [
                        {
                            **self.path_state(candidate.path),
                            "state": candidate.state.value,
                            "available_bps": candidate.available_bps,
                            "in use": (destination, index) in used,
                        }
                        for index, candidate in enumerate(known.probing.candidates)
                    ],
                }
                for destination, known in self.destinations.items()
            ],
        }

    def in_use(self) -> set[tuple[int | None, int | None]]:
        """Return the paths that packets take, each by its destination and its number."""
        return {(server, known.probing.current) for server, known in self.destinations.items()}


class CounterClockwise(FaultTolerant):
    """The same, the other way round."""

    directions = (COUNTER_CLOCKWISE,)


class BothWays(FaultTolerant):
    """The same with the paths of both directions: twice as many, from both ports."""

    directions = (CLOCKWISE, COUNTER_CLOCKWISE)


class FarSide(BothWays):
    """The same, with paths in reserve that enter the destination by its far port.

    Departs from the paper: a destination gets them when all of its disjoint paths have failed, and
    uses them only while none of those works (`rules.far_side`). With no fault it is `BothWays`.
    """

    has_reserves = True

    def choose(self, known: Destination) -> None:
        """Use the shortest path that works; without any, add the reserves and use one of them."""
        super().choose(known)
        candidates = known.probing.candidates
        if known.probing.current is not None or any(one.reserve for one in candidates):
            return
        destination = next(iter(known.tunnels)).servers[-1]
        every = reserves(self.topology, self.server, destination, self.directions)
        some = dict(list(every.items())[: MOST_PATHS - len(candidates)])
        known.tunnels.update(some)
        known.probing.add_reserves(some)
        for index, path in enumerate(known.tunnels):
            if path in some and (self.has_failed(path) or not self.first_works(some[path])):
                known.probing.fail(index)
        super().choose(known)
