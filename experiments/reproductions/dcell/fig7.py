"""Guo 2008, Fig. 7: path failure ratio of DFR and shortest paths against node failures.

The curves are not printed as numbers. Section 6.1 gives DFR's ratio at 20 % for n = 4 (22.3 %, and
20 % for any routing), says that below 10 % both are almost the same, and that DFR does better with
a larger n.
"""

from __future__ import annotations

from experiments.reporting.reproduced.result import Point, Reproduction, Settings
from experiments.reproductions.shared import dcell_failures as failures
from experiments.reproductions.shared.sampled import Claim, find, less, verdict, with_paper

ABOUT = "path failures of DFR and shortest paths while servers fail (Guo 2008)"
LIVE = False

# Section 6.1, in percent.
PAPERS: dict[tuple[str, float | str], float] = {("DFR, n = 4", 20): 22.3, ("SPF, n = 4", 20): 20.0}
NEAR = {"DFR, n = 4": 1.0, "SPF, n = 4": 0.1}  # of all packets, in percent
ALMOST_THE_SAME = 0.5


def reproduce(settings: Settings) -> Reproduction:
    """Fail servers of both networks."""
    runs, points = failures.lost_by_share(settings, failures.SERVERS)
    points = with_paper(points, PAPERS)
    claims = _claims(points)
    word, reasons = verdict(claims)
    return Reproduction(
        name="dcell-fig7",
        title="Path failures in a DCell_3 while servers fail",
        x_label="failed servers, %",
        y_label="path failure ratio, %",
        points=tuple(points),
        rows=tuple(claim.row for claim in claims),
        verdict=word,
        reasons=reasons,
        notes=tuple(failures.notes(settings, runs)),
    )


def _claims(points: list[Point]) -> list[Claim]:
    """Return what section 6.1 says, as far as it was measured."""
    claims = [Claim(find(points, series, x), NEAR[series]) for series, x in PAPERS]
    pair = find(points, "DFR, n = 4", 8), find(points, "SPF, n = 4", 8)
    claims.append(Claim(less(*pair, "DFR above SPF, n = 4", 0.0), ALMOST_THE_SAME))
    if any(one.series == "DFR, n = 5" for one in points):
        pair = find(points, "DFR, n = 5", 20), find(points, "DFR, n = 4", 20)
        claims.append(Claim(less(*pair, "DFR, n = 5 above n = 4", 0.0), 0.0, at_most=True))
    return claims
