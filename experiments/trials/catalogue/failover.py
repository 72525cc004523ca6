"""A random cable of each network is cut every few seconds, and mended again."""

from experiments.traffic.workload import Workload
from experiments.trials.plans.experiment import Experiment, FaultRate, System

EXPERIMENT = Experiment(
    name="failover",
    about="all four networks while random cables are cut: how soon do flows go on?",
    systems=(
        System("dcell,4,1"),
        System("bcube,4,1"),
        System("dpillar,4,2"),
        System("ficonn,4,1"),
    ),
    workload=Workload(pattern="permutation", duration_s=20.0),
    faults=(FaultRate("cut", per_minute=20.0, lasting_s=2.0, from_s=3.0, until_s=15.0),),
)
