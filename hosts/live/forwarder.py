"""A live server: one process that connects a router with real ports and an application interface.

Only here does a router meet a clock and sockets. Packets are passed to the router's `send` or
`receive`, and the router's actions are carried out on the ports. Decisions that hold for further
packets are repeated without the router: by the kernel, which wakes no process, or here
(python_table.py). One loop waits for packets, carrier events, control requests and router timers.

State: sockets, byte counters of the ports, the trace of marked packets. If the forwarder dies, the
server is dead: its application interface disappears, and with it routes and TCP connections.
"""

from __future__ import annotations

import select
import socket
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from pillarbox.hosts.base.actions import EVERYONE, Action, Deliver, Send
from pillarbox.hosts.base.path import Step
from pillarbox.hosts.base.ports import arrival_port
from pillarbox.hosts.base.router import Router
from pillarbox.hosts.linux.interfaces import RP_FILTER, InterfaceChanges, InterfaceQueries
from pillarbox.hosts.live.counter_sampling import CounterSchedule
from pillarbox.hosts.live.decisions import DecisionInstaller
from pillarbox.hosts.live.devices import (
    APPLICATION_INTERFACE,
    BROADCAST_MAC,
    CarrierEvents,
    Port,
    configure_application_interface,
)
from pillarbox.hosts.live.heartbeat_pacer import PacerConnection, heartbeat_ports
from pillarbox.hosts.live.lab_programs import ServerPrograms
from pillarbox.hosts.live.liveness import Liveness, NeighbourLink, NeighbourState
from pillarbox.hosts.live.python_table import PythonTable
from pillarbox.hosts.live.settings import LabSettings
from pillarbox.hosts.live.tracing import trace_of
from pillarbox.hosts.live.veth_tun import application_interface
from pillarbox.hosts.wire.frame import Frame
from pillarbox.topos.base.spec import parse
from pillarbox.topos.base.topology import Topology

if TYPE_CHECKING:
    from pillarbox.hosts.live.kernel_table import KernelTable
    from pillarbox.hosts.live.kernel_table import TablePort as KernelPort

# Maximum packets and seconds for reading one socket, before other sockets and timers are served.
# Control messages come before the packets of every socket: the network depends on them.
BATCH, TURN_S = 64, 1e-3
# Heartbeats that arrive while the kernel's link table is filled are ignored and sent again; they
# may still be in flight for this time, in seconds.
FILLED_S = 0.1
# Maximum number of heartbeats read from a port at a time, forged ones included: a full buffer.
MOST_HEARD = 4096
LEAST_START_S = 1.0  # seconds before a neighbour that was never heard counts as silent
TRACES = 4096  # maximum number of stored trace records of marked packets


class Forwarder:
    """Forwarder of one server: event loop that passes packets between ports, programs and router.

    Parameters
    ----------
    topology, router, settings
        The network, the server's router, and the settings of the lab.
    pacer : socket
        Socket to the process that sends heartbeats.
    programs : ServerPrograms, optional
        This server's view of the lab's eBPF programs, if the kernel runs any.
    start_s : float
        Upper bound for the start-up of other servers; silent neighbours are excused until then.
    """

    def __init__(
        self,
        topology: Topology,
        router: Router,
        settings: LabSettings,
        pacer: socket.socket,
        programs: ServerPrograms | None,
        start_s: float,
    ) -> None:
        self.topology, self.router, self._programs = topology, router, programs
        self.server, self._dilation = router.server, settings.dilation
        self.drops: Counter[str] = Counter()  # packets dropped by the forwarder, by reason
        self.traces: deque[dict[str, Any]] = deque(maxlen=TRACES)
        self._interfaces = InterfaceQueries()
        self.tun = application_interface(settings.plane)
        self.plane = settings.plane
        self.ports: dict[int, Port] = {}
        self._open_ports()
        self.carriers = CarrierEvents()
        self.repeated = None if self.plane == "ebpf" else self._python_table()
        self.kernel = None if self.repeated else self._kernel_table()
        table = self.repeated or self.kernel
        assert table is not None
        self.decisions = DecisionInstaller(router, table, self._mac_of)
        # Interfaces go up last: attaching eBPF programs to one that is up delays all others.
        configure_application_interface(topology, self.server, settings)
        self._macs: dict[Step, bytes] = {}
        self._peers: dict[tuple[int, bytes], int | None] = {}
        self.decisions.install(router.foreseen())
        self._live = dict.fromkeys(self.ports, True)
        self._awaits_heartbeats = False
        self._watched_from_s = 0.0  # heartbeats received before this time are ignored
        self._sent_revision: int  # revision of the heartbeats last passed to the pacer
        self._wakers: dict[int, Callable[[], None]] = {}
        self._epoll, self._messages = select.epoll(), select.epoll()
        self._epoll.register(self._messages.fileno(), select.EPOLLIN)
        self._watch_devices()
        self._pacer = pacer
        router.leave_heartbeats_to_others()
        # A student's router program handles heartbeats itself: eBPF must not record them.
        watched = self._programs if router.watches_neighbours else None
        self.liveness = self._start_kernel_liveness(watched, start_s) if watched else None
        self.heartbeats = self._connect_to_pacer(start_s)
        self._looks = CounterSchedule(
            router.bandwidth,
            self._interfaces.byte_counters,
            table,
            can_rest=bool(self.repeated or self.liveness),
            clock=self._now,
        )

    # -- setting up ------------------------------------------------------------------------------

    def _open_ports(self) -> list[int]:
        """Open this server's ports that have a cable and are not open yet; return their numbers."""
        opened = [n for n, _ in self.topology.neighbours(self.server) if n not in self.ports]
        changes = InterfaceChanges()
        for number in opened:
            # The server's address is on another interface, so the kernel's IP stack rejects every
            # packet that arrives here, and leaves it to the forwarder.
            index = socket.if_nametoindex(self.topology.interface(self.server, number))
            changes.set_link(index, {RP_FILTER: 1})
        changes.apply()
        for number in opened:
            name = self.topology.interface(self.server, number)
            mac = self.topology.mac_number(self.server, number).to_bytes(6, "big")
            many = len(self.topology.peers(self.server, number)) > 1
            self.ports[number] = Port(number, name, mac, ebpf=self.plane == "ebpf", shared=many)
        self._by_index = {socket.if_nametoindex(port.name): port for port in self.ports.values()}
        return opened

    def _kernel_table(self) -> KernelTable:
        from pillarbox.hosts.live.kernel_table import KernelTable

        ports = {number: self._kernel_port(port) for number, port in self.ports.items()}
        application = socket.if_nametoindex(APPLICATION_INTERFACE)
        return KernelTable(ports, application, programs=self._programs, **self._table_options())

    @staticmethod
    def _kernel_port(port: Port) -> KernelPort:
        from pillarbox.hosts.live.kernel_table import TablePort as KernelPort

        return KernelPort(socket.if_nametoindex(port.name), port.mac)

    def _connect_to_pacer(self, start_s: float = 0.0) -> PacerConnection:
        ports = heartbeat_ports(self.topology, self.server, self.liveness)
        timers = self.router.timers
        every_s = timers.confirmed_heartbeat_s if self.liveness else timers.heartbeat_s
        every_s *= self._dilation
        made = PacerConnection(self._pacer, self.server, ports, every_s, start_s)
        self._watch_pacer(made)
        return made

    def _watch_pacer(self, heartbeats: PacerConnection) -> None:
        self._sent_revision = -1
        self.watch(heartbeats.fileno(), partial(self._pacer_ended, heartbeats))

    def _pacer_ended(self, heartbeats: PacerConnection) -> None:
        """Register with a new heartbeat pacer; neighbours do not count as silent until then."""
        self.unregister(heartbeats.fileno())
        heartbeats.register_again()
        self._watch_pacer(heartbeats)
        self.router.neighbours.restart_timeouts(self._now())

    def _python_table(self) -> PythonTable:
        return PythonTable(self.ports, self.tun, self._count_drop, **self._table_options())

    def _table_options(self) -> dict[str, bool]:
        router = self.router
        return {"by_flow": router.by_flow, "sees_connections": router.sees_connections}

    def _watched_links(self) -> list[NeighbourLink]:
        index = {port.number: number for number, port in self._by_index.items()}
        links, uid = self.router.neighbours.links, self.topology.uid
        return [NeighbourLink(s, uid(s.peer), index[s.port], self._mac_of(s)) for s in links]

    def _start_kernel_liveness(self, programs: ServerPrograms, start_s: float) -> Liveness:
        """Let eBPF programs record heartbeats and detect silent neighbours."""
        router = self.router
        for index in () if self.kernel else self._by_index:
            programs.attach("port_in", index, egress=False)
        from_s = time.monotonic() + max(LEAST_START_S, start_s)
        watch = Liveness(programs, self._watched_links(), router.uid, from_s)
        self._watch_from_now()
        router.leave_silence_to_others()
        self.watch(watch.bell, partial(self._process_kernel_events, watch))
        for port in self.ports.values():
            self._watch_heartbeats(port)
        return watch

    def _watch_from_now(self) -> None:
        """Discard the heartbeats received so far: no program recorded their receive times."""
        for port in self.ports.values():
            deque(port.receive_heartbeats(MOST_HEARD), maxlen=0)
        self._watched_from_s = time.monotonic() + FILLED_S

    def _watch_devices(self) -> None:
        self.watch(self.tun.fd, self._process_applications)
        self.watch(self.carriers.socket.fileno(), self._process_carriers)
        for port in self.ports.values():
            self._watch_port(port)

    def _watch_port(self, port: Port) -> None:
        for which in (*port.messages, *port.packets):
            at = self._messages if which in port.messages else self._epoll
            self.watch(which.fileno(), partial(self._process_port, port, which), at)

    def _watch_heartbeats(self, port: Port) -> None:
        """Process a port's heartbeats on arrival: those that eBPF programs do not record."""
        self.watch(port.heartbeats.fileno(), partial(self._process_port_heartbeats, port))

    def watch(self, fd: int, waker: Callable[[], None], at: select.epoll | None = None) -> None:
        """Register a file descriptor with the event loop: call `waker` whenever it is readable."""
        self._wakers[fd] = waker
        (at or self._epoll).register(fd, select.EPOLLIN)

    def unregister(self, fd: int) -> None:
        """Remove a file descriptor from the event loop."""
        for each in (self._epoll, self._messages):
            with suppress(FileNotFoundError):  # registered with the forwarder's other epoll only
                each.unregister(fd)
        del self._wakers[fd]

    # -- growing and shrinking -------------------------------------------------------------------

    def resize(self, network: str) -> None:
        """Adapt the forwarder's ports and router to a network that has become larger or smaller."""
        self.topology = parse(network)
        self._carry_out(self.router.resize(self.topology, self._now()))
        self.decisions.withdraw_invalid()
        cabled = {number for number, _ in self.topology.neighbours(self.server)}
        closed = [number for number in self.ports if number not in cabled]
        for number in closed:
            self._close_port(number)
        opened = self._open_ports()
        for number in opened:
            self._start_using_port(self.ports[number])
        self._peers.clear()
        if self.liveness:
            self.liveness.resize(self._watched_links(), time.monotonic() + LEAST_START_S)
            self._watch_from_now()
        self.unregister(self.heartbeats.fileno())
        self.heartbeats.close()
        self.heartbeats = self._connect_to_pacer()

    def _close_port(self, number: int) -> None:
        port = self.ports.pop(number)
        for which in port.sockets:
            if which.fileno() in self._wakers:
                self.unregister(which.fileno())
        port.close()
        del self._live[number]
        if self.kernel:
            self.kernel.close_port(number)

    def _start_using_port(self, port: Port) -> None:
        """Start to send and receive by a port that was opened while the server runs."""
        self._live[port.number] = True
        if self.kernel:
            self.kernel.open_port(port.number, self._kernel_port(port))
        elif self.liveness and self._programs:
            self._programs.attach("port_in", socket.if_nametoindex(port.name), egress=False)
        self._watch_port(port)
        if self.liveness or self._awaits_heartbeats:
            self._watch_heartbeats(port)
        self._set_port_carrier(port.number, self._interfaces.has_carrier(port.name))

    def _now(self) -> float:
        """Return the time of the router's clock, which a dilated lab slows down, in seconds."""
        return time.monotonic() / self._dilation

    # -- the loop --------------------------------------------------------------------------------

    def run(self) -> None:
        """Forward packets until this forwarder process is ended."""
        for port in self.ports.values():  # ports that lost carrier before the event socket was open
            self._set_port_carrier(port.number, self._interfaces.has_carrier(port.name))
        while True:
            wait = (min(self.router.next_poll, self._looks.next_s) - self._now()) * self._dilation
            for fd, _ in self._epoll.poll(max(0.0, wait)):
                for message, _ in self._messages.poll(0):
                    self._wakers[message]()
                waker = self._wakers.get(fd)
                if waker:
                    waker()
            now = self._now()
            if self.router.next_poll <= now:
                self._process_heartbeats()
                self._carry_out(self.router.poll(now))
            if now >= self._looks.next_s:
                self._observe_traffic(now)
            self.decisions.withdraw_invalid()
            if self._sent_revision != self.router.neighbours.revision:
                self._update_heartbeats()

    def _update_heartbeats(self) -> None:
        """Pass changed heartbeats to the pacer, and silent neighbours to the kernel's table."""
        neighbours = self.router.neighbours
        self._sent_revision = neighbours.revision
        beats = self.router.heartbeats()
        self.heartbeats.set_frames(
            {
                one.port: self.ports[one.port].with_ethernet_header(BROADCAST_MAC, one.frame)
                for one in beats
            }
        )
        if self.liveness:
            for step in neighbours.links:
                if self.liveness.hears(step) and not neighbours.hears(step):
                    self.liveness.mark_silent(step, neighbours.lost_until(step) * self._dilation)

    def _process_kernel_events(self, watch: Liveness) -> None:
        """Process eBPF events: a neighbour is silent or heard again, traffic after a rest."""
        now = self._now()
        self._looks.read_soon()
        for step, state in watch.changed_links():
            # Revision -1 forces an update: the kernel must forget neighbours that the router
            # rejects.
            self._sent_revision = -1
            if state & NeighbourState.HEARD:
                self._carry_out(self.router.heard(step, bool(state & NeighbourState.HEARS_ME), now))
            else:
                self._carry_out(self.router.silence(step, now))

    def _process_applications(self) -> None:
        self._looks.read_often()
        end = self._now() + TURN_S / self._dilation
        for _ in range(BATCH):
            packet = self.tun.receive()
            if packet is None:
                return
            if self.repeated and self.repeated.send_by_decision(packet):
                continue
            now = self._now()
            actions = self.router.send(packet, now)
            self.decisions.install(actions)
            self._carry_out(actions, packet)
            if min(self.router.next_poll, end) <= now:
                return

    def _process_heartbeats(self) -> None:
        """Process the heartbeats received since the router's last timer.

        Waking up for each heartbeat is the largest cost of a network at rest. So heartbeats wait
        until the router's next timer: the next own heartbeat at the latest, and always before
        silence is detected; each counts from the time at which the kernel received it. Only while a
        neighbour is missing, heartbeats are processed on arrival.
        """
        if self.liveness:
            return
        for port in self.ports.values():
            self._process_port_heartbeats(port)
        neighbours = self.router.neighbours
        awaits = len(neighbours.up) < len(neighbours.links)
        if awaits != self._awaits_heartbeats:
            self._awaits_heartbeats = awaits
            for port in self.ports.values():
                if awaits:
                    self._watch_heartbeats(port)
                else:
                    self.unregister(port.heartbeats.fileno())

    def _process_port_heartbeats(self, port: Port) -> None:
        for age_s, (source_mac, frame) in port.receive_heartbeats(MOST_HEARD):
            came_s = time.monotonic() - age_s
            if came_s > self._watched_from_s:
                self._process_frame(port.number, source_mac, frame, came_s / self._dilation)

    def _process_port(self, port: Port, which: socket.socket) -> None:
        """Process a socket's packets until a timer is due: heartbeats must not wait for them."""
        repeated, end = self.repeated, self._now() + TURN_S / self._dilation
        for _ in range(BATCH):
            taken = port.receive_raw(which)
            if taken is None:
                return
            if not port.is_link_state(taken):
                self._looks.read_soon()
            now = self._now()
            if not (repeated and repeated.handle_by_decision(port.number, taken)):
                for source_mac, frame in port.packets_of(taken):
                    self._process_frame(port.number, source_mac, frame, now)
            if min(self.router.next_poll, end) <= now:
                return

    def _process_frame(self, port: int, source_mac: bytes, frame: Frame, now: float) -> None:
        peer = self._neighbour_with_mac(port, source_mac)
        if peer is None:
            self.drops["sender is no neighbour"] += 1
            return
        actions = self.router.receive(port, peer, frame, now)
        self.decisions.install(actions)
        self._carry_out(actions, frame.data)

    def _process_carriers(self) -> None:
        for index, live in self.carriers.pending():
            if index in self._by_index:
                self._set_port_carrier(self._by_index[index].number, live)
        if self.carriers.overrun:
            self.carriers.overrun = False
            for port in self.ports.values():
                self._set_port_carrier(port.number, self._interfaces.has_carrier(port.name))

    def _set_port_carrier(self, port: int, live: bool) -> None:
        if self._live[port] != live:
            self._live[port] = live
            self._carry_out(self.router.carrier(port, live, self._now()))
            self.decisions.withdraw_invalid()

    def _carry_out(self, actions: list[Action], cause: bytes = b"") -> None:
        """Execute the router's actions: send, deliver or drop; `cause` is the incoming packet."""
        for action in actions:
            trace = trace_of(action, cause, self.topology)
            if trace:
                self.traces.append(trace)
            if isinstance(action, Send):
                self._transmit(action)
            elif isinstance(action, Deliver):
                self._count_drop(self.tun.send(action.packet))

    def _transmit(self, send: Send) -> None:
        port = self.ports.get(send.port)
        if port is None:
            self._count_drop("no such port")
            return
        self._count_drop(port.send(self._mac_of(Step(send.port, send.peer)), send.frame))

    def _count_drop(self, reason: str) -> None:
        if reason:
            self.drops[reason] += 1

    # -- addresses -------------------------------------------------------------------------------

    def _mac_of(self, step: Step) -> bytes:
        if step.peer == EVERYONE:
            return BROADCAST_MAC
        if step not in self._macs:
            port = arrival_port(self.topology, self.server, step)
            self._macs[step] = self.topology.mac_number(step.peer, port).to_bytes(6, "big")
        return self._macs[step]

    def _neighbour_with_mac(self, port: int, mac: bytes) -> int | None:
        """Return the neighbour on a port that has this MAC address, None if no neighbour has it."""
        key = port, mac
        if key not in self._peers:
            if len(self._peers) > 4096:
                self._peers.clear()  # table of MAC addresses is full: they are forged
            node = int.from_bytes(mac[2:], "big")
            known = node < self.topology.servers and node in self.router.neighbours.peers[port]
            known = known and self._mac_of(Step(port, node)) == mac
            self._peers[key] = node if known else None
        return self._peers[key]

    # -- state and control requests ----------------------------------------------------------------

    def _observe_traffic(self, now: float) -> None:
        self._looks.read_counters([(number, port.name) for number, port in self.ports.items()], now)
        self._carry_out(self.decisions.report_used_flows(now))

    def answer(self, request: dict[str, Any]) -> Any:
        """Return the forwarder's response to a control request, None if the request is unknown."""
        if request.get("ask") == "state":
            return self.state()
        if request.get("ask") == "down":
            return {"down": self.router.down_by_name()}
        if request.get("ask") == "trace":
            return list(self.traces)
        if request.get("ask") == "resize":
            self.resize(request["network"])
            return {"network": self.topology.spec}
        return None

    def state(self) -> dict[str, Any]:
        """Return the state of the server's router and data plane, as JSON data for display."""
        return {
            **self.router.state(),
            "plane": self.plane,
            "repeated" if self.repeated else "kernel": self.decisions.table.counters(),
            "heartbeats heard by the kernel": self.liveness.heartbeats if self.liveness else None,
            "carrier": {str(number): live for number, live in self._live.items()},
            "plane_drops": dict(self.drops),
        }
