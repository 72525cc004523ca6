"""Goodput of a lab's workload over time, and the recovery of its flows from faults."""

from __future__ import annotations

import re
from collections import deque
from functools import partial
from itertools import pairwise
from typing import Any

from pillarbox.experiments.models.workloads.flows import Flow, FlowResult, Interval
from pillarbox.experiments.runs.trials.recovery import BEFORE_S, HOLD_S, recovery
from pillarbox.experiments.runs.trials.trial_faults import FAULT_EVENTS, HEALED, REVIVE, killed_by
from pillarbox.topos.base.topology import Topology

# Kinds of lab events that may stop flows or let them recover.
CAUSES = {*FAULT_EVENTS, HEALED, REVIVE}
LOOK_FOR_S = 10.0  # time after a fault in which stopped flows may recover, in seconds
# Maximum ratio of goodput to ideal goodput. A sample covers some 0.25 s, and its counters are up to
# 10 ms older or newer. Above this ratio a path has changed, and the ideal is unknown for a while.
MOST_OF_IDEAL = 1.05
KEPT_S = LOOK_FOR_S + BEFORE_S + HOLD_S  # time for which flows' byte counts are stored

Row = dict[str, Any]
# Time of a count, bytes delivered per flow (or in total), and the ideal total (None: unknown).
Counted = tuple[float, list[int], float | None]


class WorkloadTraffic:
    """Goodput and recovery of a live workload's flows; all times are CLOCK_MONOTONIC.

    Parameters
    ----------
    topology : Topology
        The lab's network.
    update : dict
        The workload's part of the first sample (see
        `pillarbox.experiments.runs.control.active_workload`).
    """

    def __init__(self, topology: Topology, update: Row) -> None:
        self._topology = topology
        self.began_s = update["began_s"]
        self.about = {name: update[name] for name in ("what", "count", "flows")}
        self._rows: deque[Counted] = deque()
        self._last: Counted | None = None
        self._possible_causes: list[Row] = []
        self._last_verdict: set[str] = set()  # sentences of the last verdict without numbers
        self.ideals: list[int] = []  # new ideal rates of all flows in kbit/s, empty if unchanged
        self.ended = False

    def add_update(self, update: Row) -> tuple[Row, list[Row]]:
        """Return a workload's goodput for the recording, and its new events.

        ``goodput`` is in kbit/s. ``flows`` is a flat list of flow number and kbit/s, of the flows
        with goodput. ``ideal`` is the maximum goodput of the paths in use at these shares, if it is
        known.
        """
        known_s = self._rows[-1][0] if self._rows else 0.0
        self._rows += [tuple(row) for row in update["rows"] if row[0] > known_s]
        self.ideals = [bps // 1000 for bps in update.get("ideal", {}).get("flows_bps", [])]
        events = self._verdict_events(update) + self._recovery_events()
        if update["phase"] == "ended" and not self.ended:
            self.ended = True
            events.append({"kind": "result", "what": [self.about["what"]], "said": update["said"]})
        found = {} if self.ended else self._goodput_rates()
        return found, events

    def add_cause(self, event: Row) -> None:
        """Register a lab's fault or repair as a possible cause of stopped or recovered flows."""
        if event["kind"] in CAUSES and not self.ended:
            self._possible_causes.append(event)

    def _goodput_rates(self) -> Row:
        if not self._rows:
            return {}
        if self._last is None:
            self._last = self._rows[0]
        (begin_s, before, first), (end_s, after, last) = self._last, self._rows[-1]
        if end_s <= begin_s:
            return {}
        self._last = self._rows[-1]
        ms = (end_s - begin_s) * 1e3
        goodput = round((sum(after) - sum(before)) * 8 / ms)
        ideal = 0
        if first is not None and last is not None:
            ideal = round((last - first) * 8 / ms)
        if goodput > ideal * MOST_OF_IDEAL:
            ideal = 0
        found: Row = {"goodput": goodput}
        if ideal:
            found["ideal"] = max(ideal, goodput)
        if self.about["flows"]:
            rates = enumerate(round((b - a) * 8 / ms) for a, b in zip(before, after, strict=True))
            found["flows"] = [number for pair in rates if pair[1] for number in pair]
        while self._rows[-1][0] - self._rows[0][0] > KEPT_S:
            self._rows.popleft()
        return found

    def _verdict_events(self, update: Row) -> list[Row]:
        """Return the workload's verdict as an event if more than its numbers has changed."""
        verdict = update.get("verdict")
        if not verdict:
            return []
        text = re.sub(r"[\d.]+", "", f"{verdict['valid']} {verdict['reasons']}")
        if self._last_verdict == {text}:
            return []
        self._last_verdict = {text}
        return [{"kind": "verdict", "what": [], **verdict}]

    def _recovery_events(self) -> list[Row]:
        """Return events for stopped flows that were rerouted or have recovered their rate."""
        if not self._possible_causes or not self.about["flows"] or not self._rows:
            return []
        now_s = self._rows[-1][0]
        results = self._flow_results()
        rows = [
            {"at_s": one["at_s"], "event": one["kind"], "what": " ".join(one["what"]), "reason": ""}
            for one in self._possible_causes
        ]
        events, left = [], []
        found = recovery(rows, results, partial(killed_by, self._topology))
        for cause, row in zip(self._possible_causes, found, strict=True):
            for kind in ("rerouted", "recovered"):
                after_s = row[f"{kind}_s"]
                if after_s is not None and kind not in cause:
                    cause[kind] = after_s
                    fact = {"kind": kind, "what": cause["what"], "flows": row["stopped_flows"]}
                    events.append({"at_s": cause["at_s"] + after_s, **fact})
            if "recovered" not in cause and now_s < cause["at_s"] + LOOK_FOR_S:
                left.append(cause)
        self._possible_causes = left
        return events

    def _flow_results(self) -> list[FlowResult]:
        """Return the flows with their latest delivered bytes, in the format of `recovery`."""
        server = self._topology.server
        pairs = [(server(a), server(b)) for a, b in self.about["flows"]]
        results = [
            FlowResult(Flow(number, *pair), "", intervals=[]) for number, pair in enumerate(pairs)
        ]
        rows = list(self._rows)
        for (begin_s, before, _), (end_s, after, _) in pairwise(rows):
            for result, old, new in zip(results, before, after, strict=True):
                result.intervals.append(Interval(begin_s, end_s, new - old))
        return results
