"""Flows of a run that last, and the same by TCP simulated: what each gets of the cables.

Where flows end, `overlay` compares when. Greedy flows have no end; of them it is how the cables are
shared that a simulation has to find: by flows with short paths and with long ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy
import pandas

from experiments.analysis.packets.simulated_tcp import packets
from experiments.reporting.overlay import RepeatedTrial, repeated
from experiments.trials.loading import experiment_of
from experiments.trials.runs.records import Run
from topos.base.errors import require

if TYPE_CHECKING:
    Row = dict[str, Any]

ALL = "all"
KINDS = ("live", "tcp", "ideal")
MORE = 2


def lasts(run: Run) -> bool:
    """Tell whether its flows have a duration in place of a volume."""
    return not math.isnan(_duration_s(run)) and bool(run.flows["volume_bytes"].isna().all())


def lasting(run: Run) -> pandas.DataFrame:
    """Return a row for each flow: its goodput in bit/s live, by TCP simulated, and max-min fair.

    Raises PillarboxError for a run that a simulation cannot repeat.
    """
    until_s = _duration_s(run)
    parts = [_trial(trial, until_s) for trial in repeated(run)]
    found = pandas.concat(parts, ignore_index=True) if parts else pandas.DataFrame()
    require(len(found) > 0, f"{run.folder} has no trial that came to its end")
    return found


def _duration_s(run: Run) -> float:
    found = experiment_of(run.manifest["plan"]).workload.duration_s
    return math.nan if found is None else float(found)


def _trial(trial: RepeatedTrial, until_s: float) -> pandas.DataFrame:
    flows = trial.flows
    begin_s = flows["begin_s"].fillna(0.0).to_numpy(numpy.float64)
    # More than any has to deliver: what a cable carries, or twice what any delivered live.
    cable_bytes = math.ceil(trial.tcp.rate_bps * until_s / 8)
    most_bytes = min(cable_bytes, MORE * int(flows["delivered_bytes"].max()))
    volume = numpy.full(len(flows), max(most_bytes, 1))
    paths = trial.paths, trial.back
    sent = packets(
        trial.topology, *paths, begin_s, volume, trial.tcp, seed=trial.seed, until_s=until_s
    )
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


def length_rows(flows: pandas.DataFrame) -> list[Row]:
    """Return a row for each system and length of a path, and one for all its flows together.

    Goodput is that of all these flows, of one trial in the mean; `off` is how far TCP simulated is
    from the live one.
    """
    return [row for _, own in flows.groupby("system", sort=False) for row in _rows(own)]


def _rows(flows: pandas.DataFrame) -> Iterator[Row]:
    trials = flows["trial"].nunique()
    for cables, own in [*flows.groupby("cables"), (ALL, flows)]:
        total = {kind: float(own[kind].sum()) / trials for kind in KINDS}
        row = {"system": own["system"].iloc[0], "cables": cables, "flows": len(own) // trials}
        yield row | total | {"off": total["tcp"] / total["live"] - 1 if total["live"] else None}
