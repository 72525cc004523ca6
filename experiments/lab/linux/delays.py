"""Cables with a delay, for kernels without netem: a process that holds each frame for its delay.

The cable is a patch panel (see `links`). Its two ends are joined by this process, which reads
frames at an end and writes them to the other end when they are due. Super-packets stay whole and
keep their unfinished checksums (PACKET_VNET_HDR), so a system call moves up to 64 KB. Frames that
do not fit into a queue of 64 MB are dropped, as on any long cable with too much traffic.

`FrameDelayer` is the lab's handle: it starts ``python -m experiments.lab.linux.delays`` in the
fabric and sends the cables in lines of JSON. When the lab dies, the process's standard input is
closed, and the process ends.
"""

from __future__ import annotations

import errno
import json
import random
import select
import socket
import subprocess
import sys
import time
from collections import deque
from typing import Any

from experiments.base.interpreter import module_command
from hosts.linux.calls import bind_to_interface, minimise_timer_slack, readable
from hosts.linux.rights import take_role
from topos.base.errors import PillarboxError

SOL_PACKET, PACKET_VNET_HDR, PACKET_IGNORE_OUTGOING = 263, 15, 23
SO_RCVBUFFORCE, SO_SNDBUFFORCE = 33, 32
ETH_P_ALL = 0x0003
VNET_HEADER_BYTES = 10
MOST_FRAME = 65536 + 14 + VNET_HEADER_BYTES
MOST_HELD_BYTES = 64 << 20
BATCH_FRAMES = 64  # frames read from a port before other ports are served
GONE = {errno.ENETDOWN, errno.ENODEV, errno.ENXIO}
FULL = {errno.ENOBUFS, errno.EAGAIN, errno.ENOMEM}


class FrameDelayer:
    """Starts and controls the process that delays frames of cables if the kernel has no netem."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def join(self, source: int, target: int, delay_s: float, jitter_s: float) -> None:
        """Forward frames from interface `source` to interface `target` after a delay."""
        process = self._delay_process()
        assert process.stdin and process.stdout
        order = {"source": source, "target": target, "delay_s": delay_s, "jitter_s": jitter_s}
        try:
            process.stdin.write(json.dumps(order) + "\n")
            process.stdin.flush()
            answer = process.stdout.readline().strip()
        except OSError as error:
            answer = str(error)
        if answer != "ok":
            raise PillarboxError(
                f"a cable with a delay could not be made ({answer or 'the delay process ended'}): "
                "see the messages above, or use links without delay"
            )

    def _delay_process(self) -> subprocess.Popen[str]:
        if self._process is None:
            self._process = subprocess.Popen(
                module_command("experiments.lab.linux.delays"),
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
            try:
                self.target.send(frame)
            except OSError as error:
                # A full port queue or a cut cable drops the frame.
                if error.errno not in GONE | FULL:
                    raise
        return float("inf")


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
            for option in (SO_RCVBUFFORCE, SO_SNDBUFFORCE):
                port.setsockopt(socket.SOL_SOCKET, option, MOST_HELD_BYTES)
            bind_to_interface(port, index, ETH_P_ALL)
            self.ports[index] = port
        return self.ports[index]


if __name__ == "__main__":
    take_role("delays")
    FrameDelayLoop().run()
