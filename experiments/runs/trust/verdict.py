"""Verdict on a trial: valid, or invalid because the machine was overloaded.

Each reason contains the figure and the threshold. docs/trust.md explains the thresholds.
"""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass
from typing import Any

from pillarbox.experiments.runs.trust.readings import DurationStatistics, MachineReadings, Readings

# Least share of its rate that the median backlogged cable sends. Bursts and super-packets blur the
# share by 1 or 2 %.
LEAST_CONSERVED = 0.95
# Least share of its rate for one cable, and the largest share of cables that may be below.
LEAST_CONSERVED_CABLE, MOST_CABLES_BELOW = 0.90, 0.05
LEAST_OF_IDEAL = 0.90  # Least share of the ideal total goodput if no cable was backlogged.
# Largest share of the ideal total goodput. Bursts and a path change blur a short trial by 1 or 2 %.
MOST_OF_IDEAL = 1.03
# Limit for the 99th percentiles of the canary's round trips and of pacing: the larger of a time in
# seconds and a share of the base RTT.
MOST_LATE_S = 1e-3
MOST_OF_BASE_RTT = 0.10
MOST_LOST = 0.01  # Largest share of lost packets of canary and pacing.
MOST_FOREIGN = 0.10  # Largest share of processor time of foreign programs.
MOST_STRAYS = 1e-3  # Largest share of stray packets: for TCP a packet loss of 0.1 %.
LEAST_CANARIES, LEAST_SAMPLES = 60, 5
# Largest movement of a machine's clock in seconds: faults and flows begin by the clock.
MOST_CLOCK_MOVED_S = 1e-3
MOST_CARD_FULL = 0.10  # Largest share of samples with a full queue of a machine's network card.
MOST_LATE_START_S = 2e-3  # Limit for the 99th percentile of late flow starts, in seconds.
# Least idle share of processor time; with less, programs were limited by the processors.
LEAST_IDLE = 0.05
# Thresholds of warnings: CPU pressure, timer lateness in seconds, steal and idle time.
MOST_PRESSURE, MOST_LATENESS_S, MOST_STEAL, GOOD_IDLE = 0.25, 2e-3, 0.02, 0.10


@dataclass(frozen=True)
class Verdict:
    """Validity of a trial, with the reasons if it is invalid, and warnings.

    `figures` are the values that were compared with the thresholds, by name (unit included).
    """

    valid: bool
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]
    figures: dict[str, float]

    def as_json(self) -> dict[str, Any]:
        """Return the verdict as JSON data."""
        return asdict(self) | {"reasons": list(self.reasons), "warnings": list(self.warnings)}


def judge(
    readings: Readings,
    ideal_total_bps: float | None = None,
    achieved_bps: float | None = None,
    starts: DurationStatistics | None = None,
    fell_back: int = 0,
    *,
    sprayed: bool = False,
) -> Verdict:
    """Return the verdict on a trial.

    Parameters
    ----------
    readings : Readings
        Readings of the trial's monitoring.
    ideal_total_bps, achieved_bps : float, optional
        Upper bound of the total goodput of all flows, and the measured total goodput; only for
        greedy flows, which send as much as they can.
    starts : DurationStatistics, optional
        Delays of arriving flows: actual minus planned start time.
    fell_back : int
        Number of flows of Multipath TCP that were sent by TCP.
    sprayed : bool
        True if each flow's packets take several paths: TCP slows down if they overtake one another.
    """
    judgement = _Judge(readings)
    judgement.enough_seen()
    judgement.conservation(ideal_total_bps, achieved_bps, sprayed)
    judgement.pacing()
    judgement.canary()
    judgement.heartbeats()
    judgement.foreign()
    judgement.strays()
    judgement.machine()
    judgement.open_loop(starts)
    for one in readings.machines:
        judgement.one_of_several(one)
    judgement.tunnels()
    judgement.transport(fell_back)
    return Verdict(
        not judgement.reasons,
        tuple(judgement.reasons),
        tuple(judgement.warnings),
        judgement.figures,
    )


class _Judge:
    """Checks of a trial's readings, one signal at a time; collects reasons and warnings."""

    def __init__(self, readings: Readings) -> None:
        self.readings = readings
        self.reasons: list[str] = []
        self.warnings: list[str] = []
        self.figures: dict[str, float] = {}

    def enough_seen(self) -> None:
        readings = self.readings
        heard = readings.round_trip.times + readings.lost
        self.figures |= {"duration_s": readings.duration_s, "samples": readings.samples}
        if heard < LEAST_CANARIES or readings.samples < LEAST_SAMPLES:
            self.reasons.append(
                f"the trial was too short to be judged: in {readings.duration_s:.2g} s there were "
                f"{heard} canary packets and {readings.samples} queue samples (at least "
                f"{LEAST_CANARIES} and {LEAST_SAMPLES} are needed); send more, or for longer"
            )

    def conservation(
        self, ideal_bps: float | None, achieved_bps: float | None, sprayed: bool
    ) -> None:
        readings = self.readings
        if readings.rate_bps is None:
            self.reasons.append(
                "the cables have no rate, so the result is the speed of this machine and not of "
                "the network; set a rate"
            )
            return
        ratios = [row["conserved"] for row in readings.links if row["conserved"] is not None]
        self.figures["backlogged_links"] = len(ratios)
        of_ideal = None
        if ideal_bps and achieved_bps is not None:
            of_ideal = self.figures["of_ideal"] = achieved_bps / ideal_bps
            if of_ideal > MOST_OF_IDEAL:
                self.reasons.append(
                    f"the flows got {of_ideal:.3f} of the ideal, more than {MOST_OF_IDEAL:.2f}: "
                    "the cables cannot carry that, so the actual paths or rates differ from those "
                    "of the ideal; repeat the trial, for longer if paths change"
                )
        if ratios:
            self._judge_backlogged_cables(ratios)
        elif of_ideal is None or readings.faults:
            self.warnings.append(
                "no cable was backlogged, so it could not be checked that cables kept their rate"
            )
        elif of_ideal < LEAST_OF_IDEAL and sprayed:
            self.warnings.append(
                f"no cable was backlogged, and the flows got {of_ideal:.2f} of the ideal: TCP "
                "slows down if packets overtake one another, so it could not be checked that "
                "cables kept their rate"
            )
        elif of_ideal < LEAST_OF_IDEAL:
            self.reasons.append(
                f"no cable was backlogged, and yet the flows got only {of_ideal:.2f} of the ideal, "
                f"less than {LEAST_OF_IDEAL:.2f}: the machine was slower than the cables; choose a "
                "lower rate"
            )

    def _judge_backlogged_cables(self, ratios: list[float]) -> None:
        median = statistics.median(ratios)
        below = sum(ratio < LEAST_CONSERVED_CABLE for ratio in ratios) / len(ratios)
        self.figures |= {"conserved_median": median, "conserved_below": below}
        if median < LEAST_CONSERVED:
            self.reasons.append(
                f"backlogged cables sent only {median:.3f} of their rate (median of "
                f"{len(ratios)}), less than {LEAST_CONSERVED:.2f}: the machine could not keep the "
                "rate; choose a lower rate"
            )
        elif below >= MOST_CABLES_BELOW:
            self.reasons.append(
                f"{below:.0%} of the backlogged cables sent less than "
                f"{LEAST_CONSERVED_CABLE:.2f} of their rate (limit: {MOST_CABLES_BELOW:.0%}): the "
                "machine could not keep the rate; choose a lower rate"
            )

    @property
    def _most_late_s(self) -> float:
        return max(MOST_LATE_S, MOST_OF_BASE_RTT * self.readings.base_rtt_s)

    def pacing(self) -> None:
        """Judge the scheduling latency of the kernel, which delays every packet."""
        readings, late = self.readings, self.readings.pacing
        self.figures |= {"pacing_p99_ms": late.p99_s * 1e3, "pacing_most_ms": late.most_s * 1e3}
        self.figures["pacing_lost"] = readings.pacing_lost
        if late.p99_s > self._most_late_s:
            self.reasons.append(
                "1 in 100 packets that the kernel had to send at a known time was "
                f"{late.p99_s * 1e3:.2g} ms or more late (limit: {self._most_late_s * 1e3:.2g} "
                "ms): the kernel was overloaded; end other programs, or choose a lower rate or a "
                "smaller network"
            )
        self._judge_losses(readings.pacing_lost, late.times, "packets that the kernel had to send")

    def canary(self) -> None:
        """Judge the scheduling latency of programs: only a warning if the kernel forwards."""
        readings, took = self.readings, self.readings.round_trip
        self.figures |= {"canary_median_ms": took.median_s * 1e3, "canary_p99_ms": took.p99_s * 1e3}
        self.figures |= {"canary_most_ms": took.most_s * 1e3, "canary_lost": readings.lost}
        if took.p99_s > self._most_late_s:
            sentence = (
                "1 in 100 canary packets, which wait in no queue, had a round trip of "
                f"{took.p99_s * 1e3:.2g} ms or more (limit: {self._most_late_s * 1e3:.2g} ms): "
                "programs were scheduled too late"
            )
            if readings.programs_forward:
                self.reasons.append(
                    f"{sentence}; end other programs, or choose a lower rate or a smaller network"
                )
            else:
                self.warnings.append(f"{sentence}; the kernel alone forwards packets in this lab")
        self._judge_losses(readings.lost, took.times, "canary packets, which wait in no queue,")

    def _judge_losses(self, lost: int, heard: int, packet_kind: str) -> None:
        if lost > (heard + lost) * MOST_LOST:
            self.reasons.append(
                f"{lost} of {heard + lost} {packet_kind} never came back (limit: {MOST_LOST:.0%})"
            )

    def heartbeats(self) -> None:
        """Judge the number of links that servers falsely detected as down."""
        losses = self.figures["link_losses"] = self.readings.link_losses
        if losses and not self.readings.faults:
            self.reasons.append(
                f"servers considered working links down, {losses} times: heartbeats came too late, "
                "and routes changed needlessly; end other programs, or choose a lower rate or a "
                "smaller network"
            )

    def foreign(self) -> None:
        """Judge the processor time of programs that do not belong to the trial."""
        share = self.figures["foreign"] = self.readings.foreign
        if share > MOST_FOREIGN:
            self.reasons.append(
                f"programs outside the trial took {share:.0%} of the processors (limit: "
                f"{MOST_FOREIGN:.0%}): end other programs"
            )

    def strays(self) -> None:
        readings = self.readings
        strays = sum(readings.strays.values())
        share = strays / max(1, readings.packets)
        self.figures |= {"stray_packets": strays, "stray_share": share}
        if not strays:
            return
        where = ", ".join(f"{number} {place}" for place, number in [*readings.strays.items()][:5])
        sentence = f"{strays} packets were dropped outside the shaped queues ({where})"
        if share > MOST_STRAYS and readings.packets and not readings.faults:
            self.reasons.append(
                f"{sentence}, {share:.2%} of all (limit: {MOST_STRAYS:.1%}): the emulation lost "
                "them and not the network; choose a lower rate"
            )
        else:
            self.warnings.append(sentence + (": there were faults" if readings.faults else ""))

    def open_loop(self, starts: DurationStatistics | None) -> None:
        """Judge the delays of arriving flows: actual minus planned start times."""
        if starts is None:
            return
        self.figures |= {"start_p99_ms": starts.p99_s * 1e3, "start_most_ms": starts.most_s * 1e3}
        if starts.p99_s > MOST_LATE_START_S:
            self.reasons.append(
                f"the traffic generator fell behind its schedule: 1 in 100 flows began "
                f"{starts.p99_s * 1e3:.2g} ms or more late (limit: {MOST_LATE_START_S * 1e3:.0f} "
                "ms); end other programs, or choose a lower rate or load, or larger sizes"
            )

    def one_of_several(self, one: MachineReadings) -> None:
        """Judge one machine of a trial over several: its clock, its network card, interruptions."""
        name = f"machine {one.machine}"
        if one.away:
            self.reasons.append(f"{name} {one.away}: its traffic meanwhile is unknown")
            return
        moved_ms = one.clock_moved_s * 1e3
        self._record_maximum("clock_moved_ms", moved_ms)
        self._record_maximum("card_full", one.card_full)
        self._record_maximum("card_dropped", one.card_dropped)
        if moved_ms > MOST_CLOCK_MOVED_S * 1e3:
            self.reasons.append(
                f"the clock of {name} moved by {moved_ms:.2g} ms (limit: "
                f"{MOST_CLOCK_MOVED_S * 1e3:.0f} ms): flows and faults began at wrong times; do "
                "not set the machines' clocks during a trial"
            )
        elif not one.clock_s:
            self.warnings.append(f"{name} did not report its time, so its clock was not checked")
        if one.card_full > MOST_CARD_FULL:
            self.reasons.append(
                f"the queue of {name}'s network card was full at {one.card_full:.0%} of the "
                f"samples (limit: {MOST_CARD_FULL:.0%}): the network between the machines is too "
                "slow for the cables that cross; choose a lower rate"
            )
        if one.card_dropped > MOST_STRAYS * (one.crossed_out + one.crossed_in):
            self.reasons.append(
                f"{name}'s network card dropped {one.card_dropped} of "
                f"{one.crossed_out + one.crossed_in} crossing packets (limit: {MOST_STRAYS:.1%}): "
                "the network between the machines is too slow; choose a lower rate"
            )

    def tunnels(self) -> None:
        """Judge the packet loss of the tunnels between machines."""
        machines = self.readings.machines
        if not machines or any(one.away for one in machines):
            return
        out = sum(one.crossed_out for one in machines)
        lost = max(0, out - sum(one.crossed_in for one in machines))
        self.figures |= {"crossed_packets": out, "crossed_lost": lost}
        if lost > MOST_STRAYS * out:
            self.reasons.append(
                f"{lost} of {out} packets between machines never came out of their tunnels (limit: "
                f"{MOST_STRAYS:.1%}): the network between the machines lost them; choose a lower "
                "rate"
            )

    def transport(self, fell_back: int) -> None:
        """Judge whether flows of Multipath TCP fell back to TCP."""
        if fell_back:
            self.figures["fell_back"] = fell_back
            self.reasons.append(
                f"{fell_back} flows of Multipath TCP fell back to TCP: an end of each did without "
                "it, so they used one path"
            )

    def _record_maximum(self, name: str, value: float) -> None:
        self.figures[name] = max(self.figures.get(name, 0.0), value)

    def _busiest_processors(self) -> str:
        """Return the processors with the least idle time, as words of a message."""
        machines = [one for one in self.readings.machines if not one.away]
        if not machines:
            return "processors"
        return f"processors of machine {min(machines, key=lambda one: one.idle).machine}"

    def machine(self) -> None:
        readings = self.readings
        self.figures |= {"timer_p99_ms": readings.lateness.p99_s * 1e3, "steal": readings.steal}
        self.figures |= {"idle": readings.idle, "watching": readings.watching}
        if readings.pressure is not None:
            self.figures["pressure"] = readings.pressure
            if readings.pressure > MOST_PRESSURE:
                self.warnings.append(
                    f"programs waited for a processor {readings.pressure:.0%} of the time (limit: "
                    f"{MOST_PRESSURE:.0%})"
                )
        if readings.lateness.p99_s > MOST_LATENESS_S:
            self.warnings.append(
                f"1 in 100 timers was {readings.lateness.p99_s * 1e3:.2g} ms or more late (limit: "
                f"{MOST_LATENESS_S * 1e3:.0f} ms)"
            )
        if readings.steal > MOST_STEAL:
            self.warnings.append(
                f"the hypervisor took {readings.steal:.1%} of this virtual machine's processor "
                f"time (limit: {MOST_STEAL:.0%})"
            )
        idle = f"{self._busiest_processors()} were idle {readings.idle:.1%} of the time, less than"
        if readings.idle < LEAST_IDLE:
            self.reasons.append(
                f"{idle} {LEAST_IDLE:.0%}: the processors may have limited the throughput; choose "
                "a lower rate or a smaller network"
            )
        elif readings.idle < GOOD_IDLE:
            self.warnings.append(f"{idle} {GOOD_IDLE:.0%}")
