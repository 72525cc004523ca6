"""No paper's: six networks of about the same price while servers or switches fail.

For some 22,500 dollars of switches, cables and network cards, one network joins 500 servers and
another 1800. What is left of the difference in price is divided out: a thousand dollars of each
network compare. See six_degradation.py for networks of the same size.
"""

from __future__ import annotations

from experiments.reporting.reproduced.result import AGREES, DIFFERS, Point, Reproduction, Settings
from experiments.reproductions.shared import degradation, six
from experiments.reproductions.shared.degradation import SERVERS, SWITCHES
from experiments.reproductions.shared.six import BCUBE, DCELL, FATTREE

ABOUT = "six networks of the same price while servers or switches fail (no paper's)"
LIVE = False

# Sizes come in large steps: no network's price is farther from this than the share says.
BUDGET_USD, OFF = 22_500.0, 0.15
NETWORKS = {
    "DPillar": ("dpillar,14,3", "mp-both"),
    DCELL: ("dcell,8,2,servers=792", "dfr"),
    BCUBE: ("bcube,8,2", "bsr"),
    "FiConn": ("ficonn,12,2", "tor"),
    "tree": ("tree,47,34", "bridge"),
    FATTREE: ("fattree,8,levels=4", "any"),
}
SHARES, QUICK_SHARES = (0.0, 0.02, 0.05, 0.1, 0.2), (0.0, 0.2)
LAST = SHARES[-1]
RUNS, QUICK_RUNS = 5, 1


def reproduce(settings: Settings) -> Reproduction:
    """Fail servers, then switches, of all six."""
    shares = QUICK_SHARES if settings.quick else SHARES
    count = settings.repeats or (QUICK_RUNS if settings.quick else RUNS)
    runs = degradation.measured(settings, NETWORKS, shares, count)
    points = [six.per_price(NETWORKS, one) for one in runs]
    whole = [one for one in runs if one.share == 0 and one.kind == SERVERS]
    ends = [one for one in runs if one.share == LAST]
    ahead = six.is_ahead(points, LAST * 100)
    return Reproduction(
        name="six-equal-cost",
        title="All-to-all for the same price under failures",
        x_label="failed switches, %",
        y_label="throughput per 1000 dollars, in links",
        points=tuple(one for one in points if one.series.endswith(SWITCHES)),
        rows=(
            *(Point(name, "servers", six.servers(NETWORKS, name)) for name in NETWORKS),
            *(Point(name, "price, $", six.cost_usd(NETWORKS, name)) for name in NETWORKS),
            *(six.named(six.per_price(NETWORKS, one), "per 1000 $") for one in (*whole, *ends)),
            *(six.named(six.per_server(NETWORKS, one), "a server") for one in (*whole, *ends)),
            *(one.lost() for one in ends),
        ),
        verdict=AGREES if ahead else DIFFERS,
        reasons=(
            f"For the same price, {BCUBE} is {'' if ahead else 'not '}ahead of {FATTREE} and "
            f"{DCELL} with {LAST:.0%} of the switches failed; Guo 2009, section 6, has it ahead "
            "for the same number of servers.",
        ),
        notes=six.notes(NETWORKS, settings.seed, count),
    )
