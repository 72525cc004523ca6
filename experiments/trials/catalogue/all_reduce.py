"""Sums over all servers, by the algorithms of today, on BCube and on trees."""

from experiments.traffic.workload import Workload
from experiments.trials.plans.experiment import Experiment, System

BCUBE = "bcube,4,1"

EXPERIMENT = Experiment(
    name="all-reduce",
    about="all servers sum what each has: BML and others on BCube, rings on a tree and a fat-tree",
    systems=(
        System(BCUBE, routing="bcube", algorithm="bml", label="BCube, BML"),
        System(BCUBE, routing="bcube", algorithm="bcube", label="BCube, Gloo's BCube"),
        System(BCUBE, routing="bcube", algorithm="halving-doubling", label="BCube, halving"),
        System(BCUBE, routing="bcube", algorithm="ring", label="BCube, ring"),
        System(BCUBE, routing="bcube", algorithm="parameter-servers", label="BCube, servers"),
        System("tree,4,4", algorithm="ring", label="tree, ring"),
        System("fattree,4", algorithm="ring", label="fat-tree, ring"),
    ),
    workload=Workload(pattern="all-reduce", volume_bytes=16_000_000, timeout_s=60.0),
)
