"""FiConn's routing algorithms (Li 2009): traffic-oblivious (TOR) and traffic-aware (TAR)."""

from dataclasses import replace
from functools import partial

from pillarbox.hosts.base.algorithms import Algorithm
from pillarbox.hosts.base.network import Network
from pillarbox.hosts.base.timers import PAPER
from pillarbox.hosts.ficonn.far_side import TarFarSide
from pillarbox.hosts.ficonn.parallel import path_set
from pillarbox.hosts.ficonn.paths import tor_path
from pillarbox.hosts.ficonn.plain import Tor
from pillarbox.hosts.ficonn.probe_setup import tar_around, tar_path
from pillarbox.hosts.ficonn.router import Tar

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
