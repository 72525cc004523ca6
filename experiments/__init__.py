"""Experiments on the networks, in six districts; each uses only those below it.

=========  =================================================================================
`cli`      the command line
`apps`     live page, papers' figures, teaching, labs over several machines, Python API
`runs`     experiment plans, trials and their records, trust, reports, control of a lab
`lab`      a running network on this computer, and the traffic on it
`models`   workloads as data; bounds, simulations and comparisons without a network that runs
`base`     texts, units, files and processes
=========  =================================================================================

>>> from pillarbox.experiments import load                              # doctest: +SKIP
>>> load("quick-20260301-101500-seed1").flows                           # doctest: +SKIP
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pillarbox.experiments.models.workloads.workload import Workload
    from pillarbox.experiments.runs.plans.experiment import Experiment, FaultAt, FaultRate, System
    from pillarbox.experiments.runs.trials.records import Run
    from pillarbox.experiments.runs.trials.records import load_with_full_names as load

_MODULE_OF_NAME = {
    "Experiment": "pillarbox.experiments.runs.plans.experiment",
    "FaultAt": "pillarbox.experiments.runs.plans.experiment",
    "FaultRate": "pillarbox.experiments.runs.plans.experiment",
    "Run": "pillarbox.experiments.runs.trials.records",
    "System": "pillarbox.experiments.runs.plans.experiment",
    "Workload": "pillarbox.experiments.models.workloads.workload",
    "load": "pillarbox.experiments.runs.trials.records:load_with_full_names",
}

__all__ = ["Experiment", "FaultAt", "FaultRate", "Run", "System", "Workload", "load"]


def __getattr__(name: str) -> Any:
    # Names are imported on demand: most commands do not need pandas.
    if name in _MODULE_OF_NAME:
        module, _, other = _MODULE_OF_NAME[name].partition(":")
        return getattr(importlib.import_module(module), other or name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


if __name__ == "experiments":  # the import name of version 1.0
    from pillarbox import old_names

    old_names.import_for(__name__, __file__)
