"""When simulated flows start and probe, for routings that adapt to traffic."""

from __future__ import annotations

from typing import NamedTuple


class ProbeTimes(NamedTuple):
    """Start times of flows and intervals of probes (TAR's probes are sequential)."""

    at_once: bool = False  # True: all flows start simultaneously; False: spread over a probe round
    # whether probe intervals have a random part, which prevents oscillation
    random_part: bool = True
