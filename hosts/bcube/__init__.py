"""BCube's routing (Guo 2009): digits corrected one by one, and sources that choose the order."""

from dataclasses import replace

from hosts.base.algorithms import Algorithm
from hosts.base.timers import PAPER
from hosts.bcube.bsr import BSR
from hosts.bcube.distribution import trees
from hosts.bcube.paths import path, path_set
from hosts.bcube.plain import BCubeRouting
from hosts.bcube.rules import RULES
from hosts.bcube.selection import around, parallel_paths

# A dead neighbour was noticed within three seconds (Guo 2009, section 7.5).
PAPER_TIMERS = replace(PAPER, neighbour_timeout_s=3.0)

ALGORITHMS = {
    "bcube": Algorithm("BCubeRouting (Guo 2009, Fig. 2)", path, path_set, router=BCubeRouting),
    "bsr": Algorithm(
        "BCube Source Routing (Guo 2009, section 4)",
        path_set=parallel_paths,
        around=around,
        router=BSR,
    ),
}

# How a file is distributed (Guo 2009, sections 3.4 and 3.5): see experiments/traffic/distribution.
DISTRIBUTION = trees

__all__ = ["ALGORITHMS", "DISTRIBUTION", "PAPER_TIMERS", "RULES"]
