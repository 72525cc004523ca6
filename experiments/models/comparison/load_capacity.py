"""Capacity to which the load of a workload refers.

Three definitions, in bytes that TCP delivers (see `ideal` for the headers):

- *servers*: total rate of the ports of all servers that send. The usual load of a NIC; a network
  may be full long before.
- *bisection*: the largest uniform traffic until the bisection is full. Of N servers, N^2 / 4 pairs
  in each direction are on different sides, of N (N-1) pairs in total.
- *busiest*: total rate of the flows when the busiest link is full, on the paths that the routing
  computes without knowing the traffic. At a load below 1 no queue grows without bound in any
  network, so this load compares networks that carry different traffic.
"""

from __future__ import annotations

import numpy

from pillarbox.experiments.models.arrays import Floats
from pillarbox.experiments.models.fluid.directed_links import (
    cabled_ends,
    link_count,
    link_factors,
    link_rates_bps,
    path_counts,
    routes_of,
)
from pillarbox.experiments.models.fluid.ideal import (
    header_bytes,
    header_efficiency,
    static_flow_paths,
)
from pillarbox.experiments.models.workloads.demand import demand_of
from pillarbox.experiments.models.workloads.workload import BISECTION, SERVERS, Workload
from pillarbox.topos.base.errors import require
from pillarbox.topos.base.topology import Topology

# Maximum number of pairs whose paths are computed one by one, which takes about 20 s.
MOST_PAIRS = 300_000
BISECTION_S = 20.0


def workload_capacity_bps(
    topology: Topology, workload: Workload, seed: int, routing: str, rate_bps: float, mtu: int
) -> float:
    """Return the capacity to which the load of a workload refers, in bit/s of goodput.

    >>> from pillarbox import topos
    >>> pair = {"arrivals": "poisson", "load": 0.5, "duration_s": 1.0, "options": {"flows": 1}}
    >>> one_cable = Workload("one-to-one", load_of="busiest", **pair)
    >>> tree = topos.parse("tree,2,1")
    >>> round(workload_capacity_bps(tree, one_cable, 1, "", 1e6, 1500) / header_efficiency(0))
    1000000
    """
    of = workload.load_of
    demand = demand_of(topology, workload, seed)
    if of == SERVERS:
        links = _sender_ports(topology, demand)
    elif of == BISECTION:
        links = _bisection_links(topology)
    else:
        links = 1 / busiest_link_share(topology, routing, demand)
    return links * rate_bps * header_efficiency(header_bytes(topology, routing), mtu)


def _sender_ports(topology: Topology, demand: Floats) -> float:
    """Return the total relative rate of the cabled ports of the servers that send."""
    links, near, _ = cabled_ends(topology)
    of_servers = near < topology.servers
    sends = (demand.sum(axis=1) > 0)[near[of_servers]]
    return float(link_factors(topology, topology.factors.rates)[links[of_servers]][sends].sum())


def _bisection_links(topology: Topology) -> float:
    """Return the uniform traffic that fills the bisection, in units of the network's rate."""
    from pillarbox.experiments.models.comparison.bisection import bisection

    found, servers = bisection(topology, BISECTION_S), topology.servers
    require(
        found.exact is not None,
        f"the bisection of {topology.spec} is only known as {found} cables: choose servers or "
        "busiest for load_of",
    )
    assert found.exact is not None
    half = servers // 2
    return found.exact * servers * (servers - 1) / (half * (servers - half))


def busiest_link_share(topology: Topology, routing: str, demand: Floats) -> float:
    """Return the largest fraction of all bytes on a link, relative to the link's rate.

    Paths are the routing's static ones; a link's rate is in units of the network's rate.

    >>> from pillarbox import topos
    >>> bcube = topos.parse("bcube,4,1")
    >>> uniform = demand_of(bcube, Workload(duration_s=1), seed=1)
    >>> round(1 / busiest_link_share(bcube, "bcube", uniform), 3)  # n (N-1) / (n-1), Guo 2009
    20.0
    """
    sources, destinations = numpy.nonzero(demand)
    require(
        len(sources) <= MOST_PAIRS,
        f"the busiest link of {len(sources):,} pairs takes too long to compute: choose a smaller "
        f"network than {topology.spec}, or load_of = servers",
    )
    pairs = list(zip(sources.tolist(), destinations.tolist(), strict=True))
    paths = static_flow_paths(topology, routing, pairs)
    require(None not in paths, f"{routing or 'the usual routing'} has no path for some pairs")
    routes = routes_of(topology, paths)
    parts = demand[sources, destinations] / path_counts(paths)
    shares = numpy.repeat(parts, numpy.diff(routes.starts))
    on_links = numpy.bincount(routes.links, shares, link_count(topology))
    return float((on_links / link_rates_bps(topology, 1.0)).max())
