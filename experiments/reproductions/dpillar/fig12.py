"""Liao 2012, Fig. 12: pairs of servers that find no working path, against switch failures.

The curves are not printed as numbers. Section 5.4 gives about 1 % for MP at 20 failed switches of
192. It does not say whether MP may use the paths of one direction or of both.
"""

from __future__ import annotations

from experiments.reporting.reproduced.result import AGREES, Reproduction, Settings
from experiments.reproductions.shared import dpillar_paths
from experiments.reproductions.shared.sampled import Claim, find, verdict, with_paper

ABOUT = "routing failures of DPillar while switches fail (Liao 2012)"
LIVE = False

SPEC = "dpillar,16,3"
COUNTS, QUICK_COUNTS = tuple(range(2, 21, 2)), (4, 20)
_, CLOCKWISE, BOTH, CUT_OFF = dpillar_paths.SERIES
PAPER: dict[tuple[str, float | str], float] = {
    (CLOCKWISE, 20): 1.0,
    (BOTH, 20): 1.0,
}  # section 5.4, in percent
NEAR = 0.5  # percent


def reproduce(settings: Settings) -> Reproduction:
    """Fail more and more switches."""
    counts = QUICK_COUNTS if settings.quick else COUNTS
    runs = dpillar_paths.measured(settings, [(SPEC, 0, many) for many in counts])
    points = with_paper(dpillar_paths.failing(runs, counts), PAPER)
    word, reasons = verdict([Claim(find(points, BOTH, 20), NEAR)])
    least = find(points, CUT_OFF, 20)
    if word != AGREES:
        reasons = (*reasons, _WHY.format(least.ours))
    return Reproduction(
        name="dpillar-fig12",
        title="DPillar (16, 3) while switches fail",
        x_label="failed switches of 192",
        y_label="pairs without a working path, %",
        points=tuple(points),
        rows=(find(points, CLOCKWISE, 20), find(points, BOTH, 20), least),
        verdict=word,
        reasons=reasons,
        notes=(*dpillar_paths.notes(settings), dpillar_paths.DIRECTIONS),
    )


_WHY = (
    "No routing reaches the paper's about 1 % with random pairs: with 20 failed switches, "
    "{:.1f} % of all pairs are parted, nearly all as both switches of one end have failed."
)
