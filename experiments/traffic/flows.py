"""A flow of an experiment, and what became of it: the same whichever program sends it.

All moments are seconds after the barrier, the one instant at which everything begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

COMPLETED, FAILED = "completed", "failed"
# Of what sends and receives flows: it leaves time to the servers' forwarders, and to the kernel's
# threads that move packets.
NICE = 10


@dataclass(frozen=True)
class Flow:
    """One TCP connection's worth: `volume_bytes` to be delivered, or `duration_s` of sending."""

    number: int
    source: int
    destination: int
    volume_bytes: int | None = None
    duration_s: float | None = None
    start_s: float = 0.0


class Interval(NamedTuple):
    """What a flow did in one stretch of time; None where the tool cannot tell."""

    begin_s: float
    end_s: float
    delivered_bytes: int  # counted by the receiver
    retransmits: int | None = None
    rtt_us: int | None = None
    cwnd_bytes: int | None = None


@dataclass
class FlowResult:
    """What became of a flow: a failed one has a reason, and never counts as one of 0 bit/s."""

    flow: Flow
    tool: str
    status: str = FAILED
    reason: str = "never begun"
    begin_s: float | None = None  # of its connection's first byte
    end_s: float | None = None  # when its last byte was delivered
    delivered_bytes: int = 0
    retransmits: int | None = None
    tries: int = 1
    intervals: list[Interval] = field(default_factory=list)

    @property
    def goodput_bps(self) -> float | None:
        """Bits delivered per second while it ran; None if it failed."""
        if self.status != COMPLETED or self.begin_s is None or self.end_s is None:
            return None
        return self.delivered_bytes * 8 / max(self.end_s - self.begin_s, 1e-9)


class Progress(NamedTuple):
    """How far a flow is."""

    number: int
    delivered_bytes: int
    ended: bool


@dataclass(frozen=True)
class Sending:
    """How flows are sent."""

    congestion: str = "cubic"
    interval_s: float = 0.1
    timeout_s: float = 120.0  # from the barrier on: a flow that has not ended then has failed
    most_bps: float | None = None  # what TCP lets one flow send, with its headers, at most


class Tool(Protocol):
    """A program, or several, that send flows over a running lab.

    Made with the lab, the flows and a `Sending`. Afterwards `close` leaves nothing behind, however
    far it came.
    """

    name: str

    def prepare(self) -> None:
        """Start whatever listens, and connect where that can be done before."""

    def start(self, at_s: float) -> None:
        """Begin at that instant of CLOCK_MONOTONIC, which is the barrier."""

    def progress(self) -> Sequence[Progress]:
        """Return how far the flows are, at no great cost."""

    def ended(self) -> bool:
        """Tell whether every flow has ended, or failed."""

    def results(self) -> list[FlowResult]:
        """Return what became of each flow, in the order of their numbers, after the end."""

    def versions(self) -> dict[str, Any]:
        """Return what the manifest should say about the program."""

    def close(self) -> None:
        """End whatever still runs."""


@runtime_checkable
class Finishing(Protocol):
    """A tool that can be told to finish early."""

    def finish(self) -> None:
        """End flows that have a duration now, as if it were over; from any thread."""
