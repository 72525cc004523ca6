"""Guo 2009, Table 1: speed-ups, all-to-all throughput and wires of four structures.

The table prints formulas; each is evaluated for a small network, which is measured.
"""

from __future__ import annotations

from experiments.analysis.comparison.papers_bcube import table_1
from experiments.reporting.reproduced.result import Reproduction, Settings
from experiments.reproductions.shared.printed import printed

ABOUT = "speed-ups, throughput and wires of tree, fat-tree, DCell and BCube (Guo 2009)"
LIVE = False


def reproduce(_: Settings) -> Reproduction:
    """Measure the small networks."""
    return printed("bcube-table1", table_1())
