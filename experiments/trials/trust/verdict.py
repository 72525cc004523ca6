"""The verdict: whether a trial's figures are the network's, or those of a machine out of breath.

Each sentence has the figure and the threshold. docs/trust.md says how these were chosen.
"""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass
from typing import Any

from experiments.trials.trust.readings import DurationStatistics, MachineReadings, Readings

# What a backlogged cable sent of what its rate allows: burst and super-packets blur it by 1 or 2 %.
LEAST_CONSERVED = 0.95  # the median cable
LEAST_CONSERVED_CABLE, MOST_CABLES_BELOW = 0.90, 0.05
LEAST_OF_IDEAL = 0.90  # of the total, where no cable was backlogged
MOST_OF_IDEAL = 1.03  # of the total: bursts and a move of a path blur a short trial by 1 or 2 %
MOST_LATE_S = 1e-3  # of the canary's round trip, and of pacing, at the 99th percentile, or:
MOST_OF_BASE_RTT = 0.10
MOST_LOST = 0.01  # of their packets
MOST_FOREIGN = 0.10  # of all processors' time
MOST_STRAYS = 1e-3  # of all packets: as TCP feels it, a loss of 0.1 %
LEAST_CANARIES, LEAST_SAMPLES = 60, 5
MOST_CLOCK_MOVED_S = 1e-3  # beside other machines': faults and flows begin by it
MOST_CARD_FULL = 0.10  # of the looks at a machine's card
MOST_LATE_START_S = 2e-3  # of flows that arrive, at the 99th percentile
LEAST_IDLE = 0.05  # of all processors' time; below, programs would have sent more if they could
MOST_PRESSURE, MOST_LATENESS_S, MOST_STEAL, GOOD_IDLE = 0.25, 2e-3, 0.02, 0.10


@dataclass(frozen=True)
class Verdict:
    """Whether a trial is to be believed; the reasons why not, and what makes one careful.

    `figures` are what was compared with the thresholds, by name, with the unit in it.
    """

    valid: bool
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]
    figures: dict[str, float]

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON takes it."""
        return asdict(self) | {"reasons": list(self.reasons), "warnings": list(self.warnings)}


def judge(
    readings: Readings,
    ideal_total_bps: float | None = None,
    achieved_bps: float | None = None,
    starts: DurationStatistics | None = None,
) -> Verdict:
    """Return the verdict on a trial.

    Parameters
    ----------
    readings : Readings
        What was seen.
    ideal_total_bps, achieved_bps : float, optional
        The goodput of all flows together: an upper bound of it, and what it was; for greedy flows
        only, those that take all they can get.
    starts : Spread, optional
        By how much flows that arrive began after their moments.
    """
    bench = _Bench(readings)
    bench.enough_seen()
    bench.conservation(ideal_total_bps, achieved_bps)
    bench.pacing()
    bench.canary()
    bench.heart_beats()
    bench.foreign()
    bench.strays()
    bench.machine()
    bench.open_loop(starts)
    for one in readings.machines:
        bench.one_of_several(one)
    bench.between_machines()
    return Verdict(not bench.reasons, tuple(bench.reasons), tuple(bench.warnings), bench.figures)


class _Bench:
    """Hears one signal after the other."""

    def __init__(self, readings: Readings) -> None:
        self.seen = readings
        self.reasons: list[str] = []
        self.warnings: list[str] = []
        self.figures: dict[str, float] = {}

    def enough_seen(self) -> None:
        seen = self.seen
        heard = seen.round_trip.times + seen.lost
        self.figures |= {"duration_s": seen.duration_s, "samples": seen.samples}
        if heard < LEAST_CANARIES or seen.samples < LEAST_SAMPLES:
            self.reasons.append(
                f"the trial was too short to be judged: in {seen.duration_s:.2g} s there were "
                f"{heard} canaries and {seen.samples} looks at the queues, and it takes "
                f"{LEAST_CANARIES} and {LEAST_SAMPLES}; send more, or for longer"
            )

    def conservation(self, ideal_bps: float | None, achieved_bps: float | None) -> None:
        seen = self.seen
        if seen.rate_bps is None:
            self.reasons.append(
                "the cables have no rate, so nothing says how fast they should have been, and the "
                "result is this machine's speed and not the network's; give them a rate"
            )
            return
        ratios = [row["conserved"] for row in seen.links if row["conserved"] is not None]
        self.figures["backlogged_links"] = len(ratios)
        of_ideal = None
        if ideal_bps and achieved_bps is not None:
            of_ideal = self.figures["of_ideal"] = achieved_bps / ideal_bps
            if of_ideal > MOST_OF_IDEAL:
                self.reasons.append(
                    f"the flows got {of_ideal:.3f} of the ideal, more than {MOST_OF_IDEAL:.2f}: "
                    "no cables carry that, so the paths or the rates are not those that the ideal "
                    "was computed with; repeat the trial, for longer if paths move"
                )
        if ratios:
            self._backlogged(ratios)
        elif of_ideal is None or seen.faults:
            self.warnings.append(
                "no cable was backlogged, so whether cables kept their rate could not be seen"
            )
        elif of_ideal < LEAST_OF_IDEAL:
            self.reasons.append(
                f"no cable was backlogged, and yet the flows got only {of_ideal:.2f} of the ideal, "
                f"less than {LEAST_OF_IDEAL:.2f}: the machine could not send as fast as the cables "
                "would carry; choose a lower rate"
            )

    def _backlogged(self, ratios: list[float]) -> None:
        median = statistics.median(ratios)
        below = sum(ratio < LEAST_CONSERVED_CABLE for ratio in ratios) / len(ratios)
        self.figures |= {"conserved_median": median, "conserved_below": below}
        if median < LEAST_CONSERVED:
            self.reasons.append(
                f"cables with packets waiting sent only {median:.3f} of what their rate allows "
                f"(the median of {len(ratios)}), less than {LEAST_CONSERVED:.2f}: the machine "
                "could not keep their rate; choose a lower one"
            )
        elif below >= MOST_CABLES_BELOW:
            self.reasons.append(
                f"{below:.0%} of the cables with packets waiting sent less than "
                f"{LEAST_CONSERVED_CABLE:.2f} of what their rate allows, and "
                f"{MOST_CABLES_BELOW:.0%} are too many: the machine could not keep their rate; "
                "choose a lower one"
            )

    @property
    def _most_late_s(self) -> float:
        return max(MOST_LATE_S, MOST_OF_BASE_RTT * self.seen.base_rtt_s)

    def pacing(self) -> None:
        """Judge the kernel's times, by which every packet goes."""
        seen, late = self.seen, self.seen.pacing
        self.figures |= {"pacing_p99_ms": late.p99_s * 1e3, "pacing_most_ms": late.most_s * 1e3}
        self.figures["pacing_lost"] = seen.pacing_lost
        if late.p99_s > self._most_late_s:
            self.reasons.append(
                "1 in 100 packets that the kernel had to send at a known moment came "
                f"{late.p99_s * 1e3:.2g} ms or more too late, and {self._most_late_s * 1e3:.2g} ms "
                "is the most: the kernel could not keep its times; end what else runs, or choose a "
                "lower rate or a smaller network"
            )
        self._lost(seen.pacing_lost, late.times, "packets that the kernel had to send")

    def canary(self) -> None:
        """Judge how late programs are, where packets wait for programs; else it is a warning."""
        seen, took = self.seen, self.seen.round_trip
        self.figures |= {"canary_median_ms": took.median_s * 1e3, "canary_p99_ms": took.p99_s * 1e3}
        self.figures |= {"canary_most_ms": took.most_s * 1e3, "canary_lost": seen.lost}
        if took.p99_s > self._most_late_s:
            sentence = (
                "1 in 100 packets of the canary, which meet no queue, took "
                f"{took.p99_s * 1e3:.2g} ms or more there and back, and "
                f"{self._most_late_s * 1e3:.2g} ms is the most: programs got a processor too late"
            )
            if seen.programs_forward:
                self.reasons.append(
                    f"{sentence}; end what else runs, or choose a lower rate or a smaller network"
                )
            else:
                self.warnings.append(f"{sentence}; packets do not wait for them here")
        self._lost(seen.lost, took.times, "packets of the canary, which meet no queue,")

    def _lost(self, lost: int, heard: int, whose: str) -> None:
        if lost > (heard + lost) * MOST_LOST:
            self.reasons.append(
                f"{lost} of {heard + lost} {whose} never came back, and {MOST_LOST:.0%} is the most"
            )

    def heart_beats(self) -> None:
        """Judge whether servers noticed failures that there were none of."""
        losses = self.figures["link_losses"] = self.seen.link_losses
        if losses and not self.seen.faults:
            self.reasons.append(
                f"servers took links that worked for down, {losses} times: heart-beats came too "
                "late, and routes changed for nothing; end what else runs, or choose a lower rate "
                "or a smaller network"
            )

    def foreign(self) -> None:
        """Judge whether the machine was the trial's alone."""
        share = self.figures["foreign"] = self.seen.foreign
        if share > MOST_FOREIGN:
            self.reasons.append(
                f"programs that are not the trial's took {share:.0%} of the processors, and "
                f"{MOST_FOREIGN:.0%} is the most: end what else runs"
            )

    def strays(self) -> None:
        seen = self.seen
        strays = sum(seen.strays.values())
        share = strays / max(1, seen.packets)
        self.figures |= {"stray_packets": strays, "stray_share": share}
        if not strays:
            return
        where = ", ".join(f"{number} {place}" for place, number in [*seen.strays.items()][:5])
        sentence = f"{strays} packets were dropped outside the shaped queues ({where})"
        if share > MOST_STRAYS and seen.packets and not seen.faults:
            self.reasons.append(
                f"{sentence}, {share:.2%} of all, and {MOST_STRAYS:.1%} is the most: the emulation "
                "lost them and not the network; choose a lower rate"
            )
        else:
            self.warnings.append(sentence + (": there were faults" if seen.faults else ""))

    def open_loop(self, starts: DurationStatistics | None) -> None:
        """Judge whether flows that arrive began when they were to begin."""
        if starts is None:
            return
        self.figures |= {"start_p99_ms": starts.p99_s * 1e3, "start_most_ms": starts.most_s * 1e3}
        if starts.p99_s > MOST_LATE_START_S:
            self.reasons.append(
                f"the source fell behind its own schedule: 1 in 100 flows began "
                f"{starts.p99_s * 1e3:.2g} ms or more after their moment, and "
                f"{MOST_LATE_START_S * 1e3:.0f} ms is the most; end what else runs, or choose a "
                "lower rate or load, or larger sizes"
            )

    def one_of_several(self, one: MachineReadings) -> None:
        """Judge what only a network over several machines can suffer from."""
        name = f"machine {one.machine}"
        if one.away:
            self.reasons.append(f"{name} {one.away}: what it carried meanwhile is not known")
            return
        moved_ms = one.clock_moved_s * 1e3
        self._most("clock_moved_ms", moved_ms)
        self._most("card_full", one.card_full)
        self._most("card_dropped", one.card_dropped)
        if moved_ms > MOST_CLOCK_MOVED_S * 1e3:
            self.reasons.append(
                f"the clock of {name} moved by {moved_ms:.2g} ms, and "
                f"{MOST_CLOCK_MOVED_S * 1e3:.0f} ms is the most: flows and faults did not begin "
                "when they were to; let nothing set the machines' clocks meanwhile"
            )
        elif not one.clock_s:
            self.warnings.append(f"{name} did not tell its time, so whether it moved is not known")
        if one.card_full > MOST_CARD_FULL:
            self.reasons.append(
                f"the queue of {name}'s card was full at {one.card_full:.0%} of the looks, and "
                f"{MOST_CARD_FULL:.0%} is the most: the network between the machines is too slow "
                "for the cables that cross; choose a lower rate"
            )
        if one.card_dropped > MOST_STRAYS * max(1, one.crossed_out + one.crossed_in):
            self.reasons.append(
                f"{name}'s card dropped {one.card_dropped} packets, of "
                f"{one.crossed_out + one.crossed_in} that crossed, and {MOST_STRAYS:.1%} is the "
                "most: the network between the machines is too slow; choose a lower rate"
            )

    def between_machines(self) -> None:
        """Judge whether what went into tunnels between machines came out of them."""
        machines = self.seen.machines
        if not machines or any(one.away for one in machines):
            return
        out = sum(one.crossed_out for one in machines)
        lost = max(0, out - sum(one.crossed_in for one in machines))
        self.figures |= {"crossed_packets": out, "crossed_lost": lost}
        if lost > MOST_STRAYS * max(1, out):
            self.reasons.append(
                f"{lost} of {out} packets between machines never came out of their tunnels, and "
                f"{MOST_STRAYS:.1%} is the most: the network between the machines lost them; "
                "choose a lower rate"
            )

    def _most(self, name: str, value: float) -> None:
        self.figures[name] = max(self.figures.get(name, 0.0), value)

    def _whose(self) -> str:
        """Return whose processors had the least to spare."""
        machines = [one for one in self.seen.machines if not one.away]
        if not machines:
            return "processors"
        return f"processors of machine {min(machines, key=lambda one: one.idle).machine}"

    def machine(self) -> None:
        seen = self.seen
        self.figures |= {"timer_p99_ms": seen.lateness.p99_s * 1e3, "steal": seen.steal}
        self.figures |= {"idle": seen.idle, "watching": seen.watching}
        if seen.pressure is not None:
            self.figures["pressure"] = seen.pressure
            if seen.pressure > MOST_PRESSURE:
                self.warnings.append(
                    f"programs waited for a processor {seen.pressure:.0%} of the time, more than "
                    f"{MOST_PRESSURE:.0%}"
                )
        if seen.lateness.p99_s > MOST_LATENESS_S:
            self.warnings.append(
                f"1 in 100 timers came {seen.lateness.p99_s * 1e3:.2g} ms or more too late, more "
                f"than {MOST_LATENESS_S * 1e3:.0f} ms"
            )
        if seen.steal > MOST_STEAL:
            self.warnings.append(
                f"the owner of this virtual machine took {seen.steal:.1%} of its processors away, "
                f"more than {MOST_STEAL:.0%}"
            )
        idle = f"{self._whose()} were idle {seen.idle:.1%} of the time, less than"
        if seen.idle < LEAST_IDLE:
            self.reasons.append(
                f"{idle} {LEAST_IDLE:.0%}: programs waited for them, and might have sent more; "
                "choose a lower rate or a smaller network"
            )
        elif seen.idle < GOOD_IDLE:
            self.warnings.append(f"{idle} {GOOD_IDLE:.0%}")
