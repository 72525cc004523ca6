"""Guo 2008, Fig. 11: a TCP connection during a link failure, and during the death of a server.

Paper: from [0,0] to [4,3] of DCell_1, n = 4; the cable ([0,3], [4,0]) is unplugged at 34 s and
plugged in again at 42 s; [0,3] is shut down at 104 s. Here the server comes back as well. The curve
is not printed as numbers; section 7.3 gives the duration of each outage, to the second.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import topos
from experiments.apps.papers.shared import live_experiments
from experiments.apps.papers.shared.figure import Claim, Made, figure, verdict
from experiments.models.workloads.workload import Workload
from experiments.runs.plans.experiment import Experiment, FaultAt, System
from experiments.runs.reporting.reproduced.result import Point, Settings
from hosts.base.algorithms import route
from hosts.base.failures import parse_failures

if TYPE_CHECKING:
    import pandas

    from experiments.runs.trials.records import Run

ABOUT = "a TCP connection through a link's failure and repair and a server's death (Guo 2008)"

NETWORK, ROUTING, SOURCE, DESTINATION = "dcell,4,1", "dfr", "0.0", "4.3"
CABLE, SERVER = "0.3-4.0", "0.3"
FAST, PAPER = "fast timers", "the paper's timers"
SYSTEMS = (
    System(NETWORK, routing=ROUTING, timers="fast", label=FAST),
    System(NETWORK, routing=ROUTING, timers="paper", label=PAPER),
)
RATE_MBIT = 100.0  # cable rate for one TCP connection, which any machine can emulate
INTERVAL_S = 0.05
POINTS = 300
# Section 7.3: "only 1-second throughput degradation", "a 5-second throughput outage".
PAPERS_S = {("cut", "recovered_s"): 1.0, ("kill", "rerouted_s"): 5.0}
PAPERS_RESOLUTION_S = 1.0
EVENTS = {"cut": "cut", "healed": "plugged in again", "kill": "death", "revive": "back"}
COLUMNS = {"rerouted_s": "stood still for, s", "recovered_s": "as fast as before after, s"}
SHARE = "throughput then, of the first"
AS_BEFORE = 0.9


class FailureSchedule(NamedTuple):
    """Times of the cable's and the server's failures and repairs, in seconds."""

    cut_s: float
    plug_s: float
    death_s: float
    back_s: float
    end_s: float


# Events are far enough apart for the timers: 5 s of silence, and TCP's retransmission.
MOMENTS = FailureSchedule(3.0, 7.0, 10.0, 19.0, 25.0)
QUICK = FailureSchedule(1.5, 3.0, 4.5, 6.0, 8.0)


@figure(
    "dcell-fig11",
    ABOUT,
    "TCP during a link failure and a server failure",
    "time, s",
    "TCP throughput, Gbit/s",
    live=True,
)
def fig11(settings: Settings) -> Made:
    """Run the connection with fast timers and, unless quick, with the paper's timers."""
    moments = QUICK if settings.quick else MOMENTS
    systems = SYSTEMS[:1] if settings.quick else SYSTEMS
    rate_mbit = settings.rate_mbit or RATE_MBIT
    experiment = Experiment(
        name="dcell-fig11",
        about=ABOUT,
        systems=tuple(replace(system, rate_mbit=rate_mbit) for system in systems),
        workload=Workload(
            "one-to-one",
            duration_s=moments.end_s,
            tool="generator",
            interval_s=INTERVAL_S,
            timeout_s=moments.end_s + 20.0,
            options={"source": SOURCE, "destination": DESTINATION, "flows": 1},
        ),
        faults=(
            FaultAt(f"cut {CABLE} at {moments.cut_s} until {moments.plug_s}"),
            FaultAt(f"kill {SERVER} at {moments.death_s} until {moments.back_s}"),
        ),
        repeats=live_experiments.trial_count(settings),
        seed=settings.seed,
    )
    return made(
        live_experiments.run(settings, experiment),
        live_experiments.Scale(live_experiments.PAPERS_MBIT / rate_mbit),
    )


def made(done: Run, scale: live_experiments.Scale) -> Made:
    """Return the figure's points and verdict from a run's records."""
    rows = [row for system in done.systems for row in _outage_points(done.of(system), system)]
    word, reasons = verdict(_claims(rows))
    return Made(
        live_experiments.throughput_curves(done, scale, points=POINTS),
        rows=rows,
        judged=(word, [*reasons, *_reasons(done)]),
        notes=(*_path_sentences(), *live_experiments.notes(done, scale=scale)),
    )


def _outage_points(done: Run, system: str) -> list[Point]:
    """Return the connection's outage by each fault and repair, and its throughput afterwards."""
    rows = []
    for name, event in EVENTS.items():
        events = _events_named(done, name)
        columns = ["rerouted_s"] if name == "kill" else []
        for column in (*columns, "recovered_s"):
            # A fault that stopped no flow has no rerouting time and no recovery time.
            values = events[column].mask(events.stopped_flows == 0, 0.0)
            paper = PAPERS_S.get((name, column)) if system == PAPER else None
            rows.append(
                live_experiments.mean_of_trials(
                    system, f"{event}: {COLUMNS[column]}", values, paper=paper
                )
            )
        shares = _throughput_shares(done, name)
        rows.append(live_experiments.mean_of_trials(system, f"{event}: {SHARE}", shares, paper=1.0))
    return rows


def _events_named(done: Run, name: str) -> pandas.DataFrame:
    """Return a run's faults or repairs of the given name."""
    return done.events[(done.events.event == name) & (done.events.reason == "")]


def _throughput_shares(done: Run, name: str) -> pandas.Series:
    """Return each trial's throughput before the next event, relative to that at its start."""
    import pandas

    shares = {}
    for trial, events in done.events.groupby("trial"):
        intervals = done.intervals[done.intervals.trial == trial]
        moments = [*sorted(events.at_s), float(intervals.end_s.max())]
        at_s = events[events.event == name].at_s
        if not at_s.empty:
            following = moments[moments.index(at_s.iloc[0]) + 1]
            first, now = (_second_before(intervals, end_s) for end_s in (moments[0], following))
            shares[trial] = now / first
    return pandas.Series(shares, dtype=float)


def _second_before(intervals: pandas.DataFrame, end_s: float) -> float:
    within = intervals[(intervals.begin_s >= end_s - 1.0) & (intervals.end_s <= end_s)]
    return float(within.delivered_bytes.sum() / (within.end_s - within.begin_s).sum())


def _claims(rows: Iterable[Point]) -> Iterator[Claim]:
    """Yield claims that ours is as good as the paper's, where the paper gives a value."""
    for row in rows:
        if str(row.x).endswith(SHARE):
            yield Claim(row, 1 - AS_BEFORE, at_least=True)
        elif row.paper is not None:
            yield Claim(row, PAPERS_RESOLUTION_S, at_most=True)


def _reasons(done: Run) -> list[str]:
    """Return sentences on detection, waiting and recovery of the connection under each system."""
    reasons = []
    for system in done.systems:
        for name, event in EVENTS.items():
            found = _events_named(done.of(system), name).mean(numeric_only=True).astype(float)
            sentence = f"{system}, {event}: detected after {found.detected_s:.3f} s"
            if found.stopped_flows:
                waited_s = found.rerouted_s - found.detected_s
                recovered_s = found.recovered_s - found.rerouted_s
                sentence += (
                    f"; the connection continued {waited_s:.2f} s later, with TCP's next "
                    f"retransmission, at its former rate after {recovered_s:.2f} s more"
                )
            else:
                sentence += f"; no interruption of {INTERVAL_S:g} s"
            reasons.append(sentence)
    return reasons


def _path_sentences() -> list[str]:
    """Return sentences on the paths of DCell's routing: they are the same as in the paper."""
    dcell = topos.parse(NETWORK)
    ends = dcell.server(SOURCE), dcell.server(DESTINATION)
    sentences = []
    for state, failed in (
        ("at first", ()),
        ("with the cut cable", (f"cut {CABLE}",)),
        ("with the failed server", (f"kill {SERVER}",)),
    ):
        found = route(dcell, ROUTING, *ends, parse_failures(dcell, failed))
        path = " ".join(dcell.address(server) for server in found.paths[0].servers)
        sentences.append(f"Path {state}: {path}.")
    return sentences
