"""Traffic-aware DPillarMP: each flow uses the path with the most bandwidth (Liao 2012, 4.5.2).

The probes of fault-tolerant DPillarMP (multipath.py) report the smallest available bandwidth of the
ports on each path, in both directions. Every flow has its own path. A new flow is assigned to the
path with the largest available bandwidth, and reassigned at each probe interval: after a random
extra delay, with the flow's next packet, so that flows do not move in step. The flow's own rate
counts as available on its current path; otherwise a flow would avoid its own load. The bandwidth
of an assigned flow is subtracted immediately (`choices.schedule`): the flows of one source, which
all see the same measurements, spread over the paths instead of all moving to the best path. Paths
within 10 % of the best count as equal; of these the shortest is chosen, and of equally short paths
the flow's current path.

A flow that starts before the first probe responses uses the shortest path, and is reassigned when
the responses are due. A flow whose path fails is reassigned with its next packet.

State: the destinations of `multipath`, and one `Scheduled` per flow, at most FLOWS. A flow without
packets for `flow_idle_s` is removed; a flow evicted from the full table is assigned like a new one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pillarbox.hosts.base.actions import Action
from pillarbox.hosts.base.bounded import Bounded
from pillarbox.hosts.base.path import Path
from pillarbox.hosts.base.probing import PathState, Probing
from pillarbox.hosts.dpillar.multipath import BothWays, Destination
from pillarbox.hosts.dpillar.tunnel_choices import schedule
from pillarbox.hosts.wire.ipv4 import FlowKey

FLOWS = 4096  # upper bound for the router's flows with an assigned path


@dataclass
class Scheduled:
    """A flow's path, as a candidate index, and the bytes sent on it since the last assignment."""

    path: int | None
    since_s: float
    again_s: float  # time at which the flow is next assigned a path
    sent_bytes: int = 0

    def rate_bps(self, now: float) -> float:
        """Return the flow's rate since its last assignment."""
        return self.sent_bytes * 8 / (now - self.since_s) if now > self.since_s else 0.0


class TrafficAware(BothWays):
    """DPillarMP router that assigns a path to each flow by available bandwidth."""

    by_bandwidth = True

    def __init__(self, *network: Any, **options: Any) -> None:
        super().__init__(*network, **options)
        self.flows: Bounded[FlowKey, Scheduled] = Bounded(FLOWS, self.timers.flow_idle_s)

    def paths_failed(self) -> None:
        """Invalidate the cached actions for packets from this server: any may use a failed path."""
        self.own_answers_change()

    def path_for(self, packet: bytes, flow: FlowKey, known: Destination, now: float) -> Path | None:
        """Return the flow's path, reassigned if its interval has ended or its path has failed."""
        probing = known.probing
        entry = self.flows.use(flow, now)
        if entry is None or now >= entry.again_s or not _path_works(probing, entry.path):
            self.flows.expire(now)
            entry = self._assign_path(probing, entry, now)
            self.flows.put(flow, entry, now)
        entry.sent_bytes += len(packet)
        return None if entry.path is None else probing.candidates[entry.path].path

    def used(self, flow: FlowKey, sent_bytes: int, now: float) -> list[Action]:
        """Count a flow's bytes; invalidate its cached action when a new path assignment is due."""
        entry = self.flows.use(flow, now)
        if entry is not None:
            entry.sent_bytes += sent_bytes
            if now >= entry.again_s:
                self.flow_answers_change(flow)
        return super().used(flow, sent_bytes, now)

    def _assign_path(self, probing: Probing, entry: Scheduled | None, now: float) -> Scheduled:
        timers = self.timers
        using, rate = (None, 0.0) if entry is None else (entry.path, entry.rate_bps(now))
        path = schedule(probing.candidates, using, rate)
        if path is None:
            return Scheduled(probing.current, now, now + timers.probe_timeout_s)
        if using not in (None, path):
            self.counters["flows moved"] += 1
        return Scheduled(path, now, now + timers.next_probe_s(self.random))

    def choose(self, known: Destination) -> None:
        """Choose a destination's path for new flows; existing flows are reassigned one by one."""
        known.probing.choose()

    def in_use(self) -> set[tuple[int | None, int | None]]:
        """Return the destination and candidate index of each path that a flow uses."""
        return {
            (self.server_of(flow.destination), entry.path) for flow, entry in self.flows.items()
        }

    def state(self) -> dict[str, Any]:
        """Return the router's state with each flow's path."""
        flows = [
            self.flow_state(flow, self._path(flow, entry)) for flow, entry in self.flows.items()
        ]
        return {**super().state(), "flows": flows}

    def _path(self, flow: FlowKey, entry: Scheduled) -> Path | None:
        destination = self.server_of(flow.destination)
        known = None if destination is None else self.destinations.get(destination)
        if known is None or entry.path is None:
            return None
        return known.probing.candidates[entry.path].path


def _path_works(probing: Probing, path: int | None) -> bool:
    return path is not None and probing.candidates[path].state != PathState.FAILED
