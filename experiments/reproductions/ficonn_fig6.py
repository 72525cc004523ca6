"""Li 2009, Fig. 6: aggregate throughput of TOR and TAR, random traffic.

The curves are not printed as numbers. Section V: after 30 seconds TOR is about 8.5 % above TAR; in
the end within 2.5 %.
"""

from __future__ import annotations

from experiments.reproductions import _ficonn_flows as flows
from experiments.reproductions._sampled import Claim
from experiments.reproductions.result import Reproduction, Settings

ABOUT = "throughput of FiConn's routings, random traffic (Li 2009)"
LIVE = False

PAPERS_FIRST, PAPERS_STEADY = 8.5, 2.5  # percent by which TOR is above TAR
NEAR = 1.0


def reproduce(settings: Settings) -> Reproduction:
    """Let flows between random pairs look for paths."""
    runs = flows.simulated(settings, "random")

    def claims(routing: str) -> list[Claim]:
        return [
            Claim(flows.after(runs, series, value, routing, first, paper), NEAR, at_most=not first)
            for series, value in (
                ("TOR ahead, %", lambda tor, tar: (tor.max_min / tar.max_min - 1) * 100),
            )
            for first, paper in ((True, PAPERS_FIRST), (False, PAPERS_STEADY))
        ]

    word, reasons, rows = flows.judged(claims)
    return Reproduction(
        name="ficonn-fig6",
        title="Throughput in FiConn, random traffic",
        x_label="time, s",
        y_label="aggregate throughput, Gbit/s",
        points=tuple(flows.curves(runs, lambda sample: sample.max_min)),
        rows=tuple(rows),
        verdict=word,
        reasons=reasons,
        notes=flows.notes(settings, runs),
    )
