"""The active workload of a lab: progress of its flows, ideal rates, preliminary verdict.

A lab has one workload at a time, started by `run` at the prompt or from the live page. Samples
of the lab report its progress, and `finish` ends it early.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy

from pillarbox.experiments.base.units import with_prefix
from pillarbox.experiments.models.workloads.flows import EndableTool, Tool
from pillarbox.experiments.runs.control.ideal_so_far import GoodputAndBound
from pillarbox.experiments.runs.trials.recorded_paths import PathSampler, is_sprayed, paths_of
from pillarbox.experiments.runs.trust.verdict import judge
from pillarbox.topos.base.errors import PillarboxError, require

if TYPE_CHECKING:
    from pillarbox.experiments.lab.emulation.lab import Lab
    from pillarbox.experiments.models.fluid.path_bound import PathBound
    from pillarbox.experiments.runs.trials.order import FlowPathsAtTime, TrialOrder
    from pillarbox.experiments.runs.trust.watch import TrialWatch

LOOK_S = 0.1  # sampling interval of delivered bytes in seconds, as in trials
MOST_ROWS = 300  # number of samples of delivered bytes kept for clients that connect late
MOST_FLOWS = 400  # number of flows above which clients get only the sum of all flows
# Time of a workload's first verdict in seconds, and growth of its duration between verdicts: a
# verdict costs the watchers CPU time, and the cost grows with the number of readings.
VERDICT_S, VERDICT_SHARE = 1.5, 0.1

RATE_S = 1.0  # averaging interval of the reported goodput, in seconds
END_S = 0.5  # time limit for a workload's threads to stop, in seconds

# Sample: time, bytes delivered per flow (or in total), bytes the paths could have delivered.
Row = tuple[float, list[int], float | None]

_LAST: WeakKeyDictionary[Lab, ActiveWorkload] = WeakKeyDictionary()
_BEGINNING = threading.Lock()


class ActiveWorkload:
    """A workload that runs in a lab, from before its flows connect until after they end."""

    def __init__(
        self,
        lab: Lab,
        order: TrialOrder,  # flows of the workload, and when and how they are sent
        what: str,  # command line of the workload
    ) -> None:
        self._lab, self._order, self.what = lab, order, what
        self.began_s = time.monotonic()
        self.phase, self._said, self._barrier_s = "connecting", "", 0.0
        self._tool: Tool | None = None
        self._watch: TrialWatch | None = None
        self._sampler: PathSampler | None = None
        self._rows: deque[Row] = deque(maxlen=MOST_ROWS)
        self._ended_flows = 0
        # sample of the flows' paths from which the goodput bound was computed
        self._sampled: FlowPathsAtTime | None = None
        self._bound: PathBound | None = None
        self._possible_bytes = 0.0  # upper bound of the bytes that the flows can have delivered
        has_volume = order.workload.completes
        self._so_far = GoodputAndBound(self._bound_between, has_volume=has_volume)
        self._ideal: dict[str, Any] | None = None
        self._verdict: dict[str, Any] | None = None
        self._over = threading.Event()
        followers = (self._follow, self._update_bound_and_verdict)
        self._threads = [threading.Thread(target=one, daemon=True) for one in followers]
        with _BEGINNING:
            last = _LAST.get(lab)
            require(
                last is None or last.phase == "ended",
                f"{last and last.what} is under way: `finish` ends it",
            )
            _LAST[lab] = self

    def record_progress(
        self, tool: Tool, watch: TrialWatch, sampler: PathSampler, barrier_s: float
    ) -> None:
        """Start to record the traffic generator's progress, from the start barrier on."""
        self._tool, self._watch, self._sampler = tool, watch, sampler
        self._barrier_s = barrier_s
        self.phase = "sending"
        for thread in self._threads:
            thread.start()

    def end(self, said: str) -> None:
        """Stop recording the workload's progress; `said` is the workload's result in one line."""
        self._over.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(END_S)
        self._said, self.phase = said, "ended"

    def finish(self) -> None:
        """End now all flows of the workload that have a duration."""
        tool: object = self._tool
        require(tool is not None, f"`{self.what}` is connecting its flows: try again")
        if self._order.workload.duration_s is None or not isinstance(tool, EndableTool):
            raise PillarboxError(f"`{self.what}` ends automatically: its flows have no duration_s")
        tool.finish()

    # -- following -------------------------------------------------------------------------------

    def _follow(self) -> None:
        """Record periodically the bytes delivered by flows and those that paths allowed."""
        assert self._tool is not None
        at_s, before = self._barrier_s, numpy.zeros(len(self._order.flows))
        while not self._over.wait(LOOK_S):
            progress = self._tool.progress()
            self._ended_flows = sum(one.ended for one in progress)
            now_s, delivered = time.monotonic(), [one.delivered_bytes for one in progress]
            after, active = numpy.array(delivered), numpy.array([not one.ended for one in progress])
            possible = self._possible_bytes_until(
                after - before, active | (after > before), now_s - at_s
            )
            at_s, before = now_s, after
            row = delivered if self._reports_each_flow else [sum(delivered)]
            self._rows.append((now_s, row, possible))
            self._so_far.add_row(now_s - self._barrier_s, after)

    def _possible_bytes_until(
        self, delivered_bytes: Any, active: Any, lasted_s: float
    ) -> float | None:
        """Return the number of bytes that flows could have delivered since the start barrier.

        The result is None if the paths in use are currently unknown.
        """
        bound = self._bound
        if bound is None or lasted_s <= 0:
            return None
        bps = bound.rates_bps(delivered_bytes * 8 / lasted_s, active)
        self._possible_bytes += float(bps.sum()) * lasted_s / 8
        return self._possible_bytes

    def _update_bound_and_verdict(self) -> None:
        """Update the bound whenever the paths in use change, and the preliminary verdict."""
        verdict_s = self._barrier_s + VERDICT_S
        while not self._over.wait(LOOK_S):
            now_s = time.monotonic()
            self._use_latest_paths()
            if now_s >= verdict_s:
                self._update_verdict(now_s)
                verdict_s = now_s + max(VERDICT_S, VERDICT_SHARE * (now_s - self._barrier_s))

    def _use_latest_paths(self) -> None:
        """Use the latest sample of the paths; after a fault there is none until the next sample."""
        assert self._sampler is not None
        samples = list(self._sampler.samples)
        self._so_far.add_samples(samples)
        sample = samples[-1] if samples else None
        settled = sample is not None and sample.failures == self._lab.failures()
        if sample is None or not settled or self._lab.net.shapes.changed:
            if self._bound:
                self._bound = self._sampled = None
                self._ideal = {"at_s": time.monotonic(), "total_bps": 0, "flows_bps": []}
        elif self._sampled is None or sample[1:] != self._sampled[1:]:
            self._sampled = sample
            self._bound = path_bound_between(self._lab, self._order, sample)
            self._ideal = self._fair_rates_now()

    def _bound_between(self, before: FlowPathsAtTime, after: FlowPathsAtTime) -> PathBound | None:
        """Return the upper bound of the rates between two samples; None if it is unknown."""
        if self._lab.net.shapes.changed:
            return None
        return path_bound_between(self._lab, self._order, before, after)

    @property
    def _reports_each_flow(self) -> bool:
        return len(self._order.flows) <= MOST_FLOWS

    def _fair_rates_now(self) -> dict[str, Any]:
        """Return the max-min fair rates of the flows on their paths, 0 bit/s if unknown."""
        flows: list[int] = []
        if self._bound:
            fair = self._bound.rates_bps(numpy.zeros(len(self._order.flows)))
            flows = [round(bps) for bps in fair.tolist()]
        sums = {"at_s": time.monotonic(), "total_bps": sum(flows)}
        return {**sums, "flows_bps": flows if self._reports_each_flow else []}

    def _update_verdict(self, now_s: float) -> None:
        assert self._watch is not None
        with suppress(PillarboxError):  # the watch cannot be read while the workload is ending
            readings = self._watch.so_far()
            if readings is None:
                return
            total = self._so_far.total
            known = total.ideal_bps > 0  # NaN (false) while the paths of all spans are unknown
            compared = (total.ideal_bps, total.achieved_bps) if known else (None, None)
            sprayed = is_sprayed(self._lab.topology, self._lab.routing)
            verdict = judge(readings, *compared, sprayed=sprayed).as_json()
            del verdict["figures"]
            self._verdict = {"at_s": now_s, **verdict}

    # -- reports ---------------------------------------------------------------------------------

    def line(self) -> str:
        """Return the goodput so far of a lab's running flows in one line."""
        now_s, count = time.monotonic(), len(self._order.flows)
        if self.phase != "sending":
            return f"{self.what}: connecting {count} flows, {now_s - self.began_s:.0f} s"
        rows = [row for row in list(self._rows) if row[0] >= now_s - RATE_S]
        rate = ""
        if len(rows) > 1:
            (from_s, before, _), (to_s, after, _) = rows[0], rows[-1]
            bps = (sum(after) - sum(before)) * 8 / (to_s - from_s)
            rate = f", {with_prefix(bps, 'bit/s')}"
        ended = f"{self._ended_flows} of {count} flows have ended"
        return f"{self.what}: {max(0.0, now_s - self._barrier_s):.0f} s{rate}, {ended}"

    def progress_since(self, since_s: float) -> dict[str, Any]:
        """Return the workload's progress and its samples since a time of CLOCK_MONOTONIC.

        ``flows``, the address pairs, is included only if the workload began after that time.
        Each of the ``rows`` has a timestamp, the bytes delivered until then by each flow (by all
        flows together if there are more than `MOST_FLOWS`), and the bytes that the paths in use
        could have carried, None if unknown.
        """
        address = self._lab.topology.address
        found: dict[str, Any] = {
            "began_s": self.began_s,
            "what": self.what,
            "phase": self.phase,
            "said": self._said,
            "rows": [row for row in list(self._rows) if row[0] > since_s],
        }
        if self.began_s > since_s:
            flows = self._order.flows
            pairs = [[address(one.source), address(one.destination)] for one in flows]
            found |= {"count": len(flows), "flows": pairs if self._reports_each_flow else []}
        for name, value in (("ideal", self._ideal), ("verdict", self._verdict)):
            if value and value["at_s"] > since_s:
                found[name] = value
        return found


def path_bound_between(
    lab: Lab, order: TrialOrder, sample: FlowPathsAtTime, later: FlowPathsAtTime | None = None
) -> PathBound | None:
    """Return the upper bound of the flows' rates between two path samples; None if unknown."""
    rate_mbit, workload = lab.settings.rate_mbit, order.workload
    if rate_mbit is None or lab.routing.endswith(".py") or lab.settings.multipath:
        return None  # the bytes of subflows are known at the end only
    if workload.arrivals or order.plan:
        return None  # no bound: the flows of such workloads are not all active simultaneously
    from pillarbox.experiments.models.fluid.path_bound import PathBound

    pairs = [(flow.source, flow.destination) for flow in order.flows]
    before, after = (
        paths_of(lab.topology, lab.routing, pairs, one.paths, one.failures)
        for one in (sample, later or sample)
    )
    rate_bps, mtu = rate_mbit * 1e6, lab.settings.mtu
    return PathBound(lab.topology, lab.routing, before, rate_bps, mtu, after)


def last_workload_progress(lab: Lab, since_s: float) -> dict[str, Any] | None:
    """Return the progress of the flows that ran last in a lab, None if none ran."""
    last = _LAST.get(lab)
    return last.progress_since(since_s) if last else None


def progress_line_of(lab: Lab) -> str:
    """Return the progress of the flows that run in a lab in one line, "" without flows."""
    last = _LAST.get(lab)
    return last.line() if last and last.phase != "ended" else ""


def finish(lab: Lab) -> str:
    """End the flows of the workload that runs in a lab; return its command line."""
    last = _LAST.get(lab)
    require(last is not None and last.phase != "ended", "no `run` is under way")
    assert last is not None
    last.finish()
    return last.what
