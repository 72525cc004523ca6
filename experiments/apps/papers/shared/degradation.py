"""All-to-all throughput while servers or switches fail: shared by Guo 2009, Fig. 8 and similar
figures.

Each run draws new failures, and every working server sends to every other. The aggregate bottleneck
throughput (ABT) is the number of flows times the rate of the slowest one when each link is shared
equally (Guo 2009, section 3.6). Flows cut off by failures do not count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy

from pillarbox.experiments.apps.papers.shared.draws import (
    Found,
    Runs,
    seeded_task_function,
    simulation_runs,
)
from pillarbox.experiments.models.fluid.directed_links import link_count
from pillarbox.experiments.models.fluid.rates import link_loads
from pillarbox.experiments.models.simulator import around
from pillarbox.experiments.models.simulator.failure_sets import draw
from pillarbox.experiments.models.simulator.flow_arrays import all_to_all
from pillarbox.experiments.runs.reporting.reproduced.result import Point, Settings
from pillarbox.topos.base.spec import parse

SERVERS, SWITCHES = "servers", "switches"  # kinds of failure
BCUBE, FATTREE, DCELL = "BCube", "fat-tree", "DCell"
CURVE_RUNS = 2
Case = tuple[str, str, float]  # network's label, kind of failure, share that fails
Networks = Mapping[str, tuple[str, ...]]  # spec and routings by network's label


@seeded_task_function
def measure(
    spec: str, routing: str, kind: str, share: float, random: numpy.random.Generator
) -> Found:
    """Draw random failures, and measure all-to-all traffic between the working servers.

    Returns the ABT in links, and the share of flows between working servers that is lost.
    """
    network = parse(spec)
    broken = draw(network, random, rack_servers=None, **{kind: share})
    ends = all_to_all(numpy.flatnonzero(~broken.servers))
    loads, flows = numpy.zeros(link_count(network)), 0
    for routes in around.blocks_of_routes(network, routing, *ends, broken.works(network), random):
        loads += link_loads(routes, None, len(loads))
        flows += int(numpy.count_nonzero(numpy.diff(routes.starts)))
    # ABT: every flow gets the rate of the flows on the busiest link.
    return {"abt": flows / loads.max() if flows else 0.0, "lost": 1 - flows / len(ends[0])}


class Failing(NamedTuple):
    """The simulation runs of one network in which a share of servers or switches fails."""

    series: str
    kind: str
    share: float
    runs: Runs

    def throughput(self, scale: float = 1.0) -> Point:
        """Return the mean aggregate bottleneck throughput (ABT) times a scale, as a point."""
        return self._point("", lambda found: found["abt"] * scale)

    def lost(self, what: str = "flows") -> Point:
        """Return the percentage of flows that failures cut off, as a point."""
        return self._point(f": {what} cut off, %", lambda found: found["lost"] * 100)

    def _point(self, what: str, value: Callable[[Found], float]) -> Point:
        name = f"{self.series}, {self.kind}{what}"
        return self.runs.point(name, self.share * 100, value, least=0.0)


def runs_of(
    settings: Settings,
    networks: Networks,
    shares: Sequence[float],
    runs: int,
    kinds: Sequence[str] = (SERVERS, SWITCHES),
    judged: Callable[[str, str, float], bool] = lambda *_: True,
    more: Mapping[Case, int] | None = None,
    measure: Callable[[Sequence[Any]], Any] = measure,
) -> list[Failing]:
    """Return the simulation runs of every network, kind of failure and failed share.

    Without failures all kinds share their runs. `judged` returns whether a verdict depends on a
    case. Other cases are drawn `CURVE_RUNS` times, and cases in `more` as often as given there.
    """
    cases = [(series, kind, share) for series in networks for kind in kinds for share in shares]
    drawn_cases = [
        (*networks[series], kind if share else SERVERS, share) for series, kind, share in cases
    ]
    few = settings.repeats or min(runs, CURVE_RUNS)
    by_case = more or {}
    counts = [by_case.get(case, runs if judged(*case) else few) for case in cases]
    found = simulation_runs(settings, measure, drawn_cases, counts)
    return [Failing(*case, of_case) for case, of_case in zip(cases, found, strict=True)]
