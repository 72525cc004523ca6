"""Li 2009, Fig. 6: aggregate throughput of TOR and TAR, random traffic.

The curves are not printed as numbers. Section V: after 30 seconds TOR is about 8.5 % above TAR; in
the end within 2.5 %.
"""

from __future__ import annotations

from experiments.reporting.reproduced.result import AGREES, Reproduction, Settings
from experiments.reproductions.shared import ficonn_flows as flows
from experiments.reproductions.shared.sampled import Claim

ABOUT = "throughput of FiConn's routings, random traffic (Li 2009)"
LIVE = False

PAPERS_FIRST, PAPERS_STEADY = 8.5, 2.5  # percent by which TOR is above TAR
NEAR = 1.0


def reproduce(settings: Settings) -> Reproduction:
    """Let flows between random pairs look for paths."""
    runs = flows.simulated(settings, "random")

    def claims(routing: str) -> list[Claim]:
        first, steady = (
            flows.after(runs, "TOR ahead, %", _ahead, routing, at_first, paper)
            for at_first, paper in ((True, PAPERS_FIRST), (False, PAPERS_STEADY))
        )
        return [Claim(first, NEAR), Claim(steady, NEAR, at_most=True)]

    word, reasons, rows = flows.judged(claims)
    if word != AGREES:
        reasons += (
            "By how much TOR is ahead depends on both models, and the paper states neither.",
        )
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


def _ahead(tor: flows.Sample, tar: flows.Sample) -> float:
    return (tor.max_min / tar.max_min - 1) * 100
