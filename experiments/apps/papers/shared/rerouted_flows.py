"""Effects of faults on flows that still had a path: no routing can carry the others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, takewhile
from typing import TYPE_CHECKING, Any

from pillarbox.experiments.lab.emulation.defaults import usual_routing
from pillarbox.experiments.models.workloads.flows import Flow, FlowResult, Interval
from pillarbox.experiments.runs.plans.experiment import System
from pillarbox.experiments.runs.trials.recovery import recovery
from pillarbox.experiments.runs.trials.trial_faults import failures_of_event
from pillarbox.hosts.base.algorithms import route
from pillarbox.hosts.base.failures import Failures
from pillarbox.topos.base.topology import Topology

if TYPE_CHECKING:
    import pandas

    from pillarbox.experiments.runs.trials.records import Run

Row = dict[str, Any]


# Numbers of a fault's effects on flows.
EFFECTS = ("stopped_flows", "pathless_flows", "detected_s", "rerouted_s", "recovered_s")


def faults_with_flow_effects(done: Run, system: System) -> pandas.DataFrame:
    """Return a system's faults with their effects on flows that still had a path.

    A flow has a path if its routing, once it knows all failures, finds one; it counts if it had a
    path during the whole fault. ``pathless_flows`` are those that stopped and had no path.
    """
    import pandas

    flows, intervals = _rows_by_trial(done.flows), _rows_by_trial(done.intervals)
    ends = _FlowPaths(system)
    found = []
    for trial, events in _rows_by_trial(done.events).items():
        results = ends.results(flows.get(trial, []), intervals.get(trial, []))
        happened = [event for event in events if not event["reason"]]
        states = list(zip(happened, _failures_after(ends.network, happened), strict=True))
        for place, (event, broken) in enumerate(states):
            if failures_of_event(ends.network, event):
                lasting = [broken, *_failures_until_repair(event["what"], states[place + 1 :])]
                left = [r for r in results if all(ends.have_path(r.flow, b) for b in lasting)]
                [row] = recovery([event], left, lambda _: ())
                pathless = event["stopped_flows"] - row["stopped_flows"]
                found.append({**row, "pathless_flows": max(0, pathless)})
    return pandas.DataFrame(found, columns=["event", "what", *EFFECTS])


def _failures_until_repair(what: str, later: Iterable[tuple[Row, Failures]]) -> Iterator[Failures]:
    return (broken for _, broken in takewhile(lambda one: one[0]["what"] != what, later))


def _failures_after(network: Topology, events: Sequence[Row]) -> Iterator[Failures]:
    """Yield the set of failed nodes and cables after each fault or repair of a trial."""
    broken: dict[str, Failures] = {}
    for event in events:
        fault = failures_of_event(network, event)
        if fault:
            broken[event["what"]] = fault
        else:
            broken.pop(event["what"], None)
        parts = list(broken.values())
        yield Failures(
            frozenset(chain.from_iterable(one.nodes for one in parts)),
            frozenset(chain.from_iterable(one.links for one in parts)),
        )


class _FlowPaths:
    """Lookup of whether the two ends of a system's flow still have a path."""

    def __init__(self, system: System) -> None:
        self.network = system.topology
        self._routing = system.routing or usual_routing(self.network)
        self._known: dict[tuple[int, int, Failures], bool] = {}

    def have_path(self, flow: Flow, broken: Failures) -> bool:
        key = flow.source, flow.destination, broken
        if key not in self._known:
            found = route(self.network, self._routing, flow.source, flow.destination, broken)
            self._known[key] = bool(found.paths)
        return self._known[key]

    def results(self, flows: Sequence[Row], intervals: Sequence[Row]) -> list[FlowResult]:
        of_flow: dict[int, list[Interval]] = {}
        for row in intervals:
            one = Interval(row["begin_s"], row["end_s"], row["delivered_bytes"])
            of_flow.setdefault(row["flow"], []).append(one)
        server = self.network.server
        return [
            FlowResult(
                Flow(row["flow"], server(row["source"]), server(row["destination"])),
                row["tool"],
                intervals=sorted(of_flow.get(row["flow"], [])),
            )
            for row in flows
        ]


def _rows_by_trial(table: pandas.DataFrame) -> dict[int, list[Row]]:
    """Return a table's rows by trial, in their order."""
    found: dict[int, list[Row]] = {}
    for row in table.astype(object).where(table.notna(), None).to_dict("records"):
        found.setdefault(row["trial"], []).append(row)
    return found
