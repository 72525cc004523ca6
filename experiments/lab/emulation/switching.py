"""Selection of the switches of a lab, if they are more than bridges that forward frames.

Bridges suffice if servers relay, and in a tree; if servers relay, Open vSwitch can replace the
bridges, to demonstrate how few functions are required of a switch. If cables between switches form
loops, bridges would use only a spanning tree: there switches route, as Linux routers, or on
request on Open vSwitch. A user's own OpenFlow controller can control the switches of any network.
"""

from __future__ import annotations

from pathlib import Path

from pillarbox.experiments.lab.emulation.defaults import chosen_plane
from pillarbox.experiments.lab.emulation.lab_network import switches_form_loops
from pillarbox.experiments.lab.emulation.ovs import OpenVSwitch, OvsMiniSwitches
from pillarbox.experiments.lab.emulation.routers import Routers, Switches
from pillarbox.experiments.lab.emulation.user_controller import UserControlledSwitches
from pillarbox.hosts.base.algorithms import algorithms
from pillarbox.hosts.live.settings import LabSettings
from pillarbox.topos.base.errors import UnknownNameError, require
from pillarbox.topos.base.topology import Topology

BRIDGES, OVS = "bridges", OpenVSwitch.name


def switches_of(
    topology: Topology, settings: LabSettings, routing: str, seed: int, folder: Path
) -> Switches | None:
    """Return the object that runs a network's routing switches; None if they are bridges."""
    kind, kit = settings.switches, settings.kit
    if settings.controller:
        return UserControlledSwitches(topology, settings.controller, folder, kit)
    if topology.ports > 1:
        require(
            kind == BRIDGES or not switches_form_loops(topology),
            f"cables between switches of {topology.spec} form loops, in which broadcasts of {kind} "
            "switches never end: leave out --switches",
        )
        return None if kind == BRIDGES else OvsMiniSwitches(topology, kind, folder, kit)
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
        UnknownNameError,
    )
    if plane == OVS:
        return OpenVSwitch(topology, routing, seed, folder, kit)
    return Routers(topology, routing, seed) if switches_form_loops(topology) else None


def servers_plane(switches: Switches | None, asked: str) -> str:
    """Return the forwarding plane (``python`` or ``ebpf``) of servers that relay packets."""
    return switches.servers_plane(asked) if switches else chosen_plane(asked)
