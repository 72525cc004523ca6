"""An experiment as data: systems x workload x faults x repeats, and the seed of all that is random.

Nothing here runs anything. The same values give the same trials, in the same order, with the same
flows and the same faults at the same moments.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from experiments.traffic.workload import Workload
from hosts.live.settings import LabSettings
from topos.base.errors import require

FAULTS = ("cut", "silent cut", "server", "switch", "rack")


@dataclass(frozen=True)
class System(LabSettings):
    """One of the things that are compared: a network, and how it runs.

    What runs without a `rate_mbit` cannot be judged. Packets are large, as on BCube's own testbed
    (Guo 2009, section 7.1): with an MTU of 1500 a small machine carries a fifth of it.
    """

    network: str
    label: str = ""
    mtu: int = field(default=9000, kw_only=True)

    @property
    def name(self) -> str:
        """What tables and figures call it."""
        return self.label or " ".join(filter(None, (self.network, self.routing)))


@dataclass(frozen=True)
class FaultAt:
    """A fault that begins at a moment after the barrier, and may end at another.

    `what` names nodes as the command line does: two ends of a cable (``0.3``, ``4.0`` or ``s2``), a
    server, a switch (for a rack: its switch). It strikes the systems of these names, or all.
    """

    kind: str
    what: tuple[str, ...]
    at_s: float
    until_s: float | None = None
    systems: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require(self.kind in FAULTS, f"there is no fault {self.kind!r}: {', '.join(FAULTS)}")


@dataclass(frozen=True)
class FaultRate:
    """Faults at random: so many a minute, of that kind, each lasting so long, within a window."""

    kind: str
    per_minute: float
    lasting_s: float
    from_s: float = 0.0
    until_s: float | None = None  # the end of the workload, where that is known
    systems: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require(self.kind in FAULTS, f"there is no fault {self.kind!r}: {', '.join(FAULTS)}")


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
                f"a fault {fault.kind!r} of {self.name} is for {', '.join(unknown)}, which is no "
                f"system of it: there are {', '.join(names)}",
            )
        require(self.repeats >= 1, "an experiment has at least one repeat")
