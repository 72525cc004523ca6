"""iperf3 as a traffic tool: a pair of processes per flow, with time limits and checked results.

The iperf3 *server* runs at the flow's source and the *client* at its destination, with
``--reverse``: so the receiver controls the flow, and its report exists even if the sender dies.

Hundreds of processes cannot start at the same instant, so all start before the barrier, and
exchange the messages of iperf3's set-up (`iperf3_handshake`). At the barrier the servers, which are
stopped until then, continue and send. `begin_s` is the time of the first byte.

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
from typing import IO, TYPE_CHECKING, Any

from pillarbox.experiments.base.processes import interrupt_deferred
from pillarbox.experiments.lab.linux.mptcp import with_multipath
from pillarbox.experiments.lab.traffic.generator import interval_length_s
from pillarbox.experiments.lab.traffic.iperf3_handshake import (
    MOST_CHECK_SHARE,
    POLL_S,
    advance,
    paced,
    without_listener,
)
from pillarbox.experiments.lab.traffic.iperf3_output import (
    NEVER_CONNECTED,
    UNREADABLE,
    cut_intervals,
    intervals_in,
    report_in,
    shifted_intervals,
    version_in,
)
from pillarbox.experiments.lab.traffic.iperf3_session import (
    FIRST_PORT,
    Iperf3Session,
    check_socket_sharing,
    output_so_far,
)
from pillarbox.experiments.models.workloads.flows import (
    COMPLETED,
    FAILED,
    NICE,
    Flow,
    FlowResult,
    Progress,
    Sending,
)
from pillarbox.hosts.linux.rights import role_command_prefix
from pillarbox.hosts.live.settings import MPTCP, TCP
from pillarbox.topos.base.errors import PillarboxError, require

if TYPE_CHECKING:
    from pillarbox.experiments.lab.emulation.lab import Lab

OLDEST = (3, 9)
# Report intervals of all flows per second: the two processes of a flow wake up for each.
MOST_ROWS_PER_S = 1000
SHORTEST_INTERVAL_S = 0.1  # minimum report interval that iperf3 accepts
LONGEST_S = 86_400  # maximum duration that iperf3 accepts
# time limits for servers to listen and clients to connect, in seconds
LISTEN_S, CONNECT_S = 10.0, 10.0
TRY_S, BETWEEN_TRIES_S = 2.0, 0.2
CHECK_S, LONGEST_CHECK_S = 0.05, 0.25
BUSY_S = 0.001  # pause until the next look whether an iperf3 client waits for data
GRACE_S = 0.5  # seconds from SIGINT to SIGKILL of an iperf3 client
SERVER_END_S = 2.0  # seconds for all iperf3 servers to print their reports


@cache
def version(program: str = "iperf3") -> tuple[int, int]:
    """Return the version of iperf3; raise PillarboxError if it is missing or too old."""
    try:
        printed = subprocess.run(
            [program, "--version"], capture_output=True, text=True, check=False, timeout=10
        )
    except OSError as error:
        raise PillarboxError(
            f"the program {program} cannot be run ({error.strerror}): install the package iperf3, "
            "or send with the built-in generator"
        ) from error
    found = version_in(printed.stdout)
    require(
        found >= OLDEST,
        f"iperf3 {found[0]}.{found[1]} is too old: install 3.9 or newer, or send with the built-in "
        "generator",
    )
    return found


class Iperf3:
    """Traffic tool that sends each flow with an iperf3 client and server."""

    name = "iperf3"

    def __init__(
        self,
        lab: Lab,  # lab in which iperf3 runs
        flows: Sequence[Flow],  # flows to send, one pair of iperf3 processes each
        sending: Sending,  # TCP congestion control, report interval and timeout
        *,
        program: str = "iperf3",  # program to run instead of the system's iperf3
    ) -> None:
        self._lab, self._sending, self._program = lab, sending, program
        self._version = version(program)
        most = max((flow.number for flow in flows), default=0)
        require(
            FIRST_PORT + most < 1 << 16,
            "iperf3 has too few TCP ports for these flows: choose the built-in generator",
        )
        ordered = sorted(flows, key=lambda flow: flow.number)
        self._sessions = [Iperf3Session(flow, FlowResult(flow, self.name)) for flow in ordered]
        shortest_s = max(sending.interval_s, SHORTEST_INTERVAL_S)
        self.interval_s = interval_length_s(len(ordered), shortest_s, MOST_ROWS_PER_S)
        self._at_s: float | None = None
        self._scheduled: list[
            tuple[float, int, Callable[[Iperf3Session], None], Iperf3Session]
        ] = []
        self._released: list[
            Iperf3Session
        ] = []  # sessions whose server runs, but whose first bytes have not arrived
        self._next_check_s = math.inf  # time of the next check which flows have started
        self._serials = count()
        self._exits = selectors.DefaultSelector()
        self._wake, wake = socket.socketpair()
        self._woken = wake
        self._exits.register(wake, selectors.EVENT_READ)
        self._thread: threading.Thread | None = None
        self._closing = False
        self._connect_s = CONNECT_S
        check_socket_sharing(wake)

    # -- before the barrier ----------------------------------------------------------------------

    def prepare(self) -> None:
        """Start an iperf3 server and client per flow; stopped servers keep the clients waiting."""
        free = without_listener(self._lab, self._live_sessions())
        for session in self._sessions:
            if session not in free:
                session.fail(
                    f"another program listens on the TCP port of its iperf3 server, {session.port}"
                )
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
        self._wait_for_listeners()
        for session in self._live_sessions():
            session.signal_server(signal.SIGSTOP)
            self._start_client(session)
        self._exchange_messages()

    def _start_process(self, server: int, says: IO[bytes], *words: str) -> subprocess.Popen[bytes]:
        command = [*role_command_prefix("iperf3"), self._program, *words]
        started: subprocess.Popen[bytes] = self._lab.host(server).popen(
            with_multipath(command) if self._sending.multipath else command,
            stdin=subprocess.DEVNULL,
            stdout=says,
            stderr=subprocess.STDOUT,
        )
        # PermissionError: without root, a program that has lowered its priority cannot raise it.
        with suppress(ProcessLookupError, PermissionError):
            os.setpriority(os.PRIO_PROCESS, started.pid, NICE)
        return started

    def _report_options(self) -> list[str]:
        return ["--json", "--interval", f"{self.interval_s:g}"]

    def _rate_options(self) -> list[str]:
        most_bps = self._sending.most_bps
        return ["--fq-rate", str(round(most_bps))] if most_bps else []

    def _start_client(self, session: Iperf3Session) -> None:
        """Start a flow's iperf3 client."""
        flow = session.flow
        if flow.destination in self._lab.dead:
            session.fail(f"server {self._lab.name(flow.destination)} is dead")
            return
        session.messages = 0
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
        # the lab is being stopped, or the machine has no memory or processes left
        except (OSError, PillarboxError) as error:
            session.fail(f"its iperf3 client cannot be started: {error}")
            return
        session.pidfd = os.pidfd_open(session.client.pid)
        self._exits.register(session.pidfd, selectors.EVENT_READ, session)

    def _wait_for_listeners(self) -> None:
        """Wait until every iperf3 server listens; fail those that do not within the time limit."""
        for _ in paced(LISTEN_S):
            self._fail_dead_servers()
            if not without_listener(self._lab, self._live_sessions()):
                return
        for session in without_listener(self._lab, self._live_sessions()):
            session.fail(f"its iperf3 server did not listen within {LISTEN_S:g} s")

    def _exchange_messages(self) -> None:
        """Set the flows up as far as possible before their start, within a time limit."""
        if self._sending.multipath:  # its sockets have queues that /proc/net/tcp does not show
            return
        for _ in paced(self._connect_s):
            self._handle_events(0)
            if not advance(self._lab, self._sessions):
                break
        for session in self._live_sessions():
            session.find_stream()

    def _fail_dead_servers(self) -> None:
        for session in self._live_sessions():
            if session.server and session.server.poll() is not None:
                said = report_in(output_so_far(session.server_says)).get("error", UNREADABLE)
                session.fail(f"its iperf3 server ended immediately: {said}")

    def _live_sessions(self) -> list[Iperf3Session]:
        return [session for session in self._sessions if not session.ended]

    # -- from the barrier on ---------------------------------------------------------------------

    def start(self, at_s: float) -> None:
        """Schedule the start (SIGCONT) and the timeout of every iperf3 server's flow."""
        self._at_s = at_s
        for session in self._live_sessions():
            self._schedule(at_s + session.flow.start_s, self._continue_server, session)
            self._schedule(at_s + self._sending.timeout_s, self._stop_late_client, session)
        self._thread = threading.Thread(target=self._handle_all_events, name="iperf3", daemon=True)
        self._thread.start()

    def _schedule(
        self, at_s: float, deed: Callable[[Iperf3Session], None], session: Iperf3Session
    ) -> None:
        heapq.heappush(self._scheduled, (at_s, next(self._serials), deed, session))

    def _handle_all_events(self) -> None:
        while not self._closing and not self.ended():
            self._handle_events(None)

    def _handle_events(self, timeout_s: float | None) -> None:
        """Run due timed events, then handle exits of iperf3 clients for at most `timeout_s`."""
        now_s = time.monotonic()
        while self._scheduled and self._scheduled[0][0] <= now_s:
            _, _, deed, session = heapq.heappop(self._scheduled)
            if not session.ended:
                deed(session)
        if self._next_check_s <= now_s:
            self._check_starts()
        if timeout_s is None:
            due_s = min(self._next_check_s, self._scheduled[0][0] if self._scheduled else math.inf)
            timeout_s = None if math.isinf(due_s) else max(0.0, due_s - time.monotonic())
        heard = self._exits.select(timeout_s)
        now_s = time.monotonic()
        for key, _ in heard:
            if key.data is None:  # wake-up by a new timed event or close(), not by a client's exit
                self._woken.recv(1 << 10)
            else:
                self._exits.unregister(key.fileobj)
                self._handle_exit(key.data, now_s)

    def _continue_server(self, session: Iperf3Session) -> None:
        session.signal(signal.SIGCONT)  # it is stopped if the set-up took too long
        session.signal_server(signal.SIGCONT)
        self._released.append(session)
        self._next_check_s = min(self._next_check_s, time.monotonic() + POLL_S)

    def _check_starts(self) -> None:
        """Check which iperf3 flows have received their first bytes, and start their durations."""
        began_s = time.monotonic()
        self._released = [
            one for one in self._released if not (one.ended or self._has_started(one))
        ]
        now_s = time.monotonic()
        wait_s = max(CHECK_S, (now_s - began_s) / MOST_CHECK_SHARE)
        self._next_check_s = now_s + wait_s if self._released else math.inf

    def _has_started(self, session: Iperf3Session) -> bool:
        if not session.has_received():
            return False
        if session.flow.duration_s is not None:
            self._schedule(session.began_s + session.flow.duration_s, self._stop_client, session)
        else:
            self._check_volume(session)
        return True

    def _check_volume(self, session: Iperf3Session) -> None:
        """Stop an iperf3 client that has received its volume, or schedule the next check."""
        # One block more than the volume: when SIGINT ends iperf3, its last read may not be counted.
        volume_bytes = (session.flow.volume_bytes or 0) + session.block_bytes
        read_bytes, now_s = session.bytes_read(), time.monotonic()
        if read_bytes >= volume_bytes:
            self._stop_client(session)
            return
        lasting_s = (now_s - session.began_s) * (volume_bytes - read_bytes) / max(read_bytes, 1)
        wait_s = min(max(lasting_s / 2, POLL_S), LONGEST_CHECK_S)
        self._schedule(now_s + wait_s, self._check_volume, session)

    def _stop_client(self, session: Iperf3Session) -> None:
        """Stop an iperf3 client that has completed its flow.

        Its server is suspended until the client ends: among hundreds of flows, senders would take
        the processor time that clients need to end.
        """
        session.stopped = True
        session.signal_server(signal.SIGSTOP)
        if self._sending.multipath:
            session.check_multipath()
        self._interrupt_client(session)

    def _interrupt_client(self, session: Iperf3Session) -> None:
        """Send SIGINT to an iperf3 client when it waits for data.

        iperf3 leaves what it does for its handler of SIGINT. If that is a report of an interval,
        the interval is lost, or the process aborts.
        """
        if session.client_computes():
            self._schedule(time.monotonic() + BUSY_S, self._interrupt_client, session)
        else:
            session.signal(signal.SIGINT)

    def _stop_late_client(self, session: Iperf3Session) -> None:
        """End an iperf3 client after the timeout: SIGINT, so that it reports, then SIGKILL."""
        session.given_up = True
        if session.pidfd < 0:  # no client runs: it is between two tries to connect
            session.fail(
                f"{session.result.reason}; its iperf3 client could not connect before the timeout"
            )
            return
        self._interrupt_client(session)
        self._schedule(time.monotonic() + GRACE_S, lambda one: one.signal(signal.SIGKILL), session)

    def _handle_exit(self, session: Iperf3Session, now_s: float) -> None:
        """Handle an iperf3 client's exit; start it again if it never reached its server."""
        assert session.client is not None
        session.client.wait()
        session.exited_s = now_s
        session.close_files()
        if session.stopped:
            session.signal_server(signal.SIGCONT)
        if session.began_s or session.given_up:
            session.ended = True
            return
        reason = str(report_in(output_so_far(session.client_says)).get("error", ""))
        if not reason.startswith(NEVER_CONNECTED):
            session.ended = True
            return
        session.result.reason = reason
        if session.server is None or session.server.poll() is not None:
            session.fail(f"its iperf3 server has ended: {reason}")
        else:
            session.result.tries += 1
            self._schedule(now_s + BETWEEN_TRIES_S, self._start_client, session)

    def finish(self) -> None:
        """End now all iperf3 flows that have a duration."""
        now_s = time.monotonic()
        for session in self._live_sessions():
            if session.flow.duration_s is not None:
                self._schedule(now_s, self._stop_client, session)
        self._wake.send(b"\0")

    # -- progress and results --------------------------------------------------------------------

    def progress(self) -> Sequence[Progress]:
        """Return the bytes that each iperf3 client has received, and whether its flow has ended."""
        return [
            Progress(one.flow.number, one.delivered_bytes(), one.ended) for one in self._sessions
        ]

    def ended(self) -> bool:
        """Return True if every iperf3 flow has ended or failed."""
        return all(session.ended for session in self._sessions)

    def results(self) -> list[FlowResult]:
        """Return the result of each iperf3 flow, after evaluating its reports."""
        deadline = time.monotonic() + SERVER_END_S
        for session in self._sessions:
            if session.exited_s and not session.evaluated:
                self._evaluate_reports(session, deadline)
        return [session.result for session in self._sessions]

    def _evaluate_reports(self, session: Iperf3Session, deadline: float) -> None:
        """Fill in a flow's result from the reports of its iperf3 client and server."""
        session.evaluated = True
        received = report_in(output_so_far(session.client_says))
        sent = self._server_report(session, deadline)
        flow, result = session.flow, session.result
        rows = intervals_in(received, sent)
        # SIGINT ends an iperf3 client immediately: its last interval ends when the client exits.
        began_s = session.exited_s - (self._at_s or 0.0) - (rows[-1].end_s if rows else 0.0)
        rows = cut_intervals(flow, shifted_intervals(rows, max(began_s, flow.start_s)))
        result.intervals = rows
        result.delivered_bytes = sum(row.delivered_bytes for row in rows)
        counted = [row.retransmits for row in rows if row.retransmits is not None]
        result.retransmits = sum(counted) if counted else None
        if rows:
            result.begin_s, result.end_s = rows[0].begin_s, rows[-1].end_s
        result.reason = self._failure_reason(session, received)
        result.status = FAILED if result.reason else COMPLETED

    def _server_report(self, session: Iperf3Session, deadline: float) -> dict[str, Any]:
        """Return the iperf3 server's report (sender), printed right after the client's end."""
        assert session.server is not None
        try:
            session.server.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return {}
        return report_in(output_so_far(session.server_says))

    def _failure_reason(self, session: Iperf3Session, received: dict[str, Any]) -> str:
        """Return the reason why an iperf3 flow has failed, or an empty text."""
        flow, result = session.flow, session.result
        if flow.volume_bytes is not None and result.delivered_bytes >= flow.volume_bytes:
            return ""  # success: the flow's whole volume arrived, errors after it do not count
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
        """Return manifest entries: version and settings of iperf3."""
        return {
            "tool": self.name,
            "iperf3": ".".join(map(str, self._version)),
            "transport": MPTCP if self._sending.multipath else TCP,
            "congestion": self._sending.congestion,
            "most_bps": self._sending.most_bps,
            "interval_s": self.interval_s,
            "processes": 2 * len(self._sessions),
        }

    def close(self) -> None:
        """Kill all iperf3 processes, and wait for their ends."""
        self._closing = True
        self._wake.send(b"\0")
        if self._thread:
            self._thread.join()
            self._thread = None
        for process in self._processes():
            process.kill()  # SIGKILL also ends processes that SIGSTOP has stopped
        for process in self._processes():
            process.wait()
        for key in list(self._exits.get_map().values()):
            if key.data is not None:
                key.data.close_files()
        self._exits.close()
        for session in self._sessions:
            session.server_says.close()
            session.client_says.close()
        self._wake.close()
        self._woken.close()

    def _processes(self) -> Iterable[subprocess.Popen[bytes]]:
        for session in self._sessions:
            yield from filter(None, (session.client, session.server))
