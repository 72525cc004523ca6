"""Short trials of a TCP congestion control and of Reno: two flows share the port of one server."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pillarbox.experiments.models.workloads.workload import Workload
from pillarbox.experiments.runs.plans.experiment import Experiment, System
from pillarbox.experiments.runs.plans.trials import Trial

if TYPE_CHECKING:
    from pillarbox.experiments.runs.trials.outcome import Row

REFERENCE = "reno"
NETWORK = "tree,3,1"  # three servers on one switch: two send to the third
RATE_MBIT = 20.0
QUEUE = "100 kB"
DURATION_S = 4.0
SETTLED_S = 1.0  # samples before this time are not counted


class ControlResult(NamedTuple):
    """What two flows of a control did at the port that they share."""

    control: str
    goodput_bps: float  # goodput of both flows together
    fairness: float | None  # Jain's index of the two flows' goodput
    round_trip_ms: float | None  # median of the flows' smoothed round-trip times
    retransmits: int
    why: str = ""  # reason why the trial failed or is not valid, "" if it is valid


def control_results(control: str, queue: str = "droptail") -> Iterator[ControlResult]:
    """Yield the results of Reno and of a control; each takes some seconds and needs root."""
    for tcp in dict.fromkeys((REFERENCE, control)):
        system = System(
            NETWORK,
            label=Path(tcp).name.partition(".")[0],
            tcp=tcp,
            rate_mbit=RATE_MBIT,
            mtu=1500,
            queue=queue,
            queue_length=QUEUE,
        )
        yield _result(system)


def _result(system: System) -> ControlResult:
    from pillarbox.experiments.runs.trials.experiment_run import order_of
    from pillarbox.experiments.runs.trials.outcome import outcome
    from pillarbox.experiments.runs.trials.trial_process import TrialDisplay, TrialError, measure

    load = Workload(
        "several-to-one", duration_s=DURATION_S, tool="generator", timeout_s=DURATION_S + 20.0
    )
    order = order_of(Experiment("control", "", (system,), load), Trial(0, system, 0, 1))
    with tempfile.TemporaryDirectory() as scratch:
        try:
            found = outcome(order, measure(order, TrialDisplay(), Path(scratch, "log")))
        except TrialError as error:
            return ControlResult(system.name, 0.0, None, None, 0, str(error))
    verdict, totals = found.record["verdict"], found.record
    flows = found.tables["flows"]
    reasons = [row["reason"] for row in flows if row["reason"]]
    return ControlResult(
        system.name,
        totals["goodput_bps"] or 0.0,
        totals["fairness"],
        _median_ms(found.tables["intervals"]),
        sum(row["retransmits"] or 0 for row in flows),
        "; ".join(dict.fromkeys([*reasons, *([] if verdict["valid"] else verdict["reasons"])])),
    )


def _median_ms(intervals: Sequence[Row]) -> float | None:
    """Return the median round-trip time of the intervals after the first second."""
    import statistics

    times = [
        row["rtt_us"] / 1000
        for row in intervals
        if row["rtt_us"] is not None and row["begin_s"] >= SETTLED_S
    ]
    return statistics.median(times) if times else None
