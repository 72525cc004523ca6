"""The built-in generator: any number of flows from one process, by the kernel's own TCP.

Programs with a process for each flow take the processors away from the network that they measure.
This one holds both ends of all connections, whose sockets were opened on the servers; nothing else
of the flows is shared, neither kernel nor congestion control nor path. `generator_worker` is that
process, and this is its other end.
"""

from __future__ import annotations

import json
import os
import platform
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import astuple
from mmap import mmap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.files import CHECKOUT
from experiments.traffic.flows import (
    Flow,
    FlowResult,
    Interval,
    Progress,
    Sending,
)
from experiments.traffic.generator_sockets import ALL_S
from experiments.traffic.generator_worker import BOARD_BYTES, ROW, Task
from topos.base.errors import PillarboxError, require

if TYPE_CHECKING:
    from experiments.emulation.lab import Lab

MOST_ROWS_PER_S = 5000  # more of them would cost a noticeable part of a processor
ANSWER_S = 15.0  # beyond what the process allows itself
AVAILABLE = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")


class Generator:
    """Sends flows from one process of its own."""

    name = "generator"
    worker = "experiments.traffic.generator_worker"  # the module that is the process

    def __init__(
        self,
        lab: Lab,
        flows: Sequence[Flow],  # what is sent; numbered from 0
        sending: Sending,  # how
    ) -> None:
        self._lab, self._flows, self._sending = lab, list(flows), sending
        require(bool(self._flows), "there is no flow to send")
        numbers = [flow.number for flow in self._flows]
        require(numbers == list(range(len(numbers))), "flows are numbered from 0, in their order")
        self.interval_s = interval_of(len(self._flows), sending.interval_s)
        self._board_file = os.memfd_create("flows")
        os.ftruncate(self._board_file, BOARD_BYTES * len(self._flows))
        board = memoryview(mmap(self._board_file, BOARD_BYTES * len(self._flows)))
        self._delivered = board[: 8 * len(self._flows)].cast("Q")
        self._ended = board[8 * len(self._flows) :]
        self._log = lab.folder / "generator.log"
        self._worker: subprocess.Popen[bytes] | None = None
        self._give_up_s = float("inf")
        self._cost: dict[str, Any] = {}
        self._results: list[FlowResult] | None = None

    def prepare(self) -> None:
        """Connect every flow; one that cannot be connected has failed, and the others go on."""
        check_congestion_control(self._sending.congestion)
        task = self._task()
        with self._log.open("wb") as log:
            self._worker = subprocess.Popen(
                [sys.executable, "-m", self.worker],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                pass_fds=[*task["namespaces"].values(), self._board_file],
                cwd=CHECKOUT,
            )
        self._send(task)
        assert self._worker.stdout is not None
        answered = select.select([self._worker.stdout], [], [], ALL_S + ANSWER_S)[0]
        line = self._worker.stdout.readline() if answered else b""
        require(bool(line), f"the generator could not connect its flows: {self._last_words()}")
        refused = json.loads(line).get("refused")
        if refused:
            raise PillarboxError(refused)

    def _task(self) -> Task:
        lab, topology = self._lab, self._lab.topology
        servers = sorted({end for flow in self._flows for end in (flow.source, flow.destination)})
        log = lab.folder / "events.jsonl"
        known_bytes = log.stat().st_size  # read first: no death falls between the two reads
        return {
            "flows": [list(astuple(flow)) for flow in self._flows],
            "namespaces": {str(server): lab.namespace_of(server) for server in servers},
            "addresses": {str(server): topology.ip(server) for server in servers},
            "names": {topology.address(server): server for server in servers},
            "dead": sorted(lab.dead),
            "events": [str(log.resolve()), known_bytes],
            "congestion": self._sending.congestion,
            "most_bps": self._sending.most_bps,
            "interval_s": self.interval_s,
            "timeout_s": self._sending.timeout_s,
            "together": len(self._flows),
            "board": self._board_file,
        }

    def _send(self, what: object) -> None:
        assert self._worker is not None and self._worker.stdin is not None
        try:
            self._worker.stdin.write(json.dumps(what).encode() + b"\n")
            self._worker.stdin.flush()
        except BrokenPipeError:
            raise PillarboxError(f"the generator has ended: {self._last_words()}") from None

    def start(self, at_s: float) -> None:
        """Begin at that instant of CLOCK_MONOTONIC."""
        require(self._worker is not None, "prepare() comes before start()")
        self._send(at_s)
        self._give_up_s = at_s + self._sending.timeout_s + ANSWER_S

    def finish(self) -> None:
        """End flows that have a duration now."""
        assert self._worker is not None
        self._worker.send_signal(signal.SIGUSR1)

    def progress(self) -> Sequence[Progress]:
        """Return how far the flows are."""
        pairs = enumerate(zip(self._delivered, self._ended, strict=True))
        return [Progress(number, delivered, bool(ended)) for number, (delivered, ended) in pairs]

    def ended(self) -> bool:
        """Tell whether every flow has ended, or failed."""
        return all(self._ended) or self._worker is None or self._gone()

    def _gone(self) -> bool:
        assert self._worker is not None
        return self._worker.poll() is not None or time.monotonic() > self._give_up_s

    def results(self) -> list[FlowResult]:
        """Return what became of each flow; whatever has not ended by now has failed."""
        if self._results is None:
            self._results = self._collected()
        return self._results

    def _collected(self) -> list[FlowResult]:
        printed = b""
        if self._worker is not None and all(self._ended):
            try:
                printed = self._worker.communicate(timeout=ANSWER_S)[0]
            except subprocess.TimeoutExpired:
                self._worker.kill()
        line, _, rows = printed.partition(b"\n")
        if not line:
            return [self._broken_off(flow) for flow in self._flows]
        outcome = json.loads(line)
        self._cost = outcome["cost"]
        results = [
            FlowResult(flow, self.name, *fields)
            for flow, fields in zip(self._flows, outcome["flows"], strict=True)
        ]
        for number, *fields in ROW.iter_unpack(rows):
            results[number].intervals.append(Interval(*fields))
        return results

    def _broken_off(self, flow: Flow) -> FlowResult:
        delivered = self._delivered[flow.number]
        reason = f"the generator was stopped before its end: {self._last_words()}"
        return FlowResult(flow, self.name, reason=reason, delivered_bytes=delivered)

    def _last_words(self) -> str:
        """Return the last line that the process has complained with."""
        lines = self._log.read_text(errors="replace").splitlines() if self._log.exists() else []
        return lines[-1] if lines else "it said nothing"

    def versions(self) -> dict[str, Any]:
        """Return what sends, how, and, after the end, what it has cost."""
        return {**facts(self.name, self._sending, self.interval_s), "processes": 1, **self._cost}

    def close(self) -> None:
        """End the process, however far it came."""
        if self._worker is not None:
            self._worker.kill()
            for pipe in (self._worker.stdin, self._worker.stdout):
                if pipe is not None:
                    pipe.close()
            self._worker.wait()
        if self._board_file >= 0:
            os.close(self._board_file)
            self._board_file = -1


def facts(tool: str, sending: Sending, interval_s: float) -> dict[str, Any]:
    """Return what a manifest says of a tool that sends by sockets of its own."""
    return {
        "tool": tool,
        "python": platform.python_version(),
        "kernel": platform.release(),
        "congestion": sending.congestion,
        "most_bps": sending.most_bps,
        "interval_s": interval_s,
    }


def interval_of(flows: int, wanted_s: float) -> float:
    """Return the length of an interval: the wanted one, or a multiple of it where flows are many.

    >>> interval_of(240, 0.1), interval_of(4032, 0.1)
    (0.1, 0.9)
    """
    require(wanted_s > 0, f"interval_s is more than 0, not {wanted_s}")
    return round(wanted_s * max(1, -(-flows // int(MOST_ROWS_PER_S * wanted_s + 0.5))), 9)


def check_congestion_control(name: str) -> None:
    """Refuse a congestion control that this kernel does not have."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as trying:
        try:
            trying.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
        except OSError:
            known = ", ".join(sorted(AVAILABLE.read_text().split()))
            raise PillarboxError(
                f"this kernel has no congestion control {name!r}: it has {known}"
            ) from None
