"""A figure is made once: what is on disk and of the same inputs is not made again.

Inputs are the code that decides about the figure's numbers and its settings. What was stopped goes
on: simulated figures keep each task that is finished (`experiments.analysis.simulator.sweeps`),
live ones each trial.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments.analysis.simulator.sweeps import LIVE, hash_of
from experiments.reporting.reproduced.page import keep, kept
from experiments.reporting.reproduced.result import Reproduction, Settings
from experiments.reproductions.shared.figure import Figure
from experiments.trials.runs.manifest import machine, moment, versions

CODE = (
    *("topos", "hosts", "experiments.analysis", "experiments.traffic.distribution_plan"),
    *("experiments.trials.runs.statistics", "experiments.reproductions.shared"),
)
LIVE_CODE = tuple(
    f"experiments.{floor}" for floor in ("emulation", "linux", "observe", "traffic", "trials")
)
SHOWN = ("processor", "processors", "memory_kib", "kernel", "system")  # of the machine


def inputs_of(figure: Figure, settings: Settings) -> str:
    """Return a hash of all that decides about the figure's numbers."""
    package = figure.make.__module__.rpartition(".")[0]
    if figure.live:
        code = hash_of(*CODE, *LIVE_CODE, package)
    else:
        code = hash_of(*CODE, package, without=LIVE)
    rate_mbit = settings.rate_mbit if figure.live else None
    chosen = (settings.seed, settings.quick, settings.repeats, rate_mbit)
    text = json.dumps([figure.name, chosen, code])
    return hashlib.sha256(text.encode()).hexdigest()


def made(figure: Figure, settings: Settings, folder: Path, *, again: bool = False) -> Reproduction:
    """Make a figure, or take it from the folder, where it is kept."""
    found = kept(folder, figure.name)
    inputs = inputs_of(figure, settings)
    if found and not again and found.made.get("inputs") == inputs:
        return found
    began_s = time.monotonic()
    # Records of an earlier making are no part of one that is made again.
    settings = replace(settings, inputs="" if again else inputs)
    found = figure.reproduce(settings)
    found = replace(found, made=_record(inputs, settings, time.monotonic() - began_s))
    keep(found, folder)
    return found


def _record(inputs: str, settings: Settings, passed_s: float) -> dict[str, Any]:
    """Return of what, when, where and in what time a figure was made."""
    here: Mapping[str, Any] = machine()
    program = versions()
    return {
        "inputs": inputs,
        "at": moment()["wall"],
        "quick": settings.quick,
        "seed": settings.seed,
        # What tasks took counts whenever they were done, and as if one came after the other.
        "seconds": round(sum(settings.tasks_s) or passed_s, 1),
        "machine": {name: here[name] for name in SHOWN},
        "pillarbox": {name: program.get(name) for name in ("version", "commit", "python")},
    }
