"""iperf3 as a tool: a pair of processes for each flow, which never hang and never lie.

The iperf3 *server* stands at the flow's source and the *client* at its destination, with
``--reverse``: the receiver leads, and its report is there whatever becomes of the sender.

Hundreds of processes cannot start at one instant, so all are there before: each server listens and
is then stopped by a signal; its client connects, which the kernel answers for it, and waits for
the first word. At the barrier the servers are continued. Between that and a flow's first byte lie
iperf3's own greetings, some three round trips.

No client is told how much to receive: a signal ends it, after which it still reports. For with
``--bytes``, a sender that leads throws away what is still in its socket, several per cent of a
short flow; a receiver that leads lets the sender turn round and round without pause once it has
written everything, and before 3.10 it never ends. How much a client has received is asked of the
kernel, from its own socket.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from experiments.traffic.flows import COMPLETED, FAILED, Flow, FlowResult, Progress, Sending
from experiments.traffic.iperf3_output import (
    NEVER_CONNECTED,
    UNREADABLE,
    cut,
    intervals_in,
    report_in,
    shifted,
    version_in,
)
from experiments.traffic.tcp_info import tcp_info
from topos.base.errors import TopologyError, require

if TYPE_CHECKING:
    from experiments.emulation.lab import Lab

OLDEST = (3, 9)
FIRST_PORT = 5201  # iperf3's own
SHORTEST_INTERVAL_S = 0.1  # iperf3 refuses less
SMALLEST_BLOCK, LARGEST_BLOCK = 1 << 10, 1 << 16
LONGEST_S = 86_400  # iperf3 takes no more
LISTEN_S, CONNECT_S = 10.0, 10.0  # what preparing may take
TRY_S, BETWEEN_TRIES_S = 2.0, 0.2
POLL_S, LOOK_S = 0.01, 0.05
GRACE_S = 0.5  # between asking a process to end and ending it
SERVER_END_S = 1.0
LISTENING, ESTABLISHED = "0A", "01"  # in /proc/net/tcp
# Hundreds of processes would else leave no time to the servers' forwarders, nor to whoever has to
# end them.
NICE = 10
FIONREAD = 0x541B
SYS_PIDFD_GETFD = 438  # the same on every processor

_libc = ctypes.CDLL(None, use_errno=True)


@cache
def version(program: str = "iperf3") -> tuple[int, int]:
    """Return which iperf3 there is; raise TopologyError where it is none, or too old."""
    try:
        told = subprocess.run(
            [program, "--version"], capture_output=True, text=True, check=False, timeout=10
        )
    except OSError as error:
        raise TopologyError(
            f"{program} cannot be run ({error.strerror}): install the package iperf3, or send with "
            "the built-in generator"
        ) from error
    found = version_in(told.stdout)
    require(
        found >= OLDEST,
        f"iperf3 {found[0]}.{found[1]} is too old: install 3.9 or newer, or send with the built-in "
        "generator",
    )
    return found


@dataclass(eq=False)
class _Session:
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
    judged: bool = False
    pidfd: int = -1  # of the client
    stream: socket.socket | None = None  # the client's, for asking about
    began_s: float = 0.0  # when the stream was found

    @property
    def port(self) -> int:
        """Where the server listens."""
        return FIRST_PORT + self.flow.number

    def fail(self, reason: str) -> None:
        """End without success."""
        self.result.reason = reason
        self.ended = True

    def signal(self, number: int) -> None:
        """Send a signal to the client; it may have ended."""
        if self.client and self.client.poll() is None:
            self.client.send_signal(number)

    def found_stream(self) -> bool:
        """Look for the client's data connection: it comes after the control connection."""
        if not self.stream and self.client:
            with suppress(OSError):  # it has ended
                open_files = sorted(Path(f"/proc/{self.client.pid}/fd").iterdir(), key=_number)
                sockets = [one for one in open_files if str(one.readlink()).startswith("socket:")]
                if len(sockets) > 1:
                    self.stream = _shared_socket(self.pidfd, _number(sockets[-1]))
                    self.began_s = time.monotonic()
        return self.stream is not None

    def bytes_read(self) -> int:
        """Return how much the client has received and read."""
        if self.stream:
            with suppress(OSError, ValueError):  # closed just now
                waiting = fcntl.ioctl(self.stream, FIONREAD, bytes(4))
                received = tcp_info(self.stream).get("bytes_received", 0)
                return max(0, received - int.from_bytes(waiting, sys.byteorder))
        return 0

    def let_go(self) -> None:
        """Close what was open of a client that has exited."""
        if self.stream:
            self.stream.close()
        if self.pidfd >= 0:
            os.close(self.pidfd)
        self.stream, self.pidfd = None, -1


class Iperf3:
    """Send flows with iperf3.

    Parameters
    ----------
    lab : Lab
        Where they run.
    flows : sequence of Flow
        Who sends how much to whom.
    sending : Sending
        How.
    program : str
        What to run instead of the system's iperf3.
    """

    name = "iperf3"

    def __init__(
        self, lab: Lab, flows: Sequence[Flow], sending: Sending, *, program: str = "iperf3"
    ) -> None:
        self._lab, self._sending, self._program = lab, sending, program
        self._version = version(program)
        most = max((flow.number for flow in flows), default=0)
        require(FIRST_PORT + most < 1 << 16, "iperf3 has not so many ports: use the generator")
        ordered = sorted(flows, key=lambda flow: flow.number)
        self._sessions = [_Session(flow, FlowResult(flow, self.name)) for flow in ordered]
        self._at_s: float | None = None
        self._deeds: list[tuple[float, int, Callable[[_Session], None], _Session]] = []
        self._serials = count()
        self._exits = selectors.DefaultSelector()
        self._wake, wake = socket.socketpair()
        self._woken = wake
        self._exits.register(wake, selectors.EVENT_READ)
        self._thread: threading.Thread | None = None
        self._closing = False
        self._connect_s = CONNECT_S

    # -- before the barrier ----------------------------------------------------------------------

    def prepare(self) -> None:
        """Start all processes, up to where the clients wait for their servers' first word."""
        for session in self._sessions:
            session.server = self._started(
                session.flow.source,
                session.server_says,
                *("--server", "--one-off", "--bind", self._lab.topology.ip(session.flow.source)),
                *("--port", str(session.port), *self._reporting()),
            )
        self._wait(LISTENING, LISTEN_S, self._note_dead_servers)
        for session in self._live():
            assert session.server is not None
            session.server.send_signal(signal.SIGSTOP)
            self._connect(session)
        self._wait(ESTABLISHED, self._connect_s, lambda: self._turn(0))

    def _started(self, server: int, says: IO[bytes], *words: str) -> subprocess.Popen[bytes]:
        started: subprocess.Popen[bytes] = self._lab.host(server).popen(
            [self._program, *words],
            stdin=subprocess.DEVNULL,
            stdout=says,
            stderr=subprocess.STDOUT,
        )
        with suppress(ProcessLookupError):
            os.setpriority(os.PRIO_PROCESS, started.pid, NICE)
        return started

    def _reporting(self) -> list[str]:
        interval_s = max(self._sending.interval_s, SHORTEST_INTERVAL_S)
        return ["--json", "--interval", f"{interval_s:g}"]

    def _connect(self, session: _Session) -> None:
        """Start a flow's client."""
        flow = session.flow
        session.client_says.seek(0)
        session.client_says.truncate()
        try:
            session.client = self._started(
                flow.destination,
                session.client_says,
                *("--client", self._lab.topology.ip(flow.source), "--port", str(session.port)),
                *("--reverse", "--congestion", self._sending.congestion),
                *("--connect-timeout", str(round(TRY_S * 1000)), *self._reporting()),
                *("--time", str(LONGEST_S), "--length", str(_block(flow))),
            )
        except (OSError, TopologyError) as error:  # the lab goes down, or the machine is full
            session.fail(f"its iperf3 client cannot be started: {error}")
            return
        session.pidfd = os.pidfd_open(session.client.pid)
        self._exits.register(session.pidfd, selectors.EVENT_READ, session)

    def _wait(self, state: str, limit_s: float, meanwhile: Callable[[], None]) -> None:
        """Wait until every live server's socket is in that state."""
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            meanwhile()
            if not self._without(state):
                return
            time.sleep(POLL_S)
        if state == LISTENING:
            for session in self._without(state):
                session.fail(f"its iperf3 server did not listen within {limit_s:g} s")

    def _without(self, state: str) -> list[_Session]:
        """Return the live sessions whose server has no socket in that state."""
        found = []
        live = self._live()
        for source in {session.flow.source for session in live}:
            with self._lab.host(source).live_namespace():
                lines = Path("/proc/thread-self/net/tcp").read_text().splitlines()[1:]
            ports = {
                int(words[1].partition(":")[2], 16)
                for words in map(str.split, lines)
                if words[3] == state
            }
            found += [s for s in live if s.flow.source == source and s.port not in ports]
        return found

    def _note_dead_servers(self) -> None:
        for session in self._live():
            if session.server and session.server.poll() is not None:
                said = report_in(_text(session.server_says)).get("error", UNREADABLE)
                session.fail(f"its iperf3 server ended at once: {said}")

    def _live(self) -> list[_Session]:
        return [session for session in self._sessions if not session.ended]

    # -- from the barrier on ---------------------------------------------------------------------

    def start(self, at_s: float) -> None:
        """Let every server go on at that instant, or its flow's `start_s` after it."""
        self._at_s = at_s
        for session in self._live():
            self._later(at_s + session.flow.start_s, self._release, session)
            self._later(at_s + self._sending.timeout_s, self._give_up, session)
        self._thread = threading.Thread(target=self._watch, name="iperf3", daemon=True)
        self._thread.start()

    def _later(self, at_s: float, deed: Callable[[_Session], None], session: _Session) -> None:
        heapq.heappush(self._deeds, (at_s, next(self._serials), deed, session))

    def _watch(self) -> None:
        while not self._closing and not self.ended():
            self._turn(None)

    def _turn(self, timeout_s: float | None) -> None:
        """Do what is due, then hear of clients that have exited, waiting no longer than that."""
        while self._deeds and self._deeds[0][0] <= time.monotonic():
            _, _, deed, session = heapq.heappop(self._deeds)
            if not session.ended:
                deed(session)
        if timeout_s is None and self._deeds:
            timeout_s = max(0.0, self._deeds[0][0] - time.monotonic())
        heard = self._exits.select(timeout_s)
        now_s = time.monotonic()
        for key, _ in heard:
            if key.data is not None:
                self._exits.unregister(key.fileobj)
                self._exited(key.data, now_s)

    def _release(self, session: _Session) -> None:
        assert session.server is not None
        session.server.send_signal(signal.SIGCONT)
        self._later(time.monotonic() + POLL_S, self._look_for_begin, session)

    def _look_for_begin(self, session: _Session) -> None:
        now_s = time.monotonic()
        if not session.found_stream():
            self._later(now_s + LOOK_S, self._look_for_begin, session)
        elif session.flow.duration_s is not None:
            self._later(now_s + session.flow.duration_s, self._stop, session)
        else:
            self._look_at_volume(session)

    def _look_at_volume(self, session: _Session) -> None:
        """End a client that has its volume, or look again when half of the rest may be there."""
        # A block more: what a signal finds on its way from the socket into the count is lost.
        volume_bytes = (session.flow.volume_bytes or 0) + _block(session.flow)
        read_bytes, now_s = session.bytes_read(), time.monotonic()
        if read_bytes >= volume_bytes:
            self._stop(session)
            return
        lasting_s = (now_s - session.began_s) * (volume_bytes - read_bytes) / max(read_bytes, 1)
        wait_s = min(max(lasting_s / 2, POLL_S), LOOK_S)
        self._later(now_s + wait_s, self._look_at_volume, session)

    def _stop(self, session: _Session) -> None:
        """End a client that has done enough."""
        session.stopped = True
        session.signal(signal.SIGINT)

    def _give_up(self, session: _Session) -> None:
        """End a client whose time is over: first so that it reports what it had."""
        session.given_up = True
        session.signal(signal.SIGINT)
        self._later(time.monotonic() + GRACE_S, lambda one: one.signal(signal.SIGKILL), session)
        if session.client is None or session.client.poll() is not None:  # between two tries
            session.fail(f"{session.result.reason}, and its time was over")

    def _exited(self, session: _Session, now_s: float) -> None:
        """Look why a client has exited; try again if it never reached its server."""
        assert session.client is not None
        session.client.wait()
        session.exited_s = now_s
        session.let_go()
        reason = str(report_in(_text(session.client_says)).get("error", ""))
        if not reason.startswith(NEVER_CONNECTED) or session.given_up:
            session.ended = True
            return
        session.result.reason = reason
        if session.server is None or session.server.poll() is not None:
            session.fail(f"its iperf3 server has ended: {reason}")
        else:
            session.result.tries += 1
            self._later(now_s + BETWEEN_TRIES_S, self._connect, session)

    # -- how it goes, and went -------------------------------------------------------------------

    def progress(self) -> Sequence[Progress]:
        """Return how much each client has received."""
        return [
            Progress(
                session.flow.number,
                session.bytes_read(),
                session.ended,
            )
            for session in self._sessions
        ]

    def ended(self) -> bool:
        """Tell whether every flow has ended, or failed."""
        return all(session.ended for session in self._sessions)

    def results(self) -> list[FlowResult]:
        """Return what became of each flow."""
        for session in self._sessions:
            if session.exited_s and not session.judged:
                self._judge(session)
        return [session.result for session in self._sessions]

    def _judge(self, session: _Session) -> None:
        """Read both ends' reports."""
        session.judged = True
        received = report_in(_text(session.client_says))
        sent = self._server_report(session)
        flow, result = session.flow, session.result
        rows = intervals_in(received, sent)
        # A signal ends a client at once: its last row ends when it does.
        began_s = session.exited_s - (self._at_s or 0.0) - (rows[-1].end_s if rows else 0.0)
        rows = cut(flow, shifted(rows, max(began_s, flow.start_s)))
        result.intervals = rows
        result.delivered_bytes = sum(row.delivered_bytes for row in rows)
        counted = [row.retransmits for row in rows if row.retransmits is not None]
        result.retransmits = sum(counted) if counted else None
        if rows:
            result.begin_s, result.end_s = rows[0].begin_s, rows[-1].end_s
        result.reason = self._shortcoming(session, received)
        result.status = FAILED if result.reason else COMPLETED

    def _server_report(self, session: _Session) -> dict[str, Any]:
        """Return what the sender says, which it does right after its receiver's end."""
        assert session.server is not None
        try:
            session.server.wait(SERVER_END_S)
        except subprocess.TimeoutExpired:
            return {}
        return report_in(_text(session.server_says))

    def _shortcoming(self, session: _Session, received: dict[str, Any]) -> str:
        """Return why a flow has failed; nothing if it has not."""
        flow, result = session.flow, session.result
        if flow.volume_bytes is not None and result.delivered_bytes >= flow.volume_bytes:
            return ""  # whatever was wrong afterwards
        if str(received.get("error", "")).startswith(NEVER_CONNECTED):
            return str(received["error"])
        if session.given_up:
            timeout_s = self._sending.timeout_s
            if not result.delivered_bytes:
                return f"nothing arrived within {timeout_s:g} s of the barrier"
            return f"not ended {timeout_s:g} s after the barrier"
        assert session.client is not None
        if session.client.returncode < 0:
            return f"its iperf3 client was ended by signal {-session.client.returncode}"
        if "error" in received and not session.stopped:
            return str(received["error"])
        if flow.volume_bytes is not None or not result.delivered_bytes:
            return f"only {result.delivered_bytes} bytes arrived"
        return ""

    def versions(self) -> dict[str, Any]:
        """Return iperf3's version."""
        return {"iperf3": ".".join(map(str, self._version))}

    def close(self) -> None:
        """End every process, and wait for it."""
        self._closing = True
        self._wake.send(b"\0")
        if self._thread:
            self._thread.join()
            self._thread = None
        for process in self._processes():
            process.kill()  # also those that are stopped
        for process in self._processes():
            process.wait()
        for key in list(self._exits.get_map().values()):
            if key.data is not None:
                key.data.let_go()
        self._exits.close()
        for session in self._sessions:
            session.server_says.close()
            session.client_says.close()
        self._wake.close()
        self._woken.close()

    def _processes(self) -> Iterable[subprocess.Popen[bytes]]:
        for session in self._sessions:
            yield from filter(None, (session.client, session.server))


def _block(flow: Flow) -> int:
    """Return how much iperf3 reads at once, little beside the whole."""
    return min(max((flow.volume_bytes or LARGEST_BLOCK * 32) // 32, SMALLEST_BLOCK), LARGEST_BLOCK)


def _number(open_file: Path) -> int:
    return int(open_file.name)


def _shared_socket(pidfd: int, number: int) -> socket.socket:
    """Return another process's socket as one of this process."""
    found = _libc.syscall(SYS_PIDFD_GETFD, pidfd, number, 0)
    if found < 0:
        raise OSError(ctypes.get_errno(), "the process has no such socket")
    return socket.socket(fileno=found)


def _text(said: IO[bytes]) -> str:
    """Return what a process has printed so far; it writes at the same place in the file."""
    size = os.fstat(said.fileno()).st_size
    return os.pread(said.fileno(), size, 0).decode(errors="replace")
