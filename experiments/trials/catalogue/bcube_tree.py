"""BCube against the two-level tree (Guo 2009, section 7.5 and Fig. 11)."""

from experiments.traffic.workload import Workload
from experiments.trials.plans.experiment import Experiment, System

EXPERIMENT = Experiment(
    name="bcube-tree",
    about="BCube against a tree, all-to-all: at least 2.9 times as fast",
    systems=(
        System("bcube,4,1"),
        System("tree,4,4"),
    ),
    workload=Workload(pattern="all-to-all", volume_bytes=3_000_000, tool="generator"),
)
