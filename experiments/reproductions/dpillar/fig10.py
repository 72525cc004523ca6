"""Liao 2012, Fig. 10: how many of the n/2 clockwise disjoint paths of a pair work.

The curves are not printed as numbers. Section 5.4 says that a failed switch does much more than a
failed server, as it has n cables instead of 2.
"""

from __future__ import annotations

from experiments.reporting.reproduced.result import Point, Reproduction, Settings
from experiments.reproductions.shared import dpillar_paths
from experiments.reproductions.shared.sampled import Claim, find, verdict

ABOUT = "disjoint paths of DPillar that work while servers or switches fail (Liao 2012)"
LIVE = False

SPEC, PAPERS_PATHS = "dpillar,16,3", 8.0  # n / 2
SERVERS, SWITCHES = "servers failed", "switches failed"
COUNTS = {SERVERS: (0, 20, 100, 200, 300, 400, 500), SWITCHES: (0, 5, 10, 15, 20, 30, 40, 50)}
QUICK_COUNTS = {SERVERS: (0, 20, 300), SWITCHES: (0, 20)}
EQUAL_FAILURES = 20
# A network of 1536 servers: a few pairs share a switch, and these have fewer paths.
ALL = 0.1
MUCH_LARGER = 4.0  # times as many paths lost; for how much a switch is more than a server, n / 2


def reproduce(settings: Settings) -> Reproduction:
    """Fail servers, and then switches."""
    counts = QUICK_COUNTS if settings.quick else COUNTS
    cases = [(SPEC, many, 0) for many in counts[SERVERS]]
    cases += [(SPEC, 0, many) for many in counts[SWITCHES]]
    runs = dpillar_paths.measured(settings, cases)
    points = [
        one.point(name, many, lambda found: found.mp_available, PAPERS_PATHS if not many else None)
        for one, (name, many) in zip(
            runs, ((name, many) for name in counts for many in counts[name]), strict=True
        )
    ]
    claims = [Claim(find(points, name, 0), ALL) for name in counts]
    word, reasons = verdict([*claims, Claim(_impact(points), 0.0, at_most=True)])
    return Reproduction(
        name="dpillar-fig10",
        title="Disjoint paths that work, DPillar (16, 3)",
        x_label="number of failures",
        y_label="clockwise paths of a pair",
        points=tuple(points),
        rows=(*(claim.row for claim in claims), _impact(points)),
        verdict=word,
        reasons=reasons,
        notes=(
            *dpillar_paths.notes(settings),
            f'For "much larger" a server may cost at most 1/{MUCH_LARGER:g} of what a switch does.',
        ),
    )


def _impact(points: list[Point]) -> Point:
    """Return what failed servers cost of what as many failed switches cost."""

    def lost(name: str) -> float:
        left = find(points, name, EQUAL_FAILURES).ours
        every = find(points, name, 0).ours
        assert left is not None and every is not None
        return every - left

    what = f"paths lost by {EQUAL_FAILURES} failures, of those by as many switches"
    return Point(SERVERS, what, lost(SERVERS) / lost(SWITCHES), 1 / MUCH_LARGER)
