"""No paper's: six networks of about 2000 servers while servers or switches fail.

Every server that works sends to every other. The networks do not have quite the same number of
servers, and cost differently: what a server sends compares, and what a thousand dollars carry.
"""

from __future__ import annotations

from experiments.comparison.prices import LIAO, bill
from experiments.reproductions import _degradation
from experiments.reproductions._degradation import SERVERS, SWITCHES, Runs
from experiments.reproductions._sampled import find
from experiments.reproductions.result import AGREES, DIFFERS, Point, Reproduction, Settings
from topos.base.spec import parse

ABOUT = "six networks of about 2000 servers while servers or switches fail (no paper's)"
LIVE = False

BCUBE, FATTREE, DCELL = "BCube", "fat-tree", "DCell"
NETWORKS = {
    "DPillar": ("dpillar,18,3", "mp-both"),
    DCELL: ("dcell,8,2,servers=2048", "dfr"),
    BCUBE: ("bcube,8,3,servers=2048", "bsr"),
    "FiConn": ("ficonn,12,2", "tor"),
    "tree": ("tree,47,44,servers=2048", "bridge"),
    FATTREE: ("fattree,8,levels=5", "any"),
}
QUICK_NETWORKS = {
    "DPillar": ("dpillar,8,3", "mp-both"),
    DCELL: ("dcell,4,2,servers=200", "dfr"),
    BCUBE: ("bcube,4,3,servers=192", "bsr"),
    "FiConn": ("ficonn,8,2", "tor"),
    "tree": ("tree,12,16", "bridge"),
    FATTREE: ("fattree,4,levels=7", "any"),
}
SHARES = (0.0, 0.02, 0.05, 0.1, 0.2)
LAST = SHARES[-1]
RUNS = 2


def reproduce(settings: Settings) -> Reproduction:
    """Fail servers, then switches, of all six."""
    networks = QUICK_NETWORKS if settings.quick else NETWORKS
    count = settings.repeats or RUNS
    runs = _degradation.measured(settings, networks, SHARES, count)
    points = [one.throughput(1 / _servers(networks, one)) for one in runs]
    whole = [one for one in runs if one.share == 0 and one.kind == SERVERS]
    ends = [one for one in runs if one.share == LAST]
    dearer = [_per_price(networks, one) for one in (*whole, *ends)]
    ahead = _is_ahead(points)
    return Reproduction(
        name="six-degradation",
        title="All-to-all in six networks under failures",
        x_label="failed switches, %",
        y_label="what a server sends, of a cable's rate",
        # Twelve curves would be too many: those of failed servers are told by their ends.
        points=tuple(one for one in points if one.series.endswith(SWITCHES)),
        rows=(
            *(
                one
                for one in points
                if one.x == LAST * 100 or (one.x == 0 and one.series.endswith(SERVERS))
            ),
            *dearer,
            *(one.lost() for one in ends),
        ),
        verdict=AGREES if ahead else DIFFERS,
        reasons=(
            f"{BCUBE} is {'' if ahead else 'not '}ahead of {FATTREE} and {DCELL} with "
            f"{LAST:.0%} of the switches failed, as Guo 2009, section 6, has it.",
        ),
        notes=(*_notes(networks, settings, count),),
    )


def _servers(networks: dict[str, tuple[str, str]], one: Runs) -> int:
    return parse(networks[one.series][0]).servers


def _per_price(networks: dict[str, tuple[str, str]], one: Runs) -> Point:
    """Return what a thousand dollars of switches, network cards and cables carry, in links."""
    cost = bill(parse(networks[one.series][0]), LIAO)
    assert cost.network_usd is not None and cost.nics_usd is not None
    found = one.throughput(1000 / (cost.network_usd + cost.nics_usd))
    return Point(
        f"{found.series}: ABT per 1000 $", found.x, found.ours, None, found.low, found.high
    )


def _is_ahead(points: list[Point]) -> bool:
    bcube, *others = (
        find(points, f"{name}, {SWITCHES}", LAST * 100).ours or 0.0
        for name in (BCUBE, FATTREE, DCELL)
    )
    return bcube > max(others)


def _notes(networks: dict[str, tuple[str, str]], settings: Settings, count: int) -> list[str]:
    told = [
        f"{name}: {spec} ({parse(spec).servers} servers), {routing}"
        for name, (spec, routing) in networks.items()
    ]
    return [
        "; ".join(told) + ".",
        f"Mean of {count} draws of failures and its 95 % confidence interval, seed "
        f"{settings.seed}. Aggregate bottleneck throughput, divided by all servers; flows that are "
        "cut off are not counted.",
        "FiConn's TOR and the tree know one path for each pair: a failure on it cuts the pair off, "
        "and relieves the others. BCube's and DPillar's flows take a random path of their sets.",
        f"Prices: {LIAO.source}; its two ports on board of each server cost nothing.",
    ]
