"""Loading of experiments: by name from the catalogue, or from a user's file.

FILE.py defines EXPERIMENT. FILE.toml has the fields of
`pillarbox.experiments.runs.plans.experiment` as its keys; docs/experiments.md shows both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pillarbox.experiments.base.files import toml_in
from pillarbox.experiments.models.workloads.training.training_workload import (
    ITERATION_OPTIONS,
    job_names,
)
from pillarbox.experiments.models.workloads.workload import POISSON, TRAINING, check_load
from pillarbox.experiments.runs.plans.catalogue import EXPERIMENTS
from pillarbox.experiments.runs.plans.experiment import Experiment, System
from pillarbox.experiments.runs.plans.experiment_checks import check_experiment
from pillarbox.experiments.runs.plans.lines import line_of
from pillarbox.experiments.runs.plans.overrides import overridden
from pillarbox.experiments.runs.plans.values import made, plain
from pillarbox.hosts.base.load import module_from
from pillarbox.topos.base.errors import (
    InvalidValueError,
    NotPermittedError,
    PillarboxError,
    meant,
    require,
)
from pillarbox.topos.base.levels import network_with_rates

# Value of rate_mbit that stands for the highest rate that this machine emulates faithfully.
CALIBRATED = "calibrated"
# Keys of an experiment that are lists, with an example: every system runs with each of the values.
REPEATED = {"tcp": '["cubic", "dctcp"]', "transport": '["tcp", "mptcp"]'}


def names() -> list[str]:
    """Return the names of the catalogue's experiments."""
    return sorted(EXPERIMENTS)


def load(
    text: str,
    changes: Sequence[str] = (),
    calibrated_mbit: Callable[[System], float] | None = None,
    loads: Sequence[float] = (),
) -> Experiment:
    """Return an experiment by its name in the catalogue, or from FILE.py or FILE.toml.

    Parameters
    ----------
    text : str
        Name of the experiment or path of its file.
    changes : sequence of str
        Overrides, such as ``systems.0.routing=bsr`` (see `overrides`).
    calibrated_mbit : callable
        Function that returns the calibrated rate of a system whose rate is ``calibrated``. All such
        systems of an experiment get the same rate: the lowest of theirs.
    loads : sequence of float
        Offered loads of arriving flows. With several loads, every system is run under each.
    """
    try:
        return _checked_experiment(text, changes, calibrated_mbit, loads)
    except InvalidValueError as error:
        raise _located(error, text, changes) from None


def _checked_experiment(
    text: str,
    changes: Sequence[str],
    calibrated_mbit: Callable[[System], float] | None,
    loads: Sequence[float],
) -> Experiment:
    values = overridden(_values(text), changes)
    systems = values.get("systems")
    if changes and isinstance(
        systems, list
    ):  # --set can make compared systems equal: drop duplicates.
        values["systems"] = [one for at, one in enumerate(systems) if one not in systems[:at]]
    experiment = under_loads(experiment_of(values, calibrated_mbit), loads)
    experiment = with_jobs_alone(experiment)
    check_experiment(experiment)
    return experiment


def _located(error: InvalidValueError, text: str, changes: Sequence[str]) -> PillarboxError:
    """Return the error of an experiment's wrong value, with the TOML file, line and key, if any."""
    last = error.key.rpartition(".")[2]
    changed = any(change.partition("=")[0].strip().rpartition(".")[2] == last for change in changes)
    if changed or not text.endswith(".toml"):
        return error
    line = line_of(Path(text).read_text(encoding="utf-8"), error.key)
    where = f"{text}, line {line}" if line else text
    key = f" ({error.key})" if error.key else ""
    return PillarboxError(f"{where}{key}: {error}")


def under_loads(experiment: Experiment, loads: Sequence[float]) -> Experiment:
    """Return an experiment with other offered loads: each system is repeated for each load."""
    require(
        not loads or experiment.workload.arrivals == POISSON,
        f"{experiment.name} has no arriving flows that a load could apply to: choose fct, or set "
        f"arrivals = {POISSON}",
    )
    for load in loads:
        check_load(load)
    if len(loads) == 1:
        systems = tuple(replace(one, at_load=None) for one in experiment.systems)
        workload = replace(experiment.workload, load=loads[0])
        return replace(experiment, systems=systems, workload=workload)
    systems = tuple(
        replace(one, at_load=load, label=one.label and f"{one.label} at {load:g}")
        for one in experiment.systems
        for load in loads
    )
    return replace(experiment, systems=systems or experiment.systems)


def with_jobs_alone(experiment: Experiment) -> Experiment:
    """Return an experiment of several jobs with a system for each job alone, after that of all.

    Systems remain as they are if some of them name a job.
    """
    options = experiment.workload.options
    names = job_names(options) if experiment.workload.pattern == TRAINING else []
    for one in experiment.systems:
        require(
            one.job in ("", *names),
            f"a system of {experiment.name} has the unknown job {one.job!r}: "
            f"{meant(one.job, names) if names else 'the workload has no jobs'}",
        )
    if len(names) < 2 or any(one.job for one in experiment.systems):
        return experiment
    systems = tuple(replace(one, job=name) for one in experiment.systems for name in ("", *names))
    return replace(experiment, systems=systems)


def with_iteration_options(experiment: Experiment, options: Mapping[str, Any]) -> Experiment:
    """Return an experiment with other options of its training iteration.

    A trace or jobs replace the model of the plan.
    """
    if not options:
        return experiment
    workload = experiment.workload
    first = next(iter(options)).replace("_", "-").replace("jobs", "job")
    require(
        workload.pattern == TRAINING,
        f"--{first} describes a training iteration, and the "
        f"traffic of {experiment.name} is {workload.pattern}: choose `run {TRAINING}`",
    )
    kept = workload.options
    if "trace" in options or "jobs" in options:
        kept = {name: one for name, one in kept.items() if name not in ITERATION_OPTIONS}
    systems = tuple(one for one in experiment.systems if not one.job)
    changed = replace(workload, options={**kept, **options})
    return with_jobs_alone(replace(experiment, systems=systems, workload=changed))


def repeated_systems(values: dict[str, Any]) -> dict[str, Any]:
    """Return an experiment's values with each system repeated for each value of a REPEATED key.

    >>> systems = [{"network": "tree,2,1"}]
    >>> repeated_systems({"tcp": ["reno", "dctcp"], "systems": systems})["systems"]
    [{'network': 'tree,2,1', 'tcp': 'reno'}, {'network': 'tree,2,1', 'tcp': 'dctcp'}]
    """
    for key, example in REPEATED.items():
        if key in values:
            values = _repeated_for(values, key, example)
    return values


def _repeated_for(values: dict[str, Any], key: str, example: str) -> dict[str, Any]:
    given, systems = values[key], values.get("systems")
    words = isinstance(given, list) and all(isinstance(one, str) for one in given)
    if not words or not given:
        raise InvalidValueError(f"{key} is a list, such as {example}", key)
    if not isinstance(systems, list) or any(key in one for one in systems):
        raise InvalidValueError(f"{key} stands for each system, or in each system: not both", key)
    repeated = [
        {**one, key: word, **_label(one, word if len(given) > 1 else "")}
        for one in systems
        for word in given
    ]
    return {name: value for name, value in values.items() if name != key} | {"systems": repeated}


def _label(system: Mapping[str, Any], word: str) -> dict[str, Any]:
    """Return the label of a repeated system with a value; {} for a system without a label."""
    return {"label": f"{system['label']} {word}".strip()} if "label" in system else {}


def experiment_of(
    values: dict[str, Any], calibrated_mbit: Callable[[System], float] | None = None
) -> Experiment:
    """Return the experiment that plain data (dicts, lists, numbers, strings) describe."""
    values = repeated_systems(values)
    systems = values.get("systems")
    calibrated = (
        [one for one in systems if _is_calibrated(one)] if isinstance(systems, list) else []
    )
    if calibrated:
        require(
            calibrated_mbit is not None, "a calibrated rate needs root: use sudo", NotPermittedError
        )
        assert calibrated_mbit is not None
        systems = [
            made(System, {**one, "rate_mbit": None}, f"systems.{number}")
            for number, one in enumerate(calibrated)
        ]
        rate_mbit = min(map(calibrated_mbit, systems))
        for one in calibrated:
            one["rate_mbit"] = rate_mbit
    experiment: Experiment = made(Experiment, values, "")
    return experiment


def _with_level_rates(number: int, system: Any) -> Any:
    """Return a system with option ``rates`` of its network in place of its key ``rates_mbit``."""
    if not isinstance(system, dict) or "rates_mbit" not in system:
        return system
    found = dict(system)
    rates_mbit, key = found.pop("rates_mbit"), f"systems.{number}.rates_mbit"
    try:
        rates_mbit = made(tuple[float, ...], rates_mbit, key)
        require("rate_mbit" not in found, "a system has rate_mbit or rates_mbit, not both")
        network, rate_mbit = network_with_rates(str(found.get("network", "")), rates_mbit)
    except PillarboxError as error:
        raise InvalidValueError(str(error), key) from None
    return {**found, "network": network, "rate_mbit": rate_mbit}


def _is_calibrated(system: Any) -> bool:
    return isinstance(system, dict) and system.get("rate_mbit") == CALIBRATED


def _values(text: str) -> dict[str, Any]:
    """Return an experiment, given by its name or file, as plain data that may be changed."""
    if text.endswith(".toml"):
        return _from_toml(Path(text))
    experiment = _from_python(Path(text)) if text.endswith(".py") else _from_catalogue(text)
    values: dict[str, Any] = plain(experiment)
    return values


def _from_catalogue(name: str) -> Experiment:
    """Return the catalogue's experiment of a name, or raise PillarboxError."""
    if name not in EXPERIMENTS:
        hint = meant(name, names())
        raise PillarboxError(f"unknown experiment {name!r}: {hint}; or a FILE.py or FILE.toml")
    return EXPERIMENTS[name]


def _from_toml(file: Path) -> dict[str, Any]:
    values = toml_in(file)
    values.setdefault("name", file.stem)
    values.setdefault("about", "")
    if isinstance(systems := values.get("systems"), list):
        values["systems"] = [_with_level_rates(*each) for each in enumerate(systems)]
    return values


def _from_python(file: Path) -> Experiment:
    """Run a user's Python file and return its EXPERIMENT."""
    module = module_from(file, "experiment")
    experiment = getattr(module, "EXPERIMENT", None)
    require(isinstance(experiment, Experiment), f"{file} must define EXPERIMENT, an Experiment")
    assert isinstance(experiment, Experiment)
    return experiment
