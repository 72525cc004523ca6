"""BCube's routing algorithms (Guo 2009): BCubeRouting, source routing (BSR), and spraying."""

from dataclasses import replace

from hosts.base.algorithms import Algorithm
from hosts.base.network import Network
from hosts.base.timers import PAPER
from hosts.bcube.bsr import BSR
from hosts.bcube.distribution import trees
from hosts.bcube.paths import path, path_set
from hosts.bcube.plain import BCubeRouting
from hosts.bcube.rules import RULES
from hosts.bcube.selection import around, parallel_paths
from hosts.bcube.spraying import Spray
from hosts.wire.bcube import BCUBE

NETWORK = Network(
    algorithms={
        "bcube": Algorithm("BCubeRouting (Guo 2009, Fig. 2)", path, path_set, router=BCubeRouting),
        "bsr": Algorithm(
            "BCube Source Routing (Guo 2009, section 4)",
            path_set=parallel_paths,
            around=around,
            router=BSR,
        ),
        "spray": Algorithm(
            "packet spraying: BSR's parallel paths, the packets of a flow in turn",
            path_set=parallel_paths,
            around=around,
            router=Spray,
            sprays=True,
        ),
    },
    rules=RULES,
    # BCube's testbed detected a dead neighbour within three seconds (Guo 2009, section 7.5).
    paper_timers=replace(PAPER, neighbour_timeout_s=3.0),
    headers=(BCUBE,),
    distribution=trees,  # trees that distribute data to receivers: Guo 2009, 3.4 and 3.5
)
