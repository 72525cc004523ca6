"""Wang 2023: all-to-all by forwarding in Rail-only networks, at the size of a training cluster.

Servers of a domain exchange data at NINE times the rate of a rail. To a server of another rail in
another domain, data take a hop over the own rail and a hop within that domain. If both kinds of
hops proceed at the same time, the busier level determines the time; if the hops within domains
begin after those over rails, as in a collective operation of two phases, the times add up. Both
are compared with the same domains below a spine, which needs no forwarding. Only the paper's
abstract was available: its sentence on all-to-all traffic is tested.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy

from pillarbox.experiments.apps.papers.shared.draws import task_results
from pillarbox.experiments.apps.papers.shared.figure import Claim, Made, figure, quoted
from pillarbox.experiments.models.comparison.prices import LIAO, network_bill
from pillarbox.experiments.models.fluid.directed_links import link_count, link_rates_bps
from pillarbox.experiments.models.fluid.rates import link_loads
from pillarbox.experiments.models.simulator.paths import routes
from pillarbox.experiments.runs.reporting.reproduced.result import Point, Settings
from pillarbox.topos.base.spec import parse

SERVERS, QUICK_SERVERS = 2048, 256
# 450 GB/s within a domain and 400 Gbit/s over a rail, in each direction.
NINE = 9
RAIL, SPINE = "rail", "domains"
BLOCK = 128  # servers whose flows are routed together
DOMAIN_SIZES, QUICK_SIZES = (4, 8, 16, 32), (4, 8)
TOGETHER, IN_TURN = "hops of both levels together", "hops within domains afterwards"
LEAST, MOST = 1.082, 1.112
FORWARDING = quoted(
    "with only 8.2% to 11.2% completion time overhead for all-to-all traffic",
    "Wang 2023, abstract",
)


@figure(
    "rail-at-scale",
    "all-to-all by forwarding in large Rail-only networks (Wang 2023)",
    "All-to-all without a spine",
    "servers of a domain",
    "time, of that with a spine",
)
def rail_at_scale(settings: Settings) -> Made:
    """Compute the time of all-to-all traffic for domains of several sizes."""
    servers, sizes = (QUICK_SERVERS, QUICK_SIZES) if settings.quick else (SERVERS, DOMAIN_SIZES)
    tasks = [(kind, size, servers // size) for size in sizes for kind in (RAIL, SPINE)]
    found = task_results(settings, _level_times, tasks)
    times = {task[:2]: of_levels for task, of_levels in zip(tasks, found, strict=True)}
    points = [
        Point(series, size, join(times[RAIL, size]) / max(times[SPINE, size]))
        for series, join in ((TOGETHER, max), (IN_TURN, sum))
        for size in sizes
    ]
    return Made(
        points,
        [
            *(Claim(one, at_most=True, wanted=MOST, sentence=FORWARDING) for one in points),
            *(
                Claim(one, at_least=True, wanted=LEAST, sentence=FORWARDING)
                for one in points
                if one.series == IN_TURN
            ),
        ],
        rows=[*points, *_cable_rows(servers, sizes)],
        notes=(
            f"{servers:,} servers; a domain's cables have {NINE} times the rate of a rail's. All "
            "pairs send the same volume; rail,g,d by BCubeRouting, domains,g,d over its spine. "
            f"The overhead of hops in turn is near (g - 1) / ({NINE} g). Switches and cables, "
            "without a claim, at the prices of Liao 2012, Table 1, without switches above its "
            "largest.",
        ),
    )


def _level_times(task: tuple[str, int, int]) -> list[float]:
    """Return the times in which the busiest link of a domain, and of a rail, carries its flows.

    The unit is the time of one flow alone on a rail.
    """
    kind, size, domains = task
    rates, routing = (f"{NINE}:1", "bcube") if kind == RAIL else (f"{NINE}:1:1", "spread")
    network = parse(f"{kind},{size},{domains},rates={rates}")
    servers = numpy.arange(network.servers)
    loads = numpy.zeros(link_count(network))
    for first in range(0, network.servers, BLOCK):
        pairs = numpy.meshgrid(servers[first : first + BLOCK], servers)
        source, destination = (ends.ravel() for ends in pairs)
        others = source != destination
        flows = routes(network, routing, source[others], destination[others])
        loads += link_loads(flows, None, len(loads))
    rate = numpy.broadcast_to(link_rates_bps(network, 1.0), len(loads))
    return [float((loads / rate)[rate == each].max()) for each in (NINE, 1)]


def _cable_rows(servers: int, sizes: Sequence[int]) -> Iterator[Point]:
    """Yield switches, cables and price of both kinds of networks."""
    for size in sizes:
        for kind, name in ((RAIL, "Rail-only"), (SPINE, "with a spine")):
            network = parse(f"{kind},{size},{servers // size}")
            yield Point(f"{name}: switches", size, network.switches)
            yield Point(f"{name}: cables", size, network.cables)
            price = network_bill(network, LIAO).network_usd
            if price is not None:
                yield Point(f"{name}: $ per server", size, price / servers)
