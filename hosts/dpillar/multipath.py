"""Fault-tolerant DPillarMP, which probes its paths (Liao 2012, section 4.5.1).

For every destination in use, the source keeps the disjoint paths and the state of each. It probes
all of these paths when the first packet is sent and then at each probe interval. A random part of
the interval keeps sources from probing in step, and rounds for different destinations are spaced.
The probe response returns over the links by which the probe came (see tunnel.py). A path has failed
when

- a relay reports that its next hop is down: it answers a probe or any other packet with a
  path-failure message, which names the link, or notifies the sources that recently used the link;
- the path's first hop goes down;
- the path's probe is not answered in time.

A path-failure message also starts the next probe round immediately: the same fault may have broken
other paths, and probes cost less than packets lost on each of them.

All packets to a destination use its path in use. When that path fails, packets move immediately to
the shortest working path. At the end of each round the shortest working path is chosen, so that
traffic returns to a better path after a repair (`Probing.choose`). Until the first responses
arrive, the shortest path is used. If responses are missing but no failure is known, the path stays
in use: servers may be too busy to answer in time. Without any path, a packet takes one whose failed
links were reported longer ago than `unreachable_hold_s`, since they may work again; else packets
are dropped and probing continues. When a path to one destination works again, other destinations
without a path are probed immediately if they have a path over the same links.

State: a `Destination` per server that this server sends to, at most DESTINATIONS; one without
packets for `flow_idle_s` is removed and no longer probed. Two timers per destination, and one for
all destinations whose path has failed.

Invariants: a path whose first hop is down is neither probed nor used; the path in use works, if any
path is known to work.

A path with a link that relays have reported as failed (`failed_links`) is not used for a new
destination until its probe is answered, unless all paths have such a link. Left out: leaving such
paths for destinations already in use. Each destination learns from its own probes and packets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

from pillarbox.hosts.base.actions import Action
from pillarbox.hosts.base.bounded import Bounded
from pillarbox.hosts.base.path import Path, Step
from pillarbox.hosts.base.probing import Candidate, Pace, PathState, Probing
from pillarbox.hosts.dpillar.paths import Proxies
from pillarbox.hosts.dpillar.tunnel import Tunnelling
from pillarbox.hosts.dpillar.tunnel_choices import Link, far_side_reserves, links, pairing_reserves
from pillarbox.hosts.wire.ipv4 import FlowKey
from pillarbox.hosts.wire.messages import ProbeResponse
from pillarbox.topos.dpillar import CLOCKWISE, COUNTER_CLOCKWISE, DPillar

DESTINATIONS = 1024  # upper bound for destinations whose paths are probed at the same time
MOST_PATHS = 256  # maximum paths per destination: the path number in a probe message has 8 bits
MOST_PATIENCE = 8  # upper bound for the factor on the probe timeout
MOST_FLOWS = 256  # upper bound for flows remembered per destination


@dataclass
class Destination:
    """Probe state of a destination server: its candidate paths, and the tunnel of each path."""

    probing: Probing
    tunnels: dict[Path, Proxies]
    asked_s: float = -math.inf  # start time of the last probe round
    patience: int = 1  # factor on the probe timeout, increased while servers are busy
    # Flows to the destination since its path was chosen; the data plane may cache actions.
    flows: set[FlowKey] = field(default_factory=set)

    @property
    def is_in_doubt(self) -> bool:
        """True if the destination was probed, but its path in use is not known to work."""
        return self.asked_s > -math.inf and not self.probing.works and self.probing.finished


class FaultTolerant(Tunnelling):
    """DPillarMP router that probes the clockwise paths and uses a working one."""

    # True if paths are compared by available bandwidth; section 4.5.1 only requires working paths.
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
        """Return the tunnel of a packet's path."""
        known = self.destinations.use(destination, now) or self._add_destination(destination, now)
        if len(known.flows) >= MOST_FLOWS:
            self.withdraw_flows(known)
        path = self.path_for(packet, flow, known, now)
        if path is None and self._retry(known, lambda one: self.has_just_failed(one.path, now)):
            self.choose(known)
            path = self.path_for(packet, flow, known, now)
        known.flows.add(flow)  # last, since `choose` clears the flows whose path it replaces
        return None if path is None else known.tunnels[path]

    def path_for(self, packet: bytes, flow: FlowKey, known: Destination, now: float) -> Path | None:
        """Return the path in use to a destination, None if no path works."""
        return known.probing.current_path

    def new_probing(self, destination: int, paths: Iterable[Path]) -> Probing:
        """Return the probe rounds over the paths to a new destination."""
        return Probing(paths)

    def _add_destination(self, destination: int, now: float) -> Destination:
        every = self.tunnels_to(destination)
        some = dict(list(every.items())[:MOST_PATHS])
        known = Destination(self.new_probing(destination, some), some)
        forgotten = self.destinations.put(destination, known, now)
        if forgotten is not None:
            self._cancel_timers(forgotten)
        self.failed_links.expire(now)
        reported = set(filter(self.has_failed, some))
        if len(reported) == len(some) and not self.has_reserves:
            reported.clear()  # relays have reported failures on all paths: try all paths again
        self._fail_paths(known, lambda path: path in reported or not self.first_works(some[path]))
        self.agenda.set(("probe", destination), now, partial(self._probe_in_turn, destination))
        return known

    def used(self, flow: FlowKey, sent_bytes: int, now: float) -> list[Action]:
        """Restart the idle timeout of a flow's destination after the data plane sent packets."""
        destination = self.server_of(flow.destination)
        if destination is not None:
            self.destinations.use(destination, now)
        return []

    def is_own_flow(self, flow: FlowKey) -> bool:
        """Return True if this server sends a flow: it probes paths to the flow's destination."""
        destination = self.server_of(flow.destination)
        return destination is not None and destination in self.destinations

    # -- rounds of probes ------------------------------------------------------------------------

    def _probe_in_turn(self, destination: int, now: float) -> list[Action]:
        """Start a probe round for a destination when the probe rate limit allows."""
        turn = self._pace.turn(now)
        if turn <= now:
            return self._probe(destination, now)
        self.agenda.set(("probe", destination), turn, partial(self._probe, destination))
        return []

    def _probe_now(self, destination: int, now: float) -> list[Action]:
        """Start a probe round for a destination immediately, regardless of the probe rate limit."""
        self._pace.turn(now, urgent=True)
        return self._probe(destination, now)

    def _probe(self, destination: int, now: float) -> list[Action]:
        for idle, _ in self.destinations.expire(now):
            self._cancel_timers(idle)
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
        end_round = partial(self._time_out, destination)
        again = partial(self._probe_in_turn, destination)
        deadline = now + timers.probe_timeout_s * known.patience
        self.agenda.set(("give up", destination), deadline, end_round)
        self.agenda.set(("probe", destination), now + timers.next_probe_s(self.random), again)
        return actions

    def _search(self, now: float) -> list[Action]:
        """Probe the destination that has been without a working path for longest.

        Such destinations do not wait for rounds that look for better paths. As there may be many,
        they are probed one at a time. A path to one of them is tried for all (`_probe_repaired`).
        """
        due = [
            (self._next_probe_s(known), destination)
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

    def _next_probe_s(self, known: Destination) -> float:
        """Return the earliest next probe round of a destination without a working path."""
        timers = self.timers
        pause_s = min(timers.unreachable_hold_s, timers.probe_interval_s)
        waits_s = 0.0 if known.probing.finished else timers.probe_timeout_s * known.patience
        return known.asked_s + waits_s + pause_s

    def _search_soon(self, known: Destination) -> None:
        if known.is_in_doubt and "search" not in self.agenda:
            self.agenda.set("search", self._next_probe_s(known), self._search)

    def _time_out(self, destination: int, now: float) -> list[Action]:
        known = self.destinations.get(destination)
        if known is not None:
            lost = known.probing.fail_unanswered()
            self.counters["probes lost"] += len(lost)
            known.patience = min(2 * known.patience, MOST_PATIENCE) if lost else 1
            if lost:
                self.paths_failed()
            self.choose(known)
            self._search_soon(known)
        return []

    def _cancel_timers(self, destination: int) -> None:
        self.agenda.cancel(("probe", destination))
        self.agenda.cancel(("give up", destination))

    # -- link and path state ----------------------------------------------------------------------

    def answered(self, destination: int, answer: ProbeResponse, now: float) -> list[Action]:
        """Process a probe response from a destination: mark the probed path as working."""
        known = self.destinations.get(destination)
        available = answer.available_bps if self.by_bandwidth else 0
        searched = known is not None and not known.probing.works
        if known is None or not known.probing.answer(answer.round, answer.path, available):
            return super().answered(destination, answer, now)
        if known.probing.finished or not known.probing.works:
            self.choose(known)
        if searched and known.probing.current_path:
            self._probe_repaired(known.probing.current_path, now)
        return []

    def _probe_repaired(self, found: Path, now: float) -> None:
        """Schedule probes of destinations without a path that the repaired links may reach."""
        repaired_links = set(links(found))
        for destination, known in self.destinations.items():
            if known.probing.current is None and any(
                not repaired_links.isdisjoint(links(path)) for path in known.tunnels
            ):
                soon = now + self.random.random() * self.timers.search_timeout_s
                self.agenda.set(("probe", destination), soon, partial(self._probe_now, destination))

    def failed(self, destination: int, flow: FlowKey, link: Link, now: float) -> list[Action]:
        """Mark a destination's paths over a failed link as failed, and probe its paths."""
        known = self.destinations.get(destination)
        if known is None:
            return super().failed(destination, flow, link, now)
        self.failed_links.expire(now)
        self._fail_paths(known, lambda path: link in links(path))
        if now >= known.asked_s + self.timers.probe_timeout_s:
            self.agenda.set(("probe", destination), now, partial(self._probe_now, destination))
        return []

    def link_changed(self, step: Step, up: bool, now: float) -> list[Action]:
        """Replace paths in use whose first hop went down; probe paths whose first hop came up."""
        actions = super().link_changed(step, up, now)
        for destination, known in self.destinations.items():
            first = [path for path in known.tunnels if path.steps[0] == step]
            if first and up:
                # Random delays prevent simultaneous probe rounds of all destinations.
                soon = now + self.random.random() * self.timers.probe_timeout_s
                self.agenda.set(("probe", destination), soon, partial(self._probe_now, destination))
            elif first:
                self._fail_paths(known, first.__contains__)
        return actions

    def _fail_paths(self, known: Destination, broken: Callable[[Path], bool]) -> None:
        self.paths_failed()
        if known.probing.fail_where(broken) or known.probing.finished:
            self.choose(known)
        self._search_soon(known)

    def paths_failed(self) -> None:
        """Hook for failed paths; empty here, since `choose` replaces each destination's path.

        Withdrawing every data plane entry whenever a probe is late would send all packets through
        Python.
        """

    def choose(self, known: Destination) -> None:
        """Use the shortest working path to a destination, else an untried one.

        Reports expire: a path that failed some time ago, and was not probed since, may work again.
        """
        switched = known.probing.choose()
        if known.probing.current is None and self._retry(
            known, lambda one: one.waiting or self.has_failed(one.path)
        ):
            switched = known.probing.choose() or switched
        if switched:
            self.counters["paths switched"] += 1
            self.withdraw_flows(known)

    def _retry(self, known: Destination, excluded: Callable[[Candidate], bool]) -> bool:
        """Mark failed paths to a destination as untried unless excluded; return True if any."""
        retried = [
            one
            for one in known.probing.candidates
            if one.state == PathState.FAILED
            and self.first_works(known.tunnels[one.path])
            and not excluded(one)
        ]
        for one in retried:
            one.state = PathState.UNTRIED
        return bool(retried)

    def withdraw_flows(self, known: Destination) -> None:
        """Invalidate the data plane's cached actions for all flows to a destination."""
        for flow in known.flows:
            self.flow_answers_change(flow)
        known.flows.clear()

    # -- state shown to users --------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return the router's state with destinations, their paths and the paths in use."""
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
        """Return (destination, index of the candidate path) of each path in use."""
        return {(server, known.probing.current) for server, known in self.destinations.items()}


class MultipathCounterClockwise(FaultTolerant):
    """DPillarMP router that probes the counter-clockwise paths and uses a working one."""

    directions = (COUNTER_CLOCKWISE,)


class BothWays(FaultTolerant):
    """DPillarMP router for the paths of both directions: twice as many, over both ports."""

    directions = (CLOCKWISE, COUNTER_CLOCKWISE)


class WithReserves(BothWays):
    """DPillarMP router for both directions, with reserve paths.

    A destination gets reserve paths when all of its disjoint paths have failed, and uses them only
    while none of those works. Without faults it is `BothWays`.
    """

    has_reserves = True

    @staticmethod
    def reserve_paths(
        dpillar: DPillar, source: int, destination: int, ports: Iterable[int]
    ) -> dict[Path, Proxies]:
        """Return the reserve paths, shortest first, each with its tunnel."""
        raise NotImplementedError

    def choose(self, known: Destination) -> None:
        """Use the shortest working path to a destination, else one of the reserve paths."""
        super().choose(known)
        candidates = known.probing.candidates
        if known.probing.current is not None or any(one.reserve for one in candidates):
            return
        destination = next(iter(known.tunnels)).servers[-1]
        every = self.reserve_paths(self.topology, self.server, destination, self.directions)
        some = dict(list(every.items())[: MOST_PATHS - len(candidates)])
        known.tunnels.update(some)
        known.probing.add_reserves(some)
        for index, path in enumerate(known.tunnels):
            if path in some and (self.has_failed(path) or not self.first_works(some[path])):
                known.probing.fail(index)
        super().choose(known)


class AnyPairing(WithReserves):
    """DPillarMP router whose reserves are the paths of other pairings of s' and d' (footnote 3)."""

    reserve_paths = staticmethod(pairing_reserves)


class FarSide(WithReserves):
    """DPillarMP router whose reserves are those of other pairings, and to the far port.

    Departs from the paper, whose paths keep their direction up to the destination
    (`rules.far_side`).
    """

    @staticmethod
    def reserve_paths(
        dpillar: DPillar, source: int, destination: int, ports: Iterable[int]
    ) -> dict[Path, Proxies]:
        """Return the paths to the far port, few and first, and those of other pairings."""
        ends = dpillar, source, destination, tuple(ports)
        return far_side_reserves(*ends) | pairing_reserves(*ends)
