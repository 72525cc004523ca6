"""The process that sends the heart-beats of all servers of a lab, each in time.

What a heart-beat says is its server's business; it hands over the frames, and new ones whenever
they change. To send them in time is this process's, which does nothing else: it has a real-time
priority, so that servers that have much to do are not taken for dead. Of its time it sleeps half
at least, whatever happens: the processors are for those who carry packets.

A server hands over the sockets of its ports and one end of a connection to this process. The kernel
closes the other end when the server's forwarder ends, however that comes about; then nothing more
is sent for it. A forwarder that hangs is not noticed.

When this process ends, the nursery starts another one, and every forwarder whose connection was
closed hands over its sockets again. Meanwhile no link goes down: the clock in the kernel's table of
links stands still, and the new process continues that clock once all servers have registered.

All servers have one interval. It is divided into ticks, and segments (a switch with its cables,
or a cable between two servers) spread over them, so that a tick's work is short. The ports of one
segment beat one after the other. All of them hear each other, and what the kernel keeps of a port
comes out of memory once for all that it then hears, which is most of what a heart-beat costs.

While all ports of a segment hear each other, and say so, each beats to one other only, the next one
at each interval. A frame that passes shows that one port's cable carries outwards and the other's
inwards: where each port was heard by one and heard one, all cables of the segment work, and all its
servers live. So each counts as heard by all. This process then sends the first heart-beat alone:
the kernel of who is sent one sends the server's own to the next, and so it goes round. As soon as
one is missed, or says something new, all beat to all, and go on so for a while: where queues are
long a round takes longer than it is waited for.

What was not heard is sent again a moment later: a neighbour that misses a heart-beat would ask for
it, and here the kernel's table of links (liveness.h) shows who misses one. So heart-beats need not
be so frequent that one may be lost. Where this process does not send a neighbour's heart-beats,
as on another computer, the table cannot tell, and there they are twice as frequent.

This process tells the kernel up to when it has sent what was due. Where it is late after all, as
when the whole machine stood still, nobody is taken for silent before it has made up for that.
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
from itertools import pairwise
from typing import NamedTuple

from hosts.linux.bpf import Map
from hosts.linux.calls import end_with, readable
from hosts.linux.rights import take_role
from hosts.live.beats import MOST_REPEATS, Port, Round, Segment, Tick
from hosts.live.liveness import HeardTable, Liveness
from topos.base.topology import Topology

TICK_S = 0.005
MOST_PORTS = 250  # sockets that one message may carry
LONGEST_MESSAGE = 1 << 18
PRIORITY = 1
RLIMIT_RTTIME = 15  # of sys/resource.h
CATCH_UP = 1.5  # so many ticks' time at most passes in a tick for those who wait to hear
HEARD_WITHIN = 3  # ticks; what was not heard by then is sent again
REGISTERED_S = 0.5  # upper bound for all forwarders to register with a pacer that was restarted
MOST_LATE_S = 1.0  # that the kernel lets this clock be late (MOST_LATE_NS of liveness.h)
MOST_AT_ONCE_US = 500_000  # of real time without sleeping, or the kernel ends this process
NS = 1_000_000_000
_FRAME = struct.Struct("=HH")


def segment(servers: int, server: int, far: int) -> int:
    """Return the number that a server's port shares with those that hear it, and no others.

    >>> segment(20, 3, 21), segment(20, 3, 16), segment(20, 16, 3)
    (21, -76, -76)
    """
    return far if far >= servers else -(min(server, far) * servers + max(server, far))


class Outlet(NamedTuple):
    """A port, as far as heart-beats go."""

    socket: socket.socket  # one that sends on its cable, for this purpose only
    segment: int  # a number that it shares with all ports that hear it
    hears: Mapping[int, int] = {}  # its links' places in the kernel's table, by neighbour


def outlets(
    topology: Topology,
    server: int,
    sockets: Mapping[int, socket.socket],
    liveness: Liveness | None,
) -> dict[int, Outlet]:
    """Return a server's ports, by number; the kernel's table is known where there is `liveness`."""
    found = {}
    for port, plug in topology.neighbours(server):
        hears = liveness.places(port) if liveness else {}
        found[port] = Outlet(sockets[port], segment(topology.servers, server, plug.node), hears)
    return found


class HeartBeats:
    """The heart-beats of one server, as its forwarder sees them.

    Parameters
    ----------
    pacer : socket
        Where the pacer takes new servers.
    server : int
        Which one it is.
    ports : mapping of int to Outlet
        Its ports.
    interval_s : float
        From one heart-beat to the next.
    """

    def __init__(
        self, pacer: socket.socket, server: int, ports: Mapping[int, Outlet], interval_s: float
    ) -> None:
        self._places = {port: place for place, port in enumerate(ports)}
        self._pacer, self._sockets = pacer, [one.socket for one in ports.values()]
        described = [(one.segment, list(one.hears.items())) for one in ports.values()]
        self._message = {"server": server, "interval_s": interval_s, "ports": described}
        self._connection = self._registered()

    def _registered(self) -> socket.socket:
        """Hand the ports over to the pacer; return the connection to it."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            descriptors = [theirs.fileno(), *(one.fileno() for one in self._sockets)]
            socket.send_fds(self._pacer, [json.dumps(self._message).encode()], descriptors)
        return ours

    def register_again(self) -> None:
        """Hand the ports over to a new pacer, as the one before has ended."""
        self._connection.close()
        self._connection = self._registered()

    def say(self, frames: Mapping[int, bytes]) -> None:
        """Send these frames from now on, one out of each port."""
        parts = (_FRAME.pack(self._places[port], len(data)) + data for port, data in frames.items())
        with suppress(BrokenPipeError, ConnectionResetError):  # `fileno` tells of the pacer's end
            self._connection.send(b"".join(parts) or b"\0")

    def fileno(self) -> int:
        """Return the descriptor that can be read as soon as the pacer has ended."""
        return self._connection.fileno()

    def close(self) -> None:
        """Fall silent for ever."""
        for each in (self._connection, *self._sockets):
            each.close()


class _Sent(NamedTuple):
    """What was sent in a tick."""

    to_all: Sequence[Segment] = ()
    round: Round | None = None
    at_ns: int = 0  # when that began


@dataclass(eq=False)
class _Server:
    connection: socket.socket
    ports: list[Port]

    def learn(self) -> bool:
        """Take in new frames; False if the server has ended."""
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


class Clock:
    """Up to when everything was sent that was due: the time, or less while the sender is late.

    It makes up for that little by little, so that a server's heart-beats are never much further
    apart by this clock than they are meant to be.

    >>> clock = Clock(now_s=10.0)
    >>> round(clock.after_tick(10.005), 6), round(clock.after_tick(10.505), 6)
    (10.005, 10.0125)
    """

    def __init__(self, now_s: float) -> None:
        self._to_s = now_s

    def after_tick(self, now_s: float) -> float:
        """Return what it shows when a tick's work has ended."""
        self._to_s = min(now_s, self._to_s + CATCH_UP * TICK_S)
        return self._to_s


def show_tables(
    pacer: socket.socket, maps: Mapping[str, Map], running: Collection[int] = ()
) -> None:
    """Let the pacer write its clock, in ns, where a table's memory begins, and see all links.

    `running` are the servers that a pacer before this one has sent for.
    """
    files = [maps[name].fd for name in ("paced", "links", "vouched", "answers")]
    message = {"links": maps["links"].entries, "running": list(running)}
    socket.send_fds(pacer, [json.dumps(message).encode()], files)


class Pacer:
    """The process: see the module's text."""

    def __init__(self, arrivals: socket.socket) -> None:
        self._arrivals = arrivals
        self._servers: dict[int, _Server] = {}  # by the descriptor of the connection
        self._segments: dict[int, Segment] = {}
        self._ticks: list[Tick] = []
        self._changed: set[Segment] = set()  # new frames wait there: they are sent at once
        self._unconfirmed = deque([_Sent()] * HEARD_WITHIN)  # by tick
        self._shown = memoryview(bytearray(8)).cast("Q")
        self._heard: HeardTable | None = None
        self._clock = Clock(time.monotonic())
        self._awaited: set[int] = set()  # servers that have yet to register again
        self._awaited_until_s = 0.0
        self._events = select.epoll()
        self._events.register(arrivals.fileno(), select.EPOLLIN)

    def run(self) -> None:
        """Send until the last server has ended and nobody is left who starts others."""
        tick, due_s = 0, time.monotonic()
        while self._servers or self._arrivals.fileno() >= 0:
            wait_s = max(0.0, due_s - time.monotonic()) if self._servers else None
            # epoll counts in milliseconds, so it does not wait itself.
            if readable([self._events], wait_s):
                self._take_news()
            began_s = time.monotonic()
            if wait_s is None:  # nothing was due
                due_s = began_s
                if not self._awaited:
                    self._clock = Clock(began_s)
            if began_s < due_s or not self._ticks:
                continue
            self._beat(tick)
            ended_s = time.monotonic()
            due_s = max(due_s + TICK_S, ended_s + (ended_s - began_s))
            tick = (tick + 1) % len(self._ticks)
            if not self._awaited or ended_s > self._awaited_until_s:
                self._awaited.clear()
                self._shown[0] = int(self._clock.after_tick(ended_s) * NS)

    def _beat(self, number: int) -> None:
        tick, half_way = self._ticks[number], self._ticks[number - len(self._ticks) // 2]
        due = tick.segments + [each for each in half_way.segments if not each.is_whole]
        due += self._changed.difference(due)
        self._changed.clear()
        for segment in due:
            segment.repeats = MOST_REPEATS
        again = self._missed(due)
        for segment in again:
            segment.repeats -= 1
        for segment in due + again:
            segment.beat()
        going = tick.next_round()
        self._unconfirmed.append(_Sent(due + again, going, going.burst.send() if going else 0))

    def _missed(self, due: list[Segment]) -> list[Segment]:
        """Return who is to beat again, as one of them was not heard: who is due does so anyway."""
        earlier, table = self._unconfirmed.popleft(), self._heard
        if not table:
            return []
        missed = [each for each in earlier.to_all if each not in due and each.is_missed(table)]
        if earlier.round:
            missed += earlier.round.confirm(table, earlier.at_ns)
        return missed

    def _take_news(self) -> None:
        for descriptor, _ in self._events.poll(0):
            if descriptor == self._arrivals.fileno():
                self._welcome()
                continue
            server = self._servers[descriptor]
            before = [port.frame for port in server.ports]
            if server.learn():
                for port, frame in zip(server.ports, before, strict=True):
                    # Also who says the same has news: perhaps that a neighbour does not hear it.
                    self._segments[port.segment].begin_anew()
                    if port.frame not in (frame, b""):
                        self._changed.add(self._segments[port.segment])
            else:
                del self._servers[descriptor]
                for port in server.ports:
                    self._leave(port)
                server.close()

    def _welcome(self) -> None:
        data, descriptors, _, _ = socket.recv_fds(self._arrivals, LONGEST_MESSAGE, MOST_PORTS + 1)
        if not data:
            self._events.unregister(self._arrivals.fileno())
            self._arrivals.close()
            return
        message = json.loads(data)
        if "links" in message:
            clock, links, vouched, answers = descriptors
            self._shown = memoryview(mmap.mmap(clock, mmap.PAGESIZE)).cast("Q")
            self._heard = HeardTable(links, vouched, answers, message["links"])
            for each in descriptors:
                os.close(each)
            for server in self._servers.values():
                for port in server.ports:
                    self._heard.leave_cells_of(port.hears.values())
            self._continue_for(set(message["running"]))
            return
        if not self._ticks:
            ticks = max(1, round(message["interval_s"] / TICK_S))
            self._ticks = [Tick() for _ in range(ticks)]
        connection, *sockets = (socket.socket(fileno=each) for each in descriptors)
        ports = []
        for end, (segment, hears) in zip(sockets, message["ports"], strict=True):
            ports.append(Port(message["server"], end, segment, dict(hears)))
            self._join(ports[-1])
        self._servers[connection.fileno()] = _Server(connection, ports)
        self._events.register(connection.fileno(), select.EPOLLIN)
        self._awaited.discard(message["server"])

    def _continue_for(self, running: set[int]) -> None:
        """Continue the clock of a pacer that has ended, once these servers have registered."""
        if running:
            registered = {port.server for one in self._servers.values() for port in one.ports}
            self._awaited = running - registered
            now_s = time.monotonic()
            self._awaited_until_s = now_s + REGISTERED_S
            if self._shown[0]:
                self._clock = Clock(max(now_s - MOST_LATE_S, self._shown[0] / NS))

    def _join(self, port: Port) -> None:
        if port.segment not in self._segments:
            self._segments[port.segment] = Segment(min(self._ticks, key=len))
        self._segments[port.segment].join(port)
        if self._heard and self._awaited:
            self._heard.leave_cells_of(port.hears.values())

    def _leave(self, port: Port) -> None:
        segment = self._segments[port.segment]
        segment.leave(port)
        if not segment.ports:
            del self._segments[port.segment]
            self._changed.discard(segment)
            segment.tick.segments.remove(segment)


def arrivals() -> tuple[socket.socket, socket.socket]:
    """Return where servers register with the pacer, and where the pacer takes them from.

    Who starts pacers holds both, so that what is sent while there is none waits for the next.
    """
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def start(theirs: socket.socket, lifeline: int) -> int:
    """Fork the process, which takes new servers from `theirs`; return its number.

    It ends when the last writer of the pipe `lifeline` does.
    """
    process = os.fork()
    if process:
        return process
    try:
        signal.set_wakeup_fd(-1)
        kept = sorted((2, theirs.fileno(), lifeline))
        for below, above in pairwise([*kept, resource.getrlimit(resource.RLIMIT_NOFILE)[0]]):
            os.closerange(below + 1, above)
        end_with(lifeline)
        prefer()
        take_role("heart-beats")
        gc.disable()
        Pacer(theirs).run()
        os._exit(0)
    finally:
        traceback.print_exc()
        os._exit(1)


def prefer() -> None:
    """Give this process the real-time priority, where that is allowed, and its bounds."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    resource.setrlimit(RLIMIT_RTTIME, (MOST_AT_ONCE_US, MOST_AT_ONCE_US))
    with suppress(PermissionError):  # as in some containers: then it has to wait its turn
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(PRIORITY))
