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

from hosts.base.actions import EVERYONE, Action, Deliver, Send
from hosts.base.path import Step
from hosts.base.ports import arrival_port
from hosts.base.router import Router
from hosts.linux.interfaces import ACCEPT_LOCAL, RP_FILTER, Changes, Interfaces
from hosts.live.counter_sampling import CounterSchedule
from hosts.live.decisions import Decisions
from hosts.live.devices import APPLICATION_INTERFACE, BROADCAST_MAC, Carriers, Port, Tun, sender
from hosts.live.heartbeat_pacer import HeartBeats, outlets
from hosts.live.lab_programs import Programs
from hosts.live.liveness import Liveness, NeighbourLink, NeighbourState
from hosts.live.python_table import PythonTable
from hosts.live.settings import LabSettings
from hosts.live.tracing import trace_of
from hosts.wire.frame import Frame
from topos.base.spec import parse
from topos.base.topology import Topology

if TYPE_CHECKING:
    from hosts.live.kernel_table import KernelTable
    from hosts.live.kernel_table import TablePort as KernelPort

# Upper bounds, in packets and seconds, for one turn of a socket; then other sockets and timers are
# served. Messages are served before every turn, since the whole network depends on them.
BATCH, TURN_S = 64, 1e-3
# Heart-beats that arrive while the kernel's link table is filled are ignored and sent again; for
# this time, in seconds, such heart-beats may be in flight.
FILLED_S = 0.1
# Heart-beats read from a port at a time: a full socket buffer, forged frames included.
MOST_HEARD = 4096
LEAST_START_S = 1.0  # time before a neighbour that was never heard counts as silent, in seconds
TRACES = 512  # upper bound for recorded traces of marked packets


class Forwarder:
    """Forwarder process of one server: event loop between ports, applications and router.

    Parameters
    ----------
    topology, router, settings
        The network, the server's router, and the settings of the lab.
    pacer : socket
        Socket to the process that sends heart-beats.
    programs : Programs, optional
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
        programs: Programs | None,
        start_s: float,
    ) -> None:
        self.topology, self.router, self._programs = topology, router, programs
        self.server = router.server
        self.drops: Counter[str] = Counter()  # packets dropped by the data plane, by reason
        self.traces: deque[dict[str, Any]] = deque(maxlen=TRACES)
        self._interfaces = Interfaces()
        self.tun = Tun()
        self.plane = settings.plane
        self.ports: dict[int, Port] = {}
        self._open_ports()
        self.carriers = Carriers()
        self.repeated = None if self.plane == "ebpf" else self._python_table()
        self.kernel = None if self.repeated else self._kernel_table()
        table = self.repeated or self.kernel
        assert table is not None
        self.decisions = Decisions(router, table, self._mac)
        # Interfaces go up last: attaching eBPF programs to one that is up stalls all others.
        self._configure(settings)
        self._macs: dict[Step, bytes] = {}
        self._peers: dict[tuple[int, bytes], int | None] = {}
        self.decisions.learn(router.foreseen())
        self._live = dict.fromkeys(self.ports, True)
        self._awaits_heart_beats = False
        self._watched_from_s = 0.0  # heart-beats received earlier are ignored
        self._sent_revision: int  # revision of the heart-beats given to the pacer
        self._wakers: dict[int, Callable[[], None]] = {}
        self._epoll, self._messages = select.epoll(), select.epoll()
        self._epoll.register(self._messages.fileno(), select.EPOLLIN)
        self._watch_devices()
        self._pacer = pacer
        router.leave_heart_beats_to_others()
        # A student's router program also handles heart-beats and neighbours.
        watched = self._programs if router.watches_neighbours else None
        self.liveness = self._watched_by_kernel(watched, start_s) if watched else None
        self.heart_beats = self._paced_heart_beats()
        self._looks = CounterSchedule(
            router.bandwidth,
            self._interfaces.byte_counters,
            table,
            can_rest=bool(self.repeated or self.liveness),
        )

    # -- setting up ------------------------------------------------------------------------------

    def _configure(self, settings: LabSettings) -> None:
        # All other addresses are routed to this interface, too: a gateway may have a route to them
        # (Guo 2009, section 5.3). Without one, the router answers by ICMP from the server's own
        # address, which the kernel must accept.
        index = socket.if_nametoindex(APPLICATION_INTERFACE)
        changes = Changes()
        changes.set_link(index, {ACCEPT_LOCAL: 1}, mtu=settings.mtu, up=True)
        prefix_length = self.topology.ip_prefix_length
        changes.add_address(index, self.topology.ipv4(self.server), prefix_length)
        changes.route_everything_to(index)
        changes.make()

    def _open_ports(self) -> list[int]:
        """Open all ports that have a cable and are not open yet; return their numbers."""
        opened = [n for n, _ in self.topology.neighbours(self.server) if n not in self.ports]
        changes = Changes()
        for number in opened:
            # The server's address is on another interface, so the kernel's IP stack rejects every
            # packet that arrives here, and leaves it to the forwarder.
            index = socket.if_nametoindex(self.topology.interface(self.server, number))
            changes.set_link(index, {RP_FILTER: 1})
        changes.make()
        for number in opened:
            name = self.topology.interface(self.server, number)
            mac = self.topology.mac_number(self.server, number).to_bytes(6, "big")
            many = len(self.topology.peers(self.server, number)) > 1
            self.ports[number] = Port(number, name, mac, ebpf=self.plane == "ebpf", shared=many)
        self._by_index = {socket.if_nametoindex(port.name): port for port in self.ports.values()}
        return opened

    def _kernel_table(self) -> KernelTable:
        from hosts.live.kernel_table import KernelTable

        ports = {number: self._kernel_port(port) for number, port in self.ports.items()}
        application = socket.if_nametoindex(APPLICATION_INTERFACE)
        return KernelTable(ports, application, programs=self._programs, **self._table_options())

    @staticmethod
    def _kernel_port(port: Port) -> KernelPort:
        from hosts.live.kernel_table import TablePort as KernelPort

        return KernelPort(socket.if_nametoindex(port.name), port.mac)

    def _paced_heart_beats(self) -> HeartBeats:
        senders = {number: sender(port.name) for number, port in self.ports.items()}
        ports = outlets(self.topology, self.server, senders, self.liveness)
        timers = self.router.timers
        interval_s = timers.confirmed_heart_beat_s if self.liveness else timers.heart_beat_s
        made = HeartBeats(self._pacer, self.server, ports, interval_s)
        self._watch_pacer(made)
        return made

    def _watch_pacer(self, heart_beats: HeartBeats) -> None:
        self._sent_revision = -1
        self.watch(heart_beats.fileno(), partial(self._pacer_ended, heart_beats))

    def _pacer_ended(self, heart_beats: HeartBeats) -> None:
        """Register with the next pacer, and excuse the neighbours' silence until then."""
        self.forget(heart_beats.fileno())
        heart_beats.register_again()
        self._watch_pacer(heart_beats)
        self.router.neighbours.excuse_silence(time.monotonic())

    def _python_table(self) -> PythonTable:
        return PythonTable(self.ports, self.tun, self._count, **self._table_options())

    def _table_options(self) -> dict[str, bool]:
        router = self.router
        return {"by_flow": router.by_flow, "sees_connections": router.sees_connections}

    def _watched_links(self) -> list[NeighbourLink]:
        index = {port.number: number for number, port in self._by_index.items()}
        return [
            NeighbourLink(step, self.topology.uid(step.peer), index[step.port], self._mac(step))
            for step in self.router.neighbours.links
        ]

    def _watched_by_kernel(self, programs: Programs, start_s: float) -> Liveness:
        """Let the kernel record heart-beats and detect silent neighbours."""
        router = self.router
        for index in () if self.kernel else self._by_index:
            programs.attach("port_in", index, egress=False)
        from_s = time.monotonic() + max(LEAST_START_S, start_s)
        links = self._watched_links()
        watch = Liveness(programs, links, router.uid, from_s)
        self._watch_from_now()
        router.leave_silence_to_others()
        self.watch(watch.bell, partial(self._process_kernel_events, watch))
        for port in self.ports.values():
            self._watch_heart_beats(port)
        return watch

    def _watch_from_now(self) -> None:
        """Discard all earlier heart-beats: no program recorded their receive times."""
        for port in self.ports.values():
            deque(port.hear(MOST_HEARD), maxlen=0)
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

    def _watch_heart_beats(self, port: Port) -> None:
        """Process each heart-beat on arrival; the kernel passes only those it does not record."""
        self.watch(port.heart_beats.fileno(), partial(self._process_port_heart_beats, port))

    def watch(self, fd: int, waker: Callable[[], None], at: select.epoll | None = None) -> None:
        """Register a file descriptor with the event loop: call `waker` whenever it is readable."""
        self._wakers[fd] = waker
        (at or self._epoll).register(fd, select.EPOLLIN)

    def forget(self, fd: int) -> None:
        """Remove a file descriptor from the event loop."""
        for each in (self._epoll, self._messages):
            # the descriptor is registered with the other epoll only
            with suppress(FileNotFoundError):
                each.unregister(fd)
        del self._wakers[fd]

    # -- growing and shrinking -------------------------------------------------------------------

    def resize(self, network: str) -> None:
        """Adapt the forwarder's ports and router to a network that has become larger or smaller."""
        self.topology = parse(network)
        self._carry_out(self.router.resize(self.topology, time.monotonic()))
        self.decisions.keep_up()
        cabled = {number for number, _ in self.topology.neighbours(self.server)}
        closed = [number for number in self.ports if number not in cabled]
        for number in closed:
            self._close_port(number)
        opened = self._open_ports()
        for number in opened:
            self._use_port(self.ports[number])
        self._peers.clear()
        if self.liveness:
            self.liveness.resize(self._watched_links(), time.monotonic() + LEAST_START_S)
            self._watch_from_now()
        self.forget(self.heart_beats.fileno())
        self.heart_beats.close()
        self.heart_beats = self._paced_heart_beats()

    def _close_port(self, number: int) -> None:
        port = self.ports.pop(number)
        for which in port.sockets:
            if which.fileno() in self._wakers:
                self.forget(which.fileno())
        port.close()
        del self._live[number]
        if self.kernel:
            self.kernel.close_port(number)

    def _use_port(self, port: Port) -> None:
        """Start using a port that was opened while the server runs."""
        self._live[port.number] = True
        if self.kernel:
            self.kernel.open_port(port.number, self._kernel_port(port))
        elif self.liveness and self._programs:
            self._programs.attach("port_in", socket.if_nametoindex(port.name), egress=False)
        self._watch_port(port)
        if self.liveness or self._awaits_heart_beats:
            self._watch_heart_beats(port)
        self._set_carrier(port.number, self._interfaces.has_carrier(port.name))

    # -- the loop --------------------------------------------------------------------------------

    def run(self) -> None:
        """Forward packets until the process is ended."""
        for port in self.ports.values():  # carrier changes before the event socket was open
            self._set_carrier(port.number, self._interfaces.has_carrier(port.name))
        while True:
            wait = min(self.router.next_poll, self._looks.next_s) - time.monotonic()
            for fd, _ in self._epoll.poll(max(0.0, wait)):
                for message, _ in self._messages.poll(0):
                    self._wakers[message]()
                waker = self._wakers.get(fd)
                if waker:
                    waker()
            now = time.monotonic()
            if self.router.next_poll <= now:
                self._process_heart_beats()
                self._carry_out(self.router.poll(now))
            if now >= self._looks.next_s:
                self._observe(now)
            self.decisions.keep_up()
            if self._sent_revision != self.router.neighbours.revision:
                self._update_heart_beats()

    def _update_heart_beats(self) -> None:
        """Update the content of heart-beats, and the silent neighbours in the kernel's table."""
        neighbours = self.router.neighbours
        self._sent_revision = neighbours.revision
        beats = self.router.heart_beats()
        self.heart_beats.say(
            {one.port: self.ports[one.port].framed(BROADCAST_MAC, one.frame) for one in beats}
        )
        if self.liveness:
            for step in neighbours.links:
                if self.liveness.hears(step) and not neighbours.hears(step):
                    self.liveness.forget(step, neighbours.lost_until(step))

    def _process_kernel_events(self, watch: Liveness) -> None:
        """Process eBPF events: neighbours silent or heard again, or traffic after a rest."""
        now = time.monotonic()
        self._looks.come()
        for step, state in watch.news():
            # Revision -1 forces an update: the kernel must forget neighbours that the router
            # rejects.
            self._sent_revision = -1
            if state & NeighbourState.HEARD:
                self._carry_out(self.router.heard(step, bool(state & NeighbourState.HEARS_ME), now))
            else:
                self._carry_out(self.router.silence(step, now))

    def _process_applications(self) -> None:
        self._looks.attend()
        end = time.monotonic() + TURN_S
        for _ in range(BATCH):
            packet = self.tun.receive()
            if packet is None:
                return
            if self.repeated and self.repeated.sent(packet):
                continue
            now = time.monotonic()
            actions = self.router.send(packet, now)
            self.decisions.learn(actions)
            self._carry_out(actions, packet)
            if min(self.router.next_poll, end) <= now:
                return

    def _process_heart_beats(self) -> None:
        """Process the heart-beats received since the router's last timer.

        Waking up for each heart-beat is the largest cost of a network at rest. So heart-beats wait
        until the router's next timer: the next own heart-beat at the latest, and always before
        silence is detected; each counts from the time at which the kernel received it. Only while a
        neighbour is missing, heart-beats are processed on arrival.
        """
        if self.liveness:
            return
        for port in self.ports.values():
            self._process_port_heart_beats(port)
        neighbours = self.router.neighbours
        awaits = len(neighbours.up) < len(neighbours.links)
        if awaits != self._awaits_heart_beats:
            self._awaits_heart_beats = awaits
            for port in self.ports.values():
                if awaits:
                    self._watch_heart_beats(port)
                else:
                    self.forget(port.heart_beats.fileno())

    def _process_port_heart_beats(self, port: Port) -> None:
        for age_s, (source_mac, frame) in port.hear(MOST_HEARD):
            came_s = time.monotonic() - age_s
            if came_s > self._watched_from_s:
                self._process_frame(port.number, source_mac, frame, came_s)

    def _process_port(self, port: Port, which: socket.socket) -> None:
        """Process received packets until a timer is due: heart-beats must not wait for packets."""
        repeated, end = self.repeated, time.monotonic() + TURN_S
        for _ in range(BATCH):
            taken = port.take(which)
            if taken is None:
                return
            if not port.is_link_state(taken):
                self._looks.come()
            now = time.monotonic()
            if not (repeated and repeated.came(port.number, taken)):
                for source_mac, frame in port.cut(taken):
                    self._process_frame(port.number, source_mac, frame, now)
            if min(self.router.next_poll, end) <= now:
                return

    def _process_frame(self, port: int, source_mac: bytes, frame: Frame, now: float) -> None:
        peer = self._peer(port, source_mac)
        if peer is None:
            self.drops["sender is no neighbour"] += 1
            return
        actions = self.router.receive(port, peer, frame, now)
        self.decisions.learn(actions)
        self._carry_out(actions, frame.data)

    def _process_carriers(self) -> None:
        for index, live in self.carriers.news():
            if index in self._by_index:
                self._set_carrier(self._by_index[index].number, live)
        if self.carriers.overrun:
            self.carriers.overrun = False
            for port in self.ports.values():
                self._set_carrier(port.number, self._interfaces.has_carrier(port.name))

    def _set_carrier(self, port: int, live: bool) -> None:
        if self._live[port] != live:
            self._live[port] = live
            self._carry_out(self.router.carrier(port, live, time.monotonic()))
            self.decisions.keep_up()

    def _carry_out(self, actions: list[Action], cause: bytes = b"") -> None:
        """Execute the router's actions: send, deliver or drop; `cause` is the incoming packet."""
        for action in actions:
            trace = trace_of(action, cause, self.topology)
            if trace:
                self.traces.append(trace)
            if isinstance(action, Send):
                self._transmit(action)
            elif isinstance(action, Deliver):
                self._count(self.tun.send(action.packet))

    def _transmit(self, send: Send) -> None:
        port = self.ports.get(send.port)
        if port is None:
            self._count("no such port")
            return
        self._count(port.send(self._mac(Step(send.port, send.peer)), send.frame))

    def _count(self, reason: str) -> None:
        if reason:
            self.drops[reason] += 1

    # -- addresses -------------------------------------------------------------------------------

    def _mac(self, step: Step) -> bytes:
        if step.peer == EVERYONE:
            return BROADCAST_MAC
        if step not in self._macs:
            port = arrival_port(self.topology, self.server, step)
            self._macs[step] = self.topology.mac_number(step.peer, port).to_bytes(6, "big")
        return self._macs[step]

    def _peer(self, port: int, mac: bytes) -> int | None:
        """Return the neighbour on a port with a MAC address, None if there is no such neighbour."""
        key = port, mac
        if key not in self._peers:
            if len(self._peers) > 4096:
                self._peers.clear()  # too many: the source MAC addresses are forged
            node = int.from_bytes(mac[2:], "big")
            known = node < self.topology.servers and node in self.router.neighbours.peers[port]
            known = known and self._mac(Step(port, node)) == mac
            self._peers[key] = node if known else None
        return self._peers[key]

    # -- state and control requests ----------------------------------------------------------------

    def _observe(self, now: float) -> None:
        self._looks.look([(number, port.name) for number, port in self.ports.items()], now)
        self._carry_out(self.decisions.tell_used(now))

    def answer(self, request: dict[str, Any]) -> Any:
        """Return the response to a control request, None if the request is unknown."""
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
        """Return the state of the server's router and data plane, as plain data for display."""
        return {
            **self.router.state(),
            "plane": self.plane,
            "repeated" if self.repeated else "kernel": self.decisions.table.counters(),
            "heart-beats heard by the kernel": self.liveness.heart_beats if self.liveness else None,
            "carrier": {str(number): live for number, live in self._live.items()},
            "plane_drops": dict(self.drops),
        }
