"""Not a paper's figure: routing that adapts to traffic, while servers or switches fail.

In `six-degradation` flows take random paths of their sets, and FiConn's the only path that TOR
knows. Here flows probe for bandwidth as in the papers, all-to-all, in networks of about 190
servers: traffic-aware DPillarMP (Liao 2012, 4.5.2), BSR (Guo 2009, 4.3) and TAR, which also finds
paths that TOR does not have (Li 2009, IV.A).
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import sub, truediv

import numpy

from pillarbox.experiments.apps.papers.shared.degradation import (
    BCUBE,
    CURVE_RUNS,
    SERVERS,
    SWITCHES,
    Failing,
    runs_of,
)
from pillarbox.experiments.apps.papers.shared.draws import (
    Found,
    Runs,
    seeded_task_function,
    simulation_run_count,
    values_by_run,
)
from pillarbox.experiments.apps.papers.shared.figure import Claim, Made, by_series, figure, point
from pillarbox.experiments.models.fluid.directed_links import Routes, link_count
from pillarbox.experiments.models.fluid.rates import link_loads
from pillarbox.experiments.models.simulator import around
from pillarbox.experiments.models.simulator.adapting import adaptive_flows
from pillarbox.experiments.models.simulator.failure_sets import draw
from pillarbox.experiments.models.simulator.flow_arrays import all_to_all
from pillarbox.experiments.runs.reporting.reproduced.result import Settings
from pillarbox.topos.base.spec import parse
from pillarbox.topos.base.topology import Topology

DPILLAR, FICONN = "DPillar", "FiConn"
# For each network: its spec, the routing that adapts, and the routing that does not.
NETWORKS = {
    DPILLAR: ("dpillar,8,3", "mp-aware", "mp-random"),
    BCUBE: ("bcube,4,3,servers=192", "bsr", "bsr"),
    FICONN: ("ficonn,6,2", "tar", "tor"),
}
QUICK_NETWORKS = {
    DPILLAR: ("dpillar,6,2", "mp-aware", "mp-random"),
    BCUBE: ("bcube,4,1", "bsr", "bsr"),
    FICONN: ("ficonn,4,2", "tar", "tor"),
}
LABELS = {
    BCUBE: ("BSR", "random paths"),
    FICONN: ("TAR", "TOR"),
    DPILLAR: ("mp-aware", "random paths"),
}
SHARES = (0.0, 0.05, 0.1, 0.2)
LAST = SHARES[-1]
ROUNDS, RUNS = 4, 5  # all-to-all flows stop moving in the first round or two
# More runs for cases in which a few failed switches, or a ratio near 1, decide the verdict.
MORE_RUNS = {(DPILLAR, SWITCHES, LAST): 100, (BCUBE, SWITCHES, LAST): 100}


@seeded_task_function
def measure(
    spec: str, routing: str, plain: str, kind: str, share: float, random: numpy.random.Generator
) -> Found:
    """Draw failures, and measure all-to-all traffic by adaptive and by plain routing.

    Returns the aggregate bottleneck throughput in links, and the share of pairs that is cut off.
    """
    network = parse(spec)
    broken = draw(network, random, rack_servers=None, **{kind: share})
    works, ends = broken.works(network), all_to_all(numpy.flatnonzero(~broken.servers))
    flows = adaptive_flows(network, routing, *ends, random, works)
    for _ in range(ROUNDS):
        flows.probe()
    found = _throughput_and_loss(network, flows.routes())
    by_plain = _throughput_and_loss(network, around.routes(network, plain, *ends, works, random))
    return {**found, **{f"plain_{name}": value for name, value in by_plain.items()}}


def _throughput_and_loss(network: Topology, routes: Routes) -> Found:
    sent = int(numpy.count_nonzero(numpy.diff(routes.starts)))
    most = float(link_loads(routes, None, link_count(network)).max())
    return {"abt": sent / most if sent else 0.0, "lost": 1 - sent / routes.flows}


@figure(
    "adaptive-degradation",
    "routing that adapts to traffic while servers or switches fail, in three networks (no paper's)",
    "Traffic-adaptive routing under failures",
    "failed switches, %",
    "what a server sends, of a cable's rate",
)
def adaptive(settings: Settings) -> Made:
    """Fail servers, then switches, of three networks whose routing adapts to traffic."""
    networks = QUICK_NETWORKS if settings.quick else NETWORKS
    failing = runs_of(
        settings,
        networks,
        SHARES,
        simulation_run_count(settings, RUNS, 2),
        judged=lambda name, _, share: name == FICONN and share == LAST,
        more={case: simulation_run_count(settings, runs, 2) for case, runs in MORE_RUNS.items()},
        measure=measure,
    )
    runs = {(one.series, one.kind, one.share): one.runs for one in failing}
    claims = [
        *(_throughput_claim(name, runs[name, SWITCHES, LAST]) for name in (DPILLAR, BCUBE)),
        *(_reachability_claim(runs[FICONN, kind, LAST], kind) for kind in (SERVERS, SWITCHES)),
    ]
    servers = {name: parse(spec).servers for name, (spec, *_) in networks.items()}
    points = by_series(
        routed.throughput(1 / servers[one.series]) for one in failing for routed in _by_routing(one)
    )
    whole = [one for one in points if one.x == 0 and one.series.endswith(SERVERS)]
    ends = [*whole, *(one for one in points if one.x == LAST * 100)]
    last = [routed for one in failing if one.share == LAST for routed in _by_routing(one)]
    return Made(
        [one for one in points if SWITCHES in one.series],
        claims,
        rows=[*(claim.row for claim in claims), *ends, *(one.lost("pairs") for one in last)],
        notes=_notes(networks, settings),
    )


def _by_routing(one: Failing) -> Iterator[Failing]:
    """Yield the results of adaptive and of plain routing."""
    for label, prefix in zip(LABELS[one.series], ("", "plain_"), strict=True):
        found = [{key: run[prefix + key] for key in ("abt", "lost")} for run in one.runs.found]
        runs = Runs(one.runs.case, found)
        yield one._replace(series=f"{one.series}, {label}", runs=runs)


def _throughput_claim(name: str, runs: Runs) -> Claim:
    """Claim that probing for available bandwidth increases the throughput."""
    times = values_by_run(truediv, (runs, "abt"), (runs, "plain_abt"))
    row = point(f"{name}: throughput, of that of random paths", f"{LAST:.0%} of switches", times)
    return Claim(row, 0.0, at_least=True, wanted=1.0)


def _reachability_claim(runs: Runs, kind: str) -> Claim:
    """Claim that TAR cuts off no more pairs than TOR."""
    more = [lost * 100 for lost in values_by_run(sub, (runs, "lost"), (runs, "plain_lost"))]
    row = point("FiConn: pairs cut off by TAR, above TOR's, %", f"{LAST:.0%} of {kind}", more)
    return Claim(row, 0.0, at_most=True, wanted=0.0)


def _notes(networks: dict[str, tuple[str, str, str]], settings: Settings) -> tuple[str, ...]:
    compared = [
        f"{name}: {spec} ({parse(spec).servers} servers), {routing} and {plain}"
        for name, (spec, routing, plain) in networks.items()
    ]
    most = ", ".join(
        f"{simulation_run_count(settings, runs, 2)} of {name} with {share:.0%} of the {kind} failed"
        for (name, kind, share), runs in MORE_RUNS.items()
    )
    return (
        "; ".join(compared) + ".",
        f"Mean of {simulation_run_count(settings, RUNS, 2)} runs where a verdict depends on it "
        f"({most}), of {simulation_run_count(settings, CURVE_RUNS, 2)} elsewhere, "
        f"and its 95 % confidence interval, seed {settings.seed}. "
        "Aggregate bottleneck throughput of all-to-all traffic between working "
        f"servers, after {ROUNDS} rounds of probes. Disconnected pairs send nothing, which leaves "
        "more capacity to TOR's other flows: TAR and TOR are not compared.",
    )
