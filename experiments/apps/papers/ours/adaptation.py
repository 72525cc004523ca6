"""Not a paper's figure, but based on three papers: routing that adapts to traffic settles.

- Guo 2009, 4.3: flows that arrive at the same time may choose the same path, and all choose another
  when their timers expire, for ever; a small random part in the timers avoids that.
- Liao 2012, 4.5.2: a source probes its paths and puts each flow on the one with the most bandwidth.
- Li 2009, section V: TAR has a steady state. (By how much it beats TOR: ficonn-fig8.)

In all three networks one group of servers starts sending to another simultaneously.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy

from pillarbox.experiments.apps.papers.shared.draws import (
    Found,
    Runs,
    seeded_task_function,
    simulation_run_count,
    simulation_runs,
)
from pillarbox.experiments.apps.papers.shared.figure import Claim, Made, by_series, figure, verdict
from pillarbox.experiments.models.arrays import Ints
from pillarbox.experiments.models.fluid.directed_links import Routes, link_count
from pillarbox.experiments.models.fluid.rates import max_min
from pillarbox.experiments.models.simulator import around
from pillarbox.experiments.models.simulator.adapting import AdaptiveFlows, adaptive_flows
from pillarbox.experiments.models.simulator.compiled_tar import TarFlows
from pillarbox.experiments.models.simulator.failure_sets import draw
from pillarbox.experiments.models.simulator.probe_times import ProbeTimes
from pillarbox.experiments.runs.reporting.reproduced.result import Point, Settings
from pillarbox.topos.base.spec import parse
from pillarbox.topos.base.topology import Topology
from pillarbox.topos.ficonn import FiConn

DPILLAR, BCUBE, FICONN = "DPillar", "BCube", "FiConn"
# For each network: its spec, the routing that adapts, and its single-path routing.
NETWORKS = {
    DPILLAR: ("dpillar,8,4", "mp-aware", "sp-cw"),
    BCUBE: ("bcube,10,2", "bsr", "bcube"),
    FICONN: ("ficonn,10,2", "tar", "tor"),
}
QUICK_NETWORKS = {
    DPILLAR: ("dpillar,8,3", "mp-aware", "sp-cw"),
    BCUBE: ("bcube,6,2", "bsr", "bcube"),
    FICONN: ("ficonn,6,2", "tar", "tor"),
}
# number of groups of consecutive servers; all servers of one group send to all of another
GROUPS = 16
ROUNDS, QUICK_ROUNDS, RUNS = 20, 12, 5
FAILED = 0.05  # share of failed servers
PLAIN, WITHOUT, FAILING = "", ", no random part", f", {FAILED:.0%} of servers failed"
# TAR as in Li 2009, Fig. 6 to 9: available bandwidth is the equal share of one more flow.
FAIR_SHARE = ", equal share of one more flow"
CASES = {
    DPILLAR: (PLAIN, WITHOUT, FAILING),
    BCUBE: (PLAIN, WITHOUT, FAILING),
    # no case WITHOUT: TAR probes flows one after the other, so its probe intervals are not random
    FICONN: (PLAIN, FAIR_SHARE, FAILING),
}
SETTLED = 0.01  # maximum share of flows that still move in a round
LAST, STEADY = 5, 0.05  # last rounds, and the maximum relative change of throughput in them


@seeded_task_function
def measure(
    spec: str,
    routing: str,
    single_paths: str,
    case: str,
    rounds: int,
    random: numpy.random.Generator,
) -> Found:
    """Simulate a burst from one group of servers to another, round by round.

    Returns the throughput after each round, relative to that of single paths; the share of flows
    that moved in each round; and the share of flows without a path at the end.
    """
    network = parse(spec)
    broken = draw(network, random, servers=FAILED if case == FAILING else 0.0)
    works = broken.works(network)
    sources, destinations = burst_flows(network, random)
    alive = ~(broken.servers[sources] | broken.servers[destinations])
    ends = sources[alive], destinations[alive]
    single = _total_rate(network, around.routes(network, single_paths, *ends, works, random))
    times = ProbeTimes(at_once=True, random_part=case != WITHOUT)
    if case == FAIR_SHARE:
        assert isinstance(network, FiConn)
        flows: AdaptiveFlows = TarFlows(network, *ends, random, works, throughput=None)
    else:
        flows = adaptive_flows(network, routing, *ends, random, works, times)
    throughput, moved = [], []
    before = _link_rows(flows.routes())
    for _ in range(rounds):
        flows.probe()
        now = flows.routes()
        throughput.append(_total_rate(network, now) / single)
        rows = _link_rows(now, before.shape[1])
        before = numpy.pad(before, ((0, 0), (0, rows.shape[1] - before.shape[1])))
        moved.append(float((rows != before).any(axis=1).mean()))
        before = rows
    cut_off = float((numpy.diff(now.starts) == 0).mean())
    return {"throughput": throughput, "moved": moved, "cut_off": cut_off}


def burst_flows(network: Topology, random: numpy.random.Generator) -> tuple[Ints, Ints]:
    """Return a flow from every server of one group to every server of another."""
    size = network.servers // GROUPS
    first, second = random.choice(GROUPS, 2, replace=False) * size
    members = numpy.arange(size)
    return numpy.repeat(first + members, size), numpy.tile(second + members, size)


def _total_rate(network: Topology, routes: Routes) -> float:
    return float(numpy.nansum(max_min(routes, 1.0, link_count(network))))


def _link_rows(routes: Routes, least: int = 0) -> Ints:
    """Return a matrix with each flow's links as a row (link number + 1, padded with 0)."""
    counts = numpy.diff(routes.starts)
    rows = numpy.zeros((routes.flows, max(least, int(counts.max(initial=0)))), numpy.int64)
    rows[numpy.arange(rows.shape[1]) < counts[:, None]] = routes.links + 1
    return rows


@figure(
    "adaptation",
    "routing that adapts to traffic, round by round, in three networks (no paper's)",
    "Traffic-adaptive routing after a burst",
    "rounds of probes",
    "throughput, by that of single paths",
    log_y=True,
)
def adaptation(settings: Settings) -> Made:
    """Simulate a burst in three networks whose routing adapts to traffic."""
    networks = QUICK_NETWORKS if settings.quick else NETWORKS
    rounds = QUICK_ROUNDS if settings.quick else ROUNDS
    count = simulation_run_count(settings, RUNS, 2)
    series = [(name, case) for name in networks for case in CASES[name]]
    cases = [(*networks[name], case, rounds) for name, case in series]
    names = [f"{name}{case}" for name, case in series]
    runs = dict(zip(names, simulation_runs(settings, measure, cases, count), strict=True))
    claims = _claims(runs, rounds)
    curves = by_series(
        of.point(name, i + 1, lambda run, i=i: run["throughput"][i])  # type: ignore[misc]
        for name, of in runs.items()
        if not name.endswith(FAILING)
        for i in range(rounds)
    )
    word, reasons = verdict(claims)
    return Made(
        curves,
        rows=(*(claim.row for claim in claims), *_final_points(runs, rounds)),
        judged=(word, [*reasons, *_reasons(runs)]),
        notes=_notes(networks, settings, count),
    )


def _last_value(what: str) -> Callable[[Found], float]:
    return lambda run: float(run[what][-1])


def _moving_share(runs: Runs, name: str, rounds: int, paper: float | None = None) -> Point:
    what = f"{name}: flows that move, share", f"round {rounds}", _last_value("moved")
    return runs.point(*what, paper)


def _claims(runs: dict[str, Runs], rounds: int) -> list[Claim]:
    """Return the papers' claims on adaptive routing: no moves and steady throughput in the end."""

    def throughput_change(run: Found) -> float:
        return float(run["throughput"][-1] / run["throughput"][-1 - LAST] - 1)

    name = FICONN + FAIR_SHARE
    what = f"{name}: change of the throughput, share", f"last {LAST} rounds", throughput_change
    return [
        *(
            Claim(_moving_share(runs[name], name, rounds, 0.0), SETTLED)
            for name in (BCUBE, DPILLAR)
        ),
        Claim(runs[name].point(*what, 0.0), STEADY),
    ]


def _final_points(runs: dict[str, Runs], rounds: int) -> list[Point]:
    """Return the final throughput, moving flows and cut-off flows of all simulated cases."""
    points, x = [], f"round {rounds}"
    for name, of in runs.items():
        points.append(of.point(f"{name}: throughput", x, _last_value("throughput")))
        if name not in (BCUBE, DPILLAR):  # BCube's and DPillar's points are in the claims
            points.append(_moving_share(of, name, rounds))
        if name.endswith(FAILING):
            points.append(of.point(f"{name}: flows cut off, share", x, "cut_off"))
    return points


def _reasons(runs: dict[str, Runs]) -> list[str]:
    def moved(name: str) -> str:
        return f"{numpy.mean(runs[name].values(_last_value('moved'))):.1%}"

    def throughput(name: str) -> float:
        return float(numpy.mean(runs[name].values(_last_value("throughput"))))

    return [
        *(
            f"{name}: without the random part {moved(name + WITHOUT)} of the flows change their "
            f"path in the last round, at {throughput(name + WITHOUT):.2f} times the throughput of "
            f"single paths; with it, {moved(name)}, at {throughput(name):.2f} times."
            for name in (BCUBE, DPILLAR)
        ),
        f"{FICONN}: with the equal share of one more flow the throughput is steady, at "
        f"{throughput(FICONN + FAIR_SHARE):.2f} times that of single paths, but "
        f"{moved(FICONN + FAIR_SHARE)} of the flows change their path in the last round: each "
        "probe that bypasses a link draws a new third FiConn. With the live servers' measured "
        f"bandwidth the throughput varies, at {throughput(FICONN):.2f} times: a saturated link "
        "has no unused bandwidth, whether it has one flow or many.",
    ]


def _notes(
    networks: dict[str, tuple[str, str, str]], settings: Settings, count: int
) -> tuple[str, ...]:
    compared = [
        f"{name}: {spec} ({parse(spec).servers} servers), {routing} and {single}"
        for name, (spec, routing, single) in networks.items()
    ]
    return (
        "; ".join(compared) + ".",
        f"All servers of a group ({GROUPS} groups in a row) send to all of another "
        f"simultaneously. Mean of {count} draws and its 95 % confidence interval, seed "
        f"{settings.seed}. Max-min fair rates after each round, relative to single paths.",
        "Timers as in the papers: 10 s and up to 2 s at random between probes, counters read each "
        "second (experiments/models/simulator/adapting/probing_flows.py). TAR's probes are "
        "sequential and see measured bandwidth (experiments/models/simulator/compiled_tar.py).",
    )
