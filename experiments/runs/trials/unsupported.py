"""Systems of an experiment that this machine's kernel does not support."""

from __future__ import annotations

from dataclasses import replace

from pillarbox.experiments.lab.linux import mptcp
from pillarbox.experiments.runs.plans.experiment import Experiment
from pillarbox.hosts.linux import user_namespace
from pillarbox.topos.base.errors import UnsupportedError, require


def without_unsupported(experiment: Experiment) -> tuple[Experiment, list[str]]:
    """Return an experiment without the systems that cannot run here, and a sentence for each.

    The systems of a cluster stay: its machines may have other kernels. Raises UnsupportedError if
    no system can run.
    """
    multipath = [one.name for one in experiment.systems if one.multipath and not one.cluster]
    why = user_namespace.text_inside(mptcp.missing) if multipath else ""
    if not why:
        return experiment, []
    kept = tuple(one for one in experiment.systems if one.name not in multipath)
    require(
        bool(kept),
        f"all systems of {experiment.name} use Multipath TCP, and {why}",
        UnsupportedError,
    )
    faults = [
        replace(one, systems=tuple(name for name in one.systems if name not in multipath))
        for one in experiment.faults
        if not one.systems or {*one.systems} - {*multipath}
    ]
    sentences = [f"the system {name} is left out: {why}" for name in multipath]
    return replace(experiment, systems=kept, faults=tuple(faults)), sentences
