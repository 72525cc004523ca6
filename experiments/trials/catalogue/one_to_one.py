"""Two servers, with a flow for each of their disjoint paths (Guo 2009, section 7.5)."""

from experiments.traffic.workload import Workload
from experiments.trials.plans.experiment import Experiment, System

EXPERIMENT = Experiment(
    name="one-to-one",
    about="two servers, one flow for each disjoint path, against a tree",
    systems=(
        System("bcube,4,1"),
        System("tree,4,4"),
    ),
    # Both connections may begin on one path; at the next probes, 10 s later, they part.
    workload=Workload(pattern="one-to-one", duration_s=40.0),
)
