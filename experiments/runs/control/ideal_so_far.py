"""The ideal of a workload that is still sending, span by span as for a finished trial.

A span lies between two path samples. It counts only when the second sample is known, so that bytes
are never compared with the capacity of paths that the flows had left.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pillarbox.experiments.runs.trials.ideals import IdealTotal

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy
    from numpy.typing import NDArray

    from pillarbox.experiments.models.fluid.path_bound import PathBound
    from pillarbox.experiments.runs.trials.order import FlowPathsAtTime

    # Function from two path samples to the upper bound of flow rates between them, None if unknown.
    BoundBetween = Callable[[FlowPathsAtTime, FlowPathsAtTime], PathBound | None]

MOST_ROWS = 100  # number of recent samples of delivered bytes kept, until the paths are sampled


class GoodputAndBound:
    """Goodput of a workload so far, and its upper bound on the paths in use.

    Rows are added by one thread, and samples by another.
    """

    def __init__(self, bound_between: BoundBetween, *, has_volume: bool) -> None:
        self.total = IdealTotal(has_volume)
        self._bound_between = bound_between
        # seconds after the start barrier, and bytes delivered by each flow
        self._rows: deque[tuple[float, NDArray[numpy.int64]]] = deque(maxlen=MOST_ROWS)
        self._last: FlowPathsAtTime | None = None
        self._begin: tuple[float, Any] | None = None
        self._used = 0  # number of path samples used

    def add_row(self, at_s: float, delivered_bytes: NDArray[numpy.int64]) -> None:
        """Add the bytes that each flow has delivered until a time after the barrier."""
        self._rows.append((at_s, delivered_bytes))

    def add_samples(self, samples: Sequence[FlowPathsAtTime]) -> None:
        """Add the goodput and its bound up to each new path sample; `samples` are all so far."""
        for sample in samples[self._used :]:
            rows = [row for row in list(self._rows) if row[0] <= sample.at_s]
            if not rows:  # no bytes are known yet: the first path sample is earlier
                self._used += 1
                self._last = sample
                continue
            self._end_span(rows[-1], sample)
            self._used, self._last, self._begin = self._used + 1, sample, rows[-1]

    def _end_span(self, end: tuple[float, Any], sample: FlowPathsAtTime) -> None:
        begin = self._begin or (0.0, 0 * end[1])
        lasted_s, bits = end[0] - begin[0], 8.0 * (end[1] - begin[1])
        bound = self._bound_between(self._last or sample, sample)
        if bound is not None and lasted_s > 0:
            self.total.add(bound, bits, lasted_s)
