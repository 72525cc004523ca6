"""Sums over all servers, by the algorithms of today, on BCube and on trees."""

from experiments.traffic.workload import Workload
from experiments.trials.plans.experiment import Experiment, System

BCUBE = "bcube,4,1"
RATE_MBIT = 60  # which two processors carry with room to spare

EXPERIMENT = Experiment(
    name="all-reduce",
    about="all servers sum what each has: BML and others on BCube, rings on a tree and a fat-tree",
    systems=tuple(
        System(network, routing=routing, algorithm=algorithm, label=label, rate_mbit=RATE_MBIT)
        for network, routing, algorithm, label in (
            (BCUBE, "bcube", "bml", "BCube, BML"),
            (BCUBE, "bcube", "bcube", "BCube, Gloo's BCube"),
            (BCUBE, "bcube", "halving-doubling", "BCube, halving"),
            (BCUBE, "bcube", "ring", "BCube, ring"),
            (BCUBE, "bcube", "parameter-servers", "BCube, servers"),
            ("tree,4,4", "", "ring", "tree, ring"),
            ("fattree,4", "", "ring", "fat-tree, ring"),
        )
    ),
    workload=Workload(pattern="all-reduce", volume_bytes=12_000_000, timeout_s=60.0),
)
