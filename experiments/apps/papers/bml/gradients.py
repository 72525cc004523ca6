"""BML, parameter servers and a ring: time in which nine servers sum their gradients.

Wang, Li, Cheng, Geng, Wang, Wang, Xia, Wu, "BML: A High-performance, Low-cost Gradient
Synchronization Algorithm for DML Training", NeurIPS 2018; and, by the same authors, "A Scalable,
High-Performance, and Fault-Tolerant Network Architecture for Distributed Machine Learning",
IEEE/ACM ToN 2020. The abstracts give three numbers, and only these are compared: with k ports per
server BML takes 1/k of the time that parameter servers take on a fat-tree of as many servers, with
k/5 of its switches; and on nine servers training takes up to 56.4 % less time.

This figure measures network traffic only. A job also computes, so its time shrinks by less than
that of its network traffic; the 56.4 % are shown, and no conclusion is drawn from them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from experiments.apps.papers.shared import live_experiments
from experiments.apps.papers.shared.figure import Claim, Made, figure, verdict
from experiments.models.fluid.collective import phases_duration_s
from experiments.models.fluid.ideal import header_bytes, header_efficiency
from experiments.models.workloads.collectives.phases import of_digits, of_ring
from experiments.models.workloads.collectives.plan import most_bytes
from experiments.models.workloads.collectives.schedules import bml_threads
from experiments.models.workloads.workload import Workload
from experiments.runs.plans.experiment import Experiment, System
from experiments.runs.reporting.reproduced.result import Point, Settings
from topos.base.spec import parse

if TYPE_CHECKING:
    from experiments.runs.trials.records import Run

ABOUT = "BML on BCube against parameter servers and a ring on a fat-tree (Wang 2018)"
BML, SERVERS, RING = "BML, BCube", "parameter servers, fat-tree", "ring, fat-tree"
ONE_SWITCH_SERVERS, ONE_SWITCH_RING = "parameter servers, one switch", "ring, one switch"
RANKS = 9
SYSTEMS = (
    System("bcube,3,1", routing="bcube", algorithm="bml", label=BML),
    System("fattree,4", algorithm="parameter-servers", label=SERVERS),
    System("fattree,4", algorithm="ring", label=RING),
    # A star of one switch stands for an ideal fat-tree without contention.
    System("tree,9,1", algorithm="parameter-servers", label=ONE_SWITCH_SERVERS),
    System("tree,9,1", algorithm="ring", label=ONE_SWITCH_RING),
)
PORTS = 2  # number of ports of BCube's servers
NEAR = 0.15  # relative tolerance for ratios of completion times
LESS_JOB_TIME = 56.4  # maximum percentage of job time saved
SECONDS, QUICK_SECONDS = 6.0, 2.5  # duration of a ring all-reduce
# More trials: parameter servers' time varies by 10 %, and the verdict is close.
REPEATS = 10
LARGER = {2: "bcube,8,1", 3: "bcube,8,2", 4: "bcube,4,3"}  # BCubes by number of ports k
FAT_TREES = {8: "fattree,8", 4: "fattree,4"}  # fat-trees by number of switch ports


@figure(
    "bml",
    ABOUT,
    "Gradient summation on nine servers",
    "system",
    "time, in that of all data over one cable",
    live=True,
    kind="bars",
)
def bml(settings: Settings) -> Made:
    """Measure the all-reduce of BML, parameter servers and rings on five systems in turns."""
    systems = live_experiments.with_rate(settings, SYSTEMS)
    rate_mbit = systems[0].rate_mbit
    assert rate_mbit is not None
    seconds = QUICK_SECONDS if settings.quick else SECONDS
    size = volume_bytes(rate_mbit, seconds)
    done = live_experiments.run(
        settings,
        Experiment(
            name="bml",
            about=ABOUT,
            systems=systems,
            workload=Workload("all-reduce", size, timeout_s=20 * seconds, options={"ranks": RANKS}),
            repeats=live_experiments.trial_count(settings, REPEATS),
            seed=settings.seed,
        ),
    )
    return made(done)


def volume_bytes(rate_mbit: float, seconds: float) -> int:
    """Return the volume that keeps a ring busy for that time, or less if memory is too small."""
    size = int(rate_mbit * 1e6 / 8 * seconds / of_ring(RANKS)[0].times * RANKS)
    return min(size, most_bytes(RANKS))


def made(done: Run) -> Made:
    """Return the figure's points and verdict from the records, and ratios by the paths alone."""
    found = live_experiments.without_invalid_trials(done)
    points = [_completion_point(found, system) for system in done.systems]
    ratios = [_ratio(found, SERVERS, paper=1 / PORTS), _ratio(found, RING)]
    claims = [Claim(ratios[0], NEAR / PORTS), Claim(ratios[1], NEAR / PORTS, wanted=1 / PORTS)]
    claims += [Claim(row, 1e-3) for row in (*_ratios_by_paths(), *_switch_ratios())]
    saved = [_time_saved(found, system) for system in (SERVERS, RING)]
    return Made(
        points,
        rows=(*points, *ratios, *saved, *(claim.row for claim in claims[2:])),
        judged=verdict(claims),
        why="Connections that meet at a port share it unevenly for a while, and who waits for the "
        "last one waits for the slowest.",
        notes=(
            f"Ideal: the same transfers in the fluid model. Agreement: within {NEAR:.0%} of 1/k, "
            "also for the ring, for which the abstracts give no number: it sends as much as "
            "parameter servers.",
            f"{RANKS} of the fat-tree's 16 servers take part. The paper's 56.4 % are of whole "
            "jobs, including computation, and are not evaluated.",
            *live_experiments.notes(done),
        ),
    )


def _one_cable_transfer_s(done: Run, system: str) -> float:
    """Return the time in which the data of one server passes one cable, in seconds."""
    planned = next(one for one in done.manifest["plan"]["systems"] if one["label"] == system)
    network = parse(planned["network"])
    efficiency = header_efficiency(header_bytes(network, planned["routing"]), planned["mtu"])
    volume = done.manifest["plan"]["workload"]["volume_bytes"]
    return float(volume * 8 / (planned["rate_mbit"] * 1e6 * efficiency))


def _completion_point(done: Run, system: str) -> Point:
    trials = done.of(system).trials
    ideal = live_experiments.ideal_of_trials(trials.ideal_s)
    return live_experiments.mean_of_trials(
        "all-reduce",
        system,
        trials.completion_s,
        factor=1 / _one_cable_transfer_s(done, system),
        ideal=ideal,
    )


def _ratio(done: Run, other: str, paper: float | None = None) -> Point:
    """Return BML's time divided by another system's, by pairs of trials."""
    table = done.trials.pivot_table(index="repeat", columns="system", values="completion_s")
    times = table.reindex(columns=[BML, other])
    return live_experiments.mean_of_trials(
        f"{BML} / {other}", "time", times[BML] / times[other], paper=paper
    )


def _time_saved(done: Run, other: str) -> Point:
    """Return the percentage of time that BML saves compared with another system."""
    ratio = _ratio(done, other)
    ends = (None if end is None else 100 * (1 - end) for end in (ratio.ours, ratio.high, ratio.low))
    ours, low, high = ends
    return replace(
        ratio, x="less time, % (of jobs, at most)", ours=ours, low=low, high=high,
        paper=LESS_JOB_TIME,
    )  # fmt: skip


def _ratios_by_paths() -> Iterable[Point]:
    """Yield BML's time relative to that of a ring or parameter servers without contention."""
    for k, spec in LARGER.items():
        bcube = parse(spec)
        threads = bml_threads(bcube.radices()[::-1])
        ours = phases_duration_s(bcube, of_digits(threads), range(bcube.servers), "bcube")
        theirs = sum(phase.times * phase.share for phase in of_ring(bcube.servers))
        yield Point(f"BML, {spec}, by paths alone", "time, of a fat-tree's", ours / theirs, 1 / k)


def _switch_ratios() -> Iterable[Point]:
    """Yield BCube's switches per server, relative to those of a fat-tree of equally large switches.

    Al-Fares's fat-tree has five switches of n ports for n servers.
    """
    for k, spec in LARGER.items():
        bcube = parse(spec)
        fattree = parse(FAT_TREES[bcube.switch_ports])
        ratio = bcube.switches / bcube.servers / (fattree.switches / fattree.servers)
        yield Point(f"BCube, {spec}", "switches a server, of a fat-tree's", ratio, k / 5)
