"""Counters and shapes of cables on all machines, read and changed at agreed instants."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, NamedTuple

from pillarbox.experiments.lab.emulation.cable_shapes import CableShape, CableShapes
from pillarbox.experiments.lab.emulation.meter import MeterReading
from pillarbox.topos.base.errors import PillarboxError

if TYPE_CHECKING:
    from pillarbox.experiments.apps.cluster.machines import Machines

AHEAD_S = 0.02  # lead time of an action that all machines perform simultaneously, in seconds


class HalfCable(NamedTuple):
    """One machine's half of a cable between machines; a cable within a machine has one half."""

    machine: int
    cable: int  # index in `Topology.links`


class RemoteCableShapes(CableShapes):
    """Rates, delays and losses of cables between machines; each machine sets its own end."""

    def __init__(self, net: Any, usual: CableShape, fabric: Machines) -> None:
        super().__init__(net, usual)
        self._fabric = fabric

    def change(self, a: str, b: str, wanted: CableShape) -> None:
        """Set rate, delay and loss at both ends of a cable; on an error restore both ends."""
        halves, living = self._cable_halves(a, b), self._fabric.living_machines()
        try:
            self._shape_halves(halves, wanted, living)
        except PillarboxError:
            self._shape_halves(halves, self.of(a, b), living, least=0)
            raise
        self.note(a, b, wanted)

    def regain(self, machine: int) -> None:
        """Set the changed rates, delays and losses of cables on a machine's replacement."""
        for ends, shape in self.changed.items():
            self._shape_halves(self._cable_halves(*ends), shape, [machine])

    def _cable_halves(self, a: str, b: str) -> list[HalfCable]:
        return [half for link in self.links(a, b) for half in link.halves]

    def _shape_halves(
        self,
        halves: Collection[HalfCable],
        wanted: CableShape,
        machines: Collection[int],
        least: int | None = None,
    ) -> None:
        at_s = time.monotonic() + AHEAD_S
        asked = {}
        for machine in {half.machine for half in halves}.intersection(machines):
            cables = [half.cable for half in halves if half.machine == machine]
            there_s = self._fabric.clocks.machine_time_s(machine, at_s)
            asked[machine] = {"ask": "shape", "cables": cables, "shape": wanted, "at_s": there_s}
        self._fabric.ask_machines(asked, least)


class DistributedMeter:
    """Reads byte counters of cables and servers on all machines at the same time.

    Counters of a lost machine keep their last value, and its queue depths are 0.
    """

    def __init__(self, fabric: Machines) -> None:
        self._fabric = fabric
        self._directions: dict[int, tuple[int, int, int]] = {}
        self._received: dict[int, int] = {}

    def read(self) -> MeterReading:
        """Return the byte counts so far of each direction of each cable, and of each server."""
        fabric, at_s = self._fabric, time.monotonic() + AHEAD_S
        moments = {one: fabric.clocks.machine_time_s(one, at_s) for one in fabric.living_machines()}
        asked = {one: {"ask": "count", "at_s": there_s} for one, there_s in moments.items()}
        still = {one: (sent, 0, drops) for one, (sent, _, drops) in self._directions.items()}
        received = dict(self._received)
        for directions, servers in fabric.ask_machines(asked, least=0).values():
            still |= {one: (sent, waits, drops) for one, sent, waits, drops in directions}
            received.update(servers)
        self._directions, self._received = still, received
        return MeterReading(at_s, fabric.lab.topology, still, received)
