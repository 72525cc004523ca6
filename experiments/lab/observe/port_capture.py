"""Packet capture at ports of a running lab, into one file or pipe.

Each port has a packet socket in its server's network namespace; frames have the kernel's
timestamps, so that frames of different ports can be ordered. Frames that BPF programs at the ports
forward are captured as well, once on ingress and once on egress.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import BinaryIO, NamedTuple

from pillarbox.experiments.lab.observe.pcapng import Interface, Writer
from pillarbox.hosts.linux.calls import inside, readable, set_buffer_bytes
from pillarbox.hosts.wire.dcn import Protocol
from pillarbox.hosts.wire.frame import ETH_DCN

ETH_P_ALL = 3
SO_TIMESTAMPNS = 35
SOL_PACKET, PACKET_STATISTICS = 263, 6
BUFFER_BYTES = 8 << 20
BATCH = 256
ETHERNET_BYTES = 14
WAIT_S = 0.25
_TIMESPEC = struct.Struct("@qq")
_STATISTICS = struct.Struct(
    "=II"
)  # kernel's PACKET_STATISTICS of a packet socket: received and dropped frames
# offset in a frame of the protocol field, in DCN's and BCube's header
_PROTOCOL_AT = ETHERNET_BYTES + 1


class CapturePort(NamedTuple):
    """A server's port at which frames are captured: title, interface, network namespace."""

    title: str  # name of the port in the capture
    interface: str
    namespace: int  # network namespace of the server, as an open file


class CaptureCounts(NamedTuple):
    """Number of frames that a capture wrote, and number of frames that it missed."""

    written: int
    missed: int  # frames missing in the file: they arrived faster than they were written


def capture(
    ports: Sequence[CapturePort],
    file: BinaryIO,
    *,
    comment: str = "",
    seconds: float | None = None,
    frames: int | None = None,
    longest: int = 65535,
    regular: bool = True,
    begun: Callable[[], object] = lambda: None,
    stopped: Callable[[], bool] = lambda: False,
) -> CaptureCounts:
    """Capture frames at servers' ports until a time or a number of frames, or `stopped`.

    `begun` is called when all sockets are open; frames that arrived before the end are written.
    Without `regular`, heartbeats and link states are left out. Frames are flushed on arrival. The
    capture ends if the file is a pipe whose reader has ended, or a full pipe in non-blocking mode.
    """
    writer = Writer(file, [Interface(port.title, longest) for port in ports], comment)
    written = 0
    end = None if seconds is None else time.monotonic() + seconds
    with ExitStack() as stack:
        sockets = [stack.enter_context(_packet_socket(port)) for port in ports]
        poll = select.epoll()
        stack.callback(poll.close)
        for one in sockets:
            poll.register(one.fileno(), select.EPOLLIN)
        numbers = {one.fileno(): number for number, one in enumerate(sockets)}

        taken, missed = [0] * len(sockets), 0

        def write(number: int) -> bool:
            """Write the frames that a port's packet socket has received; return True if any."""
            nonlocal written
            before = taken[number]
            for at_ns, data, length, outgoing in _available_frames(sockets[number], longest):
                taken[number] += 1
                if regular or not _is_control_message(data):
                    writer.write(number, at_ns, data, outgoing=outgoing, length=length)
                    written += 1
                    if written == frames:
                        break
            return taken[number] > before

        stack.enter_context(suppress(BrokenPipeError, BlockingIOError))
        begun()
        while not stopped() and (frames is None or written < frames):
            left = WAIT_S if end is None else min(WAIT_S, end - time.monotonic())
            if left <= 0:
                break
            file.flush()
            for descriptor, _ in poll.poll(left):
                if written != frames:
                    write(numbers[descriptor])
        for number, one in enumerate(sockets):
            came, lost = _frame_counts(one)
            missed += lost
            while (frames is None or written < frames) and taken[number] < came - lost:
                if not write(number):
                    break
        file.flush()
    return CaptureCounts(written, missed)


def sender_macs(port: CapturePort, seconds: float) -> Iterator[str]:
    """Yield the source MAC address of each frame that passes a port within a duration."""
    end = time.monotonic() + seconds
    with _packet_socket(port) as tap:
        while (left := end - time.monotonic()) > 0:
            readable([tap], left)
            for _, data, _, _ in _available_frames(tap, ETHERNET_BYTES):
                yield data[6:12].hex(":")


@contextmanager
def _packet_socket(port: CapturePort) -> Iterator[socket.socket]:
    with inside(port.namespace):
        # A packet socket created with a protocol would receive from all ports before the bind.
        made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
        set_buffer_bytes(made, BUFFER_BYTES, sending=False)
        made.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        made.bind((port.interface, ETH_P_ALL))
    with made:
        yield made


def _available_frames(tap: socket.socket, longest: int) -> Iterator[tuple[int, bytes, int, bool]]:
    """Yield time, bytes, length and direction of frames in a packet socket's buffer."""
    for _ in range(BATCH):
        try:
            data, ancillary, _, place = tap.recvmsg(65600, 64)
        except OSError:  # no frame is left in the packet socket's buffer, or the port is down
            return
        at_ns = time.time_ns()
        for level, kind, value in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS):
                seconds, rest = _TIMESPEC.unpack(value[: _TIMESPEC.size])
                at_ns = seconds * 1_000_000_000 + rest
        yield at_ns, data[:longest], len(data), place[2] == socket.PACKET_OUTGOING


def _is_control_message(data: bytes) -> bool:
    ours = data[12:14] == ETH_DCN.to_bytes(2, "big") and len(data) > _PROTOCOL_AT
    return ours and data[_PROTOCOL_AT] in (Protocol.HEARTBEAT, Protocol.LINK_STATE)


def _frame_counts(tap: socket.socket) -> tuple[int, int]:
    """Return the counts of received and dropped frames of a packet socket so far."""
    counters = tap.getsockopt(SOL_PACKET, PACKET_STATISTICS, _STATISTICS.size)
    came, lost = _STATISTICS.unpack(counters)
    return came, lost
