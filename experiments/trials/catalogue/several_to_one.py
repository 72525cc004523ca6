"""Several servers send to one: how many of its ports does it use?"""

from experiments.traffic.workload import Workload
from experiments.trials.plans.experiment import Experiment, System

EXPERIMENT = Experiment(
    name="several-to-one",
    about="several servers to one, in four networks and a tree",
    systems=(
        System("dcell,4,1"),
        System("bcube,4,1"),
        System("dpillar,4,2"),
        System("ficonn,4,1"),
        System("tree,4,4"),
    ),
    workload=Workload(pattern="several-to-one", duration_s=5.0),
)
