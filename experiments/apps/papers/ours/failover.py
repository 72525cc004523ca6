"""Not from a paper: all four networks with the same schedule of faults.

One kind of fault after the other occurs at random, at the same times in every network, but each
network at its own random places. Every server sends to one other server and receives from one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from experiments.apps.papers.shared import live_experiments
from experiments.apps.papers.shared.figure import Claim, Made, figure, verdict
from experiments.apps.papers.shared.rerouted_flows import faults_with_flow_effects
from experiments.models.workloads.workload import Workload
from experiments.runs.plans.experiment import Experiment, FaultRate, System
from experiments.runs.reporting.reproduced.result import DIFFERS, Point, Settings
from hosts.base.fault_kinds import fault_kind

if TYPE_CHECKING:
    import pandas

    from experiments.runs.trials.records import Run

ABOUT = "four networks under the same faults: when flows move, and recover (no paper's)"

# Each network with its routing that avoids failures.
SYSTEMS = (
    System("dpillar,4,2", routing="mp-both", label="DPillar"),
    System("dcell,4,1", routing="dfr", label="DCell"),
    System("bcube,4,1", routing="bsr", label="BCube"),
    System("ficonn,4,1", routing="tar", label="FiConn"),
)
KINDS = ("cut", "silent cut", "switch", "server")
MOVED = "all moved after, s"
COLUMNS = {
    "stopped_flows": "flows that stopped",
    "pathless_flows": "others that stopped, with no path left",
    "detected_s": "noticed after, s",
    "rerouted_s": MOVED,
    "recovered_s": "as fast again after, s",
}
GOAL_S = 1.0
FROM_S, LASTING_S, REST_S = 1.5, 1.0, 1.0
STRIKES, QUICK_STRIKES = 5, 2  # mean number of faults of each kind
PER_MINUTE = 60.0


@figure(
    "four-failover",
    ABOUT,
    "Four networks under the same faults",
    "fault",
    "until all flows had moved, s",
    live=True,
    kind="bars",
)
def failover(settings: Settings) -> Made:
    """Run the same faults in all four networks, in turns."""
    strikes = QUICK_STRIKES if settings.quick else STRIKES
    window_s = strikes * 60.0 / PER_MINUTE
    faults, at_s = [], FROM_S
    for kind in KINDS:
        faults.append(
            FaultRate(fault_kind(kind).words, PER_MINUTE, LASTING_S, at_s, at_s + window_s)
        )
        at_s += window_s + LASTING_S + REST_S
    experiment = Experiment(
        name="four-failover",
        about=ABOUT,
        systems=live_experiments.with_rate(settings, SYSTEMS),
        workload=Workload("permutation", duration_s=at_s, tool="generator", timeout_s=at_s + 20.0),
        faults=tuple(faults),
        repeats=live_experiments.trial_count(settings),
        seed=settings.seed,
    )
    return made(live_experiments.run(settings, experiment))


def made(done: Run) -> Made:
    """Return the figure's points and verdict from a run's records."""
    import pandas

    events = pandas.DataFrame(faults_with_flow_effects(done, SYSTEMS))
    points = [_point(events, name, kind, "rerouted_s") for kind in KINDS for name in done.systems]
    rows = [
        _point(events, name, kind, column, f"{kind}: {words}")
        for column, words in COLUMNS.items()
        for kind in KINDS
        for name in done.systems
    ]
    # By system over all kinds: most faults of some kinds stop no flow that has a path.
    whole = [_point(events, name, "", "rerouted_s", f"any: {MOVED}") for name in done.systems]
    moved = [point for point in whole if point.ours is not None]
    word, reasons = verdict(Claim(point, 0.0, at_most=True, wanted=GOAL_S) for point in moved)
    lost = _stuck_flow_notes(events, done.systems)
    return Made(
        points,
        rows=[*whole, *rows],
        judged=(DIFFERS if lost else word, [*reasons, *lost]),
        notes=(
            f"No paper has this figure. Agreement: in each network flows move within {GOAL_S:g} s "
            "of a fault, on average. Faults overlap, and some leave a pair of servers without a "
            "path. A flow counts if its converged routing has a path for it during the fault "
            "(DPillar: one of its disjoint paths). Other flows wait for a repair, and then for "
            "TCP, whose timeout doubles: 1.4 s for a fault of 1 s. No time: no flow stopped. "
            "Flows that share the remaining capacity recover with the repair, after "
            f"{LASTING_S:g} s.",
            *live_experiments.notes(done),
        ),
    )


def _faults_of_kind(events: pandas.DataFrame, system: str, kind: str) -> pandas.DataFrame:
    """Return a system's faults of one kind, or of all kinds."""
    of_kind = events.event == fault_kind(kind).event if kind else events.event.notna()
    return events[(events.system == system) & of_kind]


def _point(events: pandas.DataFrame, system: str, kind: str, column: str, x: str = "") -> Point:
    return live_experiments.mean_of_trials(
        system, x or kind, _faults_of_kind(events, system, kind)[column]
    )


def _stuck_flow_notes(events: pandas.DataFrame, systems: Sequence[str]) -> list[str]:
    """Return sentences on faults after which some stopped flows did not continue."""
    lost = []
    for kind in KINDS:
        for system in systems:
            found = _faults_of_kind(events, system, kind)
            stuck = found[(found.stopped_flows > 0) & found.rerouted_s.isna()]
            lost += [
                f"{system}, {kind} of {what}: not all of the {count} stopped flows continued"
                for what, count in zip(stuck.what, stuck.stopped_flows, strict=True)
            ]
    return lost
