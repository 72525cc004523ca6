"""An experiment as data: systems x workload x faults x repeats, and the seed of all that is random.

Nothing here runs anything. The same values give the same trials, in the same order, with the same
flows and the same faults at the same moments.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from experiments.traffic.workload import Workload, check_load
from hosts.base.faults import kind_of, read
from hosts.live.settings import LabSettings
from topos.base.errors import require

WRITTEN = 'fault = "cut 0.3-4.0 at 2 until 4", or fault = "kill" with per_minute and lasting_s'


@dataclass(frozen=True)
class System(LabSettings):
    """One of the things that are compared: a network, and how it runs.

    What runs without a `rate_mbit` cannot be judged. Packets are large, as on BCube's own testbed
    (Guo 2009, section 7.1): with an MTU of 1500 a small machine carries a fifth of it.
    """

    network: str
    label: str = ""
    algorithm: str = ""  # of a collective operation; the usual one
    mtu: int = field(default=9000, kw_only=True)
    # Of arrivals, instead of the workload's: one network under several loads is several systems.
    at_load: float | None = field(default=None, kw_only=True)
    machines: int = field(default=1, kw_only=True)  # see docs/machines.md
    # Whose machines they are, else this computer's; with one, trials are spread over all of them.
    cluster: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        require(self.machines >= 1, f"a network runs on 1 machine or more, not {self.machines}")
        if self.at_load is not None:
            check_load(self.at_load)

    @property
    def name(self) -> str:
        """What tables and figures call it."""
        load = "" if self.at_load is None else f"at {self.at_load:g}"
        parts = (self.network, self.routing, self.algorithm, load)
        return self.label or " ".join(filter(None, parts))


@dataclass(frozen=True)
class FaultAt:
    """A fault as `hosts.base.faults` reads it: ``cut 0.3-4.0 silent at 2 until 4``.

    It strikes the systems of these names, or all.
    """

    WRITTEN: ClassVar = WRITTEN

    fault: str
    systems: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        read(self.fault)


@dataclass(frozen=True)
class FaultRate:
    """Faults at random: so many a minute, of that kind, each lasting so long, within a window.

    `fault` is a fault's verb: ``cut``, ``cut silent``, ``kill``, ``stop``, ``rack``.
    """

    WRITTEN: ClassVar = WRITTEN

    fault: str
    per_minute: float
    lasting_s: float
    from_s: float = 0.0
    until_s: float | None = None  # the end of the workload, where that is known
    systems: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        kind_of(self.fault)


@dataclass(frozen=True)
class Experiment:
    """All of it."""

    name: str
    about: str
    systems: tuple[System, ...]
    workload: Workload
    faults: tuple[FaultAt | FaultRate, ...] = ()
    repeats: int = 3
    seed: int = 1
    # Beyond `repeats`, go on until the confidence interval of the total goodput (or completion
    # time) of every system is this narrow, relative to its mean; at most `most_repeats`.
    precision: float | None = None
    most_repeats: int = 10

    def __post_init__(self) -> None:
        require(bool(self.systems), f"experiment {self.name} compares no system")
        names = [system.name for system in self.systems]
        require(len(set(names)) == len(names), f"two systems of {self.name} have the same name")
        for fault in self.faults:
            unknown = [name for name in fault.systems if name not in names]
            require(
                not unknown,
                f"{fault.fault!r} of {self.name} is for {', '.join(unknown)}, which is no "
                f"system of it: there are {', '.join(names)}",
            )
        require(
            self.workload.arrivals is not None or not any(one.at_load for one in self.systems),
            f"a system of {self.name} has a load, and nothing arrives: set arrivals = poisson",
        )
        require(self.repeats >= 1, "an experiment has at least one repeat")
        require(
            self.precision is None or self.precision > 0,
            f"precision is a relative width above 0, not {self.precision}",
        )
