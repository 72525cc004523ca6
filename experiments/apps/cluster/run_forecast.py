"""Forecast of a run: memory, processor time, network card and duration, from measured costs.

Costs grow in proportion to servers, cables and transmitted data, except for a list of all queues of
a machine, which the kernel searches for each new queue. They are those of
the reference machine: two processors AMD EPYC at 2.6 GHz, Linux 6.18, eBPF plane, fast timers.
"""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

from pillarbox.experiments.apps.cluster.forecast import Forecast, forecast
from pillarbox.experiments.apps.cluster.placement import place
from pillarbox.topos.base.errors import UnsupportedError
from pillarbox.topos.base.topology import Topology

MOST_MACHINES = 100  # largest number of machines that `fitting_forecast` tries
# fraction of a machine's processors up to which trials of `bench capacity` were valid
USABLE = 0.85


class Costs(NamedTuple):
    """Measured costs of a lab: memory in MiB, processor time in seconds."""

    lab_mib: float  # memory of the lab's own process
    machine_mib: float  # memory of a machine's Dask worker and part, over several machines
    server_mib: float  # memory per server, with its forwarder, switches and cables, kernel included
    lab_start_s: float  # processor time to start the lab's own process
    machine_start_s: float  # processor time to start a machine's Dask worker and part
    server_start_s: float  # processor time of a server's forwarder until it is ready
    server_machine_s: float  # the same with the kernel's own work, which no process counts
    cable_start_s: float  # processor time to make a cable, with its part of the nodes
    cable_pair_start_s: float  # the same, for each cable that the machine already has
    server_idle: float  # processors per idle server, for its heartbeats
    gbit_link_s: float  # processor time to send 1 Gbit over one link of a path


# Memory, and start of machines: fitted to dcell,4,1 and bcube,5,2 on 1, 2 and 4 local machines
# (docs/machines.md). Start of servers and cables: from 20 (dcell,4,1) to 1,000 servers
# (bcube,10,2), with durations of 0.6 and 13.2 s. Idle: `bench scale`, 14 % of a processor for 420
# servers. Data: `bench capacity` (ADR 18), busy processors divided by goodput times links, 0.038 s
# for bcube,4,1.
COSTS = Costs(
    lab_mib=76.0,
    machine_mib=150.0,
    server_mib=5.2,
    lab_start_s=0.34,
    machine_start_s=2.3,
    server_start_s=0.0045,
    server_machine_s=0.0145,
    cable_start_s=0.0012,
    cable_pair_start_s=4.6e-7,
    server_idle=0.14 / 420,
    gbit_link_s=0.04,
)


def memory_and_start(
    machines: int, servers: int, cables: float, costs: Costs = COSTS
) -> tuple[float, float]:
    """Return the memory in MiB and the processor time in seconds to start servers on a computer.

    The computer runs the lab's process and, if the lab has several machines, the parts of
    `machines` of them, otherwise 0.

    >>> [round(value, 2) for value in memory_and_start(0, 100, 200)]
    [596.0, 1.04]
    """
    mib = costs.lab_mib + machines * costs.machine_mib + servers * costs.server_mib
    start_s = costs.lab_start_s + machines * costs.machine_start_s + servers * costs.server_start_s
    return mib, start_s + cables_s(cables, costs)


def cables_s(cables: float, costs: Costs = COSTS) -> float:
    """Return the processor time in seconds to make cables, all in one process.

    >>> round(cables_s(3000), 2)
    5.67
    """
    return cables * costs.cable_start_s + cables**2 / 2 * costs.cable_pair_start_s


class RunForecast(NamedTuple):
    """Expected costs of a run with all-to-all traffic; those of a machine are the largest."""

    machines: int
    servers: int  # servers on a machine
    memory_mib: float  # memory of a machine
    processors: float  # processors that a machine needs during traffic
    card_mbit: float  # rate of a machine's network card, in both directions together
    start_s: float  # processor time of a machine to start its part of the lab
    serial_s: float  # part of `start_s` for the lab's own process and its cables
    parallel_s: float  # time of all processors to start forwarders, kernel included

    def start_duration_s(self, processors: float) -> float:
        """Return the duration of a start: its serial part, then forwarders on all processors."""
        return self.serial_s + self.parallel_s / processors


def run_forecast(
    topology: Topology, machines: int, server_mbit: float, costs: Costs = COSTS
) -> RunForecast:
    """Return the expected costs of a run in which each server sends `server_mbit` to all others.

    >>> from pillarbox import topos
    >>> found = run_forecast(topos.parse("bcube,4,1"), 2, 100.0)
    >>> found.servers, round(found.card_mbit), round(found.processors, 2)
    (8, 1280, 0.11)
    """
    found = forecast(topology, place(topology, machines))
    return _costs_of(topology, found, server_mbit, costs)


def fitting_forecast(
    topology: Topology,
    server_mbit: float,
    processors: float,
    memory_mib: float,
    costs: Costs = COSTS,
) -> RunForecast:
    """Return the forecast for the smallest number of equal machines that can carry a run.

    Parameters
    ----------
    topology : Topology
        The network.
    server_mbit : float
        Rate at which each server sends, in Mbit/s.
    processors, memory_mib : float
        Processors and memory of each machine.
    """
    most = min(MOST_MACHINES, topology.servers)
    usable = USABLE * processors
    impossible = UnsupportedError(
        f"no number of machines up to {most} can carry "
        f"{topology.spec} at {server_mbit:g} Mbit/s per server: lower the rate, or take larger "
        "machines"
    )
    servers_mib = topology.servers * costs.server_mib
    idle_processors = topology.servers * costs.server_idle
    # Idle servers may need more than all machines have: no forecast of the traffic is needed.
    if idle_processors > most * usable or servers_mib > most * (memory_mib - costs.lab_mib):
        raise impossible
    total = run_forecast(topology, 1, server_mbit, costs)
    if total.processors <= usable and total.memory_mib <= memory_mib:
        return total
    spare_mib = memory_mib - costs.lab_mib - costs.machine_mib
    if total.processors <= most * usable and servers_mib <= most * spare_mib:
        # lower bound, reached if all machines have equal loads
        fewest = max(2, ceil(total.processors / usable), ceil(servers_mib / spare_mib))
        for machines in range(fewest, most + 1):
            found = run_forecast(topology, machines, server_mbit, costs)
            if found.processors <= usable and found.memory_mib <= memory_mib:
                return found
    raise impossible


def _costs_of(topology: Topology, found: Forecast, server_mbit: float, costs: Costs) -> RunForecast:
    machines = len(found.shares)
    total_gbit = topology.servers * server_mbit / 1e3
    servers = max(share.servers for share in found.shares)
    work = max(share.work for share in found.shares)
    cables = topology.cables * servers / topology.servers
    memory_mib, start_s = memory_and_start(int(machines > 1), servers, cables, costs)
    return RunForecast(
        machines,
        servers,
        memory_mib,
        servers * costs.server_idle + total_gbit * found.links * work * costs.gbit_link_s,
        total_gbit * 1e3 * max(share.card for share in found.shares),
        start_s,
        costs.lab_start_s + cables_s(cables, costs),
        int(machines > 1) * costs.machine_start_s + servers * costs.server_machine_s,
    )
