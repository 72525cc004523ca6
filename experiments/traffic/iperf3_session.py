"""A flow of iperf3: its two processes, what they print, and its socket's state in the kernel."""

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

from experiments.traffic.flows import Flow, FlowResult
from experiments.traffic.tcp_info import tcp_info
from hosts.linux.calls import shared_file

FIRST_PORT = 5201  # iperf3's own
BLOCKS = 32  # of a flow, at least
SMALLEST_BLOCK, LARGEST_BLOCK = 1 << 10, 1 << 16
FIONREAD = 0x541B


@dataclass(eq=False)
class Session:
    """One flow: its two processes, and what they print."""

    flow: Flow
    result: FlowResult
    server: subprocess.Popen[bytes] | None = None
    client: subprocess.Popen[bytes] | None = None
    server_says: IO[bytes] = field(default_factory=tempfile.TemporaryFile)
    client_says: IO[bytes] = field(default_factory=tempfile.TemporaryFile)
    stopped: bool = False  # by us, when it had done what it should
    given_up: bool = False
    exited_s: float = 0.0  # when the client did, by the monotonic clock
    ended: bool = False
    judged: bool = False  # whether the result says what became of it
    pidfd: int = -1  # of the client, until its exit was noticed
    stream: socket.socket | None = None  # the client's, for asking about
    began_s: float = 0.0  # when its first bytes were seen
    last_read: int = 0  # what had been received when it was last asked for

    @property
    def port(self) -> int:
        """Where the server listens."""
        return FIRST_PORT + self.flow.number

    @property
    def block_bytes(self) -> int:
        """How much iperf3 reads at once: little beside the whole."""
        wanted = (self.flow.volume_bytes or LARGEST_BLOCK * BLOCKS) // BLOCKS
        return min(max(wanted, SMALLEST_BLOCK), LARGEST_BLOCK)

    def fail(self, reason: str) -> None:
        """End without success."""
        self.result.reason = reason
        self.ended = self.judged = True

    def signal(self, number: int) -> None:
        """Send a signal to the client; it may have ended."""
        if self.client and self.client.poll() is None:
            self.client.send_signal(number)

    def signal_server(self, number: int) -> None:
        """Send a signal to the server; it may have ended."""
        if self.server and self.server.poll() is None:
            self.server.send_signal(number)

    def has_begun(self) -> bool:
        """Look whether the client has had its first bytes."""
        if not self.stream:
            self._find_stream()
        if not self.bytes_read():
            return False
        self.began_s = time.monotonic()
        return True

    def _find_stream(self) -> None:
        """Look for the client's data connection: it comes after the control connection."""
        if self.client:
            with suppress(OSError):  # it has ended
                open_files = sorted(Path(f"/proc/{self.client.pid}/fd").iterdir(), key=_number)
                sockets = [one for one in open_files if str(one.readlink()).startswith("socket:")]
                if len(sockets) > 1:
                    self.stream = shared_socket(self.pidfd, _number(sockets[-1]))

    def bytes_read(self) -> int:
        """Return how much the client has received and read, or had when it exited."""
        stream = self.stream  # another thread may let go of it meanwhile
        if stream:
            with suppress(OSError, ValueError):  # closed just now
                waiting = fcntl.ioctl(stream, FIONREAD, bytes(4))
                received = tcp_info(stream).get("bytes_received", 0)
                now_read = received - int.from_bytes(waiting, sys.byteorder)
                self.last_read = max(self.last_read, now_read)
        return self.last_read

    def let_go(self) -> None:
        """Close what was open of a client that has exited."""
        if self.stream:
            self.bytes_read()
            self.stream.close()
        if self.pidfd >= 0:
            os.close(self.pidfd)
        self.stream, self.pidfd = None, -1


def _number(open_file: Path) -> int:
    return int(open_file.name)


def shared_socket(pidfd: int, number: int) -> socket.socket:
    """Return another process's socket as one of this process; it shares what the kernel knows."""
    return socket.socket(fileno=shared_file(pidfd, number))


def text_of(said: IO[bytes]) -> str:
    """Return what a process has printed so far; it writes at the same place in the file."""
    size = os.fstat(said.fileno()).st_size
    return os.pread(said.fileno(), size, 0).decode(errors="replace")
