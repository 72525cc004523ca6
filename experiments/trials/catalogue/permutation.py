"""Every server sends to one other, drawn at random anew in each repeat."""

from experiments.traffic.workload import Workload
from experiments.trials.plans.experiment import Experiment, System

EXPERIMENT = Experiment(
    name="permutation",
    about="every server to one other at random, in four networks and a tree",
    systems=(
        System("dcell,4,1"),
        System("bcube,4,1"),
        System("dpillar,4,2"),
        System("ficonn,4,1"),
        System("tree,4,4"),
    ),
    workload=Workload(pattern="permutation", duration_s=5.0),
)
