"""Connection limits of the page's server: limits per client group, and eviction of connections.

A connection belongs to a stranger until a request on it presents a token; then it belongs to a
watcher or an operator. Each group has a separate limit, so that operators can always connect.
Strangers on this machine and strangers on the network are two groups.

When a group is full, the source address with the most connections loses its longest idle
connection. Many watchers that share one address (a class with NAT) may use all the connections
that other addresses do not need.

A connection is closed if it presents no token in time, or if the peer stops reading.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, cast

from aiohttp import web

from pillarbox.experiments.apps.page.access import HEADERS
from pillarbox.experiments.apps.page.bounded_log import LOG

OPERATE, WATCH = "operate", "watch"
NEAR, FAR = "strangers on this machine", "strangers"
# Maximum TCP connections per client group; the sum is below the limit of open files.
MOST_CONNECTIONS = {NEAR: 64, FAR: 96, WATCH: 224, OPERATE: 48}
MOST_PAGES = {WATCH: 128, OPERATE: 16}  # maximum open pages (WebSocket connections) per group
LOOPBACK = "loopback"  # source address that stands for all loopback addresses
FIRST_REQUEST_S = 10.0  # timeout from connect to the first request with a token, TLS included
SLOWEST_S = 10.0  # send timeout: a peer that reads nothing for this time is closed, in seconds
KEEP_ALIVE_S = 15.0  # idle timeout between two requests of a connection, in seconds
ACCEPTED_AT_ONCE = 8  # connections accepted per event-loop iteration, to leave time for requests
PAUSE_S = 0.2  # pause after accept() fails for lack of descriptors or memory, in seconds
SEND_BUFFER = 1 << 18  # kernel send buffer (SO_SNDBUF) per connection, in bytes


class PageConnection(asyncio.Protocol):
    """A TCP connection to the page: passes data to the HTTP server, closes on a send timeout."""

    def __init__(self, admission: Admission, address: str, group: str) -> None:
        self._admission, self.address, self.group = admission, address, group
        self.requests = 0  # number of HTTP requests in progress
        self.is_page = False
        self._transport: asyncio.Transport | None = None
        self._http: Any = None
        self._send_timeout: asyncio.TimerHandle | None = None
        self._unsent = 0
        self._writable = asyncio.Event()
        self._writable.set()
        self.opening: asyncio.Task[None] | None = None  # task of the TLS handshake
        loop = asyncio.get_running_loop()
        self.expiry = loop.call_later(FIRST_REQUEST_S, self.close)

    def close(self) -> None:
        """Abort the connection without a closing handshake, as the peer may not read it."""
        if self._transport is not None:
            self._transport.abort()
        elif self.opening is not None:
            self.opening.cancel()

    async def write(self, data: bytes) -> None:
        """Send data to the peer, and wait until the connection's send buffer has space."""
        if self._transport is None or self._transport.is_closing():
            raise ConnectionResetError("the connection is closed")
        self._transport.write(data)
        await self._writable.wait()

    # -- callbacks of the event loop ---------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register an established connection and attach an HTTP protocol to it."""
        self._transport = cast(asyncio.Transport, transport)
        self._http = self._admission.http()
        self._admission.connections[transport] = self
        self._http.connection_made(transport)

    def connection_lost(self, error: Exception | None) -> None:
        """Remove a closed connection from its group and notify the HTTP protocol."""
        if self._send_timeout:
            self._send_timeout.cancel()
        self._writable.set()
        self._admission.forget(self, self._transport)
        self._http.connection_lost(error)

    def data_received(self, data: bytes) -> None:
        """Pass received bytes to the HTTP protocol."""
        self._http.data_received(data)

    def eof_received(self) -> None:
        """Pass the peer's end of file to the HTTP protocol."""
        self._http.eof_received()

    def pause_writing(self) -> None:
        """Start the send timeout when the send buffer is full."""
        self._writable.clear()
        self._http.pause_writing()
        assert self._transport is not None
        self._unsent = self._transport.get_write_buffer_size()
        self._send_timeout = asyncio.get_running_loop().call_later(SLOWEST_S, self._check_progress)

    def resume_writing(self) -> None:
        """Stop the send timeout when the peer has read the buffered data."""
        if self._send_timeout:
            self._send_timeout.cancel()
        self._writable.set()
        self._http.resume_writing()

    def _check_progress(self) -> None:
        assert self._transport is not None
        unsent = self._transport.get_write_buffer_size()
        if unsent >= self._unsent:
            LOG.warning("connections whose peer did not read were closed")
            self.close()
            return
        self._unsent = unsent
        self._send_timeout = asyncio.get_running_loop().call_later(SLOWEST_S, self._check_progress)


class Admission:
    """Accepts the page's connections and enforces the connection limit of each group.

    Parameters
    ----------
    listening : socket
        Listening socket of the page.
    tls : SSLContext, optional
        TLS settings; by default connections are not encrypted.
    """

    def __init__(self, listening: socket.socket, tls: ssl.SSLContext | None = None) -> None:
        self._listening, self._tls = listening, tls
        listening.setblocking(False)
        self.http: Callable[[], asyncio.Protocol] = asyncio.Protocol
        self.connections: dict[asyncio.BaseTransport, PageConnection] = {}
        # TCP connections of each client group, the longest idle connection first.
        self._groups: dict[str, dict[PageConnection, None]] = {
            name: {} for name in MOST_CONNECTIONS
        }

    def begin(self, http: Callable[[], asyncio.Protocol]) -> None:
        """Start to accept connections; `http` creates the HTTP protocol of a connection."""
        self.http = http
        asyncio.get_running_loop().add_reader(self._listening, self._accept_connections)

    def forget(self, connection: PageConnection, transport: asyncio.BaseTransport | None) -> None:
        """Remove a closed connection from its client group, and cancel its timeout."""
        connection.expiry.cancel()
        self._groups[connection.group].pop(connection, None)
        if transport is not None:
            self.connections.pop(transport, None)

    @contextmanager
    def serving(self, request: web.Request, role: str) -> Iterator[PageConnection]:
        """Count an HTTP request as in progress; raise HTTP 503 if its role's group is full."""
        connection = self._connection_of(request)
        if connection.group != role:
            group = self._groups[role]
            if not self._make_room([*group], MOST_CONNECTIONS[role], connection.address):
                raise _unavailable("too many connections are open: close a page and retry")
            self._groups[connection.group].pop(connection, None)
            group[connection] = None
            connection.group = role
            connection.expiry.cancel()
        connection.requests += 1
        self._mark_as_used(connection)
        try:
            yield connection
        finally:
            connection.requests -= 1
            self._mark_as_used(connection)

    @contextmanager
    def page(self, request: web.Request) -> Iterator[PageConnection]:
        """Count a WebSocket connection as an open page; raise HTTP 503 at the page limit."""
        connection = self._connection_of(request)
        role = connection.group
        open_pages = [one for one in self._groups[role] if one.is_page]
        if not self._make_room(open_pages, MOST_PAGES[role], connection.address):
            raise _unavailable(f"{MOST_PAGES[role]} pages are open: close one and retry")
        connection.is_page = True
        try:
            yield connection
        finally:
            connection.is_page = False

    def _connection_of(self, request: web.Request) -> PageConnection:
        transport = request.transport
        if transport is None or transport not in self.connections:
            raise ConnectionResetError("the connection is closed")
        return self.connections[transport]

    def _mark_as_used(self, connection: PageConnection) -> None:
        group = self._groups[connection.group]
        if connection in group:  # the TCP connection may already be closed
            del group[connection]
            group[connection] = None

    def _make_room(self, group: list[PageConnection], most: int, address: str) -> bool:
        """Make space for a new connection in a client group, closing an idle one if necessary.

        Idle connections are closed first. A connection with a request in progress is closed only
        if its address has at least two connections more than the new connection's address:
        connections of the same address do not replace each other.
        """
        if len(group) < most:
            return True
        counts = Counter(one.address for one in group)
        idle = [one for one in group if not one.requests]
        if idle:
            victim = max(idle, key=lambda one: counts[one.address])
        else:
            victim = max(reversed(group), key=lambda one: counts[one.address])
            if counts[victim.address] < counts[address] + 2:
                return False
        kind = "connections without a token" if victim.group in (NEAR, FAR) else "connections"
        LOG.warning(f"{kind} were closed to make room for others")
        victim.close()
        self._groups[victim.group].pop(victim)
        return True

    # -- accepting ---------------------------------------------------------------------------------

    def _accept_connections(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                accepted, (address, *_) = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause_accepting(error)
                return
            self._admit_stranger(accepted, address)

    def _pause_accepting(self, error: OSError) -> None:
        """Stop accepting connections for `PAUSE_S`, for lack of file descriptors or memory."""
        LOG.warning(f"no connection could be accepted: {os.strerror(error.errno or 0)}")
        strangers = [*self._groups[FAR], *self._groups[NEAR]]
        for one in strangers[:ACCEPTED_AT_ONCE]:
            one.close()
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._listening)
        loop.call_later(PAUSE_S, loop.add_reader, self._listening, self._accept_connections)

    def _admit_stranger(self, accepted: socket.socket, address: str) -> None:
        source = source_of(address)
        group = NEAR if source == LOOPBACK else FAR
        self._make_room([*self._groups[group]], MOST_CONNECTIONS[group], source)
        accepted.setblocking(False)
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        connection = PageConnection(self, source, group)
        self._groups[group][connection] = None
        connection.opening = asyncio.create_task(self._open_transport(connection, accepted))

    async def _open_transport(self, connection: PageConnection, accepted: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        timeout = {"ssl_handshake_timeout": FIRST_REQUEST_S} if self._tls else {}
        try:
            await loop.connect_accepted_socket(
                lambda: connection, accepted, ssl=self._tls, **timeout
            )
        except (OSError, asyncio.CancelledError, asyncio.TimeoutError):
            self.forget(connection, None)
            with suppress(OSError):  # the client may have closed the socket already
                accepted.shutdown(socket.SHUT_RDWR)


def source_of(address: str) -> str:
    """Return the source for connection limits: an IPv4 address, an IPv6 /64, or the loopback.

    >>> source_of("127.0.0.2"), source_of("::ffff:127.0.0.1"), source_of("192.0.2.7")
    ('loopback', 'loopback', '192.0.2.7')
    >>> source_of("2001:db8::1"), source_of("fe80::1%eth0")
    ('2001:db8::/64', 'fe80::/64')
    """
    found = ipaddress.ip_address(address.partition("%")[0])
    if found.version == 6 and found.ipv4_mapped:
        found = found.ipv4_mapped
    if found.is_loopback:
        return LOOPBACK
    if found.version == 4:
        return str(found)
    return str(ipaddress.ip_network((found, 64), strict=False))


def _unavailable(why: str) -> web.HTTPServiceUnavailable:
    answer = web.HTTPServiceUnavailable(text=f"Pillarbox: {why}.\n", headers=HEADERS)
    answer.force_close()
    return answer
