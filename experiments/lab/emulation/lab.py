"""A running lab: cables and bridges, a forwarder on every server, faults, and an event log.

>>> with Lab(topos.parse("bcube,4,1"), LabSettings()) as lab:            # doctest: +SKIP
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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments.lab.emulation import convergence, server_names, switching
from experiments.lab.emulation.active_faults import ActiveFault, Faults
from experiments.lab.emulation.defaults import usual_routing
from experiments.lab.emulation.drops import drops_by_reason
from experiments.lab.emulation.external_network import ExternalNetwork, gateway_options
from experiments.lab.emulation.forwarders import NURSERY_ENDED, Forwarders
from experiments.lab.emulation.lab_network import LabNet, end_programs_in
from experiments.lab.emulation.meter import Meter
from experiments.lab.emulation.nodes import LabSwitch, sent_bytes_and_frames
from experiments.lab.emulation.packet_tracing import PacketTracer, computed
from experiments.lab.emulation.resizing import resize
from experiments.lab.emulation.routers import Switches
from experiments.lab.emulation.setting_checks import check_settings
from experiments.lab.linux import shaping
from experiments.lab.linux.queueing import Queue
from hosts.base.failures import Failures, failure_texts
from hosts.base.fault_kinds import CARRIER_LOST, RACK, SERVER, fault_kind
from hosts.base.faults import Fault
from hosts.base.load import router_for
from hosts.live.settings import LabSettings
from topos.base.errors import require
from topos.base.topology import Topology

# Largest number of servers, in a network without relays, that get static ARP entries of all
# servers. The kernel accepts at most 1024 learned ARP entries (gc_thresh3) of all servers.
MOST_STATIC_ARP = 256


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
        Servers with an uplink to the outside (see `outside`).
    """

    whole = True  # True if the whole lab runs on this machine
    machines = 1
    means: Any = None  # trial backend of labs on several machines (`trials.runs.means`)
    ahead_s = 0.0  # lead time of a fault request before the fault takes effect, in seconds

    def __init__(
        self,
        topology: Topology,
        settings: LabSettings,
        folder: Path,
        seed: int = 0,
        gateways: Sequence[int] = (),
    ) -> None:
        check_settings(topology, settings)
        self.routing = settings.routing or usual_routing(topology)
        self.gateways = list(dict.fromkeys(gateways))
        if gateways:
            known = gateway_options(topology, self.routing, self.gateways)
            settings = replace(settings, options={**settings.options, **known})
        self.topology, self.settings, self.folder, self.seed = topology, settings, folder, seed
        self.outside: ExternalNetwork | None = None
        self.relays = topology.ports > 1
        self.switches = self._switches()
        if self.relays:
            self.plane = switching.servers_plane(self.switches, settings.plane)
        else:
            self.plane = self.switches.name if self.switches else switching.BRIDGES
        self._events = (folder / "events.jsonl").open("a", buffering=1)
        self._lock = threading.RLock()
        self.forwarders = self._forwarders() if self.relays else None
        self.net = self._net()
        self.faults = self._faults()
        self.dead: set[int] = set()
        self._tracer = self._make_tracer()

    def _make_tracer(self) -> PacketTracer:
        return PacketTracer(self.topology, self.net, self.forwarders, self.dead)

    def _net(self) -> LabNet:
        return LabNet(self.topology, **self._cables())

    def _cables(self) -> dict[str, Any]:
        """Return the parameters of the network's cables and nodes."""
        settings = self.settings
        return {
            "rate_mbit": settings.rate_mbit,
            "delay": settings.delay,
            "loss": settings.loss,
            "queue": self._queue(),
            "forwarders": self.relays,
            "mtu": shaping.port_mtu(settings.mtu, self.relays),
            "switch": self.switches.node if self.switches else LabSwitch,
        }

    def _faults(self) -> Faults:
        return Faults(self.net)

    def _queue(self) -> Queue:
        """Return the queue of every port; data packets carry the routing's header before IP."""
        router = router_for(self.topology, self.routing) if self.relays else None
        header = router.header_bytes() if router else 0
        at_once_s = shaping.catch_up_s(self.settings.catch_up)
        return Queue(self.settings.queue, self.settings.queue_length, header, at_once_s)

    def _switches(self) -> Switches | None:
        return switching.switches_of(
            self.topology, self.settings, self.routing, self.seed, self.folder
        )

    def _forwarders(self) -> Forwarders:
        return Forwarders(
            self.topology,
            replace(self.settings, routing=self.routing, plane=self.plane),
            self.seed,
            self.folder,
            self.namespace_of,
            self._on_forwarder_event,
        )

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
        self.net.start()
        if not self.relays and self.topology.servers <= MOST_STATIC_ARP:
            self.net.staticArp()
        self._name_servers()
        if self.forwarders:
            self.forwarders.start(self.here())
            self.net.bound_super_packets()
        if self.gateways:
            self.outside = ExternalNetwork(self.net, self.gateways, self.settings.mtu)
        if self.switches:
            self.switches.start(self.net)
        self.log("up", network=self.topology.spec, routing=self.routing)

    def _name_servers(self) -> None:
        server_names.make_known(self.topology, map(self.host, self.here()))

    def machine_count_phrase(self) -> str:
        """Return the number of machines of a lab as a short phrase, "" for a single machine."""
        return ""

    def here(self) -> list[int]:
        """Return the servers emulated by this process: all, unless the lab spans machines."""
        return list(range(self.topology.servers))

    def stop(self) -> None:
        """End the lab: all programs, forwarders, servers, switches and cables."""
        self.log("down")
        self.faults.close()
        if self.forwarders:
            self.forwarders.close()
        if self.switches:
            self.switches.stop()
        self.net.stop()
        self._events.close()

    def nodes_here(self) -> list[int]:
        """Return the servers and switches that this process emulates."""
        return list(range(self.topology.nodes))

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
        with self._lock:
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
        with self._lock:
            at_s = self.faults.undo(fault)
            self.log("healed", at_s, fault=fault.kind, what=self.names_in(fault))
            self._inform_switches()
            if fault.definition.target == RACK:
                for server in map(self.node, fault.what[1:]):
                    if server in self.dead:
                        self.revive(server)

    def cut(self, a: int, b: int, *, silent: bool = False) -> ActiveFault:
        """Cut the cable between two nodes; a silent cut leaves the carrier up."""
        return self.begin(Fault("silent cut" if silent else "cut", (self.name(a), self.name(b))))

    def stop_switch(self, switch: int) -> ActiveFault:
        """Power off a switch."""
        return self.begin(Fault("switch", (f"s{switch}",)))

    def stop_rack(self, switch: int) -> ActiveFault:
        """Power off a switch and all servers attached to it, which die."""
        return self.begin(Fault("rack", (f"s{switch}",)))

    def _log_fault(self, fault: ActiveFault) -> ActiveFault:
        amounts = {"amounts": fault.amounts} if fault.amounts else {}
        self.log(fault.kind, fault.at_s, what=self.names_in(fault), **amounts)
        self._inform_switches()
        return fault

    def _inform_switches(self) -> None:
        """Report faults that change a carrier to switches that route."""
        if self.switches:
            faults = self.faults.active
            seen = [fault for fault in faults if fault.definition.effect == CARRIER_LOST]
            self.switches.set_failures(self._failures(seen, set()))

    def names_in(self, fault: ActiveFault) -> list[str]:
        """Return the nodes affected by a fault, as server addresses and switch names."""
        return [self.name(self.node(name)) for name in fault.what]

    def failures(self) -> Failures:
        """Return all current failures, in the form used by the algorithms."""
        return self._failures(self.faults.active, self.dead)

    def _failures(self, faults: list[ActiveFault], dead: set[int]) -> Failures:
        nodes, links = set(dead), set[frozenset[int]]()
        for fault in faults:
            what = [self.node(name) for name in fault.what]
            if not fault.of_cable:
                nodes.update(what)
            elif fault.definition.breaks:
                links.add(frozenset(what))
        return Failures(frozenset(nodes), frozenset(links))

    # -- names -----------------------------------------------------------------------------------

    def server(self, text: str) -> int:
        """Return the server with an address or host name (``h7``)."""
        node = self.node(text)
        require(node < self.topology.servers, f"{text} is a switch: name a server")
        return node

    def node(self, text: str) -> int:
        """Return the node with an address or name."""
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

    def reach(self, server: int) -> list[str]:
        """Return the command prefix that starts programs on a server of another machine."""
        return []

    def ask_part(self, server: int, **request: Any) -> Any:
        """Send a request to the machine that emulates a server, in labs over several machines."""
        raise NotImplementedError

    def kill(self, server: int) -> None:
        """Kill a server: its forwarder and all its programs."""
        with self._lock:
            require(server not in self.dead, f"server {self.name(server)} is dead already")
            self.dead.add(server)
            self.log("kill", server=self.name(server))
            if self.forwarders:
                self.forwarders.kill(server)
            else:  # no forwarder: a link that is down stops the replies of the server's kernel
                self.host(server).intfs[0].ifconfig("down")
            if self.outside:
                self.outside.set_gateway_link(server, False)
            end_programs_in({self.namespace_of(server)})

    def revive(self, server: int) -> None:
        """Restart a dead server: its forwarder, without its former programs."""
        with self._lock:
            require(server in self.dead, f"server {self.name(server)} is alive")
            if self.forwarders:
                self.forwarders.start([server])
                self.net.bound_super_packets()
            else:
                self.host(server).intfs[0].ifconfig("up")
            if self.switches:
                self.switches.admit(self.net, server)
            if self.outside:
                self.outside.set_gateway_link(server, True)
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
        with self._lock:
            before, after = self.topology, self.topology.resized(servers)
            require(self.forwarders is not None, f"the servers of {before.spec} do not relay")
            assert self.forwarders
            leaving = " ".join(self.name(each) for each in self.gateways if each >= after.servers)
            require(not leaving, f"{leaving} cannot leave: it is a gateway")
            require(not self.faults.active, "a fault is in effect: `heal all` before servers move")
            staying = range(min(before.servers, after.servers))
            alive = [server for server in staying if server not in self.dead]
            if after.servers > before.servers:
                self._add_servers(after, alive)
            else:
                self._remove_servers(after, alive)
            self._name_servers()
            self.log("resized", network=after.spec, before=before.spec)
        self.wait_converged()

    def _add_servers(self, after: Topology, alive: list[int]) -> None:
        assert self.forwarders
        new = range(self.topology.servers, after.servers)
        resize(self.net, after)
        self.topology = self._tracer.topology = after
        self.dead.update(new)
        self.forwarders.topology = after
        self.forwarders.start(list(new))
        self.net.bound_super_packets()
        self.dead.difference_update(new)
        self.forwarders.resize(after, alive)

    def _remove_servers(self, after: Topology, alive: list[int]) -> None:
        assert self.forwarders
        leaving = set(range(after.servers, self.topology.servers))
        self.forwarders.resize(after, alive)
        for server in leaving - self.dead:
            self.kill(server)
        resize(self.net, after)
        self.topology = self._tracer.topology = after
        self.dead -= leaving

    def bytes_sent(self) -> dict[str, int]:
        """Return the number of bytes sent by each port of each server, by interface name."""
        counted = (
            port
            for server in self.here()
            for port in sent_bytes_and_frames(self.host(server)).items()
        )
        return {name: octets for name, (octets, _) in counted}

    def meter(self) -> Meter:
        """Return a reader of the byte counters of the lab's cables and servers."""
        return Meter(self.net)

    def state(self, server: int) -> dict[str, Any]:
        """Return the state of a server: its tables and counters."""
        state = self.forwarders.ask(server, "state") if self.forwarders else None
        return state or {"server": self.topology.address(server), "dead": server in self.dead}

    # -- paths of packets ------------------------------------------------------------------------

    def trace(self, source: int, destination: int, *, source_port: int = 0) -> dict[str, Any]:
        """Send a marked packet between servers and return its path; see `PacketTracer.trace`."""
        return self._tracer.trace(source, destination, source_port)

    def computed(self, source: int, destination: int) -> list[str]:
        """Return the path between two servers that the routing computes with all failures known."""
        return computed(self.topology, self.routing, source, destination, self.failures())

    # -- the log ---------------------------------------------------------------------------------

    def log(self, event: str, at_s: float | None = None, **details: Any) -> None:
        """Write an event with its time (default: now) to the lab's log of events."""
        line = {"at_s": at_s or time.monotonic(), "wall_s": time.time(), "event": event, **details}
        self._events.write(json.dumps(line) + "\n")

    def status(self) -> dict[str, Any]:
        """Return the state of the lab: its settings, failures and dropped packets."""
        drops: Counter[str] = Counter()
        links_down = link_losses = 0
        for server in self.here() if self.forwarders else ():
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
            "queue_bytes": self.net.queue_bytes,
            "dead": [self.topology.address(server) for server in sorted(self.dead)],
            "faults": [[fault.kind, *self.names_in(fault)] for fault in self.faults.active],
            "failures": failure_texts(self.topology, self.failures()),
            "links_down": links_down,
            "link_losses": link_losses,
            "drops": dict(drops),
        }

    def _on_forwarder_event(self, server: int | None, event: str, details: dict[str, Any]) -> None:
        """Log and print an event of a forwarder; mark the server of an ended forwarder as dead."""
        if server is None:
            self.log(event, **details)
            if event == "nursery lost":
                self._print_event(NURSERY_ENDED)
        elif event == "ended":
            name = self.topology.address(server)
            self.log("forwarder ended", server=name, **details)
            if details.get("was_ready") and server not in self.dead and self.forwarders:
                self.dead.add(server)
                why, code = self.forwarders.last_words(server), details["status"]
                self._print_event(
                    f"the forwarder of server {name} has ended unexpectedly, with code "
                    f"{'unknown' if code is None else code}: {why}; revive {name} restarts it"
                )

    def _print_event(self, sentence: str) -> None:
        """Print an event that no command has caused at the lab's terminal."""
        print(f"*** {sentence}", file=sys.stderr, flush=True)


@contextmanager
def running(
    topology: Topology,
    settings: LabSettings,
    folder: Path,
    seed: int = 0,
    gateways: Sequence[int] = (),
) -> Iterator[Lab]:
    """Run a lab with a control socket until the block ends."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with Lab(topology, settings, folder, seed, gateways) as lab:
        yield lab
