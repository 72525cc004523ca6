"""Shared code of figures of all-to-all traffic: one flow of equal volume between all pairs of
servers.

The servers run the papers' timers, as in the papers' testbeds. There are no faults here, and with
fast timers a server delayed by a busy processor would be declared dead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from experiments.apps.papers.shared import live_experiments
from experiments.models.workloads.workload import Workload
from experiments.runs.plans.experiment import Experiment, System
from experiments.runs.reporting.reproduced.result import Point, Settings

if TYPE_CHECKING:
    from experiments.runs.trials.records import Run

TREE = "tree"
TIMEOUT_S = 150.0
# Volume of a flow, as seconds of a cable's rate.
SECONDS, QUICK_SECONDS = 0.3, 0.06


def run(
    settings: Settings, name: str, about: str, systems: Sequence[System], papers_bytes: float
) -> tuple[Run, live_experiments.Scale]:
    """Run all-to-all traffic on all systems in turns; return the records, and the factors from
    the lab's rates and times to the paper's.
    """
    systems = live_experiments.with_rate(
        settings, [replace(one, timers="paper") for one in systems]
    )
    rate_mbit = systems[0].rate_mbit or 0.0
    seconds = QUICK_SECONDS if settings.quick else SECONDS
    volume_bytes = int(seconds * rate_mbit * 125_000)
    experiment = Experiment(
        name=name,
        about=about,
        systems=systems,
        # Pillarbox's traffic generator sends the flows: two iperf3 processes each would be slow.
        workload=Workload("all-to-all", volume_bytes, tool="generator", timeout_s=TIMEOUT_S),
        repeats=live_experiments.trial_count(settings),
        seed=settings.seed,
    )
    done = live_experiments.run(settings, experiment)
    return done, live_experiments.Scale.to_paper(rate_mbit, volume_bytes, papers_bytes)


def completion_point(
    done: Run, system: str, scale: live_experiments.Scale, paper: float | None = None
) -> Point:
    """Return a system's completion time, that of its last flow, as a point."""
    trials = done.of(system).trials
    ideal = live_experiments.ideal_of_trials(trials.ideal_s)
    return live_experiments.mean_of_trials(
        system, "completion, s", trials.completion_s, factor=scale.time, paper=paper, ideal=ideal
    )


def maximum_throughput_point(
    done: Run, system: str, scale: live_experiments.Scale, paper: float
) -> Point:
    """Return a system's maximum total throughput, averaged over a twentieth of the time."""
    found = live_experiments.throughput_over_time(done.of(system).intervals, points=20)
    most = found.groupby("trial").goodput_bps.max()
    return live_experiments.mean_of_trials(
        system, "maximum, Gbit/s", most, factor=scale.rate / 1e9, paper=paper
    )


def last_flow_completion(
    done: Run,
    system: str,
    what: str,
    belongs: Callable[[str, str], bool],
    scale: live_experiments.Scale,
    paper: float,
) -> Point:
    """Return the completion time of the last flow between the pairs selected by `belongs`."""
    flows = done.of(system).flows
    own = flows[[belongs(*pair) for pair in zip(flows.source, flows.destination, strict=True)]]
    ends = own.groupby("trial")
    ideal = live_experiments.ideal_of_trials(ends.ideal_end_s.max())
    return live_experiments.mean_of_trials(
        system, what, ends.end_s.max(), factor=scale.time, paper=paper, ideal=ideal
    )


def speed_up(done: Run, papers_end_s: dict[str, float]) -> Point:
    """Return the ratio of all-to-all completion times, tree / network, with the paper's value."""
    network, tree = papers_end_s
    return live_experiments.speed_up(
        done, network, tree, papers_end_s[tree] / papers_end_s[network]
    )
