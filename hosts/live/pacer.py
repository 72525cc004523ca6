"""The process that sends the heart-beats of all servers of a lab, each in time.

What a heart-beat says is its server's business; it hands over the frames, and new ones whenever
they change. To send them in time is this process's, which does nothing else: it has a real-time
priority, so that servers that have much to do are not taken for dead. Of its time it sleeps half
at least, whatever happens: the processors are for those who carry packets.

A server hands over the sockets of its ports and one end of a connection to this process. The kernel
closes the other end when the server's forwarder ends, however that comes about; then nothing more
is sent for it. A forwarder that hangs is not noticed.

All servers have one interval. It is divided into ticks, and segments (a switch with its cables,
or a cable between two servers) spread over them, so that a tick's work is short. The ports of one
segment beat one after the other. All of them hear each other, and what the kernel keeps of a port
comes out of memory once for all that it then hears, which is most of what a heart-beat costs.

This process tells the kernel up to when it has sent what was due. Where it is late after all, as
when the whole machine stood still, nobody is taken for silent before it has made up for that.
"""

from __future__ import annotations

import gc
import mmap
import os
import resource
import select
import signal
import socket
import struct
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from hosts.linux.calls import die_with_parent

TICK_S = 0.005
MOST_PORTS = 250  # sockets that one message may carry
LONGEST_MESSAGE = 1 << 18
PRIORITY = 1
RLIMIT_RTTIME = 15  # of sys/resource.h
CATCH_UP = 1.5  # so many ticks' time at most passes in a tick for those who wait to hear
CLOCK = b"clock"  # shorter than the message of any server
MOST_AT_ONCE_US = 500_000  # of real time without sleeping, or the kernel ends this process
NS = 1_000_000_000
_INTERVAL, _SEGMENT, _FRAME = struct.Struct("=d"), struct.Struct("=I"), struct.Struct("=HH")


def segment(servers: int, server: int, far: int) -> int:
    """Return the number that a server's port shares with those that hear it.

    It is a switch's own, and for a cable between servers that of its lower end.

    >>> segment(20, 3, 21), segment(20, 3, 16), segment(20, 16, 3)
    (21, 3, 3)
    """
    return far if far >= servers else min(server, far)


class HeartBeats:
    """The heart-beats of one server, as its forwarder sees them.

    Parameters
    ----------
    pacer : socket
        Where the pacer takes new servers.
    ports : mapping of int to socket
        For each port one that sends on its cable, for this purpose only.
    segments : mapping of int to int
        For each port a number that it shares with all ports that hear it.
    interval_s : float
        From one heart-beat to the next.
    """

    def __init__(
        self,
        pacer: socket.socket,
        ports: Mapping[int, socket.socket],
        segments: Mapping[int, int],
        interval_s: float,
    ) -> None:
        self._places = {port: place for place, port in enumerate(ports)}
        self._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            descriptors = [theirs.fileno(), *(one.fileno() for one in ports.values())]
            places = (_SEGMENT.pack(segments[port]) for port in ports)
            socket.send_fds(pacer, [_INTERVAL.pack(interval_s), *places], descriptors)

    def say(self, frames: Mapping[int, bytes]) -> None:
        """Send these frames from now on, one out of each port."""
        parts = (_FRAME.pack(self._places[port], len(data)) + data for port, data in frames.items())
        self._connection.send(b"".join(parts) or b"\0")

    def close(self) -> None:
        """Fall silent for ever."""
        self._connection.close()


@dataclass(eq=False)
class _Port:
    socket: socket.socket
    segment: int
    frame: bytes = b""  # nothing is sent while it is empty


@dataclass(eq=False)
class _Server:
    connection: socket.socket
    ports: list[_Port]

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


def _beat(ports: Sequence[_Port]) -> None:
    for port in ports:
        # A cable that was cut, a full queue: heart-beats are lost like any frame.
        try:
            if port.frame:
                port.socket.send(port.frame)
        except OSError:
            pass


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


def show_clock(pacer: socket.socket, table: int) -> None:
    """Let the pacer write its clock, in ns, where that descriptor's memory begins."""
    socket.send_fds(pacer, [CLOCK], [table])


class Pacer:
    """The process: see the module's text."""

    def __init__(self, arrivals: socket.socket) -> None:
        self._arrivals = arrivals
        self._servers: dict[int, _Server] = {}  # by the descriptor of the connection
        self._segments: dict[int, list[_Port]] = {}
        self._ticks: list[list[list[_Port]]] = []  # the segments of each
        self._shown = memoryview(bytearray(8)).cast("Q")
        self._events = select.epoll()
        self._events.register(arrivals.fileno(), select.EPOLLIN)

    def run(self) -> None:
        """Send until the last server has ended and nobody is left who starts others."""
        tick, due_s = 0, time.monotonic()
        clock = Clock(due_s)
        while self._servers or self._arrivals.fileno() >= 0:
            wait_s = max(0.0, due_s - time.monotonic()) if self._servers else None
            # epoll counts in milliseconds, select in microseconds: so the one waits for the other.
            if select.select([self._events], [], [], wait_s)[0]:
                self._take_news()
            began_s = time.monotonic()
            if wait_s is None:  # nothing was due
                due_s, clock = began_s, Clock(began_s)
            if began_s < due_s or not self._ticks:
                continue
            for ports in self._ticks[tick]:
                _beat(ports)
            ended_s = time.monotonic()
            due_s = max(due_s + TICK_S, ended_s + (ended_s - began_s))
            tick = (tick + 1) % len(self._ticks)
            self._shown[0] = int(clock.after_tick(ended_s) * NS)

    def _take_news(self) -> None:
        for descriptor, _ in self._events.poll(0):
            if descriptor == self._arrivals.fileno():
                self._welcome()
            elif not self._servers[descriptor].learn():
                server = self._servers.pop(descriptor)
                for port in server.ports:
                    self._leave(port)
                server.close()

    def _welcome(self) -> None:
        most = _INTERVAL.size + MOST_PORTS * _SEGMENT.size
        message, descriptors, _, _ = socket.recv_fds(self._arrivals, most, MOST_PORTS + 1)
        if not message:
            self._events.unregister(self._arrivals.fileno())
            self._arrivals.close()
            return
        if message == CLOCK:
            self._shown = memoryview(mmap.mmap(descriptors[0], mmap.PAGESIZE)).cast("Q")
            os.close(descriptors[0])
            return
        connection, *sockets = (socket.socket(fileno=each) for each in descriptors)
        segments = _SEGMENT.iter_unpack(message[_INTERVAL.size :])
        ports = [_Port(one, number) for one, (number,) in zip(sockets, segments, strict=True)]
        if not self._ticks:
            (interval_s,) = _INTERVAL.unpack_from(message)
            self._ticks = [[] for _ in range(max(1, round(interval_s / TICK_S)))]
        for port in ports:
            self._join(port)
        self._servers[connection.fileno()] = _Server(connection, ports)
        self._events.register(connection.fileno(), select.EPOLLIN)

    def _join(self, port: _Port) -> None:
        if port.segment not in self._segments:
            self._segments[port.segment] = []
            min(self._ticks, key=len).append(self._segments[port.segment])
        self._segments[port.segment].append(port)

    def _leave(self, port: _Port) -> None:
        ports = self._segments[port.segment]
        ports.remove(port)
        if not ports:
            del self._segments[port.segment]
            for tick in self._ticks:
                tick[:] = [each for each in tick if each is not ports]


def start() -> tuple[int, socket.socket]:
    """Fork the process; return its number, and where it takes new servers."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    process = os.fork()
    if process:
        theirs.close()
        return process, ours
    try:
        die_with_parent(signal.SIGKILL)
        keep = theirs.fileno()
        os.closerange(3, keep)
        os.closerange(keep + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        prefer()
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
