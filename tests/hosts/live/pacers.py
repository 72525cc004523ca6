"""Pacers of heartbeats for tests, with a server's cables and memory for the kernel's tables."""

from __future__ import annotations

import mmap
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from pillarbox.hosts.linux.bpf import Map
from pillarbox.hosts.live import heartbeat_pacer
from pillarbox.hosts.live.heartbeat_pacer import HeartbeatPort, PacerConnection

INTERVAL_S = 0.01
WAIT_S = 20.0
LINK_BYTES, STATE_AT, SEGMENT_AT = 64, 20, 48  # as liveness.h has a link
ANSWER_BYTES = 256


class Server:
    """A server with cables that this test holds the other ends of."""

    def __init__(
        self, arrivals: socket.socket, ports: tuple[int, ...], interval_s: float = INTERVAL_S
    ) -> None:
        self.cables: dict[int, socket.socket] = {}
        with ExitStack() as stack:
            theirs = {}
            for port in ports:
                self.cables[port], end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                self.cables[port].settimeout(WAIT_S)
                theirs[port] = stack.enter_context(end)
            heartbeat_ports = {port: HeartbeatPort(end, port // 2) for port, end in theirs.items()}
            self.heartbeats = PacerConnection(arrivals, 0, heartbeat_ports, interval_s)

    def close(self) -> None:
        for end in (self.heartbeats, *self.cables.values()):
            end.close()


def started(lifeline: int) -> tuple[int, socket.socket]:
    channel, theirs = heartbeat_pacer.registration_sockets()
    with theirs:
        return heartbeat_pacer.fork_pacer(theirs, lifeline), channel


@contextmanager
def pacing() -> Iterator[tuple[int, socket.socket]]:
    lifeline, held = os.pipe()
    process, channel = started(lifeline)
    with channel:
        yield process, channel
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    os.close(lifeline)
    os.close(held)


def tables(links: int) -> dict[str, Map]:
    """Return memory in place of the kernel's tables."""
    made = {}
    for name in ("paced", "links", "vouched", "answers"):
        made[name] = Map(os.memfd_create(name), 4, 0, links)
        os.truncate(made[name].fd, -(-links * ANSWER_BYTES // mmap.PAGESIZE) * mmap.PAGESIZE)
    return made
