"""Guo 2008, Table 2: average path lengths of DFR and shortest paths around failures, n = 4."""

from __future__ import annotations

from experiments.reporting.reproduced.result import Reproduction, Settings
from experiments.reproductions.shared import dcell_failures as failures
from experiments.reproductions.shared.sampled import Claim, by_series, verdict, with_paper

ABOUT = "path lengths of DFR and shortest paths around failures (Guo 2008)"
LIVE = False

NETWORK = failures.NETWORKS["n = 4"]
PERCENT = (2, 4, 8, 12, 20)
NAMES = {failures.SERVERS: "node", failures.RACKS: "rack", failures.CABLES: "link"}
# By kind of failure, DFR's and SPF's, at these percentages.
PAPERS = {
    "node": ((11.60, 12.00, 12.78, 13.60, 16.05), (10.00, 10.16, 10.32, 10.50, 11.01)),
    "rack": ((11.37, 11.55, 11.74, 11.96, 12.50), (10.00, 10.01, 10.09, 10.14, 10.32)),
    "link": ((11.72, 12.40, 13.73, 14.97, 17.90), (10.14, 10.26, 10.55, 10.91, 11.55)),
}
NEAR_HOPS = 0.3
MOST_DEVIATION = 5.0  # of DFR's lengths, up to 20 % (section 6.1)


def reproduce(settings: Settings) -> Reproduction:
    """Fail servers, racks and cables."""
    cases = [(NETWORK, kind, percent / 100) for kind in NAMES for percent in PERCENT]
    runs = failures.measured(settings, cases)
    points = []
    for one in runs:
        name, x = NAMES[one.kind], round(one.share * 100)
        points.append(one.point(f"{name} failures, DFR", x, lambda found: found.dfr_hops))
        points.append(one.point(f"{name} failures, SPF", x, lambda found: found.spf_hops))
    points = with_paper(by_series(points), _papers())
    worst = next(one for one in runs if (one.kind, one.share) == (failures.SERVERS, 0.2))
    spread = worst.point("node failures, DFR's deviation", 20, lambda found: found.dfr_deviation)
    rows = [*points, *with_paper([spread], {(spread.series, 20): MOST_DEVIATION})]
    word, reasons = verdict(
        [Claim(row, NEAR_HOPS) for row in rows[:-1]] + [Claim(rows[-1], 0.0, at_most=True)]
    )
    return Reproduction(
        name="dcell-table2",
        title="Average path lengths in a DCell_3, n = 4",
        x_label="failed, %",
        y_label="hops",
        kind="table",
        points=tuple(rows),
        verdict=word,
        reasons=reasons,
        notes=(*failures.notes(settings, runs), f"Agreement is within {NEAR_HOPS} hops."),
    )


def _papers() -> dict[tuple[str, float | str], float]:
    """Return the table by series and percentage."""
    return {
        (f"{kind} failures, {routing}", percent): value
        for kind, rows in PAPERS.items()
        for routing, values in zip(("DFR", "SPF"), rows, strict=True)
        for percent, value in zip(PERCENT, values, strict=True)
    }
