"""What figures of six networks side by side share: their sizes, prices, and who is ahead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from experiments.analysis.comparison.prices import LIAO, bill
from experiments.reporting.reproduced.result import Point
from experiments.reproductions.shared.degradation import SWITCHES, Runs
from experiments.reproductions.shared.sampled import find
from topos.base.spec import parse

BCUBE, FATTREE, DCELL = "BCube", "fat-tree", "DCell"
Networks = Mapping[str, tuple[str, str]]  # the spec and the routing, by what they are called


def servers(networks: Networks, name: str) -> int:
    """Return how many servers a network has."""
    return parse(networks[name][0]).servers


def cost_usd(networks: Networks, name: str) -> float:
    """Return what a network's switches, network cards and cables cost."""
    cost = bill(parse(networks[name][0]), LIAO)
    assert cost.network_usd is not None
    assert cost.nics_usd is not None
    return cost.network_usd + cost.nics_usd


def per_server(networks: Networks, one: Runs) -> Point:
    """Return what a server sends, of a link's rate; failed servers count."""
    return one.throughput(1 / servers(networks, one.series))


def per_price(networks: Networks, one: Runs) -> Point:
    """Return what a thousand dollars carry, in links."""
    return one.throughput(1000 / cost_usd(networks, one.series))


def named(point: Point, what: str) -> Point:
    """Return a point whose series says what it is."""
    return replace(point, series=f"{point.series}: {what}")


def is_ahead(points: Iterable[Point], percent: float) -> bool:
    """Tell whether BCube is ahead of the fat-tree and DCell, as Guo 2009, section 6, has it."""
    points = list(points)
    bcube, *others = (
        find(points, f"{name}, {SWITCHES}", percent).ours or 0.0 for name in (BCUBE, FATTREE, DCELL)
    )
    return bcube > max(others)


def notes(networks: Networks, seed: int, draws: int) -> tuple[str, ...]:
    """Return the sentences on what was compared."""
    told = [
        f"{name}: {spec} ({servers(networks, name)} servers, ${cost_usd(networks, name):,.0f}), "
        f"{routing}"
        for name, (spec, routing) in networks.items()
    ]
    drawn = f"Mean of {draws} draws of failures and its 95 % confidence interval"
    if draws == 1:
        drawn = "One draw of failures"
    return (
        "; ".join(told) + ".",
        f"{drawn}, seed {seed}. Aggregate bottleneck throughput (ABT) of all-to-all traffic "
        "between the servers that work; flows that are cut off are not counted.",
        "FiConn's TOR and the tree know one path for each pair: a failure on it cuts the pair off, "
        "and relieves the others. BCube's and DPillar's flows take a random path of their sets.",
        f"Switches, cables and network cards at the prices of {LIAO.source}; its two ports on "
        "board of each server cost nothing.",
    )
