"""Traffic-aware DPillarMP: each flow on the path with the most bandwidth (Liao 2012, 4.5.2).

The probes of fault-tolerant DPillarMP (multipath.py) bring back the smallest available bandwidth
of the ports on each path, of both directions. Every flow has a path of its own. A new flow is put
on the path with the largest available bandwidth, and moved to it at each probe interval: with a
random part, and at the flow's next packet, so that flows do not move in step. What the flow itself
sends counts as available on its own path; else it would run away from itself. And what a flow is
put on is booked at once (`choices.schedule`): the flows of one source, which all see the same
measurements, spread over the paths instead of all jumping onto the best. Paths within 10 % of the
best count as equal, and then the shortest is taken, and the flow's own before another.

A flow that begins before the first answers takes the shortest path, and is looked at again when
they must be in. One whose path fails is moved at its next packet.

State: beside the destinations, a `Scheduled` for each flow, at most FLOWS of them; one without
packets for `flow_idle_s` is forgotten, and one that had to make room is put on a path anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hosts.base.actions import Action
from hosts.base.bounded import Bounded
from hosts.base.path import Path
from hosts.base.probing import Probing, State
from hosts.dpillar.choices import schedule
from hosts.dpillar.multipath import BothWays, Destination
from hosts.wire.ipv4 import FlowKey

FLOWS = 4096


@dataclass
class Scheduled:
    """One flow: its path's number, and what it sent on it since it was last looked at."""

    path: int | None
    since_s: float
    again_s: float  # when it is looked at again
    sent_bytes: int = 0

    def rate_bps(self, now: float) -> float:
        """Return what the flow sends."""
        return self.sent_bytes * 8 / (now - self.since_s) if now > self.since_s else 0.0


class TrafficAware(BothWays):
    """DPillarMP with a path for each flow by available bandwidth: see the module's text."""

    by_bandwidth = True

    def __init__(self, *network: Any, **options: Any) -> None:
        super().__init__(*network, **options)
        self.flows: Bounded[FlowKey, Scheduled] = Bounded(FLOWS, self.timers.flow_idle_s)

    def paths_failed(self) -> None:
        """Let every flow be looked at again: any of the paths may be its own."""
        self.own_answers_change()

    def path_for(self, packet: bytes, flow: FlowKey, known: Destination, now: float) -> Path | None:
        """Return the flow's path, chosen anew if it is time or the path has failed."""
        probing = known.probing
        held = self.flows.use(flow, now)
        if held is None or now >= held.again_s or not _usable(probing, held.path):
            self.flows.expire(now)
            held = self._scheduled(probing, held, now)
            self.flows.put(flow, held, now)
        held.sent_bytes += len(packet)
        return None if held.path is None else probing.candidates[held.path].path

    def used(self, flow: FlowKey, sent_bytes: int, now: float) -> list[Action]:
        """Count what a flow sends; when it is to be looked at, its next packet has to come here."""
        held = self.flows.use(flow, now)
        if held is not None:
            held.sent_bytes += sent_bytes
            if now >= held.again_s:
                self.flow_answers_change(flow)
        return super().used(flow, sent_bytes, now)

    def _scheduled(self, probing: Probing, held: Scheduled | None, now: float) -> Scheduled:
        timers = self.timers
        using, rate = (None, 0.0) if held is None else (held.path, held.rate_bps(now))
        path = schedule(probing.candidates, using, rate)
        if path is None:
            return Scheduled(probing.current, now, now + timers.probe_timeout_s)
        if using not in (None, path):
            self.counters["flows moved"] += 1
        return Scheduled(path, now, now + timers.next_probe_s(self.random))

    def choose(self, known: Destination) -> None:
        """Choose for flows that begin before there are answers; the others move one by one."""
        known.probing.choose()

    def in_use(self) -> set[tuple[int | None, int | None]]:
        """Return the paths that flows take."""
        return {(self.server_of(flow.destination), held.path) for flow, held in self.flows.items()}

    def state(self) -> dict[str, Any]:
        """Return what a user may want to see: each flow's path besides."""
        flows = [self.flow_state(flow, self._path(flow, held)) for flow, held in self.flows.items()]
        return {**super().state(), "flows": flows}

    def _path(self, flow: FlowKey, held: Scheduled) -> Path | None:
        destination = self.server_of(flow.destination)
        known = None if destination is None else self.destinations.get(destination)
        if known is None or held.path is None:
            return None
        return known.probing.candidates[held.path].path


def _usable(probing: Probing, path: int | None) -> bool:
    return path is not None and probing.candidates[path].state != State.FAILED
