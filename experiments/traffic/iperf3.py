"""iperf3 as a traffic tool: a pair of processes per flow, with time limits and checked results.

The iperf3 *server* runs at the flow's source and the *client* at its destination, with
``--reverse``: so the receiver controls the flow, and its report exists even if the sender dies.

Hundreds of processes cannot start at the same instant, so all start before the barrier: each server
listens and is then stopped by SIGSTOP; its client connects, which the kernel accepts on the
server's behalf, and waits for the server's first message. At the barrier the servers continue.
Until a flow's first byte, iperf3 exchanges its own messages in some three round trips:
milliseconds, but among hundreds of active flows the last one may need a second. `begin_s` is the
time of the first byte.

No client gets a volume: a signal ends the client, which then still reports. With ``--bytes``, a
sender that controls the flow discards the data in its socket, several percent of a short flow; a
receiver in control lets the sender spin without pause after its last byte, and before 3.10 the
sender never ends. The received volume is read from the client's socket in the kernel.
"""

from __future__ import annotations

import heapq
import math
import os
import selectors
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache
from itertools import count
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from experiments.linux.processes import interrupt_deferred
from experiments.traffic.flows import COMPLETED, FAILED, NICE, Flow, FlowResult, Progress, Sending
from experiments.traffic.iperf3_output import (
    NEVER_CONNECTED,
    UNREADABLE,
    cut,
    intervals_in,
    report_in,
    shifted,
    version_in,
)
from experiments.traffic.iperf3_session import FIRST_PORT, Session, shared_socket, text_of
from hosts.linux.rights import role_command_prefix
from topos.base.errors import PillarboxError, require

if TYPE_CHECKING:
    from experiments.emulation.lab import Lab

OLDEST = (3, 9)
SHORTEST_INTERVAL_S = 0.1  # minimum report interval that iperf3 accepts
LONGEST_S = 86_400  # maximum duration that iperf3 accepts
LISTEN_S, CONNECT_S = 10.0, 10.0  # time limits of preparation, in seconds
TRY_S, BETWEEN_TRIES_S = 2.0, 0.2
POLL_S, LOOK_S = 0.01, 0.05
MOST_LOOKING = 0.2  # upper bound for the fraction of time spent on checking the flows' progress
GRACE_S = 0.5  # time between asking a process to end and killing it, in seconds
SERVER_END_S = 2.0  # time for all servers to report after the last client, in seconds
LISTENING, ESTABLISHED = "0A", "01"  # TCP states in /proc/net/tcp


@cache
def version(program: str = "iperf3") -> tuple[int, int]:
    """Return the version of iperf3; raise PillarboxError if it is missing or too old."""
    try:
        printed = subprocess.run(
            [program, "--version"], capture_output=True, text=True, check=False, timeout=10
        )
    except OSError as error:
        raise PillarboxError(
            f"{program} cannot be run ({error.strerror}): install the package iperf3, or send with "
            "the built-in generator"
        ) from error
    found = version_in(printed.stdout)
    require(
        found >= OLDEST,
        f"iperf3 {found[0]}.{found[1]} is too old: install 3.9 or newer, or send with the built-in "
        "generator",
    )
    return found


class Iperf3:
    """Tool that sends flows with iperf3."""

    name = "iperf3"

    def __init__(
        self,
        lab: Lab,  # lab in which iperf3 runs
        flows: Sequence[Flow],  # flows to send
        sending: Sending,  # congestion control, intervals and timeout
        *,
        program: str = "iperf3",  # program to run instead of the system's iperf3
    ) -> None:
        self._lab, self._sending, self._program = lab, sending, program
        self._version = version(program)
        most = max((flow.number for flow in flows), default=0)
        require(FIRST_PORT + most < 1 << 16, "too many flows for iperf3's ports: use the generator")
        ordered = sorted(flows, key=lambda flow: flow.number)
        self._sessions = [Session(flow, FlowResult(flow, self.name)) for flow in ordered]
        self._at_s: float | None = None
        self._scheduled: list[tuple[float, int, Callable[[Session], None], Session]] = []
        self._released: list[Session] = []  # continued servers whose flows have not started
        self._look_s = math.inf  # next check for flows that have started
        self._serials = count()
        self._exits = selectors.DefaultSelector()
        self._wake, wake = socket.socketpair()
        self._woken = wake
        self._exits.register(wake, selectors.EVENT_READ)
        self._thread: threading.Thread | None = None
        self._closing = False
        self._connect_s = CONNECT_S
        _check_kernel(wake)

    # -- before the barrier ----------------------------------------------------------------------

    def prepare(self) -> None:
        """Start all processes; the clients then wait for their servers' first message."""
        free = self._sessions_without(LISTENING)
        for session in self._sessions:
            if session not in free:
                session.fail(f"another program listens at its port {session.port}")
        for session in free:
            with interrupt_deferred():
                session.server = self._start_process(
                    session.flow.source,
                    session.server_says,
                    *("--server", "--one-off", "--port", str(session.port)),
                    *(
                        "--bind",
                        self._lab.topology.ip(session.flow.source),
                        *self._report_options(),
                    ),
                )
        self._wait(LISTENING, LISTEN_S, self._fail_dead_servers)
        for session in self._live_sessions():
            assert session.server is not None
            session.server.send_signal(signal.SIGSTOP)
            self._connect(session)
        self._wait(ESTABLISHED, self._connect_s, lambda: self._handle_events(0))

    def _start_process(self, server: int, says: IO[bytes], *words: str) -> subprocess.Popen[bytes]:
        started: subprocess.Popen[bytes] = self._lab.host(server).popen(
            [*role_command_prefix("iperf3"), self._program, *words],
            stdin=subprocess.DEVNULL,
            stdout=says,
            stderr=subprocess.STDOUT,
        )
        with suppress(ProcessLookupError):
            os.setpriority(os.PRIO_PROCESS, started.pid, NICE)
        return started

    def _report_options(self) -> list[str]:
        interval_s = max(self._sending.interval_s, SHORTEST_INTERVAL_S)
        return ["--json", "--interval", f"{interval_s:g}"]

    def _rate_options(self) -> list[str]:
        most_bps = self._sending.most_bps
        return ["--fq-rate", str(round(most_bps))] if most_bps else []

    def _connect(self, session: Session) -> None:
        """Start a flow's iperf3 client."""
        flow = session.flow
        if flow.destination in self._lab.dead:
            session.fail(f"server {self._lab.name(flow.destination)} is dead")
            return
        session.client_says.seek(0)
        session.client_says.truncate()
        words = (
            *("--client", self._lab.topology.ip(flow.source), "--port", str(session.port)),
            *("--reverse", "--congestion", self._sending.congestion),
            *("--connect-timeout", str(round(TRY_S * 1000)), *self._report_options()),
            *("--time", str(LONGEST_S), "--length", str(session.block_bytes)),
            *self._rate_options(),
        )
        try:
            with interrupt_deferred():
                session.client = self._start_process(flow.destination, session.client_says, *words)
        # the lab is stopping, or the machine lacks resources
        except (OSError, PillarboxError) as error:
            session.fail(f"its iperf3 client cannot be started: {error}")
            return
        session.pidfd = os.pidfd_open(session.client.pid)
        self._exits.register(session.pidfd, selectors.EVENT_READ, session)

    def _wait(self, state: str, limit_s: float, meanwhile: Callable[[], None]) -> None:
        """Wait until every iperf3 server has a TCP socket in a state, or until the time limit."""
        began_s = time.monotonic()
        deadline = began_s + limit_s
        while began_s < deadline:
            meanwhile()
            if not self._sessions_without(state):
                return
            looked_s = time.monotonic() - began_s
            time.sleep(max(POLL_S, looked_s / MOST_LOOKING))
            began_s = time.monotonic()
        if state == LISTENING:
            for session in self._sessions_without(state):
                session.fail(f"its iperf3 server did not listen within {limit_s:g} s")

    def _sessions_without(self, state: str) -> list[Session]:
        """Return the iperf3 sessions whose live server has no TCP socket in that state."""
        found = []
        live = self._live_sessions()
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

    def _fail_dead_servers(self) -> None:
        for session in self._live_sessions():
            if session.server and session.server.poll() is not None:
                said = report_in(text_of(session.server_says)).get("error", UNREADABLE)
                session.fail(f"its iperf3 server ended immediately: {said}")

    def _live_sessions(self) -> list[Session]:
        return [session for session in self._sessions if not session.ended]

    # -- from the barrier on ---------------------------------------------------------------------

    def start(self, at_s: float) -> None:
        """Continue every server at the barrier, or its flow's `start_s` after the barrier."""
        self._at_s = at_s
        for session in self._live_sessions():
            self._schedule(at_s + session.flow.start_s, self._release, session)
            self._schedule(at_s + self._sending.timeout_s, self._stop_late_client, session)
        self._thread = threading.Thread(target=self._watch, name="iperf3", daemon=True)
        self._thread.start()

    def _schedule(self, at_s: float, deed: Callable[[Session], None], session: Session) -> None:
        heapq.heappush(self._scheduled, (at_s, next(self._serials), deed, session))

    def _watch(self) -> None:
        while not self._closing and not self.ended():
            self._handle_events(None)

    def _handle_events(self, timeout_s: float | None) -> None:
        """Handle due events, then exited iperf3 clients; wait for at most `timeout_s`."""
        now_s = time.monotonic()
        while self._scheduled and self._scheduled[0][0] <= now_s:
            _, _, deed, session = heapq.heappop(self._scheduled)
            if not session.ended:
                deed(session)
        if self._look_s <= now_s:
            self._check_starts()
        if timeout_s is None:
            due_s = min(self._look_s, self._scheduled[0][0] if self._scheduled else math.inf)
            timeout_s = None if math.isinf(due_s) else max(0.0, due_s - time.monotonic())
        heard = self._exits.select(timeout_s)
        now_s = time.monotonic()
        for key, _ in heard:
            if key.data is None:  # woken up by new events or close(), not by a client's exit
                self._woken.recv(1 << 10)
            else:
                self._exits.unregister(key.fileobj)
                self._handle_exit(key.data, now_s)

    def _release(self, session: Session) -> None:
        session.signal_server(signal.SIGCONT)
        self._released.append(session)
        self._look_s = min(self._look_s, time.monotonic() + POLL_S)

    def _check_starts(self) -> None:
        """Check which flows have received their first bytes: their duration counts from then on."""
        began_s = time.monotonic()
        self._released = [
            one for one in self._released if not (one.ended or self._has_started(one))
        ]
        now_s = time.monotonic()
        wait_s = max(LOOK_S, (now_s - began_s) / MOST_LOOKING)
        self._look_s = now_s + wait_s if self._released else math.inf

    def _has_started(self, session: Session) -> bool:
        if not session.has_begun():
            return False
        if session.flow.duration_s is not None:
            self._schedule(session.began_s + session.flow.duration_s, self._stop, session)
        else:
            self._check_volume(session)
        return True

    def _check_volume(self, session: Session) -> None:
        """Stop an iperf3 client that has its volume, or schedule the next check."""
        # One block more, as a signal loses data that was read from the socket but not yet counted.
        volume_bytes = (session.flow.volume_bytes or 0) + session.block_bytes
        read_bytes, now_s = session.bytes_read(), time.monotonic()
        if read_bytes >= volume_bytes:
            self._stop(session)
            return
        lasting_s = (now_s - session.began_s) * (volume_bytes - read_bytes) / max(read_bytes, 1)
        wait_s = min(max(lasting_s / 2, POLL_S), LOOK_S)
        self._schedule(now_s + wait_s, self._check_volume, session)

    def _stop(self, session: Session) -> None:
        """Stop an iperf3 client that has completed its flow.

        Its server is suspended until the client ends: among hundreds of flows, senders would take
        the processor time that clients need to end.
        """
        session.stopped = True
        session.signal_server(signal.SIGSTOP)
        session.signal(signal.SIGINT)

    def _stop_late_client(self, session: Session) -> None:
        """Stop a client after the timeout: with SIGINT, for its report, then with SIGKILL."""
        session.given_up = True
        if session.pidfd < 0:  # the client is between two tries to connect
            session.fail(f"{session.result.reason}, and its time was over")
            return
        session.signal(signal.SIGINT)
        self._schedule(time.monotonic() + GRACE_S, lambda one: one.signal(signal.SIGKILL), session)

    def _handle_exit(self, session: Session, now_s: float) -> None:
        """Handle an iperf3 client's exit; start it again if it never reached its server."""
        assert session.client is not None
        session.client.wait()
        session.exited_s = now_s
        session.let_go()
        if session.stopped:
            session.signal_server(signal.SIGCONT)
        if session.began_s or session.given_up:
            session.ended = True
            return
        reason = str(report_in(text_of(session.client_says)).get("error", ""))
        if not reason.startswith(NEVER_CONNECTED):
            session.ended = True
            return
        session.result.reason = reason
        if session.server is None or session.server.poll() is not None:
            session.fail(f"its iperf3 server has ended: {reason}")
        else:
            session.result.tries += 1
            self._schedule(now_s + BETWEEN_TRIES_S, self._connect, session)

    def finish(self) -> None:
        """End flows that have a duration now."""
        now_s = time.monotonic()
        for session in self._live_sessions():
            if session.flow.duration_s is not None:
                self._schedule(now_s, self._stop, session)
        self._wake.send(b"\0")

    # -- progress and results --------------------------------------------------------------------

    def progress(self) -> Sequence[Progress]:
        """Return the number of bytes that each client has received."""
        return [Progress(one.flow.number, one.bytes_read(), one.ended) for one in self._sessions]

    def ended(self) -> bool:
        """Return True if every flow has ended or failed."""
        return all(session.ended for session in self._sessions)

    def results(self) -> list[FlowResult]:
        """Return the result of each flow."""
        deadline = time.monotonic() + SERVER_END_S
        for session in self._sessions:
            if session.exited_s and not session.judged:
                self._evaluate(session, deadline)
        return [session.result for session in self._sessions]

    def _evaluate(self, session: Session, deadline: float) -> None:
        """Evaluate both ends' iperf3 reports of a flow."""
        session.judged = True
        received = report_in(text_of(session.client_says))
        sent = self._server_report(session, deadline)
        flow, result = session.flow, session.result
        rows = intervals_in(received, sent)
        # A signal ends a client immediately: its last row ends at the client's exit.
        began_s = session.exited_s - (self._at_s or 0.0) - (rows[-1].end_s if rows else 0.0)
        rows = cut(flow, shifted(rows, max(began_s, flow.start_s)))
        result.intervals = rows
        result.delivered_bytes = sum(row.delivered_bytes for row in rows)
        counted = [row.retransmits for row in rows if row.retransmits is not None]
        result.retransmits = sum(counted) if counted else None
        if rows:
            result.begin_s, result.end_s = rows[0].begin_s, rows[-1].end_s
        result.reason = self._failure_reason(session, received)
        result.status = FAILED if result.reason else COMPLETED

    def _server_report(self, session: Session, deadline: float) -> dict[str, Any]:
        """Return the sender's report, which appears right after the receiver's end."""
        assert session.server is not None
        try:
            session.server.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return {}
        return report_in(text_of(session.server_says))

    def _failure_reason(self, session: Session, received: dict[str, Any]) -> str:
        """Return why a flow has failed, or an empty text."""
        flow, result = session.flow, session.result
        if flow.volume_bytes is not None and result.delivered_bytes >= flow.volume_bytes:
            return ""  # the volume arrived: later errors do not matter
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
        """Return the manifest's entries of the program and its settings."""
        return {
            "tool": self.name,
            "iperf3": ".".join(map(str, self._version)),
            "congestion": self._sending.congestion,
            "most_bps": self._sending.most_bps,
            "interval_s": max(self._sending.interval_s, SHORTEST_INTERVAL_S),
            "processes": 2 * len(self._sessions),
        }

    def close(self) -> None:
        """Kill every iperf3 process, and wait for its end."""
        self._closing = True
        self._wake.send(b"\0")
        if self._thread:
            self._thread.join()
            self._thread = None
        for process in self._processes():
            process.kill()  # SIGKILL ends stopped processes as well
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


def _check_kernel(own: socket.socket) -> None:
    """Raise PillarboxError if this kernel cannot share another process's sockets."""
    pidfd = os.pidfd_open(os.getpid())
    try:
        shared_socket(pidfd, own.fileno()).close()
    except OSError as error:
        raise PillarboxError(
            f"iperf3 cannot be followed here ({error.strerror}): it takes Linux 5.6 and "
            "root; send with the built-in generator"
        ) from None
    finally:
        os.close(pidfd)
