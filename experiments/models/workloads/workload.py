"""Traffic workload of an experiment, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pillarbox.topos.base.errors import UnknownNameError, meant, require

POISSON = "poisson"
TRAINING = "training"  # pattern of a training iteration, whose trace has the sizes of transfers
TRACES = (".csv", ".parquet")
SERVERS, BISECTION, BUSIEST = "servers", "bisection", "busiest"
LOADS_OF = (SERVERS, BISECTION, BUSIEST)
MOST_LOAD = 1.0
MOST_BYTES = 1e15  # maximum size of a flow in bytes


@dataclass(frozen=True)
class Workload:
    """Workload of an experiment: traffic pattern, flow sizes or duration, and traffic tool.

    Either each flow carries `volume_bytes`, or all flows run for `duration_s`. With `arrivals`,
    flows start one after the other, with their own sizes, and those that start within `duration_s`
    are measured; a trace has its own length.
    """

    pattern: str = (
        "all-to-all"  # traffic pattern: name in pillarbox.experiments.models.workloads.patterns
    )
    volume_bytes: int | None = None
    duration_s: float | None = None
    tool: str = "auto"  # iperf3, generator, or auto: by the number of flows per processor
    congestion: str = "cubic"
    interval_s: float = 0.1  # report interval of each flow, in seconds
    timeout_s: float = 120.0  # time limit of the trial's flows from the start barrier, in seconds
    options: Mapping[str, Any] = field(default_factory=dict)  # options of the traffic pattern
    # Open-loop arrivals of flows (`arrivals`): "poisson", or the FILE of a trace.
    arrivals: str | None = None
    load: float | None = None  # offered load as a fraction of the capacity that `load_of` names
    load_of: str = SERVERS
    # Flow sizes: name in `pillarbox.experiments.models.workloads.sizes`, bytes, or FILE.
    sizes: str = "web-search"
    size_scale: float = 1.0
    warm_up_s: float = 2.0  # seconds of traffic before the measured part
    cool_down_s: float = 1.0  # seconds of traffic after the measured part

    def __post_init__(self) -> None:
        for name in ("interval_s", "timeout_s"):
            value = getattr(self, name)
            require(value > 0, f"{name} is above 0, not {value:g}")
        if self.arrivals is not None:
            self._check_arrivals(self.arrivals)
            return
        if self.pattern == TRAINING:
            require(
                self.volume_bytes is None and self.duration_s is None,
                "a training iteration has the sizes of its trace or model: omit volume_bytes and "
                "duration_s",
            )
            return
        require(
            (self.volume_bytes is None) != (self.duration_s is None),
            "a workload has either volume_bytes (of each flow) or duration_s: set one of them",
        )
        require(
            self.volume_bytes is None or self.volume_bytes <= MOST_BYTES,
            f"volume_bytes is at most {MOST_BYTES:g}: choose less",
        )
        require(self.load is None, "a load needs arrivals: set arrivals = poisson, or omit load")

    @property
    def completes(self) -> bool:
        """True if the workload is complete after certain volumes, and not after a duration."""
        return self.volume_bytes is not None or self.pattern == TRAINING

    @property
    def trace(self) -> str | None:
        """Name of the trace file with the workload's flows; None if flows are generated."""
        return self.arrivals if (self.arrivals or "").endswith(TRACES) else None

    def _check_arrivals(self, arrivals: str) -> None:
        require(
            arrivals == POISSON or self.trace is not None,
            f"arrivals are {POISSON}, or a trace: a FILE that ends in {' or '.join(TRACES)}, not "
            f"{arrivals!r}",
        )
        require(
            self.volume_bytes is None,
            "arriving flows have the sizes of a distribution or a trace: omit volume_bytes, or "
            "give the bytes as sizes",
        )
        for name in ("warm_up_s", "cool_down_s"):
            value = getattr(self, name)
            require(value >= 0, f"{name} is at least 0, not {value:g}")
        if self.trace is not None:
            require(
                self.load is None, "the arrivals are a trace, which has its own load: omit load"
            )
            return
        require(
            self.duration_s is not None and self.duration_s > 0,
            "arrivals need duration_s (length of the measured part) above 0",
        )
        check_load(self.load)
        hint = meant(self.load_of, LOADS_OF)
        require(
            self.load_of in LOADS_OF,
            f"load_of: there is no capacity {self.load_of!r} for a load: {hint}",
            UnknownNameError,
        )


def check_load(load: float | None) -> None:
    """Raise PillarboxError if a workload's load is missing, or not between 0 and 1."""
    require(load is not None, "arrivals need a load, above 0 and below 1: load = 0.5")
    assert load is not None
    require(
        0 < load < MOST_LOAD,
        f"a load is above 0 and below 1, not {load:g}: at 1 and above, queues grow without bound",
    )
