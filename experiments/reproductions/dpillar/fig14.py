"""Liao 2012, Fig. 14: mean forwarding load while more servers send to one another.

The curve is not printed as numbers. Section 5.5 gives 5 flows a server where 3 % of the servers
take part, and 45 where 9 % do.
"""

from __future__ import annotations

from experiments.reporting.reproduced.result import Reproduction, Settings
from experiments.reproductions.shared import dpillar_load, dpillar_paths
from experiments.reproductions.shared.dpillar_load import ROUTINGS, Task, mean, measure
from experiments.reproductions.shared.sampled import Claim, find, point, verdict
from experiments.reproductions.shared.sweep import swept

ABOUT = "flows that DPillar's servers forward while more take part (Liao 2012)"
LIVE = False

SPEC = "dpillar,16,3"
PERCENT, QUICK_PERCENT = tuple(range(1, 10)), (1, 3, 9)
# Section 5.5: flows, by percentage of participants; and how near ours are to be.
PAPER = {3: (5.0, 0.5), 9: (45.0, 3.0)}


def reproduce(settings: Settings) -> Reproduction:
    """Let more and more servers take part."""
    percent = QUICK_PERCENT if settings.quick else PERCENT
    count = dpillar_paths.repeats(settings)
    cases = [(name, share) for name in reversed(ROUTINGS) for share in percent]
    tasks = [
        Task(SPEC, ROUTINGS[name], share / 100, settings.seed, run)
        for name, share in cases
        for run in range(count)
    ]
    found = swept(settings, measure, tasks)
    points = [
        point(name, share, [mean(servers) for servers in found[i * count :][:count]], paper)
        for i, (name, share) in enumerate(cases)
        for paper in [PAPER[share][0] if name == "MP" and share in PAPER else None]
    ]
    claims = [Claim(find(points, "MP", share), near) for share, (_, near) in PAPER.items()]
    word, reasons = verdict(claims)
    return Reproduction(
        name="dpillar-fig14",
        title="Forwarding load of DPillar (16, 3)",
        x_label="servers that take part, %",
        y_label="flows forwarded by a server",
        points=tuple(points),
        rows=tuple(claim.row for claim in claims),
        verdict=word,
        reasons=reasons,
        notes=(
            f"Mean of {count} runs and its 95 % confidence interval, seed {settings.seed}. "
            f"{dpillar_load.NOTE} SP is not in the paper's figure.",
        ),
    )
