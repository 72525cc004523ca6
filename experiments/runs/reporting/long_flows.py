"""Goodput of a run's long-lived flows, compared with simulated TCP and with the max-min ideal.

`overlay` compares the completion times of flows that end. Long-lived (greedy) flows do not end, so
the comparison is by goodput: how flows with short and with long paths share the cables. The length
of the queue at the bottleneck is sampled in simulations as it is live.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy
import pandas

from pillarbox.experiments.models.fluid.directed_links import link_count
from pillarbox.experiments.models.packets.simulated_tcp import TcpSimulationResults
from pillarbox.experiments.runs.reporting.overlay import RepeatedTrial, repeated
from pillarbox.experiments.runs.trials.records import Run
from pillarbox.experiments.runs.trials.statistics import jain
from pillarbox.experiments.runs.trust.queues import WARM_UP_S
from pillarbox.topos.base.errors import require

if TYPE_CHECKING:
    Row = dict[str, Any]

ALL = "all"  # value in the path length column for all flows together
KINDS = ("live", "tcp", "ideal")  # goodput columns: measured, simulated TCP, max-min fair
TRIAL_COLUMNS = ("goodput_bps", "fairness", "queue_median_bytes", "queue_p99_bytes")
SAMPLED_EVERY_S = 0.01  # interval of the samples of simulated queues, in seconds
MORE = 2  # ratio of a simulated flow's volume to the largest live volume, so that none completes


def lasts(run: Run) -> bool:
    """Return True if a run's flows have a fixed duration instead of a fixed volume."""
    return not math.isnan(_duration_s(run)) and bool(run.flows["volume_bytes"].isna().all())


def lasting(run: Run) -> pandas.DataFrame:
    """Return a table of each flow's goodput in bit/s: measured live, simulated TCP, max-min fair.

    Raises PillarboxError for a run that a simulation cannot repeat.
    """
    until_s = _duration_s(run)
    parts = [_compared_flows(trial, until_s) for trial in repeated(run)]
    found = pandas.concat(parts, ignore_index=True) if parts else pandas.DataFrame()
    require(len(found) > 0, f"{run.folder} has no completed trial: run the experiment again")
    return found


def _duration_s(run: Run) -> float:
    found = run.plan.workload.duration_s
    return math.nan if found is None else float(found)


def _compared_flows(trial: RepeatedTrial, until_s: float) -> pandas.DataFrame:
    flows, sent = trial.flows, _simulated(trial, until_s)
    return pandas.DataFrame(
        {
            "system": trial.system.name,
            "trial": flows["trial"],
            "valid": flows["valid"],
            "cables": numpy.diff(trial.paths.starts),
            "live": flows["delivered_bytes"] * 8 / until_s,
            "tcp": sent.arrived_bytes * 8 / until_s,
            "ideal": flows["ideal_bps"],
        }
    )


def _simulated(trial: RepeatedTrial, until_s: float, **sampled: Any) -> TcpSimulationResults:
    """Simulate a live trial's long-lived flows by TCP; `sampled` is for `simulate_tcp_flows`."""
    flows = trial.flows
    begin_s = flows["begin_s"].fillna(0.0).to_numpy(numpy.float64)
    # A volume that no simulated flow completes.
    fastest = max(trial.topology.factors.rates, default=1) * max(trial.tcp.subflows, 1)
    cable_bytes = math.ceil(trial.tcp.rate_bps * fastest * until_s / 8)
    most_bytes = min(cable_bytes, MORE * int(flows["delivered_bytes"].max()))
    volume = numpy.full(len(flows), max(most_bytes, 1))
    return trial.simulated(begin_s, volume, until_s=until_s, **sampled)


def simulated_trials(run: Run) -> pandas.DataFrame:
    """Return a table of a run's trials as TCP is simulated, with a trial's number as its index.

    Columns: goodput of all flows, their fairness (Jain's index), and the median and the 99th
    percentile of the queue at the bottleneck, which is the port with the longest median queue.

    Raises PillarboxError for a run that a simulation cannot repeat.
    """
    until_s = _duration_s(run)
    require(lasts(run), f"the flows of {run.folder} have no duration: choose a run with duration_s")
    rows = {}
    for trial in repeated(run):
        links = numpy.arange(link_count(trial.topology))
        moments_s = numpy.arange(WARM_UP_S, until_s, SAMPLED_EVERY_S)
        sent = _simulated(trial, until_s, moments_s=moments_s, sampled=links)
        median, p99 = numpy.quantile(sent.queued_bytes, (0.5, 0.99), axis=0, method="inverted_cdf")
        longest = int(median.argmax())
        goodput_bps = float(sent.arrived_bytes.sum()) * 8 / until_s
        queue_bytes = float(median[longest]), float(p99[longest])
        rows[int(trial.flows["trial"].iloc[0])] = (
            *(goodput_bps, jain(sent.arrived_bytes)),
            *queue_bytes,
        )
    return pandas.DataFrame.from_dict(rows, orient="index", columns=list(TRIAL_COLUMNS))


def length_rows(flows: pandas.DataFrame) -> list[Row]:
    """Return mean goodputs for each system and path length, and for all flows of a system.

    Goodput is the sum over these flows, as a mean of the trials. `off` is the relative deviation of
    simulated TCP from the live goodput.
    """
    return [row for _, own in flows.groupby("system", sort=False) for row in _system_rows(own)]


def _system_rows(flows: pandas.DataFrame) -> Iterator[Row]:
    trials = flows["trial"].nunique()
    for cables, own in [*flows.groupby("cables"), (ALL, flows)]:
        total = {kind: float(own[kind].sum()) / trials for kind in KINDS}
        row = {"system": own["system"].iloc[0], "cables": cables, "flows": len(own) // trials}
        yield row | total | {"off": total["tcp"] / total["live"] - 1 if total["live"] else None}
