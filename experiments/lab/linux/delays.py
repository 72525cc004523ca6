"""A process that holds frames: of cables with a delay on kernels without netem, and late frames.

A cable with a delay is a patch panel (see `links`). Its two ends are joined by this process, which
reads frames at an end and writes them to the other end when they are due. Frames that a cable
delivers late (`cable_programs.hold_randomly`) arrive at an interface of their own, and leave by it.
Super-packets arrive whole and with unfinished checksums (PACKET_VNET_HDR), and leave whole if the
kernel knows their headers, else as single frames (`sendable`). Frames that do not fit into a queue
of 64 MB are dropped, as on any long cable with too much traffic.

`FrameDelayer` is the lab's handle: it starts ``python -m pillarbox.experiments.lab.linux.delays``
in the fabric and sends the cables in lines of JSON. When the lab dies, the process's standard input
is closed, and the process ends.
"""

from __future__ import annotations

import errno
import json
import random
import select
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from typing import Any

from pillarbox.experiments.base.interpreter import module_command
from pillarbox.hosts.linux.calls import (
    bind_to_interface,
    minimise_timer_slack,
    readable,
    set_buffer_bytes,
)
from pillarbox.hosts.linux.rights import take_role
from pillarbox.hosts.wire.frame import ETH_DCN, ETH_IP
from pillarbox.topos.base.errors import PillarboxError

SOL_PACKET, PACKET_VNET_HDR, PACKET_IGNORE_OUTGOING = 263, 15, 23
ETH_P_ALL = 0x0003
# struct virtio_net_hdr: flags, kind of super-packet, size of the headers, payload of each segment,
# beginning of the TCP header, and the place of the checksum in it
VNET_HEADER = struct.Struct("=BBHHHH")
UNFINISHED_CHECKSUM = 1  # a flag of the header
TCP_SUPER_PACKET, WITH_ECN = 1, 0x80  # a kind of super-packet, and an additional bit
ETHERNET_BYTES = 14
MOST_FRAME = 65536 + ETHERNET_BYTES + VNET_HEADER.size
MOST_HELD_BYTES = 64 << 20
TCP_FIN, TCP_PSH, TCP_CWR = 0x01, 0x08, 0x80  # flags in the fourteenth byte of a TCP header
BATCH_FRAMES = 64  # frames read from a port before other ports are served
GONE = {errno.ENETDOWN, errno.ENODEV, errno.ENXIO}
FULL = {errno.ENOBUFS, errno.EAGAIN, errno.ENOMEM}


class FrameDelayer:
    """Starts and controls the process that delays frames."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.RLock()  # cables and faults change in several threads

    def join(self, source: int, target: int, delay_s: float, jitter_s: float) -> None:
        """Forward frames from interface `source` to interface `target` after a delay."""
        order = {"source": source, "target": target, "delay_s": delay_s, "jitter_s": jitter_s}
        with self._lock:
            process = self.start()
            assert process.stdin and process.stdout
            try:
                process.stdin.write(json.dumps(order) + "\n")
                process.stdin.flush()
                answer = process.stdout.readline().strip()
            except OSError as error:
                answer = str(error)
        if answer != "ok":
            raise PillarboxError(
                f"frames could not be delayed ({answer or 'the delay process ended'}): see the "
                "messages above, or use links without delay and faults other than reorder"
            )

    def start(self) -> subprocess.Popen[str]:
        """Start the process that delays frames, unless it is running; return the process."""
        with self._lock:
            if self._process is None:
                self._process = subprocess.Popen(
                    module_command("pillarbox.experiments.lab.linux.delays"),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    start_new_session=True,  # Ctrl-C goes to the prompt only
                )
            return self._process

    def stop(self) -> None:
        """End the process that delays frames; the next cable with a delay starts a new process."""
        process, self._process = self._process, None
        if process is not None:
            process.communicate()  # closing its standard input ends the delay process


delay_line = FrameDelayer()


class DelayedDirection:
    """One direction of a cable: frames in transit, oldest first."""

    def __init__(self, source: socket.socket, target: socket.socket) -> None:
        self.source, self.target = source, target
        self.delay_s = self.jitter_s = 0.0
        self.frames: deque[tuple[float, bytes]] = deque()
        self.held_bytes = 0
        self.last_due = 0.0

    def take(self, frame: bytes, now: float) -> None:
        """Queue a frame until the cable's delay has passed; frames are never reordered."""
        if self.held_bytes + len(frame) > MOST_HELD_BYTES:
            return
        jitter = random.uniform(-self.jitter_s, self.jitter_s) if self.jitter_s else 0.0
        self.last_due = max(self.last_due, now + self.delay_s + jitter)
        self.frames.append((self.last_due, frame))
        self.held_bytes += len(frame)

    def release(self, now: float) -> float:
        """Send all frames that are due; return the due time of the next frame."""
        frames = self.frames
        while frames:
            due, frame = frames[0]
            if due > now:
                return due
            frames.popleft()
            self.held_bytes -= len(frame)
            for one in sendable(frame):
                try:
                    self.target.send(one)
                except OSError as error:
                    # A full port queue or a cut cable drops the frame.
                    if error.errno not in GONE | FULL:
                        raise
        return float("inf")


def sendable(packet: bytes) -> list[bytes]:
    """Return a received frame as it can be sent: a super-packet with a header below IP in frames.

    The kernel checks the headers of super-packets that a program sends, and drops super-packets
    with a DCN header or with IP in IP. All frames begin with a `VNET_HEADER`.
    """
    flags, kind, _, size, tcp, checksum_at = VNET_HEADER.unpack_from(packet)
    frame = packet[VNET_HEADER.size :]
    if kind & ~WITH_ECN != TCP_SUPER_PACKET or not flags & UNFINISHED_CHECKSUM:
        return [packet]
    headers = _headers_between(frame, tcp)
    if len(headers) < 2:  # plain IPv4, or unknown
        return [packet]
    data_at = tcp + (frame[tcp + 12] >> 4) * 4
    start = VNET_HEADER.pack(UNFINISHED_CHECKSUM, 0, 0, 0, tcp, checksum_at)
    (sequence,) = struct.unpack_from("!I", frame, tcp + 4)
    found = []
    for at in range(data_at, len(frame), size):
        data, head = frame[at : at + size], bytearray(frame[:data_at])
        less = len(frame) - data_at - len(data)
        for header in headers:
            _add(head, header + 2, -less)
            _add(head, header + 10, less)  # checksum, by RFC 1624
        _add(head, tcp + checksum_at, -less)  # sum over the pseudo-header, with the length of TCP
        struct.pack_into("!I", head, tcp + 4, (sequence + at - data_at) % 2**32)
        # The first segment alone reports a smaller window, the last one alone pushes or ends.
        head[tcp + 13] &= ~(TCP_CWR if at > data_at else 0)
        head[tcp + 13] &= ~(TCP_FIN | TCP_PSH if at + size < len(frame) else 0)
        found.append(start + head + data)
    return found


def _headers_between(frame: bytes, end: int) -> list[int]:
    """Return the positions of the headers between Ethernet and TCP; none if one is unknown.

    DCN, BCube and IPv4 headers have their length in words in the second half of the first byte, the
    length of a packet from the third byte on, and the checksum from the eleventh byte on.
    """
    if struct.unpack_from("!H", frame, ETHERNET_BYTES - 2)[0] not in (ETH_IP, ETH_DCN):
        return []
    found, at = [], ETHERNET_BYTES
    while at < end and frame[at] & 0x0F:
        found.append(at)
        at += (frame[at] & 0x0F) * 4
    return found if at == end else []


def _add(head: bytearray, at: int, growth: int) -> None:
    """Add to 16 bits of a header by one's complement arithmetic, as checksums do."""
    (before,) = struct.unpack_from("!H", head, at)
    struct.pack_into("!H", head, at, (before + growth) % 0xFFFF)


class FrameDelayLoop:
    """Main loop of the process that delays frames of cables."""

    def __init__(self) -> None:
        self.ports: dict[int, socket.socket] = {}
        self.directions: dict[
            int, DelayedDirection
        ] = {}  # delayed directions of cables, by the descriptor of the source's socket
        self.poll = select.epoll()
        self.poll.register(sys.stdin.fileno(), select.EPOLLIN)

    def run(self) -> None:
        """Forward the cables' frames after their delays until standard input is closed."""
        minimise_timer_slack()
        next_due = float("inf")
        while True:
            wait_s = None if next_due == float("inf") else max(0.0, next_due - time.monotonic())
            readable([self.poll], wait_s)  # finer than the poll's own timeout of whole ms
            for descriptor, _ in self.poll.poll(0):
                if descriptor in self.directions:
                    self._read(descriptor)
                elif not self._handle_order():
                    return
            now = time.monotonic()
            next_due = min(
                (
                    direction.release(now)
                    for direction in self.directions.values()
                    if direction.frames
                ),
                default=float("inf"),
            )

    def _read(self, descriptor: int) -> None:
        direction = self.directions[descriptor]
        try:
            for _ in range(BATCH_FRAMES):
                direction.take(direction.source.recv(MOST_FRAME), time.monotonic())
        except BlockingIOError:
            pass
        except OSError as error:
            if error.errno not in GONE:
                raise
            # The failed read has cleared the socket's error: a cable works after its repair; a
            # deleted cable stays silent.

    def _handle_order(self) -> bool:
        line = sys.stdin.readline()
        if not line:
            return False
        order: dict[str, Any] = json.loads(line)
        try:
            source, target = (
                self._open_packet_socket(order["source"]),
                self._open_packet_socket(order["target"]),
            )
        except OSError as error:
            answer = str(error)
        else:
            direction = self.directions.get(source.fileno())
            if direction is None:
                direction = self.directions[source.fileno()] = DelayedDirection(source, target)
                self.poll.register(source.fileno(), select.EPOLLIN)
            direction.delay_s, direction.jitter_s = order["delay_s"], order["jitter_s"]
            answer = "ok"
        sys.stdout.write(answer + "\n")
        sys.stdout.flush()
        return True

    def _open_packet_socket(self, index: int) -> socket.socket:
        if index not in self.ports:
            port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
            for option in (PACKET_VNET_HDR, PACKET_IGNORE_OUTGOING):
                port.setsockopt(SOL_PACKET, option, 1)
            set_buffer_bytes(port, MOST_HELD_BYTES)
            bind_to_interface(port, index, ETH_P_ALL)
            self.ports[index] = port
        return self.ports[index]


if __name__ == "__main__":
    take_role("delays")
    FrameDelayLoop().run()
