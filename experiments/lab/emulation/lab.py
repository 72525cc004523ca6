"""A running lab: cables and bridges, a forwarder on every server, faults, and an event log.

>>> with running(topos.parse("bcube,4,1"), LabSettings(), folder) as lab:    # doctest: +SKIP
...     lab.net["h0"].cmd("ping -c 1", lab.net["h15"].IP())
...     lab.kill(3)
...     lab.trace(0, 15)

The lab's folder contains the forwarders' logs and control sockets, and ``events.jsonl``: one line
for every fault, repair and death, with its time by the monotonic clock.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from pillarbox.experiments.lab.emulation import convergence, switching
from pillarbox.experiments.lab.emulation.active_faults import ActiveFault, Faults
from pillarbox.experiments.lab.emulation.cable_shapes import rates_mbit_of_levels
from pillarbox.experiments.lab.emulation.defaults import usual_routing
from pillarbox.experiments.lab.emulation.drops import drops_by_reason
from pillarbox.experiments.lab.emulation.external_network import OUTSIDE, gateway_options
from pillarbox.experiments.lab.emulation.fabric import ForwarderQueries, Nodes
from pillarbox.experiments.lab.emulation.forwarders import NURSERY_ENDED
from pillarbox.experiments.lab.emulation.kits import application_file
from pillarbox.experiments.lab.emulation.meter import MeterReading
from pillarbox.experiments.lab.emulation.packet_tracing import PacketTracer, computed
from pillarbox.experiments.lab.emulation.server_names import check_port_addresses
from pillarbox.experiments.lab.emulation.setting_checks import check_settings
from pillarbox.hosts.base.failures import Failures, failure_texts
from pillarbox.hosts.base.fault_kinds import CARRIER_LOST, RACK, SERVER, fault_kind
from pillarbox.hosts.base.faults import Fault
from pillarbox.hosts.live.settings import LabSettings
from pillarbox.topos.base.addressing import NO_PORTS, End, EndPorts
from pillarbox.topos.base.errors import require
from pillarbox.topos.base.topology import Topology


class Fabric(Protocol):
    """The nodes and cables of one lab, and the actions on them; `attach` makes most attributes."""

    machines: int  # number of machines
    ahead_s: float  # lead time of a fault request before the fault takes effect, in seconds
    trial_backend: Any  # backend of trials (`pillarbox.experiments.runs.trials`); None: the default

    @property
    def net(self) -> Nodes:
        """All servers, switches and cables."""

    @property
    def faults(self) -> Faults:
        """Faults of cables, switches and racks."""

    @property
    def forwarders(self) -> ForwarderQueries | None:
        """Forwarders of the servers; None if servers do not relay."""

    @property
    def tracer(self) -> PacketTracer:
        """Tracer of marked packets."""

    def attach(self, lab: Lab) -> None:
        """Set the lab of this fabric, and prepare its nodes and cables."""

    def start(self) -> None:
        """Start all nodes, and wait until every forwarder is ready."""

    def stop(self) -> None:
        """End all programs, forwarders, nodes and cables."""

    def kill(self, server: int) -> None:
        """End a server's forwarder and all its programs."""

    def revive(self, server: int) -> None:
        """Restart a dead server, without its former programs."""

    def resize(self, servers: int) -> None:
        """Add or remove servers; raise PillarboxError if this is impossible."""

    def set_failures(self, failures: Failures) -> None:
        """Report failures that change a carrier to switches that route."""

    def reach(self, server: int) -> list[str]:
        """Return the command prefix that starts programs on a server of another computer."""

    def echoes(
        self,
        source: int,
        destinations: Sequence[int],
        wait_s: float,
        ports: EndPorts = NO_PORTS,
    ) -> dict[int, float | None]:
        """Ping each destination once; return RTTs in ms by destination, None after a timeout."""

    def bytes_sent(self) -> dict[str, int]:
        """Return the number of bytes sent by each port of each server, by interface name."""

    def counters(self) -> MeterReading:
        """Return the current byte counters of all cables and servers; thread-safe."""

    def status(self) -> dict[str, Any]:
        """Return the entries of the lab's status that only this kind of fabric has."""


class Lab:
    """A running emulated network with a forwarder per server; use it in a ``with`` statement.

    Parameters
    ----------
    topology : Topology
        The network.
    settings : LabSettings
        Settings of the lab.
    folder : Path
        Folder of the lab's files.
    seed : int
        Seed of the routers' random choices.
    gateways : sequence of int
        Servers with an uplink to the outside (see `external_network`).
    fabric : Fabric
        Nodes and cables of the lab, such as `local_fabric.LocalFabric` on this machine.
    """

    def __init__(
        self,
        topology: Topology,
        settings: LabSettings,
        folder: Path,
        seed: int = 0,
        gateways: Sequence[int] = (),
        *,
        fabric: Fabric,
    ) -> None:
        check_settings(topology, settings)
        # Without relays, a user's OpenFlow application routes; its paths are not computed.
        own = map(application_file, settings.controller[:1] if topology.ports == 1 else ())
        if settings.multipath:  # its subflows are pinned by the addresses of ports
            settings = replace(settings, port_addresses=True)
        self.routing = "".join(own) or settings.routing or usual_routing(topology)
        self.gateways = list(dict.fromkeys(gateways))
        if gateways:
            known = gateway_options(topology, self.routing, self.gateways)
            settings = replace(settings, options={**settings.options, **known})
        self.topology, self.settings, self.folder, self.seed = topology, settings, folder, seed
        self.relays = topology.ports > 1
        self.switches = switching.switches_of(topology, settings, self.routing, seed, folder)
        if self.relays:
            self.plane = switching.servers_plane(self.switches, settings.plane)
        else:
            self.plane = self.switches.name if self.switches else switching.BRIDGES
        self.tcp = ""  # congestion control of the servers' programs; "" is the kernel's default
        self.lock = threading.RLock()
        self.dead: set[int] = set()
        self.lost_nodes: set[int] = set()  # nodes that failed together with their machine
        self._events = folder / "events.jsonl"
        self.fabric = fabric
        self.fabric.attach(self)
        self.net, self.faults = self.fabric.net, self.fabric.faults
        self.forwarders = self.fabric.forwarders

    def __enter__(self) -> Lab:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    # -- up and down -----------------------------------------------------------------------------

    def start(self) -> None:
        """Start the network, and wait until every forwarder is ready."""
        self.fabric.start()
        over = {"machines": self.fabric.machines} if self.fabric.machines > 1 else {}
        self.log("up", network=self.topology.spec, routing=self.routing, **over)

    def here(self) -> list[int]:
        """Return the servers of this lab, or of this part of a lab over several machines."""
        servers = range(self.topology.servers)
        return [server for server in servers if self.topology.node_name(server) in self.net]

    def stop(self) -> None:
        """End the lab: all programs, forwarders, servers, switches and cables."""
        self.log("down")
        self.faults.close()
        self.fabric.stop()

    def wait_converged(self) -> None:
        """Wait for convergence: no server considers a working link down."""
        if self.forwarders:
            convergence.wait_converged(self.topology, self.forwarders, self.dead, self.failures)

    # -- cables, switches, racks -----------------------------------------------------------------

    def begin(self, fault: Fault) -> ActiveFault:
        """Inject a fault now; servers of a stopped rack die."""
        nodes = [self.node(name) for name in fault.what]
        if fault_kind(fault.kind).target == SERVER:
            at_s = time.monotonic()
            self.kill(nodes[0])
            return ActiveFault(fault.kind, (self.topology.node_name(nodes[0]),), at_s)
        names = [self.topology.node_name(node) for node in nodes]
        with self.lock:
            active = self.faults.begin(fault.kind, *names, amounts=fault.amounts)
            self._log_fault(active)
            if active.definition.target == RACK:
                for server in map(self.node, active.what[1:]):
                    if server not in self.dead:
                        self.kill(server)
        return active

    def end(self, fault: ActiveFault) -> None:
        """Repair a fault; a dead server, or the servers of a rack, are restarted."""
        if fault.definition.target == SERVER:
            self.revive(self.node(fault.what[0]))
            return
        with self.lock:
            at_s = self.faults.undo(fault)
            self.log("healed", at_s, fault=fault.kind, what=self.names_in(fault))
            self.inform_switches()
            if fault.definition.target == RACK:
                for server in map(self.node, fault.what[1:]):
                    if server in self.dead:
                        self.revive(server)

    def cut(self, a: int, b: int, *, silent: bool = False) -> ActiveFault:
        """Cut the cable between two nodes; a silent cut leaves the carrier up."""
        return self.begin(Fault("silent cut" if silent else "cut", (self.name(a), self.name(b))))

    def _log_fault(self, fault: ActiveFault) -> ActiveFault:
        amounts = {"amounts": fault.amounts} if fault.amounts else {}
        self.log(fault.kind, fault.at_s, what=self.names_in(fault), **amounts)
        self.inform_switches()
        return fault

    def inform_switches(self) -> None:
        """Report faults that change a carrier to switches that route."""
        faults = self.faults.active
        seen = [fault for fault in faults if fault.definition.effect == CARRIER_LOST]
        self.fabric.set_failures(self._failures(seen, set()))

    def names_in(self, fault: ActiveFault) -> list[str]:
        """Return the nodes affected by a fault, as server addresses and switch names."""
        return [self.name(self.node(name)) for name in fault.what]

    def failures(self) -> Failures:
        """Return all current failures, in the form used by the algorithms."""
        return self._failures(self.faults.active, self.dead)

    def _failures(self, faults: list[ActiveFault], dead: set[int]) -> Failures:
        nodes, links = dead | self.lost_nodes, set[frozenset[int]]()
        for fault in faults:
            what = [self.node(name) for name in fault.what]
            if not fault.of_cable:
                nodes.update(what)
            elif fault.definition.breaks:
                links.add(frozenset(what))
        return Failures(frozenset(nodes), frozenset(links))

    # -- names -----------------------------------------------------------------------------------

    def packet_end(self, text: str) -> End:
        """Return the end of a packet that a server's name, or a port's such as 0.0%1, describes."""
        if "%" not in text and text[:1] != "h":
            return End(self.server(text))
        end = self.topology.end(text)
        check_port_addresses(self.topology, end.port is None or self.settings.port_addresses)
        return end

    def server(self, text: str) -> int:
        """Return the server with an address or host name (``h7``)."""
        node = self.node(text)
        require(node < self.topology.servers, f"{text} is a switch: name a server")
        return node

    def node(self, text: str) -> int:
        """Return the node with an address or name."""
        require(
            text != OUTSIDE or not self.gateways,
            f"{OUTSIDE} is not a server: run programs there with `exec {OUTSIDE} CMD`",
        )
        return self.topology.node(text)

    def name(self, node: int) -> str:
        """Return a server's address, or a switch's name."""
        return self.topology.name(node)

    # -- servers ---------------------------------------------------------------------------------

    def host(self, server: int) -> Any:
        """Return the Mininet host that emulates a server."""
        return self.net[self.topology.node_name(server)]

    def namespace_of(self, server: int) -> int:
        """Return a server's network namespace, as an open file."""
        return int(self.host(server).live_namespace().descriptor)

    def kill(self, server: int) -> None:
        """Kill a server: its forwarder and all its programs."""
        with self.lock:
            require(server not in self.dead, f"server {self.name(server)} is dead already")
            self.dead.add(server)
            self.log("kill", time.monotonic() + self.fabric.ahead_s, server=self.name(server))
            self.fabric.kill(server)

    def revive(self, server: int) -> None:
        """Restart a dead server: its forwarder, without its former programs."""
        with self.lock:
            require(server in self.dead, f"server {self.name(server)} is alive")
            self.fabric.revive(server)
            if server in self.dead:  # False if the server was restarted together with its machine
                self.dead.remove(server)
                self.log("revive", server=self.name(server))

    # -- growing and shrinking -------------------------------------------------------------------

    def grow(self, servers: int | None = None) -> None:
        """Add servers (default: the smallest number that can join); see `resize`."""
        self.resize(self.topology.servers + (servers or self.topology.growth))

    def shrink(self, servers: int | None = None) -> None:
        """Remove the servers that joined last; see `resize`."""
        self.resize(self.topology.servers - (servers or self.topology.growth))

    def resize(self, servers: int) -> None:
        """Add or remove servers until the network has a given size, while the others keep running.

        Servers join by AddDCell (Guo 2008, section 5) or as whole BCubes of the level below (Guo
        2009, section 5.1). New servers carry no traffic before they are ready: the other servers
        are notified last. Paths are moved away from leaving servers before these are removed.
        """
        with self.lock:
            before = self.topology.spec
            self.fabric.resize(servers)
            self.log("resized", network=self.topology.spec, before=before)
        self.wait_converged()

    def state(self, server: int) -> dict[str, Any]:
        """Return the state of a server: its tables and counters."""
        state = self.forwarders.ask(server, "state") if self.forwarders else None
        return state or {"server": self.topology.address(server), "dead": server in self.dead}

    # -- paths of packets ------------------------------------------------------------------------

    def trace(
        self, source: int, destination: int, *, source_port: int = 0, ports: EndPorts = NO_PORTS
    ) -> dict[str, Any]:
        """Send a marked packet between servers and return its path; see `PacketTracer.trace`."""
        return self.fabric.tracer.trace(source, destination, source_port, ports)

    def computed(self, source: int, destination: int, ports: EndPorts = NO_PORTS) -> list[str]:
        """Return the path between two servers that the routing computes with all failures known.

        Between the addresses of ports it is their pinned path, unless that has failed.
        """
        return computed(self.topology, self.routing, source, destination, self.failures(), ports)

    # -- the log ---------------------------------------------------------------------------------

    def log(self, event: str, at_s: float | None = None, **details: Any) -> None:
        """Write an event with its time (default: now) to the lab's log of events."""
        line = {"at_s": at_s or time.monotonic(), "wall_s": time.time(), "event": event, **details}
        with self._events.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def status(self) -> dict[str, Any]:
        """Return the state of the lab: its settings, failures and dropped packets."""
        drops: Counter[str] = Counter()
        links_down = link_losses = 0
        for server in range(self.topology.servers) if self.forwarders else ():
            state = self.state(server)
            drops.update(drops_by_reason(state))
            links_down += sum(not link["up"] for link in state.get("links", []))
            link_losses += state.get("counters", {}).get("link down", 0)
        return {
            "network": self.topology.spec,
            "servers": self.topology.servers,
            "routing": self.routing,
            "plane": self.plane,
            "timers": self.settings.timers,
            "rate_mbit": self.settings.rate_mbit,
            "level_rates_mbit": rates_mbit_of_levels(self.topology, self.settings.rate_mbit),
            "queue_bytes": self.net.queue_bytes,
            **({"tcp": self.tcp} if self.tcp else {}),
            **({"transport": self.settings.transport} if self.settings.multipath else {}),
            "dead": [self.topology.address(server) for server in sorted(self.dead)],
            "faults": [[fault.kind, *self.names_in(fault)] for fault in self.faults.active],
            "failures": failure_texts(self.topology, self.failures()),
            "links_down": links_down,
            "link_losses": link_losses,
            "drops": dict(drops),
            **self.fabric.status(),
        }

    def on_forwarder_event(self, server: int | None, event: str, details: dict[str, Any]) -> None:
        """Log and print an event of a forwarder; mark the server of an ended forwarder as dead."""
        if server is None:
            self.log(event, **details)
            if event == "nursery lost":
                self.print_event(NURSERY_ENDED)
        elif event == "ended":
            name = self.topology.address(server)
            self.log("forwarder ended", server=name, **details)
            if details.get("was_ready") and server not in self.dead and self.forwarders:
                self.dead.add(server)
                why, code = self.forwarders.last_words(server), details["status"]
                self.print_event(
                    f"the forwarder of server {name} has ended unexpectedly, with code "
                    f"{'unknown' if code is None else code}: {why}; revive {name} restarts it"
                )

    def print_event(self, sentence: str) -> None:
        """Print an event that no command has caused at the lab's terminal."""
        print(f"*** {sentence}", file=sys.stderr, flush=True)
