"""Quantities of a live figure's trials, by name: goodput, completion, outages, queues, ..."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pillarbox.experiments.apps.papers.shared import live_experiments
from pillarbox.experiments.apps.papers.shared.fault_effects import goodput_during_bps, longest_gap_s
from pillarbox.experiments.apps.papers.shared.live_experiments import Scale
from pillarbox.experiments.apps.papers.shared.reordering import COUNTERS, counted_by_trial
from pillarbox.experiments.apps.papers.shared.rerouted_flows import (
    EFFECTS,
    faults_with_flow_effects,
)
from pillarbox.experiments.models.fluid.ideal import goodput_share
from pillarbox.experiments.runs.plans.experiment import Experiment, System
from pillarbox.topos.base.topology import Topology

if TYPE_CHECKING:
    import pandas

    from pillarbox.experiments.runs.trials.records import Run

# Linux' minimum retransmission timeout: a read that a timeout delays takes at least this time.
MINIMUM_RTO_S = 0.2


class QuantityOptions(Protocol):
    """Options of a quantity, which a row of a figure has (`figure_rows.Row`)."""

    @property
    def at(self) -> float | None:
        """Number of servers of a synchronized read."""
        ...

    @property
    def after_s(self) -> float:
        """Time from which the quantity "late goodput" counts."""
        ...

    @property
    def event(self) -> str:
        """Fault or repair of the quantities of events; "" for all."""
        ...

    @property
    def flows(self) -> str:
        """Flows of the quantities of the last flow: a name in FLOWS."""
        ...


@dataclass(frozen=True)
class Part:
    """Records of one experiment of a figure."""

    name: str
    experiment: Experiment
    run: Run  # trials that count
    scale: Scale
    all_trials: Run

    @cached_property
    def systems(self) -> dict[str, System]:
        """Systems by name."""
        return {one.name: one for one in self.experiment.systems}

    @cached_property
    def runs(self) -> dict[str, Run]:
        """Records of each system."""
        return {name: self.run.of(name) for name in self.systems}

    @cached_property
    def simulated(self) -> dict[str, pandas.DataFrame]:
        """Simulations of each system's trials, by TCP packet by packet."""
        from pillarbox.experiments.runs.reporting.long_flows import simulated_trials

        return {name: simulated_trials(run) for name, run in self.runs.items()}

    @cached_property
    def flow_effects(self) -> dict[str, pandas.DataFrame]:
        """Faults of each system, with their effects on flows that still had a path."""
        return {
            name: faults_with_flow_effects(self.runs[name], system)
            for name, system in self.systems.items()
        }


@dataclass(frozen=True)
class SystemTrials:
    """The trials of one system, from which a row's value is taken."""

    part: Part
    system: System
    row: QuantityOptions

    @property
    def run(self) -> Run:
        """Records of the system."""
        return self.part.runs[self.system.name]

    @cached_property
    def trials(self) -> pandas.DataFrame:
        """Table of the system's trials."""
        return self.run.trials

    @property
    def link_bps(self) -> float:
        """Goodput of one cable, without the routing's header."""
        system = self.system
        share = goodput_share(
            system.topology, system.routing, system.mtu, multipath=system.multipath
        )
        return (system.rate_mbit or 0.0) * 1e6 * share

    def by_repeat(self, values: pandas.Series) -> pandas.Series:
        """Return values by trial in the order of the table of trials, by repeat."""
        found: pandas.Series = self.trials.trial.map(values).set_axis(self.trials["repeat"])
        return found


# -- quantities of trials --------------------------------------------------------------------------


class Values(NamedTuple):
    """Values of trials, at the paper's scale in seconds or bit/s, and their ideal."""

    of_trials: pandas.Series
    ideal: float | None = None


def _column(trials: SystemTrials, name: str, ideal: str, factor: float) -> Values:
    values = trials.trials.set_index("repeat")
    best = live_experiments.ideal_of_trials(values[ideal]) if ideal else None
    return Values(values[name] * factor, None if best is None else best * factor)


def completion(trials: SystemTrials) -> Values:
    """Return the time until the last flow ends."""
    return _column(trials, "completion_s", "ideal_s", trials.part.scale.time)


def goodput(trials: SystemTrials) -> Values:
    """Return the total goodput of all flows."""
    return _column(trials, "goodput_bps", "ideal_bps", trials.part.scale.rate)


def goodput_of_server(trials: SystemTrials) -> Values:
    """Return the goodput of a server, the mean over all."""
    factor = trials.part.scale.rate / trials.system.topology.servers
    return _column(trials, "goodput_bps", "ideal_bps", factor)


def late_goodput(trials: SystemTrials) -> Values:
    """Return the total goodput after `after_s`, until the flows' common end."""
    duration_s = trials.part.experiment.workload.duration_s
    found = trials.run.intervals
    late = found[(found.begin_s >= trials.row.after_s) & (found.end_s <= duration_s)]
    of_trial = late.groupby("trial")
    bps = of_trial.delivered_bytes.sum() * 8 / (of_trial.end_s.max() - of_trial.begin_s.min())
    return Values(trials.by_repeat(bps) * trials.part.scale.rate, goodput(trials).ideal)


def file_goodput(trials: SystemTrials) -> Values:
    """Return the rate at which all receivers get a file."""
    bits = (trials.part.experiment.workload.volume_bytes or 0) * 8
    values = trials.trials.set_index("repeat")
    return Values(bits / values.completion_s * trials.part.scale.rate, goodput(trials).ideal)


def maximum_goodput(trials: SystemTrials) -> Values:
    """Return the maximum total goodput, averaged over a twentieth of the time."""
    found = live_experiments.throughput_over_time(trials.run.intervals, points=20)
    most = found.groupby("trial").goodput_bps.max()
    return Values(trials.by_repeat(most) * trials.part.scale.rate)


def last_flow(trials: SystemTrials) -> Values:
    """Return the end of the last flow between certain pairs of servers."""
    own, _ = _chosen_and_other_flows(trials)
    ends, time = own.groupby("trial"), trials.part.scale.time
    ideal = live_experiments.ideal_of_trials(ends.ideal_end_s.max() * time)
    return Values(trials.by_repeat(ends.end_s.max()) * time, ideal)


def last_flow_over_others(trials: SystemTrials) -> Values:
    """Return the end of the last flow between certain servers, over the others' median end."""
    own, others = (found.groupby("trial") for found in _chosen_and_other_flows(trials))
    ideal = live_experiments.ideal_of_trials(own.ideal_end_s.max() / others.ideal_end_s.median())
    return Values(trials.by_repeat(own.end_s.max() / others.end_s.median()), ideal)


def _chosen_and_other_flows(trials: SystemTrials) -> tuple[pandas.DataFrame, pandas.DataFrame]:
    """Return the flows between the pairs of servers that the row names, and all other flows."""
    import numpy

    flows, belongs = trials.run.flows, FLOWS[trials.row.flows](trials.system.topology)
    pairs = zip(flows.source, flows.destination, strict=True)
    chosen = numpy.array([belongs(*pair) for pair in pairs], dtype=bool)
    return flows[chosen], flows[~chosen]


def over_bound(trials: SystemTrials) -> Values:
    """Return the time of a collective, relative to the lower bound of any algorithm's."""
    found = trials.trials.set_index("repeat")
    ideal = live_experiments.ideal_of_trials(found.bound_bps / found.ideal_bps)
    return Values(found.bound_bps / found.goodput_bps, ideal)


def reads_of(transfers: pandas.DataFrame, fan_in: float | None = None) -> pandas.DataFrame:
    """Return the reads of all trials: trial, number of servers read from, and time in seconds.

    Each step of synchronized reads is a read. With `fan_in`, only reads from as many servers.
    """
    reads = transfers.groupby(["trial", "step"], as_index=False).agg(
        fan_in=("transfer", "size"), ready_s=("ready_s", "min"), end_s=("end_s", "max")
    )
    reads["took_s"] = reads.end_s - reads.ready_s
    found = reads[["trial", "fan_in", "took_s"]]
    return found if fan_in is None else found[found.fan_in == fan_in]


def read_over_bound(trials: SystemTrials) -> Values:
    """Return the mean time of a read from `at` servers, over that of the receiver's full ports."""
    reads = reads_of(trials.run.transfers, trials.row.at).groupby("trial").took_s.mean()
    bits = (trials.part.experiment.workload.volume_bytes or 0) * 8
    bound_s = bits / (trials.system.topology.ports * trials.link_bps)
    return Values(trials.by_repeat(reads / bound_s), 1.0)


def reads_with_timeout(trials: SystemTrials) -> Values:
    """Return the share of reads from `at` servers that took a retransmission timeout or longer."""
    reads = reads_of(trials.run.transfers, trials.row.at)
    late = (reads.took_s >= MINIMUM_RTO_S).groupby(reads.trial).mean()
    return Values(trials.by_repeat(late))


def flow_setup(trials: SystemTrials) -> Values:
    """Return the median time of the flows' TCP handshakes, in milliseconds."""
    found = trials.run.flows.groupby("trial").connect_s.median()
    return Values(trials.by_repeat(found * 1000))


# -- quantities of queues, and of simulated trials ------------------------------------------------


def _queue(column: str) -> Callable[[SystemTrials], Values]:
    """Return a quantity of the queue at the bottleneck: the port with the longest median queue."""

    def values(trials: SystemTrials) -> Values:
        sampled = trials.run.links.dropna(subset=["queue_median_bytes"])
        longest = sampled.loc[sampled.groupby("trial").queue_median_bytes.idxmax()]
        return Values(trials.by_repeat(longest.set_index("trial")[column]))

    return values


def _simulated(column: str) -> Callable[[SystemTrials], Values]:
    """Return the quantity of a column of `simulated_trials`."""

    def values(trials: SystemTrials) -> Values:
        found = trials.part.simulated[trials.system.name]
        scale = trials.part.scale.rate if column == "goodput_bps" else 1.0
        return Values(trials.by_repeat(found[column]) * scale)

    return values


def _relative_to_simulated(live: str, simulated: str) -> Callable[[SystemTrials], Values]:
    """Return the quotient of a live quantity and the simulated one."""

    def values(trials: SystemTrials) -> Values:
        both = (QUANTITIES[name](trials).of_trials for name in (live, simulated))
        return Values(operator.truediv(*both))

    return values


def _of_tcp(quantity: str) -> Callable[[SystemTrials], Values]:
    """Return the quantity of one of TCP's counters (`reordering`)."""

    def values(trials: SystemTrials) -> Values:
        found = counted_by_trial(trials.run.flows, quantity, trials.system.mtu)
        return Values(trials.by_repeat(found))

    return values


Belongs = Callable[[str, str], bool]  # whether a flow's source and destination are among those


def _below_one_switch(network: Topology) -> Belongs:
    def below_one(*ends: str) -> bool:
        return len({network.server_plug(network.server(end), 0).node for end in ends}) == 1

    return below_one


def _level_1_neighbours(network: Topology) -> Belongs:
    cables = [cable for cable in network.links() if cable.level == 1]
    pairs = {frozenset(map(network.address, (one.a, one.b))) for one in cables}
    return lambda *ends: {*ends} in pairs


FLOWS: dict[str, Callable[[Topology], Belongs]] = {
    "below one switch": _below_one_switch,
    "neighbours on level 1": _level_1_neighbours,
}


# -- quantities of faults and repairs --------------------------------------------------------------


def _events(trials: SystemTrials) -> pandas.DataFrame:
    """Return the row's faults or repairs, or all of them."""
    found = trials.run.events
    named = found.event == trials.row.event if trials.row.event else found.event.notna()
    return found[named & (found.reason == "")]


def detection(trials: SystemTrials) -> Values:
    """Return the time until the routing detects the event."""
    return Values(_events(trials).detected_s)


def outage(trials: SystemTrials) -> Values:
    """Return the time until stopped flows continue; 0 if the event stopped none."""
    found = _events(trials)
    return Values(found.rerouted_s.mask(found.stopped_flows == 0, 0.0))


def recovery(trials: SystemTrials) -> Values:
    """Return the time until the former goodput; 0 if the event stopped no flow."""
    found = _events(trials)
    return Values(found.recovered_s.mask(found.stopped_flows == 0, 0.0))


def share_afterwards(trials: SystemTrials) -> Values:
    """Return the goodput in the last second before the next event, relative to the first one's."""
    import pandas

    shares = {}
    for trial, events in trials.run.events.groupby("trial"):
        intervals = trials.run.intervals[trials.run.intervals.trial == trial]
        moments = [*sorted(events.at_s), float(intervals.end_s.max())]
        at_s = events[events.event == trials.row.event].at_s
        if not at_s.empty:
            following = moments[moments.index(at_s.iloc[0]) + 1]
            first, now = (_second_before(intervals, end_s) for end_s in (moments[0], following))
            shares[trial] = now / first
    return Values(pandas.Series(shares, dtype=float))


def _second_before(intervals: pandas.DataFrame, end_s: float) -> float:
    within = intervals[(intervals.begin_s >= end_s - 1.0) & (intervals.end_s <= end_s)]
    return float(within.delivered_bytes.sum() / (within.end_s - within.begin_s).sum())


def _by_trial(of_run: Callable[[Run, str], pandas.Series]) -> Callable[[SystemTrials], Values]:
    """Return the quantity of a function of the records and the row's event."""
    return lambda trials: Values(trials.by_repeat(of_run(trials.run, trials.row.event)))


def _of_flows_with_path(column: str) -> Callable[[SystemTrials], Values]:
    """Return the quantity of a column of `faults_with_flow_effects`."""

    def values(trials: SystemTrials) -> Values:
        found = trials.part.flow_effects[trials.system.name]
        own = found if not trials.row.event else found[found.event == trials.row.event]
        return Values(own[column])

    return values


QUANTITIES: dict[str, Callable[[SystemTrials], Values]] = {
    "completion": completion,
    "goodput": goodput,
    "goodput of a server": goodput_of_server,
    "late goodput": late_goodput,
    "file goodput": file_goodput,
    "maximum goodput": maximum_goodput,
    "last flow": last_flow,
    "last flow over others": last_flow_over_others,
    "time over bound": over_bound,
    "read over bound": read_over_bound,
    "reads with a timeout": reads_with_timeout,
    "detection": detection,
    "flow set-up": flow_setup,
    "outage": outage,
    "recovery": recovery,
    "share afterwards": share_afterwards,
    "longest gap": _by_trial(longest_gap_s),
    "goodput during": _by_trial(goodput_during_bps),
    "queue, median": _queue("queue_median_bytes"),
    "queue, 99th percentile": _queue("queue_p99_bytes"),
    "simulated goodput": _simulated("goodput_bps"),
    "simulated fairness": _simulated("fairness"),
    "simulated queue, median": _simulated("queue_median_bytes"),
    "simulated queue, 99th percentile": _simulated("queue_p99_bytes"),
    "goodput, live / simulated": _relative_to_simulated("goodput", "simulated goodput"),
    "queue, live / simulated": _relative_to_simulated("queue, median", "simulated queue, median"),
    **{quantity: _of_tcp(quantity) for quantity in COUNTERS},
    **{f"{column} with a path": _of_flows_with_path(column) for column in EFFECTS},
}
# Quantities of relays (`relay_figures`).
OF_RELAYS = (
    *("goodput", "forwarded", "cost by bit", "cost by bit, eBPF", "cost by packet, eBPF"),
    *("share", "share, eBPF", "share of full", "cost of a packet", "cost of a packet, eBPF"),
    *("cost of a short packet", "short over long, eBPF", "arrived"),
)
COLUMNS = ("link_spread", "fairness")  # columns of the trials' records that are quantities
