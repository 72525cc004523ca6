"""A live server: one process that joins a router to real ports and a real application interface.

It is the only place where a router meets a clock and sockets. Packets go through its `send` or
`receive`, and what it answers is put on the ports. What it would say again of packets like those is
repeated without asking it: by the kernel, which wakes nobody up for them, or here
(python_table.py). One loop waits for packets, news of cables, control requests and the router's own
timers.

State: sockets, byte counters of the ports, the trace of marked packets. A forwarder that dies is a
server that died: its application interface is gone with it, its routes and TCP connections too.
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
from hosts.live.bpf import Programs
from hosts.live.decisions import Decisions
from hosts.live.devices import APPLICATION_INTERFACE, BROADCAST_MAC, Carriers, Port, Tun, sender
from hosts.live.liveness import Link, Liveness, State
from hosts.live.looks import Looks
from hosts.live.pacer import HeartBeats, outlets
from hosts.live.python_table import PythonTable
from hosts.live.settings import LabSettings
from hosts.live.tracing import trace_of
from hosts.wire.frame import Frame
from topos.base.spec import parse
from topos.base.topology import Topology

if TYPE_CHECKING:
    from hosts.live.kernel_table import KernelTable
    from hosts.live.kernel_table import Port as KernelPort

# So many packets of one socket are handled, and for so long, before others have their turn, and
# timers. Messages have theirs before each other turn: what waits for them is a whole network.
BATCH, TURN_S = 64, 1e-3
# A heart-beat that came while the kernel's table of links was filled says what the next one says,
# and the kernel would not know what a router learned from it. So long they may be under way.
FILLED_S = 0.1
MOST_HEARD = 4096  # heart-beats of one port at a time: a full socket of them, forged or not
LEAST_START_S = 1.0  # before the silence of one who was never heard counts
TRACES = 512


class Forwarder:
    """The loop of one server; it runs in the server's network namespace.

    Parameters
    ----------
    topology, router, settings
        The network, what decides, and how it runs.
    pacer : socket
        Of the process that sends heart-beats.
    programs : Programs, optional
        This server's part in the lab's programs, where the kernel loads any.
    start_s : float
        So long others may take to start that start with this one; until then they are not missed.
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
        self.drops: Counter[str] = Counter()  # what the data plane itself had to drop
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
        # Only now: to attach programs to an interface that is up, the kernel holds up all others.
        self._configure(settings)
        self._macs: dict[Step, bytes] = {}
        self._peers: dict[tuple[int, bytes], int | None] = {}
        self.decisions.learn(router.foreseen())
        self._live = dict.fromkeys(self.ports, True)
        self._awaits_heart_beats = False
        self._watched_from_s = 0.0  # heart-beats that came earlier are not looked at
        self._said: int  # the revision of what the pacer sends
        self._wakers: dict[int, Callable[[], None]] = {}
        self._epoll, self._messages = select.epoll(), select.epoll()
        self._epoll.register(self._messages.fileno(), select.EPOLLIN)
        self._watch_devices()
        self._pacer = pacer
        router.leave_heart_beats_to_others()
        # A router that hands its frames on, as to a student's, leaves neighbours to that one.
        watched = self._programs if router.watches_neighbours else None
        self.liveness = self._watched_by_kernel(watched, start_s) if watched else None
        self.heart_beats = self._paced_heart_beats()
        self._looks = Looks(
            router.bandwidth,
            self._interfaces.byte_counters,
            table,
            can_rest=bool(self.repeated or self.liveness),
        )

    # -- setting up ------------------------------------------------------------------------------

    def _configure(self, settings: LabSettings) -> None:
        # It is the way also to what is no server's address: a gateway may know further (Guo 2009,
        # section 5.3). Where there is none, the router says so by ICMP, from the server's own
        # address, which is to be accepted.
        index = socket.if_nametoindex(APPLICATION_INTERFACE)
        changes = Changes()
        changes.set_link(index, {ACCEPT_LOCAL: 1}, mtu=settings.mtu, up=True)
        prefix_length = self.topology.ip_prefix_length
        changes.add_address(index, self.topology.ipv4(self.server), prefix_length)
        changes.route_everything_to(index)
        changes.make()

    def _open_ports(self) -> list[int]:
        """Open the ports that have a cable and are not open yet; return their numbers."""
        opened = [n for n, _ in self.topology.neighbours(self.server) if n not in self.ports]
        changes = Changes()
        for number in opened:
            # The server's address is on another interface: so the kernel's own IP stack refuses
            # every packet that comes in here, and leaves it to the forwarder.
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
        return KernelTable(ports, application, programs=self._programs, **self._wanted())

    @staticmethod
    def _kernel_port(port: Port) -> KernelPort:
        from hosts.live.kernel_table import Port as KernelPort

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
        self._said = -1
        self.watch(heart_beats.fileno(), partial(self._pacer_ended, heart_beats))

    def _pacer_ended(self, heart_beats: HeartBeats) -> None:
        """Register with the next pacer; the neighbours' silence until then says nothing of them."""
        self.forget(heart_beats.fileno())
        heart_beats.register_again()
        self._watch_pacer(heart_beats)
        self.router.neighbours.excuse_silence(time.monotonic())

    def _python_table(self) -> PythonTable:
        return PythonTable(self.ports, self.tun, self._count, **self._wanted())

    def _wanted(self) -> dict[str, bool]:
        router = self.router
        return {"by_flow": router.by_flow, "sees_connections": router.sees_connections}

    def _watched_links(self) -> list[Link]:
        index = {port.number: number for number, port in self._by_index.items()}
        return [
            Link(step, self.topology.uid(step.peer), index[step.port], self._mac(step))
            for step in self.router.neighbours.links
        ]

    def _watched_by_kernel(self, programs: Programs, start_s: float) -> Liveness:
        """Leave it to the kernel to note heart-beats and to find silence."""
        router = self.router
        for index in () if self.kernel else self._by_index:
            programs.attach("port_in", index, egress=False)
        from_s = time.monotonic() + max(LEAST_START_S, start_s)
        links = self._watched_links()
        watch = Liveness(programs, links, router.uid, from_s)
        self._watch_from_now()
        router.leave_silence_to_others()
        self.watch(watch.bell, partial(self._from_kernel, watch))
        for port in self.ports.values():
            self._watch_heart_beats(port)
        return watch

    def _watch_from_now(self) -> None:
        """Look at no heart-beat that came before: where no program was yet, none noted when."""
        for port in self.ports.values():
            deque(port.hear(MOST_HEARD), maxlen=0)
        self._watched_from_s = time.monotonic() + FILLED_S

    def _watch_devices(self) -> None:
        self.watch(self.tun.fd, self._from_applications)
        self.watch(self.carriers.socket.fileno(), self._from_cables)
        for port in self.ports.values():
            self._watch_port(port)

    def _watch_port(self, port: Port) -> None:
        for which in (*port.messages, *port.packets):
            at = self._messages if which in port.messages else self._epoll
            self.watch(which.fileno(), partial(self._from_port, port, which), at)

    def _watch_heart_beats(self, port: Port) -> None:
        """Take each heart-beat as it comes: of those that the kernel notes, what it refuses."""
        self.watch(port.heart_beats.fileno(), partial(self._heart_beats_from, port))

    def watch(self, fd: int, waker: Callable[[], None], at: select.epoll | None = None) -> None:
        """Call that whenever the descriptor can be read."""
        self._wakers[fd] = waker
        (at or self._epoll).register(fd, select.EPOLLIN)

    def forget(self, fd: int) -> None:
        """Undo `watch`."""
        for each in (self._epoll, self._messages):
            with suppress(FileNotFoundError):  # it is among the others
                each.unregister(fd)
        del self._wakers[fd]

    # -- growing and shrinking -------------------------------------------------------------------

    def resize(self, network: str) -> None:
        """Take the news that the network has become larger or smaller."""
        self.topology = parse(network)
        self._act(self.router.resize(self.topology, time.monotonic()))
        self.decisions.keep_up()
        cabled = {number for number, _ in self.topology.neighbours(self.server)}
        closed = [number for number in self.ports if number not in cabled]
        for number in closed:
            self._close_port(number)
        opened = self._open_ports()
        for number in opened:
            self._take_port(self.ports[number])
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

    def _take_port(self, port: Port) -> None:
        """Use a port that was opened while the server runs."""
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
        """Forward until the process is ended."""
        for port in self.ports.values():  # what happened before anybody listened
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
                self._hear()
                self._act(self.router.poll(now))
            if now >= self._looks.next_s:
                self._observe(now)
            self.decisions.keep_up()
            if self._said != self.router.neighbours.revision:
                self._say()

    def _say(self) -> None:
        """Let heart-beats say whom this server hears, and the kernel know whom it does not."""
        neighbours = self.router.neighbours
        self._said = neighbours.revision
        beats = self.router.heart_beats()
        self.heart_beats.say(
            {one.port: self.ports[one.port].framed(BROADCAST_MAC, one.frame) for one in beats}
        )
        if self.liveness:
            for step in neighbours.links:
                if self.liveness.hears(step) and not neighbours.hears(step):
                    self.liveness.forget(step, neighbours.lost_until(step))

    def _from_kernel(self, watch: Liveness) -> None:
        """Take in who has fallen silent or is heard again; or the end of a rest."""
        now = time.monotonic()
        self._looks.come()
        for step, state in watch.news():
            self._said = -1  # what the router does not believe, the kernel is to forget
            if state & State.HEARD:
                self._act(self.router.heard(step, bool(state & State.HEARS_ME), now))
            else:
                self._act(self.router.silence(step, now))

    def _from_applications(self) -> None:
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
            self._act(actions, packet)
            if min(self.router.next_poll, end) <= now:
                return

    def _hear(self) -> None:
        """Take in the heart-beats that have come since the router last had something to do.

        To be woken up by each of them is what costs most on a network that is at rest. So they
        wait until the router's own timers fire: until the next heart-beat at the latest, and always
        before silence is noticed; each counts from the moment at which the kernel got it. Only
        where a neighbour is missing, it is heard at once.
        """
        if self.liveness:
            return
        for port in self.ports.values():
            self._heart_beats_from(port)
        neighbours = self.router.neighbours
        awaits = len(neighbours.up) < len(neighbours.links)
        if awaits != self._awaits_heart_beats:
            self._awaits_heart_beats = awaits
            for port in self.ports.values():
                if awaits:
                    self._watch_heart_beats(port)
                else:
                    self.forget(port.heart_beats.fileno())

    def _heart_beats_from(self, port: Port) -> None:
        for age_s, (source_mac, frame) in port.hear(MOST_HEARD):
            came_s = time.monotonic() - age_s
            if came_s > self._watched_from_s:
                self._came(port.number, source_mac, frame, came_s)

    def _from_port(self, port: Port, which: socket.socket) -> None:
        """Take packets in, but no more once a timer is due: heart-beats must not wait for them."""
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
                    self._came(port.number, source_mac, frame, now)
            if min(self.router.next_poll, end) <= now:
                return

    def _came(self, port: int, source_mac: bytes, frame: Frame, now: float) -> None:
        peer = self._peer(port, source_mac)
        if peer is None:
            self.drops["sender is no neighbour"] += 1
            return
        actions = self.router.receive(port, peer, frame, now)
        self.decisions.learn(actions)
        self._act(actions, frame.data)

    def _from_cables(self) -> None:
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
            self._act(self.router.carrier(port, live, time.monotonic()))
            self.decisions.keep_up()

    def _act(self, actions: list[Action], cause: bytes = b"") -> None:
        """Do what the router wants; `cause` is the packet that made it want so."""
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
        """Return the neighbour on that port with that MAC address, None if it is none."""
        key = port, mac
        if key not in self._peers:
            if len(self._peers) > 4096:
                self._peers.clear()  # somebody makes addresses up
            node = int.from_bytes(mac[2:], "big")
            known = node < self.topology.servers and node in self.router.neighbours.peers[port]
            known = known and self._mac(Step(port, node)) == mac
            self._peers[key] = node if known else None
        return self._peers[key]

    # -- what others want to know ----------------------------------------------------------------

    def _observe(self, now: float) -> None:
        self._looks.look([(number, port.name) for number, port in self.ports.items()], now)
        self._act(self.decisions.tell_used(now))

    def answer(self, request: dict[str, Any]) -> Any:
        """Answer a request of the control socket, None if it is none."""
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
        """Return the router's state and the data plane's."""
        return {
            **self.router.state(),
            "plane": self.plane,
            "repeated" if self.repeated else "kernel": self.decisions.table.counters(),
            "heart-beats heard by the kernel": self.liveness.heart_beats if self.liveness else None,
            "carrier": {str(number): live for number, live in self._live.items()},
            "plane_drops": dict(self.drops),
        }
