"""Light traffic between all servers of a lab from one process, which detects all losses and errors.

Every server has a socket for datagrams, and a TCP socket that echoes all received bytes. *Streams*
send numbered datagrams from one server to another, so that each lost datagram is known.
*Connections* send a fixed byte pattern and verify the echo: long connections until they are closed,
short connections up to a fixed length.

This module neither sleeps nor schedules: `BenchTraffic.step` performs the due operations and
returns.
"""

from __future__ import annotations

import selectors
import socket
import struct
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any

ECHO_PORT, COUNT_PORT = 5001, 5002
NUMBERED = struct.Struct(">II")
PATTERN = Random("pattern").randbytes(4093)  # payload pattern; its length is prime to detect shifts
CHUNK = 512
TCP_INFO = struct.Struct("=BxB5xI12xI16xI8xI")
SHORT_BYTES = 8 * CHUNK
EVERY_S = {"_send_datagrams": 0.1, "_send_chunks": 0.2, "_begin_connections": 0.25}


@dataclass
class Stream:
    """Stream of numbered UDP datagrams from one server to another."""

    source: int
    destination: int
    sent: int = 0
    judged: int = 0  # number of datagrams sent before the last loss count
    arrived: set[int] = field(default_factory=set)  # sequence numbers since the last loss count

    def missing(self) -> int:
        """Return the number of datagrams sent but not received since the last loss count."""
        return self.sent - self.judged - len(self.arrived)

    def lost(self) -> int:
        """Return the number of datagrams lost since the last call, and start a new count."""
        lost = self.missing()
        self.judged = self.sent
        self.arrived.clear()
        return lost


@dataclass
class ClientConnection:
    """Client side of a TCP connection to an echo server."""

    source: int
    destination: int
    client: socket.socket
    length: int | None  # bytes to send; None to send until the test ends
    moved_s: float
    sent: int = 0
    echoed: int = 0
    # TCP's unsuccessful retransmissions while the network had a path in both directions.
    in_vain: int = 0

    @property
    def finished(self) -> bool:
        """True if all bytes of a short connection were echoed."""
        return self.length is not None and self.echoed >= self.length


class BenchTraffic:
    """Test traffic in a live lab: UDP streams and TCP connections between its servers.

    Parameters
    ----------
    lab : Lab
        The running lab.
    draw : Random
        Random source that draws the pairs of servers.
    streams, connections : int
        Number of streams, and number of long connections.
    stalled_s : float
        Time without progress after which a connection counts as broken, in seconds.
    """

    def __init__(
        self, lab: Any, draw: Random, *, streams: int, connections: int, stalled_s: float
    ) -> None:
        self.lab, self.draw, self.stalled_s = lab, draw, stalled_s
        self.counts: Counter[str] = Counter()  # number of TCP connections by event
        self.errors: Counter[str] = Counter()
        self.streams = [Stream(*self._pair()) for _ in range(streams)]
        self._long = connections
        self._ending = False
        self._selector = selectors.DefaultSelector()
        self._connections: dict[socket.socket, ClientConnection] = {}
        # Address pairs of TCP connections, by the echo server's socket.
        self._echoing: dict[socket.socket, set[str]] = {}
        self._next_s: dict[str, float] = {}
        self._datagrams = {}
        for server in range(lab.topology.servers):
            self._datagrams[server] = self._socket(server, socket.SOCK_DGRAM)
            self._datagrams[server].bind(("", COUNT_PORT))
            self._selector.register(
                self._datagrams[server], selectors.EVENT_READ, self._count_datagram
            )
            listening = self._socket(server, socket.SOCK_STREAM)
            listening.bind(("", ECHO_PORT))
            listening.listen(64)
            self._selector.register(listening, selectors.EVENT_READ, self._accept)

    def close(self) -> None:
        """Close all sockets of the test traffic."""
        for key in list(self._selector.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
        self._selector.close()

    def step(self, now: float, wait_s: float, *, datagrams: bool = True) -> None:
        """Send all due test traffic, then process data that arrives within `wait_s` seconds."""
        for deed, every_s in EVERY_S.items():
            due = now >= self._next_s.get(deed, 0.0)
            if due and (datagrams or deed != "_send_datagrams"):
                self._next_s[deed] = now + every_s
                getattr(self, deed)(now)
        for key, _ in self._selector.select(wait_s):
            key.data(key.fileobj, now)
        for one in self._open_connections():
            if now - one.moved_s > self.stalled_s:
                why = f"{_tcp_state(one.client)}, {one.in_vain} unsuccessful tries with a path"
                self.errors[f"stalled: {why}"] += 1
                self._end(one, "stalled")

    def tries(self) -> dict[socket.socket, int]:
        """Return TCP's unanswered retransmissions by client socket, if paths exist both ways."""
        computed = self.lab.computed
        return {
            one.client: _tcp_info(one.client)[1]
            for one in self._open_connections()
            if computed(one.source, one.destination) and computed(one.destination, one.source)
        }

    def tried(self, before: dict[socket.socket, int]) -> None:
        """Add to each connection its unanswered TCP retransmissions since `before`."""
        for client, tries in before.items():
            one = self._connections.get(client)
            if one:
                one.in_vain += max(0, _tcp_info(client)[1] - tries)

    def missing(self) -> int:
        """Return the number of UDP datagrams of all streams in flight or lost."""
        return sum(stream.missing() for stream in self.streams)

    def server_died(self, server: int) -> None:
        """End the TCP connections of a dead server."""
        for one in self._open_connections():
            if server in (one.source, one.destination):
                self._end(one, "ended with a server")
        address = self.lab.topology.ip(server)
        for accepted, ends in list(self._echoing.items()):
            if address in ends:
                self._end_echo(accepted)

    def end(self) -> int:
        """Stop the test traffic; return the number of TCP connections with an incomplete echo."""
        self._ending = True
        return sum(
            one.sent > one.echoed or one.length is not None for one in self._open_connections()
        )

    # -- datagrams -------------------------------------------------------------------------------

    def _send_datagrams(self, now: float) -> None:
        for number, stream in enumerate(self.streams):
            if {stream.source, stream.destination} & self.lab.dead:
                continue
            to = self.lab.topology.ip(stream.destination), COUNT_PORT
            message = NUMBERED.pack(number, stream.sent)
            try:
                self._datagrams[stream.source].sendto(message, to)
            except OSError as error:
                self.errors[f"datagram: {error.strerror}"] += 1
            else:
                stream.sent += 1

    def _count_datagram(self, which: socket.socket, now: float) -> None:
        try:
            number, sequence = NUMBERED.unpack(which.recv(64))
        except OSError:  # an ICMP error that an earlier datagram caused: count no datagram
            return
        if sequence >= self.streams[number].judged:
            self.streams[number].arrived.add(sequence)

    # -- connections -----------------------------------------------------------------------------

    def _begin_connections(self, now: float) -> None:
        if self._ending:
            return
        self._begin(SHORT_BYTES, now)
        if sum(one.length is None for one in self._open_connections()) < self._long:
            self._begin(None, now)

    def _begin(self, length: int | None, now: float) -> None:
        source, destination = self._pair()
        client = self._socket(source, socket.SOCK_STREAM)
        self.counts["begun"] += 1
        one = ClientConnection(source, destination, client, length, now)
        self._connections[client] = one
        self._selector.register(client, selectors.EVENT_READ, self._echo_came)
        code = client.connect_ex((self.lab.topology.ip(destination), ECHO_PORT))
        if code not in (0, 115):  # 0: connected; 115 (EINPROGRESS): the TCP handshake continues
            self._failed(one, OSError(code, "no connection"))

    def _send_chunks(self, now: float) -> None:
        for one in self._open_connections():
            most = CHUNK if one.length is None else one.length - one.sent
            if self._ending and one.length is None:
                continue
            if most > 0 and one.sent - one.echoed < 64 * CHUNK:
                try:
                    one.sent += one.client.send(_pattern(one.sent, most))
                # The client's TCP connection is not established yet, or about to fail.
                except (BlockingIOError, BrokenPipeError):
                    continue
                except OSError as error:
                    self._failed(one, error)

    def _echo_came(self, client: socket.socket, now: float) -> None:
        one = self._connections.get(client)
        if one is None:  # the TCP connection has just ended
            return
        try:
            data = client.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError as error:
            self._failed(one, error)
            return
        if data != _pattern(one.echoed, len(data)):
            self._end(one, "wrong echo")
        elif not data:
            self._end(one, "closed by the other side")
        else:
            one.echoed += len(data)
            one.moved_s = now
            if one.finished:
                self._end(one, "finished")

    def _accept(self, listening: socket.socket, now: float) -> None:
        try:
            accepted, (far, _) = listening.accept()
        except OSError:  # the connection broke before it was accepted
            return
        accepted.setblocking(False)
        self._echoing[accepted] = {accepted.getsockname()[0], far}
        self._selector.register(accepted, selectors.EVENT_READ, self._echo)

    def _echo(self, accepted: socket.socket, now: float) -> None:
        if accepted not in self._echoing:
            return
        try:
            data = accepted.recv(1 << 16)
            # The echo fits into the send buffer, as a client awaits earlier echoes.
            if data and accepted.send(data) == len(data):
                return
        except BlockingIOError:
            return
        except OSError:  # the client side of the TCP connection counts this error
            pass
        self._end_echo(accepted)

    def _end_echo(self, accepted: socket.socket) -> None:
        self._selector.unregister(accepted)
        del self._echoing[accepted]
        accepted.close()

    def _failed(self, one: ClientConnection, error: OSError) -> None:
        self.errors[f"connection: {error.strerror}"] += 1
        self._end(one, "broken")

    def _end(self, one: ClientConnection, how: str) -> None:
        self.counts[how] += 1
        self._selector.unregister(one.client)
        del self._connections[one.client]
        one.client.close()

    # -- streams and connections -------------------------------------------------------------------

    def _open_connections(self) -> list[ClientConnection]:
        return list(self._connections.values())

    def _pair(self) -> tuple[int, int]:
        alive = [s for s in range(self.lab.topology.servers) if s not in self.lab.dead]
        source, destination = self.draw.sample(alive, 2)
        return source, destination

    def _socket(self, server: int, kind: int) -> socket.socket:
        with self.lab.host(server).live_namespace():
            return socket.socket(socket.AF_INET, kind | socket.SOCK_NONBLOCK)


def _tcp_state(client: socket.socket) -> str:
    """Return TCP's state of a stalled connection as text (struct tcp_info)."""
    state, repeats, pause_us, unanswered, sent_ms, heard_ms = _tcp_info(client)
    return (
        f"state {state}, {unanswered} unacknowledged segments, sent {sent_ms / 1e3:.1f} s ago, "
        f"{repeats} times, next after {pause_us / 1e6:.1f} s, heard {heard_ms / 1e3:.1f} s ago"
    )


def _tcp_info(client: socket.socket) -> tuple[int, ...]:
    info = client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO.size)
    return TCP_INFO.unpack(info)


def _pattern(start: int, length: int) -> bytes:
    """Return the payload pattern of a TCP connection from a byte position."""
    begin = start % len(PATTERN)
    return (PATTERN * (2 + length // len(PATTERN)))[begin : begin + length]
