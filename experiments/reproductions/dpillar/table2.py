"""Liao 2012, Table 2: DPillar beside DCell, FiConn, BCube and the fat-tree.

The table prints formulas; each is evaluated for a small network, which is measured.
"""

from __future__ import annotations

from experiments.analysis.comparison.papers_dpillar import table_2
from experiments.reporting.reproduced.result import Reproduction, Settings
from experiments.reproductions.shared.printed import printed

ABOUT = "degree, cost, paths, bisection and size of five networks (Liao 2012)"
LIVE = False

BISECTION_S = 20.0  # for each exact bisection width; most take a moment


def reproduce(_: Settings) -> Reproduction:
    """Measure the small networks."""
    return printed("dpillar-table2", table_2(BISECTION_S))
