"""Making of figures: a figure on disk with the same inputs is not made again.

Inputs are the code on which the figure's numbers depend, and its settings. An interrupted figure
continues: simulated figures store each finished task
(`pillarbox.experiments.models.simulator.sweeps`), live figures each trial.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy

from pillarbox.experiments.apps.papers.shared.figure import Figure
from pillarbox.experiments.base.source_code import code_digest
from pillarbox.experiments.models.simulator.sweeps import FOUND_BY_NAME, simulation_digest
from pillarbox.experiments.runs.reporting.reproduced.result import Reproduction, Settings
from pillarbox.experiments.runs.trials.manifest import machine, moment, versions

# Code on which results of live figures depend; code that it imports is added.
LIVE_CODE = (
    *FOUND_BY_NAME,
    *(
        f"pillarbox.experiments.{part}"
        for part in (
            *("lab", "runs.plans", "runs.trials", "runs.trust"),
            *("runs.reporting.overlay", "runs.reporting.long_flows"),  # simulations of live trials
        )
    ),
)
# congestion controls, which only some live figures use
CONTROLS = "pillarbox.experiments.lab.controls"
NO_INFLUENCE = (CONTROLS, "pillarbox.experiments.base", "pillarbox.experiments.runs.reporting")
CODE_DIGITS = 10  # length of a digest of code on the page of results
# machine properties recorded with a figure
SHOWN = ("processor", "processors", "memory_kib", "kernel", "system")


def code_of(figure: Figure) -> str:
    """Return a short digest of the code and the data on which the figure's numbers depend."""
    module = figure.make.__module__
    if figure.live:
        from pillarbox.experiments.lab.linux.congestion import shipped  # loads the lab

        uses_controls = any(f': "{name}"' in json.dumps(figure.data) for name in shipped())
        code = code_digest(*LIVE_CODE, module, without=NO_INFLUENCE, imports=True)
        code += code_digest(CONTROLS) if uses_controls else ""
    else:
        code = simulation_digest(module)
    return _digest(figure.name, code, figure.data)[:CODE_DIGITS]


def inputs_of(figure: Figure, settings: Settings) -> str:
    """Return a hash of the code, settings and numpy's version that determine the figure."""
    rate_mbit = settings.rate_mbit if figure.live else None
    chosen = [settings.seed, settings.quick, settings.repeats, rate_mbit]
    if figure.live and settings.own_mbit:
        chosen.append(settings.own_mbit)
    return _digest(code_of(figure), chosen, numpy.__version__)


def _digest(*values: Any) -> str:
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()


def made(figure: Figure, settings: Settings, folder: Path, *, again: bool = False) -> Reproduction:
    """Return a reproduced figure from the folder, or reproduce the figure and store it there."""
    # Imported only here, as it loads matplotlib and pandas: the list of figures needs neither.
    from pillarbox.experiments.runs.reporting.reproduced.page import keep, kept

    found = kept(folder, figure.name)
    inputs = inputs_of(figure, settings)
    if found and not again and found.made.get("inputs") == inputs:
        return found
    began_s = time.monotonic()
    # With `again`, records and results of earlier reproductions are not reused.
    settings = replace(settings, inputs="" if again else inputs)
    found = figure.reproduce(settings)
    record = _making_record(inputs, settings, time.monotonic() - began_s)
    found = replace(found, made={**record, "code": code_of(figure)})
    keep(found, folder)
    return found


def _making_record(inputs: str, settings: Settings, passed_s: float) -> dict[str, Any]:
    """Return the record of a figure's making: inputs, time, duration, machine and version."""
    here: Mapping[str, Any] = machine()
    program = versions()
    return {
        "inputs": inputs,
        "at": moment()["wall"],
        "quick": settings.quick,
        "seed": settings.seed,
        # Sum of the tasks' times, whenever they were computed, as if run one after the other.
        "seconds": round(sum(settings.tasks_s) or passed_s, 1),
        "machine": {name: here[name] for name in SHOWN},
        "pillarbox": {name: program.get(name) for name in ("version", "commit", "python")},
    }
