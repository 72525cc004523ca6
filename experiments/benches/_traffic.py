"""Light traffic between all servers of a lab, from one process, that notices whatever goes wrong.

Every server has a socket for datagrams and one that echoes what TCP connections send. *Streams*
send numbered datagrams from one server to another, and what did not arrive is known one by one.
*Connections* send bytes that cannot be mistaken for others and check what comes back: long ones
until they are closed, short ones so many and no more.

Nothing here sleeps or decides when: `Traffic.step` does what is due and returns.
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
PATTERN = Random("pattern").randbytes(4093)  # a prime: no power of two repeats it
CHUNK = 512
TCP_INFO = struct.Struct("=BxB5xI12xI16xI8xI")
SHORT_BYTES = 8 * CHUNK
EVERY_S = {"_send_datagrams": 0.1, "_send_chunks": 0.2, "_begin_some": 0.25}


@dataclass
class Stream:
    """Numbered datagrams from one server to another."""

    source: int
    destination: int
    sent: int = 0
    judged: int = 0  # of those sent, so many were counted as lost or not
    arrived: set[int] = field(default_factory=set)  # of the others

    def missing(self) -> int:
        """Return how many have not arrived of those sent since `lost` was last asked."""
        return self.sent - self.judged - len(self.arrived)

    def lost(self) -> int:
        """Return how many were lost of those sent since this was last asked."""
        lost = self.missing()
        self.judged = self.sent
        self.arrived.clear()
        return lost


@dataclass
class ClientConnection:
    """A client's side of a TCP connection."""

    source: int
    destination: int
    client: socket.socket
    length: int | None  # None for a long one
    moved_s: float
    sent: int = 0
    echoed: int = 0
    # Tries of TCP's, while the network stood still and had a path both ways, that came to nothing.
    in_vain: int = 0

    @property
    def finished(self) -> bool:
        """Whether all has come back."""
        return self.length is not None and self.echoed >= self.length


class BenchTraffic:
    """All streams and connections of a lab.

    Parameters
    ----------
    lab : Lab
        The running lab.
    draw : Random
        Chooses the pairs of servers.
    streams, connections : int
        How many streams and long connections there are.
    stalled_s : float
        Which connections have broken: those that stand still for so long.
    """

    def __init__(
        self, lab: Any, draw: Random, *, streams: int, connections: int, stalled_s: float
    ) -> None:
        self.lab, self.draw, self.stalled_s = lab, draw, stalled_s
        self.counts: Counter[str] = Counter()  # of connections, by what became of them
        self.errors: Counter[str] = Counter()
        self.streams = [Stream(*self._pair()) for _ in range(streams)]
        self._long = connections
        self._ending = False
        self._selector = selectors.DefaultSelector()
        self._connections: dict[socket.socket, ClientConnection] = {}
        self._echoing: dict[socket.socket, set[str]] = {}  # accepted; addresses of both ends
        self._next_s: dict[str, float] = {}
        self._datagrams = {}
        for server in range(lab.topology.servers):
            self._datagrams[server] = self._socket(server, socket.SOCK_DGRAM)
            self._datagrams[server].bind(("", COUNT_PORT))
            self._selector.register(self._datagrams[server], selectors.EVENT_READ, self._counted)
            listening = self._socket(server, socket.SOCK_STREAM)
            listening.bind(("", ECHO_PORT))
            listening.listen(64)
            self._selector.register(listening, selectors.EVENT_READ, self._accept)

    def close(self) -> None:
        """Close all sockets."""
        for key in list(self._selector.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
        self._selector.close()

    def step(self, now: float, wait_s: float, *, datagrams: bool = True) -> None:
        """Send what is due, then take in what comes within that time."""
        for deed, every_s in EVERY_S.items():
            due = now >= self._next_s.get(deed, 0.0)
            if due and (datagrams or deed != "_send_datagrams"):
                self._next_s[deed] = now + every_s
                getattr(self, deed)(now)
        for key, _ in self._selector.select(wait_s):
            key.data(key.fileobj, now)
        for one in self._open():
            if now - one.moved_s > self.stalled_s:
                why = f"{_tcp_state(one.client)}, {one.in_vain} tries in vain where a path was"
                self.errors[f"stalled: {why}"] += 1
                self._end(one, "stalled")

    def tries(self) -> dict[socket.socket, int]:
        """Return how often TCP has tried in vain so far, of connections whose ends have paths."""
        computed = self.lab.computed
        return {
            one.client: _tcp_info(one.client)[1]
            for one in self._open()
            if computed(one.source, one.destination) and computed(one.destination, one.source)
        }

    def tried(self, before: dict[socket.socket, int]) -> None:
        """Count the tries that came to nothing since then, while nothing changed."""
        for client, tries in before.items():
            one = self._connections.get(client)
            if one:
                one.in_vain += max(0, _tcp_info(client)[1] - tries)

    def missing(self) -> int:
        """Return how many datagrams are on their way, or lost."""
        return sum(stream.missing() for stream in self.streams)

    def server_died(self, server: int) -> None:
        """Forget the connections that a server has taken with it."""
        for one in self._open():
            if server in (one.source, one.destination):
                self._end(one, "ended with a server")
        address = self.lab.topology.ip(server)
        for accepted, ends in list(self._echoing.items()):
            if address in ends:
                self._end_echo(accepted)

    def end(self) -> int:
        """Let connections come to their end; return how many have not yet all that they sent."""
        self._ending = True
        return sum(one.sent > one.echoed or one.length is not None for one in self._open())

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

    def _counted(self, which: socket.socket, now: float) -> None:
        try:
            number, sequence = NUMBERED.unpack(which.recv(64))
        except OSError:  # an error message for what was sent before
            return
        if sequence >= self.streams[number].judged:
            self.streams[number].arrived.add(sequence)

    # -- connections -----------------------------------------------------------------------------

    def _begin_some(self, now: float) -> None:
        if self._ending:
            return
        self._begin(SHORT_BYTES, now)
        if sum(one.length is None for one in self._open()) < self._long:
            self._begin(None, now)

    def _begin(self, length: int | None, now: float) -> None:
        source, destination = self._pair()
        client = self._socket(source, socket.SOCK_STREAM)
        self.counts["begun"] += 1
        one = ClientConnection(source, destination, client, length, now)
        self._connections[client] = one
        self._selector.register(client, selectors.EVENT_READ, self._echo_came)
        code = client.connect_ex((self.lab.topology.ip(destination), ECHO_PORT))
        if code not in (0, 115):  # EINPROGRESS
            self._failed(one, OSError(code, "no connection"))

    def _send_chunks(self, now: float) -> None:
        for one in self._open():
            most = CHUNK if one.length is None else one.length - one.sent
            if self._ending and one.length is None:
                continue
            if most > 0 and one.sent - one.echoed < 64 * CHUNK:
                try:
                    one.sent += one.client.send(_pattern(one.sent, most))
                except (BlockingIOError, BrokenPipeError):  # not connected yet, or soon an error
                    continue
                except OSError as error:
                    self._failed(one, error)

    def _echo_came(self, client: socket.socket, now: float) -> None:
        one = self._connections.get(client)
        if one is None:  # ended a moment ago
            return
        try:
            data = client.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError as error:
            self._failed(one, error)
            return
        if data != _pattern(one.echoed, len(data)):
            self._end(one, "other bytes came back")
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
        except OSError:  # it has broken meanwhile
            return
        accepted.setblocking(False)
        self._echoing[accepted] = {accepted.getsockname()[0], far}
        self._selector.register(accepted, selectors.EVENT_READ, self._echo)

    def _echo(self, accepted: socket.socket, now: float) -> None:
        if accepted not in self._echoing:
            return
        try:
            data = accepted.recv(1 << 16)
            # A client sends no more than this buffer takes.
            if data and accepted.send(data) == len(data):
                return
        except BlockingIOError:
            return
        except OSError:  # the client's side counts it
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

    # -- for both --------------------------------------------------------------------------------

    def _open(self) -> list[ClientConnection]:
        return list(self._connections.values())

    def _pair(self) -> tuple[int, int]:
        alive = [s for s in range(self.lab.topology.servers) if s not in self.lab.dead]
        source, destination = self.draw.sample(alive, 2)
        return source, destination

    def _socket(self, server: int, kind: int) -> socket.socket:
        with self.lab.host(server).live_namespace():
            return socket.socket(socket.AF_INET, kind | socket.SOCK_NONBLOCK)


def _tcp_state(client: socket.socket) -> str:
    """Return what TCP does about a connection that stands still (struct tcp_info)."""
    state, repeats, pause_us, unanswered, sent_ms, heard_ms = _tcp_info(client)
    return (
        f"state {state}, {unanswered} segments without an answer, sent {sent_ms / 1e3:.1f} s ago, "
        f"{repeats} times, next after {pause_us / 1e6:.1f} s, heard {heard_ms / 1e3:.1f} s ago"
    )


def _tcp_info(client: socket.socket) -> tuple[int, ...]:
    info = client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO.size)
    return TCP_INFO.unpack(info)


def _pattern(start: int, length: int) -> bytes:
    """Return what a connection sends from there on."""
    begin = start % len(PATTERN)
    return (PATTERN * (2 + length // len(PATTERN)))[begin : begin + length]
