"""Guo 2008, Table 3: degree, diameter, bisection and bottleneck of network structures.

The table prints formulas; each is evaluated for a small structure, which is measured.
"""

from __future__ import annotations

from experiments.analysis.comparison.papers_dcell import table_3
from experiments.reporting.reproduced.result import Reproduction, Settings
from experiments.reproductions.shared.printed import printed

ABOUT = "DCell beside mesh, ring, torus, trees, hypercube, butterfly, de Bruijn (Guo 2008)"
LIVE = False

BISECTION_S = 20.0  # for DCell's exact bisection width, which takes a moment


def reproduce(_settings: Settings) -> Reproduction:
    """Measure the small structures."""
    return printed("dcell-table3", table_3(BISECTION_S))
