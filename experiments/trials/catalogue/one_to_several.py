"""A file from one server to several (Guo 2009, section 3.4)."""

from experiments.traffic.workload import Workload
from experiments.trials.plans.experiment import Experiment, System

EXPERIMENT = Experiment(
    name="one-to-several",
    about="a file from one server to several, by complete graphs, against a pipeline over a tree",
    systems=(
        System("bcube,4,1"),
        System("tree,4,4"),
    ),
    workload=Workload(
        pattern="one-to-several",
        volume_bytes=60_000_000,
        options={"distribute": True},
    ),
)
