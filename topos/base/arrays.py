"""Every cable of a network as numpy arrays, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, NamedTuple

import numpy
from numpy.typing import NDArray

from topos.base.errors import PillarboxError

# Nodes per numpy operation: large enough to hide Python's overhead, small enough for the CPU cache.
BLOCK = 1 << 15


class CableArrays(NamedTuple):
    """All cables of a network: one array per field of `topos.base.topology.Cable`."""

    a: NDArray[numpy.integer[Any]]
    a_port: NDArray[numpy.integer[Any]]
    b: NDArray[numpy.integer[Any]]
    b_port: NDArray[numpy.integer[Any]]
    level: NDArray[numpy.integer[Any]]


class Side(NamedTuple):
    """All servers or all switches: node count, ports per node, and the plug function of a port."""

    nodes: int
    ports: int
    plug: Callable[[Any, int], tuple[Any, Any, Any]]


def cable_arrays(
    spec: str, cables: int, servers: Side, switches: Side, *, switches_interconnect: bool
) -> CableArrays:
    """Return a network's cables, one array of the smallest sufficient integer type per field."""
    node_type = numpy.min_scalar_type(servers.nodes + switches.nodes)
    port_type = numpy.min_scalar_type(max(servers.ports, switches.ports))
    types = (node_type, port_type, node_type, port_type, numpy.uint8)
    arrays = CableArrays(*(numpy.empty(cables, dtype) for dtype in types))
    filled = end = 0
    blocks = _blocks(servers, 0)
    if switches_interconnect:
        blocks = chain(blocks, _blocks(switches, servers.nodes))
    for block in blocks:
        end = filled + len(block.a)
        if end > cables:
            break
        for whole, part in zip(arrays, block, strict=True):
            whole[filled:end] = part
        filled = end
    if end != cables:  # error in the network's `cables` or plug functions
        wired = f"{end} or more" if end > cables else f"{end}"
        raise PillarboxError(f"{spec} declares {cables} cables and has {wired}")
    return arrays


def _blocks(side: Side, first_node: int) -> Iterator[CableArrays]:
    """Yield cables from servers (or switches) to higher-numbered nodes, BLOCK nodes at a time."""
    for first in range(0, side.nodes, BLOCK):
        numbers = numpy.arange(first, min(first + BLOCK, side.nodes))
        for port in range(side.ports):
            yield _upward_cables(numbers + first_node, port, side.plug(numbers, port))


def _upward_cables(
    nodes: NDArray[numpy.int64], port: int, plug: tuple[Any, Any, Any]
) -> CableArrays:
    """Return the cables that lead from one port of each node to higher-numbered nodes."""
    far, far_port, level = (numpy.broadcast_to(column, nodes.shape) for column in plug)
    cables = CableArrays(nodes, numpy.broadcast_to(port, nodes.shape), far, far_port, level)
    keep = far > nodes  # excludes ports without a cable, too: NOTHING is below every node number
    if keep.all():  # cables from servers to switches: avoids five array copies
        return cables
    return CableArrays(*(column[keep] for column in cables))
