"""What the switches of a lab are, where they are more than bridges that forward frames.

Bridges are enough where servers relay, and in a tree. Where cables between switches form loops,
bridges would use a tree of them only: there switches route, as Linux routers, or on Open vSwitch
where that is asked for.
"""

from __future__ import annotations

from pathlib import Path

from experiments.emulation.ovs import OpenVSwitch
from experiments.emulation.routers import Routers, Switches
from hosts.base.algorithms import algorithms
from topos.base.errors import require
from topos.base.topology import Topology

BRIDGES, OVS = "bridges", OpenVSwitch.name


def switches_of(
    topology: Topology, plane: str, routing: str, seed: int, folder: Path
) -> Switches | None:
    """Return the switches that route in a network whose servers do not; None for bridges."""
    known = algorithms(topology)
    require(
        routing in known,
        f"{topology.spec} has no routing {routing!r}: there are {', '.join(known)}",
    )
    if plane == OVS:
        return OpenVSwitch(topology, routing, seed, folder)
    return Routers(topology, routing, seed) if has_loops(topology) else None


def has_loops(topology: Topology) -> bool:
    """Tell whether there are more cables between switches than a tree of them has."""
    between = sum(cable.a >= topology.servers for cable in topology.links())
    return between > max(topology.switches - 1, 0)
