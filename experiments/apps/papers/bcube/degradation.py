"""Guo 2009, Fig. 8: all-to-all throughput of 2048 servers while servers or switches fail.

The curves are not printed as numbers. Section 6 gives the throughput without failures, three values
of the fat-tree and one of BCube under switch failures, and the busiest links of DCell.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy

from pillarbox.experiments.apps.papers.shared import degradation
from pillarbox.experiments.apps.papers.shared.degradation import (
    BCUBE,
    DCELL,
    FATTREE,
    SERVERS,
    SWITCHES,
    Case,
)
from pillarbox.experiments.apps.papers.shared.draws import simulation_run_count
from pillarbox.experiments.apps.papers.shared.figure import (
    Claim,
    Made,
    Papers,
    figure,
    with_paper_values,
)
from pillarbox.experiments.models.fluid.directed_links import link_count
from pillarbox.experiments.models.fluid.rates import link_loads
from pillarbox.experiments.models.simulator.flow_arrays import all_to_all
from pillarbox.experiments.models.simulator.paths import routes
from pillarbox.experiments.runs.reporting.reproduced.result import Point, Settings
from pillarbox.topos.base.spec import parse

NETWORK = {BCUBE: ("bcube,8,3,servers=2048", "bsr")}
DCELLS = {DCELL: ("dcell,8,2,servers=2048", "dfr")}
FATTREES = {FATTREE: ("fattree,8,levels=5", "any")}
PLAIN = "BCube, plain search"
PLAINLY = {PLAIN: ("bcube,8,3,servers=2048", "bsr-plain")}
SHARES = (0.0, 0.02, 0.06, 0.12, 0.2)
QUICK_SHARES = (0.0, 0.2)
LAST = SHARES[-1]
# Number of simulation runs of the cases for which the paper gives a number. The busiest link
# decides, and it depends on a few switches: single draws differ widely, and fewer runs would leave
# the verdict to chance.
RUNS, QUICK_RUNS = 5, 1
MORE_RUNS = {
    (BCUBE, SWITCHES, 0.2): 12,
    (FATTREE, SWITCHES, 0.06): 36,
    (FATTREE, SWITCHES, 0.2): 100,
}
# Paper's values (section 6): throughput in Gbit/s by series and failed percentage.
PAPER: Papers = {
    (f"{BCUBE}, {SERVERS}", 0.0): 2006,
    (f"{BCUBE}, {SWITCHES}", 0.0): 2006,
    (f"{BCUBE}, {SWITCHES}", 20.0): 765,
    (f"{PLAIN}, {SWITCHES}", 20.0): 765,
    (f"{FATTREE}, {SERVERS}", 0.0): 1895,
    (f"{FATTREE}, {SWITCHES}", 0.0): 1895,
    (f"{FATTREE}, {SWITCHES}", 2.0): 1145,
    (f"{FATTREE}, {SWITCHES}", 6.0): 704,
    (f"{FATTREE}, {SWITCHES}", 20.0): 267,
}
PAPERS_ROUTED = 298.0  # paper's throughput of DCell in links without failures, by DCellRouting
PAPERS_BUSIEST = (14047.0, 9280.0, 5184.0)  # flows on the busiest links of levels 0, 1 and 2
# Tolerances relative to the paper's value: without failures, and with drawn failures, where the
# busiest of thousands of links varies from one draw to the next.
NEAR, NEAR_FAILED = 0.03, 0.2
# This value depends on the order of the breadth-first search: the plain search's is compared.
ROUTERS = (f"{BCUBE}, {SWITCHES}", 20.0)
READING = (
    "Interpretation that is compared with 765: the plain search. The paper does not specify the "
    "order in which BSR's breadth-first search tries neighbours. With a plain search, digit 0 "
    "first, replacement paths share links; the routers here begin after a server's own digit, "
    "which gives a higher throughput."
)


@figure(
    "bcube-fig8",
    "all-to-all throughput while servers or switches fail (Guo 2009)",
    "All-to-all of 2048 servers under failures",
    "failed servers or switches, %",
    "aggregate bottleneck throughput, Gbit/s",
)
def fig8(settings: Settings) -> Made:
    """Reproduce Guo 2009, Fig. 8: fail servers, then switches, of BCube, DCell and fat-tree."""
    shares = QUICK_SHARES if settings.quick else SHARES
    count = simulation_run_count(settings, RUNS, QUICK_RUNS)
    more = {
        case: simulation_run_count(settings, runs, QUICK_RUNS) for case, runs in MORE_RUNS.items()
    }
    networks = NETWORK | DCELLS | FATTREES
    runs = degradation.runs_of(
        settings, networks, shares, count, judged=_has_paper_value, more=more
    )
    plain = degradation.runs_of(settings, PLAINLY, (LAST,), count, (SWITCHES,))
    points = with_paper_values([one.throughput() for one in (*runs, *plain)], PAPER)
    claims = [*_throughput_claims(points), *_dcell_routing_claims()]
    routers = [one for one in points if (one.series, one.x) == ROUTERS]
    lost = [one.lost() for one in runs if one.share == LAST]
    return Made(
        points,
        claims,
        rows=(*(claim.row for claim in claims), *routers, *lost),
        notes=(READING, *_notes(settings, count, more)),
    )


def _has_paper_value(series: str, kind: str, share: float) -> bool:
    return (f"{series}, {kind}", share * 100) in PAPER


def _throughput_claims(points: list[Point]) -> list[Claim]:
    """Return the claims on the points for which the paper gives a throughput."""
    return [
        Claim(one, one.paper * (NEAR_FAILED if one.x else NEAR))
        for one in points
        # Without failures, the curves for failed servers and for failed switches share a point.
        if one.paper
        and (one.x != 0 or one.series.endswith(SERVERS))
        and (one.series, one.x) != ROUTERS
    ]


def _dcell_routing_claims() -> list[Claim]:
    """Return claims on the partial DCell's throughput and busiest links by DCellRouting."""
    dcell = parse(DCELLS[DCELL][0])
    found = routes(dcell, "dcell", *all_to_all(numpy.arange(dcell.servers)))
    loads = link_loads(found, None, link_count(dcell))
    by_level = loads[: dcell.servers * dcell.ports].reshape(-1, dcell.ports).max(axis=0)
    total = Point(DCELL, "no DFR", float(found.flows / loads.max()), PAPERS_ROUTED)
    return [
        Claim(total, 1.0),
        *(
            Claim(Point(f"{DCELL}, flows on a link", f"level {level}", float(flows), paper), 0.5)
            for level, (flows, paper) in enumerate(zip(by_level, PAPERS_BUSIEST, strict=True))
        ),
    ]


def _notes(settings: Settings, count: int, more: Mapping[Case, int]) -> tuple[str, ...]:
    most = ", ".join(
        f"{runs} of {name} with {share:.0%} of the {kind} failed"
        for (name, kind, share), runs in more.items()
    )
    return (
        f"Links of 1 Gbit/s. Mean of {count} draws of failures where the paper has a number ("
        f"{most}), of "
        f"{min(count, degradation.CURVE_RUNS)} elsewhere, and its 95 % confidence interval, seed "
        f"{settings.seed}. Every working server sends to every other; disconnected flows are not "
        "counted, their share is in the table.",
        "BCube: each flow takes one of its parallel paths, including replacements, at random, not "
        "the least loaded. Fat-tree: a random working equal-cost path, also without failures. "
        "DCell: DFR takes shortest paths inside DCell_1, so its throughput exceeds that of "
        "DCellRouting, which the paper's numbers are of.",
    )
