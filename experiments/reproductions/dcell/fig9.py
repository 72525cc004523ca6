"""Guo 2008, Fig. 9: path failures in a DCell_3 of n = 6 that AddDCell has built up to some share.

Of servers, racks or links, 5 % fail. Section 6.2: shortest paths fail for 5 %, where links fail for
next to none; DFR fails for less than 6 %, where links fail for less than 0.9 %.
"""

from __future__ import annotations

from experiments.reporting.reproduced.result import Point, Reproduction, Settings
from experiments.reproductions.shared import dcell_failures as failures
from experiments.reproductions.shared.sampled import Claim, by_series, verdict
from topos.base.spec import parse
from topos.dcell import DCell

ABOUT = "path failures in a partly built DCell (Guo 2008)"
LIVE = False

NETWORK, QUICK_NETWORK = "dcell,6,3", "dcell,4,3"
DEPLOYED, QUICK_DEPLOYED = range(10, 101, 10), (10, 50, 100)
SHARE, RUNS = 0.05, 5
NAMES = {failures.SERVERS: "nodes", failures.RACKS: "racks", failures.CABLES: "links"}
# Section 6.2, in percent: DFR's at most, and shortest paths'.
PAPERS = {"nodes": (6.0, 5.0), "racks": (6.0, 5.0), "links": (0.9, 0.0)}
NEAR = 0.1
FEW_RACKS = (
    "In a small part a DCell_2 has cables to few others. They begin in its first racks, so that a "
    "rack that fails takes many of them; and DFR, which looks for a proxy in its own rack, seldom "
    "finds one."
)


def reproduce(settings: Settings) -> Reproduction:
    """Fail servers, racks and cables of ever larger parts of a DCell."""
    whole = parse(QUICK_NETWORK if settings.quick else NETWORK)
    assert isinstance(whole, DCell)
    deployed = {
        _partial(whole, percent): percent
        for percent in (QUICK_DEPLOYED if settings.quick else DEPLOYED)
    }
    cases = [(spec, kind, SHARE) for spec in deployed for kind in NAMES]
    runs = failures.measured(settings, cases, RUNS)
    points = by_series(
        point for one in runs for point in one.lost(deployed[one.network], NAMES[one.kind])
    )
    claims = [claim for name in NAMES.values() for claim in _claims(points, name)]
    word, reasons = verdict(claims)
    return Reproduction(
        name="dcell-fig9",
        title=f"Path failures in a part of {whole.spec}, 5 % of which fail",
        x_label="servers deployed, %",
        y_label="path failure ratio, %",
        points=tuple(points),
        rows=tuple(claim.row for claim in claims),
        verdict=word,
        reasons=reasons,
        notes=(*failures.notes(settings, runs), FEW_RACKS),
    )


def _partial(whole: DCell, percent: int) -> str:
    """Return the network of that share, in whole DCell_1s, which are what AddDCell adds."""
    if percent == 100:
        return whole.spec
    units = round(whole.servers // whole.unit * percent / 100)
    return f"{whole.spec},servers={units * whole.unit}"


def _claims(points: list[Point], name: str) -> list[Claim]:
    """Return what the paper says of one kind of failure, whatever the share deployed."""
    most, least = PAPERS[name]
    dfr, spf = (
        [point.ours or 0.0 for point in points if point.series == f"{routing}, {name}"]
        for routing in ("DFR", "SPF")
    )
    return [
        Claim(Point(f"DFR, {name}", "most", max(dfr), most), NEAR, at_most=True),
        Claim(Point(f"SPF, {name}", "most", max(spf), least), NEAR),
        Claim(Point(f"SPF, {name}", "least", min(spf), least), NEAR),
    ]
