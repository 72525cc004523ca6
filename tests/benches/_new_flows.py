"""New flows at a given rate: one UDP packet each, from one process with sockets in all namespaces.

The load is open loop: each packet has a planned time, whatever happens to earlier ones. Every
packet has its own source port, so each is the first of its flow; raw sockets send them, since a
bound socket per packet would cost more than the packet. Delays count from the planned time, so a
late generator is not hidden.
"""

from __future__ import annotations

import os
import random
import select
import socket
import struct
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from typing import NamedTuple

from pillarbox.hosts.linux.calls import enter

PORT = 9  # UDP port of the receivers: discard (RFC 863)
FIRST_PORT, PORTS = 10_000, 50_000  # range of the flows' UDP source ports, used in turn
UDP_HEADER = struct.Struct(">4H")
NUMBER = struct.Struct("=2Q")  # start of the UDP payload: number of the `offer` call, packet index
PAYLOAD_BYTES = 64
SENT_AT_ONCE, READ_AT_ONCE = 16, 256
SO_RCVBUFFORCE, BUFFER_BYTES = 33, 1 << 24


class NewFlowResults(NamedTuple):
    """Result of sending the first packets of new UDP flows: packets sent, delays, duration."""

    sent: int
    delays_ms: list[float]  # delays of the packets that arrived, sorted, in ms
    seconds: float  # seconds from the first packet's planned time to the last arrival

    @property
    def lost_share(self) -> float:
        """Share of the new flows' first packets that did not arrive."""
        return 1 - len(self.delays_ms) / self.sent

    @property
    def per_s(self) -> float:
        """Number of new flows per second whose packet arrived."""
        return len(self.delays_ms) / self.seconds if self.seconds else 0.0

    def delay_ms(self, share: float) -> float | None:
        """Return a quantile (0 to 1) of the first packets' delays in ms; None without packets."""
        last = len(self.delays_ms) - 1
        return self.delays_ms[round(share * last)] if self.delays_ms else None


class NewFlowSender:
    """Sends one-packet UDP flows between servers and receives them; a context manager.

    Parameters
    ----------
    namespaces : sequence of int
        Network namespaces of the servers, as open files.
    addresses : sequence of str
        IPv4 addresses of the servers.
    """

    def __init__(self, namespaces: Sequence[int], addresses: Sequence[str], seed: int = 0) -> None:
        self._addresses = [(address, 0) for address in addresses]
        self._random = random.Random(seed)
        self._offers, self._ports = count(1), count()
        self._ready = select.epoll()
        self._senders: list[socket.socket] = []
        self._receivers: dict[int, socket.socket] = {}
        home = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            for namespace, address in zip(namespaces, addresses, strict=True):
                enter(namespace)
                self._open_sockets(address)
        finally:
            enter(home)
            os.close(home)

    def _open_sockets(self, address: str) -> None:
        sender = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP)
        receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        receiver.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
        receiver.bind((address, PORT))
        sender.setblocking(False)
        self._senders.append(sender)
        self._receivers[receiver.fileno()] = receiver
        self._ready.register(receiver, select.EPOLLIN)

    def __enter__(self) -> NewFlowSender:
        return self

    def __exit__(self, *error: object) -> None:
        for each in (*self._senders, *self._receivers.values()):
            each.close()
        self._ready.close()

    def offer(self, per_s: float, seconds: float, drain_s: float) -> NewFlowResults:
        """Send the packets of `per_s` new UDP flows per second between random pairs of servers.

        Wait for the last packets for `drain_s` seconds.
        """
        total, offer = max(1, round(per_s * seconds)), next(self._offers)
        begin_s = time.monotonic()
        moments = [begin_s + i / per_s for i in range(total)]
        delays: dict[int, float] = {}
        sent, last_s = 0, begin_s
        while True:
            now = time.monotonic()
            for _ in range(SENT_AT_ONCE):
                if sent == total or moments[sent] > now:
                    break
                self._send_packet(offer, sent)
                sent += 1
            if len(delays) == total or (sent == total and now > moments[-1] + drain_s):
                break
            wait_s = moments[sent] - now if sent < total else drain_s / 10
            for descriptor, _ in self._ready.poll(max(0.0, wait_s)):
                for place in self._received_indices(descriptor, offer):
                    last_s = time.monotonic()
                    delays.setdefault(place, (last_s - moments[place]) * 1e3)
        return NewFlowResults(total, sorted(delays.values()), last_s - begin_s)

    def _send_packet(self, offer: int, place: int) -> None:
        source, destination = self._random.sample(range(len(self._senders)), 2)
        port = FIRST_PORT + next(self._ports) % PORTS
        header = UDP_HEADER.pack(port, PORT, UDP_HEADER.size + PAYLOAD_BYTES, 0)
        payload = NUMBER.pack(offer, place).ljust(PAYLOAD_BYTES, b".")
        with suppress(OSError):  # the network interface's queue is full: the packet counts as lost
            self._senders[source].sendto(header + payload, self._addresses[destination])

    def _received_indices(self, descriptor: int, offer: int) -> list[int]:
        """Return the indices of the packets of one `offer` call that a server has received."""
        places = []
        receiver = self._receivers[descriptor]
        for _ in range(READ_AT_ONCE):
            try:
                data = receiver.recv(PAYLOAD_BYTES)
            except BlockingIOError:
                break
            if len(data) == PAYLOAD_BYTES:
                number, place = NUMBER.unpack_from(data)
                if number == offer:
                    places.append(place)
        return places
