"""Connections of the generator: opened in the servers' namespaces, a limited number in parallel.

One process holds both ends of every connection. A client's address and port, which identify its
flow, are set before its listener accepts it. With servers on several machines, each machine has
such a process: it is given the ports of the others' listeners and, when all flows have connected,
the clients that have connected to its own listeners.
"""

from __future__ import annotations

import errno
import heapq
import os
import select
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from experiments.traffic.flows import Flow
from hosts.linux.calls import enter

# Connections made in parallel: enough to keep servers busy that search for paths. A handshake's
# waiting time for other connections would count in TCP's round trip and delay retransmissions.
AT_ONCE = 32
TRIES = 3
TRY_S = 5.0  # duration of a try in seconds: three SYNs, after 0, 1 and 3 seconds
AGAIN_S = 0.3  # pause after a try that failed immediately, in seconds
ALL_S = 60.0  # time limit for all connections together, in seconds
BACKLOG = 4096
TCP_NOTSENT_LOWAT, SO_MAX_PACING_RATE = 25, 47
# Total unsent data in the kernel, and its bounds per flow: enough to keep flows going.
UNSENT_BYTES, LEAST_UNSENT, MOST_UNSENT = 1 << 26, 1 << 14, 1 << 20
NONE: Mapping[int, int] = {}
AT_ONCE_GONE = struct.pack("ii", 1, 0)  # SO_LINGER: close() returns immediately and leaves no state

Client = tuple[int, tuple[str, int]]  # destination server, and the client's address and port


@dataclass(slots=True)
class FlowConnection:
    """A flow's connection, and its state."""

    flow: Flow
    sender: socket.socket | None = None
    receiver: socket.socket | None = None
    tries: int = 0
    reason: str = ""  # reason why the flow failed
    ended: bool = False
    sent: int = 0
    delivered: int = 0
    retransmits: int | None = None
    begin_s: float | None = None  # start of sending; times are of CLOCK_MONOTONIC
    moved_s: float | None = None  # time of the last delivery so far
    end_s: float | None = None
    # Start of the current interval, and the counters at that time.
    row_s: float = 0.0
    row_delivered: int = 0
    row_retransmits: int = 0

    def fail(self, reason: str) -> None:
        """Mark the flow as failed for a reason, and close its connection."""
        self.ended, self.reason = True, reason
        self.close()

    def close(self) -> None:
        """Close both ends of the connection without leaving state in the kernel."""
        for end in (self.sender, self.receiver):
            if end is not None:
                with suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE_GONE)
                end.close()
        self.sender = self.receiver = None


class Connector:
    """Opens the connections of flows in the servers' namespaces."""

    def __init__(
        self,
        namespaces: dict[int, int],  # network namespace of each server, as an open file
        addresses: dict[int, str],  # IPv4 address of each server
        congestion: str,  # congestion control of the senders
        most_bps: float | None = None,  # maximum rate of each sender
    ) -> None:
        self._namespaces, self._addresses = namespaces, addresses
        self._congestion = congestion.encode()
        self._most_bytes_s = int(most_bps / 8) if most_bps else None
        self._home = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        self._ready = select.epoll()
        self._listeners: dict[int, socket.socket] = {}  # listening sockets by server
        self._listening: dict[int, int] = {}  # servers by their listener's descriptor
        self._ports: dict[int, int] = {}  # ports of listeners by server, also on other machines
        self._trying: dict[Client, FlowConnection] = {}
        # accepted connections of abandoned tries, or from other machines
        self._strangers: dict[Client, socket.socket] = {}
        self._clients: dict[int, Client] = {}  # (server, client address) by the client's descriptor
        self._due: list[tuple[float, int, FlowConnection]] = []  # heap of flows to connect, by time
        self._until: dict[int, float] = {}  # end of a flow's current try, by the flow's number

    def listen(self, connections: list[FlowConnection]) -> dict[int, int]:
        """Open listeners for all destinations on this machine; return their ports by server."""
        for one in connections:
            if not one.ended and one.flow.destination in self._namespaces:
                self._listen(one)
        return dict(self._ports)

    def connect(
        self, connections: list[FlowConnection], together: int, elsewhere: Mapping[int, int] = NONE
    ) -> None:
        """Connect all flows from this machine, of which `together` send simultaneously; or fail
        them.

        `elsewhere` has the ports of listeners on other machines.
        """
        unsent = min(MOST_UNSENT, max(LEAST_UNSENT, UNSENT_BYTES // max(1, together)))
        limit_s = time.monotonic() + ALL_S
        self._ports.update(elsewhere)
        own = [one for one in connections if one.flow.source in self._namespaces and not one.ended]
        for one in own:
            if one.flow.destination not in self._ports:
                one.fail("its destination could not listen")
        self._due = [(0.0, one.flow.number, one) for one in own if not one.ended]
        while self._due or self._trying:
            now = time.monotonic()
            while self._due and self._due[0][0] <= now and len(self._trying) < AT_ONCE:
                self._start_connecting(heapq.heappop(self._due)[2], now, unsent)
            for descriptor, _ in self._ready.poll(0.05):
                if descriptor in self._listening:
                    self._accept(self._listening[descriptor])
                elif descriptor in self._clients:
                    self._handle_handshake(descriptor)
            self._abandon_late(time.monotonic(), limit_s)

    def take(self, awaited: dict[Client, FlowConnection]) -> None:
        """Assign the accepted connections from other machines to their flows."""
        limit_s = time.monotonic() + TRY_S
        self._trying = awaited
        while True:
            for client in self._trying.keys() & self._strangers.keys():
                self._trying.pop(client).receiver = self._strangers.pop(client)
            if not self._trying or time.monotonic() > limit_s:
                break
            for descriptor, _ in self._ready.poll(0.05):
                if descriptor in self._listening:
                    self._accept(self._listening[descriptor])
        for one in self._trying.values():
            one.fail("its connection never came")

    def _listen(self, one: FlowConnection) -> None:
        """Open the listener of a flow's destination, unless it exists."""
        server = one.flow.destination
        if server in self._listeners:
            return
        with self._in_namespace_of(server):
            listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            listener.bind((self._addresses[server], 0))
        except OSError as error:  # a server that lost its address with its forwarder
            listener.close()
            one.fail(f"its destination could not listen: {error.strerror}")
            return
        listener.listen(BACKLOG)
        self._ports[server] = listener.getsockname()[1]
        self._listeners[server] = listener
        self._listening[listener.fileno()] = server
        self._ready.register(listener, select.EPOLLIN)

    def _start_connecting(self, one: FlowConnection, now: float, unsent: int) -> None:
        one.tries += 1
        with self._in_namespace_of(one.flow.source):
            client = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        one.sender = client
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, self._congestion)
        client.setsockopt(socket.IPPROTO_TCP, TCP_NOTSENT_LOWAT, unsent)
        if self._most_bytes_s:
            client.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, self._most_bytes_s)
        server = one.flow.destination
        code = client.connect_ex((self._addresses[server], self._ports[server]))
        if code not in (0, errno.EINPROGRESS):
            self._retry_or_fail(one, os.strerror(code))
            return
        key = (server, client.getsockname())
        self._trying[key] = one
        self._clients[client.fileno()] = key
        self._until[one.flow.number] = now + TRY_S
        self._ready.register(client, select.EPOLLOUT)

    def _handle_handshake(self, descriptor: int) -> None:
        """Handle the end of a flow's TCP handshake, successful or not."""
        key = self._clients[descriptor]
        one = self._trying[key]
        assert one.sender is not None
        self._ready.unregister(descriptor)
        code = one.sender.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._forget_client(key)
            self._retry_or_fail(one, os.strerror(code))
        else:
            del self._clients[descriptor]
            self._complete(key)

    def _accept(self, server: int) -> None:
        while True:
            try:
                accepted, client = self._listeners[server].accept()
            except BlockingIOError:
                return
            except ConnectionAbortedError:  # the connecting side reports this error
                continue
            accepted.setblocking(False)
            one = self._trying.get((server, client))
            if one is None or one.sender is None:
                self._strangers[server, client] = accepted
            else:
                one.receiver = accepted
                self._complete((server, client))

    def _complete(self, key: Client) -> None:
        """Complete a connection when both ends, as far as they are on this machine, are known."""
        one = self._trying[key]
        assert one.sender is not None
        there = one.receiver is not None or key[0] not in self._listeners
        if there and one.sender.fileno() not in self._clients:
            del self._trying[key]

    def _abandon_late(self, now: float, limit_s: float) -> None:
        """Abandon tries that have lasted too long, and all tries after the time limit."""
        over = [key for key, one in self._trying.items() if self._until[one.flow.number] <= now]
        for key in over:
            one = self._trying[key]
            self._forget_client(key)
            self._retry_or_fail(one, f"no answer within {TRY_S:g} s")
        if now < limit_s:
            return
        for key, one in list(self._trying.items()):
            self._forget_client(key)
            self._due.append((now, one.flow.number, one))
        for _, _, one in self._due:
            one.fail(f"not connected within {ALL_S:g} s")
        self._due.clear()

    def _forget_client(self, key: Client) -> None:
        one = self._trying.pop(key)
        assert one.sender is not None
        self._clients.pop(one.sender.fileno(), None)

    def _retry_or_fail(self, one: FlowConnection, why: str) -> None:
        """Schedule another try of a flow, or fail the flow."""
        if one.tries < TRIES:
            one.close()
            due = (time.monotonic() + AGAIN_S, one.flow.number, one)
            heapq.heappush(self._due, due)
        else:
            one.fail(f"could not connect: {why}")

    def close(self) -> None:
        """Close the servers' listening sockets."""
        for end in (*self._listeners.values(), *self._strangers.values()):
            end.close()
        self._ready.close()
        os.close(self._home)

    @contextmanager
    def _in_namespace_of(self, server: int) -> Iterator[None]:
        """Switch to a server's network namespace."""
        enter(self._namespaces[server])
        try:
            yield
        finally:
            enter(self._home)
