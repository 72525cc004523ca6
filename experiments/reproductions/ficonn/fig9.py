"""Li 2009, Fig. 9: average path lengths of TOR and TAR, burst traffic.

The curves are not printed as numbers. Section V: TAR's paths are longer by less than three hops.
"""

from __future__ import annotations

from experiments.reporting.reproduced.result import Reproduction, Settings
from experiments.reproductions.shared import ficonn_flows as flows

ABOUT = "path lengths of FiConn's routings, burst traffic (Li 2009)"
LIVE = False

PAPERS_HOPS = 3.0
NEAR_HOPS = 0.1


def reproduce(settings: Settings) -> Reproduction:
    """Let the flows between two FiConn_1s look for paths."""
    runs = flows.simulated(settings, "burst")
    return flows.longer_paths(
        settings,
        runs,
        name="ficonn-fig9",
        title="Path lengths in FiConn, burst traffic",
        papers_hops=PAPERS_HOPS,
        near_hops=NEAR_HOPS,
    )
