"""A lab over several machines: its parts run there, and here is what leads them.

It is a `Lab` to all who ask: the same verbs, addresses and answers. Each machine has a part in a
sandbox of its own (`part`), with its servers, switches, forwarders and its halves of the cables
that leave it; which they are is arithmetic (`placement`). What has failed is known here alone.

When a machine is lost, its servers are dead, cables to it have no carrier, and the others go on.
When this process ends, however it does, the machines of one computer go with its sandbox.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from experiments.emulation import names
from experiments.emulation.faults import Faults
from experiments.emulation.forwarders import Forwarders
from experiments.emulation.lab import Lab
from experiments.emulation.network import LabNet, allow_open_files, end_programs_in
from experiments.machines.cluster import Cluster
from experiments.machines.computer import Computer
from experiments.machines.far import Entrances, FarFaults, FarForwarders, FarNet
from experiments.machines.placement import place
from hosts.base.failures import Failures
from hosts.live.settings import LabSettings
from topos.base.errors import PillarboxError, require
from topos.base.topology import Topology

SINGLE_PACKETS = (
    "the machines' cards do not cut what is in tunnels: servers send single packets, and what they "
    "carry without a rate is a fraction of what it could be"
)


class LabOverMachines(Lab):
    """A network whose servers are on several machines, each a namespace of this computer.

    Parameters
    ----------
    topology, settings, folder, seed
        As for a `Lab`.
    machines : int
        How many.
    """

    whole = False

    def __init__(
        self,
        topology: Topology,
        settings: LabSettings,
        folder: Path,
        machines: int,
        seed: int = 0,
    ) -> None:
        require(
            topology.ports > 1,
            f"the servers of {topology.spec} do not relay, and only networks whose servers do run "
            "over several machines: dpillar, dcell, bcube, ficonn",
        )
        self._placed = place(topology, machines)
        self._machine_of: list[int] = self._placed.machine_of.tolist()
        self.lost: set[int] = set()
        self._cluster = Cluster(folder, self._on_news)
        self._folders = [folder / f"machine{machine}" for machine in range(machines)]
        self._entrances = Entrances(topology, self._folders, self._machine_of)
        self._computer: Computer | None = None
        super().__init__(topology, settings, folder, seed)

    def _forwarders(self) -> Forwarders:
        return cast(Forwarders, FarForwarders(self._cluster, self._machine_of))

    def _net(self) -> LabNet:
        return cast(LabNet, FarNet(self.topology, self._machine_of, self._entrances))

    def _faults(self) -> Faults:
        return FarFaults(self.net, self._cluster)

    # -- up and down -----------------------------------------------------------------------------

    def start(self) -> None:
        """Make the machines, start their parts, and wait until every forwarder is ready."""
        allow_open_files()
        self._computer = Computer(self._placed.machines, self.settings.mtu)
        whole = self._computer.cut_tunnels()
        settings = self.settings.plain() | {"routing": self.routing, "plane": self.plane}
        orders = [
            {
                "network": self.topology.spec,
                "underlay": self._computer.addresses,
                "machine": machine,
                "settings": settings,
                "seed": self.seed,
                "folder": str(folder),
                "whole": whole,
            }
            for machine, folder in enumerate(self._folders)
        ]
        self._cluster.start(self._computer, orders)
        names.make_known(self.topology)
        self.log("up", network=self.topology.spec, routing=self.routing, machines=len(orders))
        if not whole:
            self._say(SINGLE_PACKETS)

    def stop(self) -> None:
        """End everything."""
        self.log("down")
        self._cluster.close()
        end_programs_in(self._entrances.opened(range(self.topology.servers)))
        self._entrances.close()
        if self._computer:
            self._computer.close()
        self._events.close()

    # -- servers and machines --------------------------------------------------------------------

    def namespace_of(self, server: int) -> int:
        """Return a server's network namespace, as an open file."""
        return self._entrances.of(server)

    def kill(self, server: int) -> None:
        """Let a server die: its forwarder and every program on it."""
        with self._lock:
            require(server not in self.dead, f"server {self.name(server)} is dead already")
            self.dead.add(server)
            self.log("kill", server=self.name(server))
            assert self.forwarders
            self.forwarders.kill(server)
            end_programs_in(self._entrances.opened([server]))

    def revive(self, server: int) -> None:
        """Start a dead server anew."""
        machine = self._machine_of[server]
        require(
            machine not in self.lost,
            f"machine {machine} is lost, and {self.name(server)} with it: start the lab anew",
        )
        super().revive(server)

    def resize(self, servers: int) -> None:
        """Refuse: nodes would have to move from machine to machine."""
        raise PillarboxError(
            "a lab over several machines neither grows nor shrinks: start it in the other size"
        )

    def bytes_sent(self) -> dict[str, int]:
        """Return how many bytes each port of each server has sent."""
        living = [m for m in range(self._placed.machines) if m not in self.lost]
        found = self._cluster.ask_all({machine: {"ask": "sent"} for machine in living})
        return {port: sent for ports in found.values() for port, sent in ports.items()}

    def machine_of(self, node: int) -> int:
        """Return the machine of a server or switch."""
        return self._machine_of[node]

    def worker(self, machine: int) -> int:
        """Return the process that is a machine, as far as the lab is concerned."""
        return self._cluster.pid(machine)

    # -- what has failed -------------------------------------------------------------------------

    def _failures(self, faults: list[Any], dead: set[int]) -> Failures:
        known = super()._failures(faults, dead)
        nodes = {node for node, at in enumerate(self._machine_of) if at in self.lost}
        return Failures(known.nodes | nodes, known.links)

    def status(self) -> dict[str, Any]:
        """Return how the lab is, and how its machines are."""
        machines = []
        for machine in range(self._placed.machines):
            servers = [s for s in range(self.topology.servers) if self._machine_of[s] == machine]
            state = "lost" if machine in self.lost else "up"
            machines.append({"machine": machine, "servers": len(servers), "state": state})
        return {**super().status(), "machines": machines, "crossing_cables": self._crossing()}

    def about_machines(self) -> str:
        """Return over how many machines it is, in a few words."""
        cables = f"{self._crossing()} of {self.topology.cables} cables cross"
        return f"; {self._placed.machines} machines, {cables}"

    def _crossing(self) -> int:
        return int(self._placed.crossing.sum())

    def _on_news(self, machine: int, said: dict[str, Any]) -> None:
        """Take in what happened to a machine, or to a server there, by itself."""
        event, server = said.pop("event"), said.pop("server", None)
        if event == "lost":
            self._lose(machine)
        elif server is not None and machine not in self.lost:
            cast(FarForwarders, self.forwarders).words[server] = said.pop("why")
            self._on_forwarder_event(server, event, said)

    def _lose(self, machine: int) -> None:
        servers = [s for s in range(self.topology.servers) if self._machine_of[s] == machine]
        with self._lock:
            self.lost.add(machine)
            self.dead.update(servers)
            self.log("machine lost", machine=machine, servers=[self.name(s) for s in servers])
            cast(FarFaults, self.faults).lose(machine)
            end_programs_in(self._entrances.opened(servers))
            self._entrances.close(servers)
        self._say(
            f"machine {machine} is lost: its {len(servers)} servers are dead, and cables to it "
            "have no carrier; the others go on"
        )
