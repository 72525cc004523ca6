"""A lab over several machines: the process that leads the parts on the machines.

This `Lab` has the same methods, addresses and answers as a lab on one machine. Each machine has a
part in a sandbox of its own (`part`), with its servers, switches, forwarders and its halves of the
cables to other machines; which nodes these are is computed (`placement`). Only this process knows
all failures.

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
from typing import Any, cast

from experiments.apps.cluster import remote_programs
from experiments.apps.cluster.clock import Clocks
from experiments.apps.cluster.dask_cluster import Cluster
from experiments.apps.cluster.dask_process import source_hash
from experiments.apps.cluster.distributed_backend import DistributedTrialBackend
from experiments.apps.cluster.distributed_capture import capture_on_all_machines
from experiments.apps.cluster.half_cables import AHEAD_S, DistributedMeter, RemoteCableShapes
from experiments.apps.cluster.local_machines import EmulatedMachines, OneComputer
from experiments.apps.cluster.machine_provider import MachineProvider
from experiments.apps.cluster.placement import place
from experiments.apps.cluster.remote_parts import (
    DistributedFaults,
    DistributedForwarders,
    DistributedNet,
    DistributedSwitches,
    DistributedTracer,
    Entrances,
)
from experiments.apps.cluster.worker_program import command_for
from experiments.lab.emulation import server_names
from experiments.lab.emulation.active_faults import Faults
from experiments.lab.emulation.cable_shapes import CableShape
from experiments.lab.emulation.forwarders import Forwarders
from experiments.lab.emulation.lab import Lab
from experiments.lab.emulation.lab_network import LabNet, allow_open_files, end_programs_in
from experiments.lab.emulation.meter import Meter
from experiments.lab.emulation.packet_tracing import PacketTracer
from experiments.lab.emulation.routers import Routers, Switches
from experiments.lab.emulation.vxlan_cables import PACKED, SINGLE, WHOLE
from experiments.lab.linux import cgroups
from hosts.base.failures import Failures
from hosts.live.settings import LabSettings
from topos.base.errors import PillarboxError, UnsupportedError, require
from topos.base.topology import Topology

SINGLE_PACKETS = (
    "super-packets cannot pass between the machines, neither whole nor packed by eBPF: servers "
    "send single packets, and reach a fraction of the throughput on links without a rate"
)


class LabOverMachines(Lab):
    """A lab whose servers are on several machines.

    Parameters
    ----------
    topology, settings, folder, seed
        As for `Lab`.
    machines : int
        Number of machines, as namespaces of this computer; ignored with `ground`.
    ground : MachineProvider, optional
        Provider of the machines (default: namespaces of this computer).
    whole : bool
        Whether super-packets cross whole (default: decided by the machines' cards).
    weights : sequence of int, optional
        Relative capacity of each machine (default: the provider's weights).
    """

    whole = False
    ahead_s = AHEAD_S

    def __init__(
        self,
        topology: Topology,
        settings: LabSettings,
        folder: Path,
        machines: int,
        seed: int = 0,
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
        machines, self._whole = self.ground.machines, whole
        weights = tuple(weights) or self.ground.weights
        self._placed, self._weights = place(topology, machines, weights), weights
        self._machine_of: list[int] = self._placed.machine_of.tolist()
        self.machines = machines
        self.lost: set[int] = set()
        self._dead_before: set[int] = (
            set()
        )  # servers that the user killed before their machine was lost
        self.came_back: set[int] = set()  # machines whose Dask worker disconnected and came back
        self._cluster = Cluster(self.ground, self._on_machine_event)
        parts = self.ground.parts_folder(folder, self._cluster.name)
        self._folders = [parts.with_name(f"{parts.name}{one}") for one in range(machines)]
        self._entrances = Entrances(topology, self._folders, self._machine_of, self.reach)
        self.clocks = Clocks(machines)
        self.means = DistributedTrialBackend(self, self)
        self._far = DistributedForwarders(self._cluster, self._machine_of, self.clocks)
        super().__init__(topology, settings, folder, seed)

    def _forwarders(self) -> Forwarders:
        return cast(Forwarders, self._far)

    def _switches(self) -> Switches | None:
        found = super()._switches()
        require(
            found is None or isinstance(found, Routers),
            "Open vSwitch works in labs on one machine only: omit --plane ovs or --machines",
            UnsupportedError,
        )
        return found and DistributedSwitches(found, self._ask_all)

    def _make_tracer(self) -> PacketTracer:
        ask, forwarders = self.ask_part, self.forwarders
        return DistributedTracer(self.topology, self.net, forwarders, self.dead, ask, self._ask_all)

    def _ask_all(self, **request: Any) -> dict[int, Any]:
        return self.ask_machines(self.request_for_living_machines(request), least=1)

    def _net(self) -> LabNet:
        usual = CableShape(self.settings.rate_mbit, self.settings.delay, self.settings.loss)
        return cast(
            LabNet, DistributedNet(self.topology, self._machine_of, self._entrances, usual, self)
        )

    def _faults(self) -> Faults:
        return DistributedFaults(self.net, self._cluster, self.clocks, self._on_late)

    # -- start and stop ----------------------------------------------------------------------------

    def start(self) -> None:
        """Connect to the machines, start the lab's parts, and wait for all forwarders."""
        allow_open_files()
        self._cluster.open(self.folder, self.settings.mtu)
        self.clocks.open(self.ground.lead)
        facts = self._checked_facts(range(self.machines))
        crossing = self._crossing_of(facts)
        self._common_order = self._common_start_parameters(
            min(one["processors"] for one in facts), crossing
        )
        self._start_parts(range(self.machines))
        cast(DistributedNet, self.net).queue_bytes = self.ask_part(0, ask="queue")
        server_names.make_known(self.topology)
        self.log("up", network=self.topology.spec, routing=self.routing, machines=self.machines)
        if crossing == SINGLE and self.relays:
            self._print_event(SINGLE_PACKETS)

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
                "folder": str(self._folders[machine]),
                "clock": self.clocks.clocks[machine].place,
            }
            for machine in machines
        }
        self._cluster.start({one: {**self._common_order, **known, **own[one]} for one in machines})
        ports = self.ask_machines({one: {"ask": "clock"} for one in machines})
        for machine, port in ports.items():
            self.clocks.clocks[machine].connect(self.ground.addresses[machine], port)
        self.clocks.measure()

    def _common_start_parameters(self, processors: int, crossing: str) -> dict[str, Any]:
        """Return the start parameters of the lab's parts that are equal on all machines."""
        settings = self.settings.plain() | {"routing": self.routing}
        settings |= {"plane": self.plane} if self.relays else {}
        own_router = Path(self.routing).read_text() if self.routing.endswith(".py") else None
        return {
            "lab": self._cluster.name,
            "network": self.topology.spec,
            "weights": self._weights,
            "settings": settings,
            "router": own_router,
            "seed": self.seed,
            "crossing": crossing,
            "processors": processors,
            "remove": not self.ground.is_here,
        }

    def stop(self) -> None:
        """End the lab's programs and parts on all machines, and disconnect from the machines."""
        self.log("down")
        self.faults.close()
        end_programs_in(self._entrances.opened(range(self.topology.servers)))
        self._entrances.close()
        cgroups.remove()
        self.clocks.close()
        self._cluster.close()
        self._events.close()

    # -- servers and machines --------------------------------------------------------------------

    def namespace_of(self, server: int) -> int:
        """Return the file descriptor of a server's network namespace."""
        return self._entrances.of(server)

    def reach(self, server: int) -> list[str]:
        """Return the command that runs a program on another computer's server, empty if local."""
        if self.ground.is_here:
            return []
        machine = self._machine_of[server]
        at, folder = self._cluster.worker_at(machine), self._folders[machine]
        return command_for(at, self.ground.keys(), folder, self.name(server))

    def ask_part(self, server: int, **request: Any) -> Any:
        """Send a request to the part of the lab that runs a server; return the answer."""
        return self._cluster.ask(self._machine_of[server], server=server, **request)

    def kill(self, server: int) -> None:
        """Kill a server: its forwarder and every program on it."""
        with self._lock:
            require(server not in self.dead, f"server {self.name(server)} is dead already")
            self.dead.add(server)
            self.log("kill", time.monotonic() + AHEAD_S, server=self.name(server))
            self._far.kill(server)
            end_programs_in(self._entrances.opened([server]))

    def revive(self, server: int) -> None:
        """Restart a dead server; replace its machine by an unused machine if the machine is lost.

        Servers that were dead before their machine was lost stay dead.
        """
        with self._lock:
            require(server in self.dead, f"server {self.name(server)} is alive")
            if self._machine_of[server] in self.lost:
                self._start_elsewhere(self._machine_of[server])
            if server not in self.dead:
                return
            self._far.start([server])
            self.dead.remove(server)
            self.log("revive", server=self.name(server))

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
        old = self._folders[machine]
        # a new folder on the machine, without files of the lost part
        self._folders[machine] = old.with_name(f"{old.name}-")
        self.ask_machines(
            self.request_for_living_machines(
                {"ask": "moved", "machine": machine, "address": address}
            )
        )
        self._start_parts([machine])
        self.lost.discard(machine)
        self.came_back.add(machine)
        servers = set(self._servers_of(machine))
        self.dead -= servers - self._dead_before
        for one in servers & self._dead_before:
            self._far.kill(one)
        self._dead_before -= servers
        cast(DistributedFaults, self.faults).regain(machine)
        cast(RemoteCableShapes, self.net.shapes).regain(machine)
        self._inform_switches()
        self.log("machine replaced", machine=machine, address=address)
        self._print_event(
            f"machine {machine} is {address} now: {len(servers - self.dead)} servers live again"
        )

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
        found = self.ask_machines(self.request_for_living_machines({"ask": "sent"}))
        return {port: sent for ports in found.values() for port, sent in ports.items()}

    def meter(self) -> Meter:
        """Return a meter of all cables and servers, on all machines."""
        return cast(Meter, DistributedMeter(self.topology, self))

    def machine_of(self, node: int) -> int:
        """Return the number of the machine that emulates a server or switch."""
        return self._machine_of[node]

    def living_machines(self) -> list[int]:
        """Return the numbers of all machines that are not lost."""
        return [machine for machine in range(self.machines) if machine not in self.lost]

    def request_for_living_machines(self, request: dict[str, Any]) -> dict[int, dict[str, Any]]:
        """Return the same request for every machine that is not lost, by machine number."""
        return dict.fromkeys(self.living_machines(), request)

    def ask_machines(
        self, requests: Mapping[int, dict[str, Any]], least: int | None = None
    ) -> dict[int, Any]:
        """Send requests to several machines' parts in parallel; return the answers by machine.

        A machine without an answer is left out if `least` others answer (default: all must answer).
        """
        return self._cluster.ask_all(requests, least)

    def state(self, server: int) -> dict[str, Any]:
        """Return a server's routing state and counters, with times in the lab's clock."""
        state = super().state(server)
        for news in state.get("news", ()):
            news["at_s"] = self.clocks.lab_time_s(self._machine_of[server], news["at_s"])
        return state

    def requests(self) -> dict[str, Callable[[dict[str, Any]], Any]]:
        """Return the handlers of requests that only a lab over machines has."""
        return {"capture": partial(capture_on_all_machines, self, self)}

    def about(self) -> dict[str, Any]:
        """Return the machines' entry in the manifest of a run, which describes their hardware."""
        return {
            "machines": self.machines,
            "servers": [len(self._servers_of(machine)) for machine in range(self.machines)],
            "cables": self.topology.cables,
            "crossing_cables": self._crossing(),
        }

    @property
    def computer(self) -> EmulatedMachines:
        """The emulated machines of a lab on one computer, each a network namespace."""
        assert isinstance(self.ground, OneComputer) and self.ground.computer
        return self.ground.computer

    def worker(self, machine: int) -> int:
        """Return the process ID of an emulated machine's Dask worker on this computer."""
        assert isinstance(self.ground, OneComputer)
        return self.ground.started(machine).process.pid

    # -- failures and events -----------------------------------------------------------------------

    def _failures(self, faults: list[Any], dead: set[int]) -> Failures:
        known = super()._failures(faults, dead)
        nodes = {node for node, at in enumerate(self._machine_of) if at in self.lost}
        return Failures(known.nodes | nodes, known.links)

    def status(self) -> dict[str, Any]:
        """Return the lab's status, including its machines."""
        machines = []
        for machine in range(self.machines):
            servers = self._servers_of(machine)
            state = "lost" if machine in self.lost else "up"
            at = {} if self.ground.is_here else {"address": self.ground.addresses[machine]}
            machines.append({"machine": machine, **at, "servers": len(servers), "state": state})
        return {**super().status(), "machines": machines, "crossing_cables": self._crossing()}

    def _servers_of(self, machine: int) -> list[int]:
        return [s for s in range(self.topology.servers) if self._machine_of[s] == machine]

    def machine_count_phrase(self) -> str:
        """Return a phrase with the numbers of machines and of cables between machines."""
        cables = f"{self._crossing()} of {self.topology.cables} cables cross"
        return f"; {self.machines} machines, {cables}"

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
            self.log("machine came back", machine=machine)
        elif server is not None and machine not in self.lost:
            self._far.words[server] = said.pop("why")
            self._on_forwarder_event(server, event, said)

    def _run_requested_program(self, machine: int, server: str, said: dict[str, Any]) -> None:
        """Run a program that another machine's server requested; report its exit code there."""
        end = remote_programs.run([*self.reach(self.server(server)), *said["words"]])
        with suppress(PillarboxError):  # the machine that requested the program is lost
            self._cluster.ask(machine, ask="across ended", to=said["to"], **end)

    def _on_late(self, machine: int, late_s: float) -> None:
        self.log("late", machine=machine, late_s=round(late_s, 6))

    def _on_machine_lost(self, machine: int) -> None:
        servers = self._servers_of(machine)
        with self._lock:
            self.lost.add(machine)
            self._dead_before |= self.dead & set(servers)
            self.dead.update(servers)
            self.log("machine lost", machine=machine, servers=[self.name(s) for s in servers])
            cast(DistributedFaults, self.faults).lose(machine)
            self._inform_switches()
            end_programs_in(self._entrances.opened(servers))
            self._entrances.close(servers)
        self._print_event(
            f"machine {machine} is lost: its {len(servers)} servers are dead, and cables to it "
            "have no carrier; the others go on"
        )
