"""Checks of a whole experiment when it is loaded: values without effect are rejected."""

from __future__ import annotations

from pillarbox.experiments.lab.emulation.setting_checks import check_settings
from pillarbox.experiments.lab.traffic.tools import AUTO, TOOLS
from pillarbox.experiments.models.workloads.workload import Workload
from pillarbox.experiments.runs.plans.dilation import check_dilation
from pillarbox.experiments.runs.plans.experiment import Experiment
from pillarbox.hosts.base.faults import read
from pillarbox.topos.base.errors import InvalidValueError, PillarboxError, meant


def check_experiment(experiment: Experiment) -> None:
    """Raise InvalidValueError with the key of the first experiment value that has no effect."""
    for number, system in enumerate(experiment.systems):
        place = f"systems.{number}"
        try:
            topology = system.topology
        except PillarboxError as error:
            raise InvalidValueError(str(error), f"{place}.network") from None
        try:
            check_settings(topology, system)
        except InvalidValueError as error:
            raise InvalidValueError(str(error), f"{place}.{error.key}") from None
        if system.dilation != 1:
            try:
                check_dilation(experiment, system)
            except PillarboxError as error:
                raise InvalidValueError(str(error), f"{place}.dilation") from None
        if system.tool:
            _check_tool(system.tool, f"{place}.tool")
    _check_tool(experiment.workload.tool, "workload.tool")
    end_s = end_of(experiment.workload)
    for number, fault in enumerate(experiment.faults):
        at_s = getattr(fault, "from_s", None)
        if at_s is None:
            at_s = read(fault.fault).at_s
        if at_s >= end_s:
            raise InvalidValueError(
                f"the fault {fault.fault!r} begins at {at_s:g} s, and the flows end by "
                f"{end_s:g} s: choose an earlier fault, or longer flows",
                f"faults.{number}",
            )


def _check_tool(name: str, key: str) -> None:
    tools = (AUTO, *TOOLS)
    if name not in tools:
        raise InvalidValueError(f"unknown traffic tool {name!r}: {meant(name, tools)}", key)


def end_of(workload: Workload) -> float:
    """Return the time by which all flows of a workload have ended, in seconds after the start."""
    if workload.arrivals is not None or workload.duration_s is None:
        return workload.timeout_s
    return min(workload.duration_s, workload.timeout_s)
