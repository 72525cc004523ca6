"""Guo 2009, Table 2: what a container of 2048 servers costs, draws and is wired with."""

from __future__ import annotations

from experiments.analysis.comparison.papers_bcube import table_2
from experiments.reporting.reproduced.result import Reproduction, Settings
from experiments.reproductions.shared.printed import printed

ABOUT = "cost, power and wires of a container of 2048 servers (Guo 2009)"
LIVE = False


def reproduce(_: Settings) -> Reproduction:
    """Count switches, network cards and cables."""
    return printed("bcube-table2", table_2())
