"""Which machine has which node, by arithmetic: every machine works it out, and none is told.

Servers stand in the order of their digits, and each machine takes a whole run of them: with the
most significant digit first that is a block of the network, a DCell_k-1 or a BCube_k-1, so that few
cables leave it. Other orders of the digits are tried, and the one with the fewest cables that cross
is taken. A switch stands whole on the machine where most of its cables end; where two machines are
equal, on the one with fewer switches so far. Runs are as long as the machines' weights say.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate, permutations
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy
from numpy.typing import NDArray

from topos.base.errors import require
from topos.base.topology import Topology

if TYPE_CHECKING:
    Ints = NDArray[numpy.int64]

MOST_ORDERS = 24  # of digits that are tried: all of four


class Placement(NamedTuple):
    """Where each node of a network is."""

    machines: int
    digits: tuple[int, ...]  # which digit of an address counts first, second, ...
    machine_of: Ints  # by node
    crossing: NDArray[numpy.bool_]  # by cable, in the order of `cable_arrays`

    def nodes_on(self, machine: int) -> list[int]:
        """Return the servers and switches of a machine, servers first."""
        return [int(node) for node in numpy.flatnonzero(self.machine_of == machine)]


def place(topology: Topology, machines: int, weights: Sequence[int] = ()) -> Placement:
    """Return which machine has which node.

    Parameters
    ----------
    topology : Topology
        The network.
    machines : int
        How many there are.
    weights : sequence of int, optional
        What each can carry beside the others, such as its processors; else all are alike.

    >>> import topos
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
    for order, _ in zip(permutations(range(len(digits))), range(MOST_ORDERS), strict=False):
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
    """Return the machine of the first server in order, of the second, and so on."""
    require(
        len(weights) == machines and min(weights) > 0,
        f"{machines} machines take {machines} weights above 0, not {','.join(map(str, weights))}",
    )
    share = Fraction(topology.servers, sum(weights))
    ends = [ceil(weight * share) for weight in accumulate(weights)]
    counts = numpy.diff([0, *ends])
    require(
        counts.min() > 0,
        f"{topology.spec} has {topology.servers} servers: too few for each of {machines} machines "
        "with these weights to have one",
    )
    return numpy.repeat(numpy.arange(machines), counts)


def _place_switches(
    topology: Topology, ends: tuple[Any, Any], machine_of: Ints, machines: int
) -> None:
    """Put each switch where most of its cables end that lead to what is placed already.

    Switches that lead to switches alone come after those.
    """
    count = [0] * machines
    while (machine_of < 0).any():
        votes = numpy.zeros((topology.switches, machines), numpy.int64)
        for near, far in (ends, ends[::-1]):
            heard = (machine_of[near] < 0) & (machine_of[far] >= 0)
            numpy.add.at(votes, (near[heard] - topology.servers, machine_of[far[heard]]), 1)
        most = votes.max(axis=1)
        heard_of = numpy.flatnonzero(most > 0)
        # Of switches without a cable, as partial networks may have, each machine gets some.
        for switch in heard_of if len(heard_of) else range(topology.switches):
            if machine_of[topology.servers + switch] < 0:
                equal = numpy.flatnonzero(votes[switch] == most[switch])
                chosen = min(equal, key=count.__getitem__)
                machine_of[topology.servers + switch] = chosen
                count[chosen] += 1
