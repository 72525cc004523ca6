"""Forecast of the load that a placement puts on each machine and its network card.

Each pair of servers has one flow along the network's own paths; of too many pairs a random sample
is used. A flow between two machines crosses both machines' cards once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy

from pillarbox.experiments.apps.cluster.placement import Placement
from pillarbox.experiments.models.arrays import Ints
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
    random = numpy.random.default_rng(SEED)
    sources, destinations = _pairs(topology.servers, random)
    choice = random.integers(0, routing_by_name(topology, "").choices(topology), len(sources))
    loads = link_flows(topology, "", sources, destinations, choice)
    cables = topology.cable_arrays()
    machine_of, flows = placed.machine_of, len(sources)
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
    return Forecast(topology.cables, crossing, flows, int(loads.sum()) / flows, crossings, shares)


def _pairs(servers: int, random: numpy.random.Generator) -> tuple[Ints, Ints]:
    """Return sources and destinations of all pairs of servers, or of a random sample."""
    if servers * (servers - 1) > MOST_FLOWS:
        return random_flows(servers, MOST_FLOWS, random)
    return all_to_all(numpy.arange(servers))
