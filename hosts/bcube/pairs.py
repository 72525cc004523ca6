"""Flows of a source, and path selection for large flows with the same source and destination.

# Departs from the paper: connections between the same two servers that start together find the same
# path free, and would share that path until one of them probes again. So a large flow that shares
# its path with another one, while a working path has fewer flows of the pair, probes once
# before each of its intervals ends. The available bandwidth of a path is limited to an equal share
# among the pair's flows on it, since byte counters do not show the load of flows that have just
# started or moved.

Only one flow of a pair at a time probes early: otherwise all flows would again find the same path
free. The rules are in `pillarbox.hosts.bcube.rules`.
"""

from __future__ import annotations

from dataclasses import dataclass

from pillarbox.hosts.base.bandwidth import Bandwidth
from pillarbox.hosts.base.bounded import Bounded
from pillarbox.hosts.base.path import Path
from pillarbox.hosts.base.probing import measured
from pillarbox.hosts.bcube.rules import LATELY_S, crowded, equal_share, is_large
from pillarbox.hosts.bcube.selection import Selection
from pillarbox.hosts.wire.ipv4 import FlowKey


@dataclass
class PairFlow:
    """State of a BCube flow from this server: its path selection and probe rounds."""

    selection: Selection
    targets: tuple[int, ...]  # the destination; or the gateways that the flow may use, best first
    since_s: float  # time since which `sent_bytes` is counted
    sent_bytes: int = 0
    round: int = 0  # number of the flow's last probe round, 0 before the first
    probing: bool = False  # True while the last probe round is under way
    # True if the flow has started a probe round before its current probe interval ended
    probed_early: bool = False


class Pairs:
    """The large flows of a server, grouped by pair of source and destination."""

    def __init__(self, flows: Bounded[FlowKey, PairFlow], bandwidth: Bandwidth) -> None:
        self._flows, self._bandwidth = flows, bandwidth
        self._large_s: dict[FlowKey, float] = {}  # time at which each flow last was large

    def is_large(self, key: FlowKey, flow: PairFlow, now: float) -> bool:
        """Return True if a flow uses a large share of a port's rate, and record it as large."""
        rate_bps, seconds = self._rate_bps(flow.selection.path), now - flow.since_s
        if not is_large(flow.sent_bytes * 8, rate_bps, seconds):
            return False
        self._large_s[key] = now
        return True

    def should_probe_early(self, key: FlowKey, flow: PairFlow, now: float) -> bool:
        """Return True if a large flow should start a probe round before its probe interval ends."""
        others = self._pair_flows(key, flow, now)
        if flow.probed_early or any(one.probing for one in (flow, *others)):
            return False
        candidates = flow.selection.candidates
        large_flows = [_flows_on(others, one.path) for one in candidates]
        _, works, _ = measured(candidates)
        return crowded(large_flows, works, _flows_on(others, flow.selection.path))

    def left_bps(
        self, key: FlowKey, flow: PairFlow, path: Path, measured_bps: float, now: float
    ) -> float:
        """Return a path's bandwidth for a flow: as measured, at most an equal share of a port."""
        others = _flows_on(self._pair_flows(key, flow, now), path)
        own_bps = flow.selection.rate_bps if path == flow.selection.path else 0.0
        return min(measured_bps, equal_share(self._rate_bps(path), others, own_bps))

    def _rate_bps(self, path: Path | None) -> float:
        """Return the rate of a path's slowest cable: a step's port number is its level."""
        rates_bps = (
            self._bandwidth.port_rate_bps(step.port) for step in (path.steps if path else ())
        )
        return min(rates_bps, default=self._bandwidth.slowest_bps)

    def _pair_flows(self, key: FlowKey, flow: PairFlow, now: float) -> list[PairFlow]:
        """Return the pair's other flows that were large within LATELY_S."""
        self._large_s = {one: at for one, at in self._large_s.items() if now - at < LATELY_S}
        known = (self._flows.get(one) for one in self._large_s if one != key)
        return [other for other in known if other and other.targets == flow.targets]


def _flows_on(flows: list[PairFlow], path: Path | None) -> int:
    return sum(one.selection.path == path for one in flows)
