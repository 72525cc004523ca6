"""An experiment as data: systems x workload x faults x repeats, and the random seed.

This module runs nothing. The same values give the same trials, in the same order, with the same
flows and the same faults at the same times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import InitVar, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from pillarbox.experiments.models.workloads.workload import Workload, check_load
from pillarbox.hosts.base.faults import kind_of, read
from pillarbox.hosts.live.settings import LabSettings
from pillarbox.topos.base.errors import require
from pillarbox.topos.base.graph_file import named_file
from pillarbox.topos.base.levels import network_with_rates
from pillarbox.topos.base.spec import parse
from pillarbox.topos.base.topology import Topology

# Example of the text of a fault, such as in the TOML key `fault`, for error messages.
WRITTEN = 'fault = "cut 0.3-4.0 at 2 until 4", or fault = "kill" with per_minute and lasting_s'


@dataclass(frozen=True)
class System(LabSettings):
    """A compared system of an experiment: a network and its settings.

    Trials of a system without `rate_mbit` are never valid. The default packets are large, as on the
    testbed of the BCube paper (Guo 2009, section 7.1): with an MTU of 1500 a small machine carries
    a fifth of that throughput. `rates_mbit` gives each level of cables its rate in Mbit/s, level 0
    first: it sets `rate_mbit`, and option ``rates`` of the network.
    """

    network: str
    label: str = ""
    algorithm: str = ""  # Algorithm of a collective operation; "" selects the usual algorithm.
    mtu: int = field(default=9000, kw_only=True)
    # Offered load of arriving flows, overriding the workload's: one network under several loads
    # is several systems.
    at_load: float | None = field(default=None, kw_only=True)
    # Traffic tool, overriding the workload's: several systems compare tools on one network.
    tool: str = field(default="", kw_only=True)
    # Job of the workload that runs alone, on the servers that it has next to the other jobs; ""
    # runs all jobs.
    job: str = field(default="", kw_only=True)
    # Number of machines that the network runs on (docs/machines.md).
    machines: int = field(default=1, kw_only=True)
    # Cluster that provides the machines; "" is this computer. The trials of systems with
    # machines = 1 are distributed over the cluster's machines.
    cluster: str = field(default="", kw_only=True)
    # Rate of each level of cables; stored in `rate_mbit` and `network`.
    rates_mbit: InitVar[Sequence[float]] = field(default=(), kw_only=True)

    def __post_init__(self, rates_mbit: Sequence[float]) -> None:
        if rates_mbit:
            network, rate_mbit = network_with_rates(self.network, rates_mbit)
            object.__setattr__(self, "network", network)
            object.__setattr__(self, "rate_mbit", rate_mbit)
        require(self.machines >= 1, f"a network runs on 1 machine or more, not {self.machines}")
        if self.at_load is not None:
            check_load(self.at_load)
        if (file := named_file(self.network)) and not file.digest:
            # With the file's digest, records never refer to another graph; tables show the name.
            object.__setattr__(self, "network", self.topology.spec)

    @cached_property
    def topology(self) -> Topology:
        """Network that the spec describes, parsed once and sent along to other processes.

        Raises PillarboxError if the spec is invalid.
        """
        return parse(self.network)

    @classmethod
    def of_lab(cls, topology: Topology, **settings: Any) -> System:
        """Return the system of a running lab, whose network is known: no spec is parsed."""
        system = cls(topology.spec, **settings)
        vars(system)["topology"] = topology
        return system

    @property
    def name(self) -> str:
        """Name of the system in tables and figures."""
        return (
            f"{self.name_with_all_jobs}, job {self.job} alone"
            if self.job
            else (self.name_with_all_jobs)
        )

    @property
    def name_with_all_jobs(self) -> str:
        """Name of the system in which all jobs of the workload run."""
        load = "" if self.at_load is None else f"at {self.at_load:g}"
        tcp = Path(self.tcp).name.partition(".")[0]
        transport = self.transport if self.multipath else ""
        transport += f" {self.subflows}" if self.subflows else ""
        file = named_file(self.network)
        network = Path(file.path).name if file else self.network
        parts = (network, self.routing, self.algorithm, load, self.tool, transport, tcp)
        return self.label or " ".join(filter(None, parts))


@dataclass(frozen=True)
class FaultAt:
    """A fault at a given time, in the syntax of `pillarbox.hosts.base.faults`.

    Example: ``cut 0.3-4.0 silent at 2 until 4``. The fault applies to the systems named in
    `systems`, or to all systems if `systems` is empty.
    """

    WRITTEN: ClassVar = WRITTEN

    fault: str
    systems: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        read(self.fault)


@dataclass(frozen=True)
class FaultRate:
    """Random faults of one kind: rate per minute, duration in seconds, and time window.

    `fault` is the verb of a fault: ``cut``, ``cut silent``, ``kill``, ``stop``, ``rack``.
    """

    WRITTEN: ClassVar = WRITTEN

    fault: str
    per_minute: float
    lasting_s: float
    from_s: float = 0.0
    until_s: float | None = None  # End of the window in seconds; None is the workload's duration.
    systems: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        kind_of(self.fault)


@dataclass(frozen=True)
class Experiment:
    """An experiment: systems, workload, faults, repeats and seed."""

    name: str
    about: str
    systems: tuple[System, ...]
    workload: Workload
    faults: tuple[FaultAt | FaultRate, ...] = ()
    repeats: int = 3
    seed: int = 1
    # Relative width of the confidence interval of total goodput (or completion time). After
    # `repeats`, trials continue until every system reaches this width, up to `most_repeats`.
    precision: float | None = None
    most_repeats: int = 10
    log_packets: bool = False  # True logs the times of all packets, for `pillarbox why-slow`.

    def __post_init__(self) -> None:
        require(bool(self.systems), f"experiment {self.name} has no systems")
        names = [system.name for system in self.systems]
        require(len(set(names)) == len(names), f"two systems of {self.name} have the same name")
        for fault in self.faults:
            unknown = [name for name in fault.systems if name not in names]
            require(
                not unknown,
                f"{fault.fault!r} of {self.name} names unknown systems ({', '.join(unknown)}): "
                f"choose from {', '.join(names)}",
            )
        require(
            self.workload.arrivals is not None or not any(one.at_load for one in self.systems),
            f"a system of {self.name} has at_load, but the workload has no arrivals: set "
            "arrivals = poisson",
        )
        require(self.repeats >= 1, "an experiment has at least one repeat")
        require(
            self.precision is None or self.precision > 0,
            f"precision is a relative width above 0, not {self.precision}",
        )
