"""Connections to the page: how many of whom, and which one is closed to make room for another.

A connection is a stranger's until a request on it has shown a token; then it is a watcher's or an
operator's. Each group has a limit of its own, so that no group takes the places of another:
operators can always connect. Strangers on this machine and those on the network are two groups.

When a group is full, the address with the most connections loses the one that has been idle for
longest. Many watchers behind one address (a class behind NAT) may take all places that other
addresses do not need.

A connection is closed if it shows no token in time, or takes nothing of what is sent to it.
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

from experiments.page.access import HEADERS
from experiments.page.bounded_log import LOG

OPERATE, WATCH = "operate", "watch"
NEAR, FAR = "strangers on this machine", "strangers"
# Connections of each group; their sum is below the limit of open files, `visitor.MOST_OPEN_FILES`.
MOST_CONNECTIONS = {NEAR: 64, FAR: 96, WATCH: 224, OPERATE: 48}
MOST_PAGES = {WATCH: 128, OPERATE: 16}  # of these connections, open pages (WebSockets)
LOOPBACK = "loopback"  # all loopback addresses count as one
FIRST_REQUEST_S = 10.0  # from the connection to a request with a token, TLS included
SLOWEST_S = 10.0  # for a peer to take some of what is sent to it
KEEP_ALIVE_S = 15.0  # for the next request on a connection
ACCEPTED_AT_ONCE = 8  # so that requests are read in between
PAUSE_S = 0.2  # after accept() has failed for lack of descriptors or memory
SEND_BUFFER = 1 << 18  # bytes in the kernel, for each connection


class PageConnection(asyncio.Protocol):
    """A connection: hands what arrives to the HTTP server, and ends a peer that takes nothing."""

    def __init__(self, admission: Admission, address: str, group: str) -> None:
        self._admission, self.address, self.group = admission, address, group
        self.requests = 0  # under way
        self.is_page = False
        self._transport: asyncio.Transport | None = None
        self._http: Any = None
        self._stall: asyncio.TimerHandle | None = None
        self._unsent = 0
        self._writable = asyncio.Event()
        self._writable.set()
        self.opening: asyncio.Task[None] | None = None  # until TLS has been negotiated
        loop = asyncio.get_running_loop()
        self.expiry = loop.call_later(FIRST_REQUEST_S, self.close)

    def close(self) -> None:
        """End the connection without a farewell: the peer may not take one."""
        if self._transport is not None:
            self._transport.abort()
        elif self.opening is not None:
            self.opening.cancel()

    async def write(self, data: bytes) -> None:
        """Send data, and wait until there is room for more."""
        if self._transport is None or self._transport.is_closing():
            raise ConnectionResetError("the connection is closed")
        self._transport.write(data)
        await self._writable.wait()

    # -- what the event loop calls -----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast(asyncio.Transport, transport)
        self._http = self._admission.http()
        self._admission.connections[transport] = self
        self._http.connection_made(transport)

    def connection_lost(self, error: Exception | None) -> None:
        """End."""
        if self._stall:
            self._stall.cancel()
        self._writable.set()
        self._admission.forget(self, self._transport)
        self._http.connection_lost(error)

    def data_received(self, data: bytes) -> None:
        """Hand over what has arrived."""
        self._http.data_received(data)

    def eof_received(self) -> None:
        """Hand over that no more will arrive."""
        self._http.eof_received()

    def pause_writing(self) -> None:
        """Begin to observe whether the peer takes anything."""
        self._writable.clear()
        self._http.pause_writing()
        assert self._transport is not None
        self._unsent = self._transport.get_write_buffer_size()
        self._stall = asyncio.get_running_loop().call_later(SLOWEST_S, self._check_progress)

    def resume_writing(self) -> None:
        """Note that the peer has taken what was sent."""
        if self._stall:
            self._stall.cancel()
        self._writable.set()
        self._http.resume_writing()

    def _check_progress(self) -> None:
        assert self._transport is not None
        unsent = self._transport.get_write_buffer_size()
        if unsent >= self._unsent:
            LOG.warning("connections whose peer took nothing were closed")
            self.close()
            return
        self._unsent = unsent
        self._stall = asyncio.get_running_loop().call_later(SLOWEST_S, self._check_progress)


class Admission:
    """Accepts connections, and knows whose they are.

    Parameters
    ----------
    listening : socket
        Where connections arrive.
    tls : SSLContext, optional
        By default connections are not encrypted.
    """

    def __init__(self, listening: socket.socket, tls: ssl.SSLContext | None = None) -> None:
        self._listening, self._tls = listening, tls
        listening.setblocking(False)
        self.http: Callable[[], asyncio.Protocol] = asyncio.Protocol
        self.connections: dict[asyncio.BaseTransport, PageConnection] = {}
        # In each group the connection that has been idle for longest is the first.
        self._groups: dict[str, dict[PageConnection, None]] = {
            name: {} for name in MOST_CONNECTIONS
        }

    def begin(self, http: Callable[[], asyncio.Protocol]) -> None:
        """Accept connections from now on; `http` makes the HTTP server's end of one."""
        self.http = http
        asyncio.get_running_loop().add_reader(self._listening, self._accept)

    def forget(self, connection: PageConnection, transport: asyncio.BaseTransport | None) -> None:
        """Give the place of a connection to others."""
        connection.expiry.cancel()
        self._groups[connection.group].pop(connection, None)
        if transport is not None:
            self.connections.pop(transport, None)

    @contextmanager
    def serving(self, request: web.Request, role: str) -> Iterator[PageConnection]:
        """Count a request that has shown a role's token; raise 503 if there is no place for it."""
        connection = self._connection_of(request)
        if connection.group != role:
            group = self._groups[role]
            if not self._has_room([*group], MOST_CONNECTIONS[role], connection.address):
                raise _full("too many connections are open")
            self._groups[connection.group].pop(connection, None)
            group[connection] = None
            connection.group = role
            connection.expiry.cancel()
        connection.requests += 1
        self._place_last(connection)
        try:
            yield connection
        finally:
            connection.requests -= 1
            self._place_last(connection)

    @contextmanager
    def page(self, request: web.Request) -> Iterator[PageConnection]:
        """Keep a place for an open page; raise 503 if there is none."""
        connection = self._connection_of(request)
        role = connection.group
        open_pages = [one for one in self._groups[role] if one.is_page]
        if not self._has_room(open_pages, MOST_PAGES[role], connection.address):
            raise _full(f"{MOST_PAGES[role]} pages are open")
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

    def _place_last(self, connection: PageConnection) -> None:
        group = self._groups[connection.group]
        if connection in group:  # it may have been lost meanwhile
            del group[connection]
            group[connection] = None

    def _has_room(self, group: list[PageConnection], most: int, address: str) -> bool:
        """Return whether a group has room for one more connection, after making room if possible.

        A connection with a request under way is closed only if its address has at least two more
        than the newcomer's would have: it makes room for others, and not for its own kind.
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

    def _accept(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                accepted, (address, *_) = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause(error)
                return
            self._take(accepted, address)

    def _pause(self, error: OSError) -> None:
        """Accept nothing for a moment, as there are no descriptors or there is no memory left."""
        LOG.warning(f"no connection could be accepted: {os.strerror(error.errno or 0)}")
        strangers = [*self._groups[FAR], *self._groups[NEAR]]
        for one in strangers[:ACCEPTED_AT_ONCE]:
            one.close()
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._listening)
        loop.call_later(PAUSE_S, loop.add_reader, self._listening, self._accept)

    def _take(self, accepted: socket.socket, address: str) -> None:
        source = source_of(address)
        group = NEAR if source == LOOPBACK else FAR
        self._has_room([*self._groups[group]], MOST_CONNECTIONS[group], source)
        accepted.setblocking(False)
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        connection = PageConnection(self, source, group)
        self._groups[group][connection] = None
        connection.opening = asyncio.create_task(self._open(connection, accepted))

    async def _open(self, connection: PageConnection, accepted: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        timeout = {"ssl_handshake_timeout": FIRST_REQUEST_S} if self._tls else {}
        try:
            await loop.connect_accepted_socket(
                lambda: connection, accepted, ssl=self._tls, **timeout
            )
        except (OSError, asyncio.CancelledError, asyncio.TimeoutError):
            self.forget(connection, None)
            with suppress(OSError):  # closed already
                accepted.shutdown(socket.SHUT_RDWR)


def source_of(address: str) -> str:
    """Return what counts as one address: an IPv4 address, an IPv6 network of 64 bits, the loopback.

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


def _full(why: str) -> web.HTTPServiceUnavailable:
    answer = web.HTTPServiceUnavailable(text=f"Pillarbox: {why}.\n", headers=HEADERS)
    answer.force_close()
    return answer
