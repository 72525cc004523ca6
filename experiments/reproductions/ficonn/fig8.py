"""Li 2009, Fig. 8: aggregate throughput of TOR and TAR, burst traffic.

The curves are not printed as numbers. Section V: by TOR all flows share the one level-2 link
between the two FiConn_1s, 1 Gbit/s; TAR reaches 99.5 Gbit/s. A FiConn_1 of 32-port switches has 136
level-2 links, and no routing brings more out of it.
"""

from __future__ import annotations

from experiments.reporting.reproduced.result import AGREES, AMBIGUOUS, Point, Reproduction, Settings
from experiments.reproductions.shared import ficonn_flows as flows
from experiments.reproductions.shared.sampled import Claim, verdict, with_paper

ABOUT = "throughput of FiConn's routings, burst traffic (Li 2009)"
LIVE = False

PAPERS_TOR, PAPERS_TAR = 1.0, 99.5  # Gbit/s
EXACT, NEAR = 1e-9, 5.0
EQUAL_SHARES = (
    "By equal shares a flow has the least of its links' equal parts, and what it cannot use of the "
    "others is lost."
)


def reproduce(settings: Settings) -> Reproduction:
    """Let the flows between two FiConn_1s look for paths."""
    runs = flows.simulated(settings, "burst")
    tor, tar, equal = (
        flows.after(runs, model, value, routing, False, paper)
        for model, value, routing, paper in (
            ("max-min fair", lambda _, now: now.max_min, flows.TOR, PAPERS_TOR),
            ("max-min fair", lambda _, now: now.max_min, flows.TAR, PAPERS_TAR),
            ("equal shares", lambda _, now: now.equal, flows.TAR, PAPERS_TAR),
        )
    )
    claims = [Claim(tor, EXACT), Claim(tar, NEAR), Claim(equal, NEAR)]
    word, reasons = verdict(claims)
    if claims[0].holds and word != AGREES and _between(equal, tar):
        word = AMBIGUOUS
        reasons += ("The paper's value lies between two models; it does not state its own.",)
    return Reproduction(
        name="ficonn-fig8",
        title="Throughput in FiConn, burst traffic",
        x_label="time, s",
        y_label="aggregate throughput, Gbit/s",
        points=tuple(_curves(runs)),
        rows=tuple(claim.row for claim in claims),
        verdict=word,
        reasons=reasons,
        notes=(*flows.notes(settings, runs), EQUAL_SHARES),
        log_y=True,
    )


def _curves(runs: list[flows.Run]) -> list[Point]:
    """Return both models' curves; max-min fair, TAR is the same either way."""
    both = [
        *flows.curves(runs, lambda sample: sample.max_min, (flows.TOR, flows.TAR)),
        *flows.curves(
            runs, lambda sample: sample.equal, (flows.TAR, flows.PRINTED), ", equal shares"
        ),
    ]
    last = both[-1].x
    return with_paper(both, {(flows.TOR, last): PAPERS_TOR, (flows.TAR, last): PAPERS_TAR})


def _between(low: Point, high: Point) -> bool:
    return (low.ours or 0.0) < PAPERS_TAR < (high.ours or 0.0)
