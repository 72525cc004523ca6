"""No paper's: six networks of about 2000 servers while servers or switches fail.

Every server that works sends to every other. The networks do not have quite the same number of
servers, and cost differently: what a server sends compares, and what a thousand dollars carry. See
six_equal_cost.py for networks of the same price.
"""

from __future__ import annotations

from experiments.reporting.reproduced.result import AGREES, DIFFERS, Reproduction, Settings
from experiments.reproductions.shared import degradation, six
from experiments.reproductions.shared.degradation import SERVERS, SWITCHES
from experiments.reproductions.shared.six import BCUBE, DCELL, FATTREE

ABOUT = "six networks of about 2000 servers while servers or switches fail (no paper's)"
LIVE = False

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
RUNS, QUICK_RUNS = 5, 2


def reproduce(settings: Settings) -> Reproduction:
    """Fail servers, then switches, of all six."""
    networks = QUICK_NETWORKS if settings.quick else NETWORKS
    count = settings.repeats or (QUICK_RUNS if settings.quick else RUNS)
    runs = degradation.measured(settings, networks, SHARES, count)
    points = [six.per_server(networks, one) for one in runs]
    whole = [one for one in runs if one.share == 0 and one.kind == SERVERS]
    ends = [one for one in runs if one.share == LAST]
    ahead = six.is_ahead(points, LAST * 100)
    return Reproduction(
        name="six-degradation",
        title="All-to-all in six networks under failures",
        x_label="failed switches, %",
        y_label="what a server sends, of a cable's rate",
        # Twelve curves would be too many: those of failed servers are told by their ends.
        points=tuple(one for one in points if one.series.endswith(SWITCHES)),
        rows=(
            *(six.per_server(networks, one) for one in (*whole, *ends)),
            *(six.named(six.per_price(networks, one), "ABT per 1000 $") for one in (*whole, *ends)),
            *(one.lost() for one in ends),
        ),
        verdict=AGREES if ahead else DIFFERS,
        reasons=(
            f"{BCUBE} is {'' if ahead else 'not '}ahead of {FATTREE} and {DCELL} with "
            f"{LAST:.0%} of the switches failed, as Guo 2009, section 6, has it.",
        ),
        notes=six.notes(networks, settings.seed, count),
    )
