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
from dataclasses import dataclass, field

from pillarbox.experiments.models.workloads.flows import Flow, Reordering
from pillarbox.hosts.linux.calls import enter

# Number of TCP connections set up in parallel: enough to keep servers busy that search for paths.
# With more, handshakes would wait for each other: TCP's first round trip time would be too long,
# and retransmissions late.
MOST_PARALLEL_TRIES = 32
TRIES = 3
TRY_S = 5.0  # time limit of a try to connect a flow, in seconds: SYNs after 0, 1 and 3 seconds
RETRY_PAUSE_S = 0.3  # pause in seconds after a failed try to connect a flow
MOST_CONNECT_S = 60.0  # time limit for setting up the connections of all flows, in seconds
BACKLOG = 4096
# TCP ports of listeners for Multipath TCP. They are below the ports of clients: routers take the
# end with the higher port for the client (`pillarbox.hosts.base.pinning`).
MULTIPATH_PORTS = range(20_000, 32_768)
TCP_NOTSENT_LOWAT, SO_MAX_PACING_RATE = 25, 47
# Bytes of unsent data in the kernel for all flows, and bounds per flow: enough that flows never
# wait for data.
UNSENT_BYTES, LEAST_UNSENT, MOST_UNSENT = 1 << 26, 1 << 14, 1 << 20
NONE: Mapping[int, int] = {}
# value of SO_LINGER with which close() returns immediately and leaves no state in the kernel
CLOSE_WITHOUT_STATE = struct.pack("ii", 1, 0)

_open_listeners: list[socket.socket] = []  # listeners of this process for further subflows

# destination server, and IPv4 address and port of the connecting socket
ClientKey = tuple[int, tuple[str, int]]


@dataclass(slots=True)
class FlowConnection:
    """A flow's TCP connection (both sockets), byte counters and result so far."""

    flow: Flow
    sender: socket.socket | None = None
    receiver: socket.socket | None = None
    tries: int = 0
    connecting_s: float | None = None  # CLOCK_MONOTONIC time of the first SYN
    connect_s: float | None = None  # time from the first SYN to both ends' established connection
    reason: str = ""  # reason why the flow failed
    ended: bool = False
    sent: int = 0
    delivered: int = 0
    retransmits: int | None = None
    reordering: Reordering | None = None
    source_port: int | None = None  # TCP port of the sender
    fell_back: bool = False  # True if a Multipath TCP connection has become a TCP connection
    # bytes acknowledged and segments retransmitted by each subflow so far
    subflows: dict[int, tuple[int, int]] = field(default_factory=dict)
    begin_s: float | None = None  # CLOCK_MONOTONIC time of the flow's first byte sent
    last_delivery_s: float | None = None  # CLOCK_MONOTONIC time of the latest delivery
    end_s: float | None = None
    # start of the flow's current report interval, and the flow's counters at that time
    row_s: float = 0.0
    row_delivered: int = 0
    row_retransmits: int = 0

    def fail(self, reason: str) -> None:
        """Mark the flow as failed for a reason, and close its TCP connection."""
        self.ended, self.reason = True, reason
        self.close()

    def close(self) -> None:
        """Close both ends of the flow's TCP connection without leaving state in the kernel."""
        for end in (self.sender, self.receiver):
            if end is not None:
                with suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, CLOSE_WITHOUT_STATE)
                end.close()
        self.sender = self.receiver = None


class FlowConnector:
    """Opens the TCP connections of flows in the servers' network namespaces."""

    def __init__(
        self,
        namespaces: dict[int, int],  # network namespace of each server, as an open file
        addresses: dict[int, str],  # IPv4 address of each server
        congestion: str,  # TCP congestion control of the senders
        most_bps: float | None = None,  # maximum sending rate of each flow
        *,
        multipath: bool = False,  # open Multipath TCP connections
    ) -> None:
        self._namespaces, self._addresses = namespaces, addresses
        self._congestion = congestion.encode()
        self._protocol = socket.IPPROTO_MPTCP if multipath else socket.IPPROTO_TCP
        self._most_bytes_s = int(most_bps / 8) if most_bps else None
        self._home = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        self._ready = select.epoll()
        self._listeners: dict[int, socket.socket] = {}  # listening socket of each server
        self._listening: dict[int, int] = {}  # server of each listener's descriptor
        self._ports: dict[int, int] = {}  # listener's TCP port by server, on all machines
        self._trying: dict[ClientKey, FlowConnection] = {}
        # accepted connections without a flow: of abandoned tries, or from other machines
        self._unassigned: dict[ClientKey, socket.socket] = {}
        # destination server and client address of each try, by the client socket's descriptor
        self._clients: dict[int, ClientKey] = {}
        # heap of flows to connect, by the time of the next try
        self._flows_to_connect: list[tuple[float, int, FlowConnection]] = []
        # time at which a flow's current try to connect is given up, by the flow's number
        self._try_ends_s: dict[int, float] = {}

    def listen(self, connections: list[FlowConnection]) -> dict[int, int]:
        """Open a TCP listener for each flow destination on this machine; return ports by server."""
        for one in connections:
            if not one.ended and one.flow.destination in self._namespaces:
                self._listen(one)
        return dict(self._ports)

    def connect(
        self, connections: list[FlowConnection], together: int, elsewhere: Mapping[int, int] = NONE
    ) -> None:
        """Open the TCP connections of all flows from this machine; mark others as failed.

        About `together` of the flows send simultaneously, and share the limit of unsent data.

        `elsewhere` has the ports of listeners on other machines.
        """
        unsent = min(MOST_UNSENT, max(LEAST_UNSENT, UNSENT_BYTES // max(1, together)))
        limit_s = time.monotonic() + MOST_CONNECT_S
        self._ports.update(elsewhere)
        own = [one for one in connections if one.flow.source in self._namespaces and not one.ended]
        for one in own:
            if one.flow.destination not in self._ports:
                one.fail("its destination server could not open a listening TCP socket")
        self._flows_to_connect = [(0.0, one.flow.number, one) for one in own if not one.ended]
        while self._flows_to_connect or self._trying:
            now = time.monotonic()
            while (
                self._flows_to_connect
                and self._flows_to_connect[0][0] <= now
                and len(self._trying) < MOST_PARALLEL_TRIES
            ):
                self._start_connecting(heapq.heappop(self._flows_to_connect)[2], now, unsent)
            for descriptor, _ in self._ready.poll(0.05):
                if descriptor in self._listening:
                    self._accept_connections(self._listening[descriptor])
                elif descriptor in self._clients:
                    self._handle_handshake_end(descriptor)
            self._abandon_late(time.monotonic(), limit_s)

    def accept_remote(self, awaited: dict[ClientKey, FlowConnection]) -> None:
        """Accept the TCP connections from other machines, and assign them to their flows."""
        limit_s = time.monotonic() + TRY_S
        self._trying = awaited
        while True:
            for client in self._trying.keys() & self._unassigned.keys():
                self._trying.pop(client).receiver = self._unassigned.pop(client)
            if not self._trying or time.monotonic() > limit_s:
                break
            for descriptor, _ in self._ready.poll(0.05):
                if descriptor in self._listening:
                    self._accept_connections(self._listening[descriptor])
        for one in self._trying.values():
            one.fail("its TCP connection from the other machine did not arrive")

    def _listen(self, one: FlowConnection) -> None:
        """Open the listening socket of a flow's destination server, unless it exists."""
        server = one.flow.destination
        if server in self._listeners:
            return
        with self._in_namespace_of(server):
            listener = self._new_socket()
        try:
            self._bind(listener, self._addresses[server])
        except OSError as error:  # the server lost its IP address when its forwarder died
            listener.close()
            one.fail(
                f"its destination server could not open a listening TCP socket: {error.strerror}"
            )
            return
        listener.listen(BACKLOG)
        self._ports[server] = listener.getsockname()[1]
        self._listeners[server] = listener
        self._listening[listener.fileno()] = server
        self._ready.register(listener, select.EPOLLIN)

    def _new_socket(self) -> socket.socket:
        how = socket.SOCK_STREAM | socket.SOCK_NONBLOCK
        return socket.socket(socket.AF_INET, how, self._protocol)

    def _bind(self, listener: socket.socket, address: str) -> None:
        """Bind a listening socket to a free TCP port of a server."""
        if self._protocol != socket.IPPROTO_MPTCP:
            listener.bind((address, 0))
            return
        for port in MULTIPATH_PORTS:
            try:
                listener.bind((address, port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
            else:
                return
        raise OSError(errno.EADDRINUSE, "no TCP port is free")

    def _start_connecting(self, one: FlowConnection, now: float, unsent: int) -> None:
        one.tries += 1
        one.connecting_s = one.connecting_s or now
        with self._in_namespace_of(one.flow.source):
            client = self._new_socket()
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
        one.source_port = key[1][1]
        self._trying[key] = one
        self._clients[client.fileno()] = key
        self._try_ends_s[one.flow.number] = now + TRY_S
        self._ready.register(client, select.EPOLLOUT)

    def _handle_handshake_end(self, descriptor: int) -> None:
        """Complete or retry a flow whose TCP handshake has succeeded or failed."""
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

    def _accept_connections(self, server: int) -> None:
        while True:
            try:
                accepted, client = self._listeners[server].accept()
            except BlockingIOError:
                return
            except ConnectionAbortedError:  # the connecting socket reports this error as well
                continue
            accepted.setblocking(False)
            one = self._trying.get((server, client))
            if one is None or one.sender is None:
                self._unassigned[server, client] = accepted
            else:
                one.receiver = accepted
                self._complete((server, client))

    def _complete(self, key: ClientKey) -> None:
        """End a flow's try to connect if its ends on this machine are connected."""
        one = self._trying[key]
        assert one.sender is not None
        there = one.receiver is not None or key[0] not in self._listeners
        if there and one.sender.fileno() not in self._clients:
            del self._trying[key]
            one.connect_s = time.monotonic() - (one.connecting_s or 0.0)

    def _abandon_late(self, now: float, limit_s: float) -> None:
        """Abandon tries to connect that have lasted too long, and all after the time limit."""
        over = [
            key for key, one in self._trying.items() if self._try_ends_s[one.flow.number] <= now
        ]
        for key in over:
            one = self._trying[key]
            self._forget_client(key)
            self._retry_or_fail(one, f"no answer to its SYN within {TRY_S:g} s")
        if now < limit_s:
            return
        for key, one in list(self._trying.items()):
            self._forget_client(key)
            self._flows_to_connect.append((now, one.flow.number, one))
        for _, _, one in self._flows_to_connect:
            one.fail(f"its TCP connection was not set up within {MOST_CONNECT_S:g} s")
        self._flows_to_connect.clear()

    def _forget_client(self, key: ClientKey) -> None:
        one = self._trying.pop(key)
        assert one.sender is not None
        self._clients.pop(one.sender.fileno(), None)

    def _retry_or_fail(self, one: FlowConnection, why: str) -> None:
        """Schedule another try to connect a flow; fail the flow after its last try."""
        if one.tries < TRIES:
            one.close()
            due = (time.monotonic() + RETRY_PAUSE_S, one.flow.number, one)
            heapq.heappush(self._flows_to_connect, due)
        else:
            one.fail(f"could not connect: {why}")

    def close(self) -> None:
        """Close the servers' listening sockets.

        Further subflows of Multipath TCP are accepted by the kernel while the listener is open.
        Its listeners are closed by the end of the process.
        """
        if self._protocol == socket.IPPROTO_MPTCP:
            _open_listeners.extend(self._listeners.values())
        else:
            for listener in self._listeners.values():
                listener.close()
        for end in self._unassigned.values():
            end.close()
        self._ready.close()
        os.close(self._home)

    @contextmanager
    def _in_namespace_of(self, server: int) -> Iterator[None]:
        """Switch this process to a server's network namespace, and back at the end."""
        enter(self._namespaces[server])
        try:
            yield
        finally:
            enter(self._home)
