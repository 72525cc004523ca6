"""iperf3's own set-up of a flow, driven up to its last step before the flows start.

iperf3 sets a flow up by five messages over a control connection::

    1  client   a cookie
    2  server   a request for the parameters
    3  client   the parameters
    4  server   a request for the flow's connection
    5  client   the flow's connection, and the cookie in it

After that the server sends. Among hundreds of flows in progress the five messages take a second, so
flows that began with them would start at different times. They are exchanged before the start
instead: of a flow's client and server one runs and the other is stopped by SIGSTOP, in turns. The
kernel accepts connections and receives data for a stopped process, so the one that runs sends its
message and then waits. At the end the client waits for the server, which is stopped: SIGCONT is all
that it needs to send its first byte.
"""

from __future__ import annotations

import signal
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pillarbox.experiments.lab.traffic.iperf3_session import Iperf3Session

if TYPE_CHECKING:
    from pillarbox.experiments.lab.emulation.lab import Lab

MESSAGES = 5
POLL_S = 0.01
MOST_CHECK_SHARE = 0.2  # maximum fraction of time spent on reading the TCP state of iperf3's flows
LISTENING, ESTABLISHED = "0A", "01"  # TCP states in /proc/net/tcp


class TcpSocket(NamedTuple):
    """A TCP socket as the kernel lists it."""

    state: str
    local_port: int
    remote_port: int
    waiting: int  # bytes that its process has not read

    @classmethod
    def in_line(cls, line: str) -> TcpSocket:
        """Return the socket in a line of /proc/net/tcp."""
        _, local, remote, state, queues, *_ = line.split()
        at, to, waiting = (int(text.partition(":")[2], 16) for text in (local, remote, queues))
        return cls(state, at, to, waiting)


def paced(limit_s: float) -> Iterator[None]:
    """Yield until the time limit, with pauses in between: MOST_CHECK_SHARE of the time is used."""
    began_s = time.monotonic()
    deadline = began_s + limit_s
    while began_s < deadline:
        yield
        looked_s = time.monotonic() - began_s
        time.sleep(max(POLL_S, looked_s / MOST_CHECK_SHARE))
        began_s = time.monotonic()


def without_listener(lab: Lab, sessions: Sequence[Iperf3Session]) -> list[Iperf3Session]:
    """Return the sessions on whose TCP port no program listens."""
    ports = {
        source: {one.local_port for one in _sockets(lab, source) if one.state == LISTENING}
        for source in {session.flow.source for session in sessions}
    }
    return [session for session in sessions if session.port not in ports[session.flow.source]]


def _sockets(lab: Lab, server: int) -> list[TcpSocket]:
    with lab.host(server).live_namespace():
        lines = Path("/proc/thread-self/net/tcp").read_text().splitlines()[1:]
    return [TcpSocket.in_line(line) for line in lines]


def advance(lab: Lab, sessions: Iterable[Iperf3Session]) -> list[Iperf3Session]:
    """Let each client and server send its next message; return the sessions that need more calls.

    A flow's server is stopped before the first call, and its client runs.
    """
    left = [one for one in sessions if not one.ended and one.messages < MESSAGES]
    accepted = _by_port(lab, {one.flow.source for one in left}, "local_port")
    connected = _by_port(lab, {one.flow.destination for one in left}, "remote_port")
    for session in left:
        server_side = accepted[session.flow.source, session.port]
        client_side = connected[session.flow.destination, session.port]
        # An odd message is the client's: the server's side of the connection has it.
        by_client = session.messages % 2 == 0
        sockets = server_side if by_client else client_side
        wanted = 2 if session.messages == MESSAGES - 1 else 1  # connections
        if len(sockets) < wanted or not any(one.waiting for one in sockets):
            continue
        session.messages += 1
        if session.messages < MESSAGES:
            spoke, speaks = session.signal, session.signal_server
            if not by_client:
                spoke, speaks = speaks, spoke
            spoke(signal.SIGSTOP)
            speaks(signal.SIGCONT)
    return [one for one in left if one.messages < MESSAGES]


def _by_port(lab: Lab, servers: Iterable[int], port: str) -> dict[tuple[int, int], list[TcpSocket]]:
    """Return the established connections of servers, by server and by one of the two ports."""
    found = defaultdict(list)
    for server in servers:
        for one in _sockets(lab, server):
            if one.state == ESTABLISHED:
                found[server, getattr(one, port)].append(one)
    return found
