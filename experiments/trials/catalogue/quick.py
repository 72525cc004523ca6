"""Twenty seconds: does everything work here?"""

from experiments.traffic.workload import Workload
from experiments.trials.plans.experiment import Experiment, System

EXPERIMENT = Experiment(
    name="quick",
    about="a small BCube and a tree, all-to-all for two seconds each: does everything work here?",
    systems=(
        System("bcube,2,1"),
        System("tree,2,2"),
    ),
    workload=Workload(pattern="all-to-all", duration_s=2.0, timeout_s=20.0),
    repeats=2,
)
