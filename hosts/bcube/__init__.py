"""BCube's routing algorithms (Guo 2009): BCubeRouting, source routing (BSR), and spraying."""

from dataclasses import replace

from pillarbox.hosts.base.algorithms import Algorithm
from pillarbox.hosts.base.network import Network
from pillarbox.hosts.base.timers import PAPER
from pillarbox.hosts.bcube.bsr import BSR
from pillarbox.hosts.bcube.distribution import trees
from pillarbox.hosts.bcube.paths import path, path_set
from pillarbox.hosts.bcube.plain import BCubeRouting
from pillarbox.hosts.bcube.rules import RULES
from pillarbox.hosts.bcube.selection import around, parallel_paths
from pillarbox.hosts.bcube.spraying import Spray
from pillarbox.hosts.wire.bcube import BCUBE

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
