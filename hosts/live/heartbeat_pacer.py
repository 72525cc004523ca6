"""The pacer: the process that sends the heartbeats of all servers of a lab on time.

The content of heartbeats is up to the servers, which pass their frames to the pacer, and new
frames whenever they change. The pacer does nothing but send them on time: it has a real-time
priority, so that busy servers are not taken for dead. It always sleeps at least half of the time:
the processors are needed for forwarding.

A server passes the sockets of its ports and one end of a connection to the pacer. The kernel closes
the other end when the server's forwarder ends, for whatever reason; then the pacer stops sending
for the server. A forwarder that hangs is not detected.

When the pacer ends, the nursery starts another one, and every forwarder whose connection was closed
registers its sockets again. Meanwhile no link goes down: the clock in the kernel's table of links
stands still, and the new pacer continues this clock once all servers have registered.

All servers have the same interval. The interval is divided into ticks, over which segments (a
switch with its cables, or a cable between two servers) are spread, so that the work of a tick is
short. The ports of one segment send one after the other: all of them hear each other, and what the
kernel keeps of a port is fetched from memory once for all heartbeats that it then receives, which
is most of their cost.

While all ports of a segment hear each other, and report so, each port sends a unicast heartbeat to
one other port only, the next one at each interval. A received frame proves that the sender's cable
works outwards and the receiver's inwards: if each port was heard by one other and heard one other,
all cables of the segment work, and all its servers are alive. So each port counts as heard by all.
The pacer then sends only the first heartbeat: the kernel of the receiver sends the receiver's own
to the next port, and so on, so that heartbeats go round. When one is missed, or its content
changes, all ports broadcast for a while: with long queues a round takes longer than its timeout.

While a lab starts, a segment sends nothing before all its servers have registered: every forwarder
excuses silent neighbours meanwhile. In bcube,10,2 most segments are complete only when the last of
1,000 servers has started; each port would broadcast to nine others until then. A segment waits for
half of the excused time at most, and only while servers keep registering. The excuse ends with the
first heartbeats of a complete segment, and soon after all servers of the network have started.

A heartbeat that was not received is sent again a moment later: the kernel's table of links
(liveness.h) shows which neighbour misses it. So heartbeats need not be frequent enough to tolerate
the loss of one. If this pacer does not send a neighbour's heartbeats, since the neighbour runs on
another computer, the table does not show losses, and heartbeats are twice as frequent there.

The pacer shows the kernel the time up to which it has sent all due heartbeats. If the pacer is
late, for example since the whole machine stood still, no neighbour counts as silent before the
pacer has caught up.
"""

from __future__ import annotations

import gc
import json
import mmap
import os
import resource
import select
import signal
import socket
import struct
import time
import traceback
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from pillarbox.hosts.linux.bpf import Map
from pillarbox.hosts.linux.calls import die_with_last_writer, readable
from pillarbox.hosts.linux.rights import take_role
from pillarbox.hosts.live.devices import heartbeat_socket
from pillarbox.hosts.live.heartbeats import (
    MOST_REPEATS,
    BeatingPort,
    HeartbeatRound,
    HeartbeatSegment,
    SimultaneousSegments,
)
from pillarbox.hosts.live.liveness import Liveness, NeighbourLinkTable
from pillarbox.topos.base.topology import Topology

TICK_S = 0.005  # duration of a tick, the heartbeat pacer's unit of time, in seconds
MOST_PORTS = 250  # maximum number of sockets (ports) in one registration with the pacer
LONGEST_MESSAGE = 1 << 18
PRIORITY = 1  # real-time priority of the heartbeat pacer
RLIMIT_RTTIME = 15  # number of the limit of real-time CPU time, from sys/resource.h
CATCH_UP = 1.5  # maximum progress of the sending clock in one tick, in ticks, after a delay
HEARD_WITHIN = 3  # number of ticks after which a heartbeat that was not received is sent again
# Maximum seconds for all forwarders to register with a restarted pacer, and between two
# registrations of a starting lab.
REGISTERED_S = 0.5
# Seconds after the start of all servers in which never heard neighbours are excused.
FIRST_HEARD_S = 1.0
MOST_LATE_S = 1.0  # maximum lag of the sending clock that eBPF accepts (MOST_LATE_NS)
# Maximum real-time CPU time without sleep, in microseconds; beyond it the kernel kills the pacer.
MOST_AT_ONCE_US = 500_000
NS = 1_000_000_000
_FRAME = struct.Struct("=HH")


def segment_number(servers: int, server: int, far: int) -> int:
    """Return the number of a segment: a server's port and all ports that hear its heartbeats.

    >>> segment_number(20, 3, 21), segment_number(20, 3, 16), segment_number(20, 16, 3)
    (21, -76, -76)
    """
    return far if far >= servers else -(min(server, far) * servers + max(server, far))


class HeartbeatPort(NamedTuple):
    """A server's port for which the pacer sends heartbeats: socket, segment and links."""

    socket: socket.socket  # packet socket that sends heartbeats only
    segment: int  # number of the segment: the group of ports that hear each other
    hears: Mapping[int, int] = {}  # indices of the port's links in the kernel's table, by neighbour


def heartbeat_ports(
    topology: Topology, server: int, liveness: Liveness | None
) -> dict[int, HeartbeatPort]:
    """Open the sockets by which a server sends heartbeats; return its ports, by port number."""
    found = {}
    for port, plug in topology.neighbours(server):
        sender = heartbeat_socket(topology.interface(server, port))
        segment = segment_number(topology.servers, server, plug.node)
        hears = liveness.link_indices(port) if liveness else {}
        found[port] = HeartbeatPort(sender, segment, hears)
    return found


class PacerConnection:
    """A forwarder's connection to the heartbeat pacer, the process that sends all heartbeats.

    Parameters
    ----------
    pacer : socket
        Socket on which the pacer registers servers.
    server : int
        Number of this server.
    ports : mapping of int to Outlet
        This server's ports.
    interval_s : float
        Interval between heartbeats, in seconds.
    start_s : float
        Upper bound for the start-up of other servers, in seconds; 0 if they run.
    """

    def __init__(
        self,
        pacer: socket.socket,
        server: int,
        ports: Mapping[int, HeartbeatPort],
        interval_s: float,
        start_s: float = 0.0,
    ) -> None:
        self._places = {port: place for place, port in enumerate(ports)}
        self._pacer, self._sockets = pacer, [one.socket for one in ports.values()]
        described = [(one.segment, list(one.hears.items())) for one in ports.values()]
        self._message = {"server": server, "interval_s": interval_s, "ports": described}
        self._connection = self._register(start_s)

    def _register(self, start_s: float = 0.0) -> socket.socket:
        """Register the server's ports with the heartbeat pacer; return the connection."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            descriptors = [theirs.fileno(), *(one.fileno() for one in self._sockets)]
            message = {**self._message, "start_s": start_s}
            socket.send_fds(self._pacer, [json.dumps(message).encode()], descriptors)
        return ours

    def register_again(self) -> None:
        """Register the server's ports with a new pacer, after the previous one has ended."""
        self._connection.close()
        self._connection = self._register()

    def set_frames(self, frames: Mapping[int, bytes]) -> None:
        """Tell the pacer the heartbeats that it sends from now on, one frame per port."""
        parts = (_FRAME.pack(self._places[port], len(data)) + data for port, data in frames.items())
        # The pacer has ended, which `fileno` signals.
        with suppress(BrokenPipeError, ConnectionResetError):
            self._connection.send(b"".join(parts) or b"\0")

    def fileno(self) -> int:
        """Return the file descriptor that becomes readable when the heartbeat pacer has ended."""
        return self._connection.fileno()

    def close(self) -> None:
        """End the connection to the pacer, which then sends no more heartbeats of this server."""
        for each in (self._connection, *self._sockets):
            each.close()


class _SentTick(NamedTuple):
    """The heartbeats that the pacer has sent in one tick."""

    to_all: Sequence[HeartbeatSegment] = ()
    round: HeartbeatRound | None = None
    at_ns: int = 0  # time at which sending of the tick's heartbeats started, in ns


@dataclass(eq=False)
class _RegisteredServer:
    connection: socket.socket
    ports: list[BeatingPort]

    def receive_frames(self) -> bool:
        """Receive new heartbeat frames from a forwarder; return False if the server has ended."""
        message = self.connection.recv(LONGEST_MESSAGE)
        if not message:
            return False
        for port in self.ports:
            port.frame = b""
        at = 0
        while at + _FRAME.size < len(message):
            place, size = _FRAME.unpack_from(message, at)
            at += _FRAME.size
            self.ports[place].frame = message[at : at + size]
            at += size
        return True

    def close(self) -> None:
        for each in (self.connection, *(port.socket for port in self.ports)):
            each.close()


class SendingClock:
    """Clock that shows until when all due heartbeats were sent; it lags while the pacer is late.

    The clock catches up gradually, so that the intervals between a server's heartbeats are never
    much longer by this clock than planned.

    >>> clock = SendingClock(now_s=10.0)
    >>> round(clock.after_tick(10.005), 6), round(clock.after_tick(10.505), 6)
    (10.005, 10.0125)
    """

    def __init__(self, now_s: float) -> None:
        self._to_s = now_s

    def after_tick(self, now_s: float) -> float:
        """Return the time of the sending clock after the heartbeats of a tick were sent."""
        self._to_s = min(now_s, self._to_s + CATCH_UP * TICK_S)
        return self._to_s


def send_kernel_tables(
    pacer: socket.socket, maps: Mapping[str, Map], running: Collection[int] = ()
) -> None:
    """Send the pacer two kernel tables: its sending clock, in ns, and the links of all servers.

    `running` are the servers for which an earlier pacer has sent heartbeats.
    """
    files = [maps[name].fd for name in ("paced", "links", "vouched", "answers")]
    message = {"links": maps["links"].entries, "running": list(running)}
    socket.send_fds(pacer, [json.dumps(message).encode()], files)


def report_all_started(pacer: socket.socket) -> None:
    """Report to the pacer that all servers of the network have started."""
    pacer.send(json.dumps({"all started": True}).encode())


class HeartbeatPacer:
    """Event loop of the pacer, which sends the heartbeats of all registered servers."""

    def __init__(self, arrivals: socket.socket) -> None:
        self._arrivals = arrivals
        # servers registered with the pacer, by the file descriptor of their connection
        self._servers: dict[int, _RegisteredServer] = {}
        self._segments: dict[int, HeartbeatSegment] = {}
        self._ticks: list[SimultaneousSegments] = []
        # Segments whose heartbeat frames have changed, so that they are sent in the next tick.
        self._changed: set[HeartbeatSegment] = set()
        # Heartbeats sent in the last ticks, oldest first, to send unreceived ones again.
        self._unconfirmed = deque([_SentTick()] * HEARD_WITHIN)
        self._clock_memory = memoryview(bytearray(8)).cast("Q")
        self._heard_table: NeighbourLinkTable | None = None
        self._clock = SendingClock(time.monotonic())
        self._awaited: set[int] = set()  # servers that have not registered with this new pacer yet
        self._awaited_until_s = 0.0
        self._registered_s = 0.0  # time of the last registration of a server
        self._events = select.epoll()
        self._events.register(arrivals.fileno(), select.EPOLLIN)

    def run(self) -> None:
        """Send heartbeats until the last server has ended and no more servers can start."""
        tick, due_s = 0, time.monotonic()
        while self._servers or self._arrivals.fileno() >= 0:
            wait_s = max(0.0, due_s - time.monotonic()) if self._servers else None
            # `readable` waits for the next tick: epoll's timeout has millisecond resolution.
            if readable([self._events], wait_s):
                self._process_messages()
            began_s = time.monotonic()
            if wait_s is None:
                # While no server is registered no heartbeat is late: restart the sending clock.
                due_s = began_s
                if not self._awaited:
                    self._clock = SendingClock(began_s)
            if began_s < due_s or not self._ticks:
                continue
            self._send_tick(tick)
            ended_s = time.monotonic()
            due_s = max(due_s + TICK_S, ended_s + (ended_s - began_s))
            tick = (tick + 1) % len(self._ticks)
            if not self._awaited or ended_s > self._awaited_until_s:
                self._awaited.clear()
                self._clock_memory[0] = int(self._clock.after_tick(ended_s) * NS)

    def _send_tick(self, number: int) -> None:
        tick, half_way = self._ticks[number], self._ticks[number - len(self._ticks) // 2]
        due = tick.segments + [each for each in half_way.segments if not each.is_whole]
        due += self._changed.difference(due)
        self._changed.clear()
        due = [each for each in due if each.has_begun or self._begin_segment(each)]
        for segment in due:
            segment.repeats = MOST_REPEATS
        again = self._segments_to_repeat(due)
        for segment in again:
            segment.repeats -= 1
        for segment in due + again:
            segment.broadcast()
        going = tick.next_round()
        self._unconfirmed.append(_SentTick(due + again, going, going.burst.send() if going else 0))

    def _begin_segment(self, segment: HeartbeatSegment) -> bool:
        """Return True if a new segment begins now: it is complete or has waited long enough."""
        now_s = time.monotonic()
        if segment.is_complete:
            segment.has_begun = True
            if self._heard_table:  # links have the usual timeout from now on
                self._heard_table.end_excuses(segment.links, int(now_s * NS))
        elif now_s >= min(segment.waits_until_s, self._registered_s + REGISTERED_S):
            segment.has_begun = True
        return segment.has_begun

    def _segments_to_repeat(self, due: list[HeartbeatSegment]) -> list[HeartbeatSegment]:
        """Return the segments that repeat unreceived heartbeats; segments now due are left out."""
        earlier, table = self._unconfirmed.popleft(), self._heard_table
        if not table:
            return []
        missed = [
            each for each in earlier.to_all if each not in due and each.must_repeat_broadcast(table)
        ]
        if earlier.round:
            missed += earlier.round.record_heard_segments(table, earlier.at_ns)
        return missed

    def _process_messages(self) -> None:
        for descriptor, _ in self._events.poll(0):
            if descriptor == self._arrivals.fileno():
                self._accept_message()
                continue
            server = self._servers[descriptor]
            before = [port.frame for port in server.ports]
            if server.receive_frames():
                for port, frame in zip(server.ports, before, strict=True):
                    # Unchanged heartbeats are sent, too: perhaps a neighbour does not hear this
                    # server.
                    self._segments[port.segment].restart_broadcast()
                    if port.frame not in (frame, b""):
                        self._changed.add(self._segments[port.segment])
            else:
                del self._servers[descriptor]
                for port in server.ports:
                    self._remove_port(port)
                server.close()

    def _accept_message(self) -> None:
        data, descriptors, _, _ = socket.recv_fds(self._arrivals, LONGEST_MESSAGE, MOST_PORTS + 1)
        if not data:
            self._events.unregister(self._arrivals.fileno())
            self._arrivals.close()
            return
        message = json.loads(data)
        if "all started" in message:
            self._end_start()
            return
        if "links" in message:
            clock, links, vouched, answers = descriptors
            self._clock_memory = memoryview(mmap.mmap(clock, mmap.PAGESIZE)).cast("Q")
            self._heard_table = NeighbourLinkTable(links, vouched, answers, message["links"])
            for each in descriptors:
                os.close(each)
            for server in self._servers.values():
                for port in server.ports:
                    self._heard_table.reserve_cells_of(port.hears.values())
            self._continue_clock_for(set(message["running"]))
            return
        if not self._ticks:
            ticks = max(1, round(message["interval_s"] / TICK_S))
            self._ticks = [SimultaneousSegments() for _ in range(ticks)]
        connection, *sockets = (socket.socket(fileno=each) for each in descriptors)
        ports = []
        for end, (segment, hears) in zip(sockets, message["ports"], strict=True):
            ports.append(BeatingPort(message["server"], end, segment, dict(hears)))
            self._add_port(ports[-1], message["start_s"])
        self._registered_s = time.monotonic()
        self._servers[connection.fileno()] = _RegisteredServer(connection, ports)
        self._events.register(connection.fileno(), select.EPOLLIN)
        self._awaited.discard(message["server"])

    def _end_start(self) -> None:
        """Let all segments begin, and end the excuses of neighbours that were never heard."""
        for segment in self._segments.values():
            segment.waits_until_s = 0.0
        if self._heard_table:
            ports = (port for server in self._servers.values() for port in server.ports)
            links = (link for port in ports for link in port.hears.values())
            self._heard_table.end_excuses(links, int((time.monotonic() + FIRST_HEARD_S) * NS))

    def _continue_clock_for(self, running: set[int]) -> None:
        """Continue the previous pacer's sending clock once these servers have registered."""
        if running:
            registered = {port.server for one in self._servers.values() for port in one.ports}
            self._awaited = running - registered
            now_s = time.monotonic()
            self._awaited_until_s = now_s + REGISTERED_S
            if self._clock_memory[0]:
                self._clock = SendingClock(max(now_s - MOST_LATE_S, self._clock_memory[0] / NS))

    def _add_port(self, port: BeatingPort, start_s: float) -> None:
        if port.segment not in self._segments:
            waits_until_s = time.monotonic() + start_s / 2
            segment = HeartbeatSegment(min(self._ticks, key=len), waits_until_s=waits_until_s)
            self._segments[port.segment] = segment
        self._segments[port.segment].join(port)
        if self._heard_table and self._awaited:
            self._heard_table.reserve_cells_of(port.hears.values())

    def _remove_port(self, port: BeatingPort) -> None:
        segment = self._segments[port.segment]
        segment.leave(port)
        if not segment.ports:
            del self._segments[port.segment]
            self._changed.discard(segment)
            segment.tick.segments.remove(segment)


def registration_sockets() -> tuple[socket.socket, socket.socket]:
    """Return the socket pair for registration with the pacer: servers' end, pacer's end.

    The process that starts pacers holds both, so that messages without a pacer wait for the next
    one.
    """
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def fork_pacer(theirs: socket.socket, lifeline: int) -> int:
    """Fork the heartbeat pacer, which accepts servers on a socket; return its process id.

    The pacer ends when the last writer of the pipe `lifeline` does.
    """
    process = os.fork()
    if process:
        return process
    try:
        signal.set_wakeup_fd(-1)
        kept = sorted((2, theirs.fileno(), lifeline))
        for below, above in pairwise([*kept, resource.getrlimit(resource.RLIMIT_NOFILE)[0]]):
            os.closerange(below + 1, above)
        die_with_last_writer(lifeline)
        prioritise()
        take_role("heartbeats")
        gc.disable()
        HeartbeatPacer(theirs).run()
        os._exit(0)
    finally:
        traceback.print_exc()
        os._exit(1)


@cache
def may_prioritise() -> bool:
    """Return True if processes of this lab may have real-time priority; this one keeps its own."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(PRIORITY))
    except PermissionError:
        return False
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    return True


def prioritise() -> None:
    """Set the pacer's real-time priority, if permitted, and its limits of files and CPU time."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    resource.setrlimit(RLIMIT_RTTIME, (MOST_AT_ONCE_US, MOST_AT_ONCE_US))
    with suppress(PermissionError):  # some containers forbid real-time priority
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(PRIORITY))
