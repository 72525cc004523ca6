"""A first look: a cube against a tree, and what a cut cable does to each of them."""

from experiments.traffic.workload import Workload
from experiments.trials.plans.experiment import Experiment, FaultAt, System

CUBE, TREE = "BCube", "tree"
CUT_CUBE, CUT_TREE = "BCube, cut", "tree, cut"

EXPERIMENT = Experiment(
    name="demo",
    about="BCube against a tree of the same 16 servers, every server to every other; then once "
    "more, and a cable of one server is cut meanwhile",
    # A rate that two processors carry with room to spare; one process sends all 240 flows.
    systems=tuple(
        System(network, label=label, rate_mbit=60)
        for network, label in (
            ("bcube,4,1", CUBE),
            ("tree,4,4", TREE),
            ("bcube,4,1", CUT_CUBE),
            ("tree,4,4", CUT_TREE),
        )
    ),
    workload=Workload(volume_bytes=1_750_000, tool="generator", timeout_s=40.0),
    # Both networks have this cable. In the tree there is no way around it.
    faults=(FaultAt("cut h0-s0 at 1 until 2.5", systems=(CUT_CUBE, CUT_TREE)),),
    repeats=1,
)
