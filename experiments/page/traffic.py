"""What a lab's workload delivers over time, and what faults did to its flows, from its samples."""

from __future__ import annotations

import re
from collections import deque
from functools import partial
from itertools import pairwise
from typing import Any

from experiments.traffic.flows import Flow, FlowResult, Interval
from experiments.trials.plans.fault_schedule import CUTS
from experiments.trials.runs.recovery import BEFORE_S, HOLD_S, recovery
from experiments.trials.runs.trial_faults import HEALED, KILL, REVIVE, killed_by
from topos.base.topology import Topology

CAUSES = {*CUTS, "switch", "rack", KILL, HEALED, REVIVE}
LOOK_FOR_S = 10.0  # after a fault, for flows that it stopped to go on
# A sample covers some 0.25 s, and what it counts is up to 10 ms older or newer: so much more than
# the ideal may have arrived. Beyond that a path has moved, and the ideal is unknown for a while.
MOST_OF_IDEAL = 1.05
KEPT_S = LOOK_FOR_S + BEFORE_S + HOLD_S

Row = dict[str, Any]
# A moment, the bytes that each flow, or all, had delivered, and those that could have been.
Counted = tuple[float, list[int], float | None]


class WorkloadTraffic:
    """Follows one workload; its moments are of CLOCK_MONOTONIC.

    Parameters
    ----------
    topology : Topology
        The network.
    update : dict
        What the first sample says that knows of it (see `experiments.control.active_workload`).
    """

    def __init__(self, topology: Topology, update: Row) -> None:
        self._topology = topology
        self.began_s = update["began_s"]
        self.about = {name: update[name] for name in ("what", "count", "flows")}
        self._rows: deque[Counted] = deque()
        self._last: Counted | None = None
        self._causes: list[Row] = []
        self._known: set[str] = set()  # of verdicts
        self.ideals: list[int] = []  # of each flow in kbit/s, where they are new
        self.ended = False

    def take(self, update: Row) -> tuple[Row, list[Row]]:
        """Return what a sample adds to the recording's sample, and the events it tells of.

        ``goodput`` in kbit/s; ``flows``: number and kbit/s in turns, of those that got something;
        ``ideal``: the most that the paths in use carry at these shares, if that is known.
        """
        known_s = self._rows[-1][0] if self._rows else 0.0
        self._rows += [tuple(row) for row in update["rows"] if row[0] > known_s]
        self.ideals = [bps // 1000 for bps in update.get("ideal", {}).get("flows_bps", [])]
        events = self._verdicts(update) + self._recovered()
        if update["phase"] == "ended" and not self.ended:
            self.ended = True
            events.append({"kind": "result", "what": [self.about["what"]], "said": update["said"]})
        found = {} if self.ended else self._rates()
        return found, events

    def cause(self, event: Row) -> None:
        """Take in a fault or a repair: the lab's own line of it."""
        if event["kind"] in CAUSES and not self.ended:
            self._causes.append(event)

    def _rates(self) -> Row:
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

    def _verdicts(self, update: Row) -> list[Row]:
        """Return the verdict so far as an event, where it says anything new but figures."""
        verdict = update.get("verdict")
        if not verdict:
            return []
        text = re.sub(r"[\d.]+", "", f"{verdict['valid']} {verdict['reasons']}")
        if self._known == {text}:
            return []
        self._known = {text}
        return [{"kind": "verdict", "what": [], **verdict}]

    def _recovered(self) -> list[Row]:
        """Return when flows that a fault had stopped went on, and were as fast again."""
        if not self._causes or not self.about["flows"] or not self._rows:
            return []
        now_s = self._rows[-1][0]
        results = self._results()
        rows = [
            {"at_s": one["at_s"], "event": one["kind"], "what": " ".join(one["what"]), "reason": ""}
            for one in self._causes
        ]
        events, left = [], []
        found = recovery(rows, results, partial(killed_by, self._topology))
        for cause, row in zip(self._causes, found, strict=True):
            for kind in ("rerouted", "recovered"):
                after_s = row[f"{kind}_s"]
                if after_s is not None and kind not in cause:
                    cause[kind] = after_s
                    fact = {"kind": kind, "what": cause["what"], "flows": row["stopped_flows"]}
                    events.append({"at_s": cause["at_s"] + after_s, **fact})
            if "recovered" not in cause and now_s < cause["at_s"] + LOOK_FOR_S:
                left.append(cause)
        self._causes = left
        return events

    def _results(self) -> list[FlowResult]:
        """Return the flows with what they delivered lately, as `recovery` takes them."""
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
