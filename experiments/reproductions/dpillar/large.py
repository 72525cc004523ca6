"""Beyond Liao 2012: the routing failures of Fig. 11 and 12 in DPillars of up to 40 million servers.

The paper simulates up to 82,944 servers, and is about millions. Sampled pairs answer for (48, 5),
as nothing of the network is stored but which servers and switches have failed. What is compared is
what section 5.4 says of (16, 3): no routing failures of MP while 20 % of the servers have failed.
"""

from __future__ import annotations

from dataclasses import replace

from experiments.reporting.reproduced.result import Point, Reproduction, Settings
from experiments.reproductions.shared import dpillar_paths
from experiments.reproductions.shared.dpillar_paths import Runs
from experiments.reproductions.shared.sampled import Claim, by_series, verdict

ABOUT = "DPillar's path lengths and routing failures up to 40 million servers"
LIVE = False

NETWORKS = ("dpillar,16,3", "dpillar,24,4", "dpillar,48,4", "dpillar,48,5")
QUICK_NETWORKS = NETWORKS[:2]
RUNS = 5
# What fails, as in section 5.4: the share of servers, and that of switches.
NONE = "no failures"
SERVERS = "20 % of servers failed"
SHARES = {NONE: (0.0, 0.0), SERVERS: (0.2, 0.0), "10 % of switches failed": (0.0, 0.1)}
CUT_OFF, MP = dpillar_paths.SERIES[-1], dpillar_paths.SERIES[2]
PAPERS_LOST, NEAR = 0.0, 0.5  # percent of pairs


def reproduce(settings: Settings) -> Reproduction:
    """Sample pairs in ever larger networks, without failures and with them."""
    networks = QUICK_NETWORKS if settings.quick else NETWORKS
    kinds = [(spec, what) for spec in networks for what in SHARES]
    runs = dpillar_paths.measured(settings, [_case(*kind) for kind in kinds], RUNS)
    points, rows, claims = [], [], []
    for (spec, what), one in zip(kinds, runs, strict=True):
        servers = dpillar_paths.network(spec).servers
        name = f"{dpillar_paths.label(spec)}: {servers} servers"
        if what == NONE:
            rows += _lengths(one, name)
            continue
        for lost in dpillar_paths.failing([one], [servers]):
            if lost.series == CUT_OFF:
                continue
            of_paper = PAPERS_LOST if (what, lost.series) == (SERVERS, MP) else None
            row = replace(lost, series=name, x=f"{what}: lost by {lost.series}, %", paper=of_paper)
            rows.append(row)
            claims += [] if of_paper is None else [Claim(row, NEAR)]
            points.append(replace(lost, series=f"{lost.series}, {what}"))
    word, reasons = verdict(claims)
    return Reproduction(
        name="dpillar-large",
        title="Routing failures in ever larger DPillars",
        x_label="servers",
        y_label="pairs without a working path, %",
        points=tuple(by_series(points)),
        rows=tuple(rows),
        verdict=word,
        reasons=reasons,
        notes=(*dpillar_paths.notes(settings, RUNS), dpillar_paths.DIRECTIONS),
        log_x=True,
    )


def _case(spec: str, what: str) -> tuple[str, int, int]:
    dpillar, (servers, switches) = dpillar_paths.network(spec), SHARES[what]
    return spec, round(servers * dpillar.servers), round(switches * dpillar.switches)


def _lengths(runs: Runs, name: str) -> list[Point]:
    return [
        runs.point(name, "hops of SP", lambda found: found.sp_hops),
        runs.point(name, "hops of MP", lambda found: found.mp_hops),
    ]
