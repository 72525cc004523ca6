"""What traffic an experiment asks for, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from topos.base.errors import require


@dataclass(frozen=True)
class Workload:
    """Which flows are sent, how long, and by which program.

    Either each flow carries `volume_bytes`, or all flows run for `duration_s`.
    """

    pattern: str = "all-to-all"  # a name in experiments.traffic.patterns
    volume_bytes: int | None = None
    duration_s: float | None = None
    tool: str = "auto"  # iperf3 or generator; the generator beyond some 400 flows
    congestion: str = "cubic"
    interval_s: float = 0.1  # of the rows
    timeout_s: float = 120.0  # of the whole trial, from the barrier on
    options: Mapping[str, Any] = field(default_factory=dict)  # of the pattern

    def __post_init__(self) -> None:
        require(
            (self.volume_bytes is None) != (self.duration_s is None),
            "a workload has either volume_bytes (of each flow) or duration_s",
        )
