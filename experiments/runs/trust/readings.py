"""Readings of a trial's monitoring: plain data that can be saved as JSON and judged again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple


class DurationStatistics(NamedTuple):
    """Statistics of repeated durations: count, median, 99th percentile and maximum."""

    times: int
    median_s: float
    p99_s: float
    most_s: float


def spread(durations_s: Sequence[float]) -> DurationStatistics:
    """Return the statistics (count, median, 99th percentile, maximum) of durations.

    >>> spread([0.001] * 98 + [0.004, 0.009])
    DurationStatistics(times=100, median_s=0.001, p99_s=0.004, most_s=0.009)
    """
    if not durations_s:
        return DurationStatistics(0, 0.0, 0.0, 0.0)
    ordered = sorted(durations_s)
    median_s, p99_s = (nearest_rank(ordered, part) for part in (0.5, 0.99))
    return DurationStatistics(len(ordered), median_s, p99_s, ordered[-1])


def nearest_rank(ordered: Sequence[float], part: float) -> float:
    """Return a quantile of ordered values, by nearest rank: one of the values.

    >>> nearest_rank([10, 20, 30, 40], 0.5), nearest_rank([10, 20, 30, 40], 0.99)
    (20, 40)
    """
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]


@dataclass(frozen=True)
class MachineReadings:
    """Readings of one machine of a trial over several machines.

    Attributes
    ----------
    machine
        Number of the machine.
    away
        Interruption of the machine during the trial: empty, or that it was lost or away.
    clock_s
        Offset of the machine's clock from the lab's, in seconds: before the trial, maximum,
        minimum, after the trial; empty if the offset could not be measured.
    clock_moved_s
        Least movement of the clock, in seconds: round trips make the offset uncertain.
    card_sent_bytes, card_received_bytes
        Bytes that the machine's network card sent and received.
    card_dropped
        Packets dropped by the network card or its queues.
    card_full
        Share of samples at which the card's queue held more than one super-packet.
    crossed_out, crossed_in
        Packets that entered tunnels to other machines, and packets that came out of tunnels.
    idle
        Share of the time in which the machine's processors were idle.
    canary_p99_s, pacing_p99_s
        99th percentiles of the machine's canary: see `Readings`.
    """

    machine: int
    away: str = ""
    clock_s: tuple[float, ...] = ()
    clock_moved_s: float = 0.0
    card_sent_bytes: int = 0
    card_received_bytes: int = 0
    card_dropped: int = 0
    card_full: float = 0.0
    crossed_out: int = 0
    crossed_in: int = 0
    idle: float = 1.0
    canary_p99_s: float = 0.0
    pacing_p99_s: float = 0.0


@dataclass(frozen=True)
class Readings:
    """Readings of `Watch` between the barrier and the end of a trial.

    Attributes
    ----------
    rate_bps
        Rate of every cable in bit/s, or of those of relative rate 1; None without a limit.
    base_rtt_s
        Round-trip time of a full packet to a neighbour on an idle network, from the cables' delays
        and rates.
    links
        Rows of the table of links, one for each direction of each cable (`schema.LINKS`).
    samples, interval_s
        Number of samples of the ports' queues, and sampling interval in seconds.
    round_trip, lost
        Round-trip times of the canary, and number of its packets without an answer at the end.
    lateness
        Lateness of the canary's timer.
    pacing, pacing_lost
        Lateness of packets that the kernel had to send at known times, and number of lost packets
        (see `canary_pacer`).
    pressure, steal, idle, foreign
        Shares of the time: a process waited for a processor (None if the kernel does not count
        it); the hypervisor took the processors away; processors were idle; processors ran programs
        that do not belong to the trial.
    programs_forward
        True if user-space programs forward packets, False if the kernel does.
    packets
        Number of packets that all ports sent.
    strays
        Packets dropped outside the shaped queues, by place.
    faults
        Number of faults, deaths and repairs in the lab's log during the trial.
    link_losses
        Number of times that a server considered the link to a neighbour down.
    watching
        Processor time of the monitoring, as a share of the time.
    machines
        Readings of each machine of a trial over several machines; all other attributes are then
        those of the worst machine, or of all machines together.
    """

    duration_s: float
    rate_bps: float | None
    base_rtt_s: float
    links: list[dict[str, Any]]
    samples: int
    interval_s: float
    round_trip: DurationStatistics
    lost: int
    lateness: DurationStatistics
    pacing: DurationStatistics
    pacing_lost: int
    pressure: float | None
    steal: float
    idle: float
    foreign: float
    programs_forward: bool
    packets: int
    strays: dict[str, int] = field(default_factory=dict)
    faults: int = 0
    link_losses: int = 0
    watching: float = 0.0
    machines: tuple[MachineReadings, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the readings as JSON data, without the rows of links, which have a table."""
        plain = asdict(self)
        del plain["links"]
        return plain | {
            "round_trip": self.round_trip._asdict(),
            "lateness": self.lateness._asdict(),
            "pacing": self.pacing._asdict(),
        }
