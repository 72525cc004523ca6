"""Li 2009, Fig. 4: how many servers FiConn_k has, doubly exponential in k.

The paper draws log10(log10 N) against k, which is almost a line, and gives two values of N.
"""

from __future__ import annotations

import math

import numpy

from experiments.reporting.reproduced.result import Point, Reproduction, Settings
from experiments.reproductions.shared.sampled import Claim, verdict
from topos.base.errors import PillarboxError
from topos.base.spec import parse

ABOUT = "the number of servers of FiConn_k (Li 2009)"
LIVE = False

PORTS, MOST_LEVEL = (16, 32, 48), 4
PAPERS = {(48, 2): 361_200, (16, 3): 3_553_776}  # section III.A
LEAST_CORRELATION = 0.999  # "clearly linear"


def reproduce(_settings: Settings) -> Reproduction:
    """Count servers, up to what 32-bit addresses can name."""
    counts = {
        (n, k): found for n in PORTS for k in range(MOST_LEVEL + 1) if (found := _servers(n, k))
    }
    papers = {key: _twice_log(value) for key, value in PAPERS.items()}
    points = [
        Point(f"n = {n}", k, _twice_log(found), papers.get((n, k)))
        for (n, k), found in counts.items()
    ]
    claims = [
        Claim(Point(f"servers, n = {n}", k, counts[n, k], paper), 0.0)
        for (n, k), paper in PAPERS.items()
    ]
    claims += [Claim(_correlation(points, n), 1 - LEAST_CORRELATION) for n in PORTS]
    word, reasons = verdict(claims)
    return Reproduction(
        name="ficonn-fig4",
        title="Servers of FiConn_k",
        x_label="level k",
        y_label="log10(log10 N)",
        points=tuple(points),
        rows=tuple(claim.row for claim in claims),
        verdict=word,
        reasons=reasons,
        notes=("Levels end where 32-bit addresses do.",),
    )


def _servers(n: int, k: int) -> int | None:
    """Return how many servers there are, None where there are too many to name."""
    try:
        return parse(f"ficonn,{n},{k}").servers
    except PillarboxError:
        return None


def _twice_log(servers: float) -> float:
    return math.log10(math.log10(servers))


def _correlation(points: list[Point], n: int) -> Point:
    """Return how near a curve is to a line, which would have 1."""
    own = [(point.x, point.ours) for point in points if point.series == f"n = {n}"]
    found = float(numpy.corrcoef(numpy.array(own, float).T)[0, 1])
    return Point(f"correlation with k, n = {n}", "", found, 1.0)
