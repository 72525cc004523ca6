"""A file from one server to all others (Guo 2009, section 3.5)."""

from experiments.traffic.workload import Workload
from experiments.trials.plans.experiment import Experiment, System

EXPERIMENT = Experiment(
    name="one-to-all",
    about="a file from one server to all others, by spanning trees, against a pipeline over a tree",
    systems=(
        System("bcube,4,1", routing="bcube"),
        System("tree,4,4"),
    ),
    workload=Workload(pattern="one-to-all", volume_bytes=100_000_000, options={"distribute": True}),
)
