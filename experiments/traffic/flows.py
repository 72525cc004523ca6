"""Flows of an experiment and their results, in a form common to all traffic programs.

All times are in seconds after the barrier, the common start of all flows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

COMPLETED, FAILED = "completed", "failed"
# Niceness of processes that send and receive flows: it leaves processor time to the servers'
# forwarders, and to the kernel's threads that move packets.
NICE = 10


@dataclass(frozen=True)
class Flow:
    """A TCP connection that delivers `volume_bytes`, or sends for `duration_s`."""

    number: int
    source: int
    destination: int
    volume_bytes: int | None = None
    duration_s: float | None = None
    start_s: float = 0.0


class Interval(NamedTuple):
    """Progress of a flow in one interval; None where the tool does not report a value."""

    begin_s: float
    end_s: float
    delivered_bytes: int  # bytes delivered in the interval, counted by the receiver
    retransmits: int | None = None
    rtt_us: int | None = None
    cwnd_bytes: int | None = None


@dataclass
class FlowResult:
    """Result of a flow: a failed flow has a reason, and never counts as one of 0 bit/s."""

    flow: Flow
    tool: str
    status: str = FAILED
    reason: str = "never begun"
    begin_s: float | None = None  # time of the connection's first byte
    end_s: float | None = None  # delivery of the last byte
    delivered_bytes: int = 0
    retransmits: int | None = None
    tries: int = 1
    intervals: list[Interval] = field(default_factory=list)

    @property
    def goodput_bps(self) -> float | None:
        """Goodput while the flow ran, in bit/s; None if the flow failed."""
        if self.status != COMPLETED or self.begin_s is None or self.end_s is None:
            return None
        return self.delivered_bytes * 8 / max(self.end_s - self.begin_s, 1e-9)


class Progress(NamedTuple):
    """Progress of a flow: delivered bytes, and whether the flow has ended."""

    number: int
    delivered_bytes: int
    ended: bool


@dataclass(frozen=True)
class Sending:
    """TCP settings and time limits of flows."""

    congestion: str = "cubic"
    interval_s: float = 0.1
    # counted from the barrier: a flow that has not ended by then has failed
    timeout_s: float = 120.0
    most_bps: float | None = None  # maximum rate of a flow, TCP headers included


class Tool(Protocol):
    """Program or programs that send flows over a running lab.

    A tool is constructed with the lab, the flows and a `Sending`. `close` ends and removes
    everything that the tool has started, at any time.
    """

    name: str

    def prepare(self) -> None:
        """Start listeners, and connect flows where the tool can connect them in advance."""

    def start(self, at_s: float) -> None:
        """Start the flows at `at_s` of CLOCK_MONOTONIC, which is the barrier."""

    def progress(self) -> Sequence[Progress]:
        """Return the flows' progress, at low cost."""

    def ended(self) -> bool:
        """Return True if every flow has ended or failed."""

    def results(self) -> list[FlowResult]:
        """Return each flow's result after the end, in the order of the flows' numbers."""

    def versions(self) -> dict[str, Any]:
        """Return the traffic program's entries of the manifest."""

    def close(self) -> None:
        """End all processes and flows that still run."""


@runtime_checkable
class Finishing(Protocol):
    """A tool whose flows can be ended early."""

    def finish(self) -> None:
        """End flows that have a duration now, as if it were over; callable from any thread."""
