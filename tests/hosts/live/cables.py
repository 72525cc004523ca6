"""What tests see and send on the cables of three servers."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from pillarbox.hosts.linux.calls import set_buffer_bytes
from pillarbox.hosts.live.devices import PACKET_IGNORE_OUTGOING, SOL_PACKET
from pillarbox.hosts.wire.frame import ETH_IP
from tests.benches._three_servers import TIME_LIMIT_S, A, ThreeServers

ETH_ALL = 3


def inject(lab: ThreeServers, *frames: bytes, times: int = 1) -> None:
    """Put frames on A's cable, so many times."""
    with lab.servers[A].entered():
        sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        with sender:
            sender.bind(("eth0", ETH_IP))
            for frame in frames * times:
                sender.send(frame)


@contextmanager
def captured(lab: ThreeServers, server: int, port: int, least: int = 0) -> Iterator[list[bytes]]:
    """Give the frames that a switch sends to that port, complete when the block ends.

    Its end waits for so many at least: who has counted a frame may still be sending it.
    """
    with lab.fabric.entered():
        watcher = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_ALL))
        set_buffer_bytes(watcher, 16 << 20, sending=False)
        watcher.bind((f"h{server}-{port}", ETH_ALL))
    frames: list[bytes] = []
    with watcher:
        yield frames
        with suppress(BlockingIOError):
            while True:
                watcher.settimeout(TIME_LIMIT_S if len(frames) < least else 0)
                frame, (_, _, kind, *_) = watcher.recvfrom(1 << 17)
                if kind == socket.PACKET_OUTGOING:
                    frames.append(frame)


@contextmanager
def listening(lab: ThreeServers, server: int, port: int, ethertype: int) -> Iterator[socket.socket]:
    """Give what a forwarder listens on: a socket that sees what is left to Python."""
    with lab.servers[server].entered():
        listener = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        listener.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
        listener.bind((f"eth{port}", ethertype))
    listener.settimeout(TIME_LIMIT_S)
    with listener:
        yield listener
