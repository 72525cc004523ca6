"""A lab over several machines: its parts run there, and here is what leads them.

It is a `Lab` to all who ask: the same verbs, addresses and answers. Each machine has a part in a
sandbox of its own (`part`), with its servers, switches, forwarders and its halves of the cables
that leave it; which they are is arithmetic (`placement`). What has failed is known here alone.

What gives the machines is the ground: namespaces of this computer, or a cluster that is up. When a
machine is lost, its servers are dead, cables to it have no carrier, and the others go on. When this
process ends, however it does, all parts end: Dask lets go of what nobody leads any more.
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

from experiments.emulation import names
from experiments.emulation.crossing import PACKED, SINGLE, WHOLE
from experiments.emulation.faults import Faults
from experiments.emulation.forwarders import Forwarders
from experiments.emulation.lab import Lab
from experiments.emulation.meter import Meter
from experiments.emulation.network import LabNet, allow_open_files, end_programs_in
from experiments.emulation.routers import Routers, Switches
from experiments.emulation.shapes import Shape
from experiments.emulation.tracing import Tracer
from experiments.linux import cgroups
from experiments.machines import across
from experiments.machines.cables import AHEAD_S, FarMeter, FarShapes
from experiments.machines.capturing import captured
from experiments.machines.clock import Clocks
from experiments.machines.cluster import Cluster
from experiments.machines.computer import Computer, OneComputer
from experiments.machines.far import (
    Entrances,
    FarFaults,
    FarForwarders,
    FarNet,
    FarSwitches,
    FarTracer,
)
from experiments.machines.ground import Ground
from experiments.machines.joined import code
from experiments.machines.means import MeansOverMachines
from experiments.machines.placement import place
from experiments.machines.program import command_for
from hosts.base.failures import Failures
from hosts.live.settings import LabSettings
from topos.base.errors import PillarboxError, require
from topos.base.topology import Topology

SINGLE_PACKETS = (
    "super-packets pass between the machines neither whole nor packed by eBPF: servers send single "
    "packets, and what they carry without a rate is a fraction of what it could be"
)


class LabOverMachines(Lab):
    """A network whose servers are on several machines.

    Parameters
    ----------
    topology, settings, folder, seed
        As for a `Lab`.
    machines : int
        How many, each a namespace of this computer; without meaning where there is a ground.
    ground : Ground, optional
        What gives the machines.
    whole : bool
        Whether super-packets are to cross whole; else what is known of the machines' cards decides.
    weights : sequence of int, optional
        What each machine can carry beside the others; else as the ground has it.
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
        ground: Ground | None = None,
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
        self._dead_before: set[int] = set()  # servers, when their machine was lost
        self.came_back: set[int] = set()  # whose worker was away for a while
        self._cluster = Cluster(self.ground, self._on_news)
        parts = self.ground.parts_folder(folder, self._cluster.name)
        self._folders = [parts.with_name(f"{parts.name}{one}") for one in range(machines)]
        self._entrances = Entrances(topology, self._folders, self._machine_of, self.reach)
        self.clocks = Clocks(machines)
        self.means = MeansOverMachines(self, self)
        self._far = FarForwarders(self._cluster, self._machine_of, self.clocks)
        super().__init__(topology, settings, folder, seed)

    def _forwarders(self) -> Forwarders:
        return cast(Forwarders, self._far)

    def _switches(self) -> Switches | None:
        found = super()._switches()
        require(
            found is None or isinstance(found, Routers),
            "Open vSwitch works on one machine only: leave --plane ovs, or --machines, out",
        )
        return found and FarSwitches(found, self._tell_all)

    def _make_tracer(self) -> Tracer:
        ask, forwarders = self.ask_part, self.forwarders
        return FarTracer(self.topology, self.net, forwarders, self.dead, ask, self._tell_all)

    def _tell_all(self, **request: Any) -> dict[int, Any]:
        return self.ask_machines(self.to_living(request), least=1)

    def _net(self) -> LabNet:
        usual = Shape(self.settings.rate_mbit, self.settings.delay, self.settings.loss)
        return cast(LabNet, FarNet(self.topology, self._machine_of, self._entrances, usual, self))

    def _faults(self) -> Faults:
        return FarFaults(self.net, self._cluster, self.clocks, self._on_late)

    # -- up and down -----------------------------------------------------------------------------

    def start(self) -> None:
        """Make the machines, start their parts, and wait until every forwarder is ready."""
        allow_open_files()
        self._cluster.open(self.folder, self.settings.mtu)
        self.clocks.open(self.ground.lead)
        facts = self._facts(range(self.machines))
        crossing = self._crossing_of(facts)
        self._alike = self._order(min(one["processors"] for one in facts), crossing)
        self._start_parts(range(self.machines))
        cast(FarNet, self.net).queue_bytes = self.ask_part(0, ask="queue")
        names.make_known(self.topology)
        self.log("up", network=self.topology.spec, routing=self.routing, machines=self.machines)
        if crossing == SINGLE and self.relays:
            self._say(SINGLE_PACKETS)

    def _crossing_of(self, facts: list[dict[str, Any]]) -> str:
        """Return how super-packets cross, by what cards say, and by what was tried."""
        lossy = [one for one in facts if one["address"] in self.ground.lossy]
        if self._whole or (not lossy and all(one["cuts_tunnels"] for one in facts)):
            return WHOLE
        # What a card promises and does not do, it would not do with what is packed either.
        broken = any(one["cuts_tunnels"] for one in lossy)
        return SINGLE if broken or any(one["no_packing"] for one in facts) else PACKED

    def _start_parts(self, machines: Sequence[int]) -> None:
        """Start parts, and find how their machines' clocks are."""
        known = {"underlay": self.ground.addresses}
        own = {
            machine: {
                "machine": machine,
                "folder": str(self._folders[machine]),
                "clock": self.clocks.clocks[machine].place,
            }
            for machine in machines
        }
        self._cluster.start({one: {**self._alike, **known, **own[one]} for one in machines})
        ports = self.ask_machines({one: {"ask": "clock"} for one in machines})
        for machine, port in ports.items():
            self.clocks.clocks[machine].connect(self.ground.addresses[machine], port)
        self.clocks.measure()

    def _order(self, processors: int, crossing: str) -> dict[str, Any]:
        """Return what all parts are told alike."""
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
        """End everything."""
        self.log("down")
        end_programs_in(self._entrances.opened(range(self.topology.servers)))
        self._entrances.close()
        cgroups.remove()
        self.clocks.close()
        self._cluster.close()
        self._events.close()

    # -- servers and machines --------------------------------------------------------------------

    def namespace_of(self, server: int) -> int:
        """Return a server's network namespace, as an open file."""
        return self._entrances.of(server)

    def reach(self, server: int) -> list[str]:
        """Return the command that runs another on a server of another computer, else nothing."""
        if self.ground.is_here:
            return []
        machine = self._machine_of[server]
        at, folder = self._cluster.worker_at(machine), self._folders[machine]
        return command_for(at, self.ground.keys(), folder, self.name(server))

    def ask_part(self, server: int, **request: Any) -> Any:
        """Ask the part that has a server."""
        return self._cluster.ask(self._machine_of[server], server=server, **request)

    def kill(self, server: int) -> None:
        """Let a server die: its forwarder and every program on it."""
        with self._lock:
            require(server not in self.dead, f"server {self.name(server)} is dead already")
            self.dead.add(server)
            self.log("kill", time.monotonic() + AHEAD_S, server=self.name(server))
            self._far.kill(server)
            end_programs_in(self._entrances.opened([server]))

    def revive(self, server: int) -> None:
        """Start a dead server anew, on another machine with all that died with it where it has to.

        Those that had been dead before their machine was lost stay dead.
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
        """Start a lost machine's part on one that is not in use."""
        used = [self.ground.addresses[one] for one in self.living()]
        found = next(iter(self.ground.spares(used)), None)
        require(
            found is not None,
            f"machine {machine} is lost, and no other is there in its place: let a worker join "
            "the cluster, on a machine that this lab does not use",
        )
        assert found
        worker, address = found
        self._cluster.move(machine, worker)
        [facts] = self._facts([machine])
        require(
            facts["cuts_tunnels"] or self._alike["crossing"] != WHOLE,
            f"the card of {address} does not cut what is in tunnels, and this lab's servers send "
            "what has to be: start the lab anew",
        )
        self.ground.addresses[machine] = address
        old = self._folders[machine]
        self._folders[machine] = old.with_name(f"{old.name}-")  # nothing of the other is in it
        self.ask_machines(self.to_living({"ask": "moved", "machine": machine, "address": address}))
        self._start_parts([machine])
        self.lost.discard(machine)
        self.came_back.add(machine)
        servers = set(self._servers_of(machine))
        self.dead -= servers - self._dead_before
        for one in servers & self._dead_before:
            self._far.kill(one)
        self._dead_before -= servers
        cast(FarFaults, self.faults).regain(machine)
        cast(FarShapes, self.net.shapes).regain(machine)
        self._inform_switches()
        self.log("machine replaced", machine=machine, address=address)
        self._say(
            f"machine {machine} is {address} now: {len(servers - self.dead)} servers live again"
        )

    def _facts(self, machines: Sequence[int]) -> list[dict[str, Any]]:
        """Return what there is to know of machines that can take part."""
        facts = self._cluster.facts(machines)
        for machine, one in zip(machines, facts, strict=True):
            require(
                one["code"] == code() and one["root"],
                f"machine {machine} ({one['host']}) has another version of Pillarbox, or it is no "
                "root there: `cluster status` tells",
            )
        return facts

    def resize(self, servers: int) -> None:
        """Refuse: nodes would have to move from machine to machine."""
        raise PillarboxError(
            "a lab over several machines neither grows nor shrinks: start it in the other size"
        )

    def bytes_sent(self) -> dict[str, int]:
        """Return how many bytes each port of each server has sent."""
        found = self.ask_machines(self.to_living({"ask": "sent"}))
        return {port: sent for ports in found.values() for port, sent in ports.items()}

    def meter(self) -> Meter:
        """Return what counts what cables carry and servers receive, on all machines."""
        return cast(Meter, FarMeter(self.topology, self))

    def machine_of(self, node: int) -> int:
        """Return the machine of a server or switch."""
        return self._machine_of[node]

    def living(self) -> list[int]:
        """Return the machines that are not lost."""
        return [machine for machine in range(self.machines) if machine not in self.lost]

    def to_living(self, request: dict[str, Any]) -> dict[int, dict[str, Any]]:
        """Return the same request for each machine that is not lost."""
        return dict.fromkeys(self.living(), request)

    def ask_machines(
        self, requests: Mapping[int, dict[str, Any]], least: int | None = None
    ) -> dict[int, Any]:
        """Ask the parts of several machines at the same time; return their answers.

        One that does not answer is left out as long as at least so many do; usually all have to.
        """
        return self._cluster.ask_all(requests, least)

    def state(self, server: int) -> dict[str, Any]:
        """Return what a server knows and did, and when by the lab's clock."""
        state = super().state(server)
        for news in state.get("news", ()):
            news["at_s"] = self.clocks.here(self._machine_of[server], news["at_s"])
        return state

    def requests(self) -> dict[str, Callable[[dict[str, Any]], Any]]:
        """Return what can be asked of it at its socket, beside what can be asked of any lab."""
        return {"capture": partial(captured, self, self)}

    def about(self) -> dict[str, Any]:
        """Return what a manifest has to say of the machines."""
        return {
            "machines": self.machines,
            "servers": [len(self._servers_of(machine)) for machine in range(self.machines)],
            "cables": self.topology.cables,
            "crossing_cables": self._crossing(),
        }

    @property
    def computer(self) -> Computer:
        """The machines, where they are namespaces of this computer."""
        assert isinstance(self.ground, OneComputer) and self.ground.computer
        return self.ground.computer

    def worker(self, machine: int) -> int:
        """Return the process that is a machine of this computer, as far as the lab is concerned."""
        assert isinstance(self.ground, OneComputer)
        return self.ground.started(machine).process.pid

    # -- what has failed -------------------------------------------------------------------------

    def _failures(self, faults: list[Any], dead: set[int]) -> Failures:
        known = super()._failures(faults, dead)
        nodes = {node for node, at in enumerate(self._machine_of) if at in self.lost}
        return Failures(known.nodes | nodes, known.links)

    def status(self) -> dict[str, Any]:
        """Return how the lab is, and how its machines are."""
        machines = []
        for machine in range(self.machines):
            servers = self._servers_of(machine)
            state = "lost" if machine in self.lost else "up"
            at = {} if self.ground.is_here else {"address": self.ground.addresses[machine]}
            machines.append({"machine": machine, **at, "servers": len(servers), "state": state})
        return {**super().status(), "machines": machines, "crossing_cables": self._crossing()}

    def _servers_of(self, machine: int) -> list[int]:
        return [s for s in range(self.topology.servers) if self._machine_of[s] == machine]

    def about_machines(self) -> str:
        """Return over how many machines it is, in a few words."""
        cables = f"{self._crossing()} of {self.topology.cables} cables cross"
        return f"; {self.machines} machines, {cables}"

    def _crossing(self) -> int:
        return int(self._placed.crossing.sum())

    def _on_news(self, machine: int, said: dict[str, Any]) -> None:
        """Take in what happened to a machine, or to a server there, by itself."""
        event, server = said.pop("event"), said.pop("server", None)
        if event == across.ACROSS:
            threading.Thread(
                target=self._run_across, args=[machine, server, said], daemon=True
            ).start()
        elif event == "lost":
            self._lose(machine)
        elif event == "back":
            self.came_back.add(machine)
            self.log("machine came back", machine=machine)
        elif server is not None and machine not in self.lost:
            self._far.words[server] = said.pop("why")
            self._on_forwarder_event(server, event, said)

    def _run_across(self, machine: int, server: str, said: dict[str, Any]) -> None:
        """Run a program on a server for one of another machine's, and tell there of its end."""
        end = across.run([*self.reach(self.server(server)), *said["words"]])
        with suppress(PillarboxError):  # that machine is lost
            self._cluster.ask(machine, ask="across ended", to=said["to"], **end)

    def _on_late(self, machine: int, late_s: float) -> None:
        self.log("late", machine=machine, late_s=round(late_s, 6))

    def _lose(self, machine: int) -> None:
        servers = self._servers_of(machine)
        with self._lock:
            self.lost.add(machine)
            self._dead_before |= self.dead & set(servers)
            self.dead.update(servers)
            self.log("machine lost", machine=machine, servers=[self.name(s) for s in servers])
            cast(FarFaults, self.faults).lose(machine)
            self._inform_switches()
            end_programs_in(self._entrances.opened(servers))
            self._entrances.close(servers)
        self._say(
            f"machine {machine} is lost: its {len(servers)} servers are dead, and cables to it "
            "have no carrier; the others go on"
        )
