"""A first look: a cube against a tree, and what a cut cable does to each of them."""

from experiments.traffic.workload import Workload
from experiments.trials.plans.experiment import Experiment, FaultAt, System

EXPERIMENT = Experiment(
    name="demo",
    about="BCube against a tree, all-to-all; one server's cable is cut, and mended again",
    systems=(
        System("bcube,4,1", rate_mbit=20.0),
        System("tree,4,4", rate_mbit=20.0),
    ),
    # One process sends all 240 flows: it must run on small machines.
    workload=Workload(volume_bytes=600_000, tool="generator", timeout_s=40.0),
    # Both networks have this cable. In the tree nobody can go around it.
    faults=(FaultAt("cut", ("h0", "s0"), at_s=1.0, until_s=2.5),),
    repeats=1,
)
