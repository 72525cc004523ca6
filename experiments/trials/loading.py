"""Experiments by name, from the catalogue or from a file of the user's.

FILE.py defines EXPERIMENT. FILE.toml has the fields of `experiments.trials.plans.experiment` as its
keys; docs/experiments.md shows both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments.files import toml_in
from experiments.traffic.workload import POISSON, check_load
from experiments.trials.catalogue import EXPERIMENTS
from experiments.trials.plans.experiment import Experiment, System
from experiments.trials.plans.experiment_checks import check_experiment
from experiments.trials.plans.lines import line_of
from experiments.trials.plans.overrides import overridden
from experiments.trials.plans.values import made, plain
from hosts.base.load import module_from
from topos.base.errors import InvalidValueError, PillarboxError, meant, require

CALIBRATED = "calibrated"  # a rate: the largest that this machine emulates faithfully


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
        The name or the file.
    changes : sequence of str
        Overrides, as ``systems.0.routing=bsr`` (see `overrides`).
    calibrated_mbit : callable
        Returns the rate of a system that asks for a ``calibrated`` one. Systems of one experiment
        get the same: the lowest.
    loads : sequence of float
        Of flows that arrive; several make of each system as many.
    """
    try:
        return _loaded(text, changes, calibrated_mbit, loads)
    except InvalidValueError as error:
        raise _located(error, text, changes) from None


def _loaded(
    text: str,
    changes: Sequence[str],
    calibrated_mbit: Callable[[System], float] | None,
    loads: Sequence[float],
) -> Experiment:
    values = overridden(_values(text), changes)
    systems = values.get("systems")
    if changes and isinstance(systems, list):  # of those that became alike one is enough
        values["systems"] = [one for at, one in enumerate(systems) if one not in systems[:at]]
    found = under_loads(experiment_of(values, calibrated_mbit), loads)
    check_experiment(found)
    return found


def _located(error: InvalidValueError, text: str, changes: Sequence[str]) -> PillarboxError:
    """Return the error with the file, line and key of the value, if it stands in a TOML file."""
    last = error.key.rpartition(".")[2]
    changed = any(change.partition("=")[0].strip().rpartition(".")[2] == last for change in changes)
    if changed or not text.endswith(".toml"):
        return error
    line = line_of(Path(text).read_text(encoding="utf-8"), error.key)
    where = f"{text}, line {line}" if line else text
    key = f" ({error.key})" if error.key else ""
    return PillarboxError(f"{where}{key}: {error}")


def under_loads(experiment: Experiment, loads: Sequence[float]) -> Experiment:
    """Return an experiment under another load, or its systems under several, each by itself."""
    require(
        not loads or experiment.workload.arrivals == POISSON,
        f"nothing arrives in {experiment.name} that a load could be of: choose fct, or set "
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


def experiment_of(
    values: dict[str, Any], calibrated_mbit: Callable[[System], float] | None = None
) -> Experiment:
    """Return the experiment that plain data describe."""
    systems = values.get("systems")
    asking = [one for one in systems if _is_calibrated(one)] if isinstance(systems, list) else []
    if asking:
        require(calibrated_mbit is not None, "a calibrated rate needs root: use sudo")
        assert calibrated_mbit is not None
        systems = [
            made(System, {**one, "rate_mbit": None}, f"systems.{number}")
            for number, one in enumerate(asking)
        ]
        rate_mbit = min(map(calibrated_mbit, systems))
        for one in asking:
            one["rate_mbit"] = rate_mbit
    found: Experiment = made(Experiment, values, "")
    return found


def _is_calibrated(system: Any) -> bool:
    return isinstance(system, dict) and system.get("rate_mbit") == CALIBRATED


def _values(text: str) -> dict[str, Any]:
    """Return an experiment as plain data that may be changed."""
    if text.endswith(".toml"):
        return _from_toml(Path(text))
    found: dict[str, Any] = plain(_from_python(Path(text)) if text.endswith(".py") else _own(text))
    return found


def _own(name: str) -> Experiment:
    """Return an experiment of the catalogue."""
    if name not in EXPERIMENTS:
        hint = meant(name, names())
        raise PillarboxError(f"there is no experiment {name!r}: {hint}; or a FILE.py or FILE.toml")
    return EXPERIMENTS[name]


def _from_toml(file: Path) -> dict[str, Any]:
    values = toml_in(file)
    values.setdefault("name", file.stem)
    values.setdefault("about", "")
    return values


def _from_python(file: Path) -> Experiment:
    """Run a user's own file."""
    module = module_from(file, "experiment")
    found = getattr(module, "EXPERIMENT", None)
    require(isinstance(found, Experiment), f"{file} must define EXPERIMENT, an Experiment")
    assert isinstance(found, Experiment)
    return found
