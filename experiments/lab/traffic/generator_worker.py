"""Process that sends and receives flows of the built-in generator, in one event loop.

A separate process has little memory, and its loop waits for nothing else. It reads a line of JSON
(`GeneratorTask`) from its standard input, connects all flows and answers with a line (the number of
connected flows, or an error); it reads the time of the barrier, and after the end of the last flow
it writes a line with the flows' results, followed by the intervals, each a ROW, and those of
Multipath TCP's subflows, each a SUBFLOW_ROW.

Delivered bytes are counted when they are read from the receivers' sockets, where MSG_TRUNC discards
them without copying. The flows' progress is always up to date in the *board*, memory shared with
the parent process: for each flow a 64-bit count of delivered bytes, followed by a byte per flow
that says whether the flow has ended.
"""

from __future__ import annotations

import gc
import heapq
import json
import os
import resource
import select
import signal
import struct
import sys
import time
from collections.abc import Callable, Iterator
from mmap import mmap
from pathlib import Path
from typing import Any, NoReturn, TypedDict

from pillarbox.experiments.base.processes import peak_mib
from pillarbox.experiments.lab.traffic.generator_sockets import (
    MOST_UNSENT,
    FlowConnection,
    FlowConnector,
)
from pillarbox.experiments.lab.traffic.mptcp_info import Subflow, multipath_info
from pillarbox.experiments.lab.traffic.tcp_info import tcp_info
from pillarbox.experiments.models.workloads.flows import COMPLETED, FAILED, NICE, Flow, Reordering
from pillarbox.hosts.linux.calls import die_with_parent, minimise_timer_slack
from pillarbox.hosts.linux.rights import take_role

# Binary record of a flow's interval: flow number, begin and end in s, delivered bytes, TCP
# retransmits, round trip time in microseconds, congestion window in bytes.
ROW = struct.Struct("=IddQIIQ")
# Binary record of a subflow's interval: flow number, subflow number, IPv4 address of the client,
# begin and end in s, acknowledged bytes, then as in ROW.
SUBFLOW_ROW = struct.Struct("=IIIddQIIQ")
FIRST_SUBFLOW_STATE = 1, 0  # bytes_acked of a new connection counts its SYN; no retransmits
BOARD_BYTES = 9  # shared memory per flow: 8 bytes for delivered bytes, 1 for "ended"
DEATHS_EVERY_S = 0.05
# Maximum number of socket events between two checks for timed events: a send may take long, as
# the kernel moves its data through the whole emulated network.
MOST_EVENTS = 64
# Data of one send call. A flow with a larger TCP window waits for the process's next turn, not for
# ACKs (ADR 18).
DATA = memoryview(bytes(MOST_UNSENT))
SINK = bytearray(1 << 20)
MSG_TRUNC = 0x20
# Each wake-up of a receiver costs its sender a third of the time of a super-packet. So a process
# that only receives pauses for PAUSE_S after MUCH bytes to let data gather, as network cards do.
MUCH, PAUSE_S = 1 << 15, 5e-5
REORDERING_FIELDS = ("reordering", "reord_seen", "dsack_dups")  # TCP_INFO's names for `Reordering`
UNKNOWN = dict.fromkeys(("total_retrans", "rtt", "snd_cwnd", "snd_mss"), 0)


class GeneratorTask(TypedDict):
    """JSON task of a traffic generator process: its flows, their servers and TCP settings."""

    flows: list[list[Any]]  # constructor arguments of each `Flow`
    namespaces: dict[str, int]  # network namespace (an open file) by server
    addresses: dict[str, str]  # IPv4 address by server
    names: dict[str, int]  # server number by its name in the lab's event log
    dead: list[int]
    events: list[Any]  # path of the lab's event log, and number of its bytes already read
    congestion: str
    most_bps: float | None
    multipath: bool  # whether flows are sent by Multipath TCP
    interval_s: float
    timeout_s: float
    together: int  # approximate number of flows that send simultaneously
    board: int


class ServerDeathReader:
    """Reads the deaths of servers from the lab's event log.

    A server's death ends the programs on it. This process runs on none of the servers, so it has to
    read the log.
    """

    def __init__(self, path: str, known_bytes: int, names: dict[str, int]) -> None:
        self._path, self._known_bytes, self._names = Path(path), known_bytes, names

    def new_deaths(self) -> Iterator[int]:
        """Yield the servers that were killed since the last call, by the lab's event log."""
        with self._path.open("rb") as log:
            log.seek(self._known_bytes)
            for line in log:
                if not line.endswith(b"\n"):  # the lab is still writing this line of its event log
                    return
                self._known_bytes += len(line)
                event = json.loads(line)
                if event["event"] == "kill" and event["server"] in self._names:
                    yield self._names[event["server"]]


class FlowEventLoop:
    """Event loop that sends and receives the data of flows until every flow has ended."""

    def __init__(
        self, connections: list[FlowConnection], task: GeneratorTask, deaths: ServerDeathReader
    ) -> None:
        self.connections, self._deaths = connections, deaths
        self._interval_s, self._timeout_s = task["interval_s"], task["timeout_s"]
        self._multipath = task["multipath"]
        self._names = {server: name for name, server in task["names"].items()}
        size = os.fstat(task["board"]).st_size
        board = memoryview(mmap(task["board"], size))
        self._delivered = board[: size // BOARD_BYTES * 8].cast("Q")
        self._ended = board[size // BOARD_BYTES * 8 :]
        self._ready = select.epoll()
        self._deeds: dict[int, tuple[Callable[[FlowConnection], None], FlowConnection]] = {}
        self._agenda: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._serial = 0
        self._running: dict[int, FlowConnection] = {}
        self._idle: set[int] = set()  # numbers of flows whose sender has no data to send
        self._left = 0
        self._barrier_s = self._now = self._latest_s = 0.0
        self._finishing = False
        self._taken = 0  # bytes received by all flows
        self._only_receives = all(one.sender is None for one in connections)
        self.rows, self.subflow_rows = bytearray(), bytearray()

    def run(self, barrier_s: float) -> dict[str, Any]:
        """Send all flows from the barrier on; return the processor time and memory used."""
        self._barrier_s = barrier_s
        for one in self.connections:
            if one.ended:  # the flow's TCP connection failed
                self._ended[one.flow.number] = 1
            else:
                self._left += 1
                self._schedule(barrier_s + one.flow.start_s, self._begin_flow, one)
        self._schedule(barrier_s + self._interval_s, self._write_rows, barrier_s + self._interval_s)
        self._schedule(barrier_s, self._fail_flows_of_dead_servers)
        self._schedule(barrier_s + self._timeout_s, self._fail_flows_at_timeout)
        time.sleep(max(0.0, barrier_s - time.monotonic()))
        if self._only_receives:
            minimise_timer_slack()
        before = os.times()
        while self._left:
            self._handle_events()
        after = os.times()
        # kernel_s includes the kernel's time to move the flows' data through the emulated network
        own_s, kernel_s = after.user - before.user, after.system - before.system
        lasted_s = max(1e-9, time.monotonic() - barrier_s)
        return {
            "own_s": round(own_s, 2),
            "cpu_s": round(own_s + kernel_s, 2),
            "cpu_share": round((own_s + kernel_s) / lasted_s, 3),
            "peak_mb": round(peak_mib(), 1),
            "late_s": round(self._latest_s, 4),
        }

    def finish(self, *_: object) -> None:
        """End all flows that have a duration at the end of the current report interval."""
        self._finishing = True

    def _handle_events(self) -> None:
        """Run due timed events, then send and receive on ready sockets."""
        self._run_due_events()
        wait_s = max(0.0, self._agenda[0][0] - self._now) if self._left else 0.0
        before = self._taken
        for descriptor, _ in self._ready_sockets(wait_s):
            self._now = time.monotonic()
            self._handle_ready_socket(descriptor)
        if self._only_receives and self._taken - before >= MUCH:
            time.sleep(PAUSE_S)

    def _ready_sockets(self, wait_s: float) -> list[tuple[int, int]]:
        """Return the descriptors and events of ready sockets, after at most `wait_s` seconds."""
        return self._ready.poll(wait_s, MOST_EVENTS)

    def _run_due_events(self) -> None:
        self._now = time.monotonic()
        while self._agenda[0][0] <= self._now:
            due_s, _, deed, arguments = heapq.heappop(self._agenda)
            self._latest_s = max(self._latest_s, self._now - due_s)
            deed(*arguments)
            self._now = time.monotonic()

    def _handle_ready_socket(self, descriptor: int) -> None:
        found = self._deeds.get(descriptor)
        if found:  # no handler: the socket's flow has just ended
            self._send_or_receive(*found)

    def _send_or_receive(self, deed: Callable[[FlowConnection], None], one: FlowConnection) -> None:
        """Call a flow's send or receive function; fail the flow if its connection breaks."""
        try:
            deed(one)
        except BlockingIOError:
            return
        except OSError as error:
            self._end(one, f"its connection broke: {error.strerror}")

    def _schedule(self, at_s: float, deed: Callable[..., None], *arguments: Any) -> None:
        self._serial += 1
        heapq.heappush(self._agenda, (at_s, self._serial, deed, arguments))

    # -- a flow ----------------------------------------------------------------------------------

    def _begin_flow(self, one: FlowConnection) -> None:
        if one.ended:
            return
        for end, deed, event in (
            (one.sender, self._send, select.EPOLLOUT),
            (one.receiver, self._receive, select.EPOLLIN),
        ):
            if end is not None:  # None: this end of the flow is on another machine
                self._deeds[end.fileno()] = deed, one
                self._ready.register(end, event)
        one.row_s = self._now
        self._running[one.flow.number] = one
        if one.flow.duration_s is not None:
            ends_s = self._barrier_s + one.flow.start_s + one.flow.duration_s
            self._schedule(ends_s, self._time_is_over, one)

    def _send(self, one: FlowConnection) -> None:
        assert one.sender is not None
        volume = one.flow.volume_bytes
        if volume is None:
            one.sent += one.sender.send(DATA)
        elif one.sent < volume:
            one.sent += one.sender.send(DATA[: volume - one.sent])
        else:
            self._fail_closed(one)
            return
        if one.begin_s is None:
            one.begin_s = self._now
        self._poll_writable(one, one.sent != volume)

    def _fail_closed(self, one: FlowConnection) -> None:
        """Fail a flow whose socket is reported as ready without data to send: an error."""
        assert one.sender is not None
        one.sender.send(b"")
        self._end(one, "its connection was closed")

    def _poll_writable(self, one: FlowConnection, wanted: bool) -> None:
        """Poll a flow's sending socket for writability, or for errors only."""
        number = one.flow.number
        if (number in self._idle) == wanted and one.sender is not None:
            self._idle ^= {number}
            self._ready.modify(one.sender, select.EPOLLOUT if wanted else 0)

    def _receive(self, one: FlowConnection) -> None:
        assert one.receiver is not None
        if self._count_delivered(one, one.receiver.recv_into(SINK, 0, MSG_TRUNC)):
            self._end(one)

    def _count_delivered(self, one: FlowConnection, arrived: int) -> bool:
        """Count a flow's received bytes; return True if its volume is complete.

        Without bytes the connection was closed, and the flow fails.
        """
        if not arrived:
            self._end(one, "its connection was closed")
            return False
        one.delivered += arrived
        self._taken += arrived
        one.last_delivery_s = self._now
        self._delivered[one.flow.number] = one.delivered
        if one.delivered != one.flow.volume_bytes:
            return False
        one.end_s = self._now
        return True

    def _time_is_over(self, one: FlowConnection) -> None:
        if one.ended:
            return
        one.end_s = self._now  # later than the last byte: time without deliveries counts in goodput
        self._end(one, "" if one.delivered else f"nothing arrived in {one.flow.duration_s:g} s")

    def _end(self, one: FlowConnection, reason: str = "") -> None:
        """End a flow, as completed, or as failed if there is a reason."""
        number = one.flow.number
        if number in self._running:
            self._write_row(one)
            del self._running[number]
        for end in (one.sender, one.receiver):
            if end is not None:
                self._deeds.pop(end.fileno(), None)
        one.reason, one.ended = reason, True
        one.close()
        self._mark_ended(number)
        self._left -= 1

    def _mark_ended(self, number: int) -> None:
        """Report on the board that a flow has ended."""
        self._ended[number] = 1

    # -- timed events ----------------------------------------------------------------------------

    def _write_rows(self, due_s: float) -> None:
        """Write the report row of each running flow's interval; schedule the next interval."""
        for one in list(self._running.values()):
            over = self._finishing and one.flow.duration_s is not None
            (self._time_is_over if over else self._write_row)(one)
        next_s = due_s + self._interval_s
        while next_s <= self._now:
            next_s += self._interval_s
        self._schedule(next_s, self._write_rows, next_s)

    def _write_row(self, one: FlowConnection) -> None:
        info = self._sender_state(one)
        one.retransmits = info["total_retrans"]
        if "dsack_dups" in info:
            one.reordering = Reordering(*(info[name] for name in REORDERING_FIELDS))
        if one.end_s is None or one.end_s > one.row_s:
            self.rows += ROW.pack(
                one.flow.number,
                round(one.row_s - self._barrier_s, 6),
                round((one.end_s or self._now) - self._barrier_s, 6),
                one.delivered - one.row_delivered,
                one.retransmits - one.row_retransmits,
                info["rtt"],
                info["snd_cwnd"] * info["snd_mss"],
            )
        one.row_s = self._now
        one.row_delivered, one.row_retransmits = one.delivered, one.retransmits

    def _sender_state(self, one: FlowConnection) -> dict[str, int]:
        """Return TCP's state at a flow's sender; for Multipath TCP, that of all subflows."""
        if one.sender is None:
            return UNKNOWN
        found = multipath_info(one.sender) if self._multipath else None
        if found is None:
            one.fell_back = self._multipath
            return tcp_info(one.sender)
        for subflow in found.subflows:
            self._write_subflow_row(one, subflow)
        states = [subflow.tcp for subflow in found.subflows]
        return {
            "total_retrans": sum(retransmits for _, retransmits in one.subflows.values()),
            # bytes are delivered in order, so they wait for the slowest subflow
            "rtt": max((state["rtt"] for state in states), default=0),
            "snd_cwnd": sum(state["snd_cwnd"] * state["snd_mss"] for state in states),
            "snd_mss": 1,
        }

    def _write_subflow_row(self, one: FlowConnection, subflow: Subflow) -> None:
        state = subflow.tcp
        acked, retransmits = one.subflows.get(subflow.number, FIRST_SUBFLOW_STATE)
        now = max(state["bytes_acked"], acked), state["total_retrans"]
        one.subflows[subflow.number] = now
        end_s = one.end_s or self._now
        if end_s > one.row_s:
            self.subflow_rows += SUBFLOW_ROW.pack(
                *(one.flow.number, subflow.number, subflow.local),
                *(round(one.row_s - self._barrier_s, 6), round(end_s - self._barrier_s, 6)),
                *(now[0] - acked, now[1] - retransmits),
                *(state["rtt"], state["snd_cwnd"] * state["snd_mss"]),
            )

    def _fail_flows_of_dead_servers(self) -> None:
        for server in self._deaths.new_deaths():
            for one in self.connections:
                if not one.ended and server in (one.flow.source, one.flow.destination):
                    self._end(one, f"server {self._names[server]} died")
        self._schedule(self._now + DEATHS_EVERY_S, self._fail_flows_of_dead_servers)

    def _fail_flows_at_timeout(self) -> None:
        for one in self.connections:
            if not one.ended:
                self._end(one, self._timeout_reason(one))

    def _timeout_reason(self, one: FlowConnection) -> str:
        volume = one.flow.volume_bytes
        of = "" if volume is None else f" of {volume}"
        said = f"no end within {self._timeout_s:g} s: {one.delivered}{of} bytes delivered"
        if one.last_delivery_s is None:
            return said
        return f"{said}, the last at {one.last_delivery_s - self._barrier_s:.1f} s"

    def flow_result_fields(self, one: FlowConnection) -> list[Any]:
        """Return the fields of a flow's `FlowResult`, from its status on."""
        moments = [
            None if moment is None else round(moment - self._barrier_s, 6)
            for moment in (one.begin_s, None if one.reason else one.end_s)
        ]
        status = FAILED if one.reason else COMPLETED
        connect_s = None if one.connect_s is None else round(one.connect_s, 6)
        counters = one.delivered, one.retransmits, one.tries
        state = one.reordering, one.fell_back, one.source_port
        return [status, one.reason, *moments, *counters, connect_s, *state]


def connected_flows(task: GeneratorTask) -> list[FlowConnection]:
    """Return all flows of a task with their TCP connections, as failed if not connected."""
    connections, connector = unconnected_flows(task)
    connector.listen(connections)
    connector.connect(connections, task["together"])
    connector.close()
    return connections


def unconnected_flows(task: GeneratorTask) -> tuple[list[FlowConnection], FlowConnector]:
    """Return a task's flows, not connected yet, and the connector that can connect them."""
    allow_open_files(2 * len(task["flows"]) + 2 * len(task["namespaces"]) + 64)
    connections = [FlowConnection(Flow(*fields)) for fields in task["flows"]]
    names = {server: name for name, server in task["names"].items()}
    for one in connections:
        for server in {one.flow.source, one.flow.destination} & set(task["dead"]):
            one.fail(f"server {names[server]} is dead")
    namespaces = {int(server): opened for server, opened in task["namespaces"].items()}
    addresses = {int(server): address for server, address in task["addresses"].items()}
    connector = FlowConnector(
        *(namespaces, addresses, task["congestion"], task["most_bps"]), multipath=task["multipath"]
    )
    return connections, connector


def allow_open_files(count: int) -> None:
    """Raise this process' limit of open files (RLIMIT_NOFILE) to `count`, or raise ValueError."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= count:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, max(hard, count)))
    except (ValueError, OSError):
        raise ValueError(
            f"these flows need {count} open files and a process may have {hard} here: choose fewer "
            f"flows, or raise the limit (ulimit -n {count}, or sysctl fs.nr_open)"
        ) from None


def main(
    loop_of: Callable[[list[FlowConnection], Any, ServerDeathReader], FlowEventLoop],
) -> NoReturn:
    """Run the flows of the task on standard input in an event loop, then exit the process."""
    _run_generator_task(loop_of)
    sys.stdout.buffer.flush()
    os._exit(0)  # the kernel closes thousands of sockets faster at exit than Python


def _run_generator_task(
    loop_of: Callable[[list[FlowConnection], Any, ServerDeathReader], FlowEventLoop],
) -> None:
    die_with_parent(signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process handles Ctrl-C
    os.nice(max(0, NICE - os.nice(0)))
    task: GeneratorTask = json.loads(sys.stdin.readline())
    path, known_bytes = task["events"]
    deaths = ServerDeathReader(path, known_bytes, task["names"])
    try:
        connections = connected_flows(task)
    except ValueError as error:
        write_message({"refused": str(error)})
        return
    loop = loop_of(connections, task, deaths)
    take_role("generator", [Path(path).parent])
    signal.signal(signal.SIGUSR1, loop.finish)
    gc.freeze()
    gc.disable()  # no garbage collection pauses: the event loop creates no reference cycles
    write_message({"connected": sum(not one.ended for one in connections)})
    barrier = sys.stdin.readline()
    if not barrier:
        return
    cost = loop.run(json.loads(barrier))
    # SIGUSR1 (end flows now) would cut a long write to standard output short without an error.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    flows = [loop.flow_result_fields(one) for one in connections]
    write_message({"flows": flows, "cost": cost, "subflow_bytes": len(loop.subflow_rows)})
    sys.stdout.buffer.write(loop.rows + loop.subflow_rows)


def write_message(what: dict[str, Any]) -> None:
    """Write a line of JSON to standard output, which the parent process reads."""
    sys.stdout.buffer.write(json.dumps(what).encode() + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(FlowEventLoop)
