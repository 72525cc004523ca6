"""DCell against the two-level tree (Guo 2008, section 7.3 and Fig. 12)."""

from experiments.traffic.workload import Workload
from experiments.trials.plans.experiment import Experiment, System

EXPERIMENT = Experiment(
    name="dcell-tree",
    about="DCell against a tree, all-to-all: at least 1.96 times as fast",
    systems=(
        System("dcell,4,1"),
        System("tree,4,5"),
    ),
    workload=Workload(pattern="all-to-all", volume_bytes=3_000_000, tool="generator"),
)
