"""The fabric of a lab on this machine: Mininet's nodes and cables, and a forwarder per server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from pillarbox.experiments.lab.emulation import server_names
from pillarbox.experiments.lab.emulation.active_faults import Faults
from pillarbox.experiments.lab.emulation.external_network import ExternalNetwork
from pillarbox.experiments.lab.emulation.forwarders import Forwarders
from pillarbox.experiments.lab.emulation.lab import Lab
from pillarbox.experiments.lab.emulation.lab_network import LabNet, end_programs_in
from pillarbox.experiments.lab.emulation.marked_queues import MarkedQueues
from pillarbox.experiments.lab.emulation.meter import Meter, MeterReading
from pillarbox.experiments.lab.emulation.nodes import LabSwitch, sent_bytes_and_frames
from pillarbox.experiments.lab.emulation.packet_tracing import PacketTracer
from pillarbox.experiments.lab.emulation.resizing import resize
from pillarbox.experiments.lab.linux import congestion, mptcp, queueing, shaping
from pillarbox.experiments.lab.linux.namespaces import Namespace, fabric, write_sysctl
from pillarbox.experiments.lab.linux.queueing import Queue
from pillarbox.experiments.lab.observe.pings import echoes
from pillarbox.hosts.base.failures import Failures
from pillarbox.hosts.base.load import router_for
from pillarbox.hosts.linux.struct_ops import CongestionControl
from pillarbox.hosts.live.settings import LabSettings
from pillarbox.hosts.wire.source_route import SIZE as SOURCE_ROUTE_BYTES
from pillarbox.topos.base.addressing import NO_PORTS, End, EndPorts
from pillarbox.topos.base.errors import require
from pillarbox.topos.base.topology import Topology

# Largest number of servers, in a network without relays, that get static ARP entries of all
# servers. The kernel accepts at most 1024 learned ARP entries (gc_thresh3) of all servers.
MOST_STATIC_ARP = 256


class LocalFabric:
    """The nodes and cables of a lab on this machine; see `lab.Fabric`."""

    machines = 1
    ahead_s = 0.0
    trial_backend: Any = None

    lab: Lab
    net: LabNet
    faults: Faults
    forwarders: Forwarders | None
    tracer: PacketTracer
    _outside: ExternalNetwork | None = None
    _control: CongestionControl | None = None

    def attach(self, lab: Lab) -> None:
        """Set the lab, start the nursery of its forwarders, and make its nodes and cables."""
        self.lab = lab
        if lab.settings.multipath:
            mptcp.check_supported()
        settings = replace(lab.settings, routing=lab.routing, plane=lab.plane)
        self.forwarders = None
        if lab.relays:
            self.forwarders = Forwarders(
                *(lab.topology, settings, lab.seed, lab.folder),
                *(self._namespace_of, self.on_forwarder_event),
            )
        try:
            with fabric().places.postponed():
                self.net = self.new_net()
        except BaseException:
            if self.forwarders:
                self.forwarders.kill_all()
                self.forwarders.close()
            raise
        self.faults = Faults(self.net)
        self.tracer = PacketTracer(lab.topology, self.net, self.forwarders, lab.dead)
        self._meter = Meter(self.net)
        self._marked_queues = MarkedQueues(self._namespaces)

    def _namespaces(self) -> set[Namespace]:
        """Return the network namespaces of all nodes that run."""
        found = (node.namespace for node in (*self.net.hosts, *self.net.switches))
        return {one for one in found if one is not None}

    def new_net(self) -> LabNet:
        """Return the nodes and cables of the lab, not yet started."""
        return LabNet(self.lab.topology, **self.cable_parameters())

    def cable_parameters(self) -> dict[str, Any]:
        """Return the parameters of the network's cables and nodes."""
        lab, settings = self.lab, self.lab.settings
        return {
            "rate_mbit": settings.rate_mbit,
            "delay": settings.delay,
            "loss": settings.loss,
            "queue": self._queue(),
            "forwarders": lab.relays,
            "mtu": shaping.port_mtu(settings.mtu, lab.relays),
            "switch": lab.switches.node if lab.switches else LabSwitch,
            "before_cables": self._fork_forwarders,
        }

    def _namespace_of(self, server: int) -> int:
        name = self.lab.topology.node_name(server)
        return int(self.net[name].live_namespace().descriptor)

    def _fork_forwarders(self, net: LabNet) -> None:
        """Fork the forwarders of this machine's servers while the kernel makes the cables."""
        self.net, topology = net, self.lab.topology
        if self.forwarders:
            servers = range(topology.servers)
            self.forwarders.fork([each for each in servers if topology.node_name(each) in net])

    def _queue(self) -> Queue:
        """Return the queue of every port; data packets carry the routing's header before IP."""
        lab, settings = self.lab, self.lab.settings
        router = router_for(lab.topology, lab.routing) if lab.relays else None
        header = router.header_bytes() if router else 0
        header = max(header, SOURCE_ROUTE_BYTES) if settings.port_addresses else header
        at_once_s = shaping.catch_up_s(settings.catch_up)
        single = settings.dilation != 1
        return Queue(
            settings.queue, settings.queue_length, header, at_once_s, single_packets=single
        )

    def on_forwarder_event(self, server: int | None, event: str, details: dict[str, Any]) -> None:
        """Pass an event of a forwarder to the lab."""
        self.lab.on_forwarder_event(server, event, details)

    # -- up and down -----------------------------------------------------------------------------

    def start(self) -> None:
        """Start the network, and wait until every forwarder is ready."""
        lab, net = self.lab, self.net
        net.start()
        self._choose_control()
        self._set_up_multipath()
        if lab.settings.queue == queueing.ECN:
            self._marked_queues.start()
        # A user's controller sees ARP requests, as on hardware.
        static_arp = not (lab.relays or lab.settings.controller)
        if static_arp and lab.topology.servers <= MOST_STATIC_ARP:
            net.staticArp()
        self._name_servers()
        with ThreadPoolExecutor(1) as background:
            attached = background.submit(fabric().places.attach_postponed)
            if self.forwarders:
                self.forwarders.start(lab.here())
            attached.result()
        if self.forwarders:
            net.bound_super_packets()
        if lab.gateways:
            self._outside = ExternalNetwork(net, lab.gateways, lab.settings.mtu)
        if lab.switches:
            lab.switches.start(net)
        self.on_servers_ready()

    def on_servers_ready(self) -> None:
        """Report to the forwarders that all servers of the network have started."""
        if self.forwarders:
            self.forwarders.end_start()

    def _choose_control(self) -> None:
        """Make the settings' congestion control the default of all servers; register it first."""
        if not self.lab.settings.tcp:
            return
        source = congestion.source_of(self.lab.settings.tcp)
        if source and not self._control:
            self._control = congestion.registered(source)
        self.lab.tcp = self._control.name if self._control else self.lab.settings.tcp
        for server in self.lab.here():
            with self.lab.host(server).live_namespace():
                try:
                    write_sysctl(congestion.DEFAULT, self.lab.tcp)
                except PermissionError:
                    # The control is for programs that choose it, as traffic tools do: `up` refuses
                    # it by `congestion.check_default`.
                    return

    def _set_up_multipath(self) -> None:
        """Set up Multipath TCP on all servers, if the lab's transport is Multipath TCP."""
        if not self.lab.settings.multipath:
            return
        for server in self.lab.here():
            with self.lab.host(server).live_namespace():
                mptcp.set_up(self.lab.topology, server, self.lab.settings.subflows)

    def _name_servers(self) -> None:
        server_names.make_known(
            self.lab.topology,
            map(self.lab.host, self.lab.here()),
            port_addresses=self.lab.settings.port_addresses,
        )

    def stop(self) -> None:
        """End all programs, forwarders, servers, switches and cables."""
        self._meter.close()
        self._marked_queues.close()
        if self.forwarders:
            self.forwarders.kill_all()
        if self.lab.switches:
            self.lab.switches.stop()
        self.net.stop()
        if self.forwarders:
            self.forwarders.close()
        if self._control:
            self._control.close()

    # -- servers ---------------------------------------------------------------------------------

    def kill(self, server: int) -> None:
        """Kill a server's forwarder and all its programs."""
        if self.forwarders:
            self.forwarders.kill(server)
        else:  # no forwarder: a link that is down stops the replies of the server's kernel
            self.lab.host(server).intfs[0].ifconfig("down")
        if self._outside:
            self._outside.set_gateway_link(server, False)
        end_programs_in({self.lab.namespace_of(server)})

    def revive(self, server: int) -> None:
        """Restart a dead server's forwarder, and its links."""
        if self.forwarders:
            self.forwarders.start([server])
            self.net.bound_super_packets()
        else:
            self.lab.host(server).intfs[0].ifconfig("up")
        if self.lab.switches:
            self.lab.switches.admit(self.net, server)
        if self._outside:
            self._outside.set_gateway_link(server, True)

    def resize(self, servers: int) -> None:
        """Add or remove servers until the network has a given size; see `Lab.resize`."""
        lab, before, after = self.lab, self.lab.topology, self.lab.topology.resized(servers)
        forwarders = self.forwarders
        require(forwarders is not None, f"the servers of {before.spec} do not relay")
        assert forwarders
        leaving = " ".join(lab.name(each) for each in lab.gateways if each >= after.servers)
        require(not leaving, f"{leaving} cannot leave: it is a gateway")
        require(not self.faults.active, "a fault is in effect: `heal all` before servers move")
        staying = range(min(before.servers, after.servers))
        alive = [server for server in staying if server not in lab.dead]
        if after.servers > before.servers:
            new = range(before.servers, after.servers)
            self._resize_net(after)
            lab.dead.update(new)
            forwarders.topology = after
            forwarders.start(list(new))
            self.net.bound_super_packets()
            lab.dead.difference_update(new)
            forwarders.resize(after, alive)
        else:
            gone = set(range(after.servers, before.servers))
            forwarders.resize(after, alive)
            for server in gone - lab.dead:
                lab.kill(server)
            self._resize_net(after)
            lab.dead -= gone
        self._name_servers()

    def _resize_net(self, after: Topology) -> None:
        resize(self.net, after)
        self.lab.topology = self.tracer.topology = after
        self._choose_control()
        self._set_up_multipath()

    def set_failures(self, failures: Failures) -> None:
        """Report failures that change a carrier to switches that route."""
        if self.lab.switches:
            self.lab.switches.set_failures(failures)

    # -- programs and counters -------------------------------------------------------------------

    def reach(self, server: int) -> list[str]:
        """Return an empty command prefix: programs start in the server's namespace."""
        return []

    def echoes(
        self,
        source: int,
        destinations: Sequence[int],
        wait_s: float,
        ports: EndPorts = NO_PORTS,
    ) -> dict[int, float | None]:
        """Ping each destination once; return RTTs in ms by destination, None after a timeout."""
        namespace = self.lab.host(source).live_namespace()
        topology, (out_by, in_by) = self.lab.topology, ports
        own = "" if out_by is None else topology.end_ip(End(source, out_by))
        return echoes(namespace, topology, destinations, wait_s, own, in_by)

    def bytes_sent(self) -> dict[str, int]:
        """Return the number of bytes sent by each port of each server, by interface name."""
        counted = (
            port
            for server in self.lab.here()
            for port in sent_bytes_and_frames(self.lab.host(server)).items()
        )
        return {name: octets for name, (octets, _) in counted}

    def counters(self) -> MeterReading:
        """Return the byte counters of the cables and servers on this machine."""
        return self._meter.read()

    def status(self) -> dict[str, Any]:
        """Return no entries: the lab's own status is complete."""
        return {}


@contextmanager
def running(
    topology: Topology,
    settings: LabSettings,
    folder: Path,
    seed: int = 0,
    gateways: Sequence[int] = (),
) -> Iterator[Lab]:
    """Run a lab on this machine until the block ends."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with Lab(topology, settings, folder, seed, gateways, fabric=LocalFabric()) as lab:
        yield lab
