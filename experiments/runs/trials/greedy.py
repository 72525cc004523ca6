"""Short trials of greedy flows, which measure the rate that this machine can emulate.

These trials use the same runner and the same verdict as all others.
"""

from __future__ import annotations

import tempfile
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pillarbox.experiments.models.workloads.workload import Workload
from pillarbox.experiments.runs.plans.experiment import Experiment, System
from pillarbox.experiments.runs.plans.trials import Trial

if TYPE_CHECKING:
    from pillarbox.experiments.runs.trust.verdict import Verdict

# Largest number of servers that send all-to-all; in larger networks a server has one receiver.
MOST_ALL_TO_ALL = 40
DURATION_S = 2.0


class Tried(NamedTuple):
    """Result of a short trial: its verdict and goodput, and the routing and plane it used."""

    verdict: Verdict
    goodput_bps: float
    routing: str = ""
    plane: str = ""
    carried_bits: float = 0.0  # Bits sent over all cables, both directions.


def greedy(system: System, duration_s: float = DURATION_S) -> Workload:
    """Return a greedy workload: all-to-all for up to 40 servers, else a permutation.

    >>> greedy(System("bcube,4,1")).pattern, greedy(System("dcell,4,2")).pattern
    ('all-to-all', 'permutation')
    """
    few = system.topology.servers <= MOST_ALL_TO_ALL
    found = all_to_all(duration_s)
    return found if few else replace(found, pattern="permutation")


def all_to_all(duration_s: float) -> Workload:
    """Return the workload in which every server sends to every other as much as it can."""
    timeout_s = duration_s + 20.0
    return Workload("all-to-all", duration_s=duration_s, tool="generator", timeout_s=timeout_s)


def tried(
    system: System,
    workload: Workload | None = None,
    seed: int = 1,
    alongside: AbstractContextManager[object] | None = None,
    worker: str = "",
) -> Tried:
    """Run one trial in a separate process and sandbox; its workload is `greedy` by default.

    The context `alongside` is active during the trial; `worker` is as in `trial_process.measure`. A
    trial that does not finish is invalid.
    """
    from contextlib import nullcontext

    from pillarbox.experiments.runs.trials.experiment_run import order_of
    from pillarbox.experiments.runs.trials.outcome import outcome
    from pillarbox.experiments.runs.trials.trial_process import TrialDisplay, TrialError, measure
    from pillarbox.experiments.runs.trust.verdict import Verdict

    experiment = Experiment("greedy", "", (system,), workload or greedy(system), seed=seed)
    order = order_of(experiment, Trial(0, system, 0, seed))
    with tempfile.TemporaryDirectory() as scratch, alongside or nullcontext():
        try:
            found = measure(order, TrialDisplay(), Path(scratch) / "log", worker=worker)
        except TrialError as error:
            reason = f"the trial did not finish: {error}"
            return Tried(Verdict(False, (reason,), (), {}), 0.0)
    record = outcome(order, found).record
    verdict = record["verdict"]
    return Tried(
        Verdict(
            verdict["valid"],
            tuple(verdict["reasons"]),
            tuple(verdict["warnings"]),
            verdict["figures"],
        ),
        record["goodput_bps"] or 0.0,  # The record has None if every flow failed.
        found.routing,
        found.plane,
        8.0 * sum(link["sent_bytes"] for link in found.readings.links),
    )
