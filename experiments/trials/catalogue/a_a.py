"""One system under two labels, compared as any two are: whoever finds a difference errs."""

from experiments.traffic.workload import Workload
from experiments.trials.plans.experiment import Experiment, System

EXPERIMENT = Experiment(
    name="a-a",
    about="one system against itself: does comparing systems find a difference where none is?",
    systems=(
        System("bcube,2,1", label="A"),
        System("bcube,2,1", label="B"),
    ),
    workload=Workload(pattern="all-to-all", duration_s=1.5, tool="generator", timeout_s=20.0),
    repeats=6,
)
