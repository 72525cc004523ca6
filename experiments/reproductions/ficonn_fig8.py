"""Li 2009, Fig. 8: aggregate throughput of TOR and TAR, burst traffic.

The curves are not printed as numbers. Section V: by TOR all flows share the one level-2 link
between the two FiConn_1s, 1 Gbit/s; TAR reaches 99.5 Gbit/s. A FiConn_1 of 32-port switches has 136
level-2 links, and no routing brings more out of it.
"""

from __future__ import annotations

from experiments.reproductions import _ficonn_flows as flows
from experiments.reproductions._sampled import Claim, verdict
from experiments.reproductions.result import AGREES, AMBIGUOUS, Point, Reproduction, Settings

ABOUT = "throughput of FiConn's routings, burst traffic (Li 2009)"
LIVE = False

PAPERS_TOR, PAPERS_TAR = 1.0, 99.5  # Gbit/s
EXACT, NEAR = 1e-9, 5.0


def reproduce(settings: Settings) -> Reproduction:
    """Let the flows between two FiConn_1s look for paths."""
    runs = flows.simulated(settings, "burst")
    models = {"max-min": lambda _, tar: tar.max_min, "equal shares": lambda _, tar: tar.equal}
    tor, tar, equal = (
        flows.after(runs, model, models[model], routing, False, paper)
        for routing, model, paper in (
            (flows.TOR, "max-min", PAPERS_TOR),
            (flows.TAR, "max-min", PAPERS_TAR),
            (flows.TAR, "equal shares", PAPERS_TAR),
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
        points=tuple(flows.curves(runs, lambda sample: sample.max_min)),
        rows=tuple(claim.row for claim in claims),
        verdict=word,
        reasons=reasons,
        notes=flows.notes(settings, runs),
        log_y=True,
    )


def _between(low: Point, high: Point) -> bool:
    return (low.ours or 0.0) < PAPERS_TAR < (high.ours or 0.0)
