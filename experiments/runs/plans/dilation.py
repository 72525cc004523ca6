"""Time dilation of an experiment: the lab stands for a faster network and runs k times slower.

Everything in an experiment's plan is in the network's own time. The lab divides rates by k and
multiplies times by k: delays, bursts, TCP's minimum retransmission timeout, the servers' clocks,
flows and faults (docs/dilation.md). `dilated` adds each system a second time at 2k, and
`pillarbox.experiments.runs.trials.scale_check` compares the two.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

from pillarbox.experiments.lab.emulation.setting_checks import MOST_DILATION
from pillarbox.experiments.lab.linux.queueing import SECONDS
from pillarbox.experiments.lab.linux.shaping import scaled_delay
from pillarbox.experiments.lab.traffic.tools import IPERF3, missing_time_sysctls
from pillarbox.experiments.models.workloads.workload import TRAINING
from pillarbox.experiments.runs.plans.experiment import Experiment, FaultAt, System
from pillarbox.hosts.base.fault_kinds import fault_kind
from pillarbox.hosts.base.faults import kind_of, read
from pillarbox.topos.base.errors import UnsupportedError, require

AGAIN = 2  # factor from a system's dilation to that of its second copy
# congestion controls without a constant in seconds
CONTROLS = ("reno", "dctcp", "scalable")
# queues without a constant in seconds
QUEUES = ("droptail", "ecn")


def dilated(experiment: Experiment, own_mbit: float) -> tuple[Experiment, list[str]]:
    """Return an experiment whose cables have `own_mbit`, and sentences about omitted systems.

    The rates of the experiment become those of the lab. Each system is there twice: with its
    dilation k, and with 2k. Systems that this kernel cannot dilate are omitted; raises
    UnsupportedError if none is left.
    """
    kept, again = [], []
    omitted: dict[str, list[str]] = {}  # names of the omitted systems, by reason
    for system in experiment.systems:
        made = _dilated_system(system, own_mbit)
        try:
            check_dilation(experiment, made)
        except UnsupportedError as error:
            omitted.setdefault(str(error), []).append(system.name)
            continue
        k = AGAIN * made.dilation
        kept.append(made)
        again.append(replace(made, dilation=k, label=f"{system.name}, {k:.3g} times slower"))
    require(
        bool(kept),
        f"no system of {experiment.name} can be dilated: {'; '.join(omitted)}",
        UnsupportedError,
    )
    names = {one.name: (one.name, two.name) for one, two in zip(kept, again, strict=True)}
    faults = [
        replace(one, systems=tuple(chain.from_iterable(names.get(old, ()) for old in one.systems)))
        for one in experiment.faults
        if not one.systems or {*one.systems} & {*names}
    ]
    sentences = [
        f"systems left out: {'; '.join(left)} ({reason})" for reason, left in omitted.items()
    ]
    return replace(experiment, systems=(*kept, *again), faults=tuple(faults)), sentences


def _dilated_system(system: System, own_mbit: float) -> System:
    """Return a system with the network's own rate, whose lab runs at the rate that it had."""
    require(
        system.rate_mbit is not None,
        f"{system.name} has no rate that the lab could run at: set rate_mbit",
    )
    assert system.rate_mbit is not None
    require(
        own_mbit > system.rate_mbit,
        f"the cables of {system.name} have {system.rate_mbit:g} Mbit/s in the lab, and "
        f"{own_mbit:g} Mbit/s is not more: omit --as, or lower rate_mbit",
    )
    require(
        system.dilation == 1,
        f"{system.name} has a dilation, and rate_mbit is its own rate: omit --as",
    )
    k, most = own_mbit / system.rate_mbit, MOST_DILATION / AGAIN
    require(
        k <= most,
        f"{own_mbit:g} Mbit/s are {k:g} times the lab's {system.rate_mbit:g} Mbit/s, and at "
        f"most {most:g} times can be emulated: choose a higher rate_mbit, or a lower rate",
    )
    # An idle port of the lab sends a burst of `catch_up` at the lab's rate: the same bytes take 1/k
    # of that time in the network.
    catch_up = scaled_delay(system.catch_up, 1 / k) or ""
    return replace(system, rate_mbit=own_mbit, dilation=k, catch_up=catch_up)


def check_dilation(experiment: Experiment, system: System) -> None:
    """Raise UnsupportedError if a system has a constant in seconds that cannot be scaled."""
    workload = experiment.workload
    control = system.tcp or workload.congestion
    tool = system.tool or workload.tool
    missing = missing_time_sysctls()
    for refused, sentence in (
        (bool(missing), f"this kernel has no {', '.join(missing)}, which sets TCP's timeouts"),
        (
            control not in CONTROLS and not control.endswith(".bpf.c"),
            f"the congestion control {control} has constants in seconds, which the kernel does not "
            f"let change: choose {', '.join(CONTROLS)} (congestion or tcp)",
        ),
        (
            system.queue not in QUEUES,
            f"the queue {system.queue} has a target in milliseconds: choose {' or '.join(QUEUES)}",
        ),
        (system.multipath, "Multipath TCP has timers of its own: use transport tcp"),
        (
            system.switches != "bridges" or bool(system.controller) or system.plane == "ovs",
            "Open vSwitch and controllers have timeouts of their own: use switches = bridges",
        ),
        (
            system.machines > 1 or bool(system.cluster),
            "dilation is for labs on one machine: leave out machines and cluster",
        ),
        (tool == IPERF3, "iperf3 has intervals of its own: use tool generator"),
        (workload.pattern == TRAINING, "computations of training are not dilated"),
        (experiment.log_packets, "the log of packets is not dilated: omit --log-packets"),
    ):
        require(not refused, sentence, UnsupportedError)
    for fault in experiment.faults:
        kind = read(fault.fault).kind if isinstance(fault, FaultAt) else kind_of(fault.fault)[0]
        timed = any(one.unit in SECONDS for one in fault_kind(kind).amounts)
        require(
            not timed, f"the times of the fault {fault.fault!r} are not dilated", UnsupportedError
        )
