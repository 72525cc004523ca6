"""All-to-all throughput while servers or switches fail: what Guo 2009, Fig. 8 and its kin share.

In each run failures are drawn anew, and every server that works sends to every other. The aggregate
bottleneck throughput (ABT) is the number of flows times the rate of the slowest one when each link
is shared equally (Guo 2009, section 3.6). Flows that failures cut off are not among them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy

from experiments.analysis.fluid.links import link_count
from experiments.analysis.fluid.rates import link_loads
from experiments.analysis.simulator import around
from experiments.analysis.simulator.failures import draw
from experiments.analysis.simulator.flows import all_to_all
from experiments.reporting.reproduced.result import Point, Settings
from experiments.reproductions.shared.sampled import point
from experiments.reproductions.shared.sweep import swept
from topos.base.spec import parse

SERVERS, SWITCHES = "servers", "switches"  # what fails


class Task(NamedTuple):
    """One run."""

    network: str
    routing: str
    kind: str
    share: float
    seed: int
    run: int


class Found(NamedTuple):
    """What a run found."""

    throughput: float  # ABT, in links
    lost: float  # share of the flows between servers that work


def measure(task: Task) -> Found:
    """Draw failures, and send from all to all."""
    network = parse(task.network)
    random = numpy.random.default_rng([task.seed, task.run])
    broken = draw(network, random, rack_servers=None, **{task.kind: task.share})
    ends = all_to_all(numpy.flatnonzero(~broken.servers))
    loads, flows = numpy.zeros(link_count(network)), 0
    for routes in around.blocks(network, task.routing, *ends, broken.works(network), random):
        loads += link_loads(routes, None, len(loads))
        flows += int(numpy.count_nonzero(numpy.diff(routes.starts)))
    # No flow is slower than those on the busiest link.
    return Found(flows / loads.max() if flows else 0.0, 1 - flows / len(ends[0]))


class Runs(NamedTuple):
    """The runs of one network, with so many failures of one kind."""

    series: str
    kind: str
    share: float
    found: list[Found]

    def throughput(self, scale: float = 1.0) -> Point:
        """Return the mean ABT, times a scale, and its confidence interval."""
        values = [one.throughput * scale for one in self.found]
        return point(f"{self.series}, {self.kind}", self.share * 100, values, least=0.0)

    def lost(self) -> Point:
        """Return the share of flows that are cut off, in percent."""
        values = [one.lost * 100 for one in self.found]
        series = f"{self.series}, {self.kind}: flows cut off, %"
        return point(series, self.share * 100, values, least=0.0)


def measured(
    settings: Settings,
    networks: Mapping[str, tuple[str, str]],
    shares: Sequence[float],
    runs: int,
    kinds: Sequence[str] = (SERVERS, SWITCHES),
) -> list[Runs]:
    """Return the runs of every network (its spec and routing, by series), kind and share."""
    cases = [(series, kind, share) for series in networks for kind in kinds for share in shares]
    tasks = {case: _tasks(networks[case[0]], *case[1:], settings.seed, runs) for case in cases}
    different = list(dict.fromkeys(task for some in tasks.values() for task in some))
    found = dict(zip(different, swept(settings, measure, different), strict=True))
    return [Runs(*case, [Found(*found[task]) for task in tasks[case]]) for case in cases]


def _tasks(network: tuple[str, str], kind: str, share: float, seed: int, runs: int) -> list[Task]:
    """Return the runs of one case; without failures the kinds have the same."""
    return [Task(*network, kind if share else SERVERS, share, seed, run) for run in range(runs)]
