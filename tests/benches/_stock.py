"""Stock Mininet as a lab: its servers, bridges, cables and shapers, measured like Pillarbox's own.

This program is the process of a trial, and receives an order like
`pillarbox.experiments.runs.trials.trial_worker`.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from mininet.link import TCIntf, TCLink
from mininet.net import Mininet
from mininet.node import Host
from mininet.nodelib import LinuxBridge

from pillarbox.experiments.lab.emulation.cable_shapes import CableShape, CableShapes
from pillarbox.experiments.lab.emulation.lab import Lab
from pillarbox.experiments.lab.emulation.lab_network import allow_open_files
from pillarbox.experiments.lab.emulation.local_fabric import LocalFabric
from pillarbox.experiments.lab.linux.namespaces import Namespace, fabric
from pillarbox.experiments.runs.trials import trial_worker
from pillarbox.experiments.runs.trials.order import TrialMeasurements, TrialOrder
from pillarbox.hosts.linux.calls import enter
from pillarbox.hosts.linux.netlink import Netlink
from pillarbox.topos.base.emulated import emulated
from pillarbox.topos.base.spec import parse


class _ShellNamespace(Namespace):
    """Network namespace of a Mininet node, given by the node's shell process."""

    def __init__(self, process: int) -> None:
        home = fabric()
        self.descriptor = os.open(f"/proc/{process}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        enter(self.descriptor)
        try:
            self.netlink = Netlink()
        finally:
            enter(home.descriptor)
        self._waiting = []


class _Intf(TCIntf):
    """Mininet's TCIntf with the kernel's interface index."""

    @property
    def ifindex(self) -> int:
        """Kernel's interface index, in the namespace of the interface's node."""
        with self.node.live_namespace():
            return socket.if_nametoindex(self.name)


class _Host(Host):
    """Mininet's Host with its network namespace."""

    _namespace: Namespace | None = None

    def live_namespace(self) -> Namespace:
        """Return the host's network namespace."""
        self._namespace = self._namespace or _ShellNamespace(self.pid)
        return self._namespace

    def program(
        self, command: Sequence[str], by: Sequence[str] = (), **options: Any
    ) -> subprocess.Popen[bytes]:
        """Start a program in the Mininet host's namespace; parameters as of `subprocess.Popen`."""
        with self.live_namespace():
            return subprocess.Popen([*by, *command], **options)


class _Bridge(LinuxBridge):
    """Mininet's LinuxBridge in the network namespace that all switches share."""

    def live_namespace(self) -> Namespace:
        """Return the network namespace of all switches."""
        return fabric()


class StockNet(Mininet):
    """A network of stock Mininet parts, with every cable shaped by Mininet's TCLink."""

    queue_bytes = None  # no limit in bytes: Mininet's queue holds 1000 packets of any size

    def __init__(self, spec: str, rate_mbit: float | None, mtu: int) -> None:
        allow_open_files()
        # Skip Mininet's initialization, which changes kernel settings of the whole machine.
        Mininet.inited = True
        self.shapes = CableShapes(self, CableShape(rate_mbit, None, None))
        self._mtu = mtu
        super().__init__(
            topo=emulated(parse(spec), link={"bw": rate_mbit}),
            host=_Host,
            switch=_Bridge,
            link=partial(TCLink, cls1=_Intf, cls2=_Intf),
            controller=None,
        )

    def start(self) -> None:
        """Start the Mininet network, and set the MTU of every interface."""
        super().start()
        for link in self.links:
            for intf in (link.intf1, link.intf2):
                intf.node.cmd(f"ip link set dev {intf.name} mtu {self._mtu}")


class StockFabric(LocalFabric):
    """Stock Mininet nodes and cables, for networks whose servers do not relay."""

    def new_net(self) -> Any:
        """Return the network of Mininet's own nodes and cables, not yet started."""
        settings = self.lab.settings
        return StockNet(self.lab.topology.spec, settings.rate_mbit, settings.mtu)


def run_trial(order: TrialOrder, connection: Any, folder: Path) -> TrialMeasurements:
    """Run one trial in a stock Mininet lab; return its measurements."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    trial = order.trial
    fabric = StockFabric()
    with Lab(order.topology, trial.system, folder, trial.seed, fabric=fabric) as lab:
        return trial_worker.measured_in(lab, order, connection.send)


if __name__ == "__main__":
    trial_worker.main(int(sys.argv[1]), int(sys.argv[2]), run_trial)
