"""Liao 2012, Table 1: what the network of a DPillar with four columns costs."""

from __future__ import annotations

from experiments.analysis.comparison.papers_dpillar import table_1
from experiments.reporting.reproduced.result import Reproduction, Settings
from experiments.reproductions.shared.printed import printed

ABOUT = "servers and cost of DPillars with four columns (Liao 2012)"
LIVE = False


def reproduce(_: Settings) -> Reproduction:
    """Count switches and cables."""
    return printed("dpillar-table1", table_1())
