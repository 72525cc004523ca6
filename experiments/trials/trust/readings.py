"""What was seen while a trial ran: plain data, which can be saved as JSON and judged again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple


class DurationStatistics(NamedTuple):
    """How long something took, over all the times it was tried."""

    times: int
    median_s: float
    p99_s: float
    most_s: float


def spread(durations_s: Sequence[float]) -> DurationStatistics:
    """Return the spread of durations.

    >>> spread([0.001] * 98 + [0.004, 0.009])
    DurationStatistics(times=100, median_s=0.001, p99_s=0.004, most_s=0.009)
    """
    if not durations_s:
        return DurationStatistics(0, 0.0, 0.0, 0.0)
    ordered = sorted(durations_s)

    def share(part: float) -> float:
        return ordered[max(0, math.ceil(part * len(ordered)) - 1)]

    return DurationStatistics(len(ordered), share(0.5), share(0.99), ordered[-1])


@dataclass(frozen=True)
class MachineReadings:
    """What was seen of one machine of several.

    Attributes
    ----------
    machine
        Its number.
    away
        What became of it meanwhile: nothing, that it was lost, or that it was away.
    clock_s
        By how much its clock was ahead of the lab's: before, at the most, at the least, after;
        empty where it could not be seen.
    clock_moved_s
        By how much it has moved at least: round trips leave some doubt.
    card_sent_bytes, card_received_bytes
        Of its card.
    card_dropped
        Packets that its card's queues, or the card itself, dropped.
    card_full
        Share of looks at which its card's queue held more than one super-packet.
    crossed_out, crossed_in
        Packets that went into tunnels to other machines, and that came out of them.
    idle
        Share of the time in which its processors had nothing to do.
    canary_p99_s, pacing_p99_s
        Of its own canary: see `Readings`.
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
    """All that `Watch` saw between the barrier and the end.

    Attributes
    ----------
    rate_bps
        Of every cable; None where there is no limit.
    base_rtt_s
        Of a full packet to a neighbour and back on an idle network: cables' delays and rates.
    links
        A row for each direction of each cable: the columns of `schema.LINKS`.
    samples, interval_s
        How many times, and how often, the queues of all ports were looked at.
    round_trip, lost
        Of the canary, and how many of its packets had not come back at the end.
    lateness
        Of a timer that is set all the time.
    pacing, pacing_lost
        How late the kernel sent packets that were due, and how many it lost; see `canary_pacer`.
    pressure, steal, idle, foreign
        Shares of the time: in which a program waited for a processor (None where the kernel does
        not count it); that the machine's owner took away; in which processors had nothing to do;
        that programs had which are not the trial's.
    programs_forward
        Whether packets pass through programs on their way, or the kernel alone.
    packets
        That all ports sent.
    strays
        Packets dropped elsewhere than in the shaped queues, by place.
    faults
        How many faults, deaths and repairs the lab's log has in that time.
    link_losses
        How many times a server took the link to a neighbour for down.
    watching
        Processor time of the watching itself, as a share of the time.
    machines
        What was seen of each machine, where there are several; all else is then of the worst of
        them, or of all together.
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
        """Return them as JSON takes them; the rows of links, which have a table, are left out."""
        plain = asdict(self)
        del plain["links"]
        return plain | {
            "round_trip": self.round_trip._asdict(),
            "lateness": self.lateness._asdict(),
            "pacing": self.pacing._asdict(),
        }
