"""Catalogue of named experiments for `pillarbox run`.

By default cables carry 100 Mbit/s and packets of 9000 bytes: two processors emulate that rate
faithfully.
"""

from __future__ import annotations

from typing import Any

from pillarbox.experiments.lab.emulation.kits import OPENFLOW_KITS
from pillarbox.experiments.models.workloads.workload import BUSIEST, TRAINING, Workload
from pillarbox.experiments.runs.plans.experiment import Experiment, FaultAt, FaultRate, System

DCELL, BCUBE, TREE = "dcell,4,1", "bcube,4,1", "tree,4,4"
FOUR = (DCELL, BCUBE, "dpillar,4,2", "ficonn,4,1")
DISTRIBUTED = {"distribute": True}
# Cables of the experiment on switches. The rate is low since Open vSwitch forwards in user space
# without its kernel module, and servers in Python; TCP's timeouts grow with the length of queues.
SLOW_CABLES: dict[str, Any] = {"rate_mbit": 3.0, "queue_length": "300ms"}


# Cable rate at which two processors run iperf3's processes, two for each flow, and have idle time
# left: 20 servers have 760.
IPERF3_MBIT = 40


def _systems(*networks: str, rate_mbit: float = 100) -> tuple[System, ...]:
    return tuple(System(network, rate_mbit=rate_mbit) for network in networks)


def _all_to_all(volume_bytes: int, tool: str = "iperf3", timeout_s: float = 120.0) -> Workload:
    """Return an all-to-all workload: iperf3 is everybody's reference, the generator is faster."""
    return Workload(volume_bytes=volume_bytes, tool=tool, timeout_s=timeout_s)


class Demo:
    """Labels of the BCube and the tree network that the command `pillarbox demo` compares."""

    CUBE, TREE = "BCube", "tree"
    CUT_CUBE, CUT_TREE = "BCube, cut", "tree, cut"


DEMO = Experiment(
    name="demo",
    about="BCube compared with a tree of the same 16 servers, every server to every other; then "
    "again while a cable of one server is cut",
    # Two processors emulate networks with this cable rate and have idle time left.
    systems=tuple(
        System(network, label=label, rate_mbit=60)
        for network, label in (
            (BCUBE, Demo.CUBE),
            (TREE, Demo.TREE),
            (BCUBE, Demo.CUT_CUBE),
            (TREE, Demo.CUT_TREE),
        )
    ),
    workload=_all_to_all(1_750_000, "generator", timeout_s=40.0),
    # The fault cuts the cable h0-s0 of both networks; in the tree it is server h0's only cable.
    faults=(FaultAt("cut h0-s0 at 1 until 2.5", systems=(Demo.CUT_CUBE, Demo.CUT_TREE)),),
    repeats=1,
)

FCT = Experiment(
    name="fct",
    about="six networks under the same relative load of flows with web-search sizes: slowdown of "
    "flow completion times relative to an idle network",
    # With small packets and a short catch-up of the shaper, small flows are limited by the
    # cable's rate and do not pass in one burst.
    systems=tuple(
        System(network, rate_mbit=20, mtu=1500, catch_up="0.5ms")
        for network in (BCUBE, DCELL, "ficonn,4,1", "dpillar,4,2", "fattree,4", TREE)
    ),
    # Three trials of each system take six minutes in total; --duration 30 narrows the confidence
    # intervals.
    workload=Workload(
        arrivals="poisson",
        load=0.6,
        load_of=BUSIEST,
        sizes="web-search",
        size_scale=0.25,
        duration_s=10.0,
        timeout_s=180.0,
    ),
)

ALL_REDUCE = Experiment(
    name="all-reduce",
    about="all-reduce (sum over all servers): BML and other algorithms on BCube, rings on a tree "
    "and a fat-tree",
    systems=tuple(
        System(network, routing=routing, algorithm=algorithm, label=label, rate_mbit=60)
        for network, routing, algorithm, label in (
            (BCUBE, "bcube", "bml", "BCube, BML"),
            (BCUBE, "bcube", "bcube", "BCube, Gloo's BCube"),
            (BCUBE, "bcube", "halving-doubling", "BCube, halving"),
            (BCUBE, "bcube", "ring", "BCube, ring"),
            (BCUBE, "bcube", "parameter-servers", "BCube, servers"),
            (TREE, "", "ring", "tree, ring"),
            ("fattree,4", "", "ring", "fat-tree, ring"),
        )
    ),
    workload=Workload("all-reduce", volume_bytes=12_000_000, timeout_s=60.0),
)

ITERATION = Experiment(
    name=TRAINING,
    about="training iteration of a transformer with tensor, pipeline and data parallelism, on "
    "BCube, a tree and a fat-tree",
    systems=_systems(BCUBE, TREE, "fattree,4", rate_mbit=60),
    workload=Workload(TRAINING, options={"tp": 4, "pp": 2, "tflops": 0.02}, timeout_s=60.0),
)


def _switch_systems(network: str, routing: str) -> tuple[System, ...]:
    """Return a network whose servers relay, over bridges and over each kind of OpenFlow switch."""
    openflow = [(kind, kit) for kind in ("learning", "static", "vlan") for kit in OPENFLOW_KITS]
    return tuple(
        System(
            network,
            routing=routing,
            label=f"{network} {kind} {kit}".strip(),
            plane="python",
            switches=kind,
            kit=kit,
            **SLOW_CABLES,
        )
        for kind, kit in [("bridges", ""), *openflow]
    )


def _fat_trees(routing: str) -> tuple[System, ...]:
    """Return a fat-tree with Linux routers, and with routes of a controller of each kit."""
    kinds = [("routers", "auto", ""), *((kit, "ovs", kit) for kit in OPENFLOW_KITS)]
    return tuple(
        System(
            "fattree,4",
            routing=routing,
            label=f"fattree,4 {routing} {name}",
            plane=plane,
            kit=kit,
            **SLOW_CABLES,
        )
        for name, plane, kit in kinds
    )


_RELAYS = (*_switch_systems(BCUBE, "bsr"), *_switch_systems("dpillar,4,2", "mp-both"))
_ECMP = _fat_trees("hashed")
SWITCHES = Experiment(
    name="switches",
    about="Linux bridges compared with learning, static and VLAN switches under os-ken and Ryu, "
    "while a switch fails: goodput, flow set-up and failover",
    systems=_RELAYS + _fat_trees("two-level") + _ECMP,
    workload=Workload("permutation", duration_s=5.0, tool="generator", timeout_s=25.0),
    # s8 is an aggregation switch of the fat-tree.
    faults=(
        FaultAt("stop s0 at 2", systems=tuple(one.name for one in _RELAYS)),
        FaultAt("stop s8 at 2", systems=tuple(one.name for one in _ECMP)),
    ),
    repeats=1,
)

OTHERS = (
    SWITCHES,
    Experiment(
        name="quick",
        about="a small BCube and a tree, all-to-all for two seconds each: quick test that "
        "experiments work on this machine",
        systems=_systems("bcube,2,1", "tree,2,2"),
        workload=Workload(duration_s=2.0, timeout_s=20.0),
        repeats=2,
    ),
    # An A/A test: a comparison method that finds a difference between A and B is wrong.
    Experiment(
        name="a-a",
        about="one system compared with itself: a difference that is found is a false positive",
        systems=(System("bcube,2,1", label="A"), System("bcube,2,1", label="B")),
        workload=Workload(duration_s=1.5, tool="generator", timeout_s=20.0),
        repeats=6,
    ),
    # Experiment of Guo 2009, section 7.5 and Fig. 11.
    Experiment(
        name="bcube-tree",
        about="BCube compared with a tree, all-to-all: at least 2.9 times as fast",
        systems=_systems(BCUBE, TREE, rate_mbit=IPERF3_MBIT),
        workload=_all_to_all(3_000_000),
    ),
    # Experiment of Guo 2008, section 7.3 and Fig. 12.
    Experiment(
        name="dcell-tree",
        about="DCell compared with a tree, all-to-all: at least 1.96 times as fast",
        systems=_systems(DCELL, "tree,4,5", rate_mbit=IPERF3_MBIT),
        workload=_all_to_all(3_000_000),
    ),
    Experiment(
        name="all-to-all",
        about="six networks of 12 to 24 servers, every server to every other",
        systems=_systems(*FOUR, "dpillar,4,3", TREE, rate_mbit=IPERF3_MBIT),
        workload=_all_to_all(1_500_000, timeout_s=300.0),
    ),
    Experiment(
        name="tools",
        about="iperf3 and the built-in generator on the same networks, all-to-all: both show the "
        "same goodput",
        systems=tuple(
            System(network, rate_mbit=IPERF3_MBIT, tool=tool)
            for network in (BCUBE, DCELL, TREE)
            for tool in ("iperf3", "generator")
        ),
        workload=_all_to_all(3_000_000),
    ),
    Experiment(
        name="six-networks",
        about="the four networks, a tree and a fat-tree, every server to every other",
        systems=_systems(*FOUR, TREE, "fattree,4", rate_mbit=IPERF3_MBIT),
        workload=_all_to_all(1_500_000, timeout_s=300.0),
    ),
    Experiment(
        name="permutation",
        about="every server to one other server, chosen at random, in four networks and a tree",
        systems=_systems(*FOUR, TREE),
        workload=Workload("permutation", duration_s=5.0),
    ),
    Experiment(
        name="burst",
        about="one group of servers to another, in four networks and a tree",
        systems=_systems(*FOUR, TREE),
        workload=Workload("burst", duration_s=5.0),
    ),
    # The result shows how many of its ports the receiving server uses.
    Experiment(
        name="several-to-one",
        about="several servers to one server, in four networks and a tree",
        systems=_systems(*FOUR, TREE),
        workload=Workload("several-to-one", duration_s=5.0),
    ),
    # Experiment of Guo 2009, section 7.5. Both connections may begin on the same path; the next
    # probes, 10 s later, move one of them to the other path.
    Experiment(
        name="one-to-one",
        about="two servers, one flow for each disjoint path, compared with a tree",
        systems=_systems(BCUBE, TREE),
        workload=Workload("one-to-one", duration_s=40.0),
    ),
    # Algorithm of Guo 2009, section 3.4.
    Experiment(
        name="one-to-several",
        about="a file from one server to several, by complete graphs, compared with a pipeline "
        "over a tree",
        systems=_systems(BCUBE, TREE),
        workload=Workload("one-to-several", volume_bytes=60_000_000, options=DISTRIBUTED),
    ),
    # Algorithm of Guo 2009, section 3.5.
    Experiment(
        name="one-to-all",
        about="a file from one server to all others, by spanning trees, compared with a pipeline "
        "over a tree",
        systems=(System(BCUBE, routing="bcube"), System(TREE)),
        workload=Workload("one-to-all", volume_bytes=100_000_000, options=DISTRIBUTED),
    ),
    Experiment(
        name="failover",
        about="all four networks while random cables are cut: failover time of the flows",
        systems=_systems(*FOUR),
        workload=Workload("permutation", duration_s=20.0),
        faults=(FaultRate("cut", per_minute=20.0, lasting_s=2.0, from_s=3.0, until_s=15.0),),
    ),
)
NAMED = (DEMO, FCT, ALL_REDUCE, ITERATION, *OTHERS)
EXPERIMENTS = {experiment.name: experiment for experiment in NAMED}
