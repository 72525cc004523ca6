"""Experiments on the networks, their records, and the command line.

>>> from experiments import load                                         # doctest: +SKIP
>>> load("quick-20260301-101500-seed1").flows                           # doctest: +SKIP
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from experiments.traffic.workload import Workload
    from experiments.trials.plans.experiment import Experiment, FaultAt, FaultRate, System
    from experiments.trials.runs.records import Run
    from experiments.trials.runs.records import load_with_full_names as load

_MODULE_OF_NAME = {
    "Experiment": "experiments.trials.plans.experiment",
    "FaultAt": "experiments.trials.plans.experiment",
    "FaultRate": "experiments.trials.plans.experiment",
    "Run": "experiments.trials.runs.records",
    "System": "experiments.trials.plans.experiment",
    "Workload": "experiments.traffic.workload",
    "load": "experiments.trials.runs.records:load_with_full_names",
}

__all__ = ["Experiment", "FaultAt", "FaultRate", "Run", "System", "Workload", "load"]


def __getattr__(name: str) -> Any:
    # Names are imported on demand: most commands do not need pandas.
    if name in _MODULE_OF_NAME:
        module, _, other = _MODULE_OF_NAME[name].partition(":")
        return getattr(importlib.import_module(module), other or name)
    raise AttributeError(f"module 'experiments' has no attribute {name!r}")
