"""Completion times of flows with given volumes; remaining flows share the freed capacity."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy

from pillarbox.experiments.models.arrays import Bools, Floats

if TYPE_CHECKING:
    # Function that returns the rate of each flow in bit/s while the flows of a mask are active.
    RatesOf = Callable[[Bools], Floats]

# Remainder of a flow's volume, relative to the volume, that counts as a rounding error.
ROUNDING = 1e-9


def completed_s(volume_bits: Floats, start_s: Floats, rates_of: RatesOf) -> Floats:
    """Return flows' completion times in seconds; rates change when a flow starts or ends.

    The time is missing (NaN) for a flow without a path, or with a link of capacity 0 on its path.
    """
    volume = numpy.asarray(volume_bits, numpy.float64)
    starts = numpy.asarray(start_s, numpy.float64)
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
