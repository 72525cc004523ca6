"""Every server sends to every other, in the networks of the papers' testbeds and a tree."""

from experiments.traffic.workload import Workload
from experiments.trials.plans.experiment import Experiment, System

EXPERIMENT = Experiment(
    name="all-to-all",
    about="seven networks, every server to every other",
    systems=(
        System("dcell,4,1"),
        System("bcube,4,1"),
        System("dpillar,4,2"),
        System("dpillar,4,3"),
        System("ficonn,4,1"),
        System("ficonn,4,2"),
        System("tree,4,4"),
    ),
    workload=Workload(
        pattern="all-to-all", volume_bytes=1_500_000, tool="generator", timeout_s=900.0
    ),
)
