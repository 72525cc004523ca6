"""A first look: a cube against a tree, and what a cut cable does to each of them."""

from experiments.traffic.workload import Workload
from experiments.trials.plans.experiment import Experiment, FaultAt, System

CUBE, TREE = "BCube", "tree"
CUT_CUBE, CUT_TREE = "BCube, cut", "tree, cut"

EXPERIMENT = Experiment(
    name="demo",
    about="BCube against a tree of the same 16 servers, every server to every other; then once "
    "more, and a cable of one server is cut meanwhile",
    systems=(
        System("bcube,4,1", label=CUBE),
        System("tree,4,4", label=TREE),
        System("bcube,4,1", label=CUT_CUBE),
        System("tree,4,4", label=CUT_TREE),
    ),
    # One process sends all 240 flows: it must run on small machines.
    workload=Workload(volume_bytes=2_500_000, tool="generator", timeout_s=40.0),
    # Both networks have this cable. In the tree there is no way around it.
    faults=(FaultAt("cut", ("h0", "s0"), at_s=1.0, until_s=2.5, systems=(CUT_CUBE, CUT_TREE)),),
    repeats=1,
)
