"""One group of servers sends to another, all pairs at once."""

from experiments.traffic.workload import Workload
from experiments.trials.plans.experiment import Experiment, System

EXPERIMENT = Experiment(
    name="burst",
    about="one group of servers to another, in four networks and a tree",
    systems=(
        System("dcell,4,1"),
        System("bcube,4,1"),
        System("dpillar,4,2"),
        System("ficonn,4,1"),
        System("tree,4,4"),
    ),
    workload=Workload(pattern="burst", duration_s=5.0),
)
