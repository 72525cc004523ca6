"""Which path a flow takes, compiled: `best` of hosts/base/probing.py, and `schedule` of DPillar's.

In one file, for the reason that stands in `experiments.analysis.simulator.tar_rules`.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy

from hosts.base.probing import NEARLY_BEST
from hosts.dpillar.choices import NEW_FLOW_SHARE

NONE = -1


@numba.njit(cache=True)
def best(free: Any, hops: Any, using: int, own: float, hop_cost: float) -> int:
    """Return the number of the best path, `best` of hosts/base/probing.py; NONE if there is none.

    Parameters
    ----------
    free, hops : arrays
        Of each path; no hops where there is none.
    using : int
        The path in use, or NONE.
    own : float
        What the flow itself sends on it.
    hop_cost : float
        What a hop costs.
    """
    most = -numpy.inf
    for path in range(len(free)):
        if hops[path]:
            left = free[path] + (own if path == using else 0.0) - hop_cost * hops[path]
            most = max(most, left)
    enough = most - hop_cost if hop_cost else NEARLY_BEST * most
    chosen = NONE
    for path in range(len(free)):
        if hops[path]:
            left = free[path] + (own if path == using else 0.0) - hop_cost * hops[path]
            if left >= enough and (
                chosen == NONE
                or hops[path] < hops[chosen]
                or (hops[path] == hops[chosen] and path == using)
            ):
                chosen = path
    return chosen


@numba.njit(cache=True)
def best_of_each(free: Any, hops: Any, using: Any, own: Any, hop_cost: float) -> Any:
    """Return the number of the best path of each flow; see `best`."""
    found = numpy.empty(len(free), numpy.int64)
    for flow in range(len(free)):
        found[flow] = best(free[flow], hops[flow], using[flow], own[flow], hop_cost)
    return found


@numba.njit(cache=True)
def schedule(
    free: Any, hops: Any, default: Any, pairs: Any, own: Any, paths: Any, known: Any
) -> None:
    """Choose each flow's path, and book it: `schedule` of hosts/dpillar/choices.py."""
    for flow in range(len(pairs)):
        pair, using = pairs[flow], paths[flow]
        known[flow] = default[pair] != NONE and not numpy.isnan(free[pair, 0])
        if not known[flow]:
            paths[flow] = default[pair]
            continue
        row = free[pair]
        chosen = best(row, hops[pair], using, own[flow], 0.0)
        if chosen != using:
            if using == NONE:
                row[chosen] *= 1 - NEW_FLOW_SHARE
            else:
                row[chosen] = max(0.0, row[chosen] - own[flow])
                row[using] += own[flow]
            paths[flow] = chosen
