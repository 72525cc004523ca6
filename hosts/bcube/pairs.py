"""Flows of a source, and how large ones of the same pair part (the rules are in `rules`).

# Departs from the paper: connections of one pair that begin together find the same path free, and
# would share it until one of them probes again. A large one that has another beside it, where a
# path with fewer of them works, probes once ahead of its turn; and no path offers more than an
# equal share beside those that use it, since counters do not show yet what flows that have just
# begun, or moved, will take.

One of a pair at a time looks ahead: they would all find the same path free again.
"""

from __future__ import annotations

from dataclasses import dataclass

from hosts.base.bandwidth import Bandwidth
from hosts.base.bounded import Bounded
from hosts.base.path import Path
from hosts.base.probing import measured
from hosts.bcube.rules import LATELY_S, crowded, is_large, unshared
from hosts.bcube.selection import Selection
from hosts.wire.ipv4 import FlowKey


@dataclass
class Flow:
    """One flow of this server's own."""

    selection: Selection
    targets: tuple[int, ...]  # its destination; or the gateways that it may use, best first
    since_s: float  # when the count of bytes began
    sent_bytes: int = 0
    round: int = 0  # the number of the last round of probes, 0 for none
    probing: bool = False  # whether it is still under way
    looked_ahead: bool = False  # whether it has probed before its turn, beside others of its pair


class Pairs:
    """Which flows are large, and who is beside whom."""

    def __init__(self, flows: Bounded[FlowKey, Flow], bandwidth: Bandwidth) -> None:
        self._flows, self._bandwidth = flows, bandwidth
        self._large_s: dict[FlowKey, float] = {}  # when flows were last seen to be large

    def is_large(self, key: FlowKey, flow: Flow, now: float) -> bool:
        """Tell whether a flow takes much of a port, and note it."""
        rate_bps, seconds = self._bandwidth.rate_bps, now - flow.since_s
        if not is_large(flow.sent_bytes * 8, rate_bps, seconds):
            return False
        self._large_s[key] = now
        return True

    def looks_ahead(self, key: FlowKey, flow: Flow, now: float) -> bool:
        """Tell whether a large flow is to probe ahead of its turn."""
        others = self._others(key, flow, now)
        if flow.looked_ahead or any(one.probing for one in (flow, *others)):
            return False
        candidates = flow.selection.candidates
        beside = [_using(others, one.path) for one in candidates]
        _, works, _ = measured(candidates)
        return crowded(beside, works, _using(others, flow.selection.path))

    def left_bps(
        self, key: FlowKey, flow: Flow, path: Path, measured_bps: float, now: float
    ) -> float:
        """Return what is free on a path where that much was measured."""
        others = _using(self._others(key, flow, now), path)
        own_bps = flow.selection.rate_bps if path == flow.selection.path else 0.0
        return min(measured_bps, unshared(self._bandwidth.rate_bps, others, own_bps))

    def _others(self, key: FlowKey, flow: Flow, now: float) -> list[Flow]:
        """Return the other large flows to the same destination."""
        self._large_s = {one: at for one, at in self._large_s.items() if now - at < LATELY_S}
        known = (self._flows.get(one) for one in self._large_s if one != key)
        return [other for other in known if other and other.targets == flow.targets]


def _using(flows: list[Flow], path: Path | None) -> int:
    return sum(one.selection.path == path for one in flows)
