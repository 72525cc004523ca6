"""Li 2009, Fig. 4: number of servers of FiConn_k, doubly exponential in k.

The paper plots log10(log10 N) against k, which is almost a line, and gives two values of N.
"""

from __future__ import annotations

import math
from contextlib import suppress

import numpy

from pillarbox.experiments.apps.papers.shared.figure import Claim, Made, figure
from pillarbox.experiments.runs.reporting.reproduced.result import Point, Settings
from pillarbox.topos.base.errors import PillarboxError
from pillarbox.topos.base.spec import parse

PORTS, MOST_LEVEL = (16, 32, 48), 4
# paper's number of servers by (n, k) (section III.A)
PAPERS = {(48, 2): 361_200, (16, 3): 3_553_776}
LEAST_CORRELATION = 0.999  # minimum correlation for "clearly linear"


@figure(
    "ficonn-fig4",
    "the number of servers of FiConn_k (Li 2009)",
    "Servers of FiConn_k",
    "level k",
    "log10(log10 N)",
)
def fig4(_: Settings) -> Made:
    """Reproduce Li 2009, Fig. 4: count the servers of all FiConns that 32-bit addresses allow."""
    counts = {}
    for n in PORTS:
        with suppress(PillarboxError):
            for k in range(MOST_LEVEL + 1):
                counts[n, k] = parse(f"ficonn,{n},{k}").servers
    points, claims = [], []
    for (n, k), servers in counts.items():
        paper = PAPERS.get((n, k))
        points.append(Point(f"n = {n}", k, _double_log10(servers), paper and _double_log10(paper)))
    for (n, k), paper in PAPERS.items():
        claims.append(Claim(Point(f"servers, n = {n}", k, counts[n, k], paper), 0.0))
    for n in PORTS:  # log10(log10 N) has correlation 1 with k if the plot is a line
        own = [(point.x, point.ours) for point in points if point.series == f"n = {n}"]
        near = float(numpy.corrcoef(numpy.array(own, float).T)[0, 1])
        row = Point(f"correlation with k, n = {n}", "", near, 1.0)
        claims.append(Claim(row, 1 - LEAST_CORRELATION))
    return Made(points, claims, notes=("Levels end with 32-bit addresses.",))


def _double_log10(servers: float) -> float:
    return math.log10(math.log10(servers))
