"""Live and simulated flows: slowdowns of arriving flows, goodput of long flows."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tests.benches._frame import Row

if TYPE_CHECKING:
    from pillarbox.experiments.runs.plans.experiment import Experiment
    from pillarbox.experiments.runs.trials.records import Run

NETWORK, LOADS, TRIALS = "bcube,4,1", (0.3, 0.6), 2
# Percentile of slowdowns, and tolerated difference between live and simulated values.
SHARES = {"median": (0.5, 0.15), "99th": (0.99, 0.30)}
SECONDS, QUICK_S = 30.0, 1.0
# Greedy all-to-all flows: two processors can emulate cables of GREEDY_MBIT Mbit/s.
GREEDY = ("bcube,4,1", "dcell,4,1", "ficonn,4,1", "dpillar,4,2", "tree,4,4")
MTUS, GREEDY_MBIT, GREEDY_S = (1500, 9000), 100.0, 4.0
MOST_APART, GREEDY_TRIALS = 0.03, 4  # tolerated difference of goodput (trials differ by 2 %)
NOTES = f"""
The flows of `run fct` on {NETWORK}, {TRIALS} trials of {SECONDS:.0f} s at each load, live; and the
same flows with the same start times and paths, simulated as fluids, and by TCP, packet by packet
(docs/simulator.md). off: relative difference of TCP's figure from the live one. Goals: the median
within {SHARES["median"][1]:.0%}, the 99th percentile within {SHARES["99th"][1]:.0%}.
Then greedy flows, all-to-all for {GREEDY_S:.0f} s over cables of {GREEDY_MBIT:.0f} Mbit/s,
{GREEDY_TRIALS} trials: their total goodput in Mbit/s, and the max-min fair ideal instead of fluids.
Goal: TCP's goodput within {MOST_APART:.0%} of the live one.
No parameter of the simulation is fitted to a run. The simulation does not include the machine: on a
busy machine live flows are slower.
"""


def run(quick: bool) -> Iterator[Row]:
    """Yield a row for each load and percentile, and one for each network of greedy flows."""
    for load in LOADS[:1] if quick else LOADS:
        if os.geteuid():
            yield {"load": load, "outcome": "skipped: network namespaces need root"}
        else:
            yield from _measured(load, quick)
    for network in GREEDY[:1] if quick else GREEDY:
        for mtu in MTUS[:1] if quick else MTUS:
            about: Row = {"network": network, "mtu": mtu, "load": "greedy", "of": "goodput"}
            if os.geteuid():
                yield about | {"outcome": "skipped: network namespaces need root"}
            else:
                yield about | _greedy(network, mtu, quick)


def _measured(load: float, quick: bool) -> Iterator[Row]:
    from pillarbox.experiments.runs.reporting.overlay import overlaid
    from pillarbox.experiments.runs.trials.experiment_run import run as run_experiment

    about: Row = {"network": NETWORK, "mtu": _fct().systems[0].mtu, "load": load}
    with tempfile.TemporaryDirectory() as folder:
        found = run_experiment(_experiment(load, quick), Path(folder) / "run")
        if failure := _failure(found):
            yield about | {"outcome": failure}
            return
        flows = overlaid(found)
    for name, (share, most) in SHARES.items():
        values: dict[str, float] = {
            kind: float(flows[kind].quantile(share)) for kind in ("live", "fluid", "tcp")
        }
        off = values["tcp"] / values["live"] - 1
        missed = f"missed: {abs(off):.0%} apart, and {most:.0%} is the goal"
        row: Row = about | {"of": name, "flows": len(flows), **values, "off": off}
        # A quick run, perhaps on a busy machine, may deviate from the simulation without failing.
        outcome = "ok" if quick or abs(off) <= most else missed
        yield row | {"valid": _valid(found), "outcome": outcome}


def _experiment(load: float, quick: bool) -> Experiment:
    experiment = _fct()
    workload = replace(experiment.workload, load=load, duration_s=SECONDS)
    if quick:
        # In a short run, only flows of equal size come close to the planned load.
        workload = replace(workload, duration_s=QUICK_S, warm_up_s=0.0, sizes="400000")
    return replace(experiment, workload=workload, repeats=1 if quick else TRIALS)


def _fct() -> Experiment:
    """Return the experiment plan `fct` (flow completion times), with NETWORK only."""
    from pillarbox.experiments.runs.plans.catalogue import FCT

    (system,) = (one for one in FCT.systems if one.network == NETWORK)
    return replace(FCT, systems=(system,))


def _greedy(network: str, mtu: int, quick: bool) -> Row:
    """Return the goodput of greedy flows in valid trials, live and simulated."""
    from pillarbox.experiments.runs.plans.experiment import Experiment, System
    from pillarbox.experiments.runs.reporting.long_flows import lasting, length_rows
    from pillarbox.experiments.runs.trials.experiment_run import run as run_experiment
    from pillarbox.experiments.runs.trials.greedy import all_to_all

    system = System(network, rate_mbit=GREEDY_MBIT, mtu=mtu)
    workload = all_to_all(QUICK_S if quick else GREEDY_S)
    experiment = Experiment(
        "greedy", "", (system,), workload, repeats=1 if quick else GREEDY_TRIALS
    )
    with tempfile.TemporaryDirectory() as folder:
        found = run_experiment(experiment, Path(folder) / "run")
        if failure := _failure(found):
            return {"outcome": failure}
        flows = lasting(found)
    valid = flows[flows["valid"].astype(bool)]
    if not len(valid):
        return {"valid": _valid(found), "outcome": "failed: no trial was valid"}
    *_, both = length_rows(valid)
    kinds = {"live": "live", "fluid": "ideal", "tcp": "tcp"}
    values = {name: both[kind] / 1e6 for name, kind in kinds.items()}
    alike = quick or abs(both["off"]) <= MOST_APART
    missed = f"missed: {both['off']:+.1%}, and {MOST_APART:.0%} is the goal"
    row: Row = {"flows": both["flows"], **values, "off": both["off"], "valid": _valid(found)}
    return row | {"outcome": "ok" if alike else missed}


def _failure(found: Run) -> str:
    """Return the benchmark outcome of a run with an incomplete trial, empty if all completed."""
    reasons = [one["reason"] for one in found.records if one["status"] != "completed"]
    return f"failed: {reasons[0]}" if reasons else ""


def _valid(found: Run) -> str:
    return f"{sum(bool(one['valid']) for one in found.records)} of {len(found.records)}"
