"""All four networks, the tree and the fat-tree under the same all-to-all."""

from experiments.traffic.workload import Workload
from experiments.trials.plans.experiment import Experiment, System

EXPERIMENT = Experiment(
    name="six-networks",
    about="the four networks, a tree and a fat-tree, every server to every other",
    systems=(
        System("dcell,4,1"),
        System("bcube,4,1"),
        System("dpillar,4,2"),
        System("ficonn,4,1"),
        System("tree,4,4"),
        System("fattree,4"),
    ),
    workload=Workload(
        pattern="all-to-all", volume_bytes=1_500_000, tool="generator", timeout_s=900.0
    ),
)
