"""Every cable of a network as numpy arrays, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy
from numpy.typing import NDArray

from topos.base.errors import PillarboxError

if TYPE_CHECKING:
    from topos.base.topology import Plug, Topology

# Nodes handled at once: large enough to hide Python's cost, small enough to stay in the cache.
BLOCK = 1 << 15


class CableArrays(NamedTuple):
    """All cables, one array a column; see `topos.base.topology.Cable` for the meaning."""

    a: NDArray[numpy.integer[Any]]
    a_port: NDArray[numpy.integer[Any]]
    b: NDArray[numpy.integer[Any]]
    b_port: NDArray[numpy.integer[Any]]
    level: NDArray[numpy.integer[Any]]


def cable_arrays(topology: Topology) -> CableArrays:
    """Return every cable once, each column in the smallest type that holds it."""
    node_type = numpy.min_scalar_type(topology.nodes)
    port_type = numpy.min_scalar_type(max(topology.ports, topology.switch_ports))
    types = (node_type, port_type, node_type, port_type, numpy.uint8)
    arrays = CableArrays(*(numpy.empty(topology.cables, dtype) for dtype in types))
    filled = end = 0
    for block in cable_blocks(topology):
        end = filled + len(block.a)
        if end > topology.cables:
            break
        for whole, part in zip(arrays, block, strict=True):
            whole[filled:end] = part
        filled = end
    if end != topology.cables:  # a wrong network, whose author reads the sentence
        wired = f"{end} or more" if end > topology.cables else f"{end}"
        raise PillarboxError(f"{topology.spec} counts {topology.cables} cables and wires {wired}")
    return arrays


def cable_blocks(topology: Topology) -> Iterator[CableArrays]:
    """Yield every cable once, some ten thousand at a time."""
    for first in range(0, topology.servers, BLOCK):
        servers = numpy.arange(first, min(first + BLOCK, topology.servers))
        for port in range(topology.ports):
            yield _upward(servers, port, topology.server_plug(servers, port))
    if not topology.switches_interconnect:
        return
    for first in range(0, topology.switches, BLOCK):
        switches = numpy.arange(first, min(first + BLOCK, topology.switches))
        for port in range(topology.switch_ports):
            plug = topology.switch_plug(switches, port)
            yield _upward(switches + topology.servers, port, plug)


def _upward(nodes: NDArray[numpy.int64], port: int, plug: Plug) -> CableArrays:
    """Return the cables that lead from these nodes to a node of higher number."""
    far, far_port, level = (numpy.broadcast_to(column, nodes.shape) for column in plug)
    cables = CableArrays(nodes, numpy.broadcast_to(port, nodes.shape), far, far_port, level)
    keep = far > nodes  # and so not NOTHING, which is below every node
    if keep.all():  # as from servers to switches: five copies saved
        return cables
    return CableArrays(*(column[keep] for column in cables))
