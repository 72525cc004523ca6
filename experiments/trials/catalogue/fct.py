"""Flow completion times under load: web search's sizes, arriving one after the other."""

from experiments.traffic.workload import BUSIEST, Workload
from experiments.trials.plans.experiment import Experiment, System

# Three trials of each, six minutes together; --duration 30 has narrower intervals.
NETWORKS = ("bcube,4,1", "dcell,4,1", "ficonn,4,1", "dpillar,4,2", "fattree,4", "tree,4,4")

EXPERIMENT = Experiment(
    name="fct",
    about="six networks under the same relative load of flows of web search's sizes: how long "
    "does a flow take, over what it would take alone?",
    # Small packets and a short catch-up, so that small flows meet a cable and not a burst.
    systems=tuple(
        System(network, rate_mbit=20, mtu=1500, catch_up="0.5ms") for network in NETWORKS
    ),
    workload=Workload(
        pattern="all-to-all",
        arrivals="poisson",
        load=0.6,
        load_of=BUSIEST,
        sizes="web-search",
        size_scale=0.25,
        duration_s=10.0,
        warm_up_s=2.0,
        cool_down_s=1.0,
        timeout_s=180.0,
    ),
)
