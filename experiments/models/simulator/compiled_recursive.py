"""Paths of DCell and FiConn for arrays of flows: the rule of hosts/base/recursive.py, compiled."""

from __future__ import annotations

import numpy

from pillarbox.experiments.models.arrays import Ints
from pillarbox.experiments.models.simulator.compiled import native_in_place
from pillarbox.experiments.models.simulator.hops import Fill, Hops
from pillarbox.hosts.base.recursive import Nested, write_hops


def nested_as_arrays(net: Nested) -> Nested:
    """Return a nested network's numbers as arrays: code is compiled once, whatever the level k."""
    return Nested(*(numpy.array(column, numpy.int64) for column in net))  # type: ignore[arg-type]


def fill_of(net: Nested) -> Fill:
    """Return a function that writes the hops of flows (see `simulator.hops.Fill`)."""
    # Networks' numbers as tuples require compiling for each k, but are twice as fast as arrays.
    numbers = Nested(*map(tuple, net))

    def fill(sources: Ints, destinations: Ints, hops: Hops) -> None:
        # a stack for each call, since threads run calls in parallel
        near, far, levels = numpy.empty((3, len(net.sizes)), numpy.int64)
        _fill_flows(numbers, (near, far, levels), sources, destinations, hops)

    return fill


@native_in_place
def _fill_flows(
    net: Nested, stack: tuple[Ints, Ints, Ints], sources: Ints, destinations: Ints, hops: Hops
) -> None:
    """Write the hops of each flow by the recursive routing rule of a DCell or FiConn."""
    for flow in range(len(sources)):
        source, destination = sources[flow], destinations[flow]
        rows = hops.ports[flow], hops.peers[flow]
        hops.counts[flow] = write_hops(net, source, destination, stack, *rows)
