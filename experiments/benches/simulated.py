"""Slowdowns of flows that arrive, live and simulated: how far they are apart."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.benches._frame import Row

if TYPE_CHECKING:
    from experiments.trials.plans.experiment import Experiment

NETWORK, LOADS, TRIALS = "bcube,4,1", (0.3, 0.6), 2
SHARES = {"median": (0.5, 0.15), "99th": (0.99, 0.30)}  # and by how much they may differ
SECONDS, QUICK_S = 30.0, 1.0
NOTES = f"""
The flows of `run fct` on {NETWORK}, {TRIALS} trials of {SECONDS:.0f} s at each load, live; and the
same flows at the same moments on the same paths, simulated: as fluids, and by TCP, packet by packet
(docs/simulator.md). off: by how much TCP's figure differs from the live one. Goals: the median
within {SHARES["median"][1]:.0%}, the 99th percentile within {SHARES["99th"][1]:.0%}. Nothing in the
simulation is fitted to a run. What it has not is the machine: on a busy one flows are slower live.
"""


def run(quick: bool) -> Iterator[Row]:
    """Yield a row for each load and percentile."""
    for load in LOADS[:1] if quick else LOADS:
        if os.geteuid():
            yield {"load": load, "outcome": "skipped: network namespaces need root"}
        else:
            yield from _measured(load, quick)


def _measured(load: float, quick: bool) -> Iterator[Row]:
    from experiments.reporting.overlay import overlaid
    from experiments.trials.runs.run import run as run_experiment

    with tempfile.TemporaryDirectory() as folder:
        found = run_experiment(_experiment(load, quick), Path(folder) / "run")
        reasons = [one["reason"] for one in found.records if one["status"] != "completed"]
        if reasons:
            yield {"load": load, "outcome": f"failed: {reasons[0]}"}
            return
        flows = overlaid(found)
    valid = sum(bool(one["valid"]) for one in found.records)
    for name, (share, most) in SHARES.items():
        values: dict[str, float] = {
            kind: float(flows[kind].quantile(share)) for kind in ("live", "fluid", "tcp")
        }
        off = values["tcp"] / values["live"] - 1
        missed = f"missed: {abs(off):.0%} apart, and {most:.0%} is the goal"
        row: dict[str, Any] = {"load": load, "of": name, "flows": len(flows), **values, "off": off}
        # A quick look may be at a machine that is not quiet.
        outcome = "ok" if quick or abs(off) <= most else missed
        yield row | {"valid": f"{valid} of {len(found.records)}", "outcome": outcome}


def _experiment(load: float, quick: bool) -> Experiment:
    from experiments.trials.catalogue import FCT

    (system,) = (one for one in FCT.systems if one.network == NETWORK)
    workload = replace(FCT.workload, load=load, duration_s=SECONDS)
    if quick:
        # So short that only flows of one size come near the load.
        workload = replace(workload, duration_s=QUICK_S, warm_up_s=0.0, sizes="400000")
    return replace(FCT, systems=(system,), workload=workload, repeats=1 if quick else TRIALS)
