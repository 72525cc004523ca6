"""A workload in a running lab: goodput of its flows, ideal goodput, and verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pillarbox.experiments.base.units import time, with_prefix
from pillarbox.experiments.models.workloads.collectives.plan import ALGORITHMS
from pillarbox.experiments.models.workloads.patterns import PATTERNS
from pillarbox.experiments.models.workloads.workload import TRAINING, Workload
from pillarbox.experiments.runs.control.active_workload import ActiveWorkload
from pillarbox.experiments.runs.plans.experiment import Experiment, System
from pillarbox.experiments.runs.plans.trials import Trial
from pillarbox.experiments.runs.plans.values import fields_of, guessed, job_options, made
from pillarbox.experiments.runs.trials.experiment_run import order_of
from pillarbox.experiments.runs.trials.outcome import outcome
from pillarbox.experiments.runs.trials.trial_worker import measured_in
from pillarbox.topos.base.errors import PillarboxError, UnknownNameError, meant, require

if TYPE_CHECKING:
    from pillarbox.experiments.lab.emulation.lab import Lab

NAME = "run"
# time limit for flows to connect and to end, in addition to their duration, in seconds
GRACE_S = 30.0
# Default amount of traffic: a duration for flow patterns, a size for collective operations.
USUAL_DURATION, USUAL_VOLUME = {"duration_s": 3.0}, {"volume_bytes": 1_000_000}


def run(lab: Lab, words: list[str]) -> dict[str, Any]:
    """Send the flows of a traffic pattern in a lab, with ``name=value`` options; return records.

    The records are those of an experiment's trial: the content of trial.json, and the rows of its
    flows and jobs.
    """
    workload = _workload(words)
    system = System.of_lab(lab.topology, machines=lab.fabric.machines, **lab.settings.plain())
    experiment = Experiment(NAME, "traffic in a running lab", (system,), workload)
    order = order_of(experiment, Trial(0, system, 0, lab.seed))
    traffic = ActiveWorkload(lab, order, " ".join(words))
    said = "it was interrupted"
    try:
        found = outcome(order, measured_in(lab, order, lambda _: None, traffic.record_progress))
        said = goodput_line(found.record)
    except (PillarboxError, OSError) as error:
        said = str(error)
        raise
    finally:
        traffic.end(said)
    jobs = list(found.tables.get("jobs", ()))
    return {**found.record, "rows": list(found.tables["flows"]), "jobs": jobs}


def goodput_line(record: dict[str, Any]) -> str:
    """Return the goodput of a workload in one line, with a reason if the trial is not valid."""
    goodput, ideal = (
        with_prefix(record[key] or 0.0, "bit/s") for key in ("goodput_bps", "ideal_bps")
    )
    first, *others = record["verdict"]["reasons"] or ("",)
    more = f" (and {len(others)} more)" if others else ""
    verdict = "valid" if record["valid"] else f"not valid: {first}{more}"
    flows = f"{record['flows']} flows, {record['failed_flows']} failed"
    return f"{flows}: {goodput} of {ideal} ideal; {verdict}"


def jobs_line(jobs: Sequence[Mapping[str, Any]]) -> str:
    """Return the time of an iteration of each job in one line; empty without jobs."""
    words = (
        f"job {one['job']} {time(one['iteration_s'])} (simulated {time(one['ideal_s'])})"
        for one in jobs
    )
    return f"\niteration: {', '.join(words)}" if jobs else ""


def _workload(words: list[str]) -> Workload:
    """Return the workload that the words of ``run`` describe: a pattern and its options."""
    known = [*PATTERNS, *ALGORITHMS, TRAINING]
    require(
        bool(words), f"write: run PATTERN, such as run all-to-all; there are {', '.join(known)}"
    )
    if words[0] not in known:
        hint = meant(words[0], known)
        raise UnknownNameError(f"there is no traffic pattern {words[0]!r}: {hint}")
    values: dict[str, Any] = {"pattern": words[0], "options": {}}
    given = set[str]()
    for word in words[1:]:
        name, equals, text = word.partition("=")
        require(bool(equals), f"{word!r} is not an option: write NAME=VALUE, as duration_s=5")
        if name == "job" and words[0] == TRAINING:
            values["options"].setdefault("jobs", []).append(job_options(text))
            continue
        at = values if name in fields_of(Workload) else values["options"]
        require(name not in given, f"{name} is given twice: write it once")
        given.add(name)
        at[name] = guessed(name, text)
    amounts = {"volume_bytes", "duration_s", "arrivals"} & values.keys()
    if not amounts and values["pattern"] != TRAINING:
        usual = USUAL_VOLUME if values["pattern"] in ALGORITHMS else USUAL_DURATION
        values |= usual
    if "timeout_s" not in values and isinstance(values.get("duration_s"), int | float):
        values["timeout_s"] = values["duration_s"] + GRACE_S
    workload: Workload = made(Workload, values, NAME)
    return workload
