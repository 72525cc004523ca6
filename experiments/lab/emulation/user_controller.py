"""Switches on Open vSwitch under a user's own OpenFlow applications, written for Ryu or os-ken.

Servers that do not relay share one subnet and find each other by ARP, so that switches that learn
MAC addresses suffice: no server sends to a gateway. Switch number i (``si``) has datapath id i + 1,
and its OpenFlow port p + 1 is port p.

Where cables between switches form loops, flooded frames (OFPP_FLOOD) pass a spanning tree only, as
the ports outside it have OpenFlow's flag NO_FLOOD; unlike with STP, these ports forward everything
else. The tree is computed again after a fault that a switch can notice.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pillarbox.experiments.lab.emulation.kits import application_file, kit_of_files
from pillarbox.experiments.lab.emulation.ovs import READY_S, OpenVSwitch
from pillarbox.hosts.base.failures import Failures
from pillarbox.topos.base.errors import PillarboxError
from pillarbox.topos.base.topology import Topology

POLL_S = 0.1
CONTROLLER = "controller"  # name of the controller's place in `exec`


class UserControlledSwitches(OpenVSwitch):
    """The switches of a network under users' OpenFlow applications (`files`)."""

    # All of Open vSwitch's versions: the applications choose. Flags of ports need OpenFlow 1.0.
    protocols = "OpenFlow10,OpenFlow11,OpenFlow12,OpenFlow13,OpenFlow14,OpenFlow15"

    def __init__(
        self, topology: Topology, files: Sequence[str], folder: Path, kit: str = ""
    ) -> None:
        self.files = tuple(map(application_file, files))
        super().__init__(topology, "", 0, folder, kit_of_files(self.files, kit))
        self._without_flood: set[tuple[int, int]] = set()  # switch nodes and ports with NO_FLOOD

    def controller(self) -> dict[str, Any]:
        """Return the controller's application: fields of `controller_process.ControllerOrder`."""
        return {"files": self.files}

    def admit(self, net: Any, server: int) -> None:
        """Do nothing when a server starts: it has its address, and sends ARP requests."""

    def wait_ready(self, controller: subprocess.Popen[bytes]) -> None:
        """Set the flags of ports, and wait until all switches are connected to the controller."""
        self.set_failures(Failures())
        deadline = time.monotonic() + READY_S
        words = "--format=csv", "--no-headings", "--columns=is_connected", "list", "controller"
        while "false" in self.vsctl(*words):
            self.check_running()
            if time.monotonic() > deadline:
                raise PillarboxError(
                    f"the OpenFlow switches cannot connect to the controller: see "
                    f"{self.folder}/controller.log and vswitchd.log"
                )
            time.sleep(POLL_S)
        self.check_running()

    def set_failures(self, failures: Failures) -> None:
        """Flood over a spanning tree of the switches and cables that work."""
        closed = ports_outside_tree(self.topology, failures)
        for node, port in closed ^ self._without_flood:
            name, flag = self.topology.node_name(node), "no-flood"
            flag = flag if (node, port) in closed else "flood"
            target = f"unix:{self.folder}/{name}.mgmt"
            self.run_tool("ovs-ofctl", "-O", "OpenFlow10", "mod-port", target, str(port + 1), flag)
        self._without_flood = closed


def ports_outside_tree(topology: Topology, failures: Failures) -> set[tuple[int, int]]:
    """Return the switch ports to other switches, as node and port, outside a spanning tree.

    >>> from pillarbox import topos
    >>> len(ports_outside_tree(topos.parse("tree,4,4"), Failures()))
    0
    >>> len(ports_outside_tree(topos.parse("fattree,4"), Failures()))  # 32 cables, 20 switches
    26
    """
    switches = range(topology.servers, topology.nodes)
    between = {
        (node, port): plug
        for node in switches
        for port, plug in topology.neighbours(node)
        if plug.node >= topology.servers
    }
    tree: set[tuple[int, int]] = set()
    reached: set[int] = set()
    for root in switches:
        pending = [] if root in reached else [root]
        reached.add(root)
        for node in pending:  # breadth-first: `pending` grows
            for port, _ in topology.neighbours(node):
                plug = between.get((node, port))
                broken = plug and (
                    frozenset((node, plug.node)) in failures.links
                    or not failures.nodes.isdisjoint((node, plug.node))
                )
                if plug and not broken and plug.node not in reached:
                    reached.add(plug.node)
                    pending.append(plug.node)
                    tree |= {(node, port), (plug.node, plug.port)}
    return between.keys() - tree
