"""Placement of nodes on machines, computed alike by every machine, so that it is never transmitted.

Servers are sorted by their digits, and each machine takes a contiguous run. With the most
significant digit first a run is a block of the network, a DCell_k-1 or a BCube_k-1, so that few
cables leave the machine. Other orders of the digits are tried, and the order with the fewest
crossing cables is used. A switch is placed on the machine where most of its cables end; on a tie,
on the machine with fewer switches so far. The machines' weights set the lengths of the runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate, permutations
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy
from numpy.typing import NDArray

from pillarbox.topos.base.errors import require
from pillarbox.topos.base.topology import Topology

if TYPE_CHECKING:
    Ints = NDArray[numpy.int64]

MOST_ORDERS = 24  # maximum number of orders of address digits that `place` tries


class Placement(NamedTuple):
    """Machine of each node of a network, and the cables between machines."""

    machines: int
    # order of address digits by which servers were sorted and then divided among machines
    digits: tuple[int, ...]
    machine_of: Ints  # number of the machine, by node
    crossing: NDArray[numpy.bool_]  # True for cables between machines

    def nodes_on(self, machine: int) -> list[int]:
        """Return the servers and switches placed on a machine, servers first."""
        return [int(node) for node in numpy.flatnonzero(self.machine_of == machine)]


def place(topology: Topology, machines: int, weights: Sequence[int] = ()) -> Placement:
    """Return the placement of a network's nodes with the fewest crossing cables.

    Parameters
    ----------
    topology : Topology
        The network.
    machines : int
        Number of machines.
    weights : sequence of int, optional
        Relative capacity of each machine, such as its number of processors (default: all equal).

    >>> from pillarbox import topos
    >>> placed = place(topos.parse("bcube,4,1"), 2)
    >>> placed.machine_of[:16].tolist()
    [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1]
    >>> int(placed.crossing.sum())  # of 32 cables
    8
    """
    by_rank = _machine_by_rank(topology, machines, weights or [1] * machines)
    cables = topology.cable_arrays()
    ends = cables.a.astype(numpy.int64), cables.b.astype(numpy.int64)
    servers = numpy.arange(topology.servers)
    digits = [numpy.broadcast_to(one, servers.shape) for one in topology.digits(servers)]
    best: Placement | None = None
    most_orders = MOST_ORDERS if machines > 1 else 1
    for order, _ in zip(permutations(range(len(digits))), range(most_orders), strict=False):
        machine_of = numpy.full(topology.nodes, -1)
        ranked = numpy.lexsort([digits[i] for i in reversed(order)])
        machine_of[ranked] = by_rank
        _place_switches(topology, ends, machine_of, machines)
        crossing = machine_of[ends[0]] != machine_of[ends[1]]
        if best is None or crossing.sum() < best.crossing.sum():
            best = Placement(machines, order, machine_of, crossing)
    assert best
    return best


def _machine_by_rank(topology: Topology, machines: int, weights: Sequence[int]) -> Ints:
    """Return the machine number of each server, for servers sorted by address digits."""
    require(
        len(weights) == machines and min(weights) > 0,
        f"{machines} machines need {machines} weights above 0, not {','.join(map(str, weights))}",
    )
    equal = len(set(weights)) == 1
    share = Fraction(topology.servers, sum(weights))
    ends = [ceil(weight * share) for weight in accumulate(weights)]
    counts = numpy.diff([0, *ends])
    require(
        counts.min() > 0,
        f"{topology.spec} has {topology.servers} servers: too few for each of {machines} machines "
        f"{'' if equal else 'with these weights '}to have one",
    )
    return numpy.repeat(numpy.arange(machines), counts)


def _place_switches(
    topology: Topology, ends: tuple[Any, Any], machine_of: Ints, machines: int
) -> None:
    """Place each switch on the machine that has most of its neighbours placed so far.

    Switches whose neighbours are all switches are placed in later rounds.
    """
    count = [0] * machines
    while (machine_of < 0).any():
        votes = numpy.zeros((topology.switches, machines), numpy.int64)
        for near, far in (ends, ends[::-1]):
            heard = (machine_of[near] < 0) & (machine_of[far] >= 0)
            numpy.add.at(votes, (near[heard] - topology.servers, machine_of[far[heard]]), 1)
        most = votes.max(axis=1)
        heard_of = numpy.flatnonzero(most > 0)
        # Switches without a cable, as in partial networks, are distributed over all machines.
        for switch in heard_of if len(heard_of) else range(topology.switches):
            if machine_of[topology.servers + switch] < 0:
                equal = numpy.flatnonzero(votes[switch] == most[switch])
                chosen = min(equal, key=count.__getitem__)
                machine_of[topology.servers + switch] = chosen
                count[chosen] += 1
