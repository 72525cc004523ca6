"""Liao 2012, Fig. 9: average length of DPillarMP's working paths against server failures.

The curves are not printed as numbers. Section 5.3.2 says that the length stays proportional to the
number of columns, and decreases slightly as more servers fail: short paths fail less.
"""

from __future__ import annotations

from experiments.reporting.reproduced.result import Point, Reproduction, Settings
from experiments.reproductions.shared import dpillar_paths
from experiments.reproductions.shared.sampled import Claim, find, verdict

ABOUT = "length of DPillar's working paths while servers fail (Liao 2012)"
LIVE = False

NETWORKS = ("dpillar,16,3", "dpillar,24,3", "dpillar,16,4", "dpillar,24,4")
QUICK_NETWORKS = ("dpillar,16,3", "dpillar,16,4")
PERCENT = (0, 5, 10, 15, 20)
QUICK_PERCENT = (0, 20)
RUNS = 10
SAME = 0.1  # of lengths a column, which are to be proportional


def reproduce(settings: Settings) -> Reproduction:
    """Fail servers of all networks."""
    networks = QUICK_NETWORKS if settings.quick else NETWORKS
    percent = QUICK_PERCENT if settings.quick else PERCENT
    cases = [
        (spec, round(dpillar_paths.network(spec).servers * share / 100), 0)
        for spec in networks
        for share in percent
    ]
    shares = [share for _ in networks for share in percent]
    runs = dpillar_paths.measured(settings, cases, RUNS)
    points = [
        one.point(dpillar_paths.label(one.case.network), share, lambda found: found.mp_hops)
        for one, share in zip(runs, shares, strict=True)
    ]
    claims = [*_decreasing(points, networks), *_proportional(points)]
    word, reasons = verdict(claims)
    return Reproduction(
        name="dpillar-fig9",
        title="Lengths of DPillarMP's paths that work",
        x_label="failed servers, %",
        y_label="server-to-server hops",
        points=tuple(points),
        rows=tuple(claim.row for claim in claims),
        verdict=word,
        reasons=reasons,
        notes=(
            *dpillar_paths.notes(settings, RUNS),
            "A random one of a pair's clockwise paths that work; pairs without any do not count. "
            "The paper gives no numbers: what it says of the curves is what is compared.",
        ),
    )


def _decreasing(points: list[Point], networks: tuple[str, ...]) -> list[Claim]:
    """Claim that paths are no longer, and not much shorter, at the most failures than at none."""
    claims = []
    for name in map(dpillar_paths.label, networks):
        ratio = _ratio(find(points, name, PERCENT[-1]), find(points, name, PERCENT[0]))
        row = Point(name, f"length at {PERCENT[-1]} % over that at none", ratio, 1.0)
        claims.append(Claim(row, 0.0, at_most=True))
    return claims


def _proportional(points: list[Point]) -> list[Claim]:
    """Claim that four columns have paths 4/3 as long as three columns."""
    claims = []
    for percent in (PERCENT[0], PERCENT[-1]):
        ratio = _ratio(find(points, "(16, 4)", percent), find(points, "(16, 3)", percent))
        row = Point("(16, 4) over (16, 3)", f"length a column at {percent} %", ratio * 3 / 4, 1.0)
        claims.append(Claim(row, SAME))
    return claims


def _ratio(first: Point, second: Point) -> float:
    assert first.ours is not None and second.ours is not None
    return first.ours / second.ours
