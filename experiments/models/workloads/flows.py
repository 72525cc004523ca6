"""Flows of an experiment and their results, in a form common to all traffic programs.

All times are in seconds after the barrier, the common start of all flows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

COMPLETED, FAILED = "completed", "failed"
# Niceness of traffic generator processes: servers' forwarders and the kernel's threads, which move
# packets, run before them.
NICE = 10


@dataclass(frozen=True)
class Flow:
    """A TCP flow from one server to another: of `volume_bytes`, or sending for `duration_s`."""

    number: int
    source: int
    destination: int
    volume_bytes: int | None = None
    duration_s: float | None = None
    start_s: float = 0.0


class Interval(NamedTuple):
    """Counters of a TCP flow in one interval; None if the traffic tool does not report a value."""

    begin_s: float
    end_s: float
    delivered_bytes: int  # bytes delivered in the interval, counted by the receiver
    retransmits: int | None = None
    rtt_us: int | None = None
    cwnd_bytes: int | None = None


class Reordering(NamedTuple):
    """TCP's counters of packet reordering at a flow's sender (TCP_INFO)."""

    degree: int  # largest reordering distance that TCP tolerates, in segments (tcpi_reordering)
    events: int  # number of detected reordering events (tcpi_reord_seen)
    duplicates: int  # segments that the receiver has received twice (tcpi_dsack_dups)


class SubflowInterval(NamedTuple):
    """Counters of a subflow of a Multipath TCP flow in one interval, from its sender."""

    subflow: int  # number of the subflow in its connection
    local: int  # IPv4 address of the client's end, as a number
    begin_s: float
    end_s: float
    acked_bytes: int  # bytes acknowledged in the interval; bytes sent by two subflows count twice
    retransmits: int
    rtt_us: int
    cwnd_bytes: int


@dataclass
class FlowResult:
    """Result of a TCP flow: a failed flow has a reason, and never counts as 0 bit/s."""

    flow: Flow
    tool: str
    status: str = FAILED
    reason: str = "never begun"
    begin_s: float | None = None  # time of the flow's first byte, from the barrier
    end_s: float | None = None  # time of the last byte's delivery, from the barrier
    delivered_bytes: int = 0
    retransmits: int | None = None
    tries: int = 1
    connect_s: float | None = None  # time of the TCP handshake, which ends before the barrier
    reordering: Sequence[int] | None = None  # the fields of `Reordering`; None if unknown
    # True if a flow of Multipath TCP was sent by TCP, because an end of it did without
    fell_back: bool = False
    source_port: int | None = None  # TCP port at the source; None if the tool does not report it
    intervals: list[Interval] = field(default_factory=list)
    subflows: list[SubflowInterval] = field(default_factory=list)

    @property
    def goodput_bps(self) -> float | None:
        """Goodput of a flow while it ran, in bit/s; None if the flow failed."""
        if self.status != COMPLETED or self.begin_s is None or self.end_s is None:
            return None
        return self.delivered_bytes * 8 / max(self.end_s - self.begin_s, 1e-9)


class Progress(NamedTuple):
    """Progress of a running flow: delivered bytes, and whether the flow has ended."""

    number: int
    delivered_bytes: int
    ended: bool


@dataclass(frozen=True)
class Sending:
    """TCP settings of flows: congestion control, report interval, timeout, maximum rate."""

    congestion: str = "cubic"
    interval_s: float = 0.1
    # time limit in seconds after the start barrier: a flow that has not ended by then has failed
    timeout_s: float = 120.0
    most_bps: float | None = None  # maximum rate of a flow, TCP headers included
    multipath: bool = False  # send by Multipath TCP


class Tool(Protocol):
    """Traffic tool: sends flows over a running lab with one or more programs.

    A tool is constructed with the lab, the flows and a `Sending`. `close` ends and removes
    everything that the tool has started, at any time.
    """

    name: str

    def prepare(self) -> None:
        """Start the flows' receivers, and connect flows if the tool can do so in advance."""

    def start(self, at_s: float) -> None:
        """Start the flows at the barrier: at `at_s` of CLOCK_MONOTONIC."""

    def progress(self) -> Sequence[Progress]:
        """Return the delivered bytes of flows so far; a call costs little processor time."""

    def ended(self) -> bool:
        """Return True if every flow has ended or failed."""

    def results(self) -> list[FlowResult]:
        """Return each flow's final result, in the order of the flows' numbers."""

    def versions(self) -> dict[str, Any]:
        """Return the traffic tool's manifest entries: versions and settings."""

    def close(self) -> None:
        """End all flows and processes of the traffic tool."""


@runtime_checkable
class EndableTool(Protocol):
    """Traffic tool whose flows can be ended before their duration is over."""

    def finish(self) -> None:
        """End now all flows that have a duration; callable from any thread."""
