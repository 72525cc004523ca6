"""Arriving flows of a trial: drawn at random for its network, or read from a trace."""

from __future__ import annotations

from pathlib import Path

from pillarbox.experiments.lab.emulation.defaults import usual_routing
from pillarbox.experiments.models.comparison.load_capacity import workload_capacity_bps
from pillarbox.experiments.models.workloads.arrivals import (
    Arrivals,
    Window,
    measurement_window,
    poisson_arrivals,
)
from pillarbox.experiments.models.workloads.demand import DEADLINE
from pillarbox.experiments.models.workloads.patterns import MOST_FLOWS
from pillarbox.experiments.models.workloads.traces import read_trace
from pillarbox.experiments.models.workloads.workload import Workload
from pillarbox.experiments.runs.plans.experiment import System
from pillarbox.topos.base.errors import require


def arrivals_of(system: System, workload: Workload, seed: int) -> Arrivals:
    """Return the flows that arrive during a trial of a system, with their start times.

    Raises PillarboxError if the workload has no arrivals or does not fit the system.
    """
    require(workload.arrivals is not None, "this workload has no arrivals")
    require(
        not workload.options.get("distribute"),
        "a distributed file (options.distribute) has no arrivals: remove arrivals or distribute",
    )
    require(
        workload.tool in ("auto", "generator"),
        f"{workload.tool} cannot send flows that arrive over time: remove tool to use the "
        "generator",
    )
    topology = system.topology
    deadline_s = workload.options.get(DEADLINE)
    number = isinstance(deadline_s, int | float) and not isinstance(deadline_s, bool)
    require(
        deadline_s is None or (number and deadline_s > 0),
        f"{DEADLINE} is a number of seconds above 0, not {deadline_s!r}",
    )
    if workload.trace is not None:
        arrivals = read_trace(topology, Path(workload.trace))
    else:
        require(
            system.rate_mbit is not None,
            f"{system.name} has cables without a rate, and a load is a share of the rate: set "
            "rate_mbit",
        )
        arrivals = poisson_arrivals(
            topology, workload, seed, capacity_of(system, workload, seed), load_of(system, workload)
        )
    require(
        len(arrivals.start_s) <= MOST_FLOWS,
        f"{len(arrivals.start_s):,} flows would arrive, more than {MOST_FLOWS:,}: choose a shorter "
        "duration_s, or larger sizes (size_scale)",
    )
    last_s = float(arrivals.start_s[-1]) if len(arrivals.start_s) else 0.0
    window = measured_window(workload, arrivals)
    inside = (arrivals.start_s >= window.from_s) & (arrivals.start_s <= window.until_s)
    require(
        bool(inside.any()),
        f"no flow begins between {window.from_s:g} s and {window.until_s:g} s, the measured "
        "window: choose a longer duration_s, or a shorter warm_up_s",
    )
    require(
        last_s < workload.timeout_s,
        f"the last flow begins at {last_s:g} s, and timeout_s is {workload.timeout_s:g}: choose a "
        "longer timeout_s",
    )
    return arrivals


def measured_window(workload: Workload, arrivals: Arrivals) -> Window:
    """Return the measured window of a trial: the start times of the flows that count."""
    last_s = float(arrivals.start_s[-1]) if len(arrivals.start_s) else 0.0
    return measurement_window(workload, last_s)


def load_of(system: System, workload: Workload) -> float | None:
    """Return the offered load of a system (share of the capacity), None for a trace."""
    return workload.load if system.at_load is None else system.at_load


def capacity_of(system: System, workload: Workload, seed: int) -> float:
    """Return the network capacity in bit/s that the offered load is a share of."""
    assert system.rate_mbit is not None
    topology = system.topology
    routing = system.routing or usual_routing(topology)
    return workload_capacity_bps(
        topology, workload, seed, routing, system.rate_mbit * 1e6, system.mtu
    )
