"""Every cable of a network as numpy arrays, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, NamedTuple

import numpy
from numpy.typing import NDArray

from topos.base.errors import PillarboxError

# Nodes handled at once: large enough to hide Python's cost, small enough to stay in the cache.
BLOCK = 1 << 15


class CableArrays(NamedTuple):
    """All cables, one array a column; see `topos.base.topology.Cable` for the meaning."""

    a: NDArray[numpy.integer[Any]]
    a_port: NDArray[numpy.integer[Any]]
    b: NDArray[numpy.integer[Any]]
    b_port: NDArray[numpy.integer[Any]]
    level: NDArray[numpy.integer[Any]]


class Side(NamedTuple):
    """All servers, or all switches, and what is plugged into a port of each (a `Plug`)."""

    nodes: int
    ports: int
    plug: Callable[[Any, int], tuple[Any, Any, Any]]


def cable_arrays(
    spec: str, cables: int, servers: Side, switches: Side, *, switches_interconnect: bool
) -> CableArrays:
    """Return every cable once, each column in the smallest type that holds it."""
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
    if end != cables:  # a wrong network, whose author reads the sentence
        wired = f"{end} or more" if end > cables else f"{end}"
        raise PillarboxError(f"{spec} counts {cables} cables and wires {wired}")
    return arrays


def _blocks(side: Side, first_node: int) -> Iterator[CableArrays]:
    """Yield every cable from this side to a node of higher number, some ten thousand at a time."""
    for first in range(0, side.nodes, BLOCK):
        numbers = numpy.arange(first, min(first + BLOCK, side.nodes))
        for port in range(side.ports):
            yield _upward(numbers + first_node, port, side.plug(numbers, port))


def _upward(nodes: NDArray[numpy.int64], port: int, plug: tuple[Any, Any, Any]) -> CableArrays:
    """Return the cables that lead from these nodes to a node of higher number."""
    far, far_port, level = (numpy.broadcast_to(column, nodes.shape) for column in plug)
    cables = CableArrays(nodes, numpy.broadcast_to(port, nodes.shape), far, far_port, level)
    keep = far > nodes  # and so not NOTHING, which is below every node
    if keep.all():  # as from servers to switches: five copies saved
        return cables
    return CableArrays(*(column[keep] for column in cables))
