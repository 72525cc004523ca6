"""What the switches of a lab are, where they are more than bridges that forward frames.

Bridges are enough where servers relay, and in a tree; where servers relay, Open vSwitch can stand
for them, to show what little is asked of it. Where cables between switches form loops,
bridges would use a tree of them only: there switches route, as Linux routers, or on Open vSwitch
where that is asked for.
"""

from __future__ import annotations

from pathlib import Path

from experiments.emulation.defaults import chosen_plane
from experiments.emulation.ovs import OpenVSwitch, OvsMiniSwitches
from experiments.emulation.routers import Routers, Switches
from hosts.base.algorithms import algorithms
from hosts.live.settings import LabSettings
from topos.base.errors import require
from topos.base.topology import Topology

BRIDGES, OVS = "bridges", OpenVSwitch.name


def switches_of(
    topology: Topology, settings: LabSettings, routing: str, seed: int, folder: Path
) -> Switches | None:
    """Return what the switches of a network are; None for bridges."""
    kind = settings.switches
    if topology.ports > 1:
        return None if kind == BRIDGES else OvsMiniSwitches(topology, kind, folder)
    require(
        kind == BRIDGES,
        f"servers of {topology.spec} do not relay, so that switches have to route: "
        "take --plane ovs instead of --switches",
    )
    plane = settings.plane
    known = algorithms(topology)
    require(
        routing in known,
        f"{topology.spec} has no routing {routing!r}: there are {', '.join(known)}",
    )
    if plane == OVS:
        return OpenVSwitch(topology, routing, seed, folder)
    return Routers(topology, routing, seed) if has_loops(topology) else None


def servers_plane(switches: Switches | None, asked: str) -> str:
    """Return what moves packets on servers that relay."""
    return switches.servers_plane(asked) if switches else chosen_plane(asked)


def has_loops(topology: Topology) -> bool:
    """Tell whether there are more cables between switches than a tree of them has."""
    between = sum(cable.a >= topology.servers for cable in topology.links())
    return between > max(topology.switches - 1, 0)
