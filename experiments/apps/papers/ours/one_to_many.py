"""Not a paper's figure, but based on papers: one server sends to many by all of its ports.

- Guo 2008, section 4.1.2 and Theorem 6: the others form groups, by the link by which the source
  reaches them. With one server of each group, m servers get min(m, k + 1) times a link's rate.
- Guo 2009, section 3.4: k + 1 in BCube, to a server at each level.
- Liao 2012, section 4: two ports, of which one leads to the clockwise proxies and one to the
  counter-clockwise ones.
- Li 2009, section IV: the level-0 link and the backup link.

In every network the groups are those of the first link of the routing's path, and the receivers are
the last server of each. For comparison, all receivers are of one group and share one link.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from experiments.apps.papers.shared import live_experiments
from experiments.apps.papers.shared.figure import Claim, Made, figure, verdict
from experiments.models.comparison import speedups
from experiments.models.fluid.ideal import header_bytes, header_efficiency
from experiments.models.workloads.workload import Workload
from experiments.runs.plans.experiment import Experiment, System
from experiments.runs.reporting.reproduced.result import Point, Settings
from topos.base.spec import parse

if TYPE_CHECKING:
    from experiments.runs.trials.records import Run

ABOUT = "one server sends to many by all of its ports, in four networks (no paper's)"
SYSTEMS = (
    System("dpillar,4,3", routing="mp-both", label="DPillar"),
    System("dcell,4,1", routing="dcell", label="DCell"),
    System("bcube,4,1", routing="bcube", label="BCube"),
    System("ficonn,6,1", routing="tor", label="FiConn"),
)
LARGE = (
    System("dpillar,8,3", routing="mp-both", label="DPillar"),
    System("dcell,4,2", routing="dcell", label="DCell"),
    System("bcube,4,3", routing="bcube", label="BCube"),
    System("ficonn,8,2", routing="tor", label="FiConn"),
)
# networks whose paper gives a number: as many links as a server has ports
PAPERS = {"DCell", "BCube"}
EACH, ONE = "one of each group", "all of one group"
SECONDS, QUICK_SECONDS = 6.0, 2.0
GOAL = 0.9  # minimum share of the goodput's upper bound


def receivers(system: System, what: str) -> list[int]:
    """Return the destinations of the first server.

    >>> receivers(SYSTEMS[1], EACH), receivers(SYSTEMS[1], ONE)
    ([19, 7], [19, 18])
    """
    network = parse(system.network)
    groups = speedups.servers_by_departure_port(network, system.routing)
    if what == EACH:
        return [members[-1] for members in groups.values()]
    return max(groups.values(), key=len)[: -len(groups) - 1 : -1]


@figure(
    "one-to-many",
    ABOUT,
    "One-to-many traffic",
    "network",
    "what it sends, in links",
    live=True,
    kind="bars",
)
def one_to_many(settings: Settings) -> Made:
    """Send from one server to two choices of receivers, in each of four networks."""
    systems = live_experiments.with_rate(settings, SYSTEMS)
    runs = {
        (system.name, what): live_experiments.run(settings, _experiment(settings, system, what))
        for system in systems
        for what in (EACH, ONE)
    }
    return made(runs)


def _experiment(settings: Settings, system: System, what: str) -> Experiment:
    network = parse(system.network)
    named = ",".join(network.address(server) for server in receivers(system, what))
    seconds = QUICK_SECONDS if settings.quick else SECONDS
    return Experiment(
        name=f"one-to-many-{system.name}-{what.replace(' ', '-')}",
        about=ABOUT,
        systems=(system,),
        workload=Workload(
            "one-to-several",
            duration_s=seconds,
            tool="generator",
            timeout_s=seconds + 20.0,
            options={"source": network.address(speedups.SOURCE), "receivers": named},
        ),
        repeats=live_experiments.trial_count(settings),
        seed=settings.seed,
    )


def made(runs: dict[tuple[str, str], Run]) -> Made:
    """Return the one-to-many figure from runs' records and from the paths of larger networks."""
    points = []
    for (name, what), done in runs.items():
        points.append(
            _sender_goodput_point(name, what, live_experiments.without_invalid_trials(done))
        )
    claims = [
        Claim(point, 0.0, at_least=True, wanted=GOAL * point.ideal)
        for point in points
        if point.series == EACH and point.ideal
    ]
    larger = [_rate_by_paths(system) for system in LARGE]
    claims += [Claim(point, 1e-9, wanted=point.ideal) for point in larger]
    return Made(
        points,
        rows=(*points, *larger),
        judged=verdict(claims),
        notes=(
            "Unit: the TCP goodput of one link, without the routing's header. The bound is one "
            f"link per group; agreement: at least {GOAL:g} of it, in the larger networks (paths "
            "only) all of it.",
            *live_experiments.notes(*runs.values()),
        ),
    )


def _sender_goodput_point(name: str, what: str, done: Run) -> Point:
    """Return the sending server's goodput as a point, in units of a link's rate."""
    system = next(one for one in SYSTEMS if one.name == name)
    network = parse(system.network)
    rate_bps = done.manifest["plan"]["systems"][0]["rate_mbit"] * 1e6
    link_bps = rate_bps * header_efficiency(header_bytes(network, system.routing), system.mtu)
    bound = float(network.ports) if what == EACH else None
    paper = bound if name in PAPERS else None
    goodput = done.of(name).trials.goodput_bps
    return replace(
        live_experiments.mean_of_trials(what, name, goodput, factor=1 / link_bps, paper=paper),
        ideal=bound,
    )


def _rate_by_paths(system: System) -> Point:
    """Return a server's total rate on paths to one server of each group, in link rates."""
    network = parse(system.network)
    bound = float(network.ports)
    paper = bound if system.name in PAPERS else None
    ours = speedups.speedup_to_groups(network, system.routing)
    return Point(f"{EACH}, by paths alone", system.network, ours, paper, ideal=bound)
