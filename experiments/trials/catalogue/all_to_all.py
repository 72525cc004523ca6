"""Every server sends to every other, in the networks of the papers' testbeds and a tree."""

from experiments.traffic.workload import Workload
from experiments.trials.plans.experiment import Experiment, System

EXPERIMENT = Experiment(
    name="all-to-all",
    about="seven networks, every server to every other",
    systems=(
        System("dcell,4,1", timers="paper", rate_mbit=30.0),
        System("bcube,4,1", timers="paper", rate_mbit=30.0),
        System("dpillar,4,2", timers="paper", rate_mbit=30.0),
        System("dpillar,4,3", timers="paper", rate_mbit=30.0),
        System("ficonn,4,1", timers="paper", rate_mbit=30.0),
        System("ficonn,4,2", timers="paper", rate_mbit=30.0),
        System("tree,4,4", timers="paper", rate_mbit=30.0),
    ),
    # Over 48 servers 1.4 GB: at the few Mbit/s that a small machine emulates faithfully, minutes.
    workload=Workload(
        pattern="all-to-all", volume_bytes=600_000, tool="generator", timeout_s=900.0
    ),
)
