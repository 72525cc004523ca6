"""Li 2009, Fig. 7: average path lengths of TOR and TAR, random traffic.

The curves are not printed as numbers. Section V: TAR's paths are longer, in the end by less than
1.5 hops.
"""

from __future__ import annotations

from experiments.reporting.reproduced.result import Reproduction, Settings
from experiments.reproductions.shared import ficonn_flows as flows

ABOUT = "path lengths of FiConn's routings, random traffic (Li 2009)"
LIVE = False

PAPERS_HOPS = 1.5
NEAR_HOPS = 0.1


def reproduce(settings: Settings) -> Reproduction:
    """Let flows between random pairs look for paths."""
    runs = flows.simulated(settings, "random")
    return flows.longer_paths(
        settings,
        runs,
        name="ficonn-fig7",
        title="Path lengths in FiConn, random traffic",
        papers_hops=PAPERS_HOPS,
        near_hops=NEAR_HOPS,
    )
