"""A flow of iperf3: its two processes, their output, and its socket's state in the kernel."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from pillarbox.experiments.base.processes import proc_field
from pillarbox.experiments.lab.traffic.mptcp_info import bytes_received, multipath_info
from pillarbox.experiments.models.workloads.flows import Flow, FlowResult
from pillarbox.hosts.linux.calls import duplicate_from_process
from pillarbox.topos.base.errors import PillarboxError

FIRST_PORT = 5201  # default port of iperf3
BLOCKS = 64  # minimum number of read calls of an iperf3 client for its flow's volume
SMALLEST_BLOCK, LARGEST_BLOCK = 1 << 10, 1 << 16
FIONREAD = 0x541B


@dataclass(eq=False)
class Iperf3Session:
    """An iperf3 flow: its client and server process, their output, and the data socket."""

    flow: Flow
    result: FlowResult
    server: subprocess.Popen[bytes] | None = None
    client: subprocess.Popen[bytes] | None = None
    server_says: IO[bytes] = field(default_factory=tempfile.TemporaryFile)
    client_says: IO[bytes] = field(default_factory=tempfile.TemporaryFile)
    messages: int = 0  # messages of the set-up that have been sent (iperf3_handshake)
    stopped: bool = False  # whether SIGINT ended the client after its volume or duration
    given_up: bool = False
    exited_s: float = 0.0  # exit time of the client, by CLOCK_MONOTONIC
    ended: bool = False
    evaluated: bool = False  # whether `result` has the values of the iperf3 reports
    pidfd: int = -1  # pidfd of the running iperf3 client, else -1
    stream: socket.socket | None = None  # the client's data socket, shared to read its TCP state
    began_s: float = 0.0  # CLOCK_MONOTONIC time at which the client had first bytes
    last_read: int = 0  # bytes that the client had read at the last query

    @property
    def port(self) -> int:
        """TCP port on which the flow's iperf3 server listens."""
        return FIRST_PORT + self.flow.number

    @property
    def block_bytes(self) -> int:
        """Size of the iperf3 client's reads in bytes: small relative to the flow's volume."""
        wanted = (self.flow.volume_bytes or LARGEST_BLOCK * BLOCKS) // BLOCKS
        return min(max(wanted, SMALLEST_BLOCK), LARGEST_BLOCK)

    def fail(self, reason: str) -> None:
        """Mark the iperf3 flow as ended and failed, with a reason."""
        self.result.reason = reason
        self.ended = self.evaluated = True

    def signal(self, number: int) -> None:
        """Send a signal to the iperf3 client, unless it has ended."""
        if self.client and self.client.poll() is None:
            self.client.send_signal(number)

    def client_computes(self) -> bool:
        """Return True if the iperf3 client is running, False if it waits or has ended."""
        assert self.client is not None
        return proc_field(f"/proc/{self.client.pid}/status", "State").startswith("R")

    def signal_server(self, number: int) -> None:
        """Send a signal to the iperf3 server, unless it has ended."""
        if self.server and self.server.poll() is None:
            self.server.send_signal(number)

    def has_received(self) -> bool:
        """Return True if the iperf3 client has received its first bytes."""
        if not self.stream:
            self.find_stream()
        if not self.bytes_read():
            return False
        self.began_s = time.monotonic()
        return True

    def find_stream(self) -> None:
        """Find the iperf3 client's data socket: the one after its control connection.

        The client is woken up only for whole blocks from then on: to wake it up for each packet
        would take more processor time than the packets themselves.
        """
        if self.client:
            with suppress(OSError):  # the iperf3 client has ended meanwhile
                open_files = sorted(Path(f"/proc/{self.client.pid}/fd").iterdir(), key=_descriptor)
                sockets = [one for one in open_files if str(one.readlink()).startswith("socket:")]
                if len(sockets) > 1:
                    self.stream = shared_socket(self.pidfd, _descriptor(sockets[-1]))
                    self.stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, self.block_bytes)

    def bytes_read(self) -> int:
        """Return the bytes that the iperf3 client has received and read, also after its exit."""
        stream = self.stream  # a local copy: another thread may set self.stream to None
        if stream:
            with suppress(OSError, ValueError):  # another thread has just closed the socket
                waiting = fcntl.ioctl(stream, FIONREAD, bytes(4))
                now_read = bytes_received(stream) - int.from_bytes(waiting, sys.byteorder)
                self.last_read = max(self.last_read, now_read)
        return self.last_read

    def check_multipath(self) -> None:
        """Note in the result whether the flow was not sent by Multipath TCP."""
        stream = self.stream
        with suppress(OSError):
            self.result.fell_back = stream is None or multipath_info(stream) is None

    def delivered_bytes(self) -> int:
        """Return the bytes of the flow's volume that its iperf3 client has read."""
        read_bytes, volume_bytes = self.bytes_read(), self.flow.volume_bytes
        return read_bytes if volume_bytes is None else min(read_bytes, volume_bytes)

    def close_files(self) -> None:
        """Close the open files of an iperf3 client that has exited."""
        if self.stream:
            self.bytes_read()
            self.stream.close()
        if self.pidfd >= 0:
            os.close(self.pidfd)
        self.stream, self.pidfd = None, -1


def _descriptor(open_file: Path) -> int:
    return int(open_file.name)


def shared_socket(pidfd: int, number: int) -> socket.socket:
    """Return a socket of this process that shares another process's socket (pidfd_getfd)."""
    return socket.socket(fileno=duplicate_from_process(pidfd, number))


def check_socket_sharing(own: socket.socket) -> None:
    """Raise PillarboxError if this kernel lacks pidfd_getfd, to read iperf3's TCP state."""
    pidfd = os.pidfd_open(os.getpid())
    try:
        shared_socket(pidfd, own.fileno()).close()
    except OSError as error:
        raise PillarboxError(
            f"the sockets of iperf3 cannot be read here ({error.strerror}): use root and "
            "Linux 5.6 or newer, or send with the built-in generator"
        ) from None
    finally:
        os.close(pidfd)


def output_so_far(said: IO[bytes]) -> str:
    """Return the text that a process has written to its output file so far."""
    size = os.fstat(said.fileno()).st_size
    return os.pread(said.fileno(), size, 0).decode(errors="replace")
