"""Every cable of a network as numpy arrays, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, NamedTuple

import numpy
from numpy.typing import NDArray

from pillarbox.topos.base.errors import PillarboxError

# Nodes per numpy operation: enough to hide Python's overhead, few enough for the CPU cache.
BLOCK = 1 << 15


class CableArrays(NamedTuple):
    """All cables of a network: one array per field of `pillarbox.topos.base.topology.Cable`."""

    a: NDArray[numpy.signedinteger[Any]]
    a_port: NDArray[numpy.signedinteger[Any]]
    b: NDArray[numpy.signedinteger[Any]]
    b_port: NDArray[numpy.signedinteger[Any]]
    level: NDArray[numpy.signedinteger[Any]]


class NodeSide(NamedTuple):
    """All servers, or all switches, of a network: number, ports, and wiring function of a port."""

    nodes: int
    ports: int
    plug: Callable[[Any, int], tuple[Any, Any, Any]]


def cable_arrays(
    spec: str, cables: int, servers: NodeSide, switches: NodeSide, *, switches_interconnect: bool
) -> CableArrays:
    """Return a network's cables as one array per field, of the smallest sufficient integer type."""
    node_type = numpy.min_scalar_type(servers.nodes + switches.nodes)
    port_type = numpy.min_scalar_type(max(servers.ports, switches.ports))
    types = (node_type, port_type, node_type, port_type, numpy.uint8)
    arrays = CableArrays(*(numpy.empty(cables, dtype) for dtype in types))
    filled = end = 0
    blocks = _cable_blocks(servers, 0)
    if switches_interconnect:
        blocks = chain(blocks, _cable_blocks(switches, servers.nodes))
    for block in blocks:
        end = filled + len(block.a)
        if end > cables:
            break
        for whole, part in zip(arrays, block, strict=True):
            whole[filled:end] = part
        filled = end
    if end != cables:  # the network's class has a wrong `cables` or wrong wiring functions
        wired = f"{end} or more" if end > cables else f"{end}"
        raise PillarboxError(f"the class of {spec} declares {cables} cables, but wires {wired}")
    return arrays


def _cable_blocks(side: NodeSide, first_node: int) -> Iterator[CableArrays]:
    """Yield the cables from all nodes of a side to higher-numbered nodes, in blocks of nodes."""
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
    keep = far > nodes  # excludes ports without a cable too: NOTHING is below every node number
    if keep.all():  # usual case (servers to switches): avoids five array copies
        return cables
    return CableArrays(*(column[keep] for column in cables))
