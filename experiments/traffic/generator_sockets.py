"""The generator's connections: opened in the servers' namespaces, a few at a time.

One process holds both ends of every connection. A client is known to its flow by its own address
and port, which are set before its listener hears of it. Where servers are on several machines, each
has such a process: it is told the ports of others' listeners, and, when all have connected, whose
clients have come to its own.
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

# Connections being made: enough to keep servers that look for paths busy. What a handshake has to
# wait for others, TCP takes for the network's round trip: its first retransmissions come that late.
AT_ONCE = 32
TRIES = 3
TRY_S = 5.0  # three SYNs: at once, after one second, after three
AGAIN_S = 0.3  # after a try that failed at once
ALL_S = 60.0  # for all connections together
BACKLOG = 4096
TCP_NOTSENT_LOWAT, SO_MAX_PACING_RATE = 25, 47
# What the kernel may hold of all flows that it has not sent yet: as much as keeps them going.
UNSENT_BYTES, LEAST_UNSENT, MOST_UNSENT = 1 << 26, 1 << 14, 1 << 20
NONE: Mapping[int, int] = {}
AT_ONCE_GONE = struct.pack("ii", 1, 0)  # SO_LINGER: closing does not wait and leaves no state

Client = tuple[int, tuple[str, int]]  # the server that it has called, and its own address and port


@dataclass(slots=True)
class Connection:
    """A flow's connection, and what has become of it."""

    flow: Flow
    sender: socket.socket | None = None
    receiver: socket.socket | None = None
    tries: int = 0
    reason: str = ""  # why it has failed
    ended: bool = False
    sent: int = 0
    delivered: int = 0
    retransmits: int | None = None
    begin_s: float | None = None  # moments by CLOCK_MONOTONIC
    moved_s: float | None = None  # of the last byte delivered so far
    end_s: float | None = None
    # Of its latest interval: where it began, and what had been counted by then.
    row_s: float = 0.0
    row_delivered: int = 0
    row_retransmits: int = 0

    def fail(self, reason: str) -> None:
        """Give the flow up."""
        self.ended, self.reason = True, reason
        self.close()

    def close(self) -> None:
        """Close both ends; nothing is left of them in the kernel."""
        for end in (self.sender, self.receiver):
            if end is not None:
                with suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE_GONE)
                end.close()
        self.sender = self.receiver = None


class Connector:
    """Connects flows."""

    def __init__(
        self,
        namespaces: dict[int, int],  # each server's network namespace, as an open file
        addresses: dict[int, str],  # each server's IPv4 address
        congestion: str,  # the senders' congestion control
        most_bps: float | None = None,  # what TCP lets each of them send at most
    ) -> None:
        self._namespaces, self._addresses = namespaces, addresses
        self._congestion = congestion.encode()
        self._most_bytes_s = int(most_bps / 8) if most_bps else None
        self._home = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        self._ready = select.epoll()
        self._listeners: dict[int, socket.socket] = {}  # by server
        self._listening: dict[int, int] = {}  # servers by descriptor
        self._ports: dict[int, int] = {}  # of listeners, by server, those on other machines too
        self._trying: dict[Client, Connection] = {}
        self._strangers: dict[Client, socket.socket] = {}  # of given up tries, or other machines
        self._clients: dict[int, Client] = {}  # keys of those, by descriptor
        self._due: list[tuple[float, int, Connection]] = []  # a heap of what is to be tried
        self._until: dict[int, float] = {}  # when a flow's try is over, by its number

    def listen(self, connections: list[Connection]) -> dict[int, int]:
        """Open the listeners of all destinations that are here; return their ports by server."""
        for one in connections:
            if not one.ended and one.flow.destination in self._namespaces:
                self._listen(one)
        return dict(self._ports)

    def connect(
        self, connections: list[Connection], together: int, elsewhere: Mapping[int, int] = NONE
    ) -> None:
        """Connect all from here, so many of which send together; what cannot be has ended.

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
                self._begin(heapq.heappop(self._due)[2], now, unsent)
            for descriptor, _ in self._ready.poll(0.05):
                if descriptor in self._listening:
                    self._accept(self._listening[descriptor])
                elif descriptor in self._clients:
                    self._answered(descriptor)
            self._give_up(time.monotonic(), limit_s)

    def take(self, awaited: dict[Client, Connection]) -> None:
        """Take the connections that came from other machines."""
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

    def _listen(self, one: Connection) -> None:
        """Open a flow's destination's listener, unless it has one."""
        server = one.flow.destination
        if server in self._listeners:
            return
        with self._within(server):
            listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            listener.bind((self._addresses[server], 0))
        except OSError as error:  # a server whose address has gone with its forwarder
            listener.close()
            one.fail(f"its destination could not listen: {error.strerror}")
            return
        listener.listen(BACKLOG)
        self._ports[server] = listener.getsockname()[1]
        self._listeners[server] = listener
        self._listening[listener.fileno()] = server
        self._ready.register(listener, select.EPOLLIN)

    def _begin(self, one: Connection, now: float, unsent: int) -> None:
        one.tries += 1
        with self._within(one.flow.source):
            client = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        one.sender = client
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, self._congestion)
        client.setsockopt(socket.IPPROTO_TCP, TCP_NOTSENT_LOWAT, unsent)
        if self._most_bytes_s:
            client.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, self._most_bytes_s)
        server = one.flow.destination
        code = client.connect_ex((self._addresses[server], self._ports[server]))
        if code not in (0, errno.EINPROGRESS):
            self._failed(one, os.strerror(code))
            return
        key = (server, client.getsockname())
        self._trying[key] = one
        self._clients[client.fileno()] = key
        self._until[one.flow.number] = now + TRY_S
        self._ready.register(client, select.EPOLLOUT)

    def _answered(self, descriptor: int) -> None:
        """Look at a client whose handshake is over, one way or the other."""
        key = self._clients[descriptor]
        one = self._trying[key]
        assert one.sender is not None
        self._ready.unregister(descriptor)
        code = one.sender.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._forget(key)
            self._failed(one, os.strerror(code))
        else:
            del self._clients[descriptor]
            self._finish(key)

    def _accept(self, server: int) -> None:
        while True:
            try:
                accepted, client = self._listeners[server].accept()
            except BlockingIOError:
                return
            except ConnectionAbortedError:  # its client will tell
                continue
            accepted.setblocking(False)
            one = self._trying.get((server, client))
            if one is None or one.sender is None:
                self._strangers[server, client] = accepted
            else:
                one.receiver = accepted
                self._finish((server, client))

    def _finish(self, key: Client) -> None:
        """Be done with a connection that both ends know of, as far as they are here."""
        one = self._trying[key]
        assert one.sender is not None
        there = one.receiver is not None or key[0] not in self._listeners
        if there and one.sender.fileno() not in self._clients:
            del self._trying[key]

    def _give_up(self, now: float, limit_s: float) -> None:
        """End the tries that have lasted too long, and all of them when their time is over."""
        over = [key for key, one in self._trying.items() if self._until[one.flow.number] <= now]
        for key in over:
            one = self._trying[key]
            self._forget(key)
            self._failed(one, f"no answer within {TRY_S:g} s")
        if now < limit_s:
            return
        for key, one in list(self._trying.items()):
            self._forget(key)
            self._due.append((now, one.flow.number, one))
        for _, _, one in self._due:
            one.fail(f"not connected within {ALL_S:g} s")
        self._due.clear()

    def _forget(self, key: Client) -> None:
        one = self._trying.pop(key)
        assert one.sender is not None
        self._clients.pop(one.sender.fileno(), None)

    def _failed(self, one: Connection, why: str) -> None:
        """Let a flow try again later, or never."""
        if one.tries < TRIES:
            one.close()
            due = (time.monotonic() + AGAIN_S, one.flow.number, one)
            heapq.heappush(self._due, due)
        else:
            one.fail(f"could not connect: {why}")

    def close(self) -> None:
        """Listen no more."""
        for end in (*self._listeners.values(), *self._strangers.values()):
            end.close()
        self._ready.close()
        os.close(self._home)

    @contextmanager
    def _within(self, server: int) -> Iterator[None]:
        """Be on a server, as far as the network goes."""
        enter(self._namespaces[server])
        try:
            yield
        finally:
            enter(self._home)
