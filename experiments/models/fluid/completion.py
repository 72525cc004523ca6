"""Completion times of flows with given volumes; remaining flows share the freed capacity."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy
from numpy.typing import NDArray

from experiments.models.fluid.directed_links import Routes
from experiments.models.fluid.rates import MaxMin

if TYPE_CHECKING:
    Floats = NDArray[numpy.float64]
    Bools = NDArray[numpy.bool_]
    # Function that returns the rate of each flow in bit/s while the flows of a mask are active.
    RatesOf = Callable[[Bools], Floats]

# Remainder of a flow's volume, relative to the volume, that counts as a rounding error.
ROUNDING = 1e-9


def completion_s(
    routes: Routes,
    volume_bits: Floats,
    capacity_bps: float | Floats,
    links: int,
    start_s: Floats | None = None,
) -> Floats:
    """Return the completion time of each flow in seconds, with max-min fair rates.

    The time is missing (NaN) for a flow without a path, or with a link of capacity 0 on its path.

    >>> chain = Routes(numpy.array([0, 2, 3, 4]), numpy.array([0, 1, 0, 1]))
    >>> completion_s(chain, numpy.array([6.0, 3.0, 14.0]), numpy.array([6.0, 10.0]), 2).tolist()
    [1.6, 1.0, 2.0]
    """
    shared = MaxMin(routes, links)
    return completed_s(volume_bits, start_s, lambda active: shared.rates(capacity_bps, active))


def completed_s(volume_bits: Floats, start_s: Floats | None, rates_of: RatesOf) -> Floats:
    """Return flows' completion times in seconds; rates change when a flow starts or ends."""
    volume = numpy.asarray(volume_bits, numpy.float64)
    starts = numpy.zeros(len(volume)) if start_s is None else numpy.asarray(start_s, numpy.float64)
    left = volume.copy()
    ended = numpy.full(len(volume), numpy.nan)
    pending = numpy.ones(len(volume), bool)
    now = float(starts.min(initial=0.0))
    while pending.any():
        active = pending & (starts <= now)
        rates = numpy.nan_to_num(rates_of(active)) * active
        moving = rates > 0
        due = now + left[moving] / rates[moving]
        later = starts[pending & (starts > now)]
        if not len(due) and not len(later):
            break  # all remaining flows have the rate 0
        next_s = float(min(due.min(initial=numpy.inf), later.min(initial=numpy.inf)))
        left[moving] -= rates[moving] * (next_s - now)
        now = next_s
        done = moving & (left <= volume * ROUNDING)
        ended[done] = now
        pending &= ~done
    return ended
