"""Watch of a trial over several machines: a `Watch` in each part, its card, and all clocks.

The results are merged into one `Readings`: the cables of all machines, the worst kernel lateness of
any machine, the sum of all strays, and per-machine readings of clocks and cards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pillarbox.experiments.apps.cluster.cards import CardReadings, CardWatch
from pillarbox.experiments.apps.cluster.clock import ClockOffset, moved_s
from pillarbox.experiments.runs.trust.machine import Machine, between, machine
from pillarbox.experiments.runs.trust.readings import DurationStatistics, MachineReadings, Readings
from pillarbox.experiments.runs.trust.strays import since
from pillarbox.experiments.runs.trust.watch import Watch, faults_since
from pillarbox.topos.base.errors import PillarboxError

if TYPE_CHECKING:
    from pillarbox.experiments.apps.cluster.machines import Machines

LOST, BACK = "was lost", "was away and came back"


class PartWatch:
    """Measures CPU load and lateness of one machine during a trial, at the lab's requests."""

    def __init__(self, watch: Watch, card: Callable[[], CardWatch]) -> None:
        self._watch, self._new_card = watch, card
        self._card: CardWatch | None = None

    def begin(self, at_s: float) -> None:
        """Start to measure this machine at a time of its CLOCK_MONOTONIC."""
        self._watch.begin(at_s)
        self._card = self._new_card()

    def end(self) -> dict[str, Any]:
        """Stop measuring this machine; return the readings in a form that JSON can encode."""
        readings = self._watch.end()
        assert self._card
        card, self._card = self._card.end(), None
        return {"card": card, "readings": readings.as_json(), "links": readings.links}

    def close(self) -> None:
        """Stop the load measurement of a trial, even if it has not begun."""
        self._watch.close()
        if self._card:
            self._card.end()


class WatchOverMachines:
    """Measures all machines of a lab during a trial: CPU load, clocks and network cards.

    Parameters
    ----------
    fabric : Machines
        The machines of the running lab.
    come_and_go : bool
        Whether flows come and go, as for `Watch`.
    """

    def __init__(self, fabric: Machines, *, come_and_go: bool = False) -> None:
        self._fabric = fabric
        self._begin_s = 0.0
        self._before: Machine | None = None
        fabric.came_back.clear()
        fabric.ask_living_machines(least=1, ask="watch", come_and_go=come_and_go)

    def __enter__(self) -> WatchOverMachines:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def begin(self, at_s: float) -> None:
        """Start measuring all machines simultaneously, at a time of the lab's CLOCK_MONOTONIC."""
        self._begin_s = at_s
        self._fabric.clocks.watch()
        living = self._fabric.living_machines()
        self._fabric.ask_machines(
            {
                one: {"ask": "watch begin", "at_s": self._fabric.clocks.machine_time_s(one, at_s)}
                for one in living
            }
        )
        self._before = machine()

    def so_far(self) -> Readings | None:
        """Return None: machines transfer their load readings only at the end of a trial."""
        return None

    def end(self) -> Readings:
        """Stop measuring; return the merged readings of all machines."""
        assert self._before
        found = self._fabric.ask_living_machines(least=1, ask="watch end")
        busy = between(self._before, machine())
        offsets = self._fabric.clocks.end_watch()
        self._before = None
        seen = {number: _readings(one) for number, one in found.items()}
        machines = []
        for number in range(self._fabric.machines):
            if number in seen and number not in self._fabric.came_back:
                card = CardReadings(*found[number]["card"])
                machines.append(_as_machine_readings(number, seen[number], card, offsets[number]))
            else:
                machines.append(
                    MachineReadings(number, BACK if number in self._fabric.came_back else LOST)
                )
        faults = faults_since(self._fabric.lab.folder, self._begin_s)
        # Programs of other emulated machines on this computer belong to the trial.
        return merged(list(seen.values()), machines, faults, busy.foreign)

    def close(self) -> None:
        """Stop the load measurement of a trial, even if it has not begun."""
        if self._before:
            self._fabric.clocks.end_watch()
        for number in self._fabric.living_machines():
            try:
                self._fabric.ask_machines({number: {"ask": "watch close"}})
            except PillarboxError:  # the machine is being lost, and its processes with it
                continue


def _readings(answer: Mapping[str, Any]) -> Readings:
    """Return a machine's readings of a trial, decoded from JSON."""
    fields = dict(answer["readings"])
    for name in ("round_trip", "lateness", "pacing"):
        fields[name] = DurationStatistics(**fields[name])
    fields["machines"] = ()
    return Readings(**fields, links=answer["links"])


def _as_machine_readings(
    number: int, readings: Readings, card: CardReadings, offsets: Sequence[ClockOffset]
) -> MachineReadings:
    ahead = [one.ahead_s for one in offsets]
    return MachineReadings(
        machine=number,
        clock_s=(ahead[0], max(ahead), min(ahead), ahead[-1]) if ahead else (),
        clock_moved_s=moved_s(offsets) if offsets else 0.0,
        card_sent_bytes=card.sent_bytes,
        card_received_bytes=card.received_bytes,
        card_dropped=card.dropped,
        card_full=card.full_looks / max(1, card.looks),
        crossed_out=card.crossed_out,
        crossed_in=card.crossed_in,
        idle=readings.idle,
        canary_p99_s=readings.round_trip.p99_s,
        pacing_p99_s=readings.pacing.p99_s,
    )


def merged(
    seen: Sequence[Readings],
    machines: Sequence[MachineReadings],
    faults: int,
    foreign: float,
) -> Readings:
    """Return the merged readings of all machines: worst metrics, summed counts."""

    def worst(name: str) -> DurationStatistics:
        found: DurationStatistics = max(
            (getattr(one, name) for one in seen), key=lambda late: late.p99_s
        )
        return found

    strays = Counter[str]()
    for one in seen:
        strays.update(one.strays)
    pressures = [one.pressure for one in seen if one.pressure is not None]
    first = seen[0]
    return Readings(
        duration_s=max(one.duration_s for one in seen),
        rate_bps=first.rate_bps,
        base_rtt_s=first.base_rtt_s,
        links=[row for one in seen for row in one.links],
        samples=min(one.samples for one in seen),
        interval_s=max(one.interval_s for one in seen),
        round_trip=worst("round_trip"),
        lost=max(one.lost for one in seen),
        lateness=worst("lateness"),
        pacing=worst("pacing"),
        pacing_lost=max(one.pacing_lost for one in seen),
        pressure=max(pressures, default=None),
        steal=max(one.steal for one in seen),
        idle=min(one.idle for one in seen),
        foreign=foreign,
        programs_forward=first.programs_forward,
        packets=sum(one.packets for one in seen),
        strays=since(Counter(), strays),
        faults=faults,
        link_losses=sum(one.link_losses for one in seen),
        watching=sum(one.watching for one in seen),
        machines=tuple(machines),
    )
