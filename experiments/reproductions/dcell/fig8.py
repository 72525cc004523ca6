"""Guo 2008, Fig. 8: path failure ratio of DFR and shortest paths against link failures.

The curves are not printed as numbers. Section 6.1 says that shortest paths fail almost never, that
DFR's ratio grows with the links', and that below 5 % it is still very close.
"""

from __future__ import annotations

from experiments.reporting.reproduced.result import Point, Reproduction, Settings
from experiments.reproductions.shared import dcell_failures as failures
from experiments.reproductions.shared.sampled import Claim, find, less, verdict, with_paper

ABOUT = "path failures of DFR and shortest paths while links fail (Guo 2008)"
LIVE = False

# Section 6.1, in percent.
PAPERS: dict[tuple[str, float | str], float] = {("SPF, n = 4", 20): 0.0}
ALMOST_NONE, VERY_CLOSE = 0.5, 1.0


def reproduce(settings: Settings) -> Reproduction:
    """Fail cables of both networks, those to switches included."""
    runs, points = failures.lost_by_share(settings, failures.CABLES)
    points = with_paper(points, PAPERS)
    claims = _claims(points)
    word, reasons = verdict(claims)
    return Reproduction(
        name="dcell-fig8",
        title="Path failures in a DCell_3 while links fail",
        x_label="failed links, %",
        y_label="path failure ratio, %",
        points=tuple(points),
        rows=tuple(claim.row for claim in claims),
        verdict=word,
        reasons=reasons,
        notes=(*failures.notes(settings, runs), "The link of a server to its switch may fail too."),
    )


def _claims(points: list[Point]) -> list[Claim]:
    """Return what section 6.1 says."""
    pair = find(points, "DFR, n = 4", 4), find(points, "SPF, n = 4", 4)
    return [
        *(Claim(find(points, *key), ALMOST_NONE) for key in PAPERS),
        Claim(less(*pair, "DFR above SPF, n = 4", 0.0), VERY_CLOSE),
    ]
