"""End times of the transfers of a dependency graph; a transfer begins after its dependencies.

Transfers of one flow share a connection: they are sent one after the other, in the order in which
they became ready. Active flows share the links, in an event-driven simulation.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy

from pillarbox.experiments.models.arrays import Floats
from pillarbox.experiments.models.fluid.completion import ROUNDING

if TYPE_CHECKING:
    from pillarbox.experiments.models.fluid.completion import RatesOf

# Maximum number of cached rate allocations, by set of active flows: the steps of algorithms repeat
# these sets.
MOST_REMEMBERED = 4096


def transfer_ends_s(
    volume_bits: Floats,
    flow_of: Sequence[int],
    after: Sequence[Sequence[int]],
    flows: int,
    rates_of: RatesOf,
) -> Floats:
    """Return the arrival time of each transfer in seconds; missing (NaN) if it never arrives.

    Parameters
    ----------
    volume_bits : array
        Volume of each transfer in bits.
    flow_of : sequence of int
        Flow whose connection carries each transfer; a negative number is a step without work, which
        ends when all of its dependencies have ended.
    after : sequence of sequences of int
        Transfers that each transfer depends on.
    flows : int
        Number of flows.
    rates_of : callable
        Function that returns the rate of each flow for a set of active flows.

    Two flows over one link, and a third transfer that depends on the second one:

    >>> def rates(active): return numpy.where(active, 1.0 / max(1, active[:2].sum()), numpy.nan)
    >>> volumes = numpy.array([1.0, 3.0, 2.0])
    >>> transfer_ends_s(volumes, [0, 1, 0], [[], [], [1]], 2, rates).tolist()
    [2.0, 4.0, 6.0]
    """
    return _TransferGraph(volume_bits, flow_of, after, flows).run(rates_of)


class _TransferGraph:
    def __init__(
        self,
        volume_bits: Floats,
        flow_of: Sequence[int],
        after: Sequence[Sequence[int]],
        flows: int,
    ) -> None:
        self.volumes, self.flow_of = volume_bits, flow_of
        self.waits_for = [len(needed) for needed in after]
        self.needed_by: list[list[int]] = [[] for _ in flow_of]
        for number, needed in enumerate(after):
            for other in needed:
                self.needed_by[other].append(number)
        self.queues: list[deque[int]] = [deque() for _ in range(flows)]
        self.active = numpy.zeros(flows, bool)
        self.left = numpy.zeros(flows)  # bits left of the transfer at the head of each flow's queue
        self.least = numpy.zeros(
            flows
        )  # bits left below which a transfer counts as arrived (rounding errors)
        self.ends = numpy.full(len(flow_of), numpy.nan)

    def run(self, rates_of: RatesOf) -> Floats:
        """Simulate the transfers event by event; return their end times in seconds."""
        now = 0.0
        known: dict[bytes, Floats] = {}
        self._enqueue_transfers(
            [number for number, count in enumerate(self.waits_for) if not count], now
        )
        while self.active.any():
            rates = self._cached_rates(rates_of, known)
            moving = numpy.flatnonzero(rates > 0)
            if not len(moving):
                break  # no remaining transfer makes progress: all rates are 0
            takes_s = float((self.left[moving] / rates[moving]).min())
            self.left[moving] -= rates[moving] * takes_s
            now += takes_s
            done = moving[self.left[moving] <= self.least[moving]]
            self._enqueue_transfers(
                [onward for flow in done for onward in self._finish_transfer(int(flow), now)], now
            )
        return self.ends

    def _cached_rates(self, rates_of: RatesOf, known: dict[bytes, Floats]) -> Floats:
        key = self.active.tobytes()
        if key not in known:
            if len(known) >= MOST_REMEMBERED:
                known.clear()
            known[key] = numpy.nan_to_num(rates_of(self.active.copy())) * self.active
        return known[key]

    def _enqueue_transfers(self, numbers: list[int], now: float) -> None:
        """Append ready transfers to the queues of their connections, in the order of numbers."""
        heapq.heapify(numbers)
        while numbers:
            number = heapq.heappop(numbers)
            flow = self.flow_of[number]
            if flow < 0:
                for onward in self._end_transfer(number, now):
                    heapq.heappush(numbers, onward)
                continue
            self.queues[flow].append(number)
            if not self.active[flow]:
                self._start_next_transfer(flow)

    def _start_next_transfer(self, flow: int) -> None:
        queue = self.queues[flow]
        self.active[flow] = bool(queue)
        if queue:
            self.left[flow] = self.volumes[queue[0]]
            self.least[flow] = self.left[flow] * ROUNDING

    def _finish_transfer(self, flow: int, now: float) -> list[int]:
        """Finish a flow's transfer; return the transfers that can begin now."""
        number = self.queues[flow].popleft()
        self._start_next_transfer(flow)
        return self._end_transfer(number, now)

    def _end_transfer(self, number: int, now: float) -> list[int]:
        """Record a transfer's end; return the transfers that can begin now."""
        self.ends[number] = now
        for onward in self.needed_by[number]:
            self.waits_for[onward] -= 1
        return [onward for onward in self.needed_by[number] if not self.waits_for[onward]]
