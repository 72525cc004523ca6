"""Built-in traffic generator: any number of flows from few processes, by the kernel's TCP.

Programs with a process per flow take processor time from the network that they measure. This
generator has one process per processor; each process holds both ends of its connections, whose
sockets were opened on the servers. Apart from the process, flows share nothing: neither kernel
state nor congestion control nor path. From a single process flows would get the rate that one
processor can send, instead of TCP's (ADR 18). `generator_worker` is the code of these processes.
"""

from __future__ import annotations

import json
import os
import platform
import socket
import time
from collections.abc import Sequence
from dataclasses import astuple
from mmap import mmap
from typing import TYPE_CHECKING, Any

from pillarbox.experiments.lab.linux.congestion import in_kernel
from pillarbox.experiments.lab.traffic.generator_process import (
    ANSWER_S,
    GeneratorProcess,
    last_log_line,
)
from pillarbox.experiments.lab.traffic.generator_worker import (
    BOARD_BYTES,
    ROW,
    SUBFLOW_ROW,
    GeneratorTask,
)
from pillarbox.experiments.models.workloads.flows import (
    Flow,
    FlowResult,
    Interval,
    Progress,
    Sending,
    SubflowInterval,
)
from pillarbox.hosts.live.settings import MPTCP, TCP
from pillarbox.topos.base.errors import PillarboxError, UnsupportedError, require

if TYPE_CHECKING:
    from pillarbox.experiments.lab.emulation.lab import Lab

MOST_ROWS_PER_S = (
    5000  # maximum report rows of all flows per second, which limits their processor time
)
MOST_PROCESSES = (
    8  # maximum number of generator processes; other processors are left to the network
)
# cost entries to sum over all generator processes; of other entries the maximum is taken
SUMS = ("own_s", "cpu_s", "cpu_share")


class Generator:
    """Built-in traffic generator: sends flows from one child process per processor."""

    name = "generator"
    # Python module that each child process runs
    worker = "pillarbox.experiments.lab.traffic.generator_worker"
    most_processes = min(len(os.sched_getaffinity(0)), MOST_PROCESSES)

    def __init__(
        self,
        lab: Lab,
        flows: Sequence[Flow],  # flows to send, numbered from 0
        sending: Sending,  # TCP congestion control, report interval and timeout
    ) -> None:
        self._lab, self._flows, self._sending = lab, list(flows), sending
        require(bool(self._flows), "the traffic generator has no flows to send")
        numbers = [flow.number for flow in self._flows]
        require(
            numbers == list(range(len(numbers))),
            "the traffic generator needs flows that are numbered 0, 1, 2, ... in this order",
        )
        self.interval_s = interval_length_s(len(self._flows), sending.interval_s)
        self._board_file = os.memfd_create("flows")
        os.ftruncate(self._board_file, BOARD_BYTES * len(self._flows))
        board = memoryview(mmap(self._board_file, BOARD_BYTES * len(self._flows)))
        self._delivered = board[: 8 * len(self._flows)].cast("Q")
        self._ended = board[8 * len(self._flows) :]
        self._log = lab.folder / "generator.log"
        self._processes: list[GeneratorProcess] = []
        self._give_up_s = float("inf")
        self._cost: dict[str, Any] = {}
        self._results: list[FlowResult] | None = None

    def prepare(self) -> None:
        """Start the generator processes, which connect every flow or mark it as failed."""
        check_sending(self._sending)
        count = min(self.most_processes, len(self._flows))
        with self._log.open("wb") as log:
            for first in range(count):
                task = self._task(self._flows[first::count])
                self._processes.append(GeneratorProcess(self.worker, task, log))
                self._processes[-1].write_message(task)
        for process in self._processes:
            refused = process.read_answer().get("refused")
            if refused:
                raise PillarboxError(refused)

    def _task(self, flows: Sequence[Flow]) -> GeneratorTask:
        lab, topology = self._lab, self._lab.topology
        servers = sorted({end for flow in flows for end in (flow.source, flow.destination)})
        log = lab.folder / "events.jsonl"
        known_bytes = (
            log.stat().st_size
        )  # read before lab.dead, so that no server's death is missed
        return {
            "flows": [list(astuple(flow)) for flow in flows],
            "namespaces": {str(server): lab.namespace_of(server) for server in servers},
            "addresses": {str(server): topology.ip(server) for server in servers},
            "names": {topology.address(server): server for server in servers},
            "dead": sorted(lab.dead),
            "events": [str(log.resolve()), known_bytes],
            "congestion": self._sending.congestion,
            "most_bps": self._sending.most_bps,
            "multipath": self._sending.multipath,
            "interval_s": self.interval_s,
            "timeout_s": self._sending.timeout_s,
            "together": len(self._flows),
            "board": self._board_file,
        }

    def start(self, at_s: float) -> None:
        """Let the generator processes start their flows at `at_s` of CLOCK_MONOTONIC."""
        require(
            bool(self._processes),
            "the traffic generator is not prepared: call prepare() before start()",
        )
        for process in self._processes:
            process.write_message(at_s)
        self._give_up_s = at_s + self._sending.timeout_s + ANSWER_S

    def finish(self) -> None:
        """End now all flows that have a duration."""
        for process in self._processes:
            process.finish()

    def progress(self) -> Sequence[Progress]:
        """Return the delivered bytes of all flows, and whether each has ended."""
        pairs = enumerate(zip(self._delivered, self._ended, strict=True))
        return [Progress(number, delivered, bool(ended)) for number, (delivered, ended) in pairs]

    def ended(self) -> bool:
        """Return True if every flow has ended or failed, or a generator process has died."""
        if all(self._ended) or time.monotonic() > self._give_up_s:
            return True
        return any(
            one.ended() is not None and not self._flows_have_ended(one) for one in self._processes
        )

    def _flows_have_ended(self, process: GeneratorProcess) -> bool:
        return all(self._ended[number] for number in process.flows)

    def results(self) -> list[FlowResult]:
        """Return the result of each flow; flows that have not ended by now have failed."""
        if self._results is None:
            self._results = self._collected_results()
        return self._results

    def _collected_results(self) -> list[FlowResult]:
        results: dict[int, FlowResult] = {}
        costs = []
        for process in self._processes:
            printed = process.remaining_output() if self._flows_have_ended(process) else b""
            line, _, rows = printed.partition(b"\n")
            if not line:
                continue
            outcome = json.loads(line)
            costs.append(outcome["cost"])
            for number, fields in zip(process.flows, outcome["flows"], strict=True):
                results[number] = FlowResult(self._flows[number], self.name, *fields)
            subflows_at = len(rows) - outcome["subflow_bytes"]
            for number, *fields in ROW.iter_unpack(rows[:subflows_at]):
                results[number].intervals.append(Interval(*fields))
            for number, *fields in SUBFLOW_ROW.iter_unpack(rows[subflows_at:]):
                results[number].subflows.append(SubflowInterval(*fields))
        self._cost = total_cost(costs)
        return [results.get(flow.number) or self._aborted_result(flow) for flow in self._flows]

    def _aborted_result(self, flow: Flow) -> FlowResult:
        delivered = self._delivered[flow.number]
        reason = (
            f"the traffic generator process was stopped before its end: {last_log_line(self._log)}"
        )
        return FlowResult(flow, self.name, reason=reason, delivered_bytes=delivered)

    def versions(self) -> dict[str, Any]:
        """Return manifest entries: the traffic generator's settings and, at the end, its cost."""
        found = tool_manifest_entries(self.name, self._sending, self.interval_s)
        return {**found, "processes": len(self._processes), **self._cost}

    def close(self) -> None:
        """Kill all processes of the traffic generator."""
        for process in self._processes:
            process.close()
        if self._board_file >= 0:
            os.close(self._board_file)
            self._board_file = -1


def total_cost(costs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the joint cost of generator processes; entries of a single process are kept.

    >>> total_cost([{"cpu_s": 1.5, "late_s": 0.1}, {"cpu_s": 2.0, "late_s": 0.0}])
    {'cpu_s': 3.5, 'late_s': 0.1}
    """
    found: dict[str, Any] = {}
    for cost in costs:
        for key, value in cost.items():
            if key in SUMS:
                found[key] = round(found.get(key, 0.0) + value, 3)
            else:
                found[key] = max(found[key], value) if key in found else value
    return found


def tool_manifest_entries(tool: str, sending: Sending, interval_s: float) -> dict[str, Any]:
    """Return a traffic tool's manifest entries: versions, congestion control, interval."""
    return {
        "tool": tool,
        "python": platform.python_version(),
        "kernel": platform.release(),
        "transport": MPTCP if sending.multipath else TCP,
        "congestion": sending.congestion,
        "most_bps": sending.most_bps,
        "interval_s": interval_s,
    }


def interval_length_s(flows: int, wanted_s: float, rows_per_s: int = MOST_ROWS_PER_S) -> float:
    """Return the report interval in seconds: `wanted_s`, or a multiple of it for many flows.

    >>> interval_length_s(240, 0.1), interval_length_s(4032, 0.1)
    (0.1, 0.9)
    """
    require(wanted_s > 0, f"interval_s must be more than 0, not {wanted_s}")
    return round(wanted_s * max(1, -(-flows // int(rows_per_s * wanted_s + 0.5))), 9)


def check_sending(sending: Sending) -> None:
    """Raise PillarboxError if this kernel lacks the TCP settings of flows."""
    check_congestion_control(sending.congestion)
    require(
        not (sending.multipath and sending.most_bps),
        "the kernel limits the rate of no Multipath TCP connection: use transport tcp",
        UnsupportedError,
    )


def check_congestion_control(name: str) -> None:
    """Raise PillarboxError if this kernel lacks a TCP congestion control."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as trying:
        try:
            trying.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
        except OSError:
            known = ", ".join(sorted(in_kernel()))
            raise UnsupportedError(
                f"this kernel has no TCP congestion control {name!r}: choose one of {known}"
            ) from None
