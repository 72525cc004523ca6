"""What the figures of all-to-all traffic share: one volume from every server to every other.

The servers run the papers' timers, as in the papers' testbeds. Nothing fails here, and fast timers
would take a server for dead that a busy processor only let wait.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from experiments.reporting.reproduced.result import Point, Settings
from experiments.reproductions.shared import live
from experiments.traffic.workload import Workload
from experiments.trials.plans.experiment import Experiment, System

if TYPE_CHECKING:
    from experiments.trials.runs.records import Run

TREE = "tree"
TIMEOUT_S = 150.0
# What one flow carries, as seconds of a cable's time.
SECONDS, QUICK_SECONDS = 0.3, 0.06


def run(
    settings: Settings, name: str, about: str, systems: Sequence[System], papers_bytes: float
) -> tuple[Run, live.Scale]:
    """Run systems all-to-all, in turns; return the records, and the scale to the paper's volume."""
    systems = live.with_rate(settings, [replace(one, timers="paper") for one in systems])
    rate_mbit = systems[0].rate_mbit or 0.0
    seconds = QUICK_SECONDS if settings.quick else SECONDS
    volume_bytes = int(seconds * rate_mbit * 125_000)
    experiment = Experiment(
        name=name,
        about=about,
        systems=systems,
        # Two processes of iperf3 for each flow would take the processors from the network.
        workload=Workload("all-to-all", volume_bytes, tool="generator", timeout_s=TIMEOUT_S),
        repeats=live.repeats(settings),
        seed=settings.seed,
    )
    done = live.run(settings, experiment)
    return done, live.Scale.to_paper(rate_mbit, volume_bytes, papers_bytes)


def completion(done: Run, system: str, scale: live.Scale, paper: float | None = None) -> Point:
    """Return when the last flow had ended."""
    trials = done.of(system).trials
    ideal = live.ideal_of(trials.ideal_s)
    return live.spread(
        system, "completion, s", trials.completion_s, factor=scale.time, paper=paper, ideal=ideal
    )


def maximum(done: Run, system: str, scale: live.Scale, paper: float) -> Point:
    """Return the largest total throughput, of a twentieth of the time."""
    found = live.over_time(done.of(system).intervals, points=20)
    most = found.groupby("trial").goodput_bps.max()
    return live.spread(system, "maximum, Gbit/s", most, factor=scale.rate / 1e9, paper=paper)


def ended(
    done: Run,
    system: str,
    what: str,
    belongs: Callable[[str, str], bool],
    scale: live.Scale,
    paper: float,
) -> Point:
    """Return when the last of the flows between such servers had ended."""
    flows = done.of(system).flows
    own = flows[[belongs(*pair) for pair in zip(flows.source, flows.destination, strict=True)]]
    ends = own.groupby("trial")
    ideal = live.ideal_of(ends.ideal_end_s.max())
    return live.spread(system, what, ends.end_s.max(), factor=scale.time, paper=paper, ideal=ideal)


def speed_up(done: Run, papers_end_s: dict[str, float]) -> Point:
    """Return how much sooner a network is done than the tree, the second of the two."""
    network, tree = papers_end_s
    return live.speed_up(done, network, tree, papers_end_s[tree] / papers_end_s[network])
