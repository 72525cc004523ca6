"""Liao 2012, Fig. 11: pairs of servers that find no working path, against server failures.

The curves are not printed as numbers. Section 5.4 gives 45 % for SP and none for MP at 300 failed
servers of 1536, and about 0.1 % for MP at 500. It does not say whether MP may use the paths of one
direction or of both.
"""

from __future__ import annotations

from experiments.reporting.reproduced.result import AGREES, Reproduction, Settings
from experiments.reproductions.shared import dpillar_paths
from experiments.reproductions.shared.sampled import Claim, find, verdict, with_paper

ABOUT = "routing failures of DPillar while servers fail (Liao 2012)"
LIVE = False

SPEC = "dpillar,16,3"
COUNTS, QUICK_COUNTS = tuple(range(50, 501, 50)), (100, 300, 500)
SP, CLOCKWISE, BOTH = dpillar_paths.SERIES[:3]
# Section 5.4, in percent.
PAPER: dict[tuple[str, float | str], float] = {
    (SP, 300): 45.0,
    (CLOCKWISE, 300): 0.0,
    (CLOCKWISE, 500): 0.1,
}
PAPER |= {(BOTH, many): value for (name, many), value in PAPER.items() if name == CLOCKWISE}
NEAR_SP, NEAR_MP = 3.0, 0.5  # percent


def reproduce(settings: Settings) -> Reproduction:
    """Fail more and more servers."""
    counts = QUICK_COUNTS if settings.quick else COUNTS
    runs = dpillar_paths.measured(settings, [(SPEC, many, 0) for many in counts])
    points = with_paper(dpillar_paths.failing(runs, counts), PAPER)
    claims = [Claim(find(points, *key), NEAR_SP if key[0] == SP else NEAR_MP) for key in PAPER]
    word, reasons = verdict(claim for claim in claims if claim.row.series != CLOCKWISE)
    return Reproduction(
        name="dpillar-fig11",
        title="DPillar (16, 3) while servers fail",
        x_label="failed servers of 1536",
        y_label="pairs without a working path, %",
        points=tuple(points),
        rows=tuple(claim.row for claim in claims),
        verdict=word,
        reasons=reasons if word == AGREES else (*reasons, _WHY),
        notes=(*dpillar_paths.notes(settings), dpillar_paths.DIRECTIONS),
    )


_WHY = (
    "The paper's 0.1 % is less than its own Fig. 8 allows: a path of 5.2 hops has 4.2 servers on "
    "the way, and works with probability 0.19 when a third of them has failed; all 16 paths of a "
    "pair fail together more often than in one of 100 cases."
)
