"""Li 2014: the diameter of BCCC by its order, next to FiConn's and DPillar's, and three networks.

Only the paper's abstract was available: its two sentences on diameters are tested by exact
diameters, found by a search from all servers. The networks of some thousand servers with two ports
are Pillarbox's choice, and their values are shown without a claim.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

import numpy

from pillarbox.experiments.apps.papers.shared.figure import Claim, Made, figure, quoted
from pillarbox.experiments.models.comparison.prices import LIAO, network_bill
from pillarbox.experiments.models.fluid.directed_links import link_count
from pillarbox.experiments.models.fluid.rates import link_loads
from pillarbox.experiments.models.simulator.paths import routes, routing_by_name
from pillarbox.experiments.runs.reporting.reproduced.result import Point, Settings
from pillarbox.topos.base.diameter import diameter
from pillarbox.topos.base.spec import parse

BCCC, FICONN, DPILLAR = "BCCC", "FiConn", "DPillar"
# Networks of each order k; DPillar's order is its number of columns.
ORDERS: Mapping[str, tuple[str, range]] = {
    BCCC: ("bccc,2,{}", range(1, 8)),
    FICONN: ("ficonn,4,{}", range(4)),
    DPILLAR: ("dpillar,4,{}", range(2, 8)),
}
QUICK_ORDERS = 3  # orders of each network with --quick
# Networks of some 1000 to 2000 servers with two ports, and their routing.
THOUSAND = {
    BCCC: ("bccc,8,2", "bccc"),
    FICONN: ("ficonn,12,2", "tor"),
    DPILLAR: ("dpillar,8,4", "mp-random"),
}
QUICK_THOUSAND = {
    BCCC: ("bccc,3,2", "bccc"),
    FICONN: ("ficonn,8,1", "tor"),
    DPILLAR: ("dpillar,8,2", "mp-random"),
}
LINEAR, EXPONENTIAL = (
    quoted(sentence, "Li 2014, abstract")
    for sentence in (
        "its diameter increases only linearly to the network order",
        "FiConn and BCN, whose diameters increase exponentially with network order",
    )
)


@figure(
    "bccc",
    "diameter of BCCC by its order, next to FiConn and DPillar (Li 2014)",
    "Diameter by order",
    "order k (DPillar: columns)",
    "diameter, hops",
)
def bccc(settings: Settings) -> Made:
    """Search exact diameters by order; compare three networks of servers with two ports."""
    points = [
        Point(name, order, _diameter(spec.format(order)))
        for name, (spec, orders) in ORDERS.items()
        for order in (orders[:QUICK_ORDERS] if settings.quick else orders)
    ]
    claims = [*_linear(_of(points, BCCC)), *_exponential(_of(points, FICONN))]
    networks = QUICK_THOUSAND if settings.quick else THOUSAND
    return Made(
        points,
        claims,
        rows=[
            *points,
            *(claim.row for claim in claims),
            *(row for name in networks for row in _values(name, *networks[name], settings.seed)),
        ],
        notes=(
            "; ".join(f"{name}: {spec.format('k')}" for name, (spec, _) in ORDERS.items())
            + ". Diameters are found by a search from all servers. Values of servers with two "
            "ports, without a claim: "
            + "; ".join(
                f"{name}: {spec} ({parse(spec).servers} servers), {routing}"
                for name, (spec, routing) in networks.items()
            )
            + "; all-to-all: the smallest flow's share of a cable, times the number of receivers; "
            "prices: Liao 2012, Table 1.",
        ),
    )


def _diameter(spec: str) -> int:
    """Return a network's exact diameter in hops."""
    found = diameter(parse(spec))
    assert found is not None, f"{spec} is not connected"
    return found


def _of(points: list[Point], series: str) -> list[Point]:
    return [one for one in points if one.series == series]


def _growth(points: list[Point]) -> Iterator[tuple[float, float]]:
    """Yield each order but the first, with the hops that it adds to the diameter."""
    for before, after in pairwise(points):
        assert before.ours is not None
        assert after.ours is not None
        yield float(after.x), after.ours - before.ours


def _linear(points: list[Point]) -> Iterator[Claim]:
    """Yield the claim that each order adds equally many hops: as many as the first step."""
    steps = [*_growth(points)]
    for order, hops in steps:
        row = Point(f"{BCCC}: hops added", order, hops)
        yield Claim(row, wanted=steps[0][1], sentence=LINEAR)


def _exponential(points: list[Point]) -> Iterator[Claim]:
    """Yield the claim that each order adds at least twice the hops of the order before."""
    for (_, before), (order, after) in pairwise(_growth(points)):
        row = Point(f"{FICONN}: hops added, over those before", order, after / before)
        yield Claim(row, at_least=True, wanted=2.0, sentence=EXPONENTIAL)


def _values(name: str, spec: str, routing: str, seed: int) -> Iterator[Point]:
    """Yield a network's size, cost and all-to-all throughput as rows."""
    network = parse(spec)
    bill = network_bill(network, LIAO)
    servers = numpy.arange(network.servers)
    source, destination = (ends.ravel() for ends in numpy.meshgrid(servers, servers))
    pairs = source != destination
    random = numpy.random.default_rng(seed)
    choice = random.integers(0, routing_by_name(network, routing).choices(network), pairs.sum())
    found = routes(network, routing, source[pairs], destination[pairs], choice)
    # The flows over the fullest link get the smallest rate, also if rates are max-min fair.
    throughput = (network.servers - 1) / link_loads(found, None, link_count(network)).max()
    yield Point("servers", name, network.servers)
    yield Point("diameter, hops", name, _diameter(spec))
    yield Point("switch ports per server", name, network.cables / network.servers)
    yield Point("what a server sends all-to-all, of a cable's rate", name, throughput)
    if bill.network_usd is not None:
        yield Point("switches and cables, $ per server", name, bill.network_usd / network.servers)
