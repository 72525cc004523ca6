"""FiConn's routing algorithms (Li 2009): traffic-oblivious (TOR) and traffic-aware (TAR)."""

from dataclasses import replace
from functools import partial

from hosts.base.algorithms import Algorithm
from hosts.base.network import Network
from hosts.base.timers import PAPER
from hosts.ficonn.far_side import TarFarSide
from hosts.ficonn.parallel import path_set
from hosts.ficonn.paths import tor_path
from hosts.ficonn.plain import Tor
from hosts.ficonn.probe_setup import tar_around, tar_path
from hosts.ficonn.router import Tar

NETWORK = Network(
    algorithms={
        "tor": Algorithm(
            "traffic-oblivious routing (Li 2009, Algorithm 2)", tor_path, path_set, router=Tor
        ),
        "tar": Algorithm(
            "traffic-aware routing (Li 2009, Algorithm 3)", tar_path, around=tar_around, router=Tar
        ),
        "tar-far-side": Algorithm(
            "TAR that finds servers with only their backup link left (departs from Li 2009)",
            tar_path,
            around=partial(tar_around, far_side=True),
            router=TarFarSide,
        ),
    },
    # Each flow's path is probed every 30 seconds (Li 2009, section V).
    paper_timers=replace(PAPER, probe_interval_s=30.0, probe_jitter_s=0.0),
)
