"""Not from a paper: six networks of the same size or price while servers or switches fail.

Every working server sends to every other. Networks of about 2000 servers have slightly different
numbers of servers and different costs: throughput per server, and per thousand dollars, is
compared. For some 22,500 dollars of switches, cables and network cards, one network connects 500
servers and another 1800: throughput per thousand dollars is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from pillarbox.experiments.apps.papers.shared.degradation import (
    BCUBE,
    CURVE_RUNS,
    DCELL,
    FATTREE,
    SERVERS,
    SWITCHES,
    Failing,
    Networks,
    runs_of,
)
from pillarbox.experiments.apps.papers.shared.draws import simulation_run_count
from pillarbox.experiments.apps.papers.shared.figure import (
    Claim,
    Made,
    figure,
    point,
    quoted,
    verdict,
)
from pillarbox.experiments.models.comparison.prices import LIAO, network_bill
from pillarbox.experiments.runs.reporting.reproduced.result import Point, Settings
from pillarbox.topos.base.spec import parse

SAME_SIZE: Networks = {
    "DPillar": ("dpillar,18,3", "mp-random"),
    DCELL: ("dcell,8,2,servers=2048", "dfr"),
    BCUBE: ("bcube,8,3,servers=2048", "bsr"),
    "FiConn": ("ficonn,12,2", "tor"),
    "tree": ("tree,47,44,servers=2048", "bridge"),
    FATTREE: ("fattree,8,levels=5", "any"),
}
QUICK_SAME_SIZE: Networks = {
    "DPillar": ("dpillar,8,3", "mp-random"),
    DCELL: ("dcell,4,2,servers=200", "dfr"),
    BCUBE: ("bcube,4,3,servers=192", "bsr"),
    "FiConn": ("ficonn,8,2", "tor"),
    "tree": ("tree,12,16", "bridge"),
    FATTREE: ("fattree,4,levels=7", "any"),
}
# Sizes come in large steps: a network's price may differ from the budget by this share.
BUDGET_USD, OFF = 22_500.0, 0.15
SAME_PRICE: Networks = {
    "DPillar": ("dpillar,14,3", "mp-random"),
    DCELL: ("dcell,8,2,servers=792", "dfr"),
    BCUBE: ("bcube,8,2", "bsr"),
    "FiConn": ("ficonn,12,2", "tor"),
    "tree": ("tree,47,34", "bridge"),
    FATTREE: ("fattree,8,levels=4", "any"),
}
SHARES = (0.0, 0.02, 0.12, 0.2)
LAST = SHARES[-1]
RUNS = 5


def server_count(networks: Networks, name: str) -> int:
    """Return the number of servers of a network."""
    return parse(networks[name][0]).servers


def cost_usd(networks: Networks, name: str) -> float:
    """Return the cost of a network's switches, network cards and cables."""
    cost = network_bill(parse(networks[name][0]), LIAO)
    assert cost.network_usd is not None
    assert cost.nics_usd is not None
    return cost.network_usd + cost.nics_usd


def per_server(networks: Networks, name: str) -> float:
    """Return the factor from a network's throughput to that per server, also failed ones."""
    return 1 / server_count(networks, name)


def per_price(networks: Networks, name: str) -> float:
    """Return the factor from a network's throughput to that per thousand dollars."""
    return 1000 / cost_usd(networks, name)


def bcube_ahead_claim(runs: Iterable[Failing], value: Callable[[str], float]) -> Claim:
    """Claim that BCube is ahead of the fat-tree and DCell, as in Guo 2009, section 6.

    `value` returns the factor of a network's throughput.
    """
    last = {one.series: one for one in runs if (one.kind, one.share) == (SWITCHES, LAST)}
    compared = [(last[name].runs, value(name)) for name in (BCUBE, FATTREE, DCELL)]
    times = [
        bcube / max(others)
        for bcube, *others in zip(
            *([found["abt"] * scale for found in runs.found] for runs, scale in compared),
            strict=True,
        )
    ]
    row = point(f"{BCUBE} over the best of {FATTREE} and {DCELL}", f"{LAST:.0%} of switches", times)
    ahead = quoted(
        "only BCube provides high ABT and graceful degradation among the three structures",
        "Guo 2009, 6",
    )
    return Claim(row, at_least=True, wanted=1.0, sentence=ahead)


@figure(
    "six-degradation",
    "six networks of about 2000 servers while servers or switches fail (no paper's)",
    "All-to-all in six networks under failures",
    "failed switches, %",
    "what a server sends, of a cable's rate",
)
def degradation(settings: Settings) -> Made:
    """Fail servers, then switches, of six networks of about 2000 servers."""
    networks = QUICK_SAME_SIZE if settings.quick else SAME_SIZE
    quantities = {"": per_server, ": ABT per 1000 $": per_price}
    return _made(settings, networks, SHARES, quantities)


@figure(
    "six-equal-cost",
    "six networks of the same price while servers or switches fail (no paper's)",
    "All-to-all at equal cost under failures",
    "failed switches, %",
    "throughput per 1000 dollars, in links",
)
def equal_cost(settings: Settings) -> Made:
    """Fail servers, then switches, of six networks of the same price."""
    shares = (SHARES[0], LAST) if settings.quick else SHARES
    about = [
        Point(name, what, of(SAME_PRICE, name))
        for what, of in (("servers", server_count), ("price, $", cost_usd))
        for name in SAME_PRICE
    ]
    quantities = {": per 1000 $": per_price, ": a server": per_server}
    equal = "The paper compares networks of as many servers, this figure networks of equal cost."
    return _made(settings, SAME_PRICE, shares, quantities, about, (equal,))


def _is_compared(series: str, kind: str, share: float) -> bool:
    """Return True for the simulated cases that the claim compares (see `bcube_ahead_claim`)."""
    return series in (BCUBE, FATTREE, DCELL) and (kind, share) == (SWITCHES, LAST)


def _made(
    settings: Settings,
    networks: Networks,
    shares: Sequence[float],
    quantities: Mapping[str, Callable[[Networks, str], float]],
    about: Sequence[Point] = (),
    notes: Sequence[str] = (),
) -> Made:
    """Fail servers and switches; return the curves of the first quantity, and rows of all.

    `quantities` are factors of a network's throughput by what is appended to the series' name.
    """
    draws = simulation_run_count(settings, RUNS, 2)
    runs = runs_of(settings, networks, shares, draws, judged=_is_compared)
    scale = next(iter(quantities.values()))
    points = [one.throughput(scale(networks, one.series)) for one in runs]
    claim = bcube_ahead_claim(runs, lambda name: scale(networks, name))
    whole = [one for one in runs if one.share == 0 and one.kind == SERVERS]
    last = [one for one in runs if one.share == LAST]
    rows = [claim.row, *about]
    for what, factor in quantities.items():
        for one in (*whole, *last):
            row = one.throughput(factor(networks, one.series))
            rows.append(replace(row, series=row.series + what))
    rows += [one.lost() for one in last]
    compared = [
        f"{name}: {spec} ({server_count(networks, name)} servers, "
        f"${cost_usd(networks, name):,.0f}), {routing}"
        for name, (spec, routing) in networks.items()
    ]
    drawn = (
        f"Mean of {draws} draws of failures where three networks are compared, of "
        f"{min(draws, CURVE_RUNS)} elsewhere, and its 95 % confidence interval"
    )
    if draws == 1:
        drawn = "One draw of failures"
    return Made(
        # Twelve curves would be too many: rows give the end points of those of failed servers.
        [one for one in points if one.series.endswith(SWITCHES)],
        rows=rows,
        judged=verdict([claim]),
        notes=(
            *notes,
            "; ".join(compared) + ".",
            f"{drawn}, seed {settings.seed}. Aggregate bottleneck throughput (ABT) of all-to-all "
            "traffic between working servers; disconnected flows are not counted.",
            "FiConn's TOR and the tree have one path per pair: a failure disconnects the pair "
            "and leaves more capacity to others. BCube's and DPillar's flows take a random path "
            "of their sets.",
            f"Switches, cables and network cards at the prices of {LIAO.source}; its two on-board "
            "ports of each server cost nothing.",
        ),
    )
