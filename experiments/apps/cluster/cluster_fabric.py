"""The fabric of a lab over several machines: it leads the parts on the machines.

A `Lab` on this fabric has the same methods, addresses and answers as on one machine. Each machine
has a part in a sandbox of its own (`part`), with its servers, switches, forwarders and its halves
of the cables to other machines; which nodes these are is computed (`placement`). Only the lab's
process knows all failures.

The machines come from a provider (`ground`): namespaces of this computer, or a running cluster.
When a machine is lost, its servers are dead, cables to it have no carrier, and the other machines
keep running. When this process ends for any reason, all parts end: Dask releases the agents of a
client that is gone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pillarbox.experiments.apps.cluster import remote_programs
from pillarbox.experiments.apps.cluster.clock import Clocks
from pillarbox.experiments.apps.cluster.dask_cluster import Cluster
from pillarbox.experiments.apps.cluster.dask_process import source_hash
from pillarbox.experiments.apps.cluster.distributed_backend import DistributedTrialBackend
from pillarbox.experiments.apps.cluster.distributed_capture import capture_on_all_machines
from pillarbox.experiments.apps.cluster.half_cables import AHEAD_S, DistributedMeter
from pillarbox.experiments.apps.cluster.local_machines import OneComputer
from pillarbox.experiments.apps.cluster.machine_provider import MachineProvider
from pillarbox.experiments.apps.cluster.placement import place
from pillarbox.experiments.apps.cluster.remote_parts import (
    DistributedFaults,
    DistributedForwarders,
    DistributedNet,
    DistributedTracer,
    Entrances,
)
from pillarbox.experiments.apps.cluster.worker_program import command_for
from pillarbox.experiments.lab.emulation import server_names
from pillarbox.experiments.lab.emulation.lab_network import allow_open_files, end_programs_in
from pillarbox.experiments.lab.emulation.meter import MeterReading
from pillarbox.experiments.lab.emulation.routers import Routers
from pillarbox.experiments.lab.emulation.vxlan_cables import PACKED, SINGLE, WHOLE
from pillarbox.experiments.lab.linux import cgroups
from pillarbox.hosts.base.failures import Failures
from pillarbox.topos.base.addressing import NO_PORTS, EndPorts
from pillarbox.topos.base.errors import PillarboxError, UnsupportedError, require

if TYPE_CHECKING:
    from pillarbox.experiments.lab.emulation.lab import Lab

SINGLE_PACKETS = (
    "super-packets cannot pass between the machines, neither whole nor packed by eBPF: servers "
    "send single packets, and reach a fraction of the throughput on links without a rate"
)


class ClusterFabric:
    """The nodes and cables of a lab over several machines; see `Fabric` of `emulation.lab`.

    Parameters
    ----------
    machines : int
        Number of machines, as namespaces of this computer; ignored with `ground`.
    ground : MachineProvider, optional
        Provider of the machines (default: namespaces of this computer).
    whole : bool
        Whether super-packets cross whole (default: decided by the machines' cards).
    weights : sequence of int, optional
        Relative capacity of each machine (default: the provider's weights).
    """

    ahead_s = AHEAD_S

    lab: Lab
    net: DistributedNet
    faults: DistributedFaults
    forwarders: DistributedForwarders | None
    tracer: DistributedTracer
    trial_backend: DistributedTrialBackend

    def __init__(
        self,
        machines: int = 0,
        *,
        ground: MachineProvider | None = None,
        whole: bool = False,
        weights: Sequence[int] = (),
    ) -> None:
        require(
            bool(find_spec("distributed") and find_spec("cryptography")),
            "--machines needs Dask, and TLS for it: pip install 'dask[distributed]' cryptography",
        )
        self.ground = ground or OneComputer(machines)
        self.machines, self._whole = self.ground.machines, whole
        self._weights = tuple(weights) or self.ground.weights
        self.lost: set[int] = set()  # machines that no longer answer
        # servers that the user killed before their machine was lost
        self._dead_before: set[int] = set()
        self.came_back: set[int] = set()  # machines whose Dask worker disconnected and came back
        self._cluster = Cluster(self.ground, self._on_machine_event)
        self.clocks = Clocks(self.machines)

    def attach(self, lab: Lab) -> None:
        """Set the lab, and compute which machine emulates each node."""
        require(
            lab.switches is None or isinstance(lab.switches, Routers),
            "Open vSwitch works in labs on one machine only: omit --plane ovs or --machines",
            UnsupportedError,
        )
        self.lab = lab
        self._placed = place(lab.topology, self.machines, self._weights)
        self._machine_of: list[int] = self._placed.machine_of.tolist()
        parts = self.ground.parts_folder(lab.folder, self._cluster.name)
        self.folders = [parts.with_name(f"{parts.name}{one}") for one in range(self.machines)]
        self._entrances = Entrances(self)
        self._servers = DistributedForwarders(self)
        self.forwarders = self._servers if lab.relays else None
        self.net = DistributedNet(self, self._entrances)
        self.faults = DistributedFaults(self)
        self.tracer = DistributedTracer(self)
        self.trial_backend = DistributedTrialBackend(self)
        self._meter = DistributedMeter(self)

    # -- start and stop ----------------------------------------------------------------------------

    def start(self) -> None:
        """Connect to the machines, start the lab's parts, and wait for all forwarders."""
        allow_open_files()
        self._cluster.open(self.lab.folder, self.lab.settings.mtu)
        self.clocks.open(self.ground.lead)
        facts = self._checked_facts(range(self.machines))
        crossing = self._crossing_of(facts)
        self._common_order = self._common_start_parameters(
            min(one["processors"] for one in facts), crossing
        )
        self._start_parts(range(self.machines))
        self.net.queue_bytes = self._cluster.ask(0, ask="queue")
        server_names.make_known(self.lab.topology, port_addresses=self.lab.settings.port_addresses)
        if crossing == SINGLE and self.lab.relays:
            self.lab.print_event(SINGLE_PACKETS)

    def _crossing_of(self, facts: list[dict[str, Any]]) -> str:
        """Return the mode in which tunnels carry super-packets: whole, packed or single."""
        lossy = [one for one in facts if one["address"] in self.ground.lossy]
        if self._whole or (not lossy and all(one["cuts_tunnels"] for one in facts)):
            return WHOLE
        # A network card that fails in its tunnel segmentation would fail on packed packets as
        # well.
        broken = any(one["cuts_tunnels"] for one in lossy)
        return SINGLE if broken or any(one["no_packing"] for one in facts) else PACKED

    def _start_parts(self, machines: Sequence[int]) -> None:
        """Start the lab's parts on machines, and measure the offsets of the machines' clocks."""
        known = {"underlay": self.ground.addresses}
        own = {
            machine: {
                "machine": machine,
                "folder": str(self.folders[machine]),
                "clock": self.clocks.clocks[machine].place,
            }
            for machine in machines
        }
        self._cluster.start({one: {**self._common_order, **known, **own[one]} for one in machines})
        ports = self.ask_machines({one: {"ask": "clock"} for one in machines})
        for machine, port in ports.items():
            self.clocks.clocks[machine].connect(self.ground.addresses[machine], port)
        self.ask_machines({one: {"ask": "all started"} for one in machines})
        self.clocks.measure()

    def _common_start_parameters(self, processors: int, crossing: str) -> dict[str, Any]:
        """Return the start parameters of the lab's parts that are equal on all machines."""
        lab = self.lab
        settings = lab.settings.plain() | {"routing": lab.routing}
        settings |= {"plane": lab.plane} if lab.relays else {}
        own_router = Path(lab.routing).read_text() if lab.routing.endswith(".py") else None
        return {
            "lab": self._cluster.name,
            "network": lab.topology.spec,
            "weights": self._weights,
            "settings": settings,
            "router": own_router,
            "seed": lab.seed,
            "crossing": crossing,
            "processors": processors,
            "remove": not self.ground.is_here,
        }

    def stop(self) -> None:
        """End the lab's programs and parts on all machines, and disconnect from the machines."""
        end_programs_in(self._entrances.opened(range(self.lab.topology.servers)))
        self._entrances.close()
        cgroups.remove()
        self.clocks.close()
        self._cluster.close()

    # -- servers and machines --------------------------------------------------------------------

    def reach(self, server: int) -> list[str]:
        """Return the command that runs a program on another computer's server, empty if local."""
        if self.ground.is_here:
            return []
        machine = self._machine_of[server]
        at, folder = self._cluster.worker_at(machine), self.folders[machine]
        return command_for(at, self.ground.keys(), folder, self.lab.name(server))

    def ask_part(self, server: int, **request: Any) -> Any:
        """Send a request to the part of the lab that runs a server; return the answer."""
        return self._cluster.ask(self._machine_of[server], server=server, **request)

    def kill(self, server: int) -> None:
        """Kill a server's forwarder and every program on it."""
        self._act_simultaneously(server, "kill")
        end_programs_in(self._entrances.opened([server]))

    def revive(self, server: int) -> None:
        """Restart a dead server; replace its machine by an unused machine if the machine is lost.

        Servers that were dead before their machine was lost stay dead.
        """
        if self._machine_of[server] in self.lost:
            self._start_elsewhere(self._machine_of[server])
        if server in self.lab.dead:
            self._act_simultaneously(server, "revive")

    def _act_simultaneously(self, server: int, deed: str) -> None:
        """Have a server's machine kill or revive the server at an agreed time."""
        at_s = self.clocks.machine_time_s(self._machine_of[server], time.monotonic() + AHEAD_S)
        self.ask_part(server, ask=deed, at_s=at_s)

    def _start_elsewhere(self, machine: int) -> None:
        """Restart the servers of a lost machine on an unused machine."""
        used = [self.ground.addresses[one] for one in self.living_machines()]
        found = next(iter(self.ground.unused_machines(used)), None)
        require(
            found is not None,
            f"machine {machine} is lost, and no unused machine can replace it: let a worker join "
            "the cluster, on a machine that this lab does not use",
        )
        assert found
        worker, address = found
        self._cluster.move(machine, worker)
        [facts] = self._checked_facts([machine])
        require(
            facts["cuts_tunnels"] or self._common_order["crossing"] != WHOLE,
            f"the card of {address} cannot segment tunneled super-packets, which this lab's "
            "servers send: start the lab again",
        )
        self.ground.addresses[machine] = address
        old = self.folders[machine]
        # a new folder on the machine, without files of the lost part
        self.folders[machine] = old.with_name(f"{old.name}-")
        self.ask_living_machines(ask="moved", machine=machine, address=address)
        self._start_parts([machine])
        self.lost.discard(machine)
        self._update_lost_nodes()
        self.came_back.add(machine)
        servers = set(self._servers_of(machine))
        self.lab.dead -= servers - self._dead_before
        for one in servers & self._dead_before:
            self._act_simultaneously(one, "kill")
        self._dead_before -= servers
        self.faults.regain(machine)
        self.net.shapes.regain(machine)
        self.lab.inform_switches()
        self.lab.log("machine replaced", machine=machine, address=address)
        living = len(servers - self.lab.dead)
        self.lab.print_event(f"machine {machine} is {address} now: {living} servers live again")

    def _checked_facts(self, machines: Sequence[int]) -> list[dict[str, Any]]:
        """Return hardware, kernel and version of machines; raise an error if one is unsuitable."""
        facts = self._cluster.facts(machines)
        for machine, one in zip(machines, facts, strict=True):
            require(
                one["code"] == source_hash() and one["root"],
                f"machine {machine} ({one['host']}) has another version of Pillarbox, or "
                "Pillarbox is not root on it: see `cluster status`",
            )
        return facts

    def resize(self, servers: int) -> None:
        """Raise PillarboxError: nodes would have to move between machines."""
        raise UnsupportedError(
            "a lab over several machines cannot be resized: start it anew in the other size"
        )

    def bytes_sent(self) -> dict[str, int]:
        """Return the bytes that each port of each server has sent."""
        found = self.ask_living_machines(ask="sent")
        return {port: sent for ports in found.values() for port, sent in ports.items()}

    def counters(self) -> MeterReading:
        """Return the byte counters of all cables and servers, on all machines."""
        return self._meter.read()

    def set_failures(self, failures: Failures) -> None:
        """Report failures of nodes and links to the routing switches on all machines."""
        if self.lab.switches:
            nodes, links = sorted(failures.nodes), sorted(map(sorted, failures.links))
            self.ask_living_machines(least=1, ask="inform", nodes=nodes, links=links)

    def echoes(
        self,
        source: int,
        destinations: Sequence[int],
        wait_s: float,
        ports: EndPorts = NO_PORTS,
    ) -> dict[int, float | None]:
        """Ping each destination once from the source's machine; return RTTs in ms."""
        there = list(destinations)
        found = self.ask_part(source, ask="echo", destinations=there, wait_s=wait_s, ports=ports)
        return dict(zip(there, found, strict=True))

    def machine_of(self, node: int) -> int:
        """Return the number of the machine that emulates a server or switch."""
        return self._machine_of[node]

    def living_machines(self) -> list[int]:
        """Return the numbers of all machines that are not lost."""
        return [machine for machine in range(self.machines) if machine not in self.lost]

    def ask_machines(
        self, requests: Mapping[int, dict[str, Any]], least: int | None = None
    ) -> dict[int, Any]:
        """Send requests to several machines' parts in parallel; return the answers by machine.

        A machine without an answer is left out if `least` others answer (default: all must answer).
        """
        return self._cluster.ask_all(requests, least)

    def ask_living_machines(self, *, least: int | None = None, **request: Any) -> dict[int, Any]:
        """Send a request to all machines that are not lost; see `ask_machines`."""
        return self.ask_machines(dict.fromkeys(self.living_machines(), request), least)

    def requests(self) -> dict[str, Callable[[dict[str, Any]], Any]]:
        """Return the handlers of requests that only a lab over machines has."""
        return {"capture": partial(capture_on_all_machines, self)}

    def about(self) -> dict[str, Any]:
        """Return the machines' entry in the manifest of a run, which describes their hardware."""
        return {
            "machines": self.machines,
            "servers": [len(self._servers_of(machine)) for machine in range(self.machines)],
            "cables": self.lab.topology.cables,
            "crossing_cables": self._crossing(),
        }

    # -- failures and events -----------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """Return the lab's machines, and the number of cables between them."""
        machines = []
        for machine in range(self.machines):
            servers = self._servers_of(machine)
            state = "lost" if machine in self.lost else "up"
            at = {} if self.ground.is_here else {"address": self.ground.addresses[machine]}
            machines.append({"machine": machine, **at, "servers": len(servers), "state": state})
        return {"machines": machines, "crossing_cables": self._crossing()}

    def _servers_of(self, machine: int) -> list[int]:
        return [s for s in range(self.lab.topology.servers) if self._machine_of[s] == machine]

    def summary(self) -> str:
        """Return a phrase with the numbers of machines and of cables between machines."""
        cables = f"{self._crossing()} of {self.lab.topology.cables} cables cross"
        return f"{self.machines} machines, {cables}"

    def _crossing(self) -> int:
        return int(self._placed.crossing.sum())

    def _on_machine_event(self, machine: int, said: dict[str, Any]) -> None:
        """Handle an event that another machine reports: its loss, or an event of a server."""
        event, server = said.pop("event"), said.pop("server", None)
        if event == remote_programs.ACROSS:
            threading.Thread(
                target=self._run_requested_program, args=[machine, server, said], daemon=True
            ).start()
        elif event == "lost":
            self._on_machine_lost(machine)
        elif event == "back":
            self.came_back.add(machine)
            self.lab.log("machine came back", machine=machine)
        elif server is not None and machine not in self.lost:
            self._servers.words[server] = said.pop("why")
            self.lab.on_forwarder_event(server, event, said)

    def _run_requested_program(self, machine: int, server: str, said: dict[str, Any]) -> None:
        """Run a program that another machine's server requested; report its exit code there."""
        end = remote_programs.run([*self.reach(self.lab.server(server)), *said["words"]])
        with suppress(PillarboxError):  # the machine that requested the program is lost
            self._cluster.ask(machine, ask="across ended", to=said["to"], **end)

    def _on_machine_lost(self, machine: int) -> None:
        lab, servers = self.lab, self._servers_of(machine)
        with lab.lock:
            self.lost.add(machine)
            self._dead_before |= lab.dead & set(servers)
            lab.dead.update(servers)
            self._update_lost_nodes()
            lab.log("machine lost", machine=machine, servers=[lab.name(s) for s in servers])
            self.faults.lose(machine)
            lab.inform_switches()
            end_programs_in(self._entrances.opened(servers))
            self._entrances.close(servers)
        lab.print_event(
            f"machine {machine} is lost: its {len(servers)} servers are dead, and cables to it "
            "have no carrier; the others go on"
        )

    def _update_lost_nodes(self) -> None:
        self.lab.lost_nodes = {node for node, at in enumerate(self._machine_of) if at in self.lost}
