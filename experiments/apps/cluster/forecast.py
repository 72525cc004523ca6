"""Forecast of the load that a placement puts on each machine and its network card.

Each pair of servers has one flow along the network's own paths; of too many pairs a random sample
is used. In networks without compiled routing, flows take shortest paths. A flow between two
machines crosses both machines' cards once.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy

from pillarbox.experiments.apps.cluster.placement import Placement
from pillarbox.experiments.models.arrays import Floats, Ints
from pillarbox.experiments.models.comparison.shortest_flows import shortest_flows
from pillarbox.experiments.models.fluid.directed_links import link_at
from pillarbox.experiments.models.simulator.flow_arrays import all_to_all, random_flows
from pillarbox.experiments.models.simulator.paths import link_flows, routing_by_name
from pillarbox.topos.base.topology import Topology

MOST_FLOWS = 1 << 18
SEED = 1


class MachineShare(NamedTuple):
    """Expected share of one machine in a distributed network's nodes and load."""

    servers: int
    switches: int
    cables: int  # cables that leave this machine
    work: float  # this machine's fraction of all transmitted frames
    card: float  # times that a flow crosses this machine's network card


class Forecast(NamedTuple):
    """Expected load of a network placed on machines: crossing cables, path lengths, shares."""

    cables: int
    crossing: int
    flows: int
    links: float  # mean number of links per flow
    crossings: float  # mean number of links between two machines per flow
    shares: list[MachineShare]  # one entry per machine


def forecast(topology: Topology, placed: Placement) -> Forecast:
    """Return the expected load of machines under all-to-all traffic in a distributed network.

    >>> from pillarbox import topos
    >>> from pillarbox.experiments.apps.cluster.placement import place
    >>> bcube = topos.parse("bcube,4,1")
    >>> found = forecast(bcube, place(bcube, 2))
    >>> found.crossing, found.flows, round(found.crossings, 2)
    (8, 240, 0.8)
    """
    flows, loads = _flows_and_loads(topology)
    cables = topology.cable_arrays()
    machine_of = placed.machine_of
    work, card = numpy.zeros((2, placed.machines))
    ends = (cables.a, cables.a_port), (cables.b, cables.b_port)
    for (near, port), (far, _) in (ends, ends[::-1]):
        sent = loads[link_at(topology, near.astype(int), port.astype(int))]
        numpy.add.at(work, machine_of[near], sent)
        numpy.add.at(card, machine_of[near], sent * placed.crossing)
        numpy.add.at(card, machine_of[far], sent * placed.crossing)
    leaving = numpy.bincount(
        numpy.concatenate([machine_of[end[placed.crossing]] for end in (cables.a, cables.b)]),
        minlength=placed.machines,
    )
    servers = numpy.bincount(machine_of[: topology.servers], minlength=placed.machines)
    switches = numpy.bincount(machine_of[topology.servers :], minlength=placed.machines)
    columns = servers, switches, leaving, work / work.sum(), card / flows
    shares = [
        MachineShare(*row) for row in zip(*(column.tolist() for column in columns), strict=True)
    ]
    crossings = float(card.sum()) / 2 / flows
    crossing = int(placed.crossing.sum())
    return Forecast(topology.cables, crossing, flows, float(loads.sum()) / flows, crossings, shares)


@lru_cache(maxsize=1)  # cached, since several placements of one network are compared
def _flows_and_loads(topology: Topology) -> tuple[int, Ints | Floats]:
    """Return the number of flows between servers, and the number of flows on each link."""
    servers, routing = topology.servers, routing_by_name(topology, "")
    if routing.in_python:
        # shortest paths, since a path of the routing takes milliseconds
        no_flows = numpy.empty((servers, 0), numpy.int64)
        return servers * (servers - 1), shortest_flows(topology, no_flows, SEED).loads
    random = numpy.random.default_rng(SEED)
    sources, destinations = _pairs(servers, random)
    choice = random.integers(0, routing.choices(topology), len(sources))
    return len(sources), link_flows(topology, "", sources, destinations, choice)


def _pairs(servers: int, random: numpy.random.Generator) -> tuple[Ints, Ints]:
    """Return sources and destinations of all pairs of servers, or of a random sample."""
    if servers * (servers - 1) > MOST_FLOWS:
        return random_flows(servers, MOST_FLOWS, random)
    return all_to_all(numpy.arange(servers))
