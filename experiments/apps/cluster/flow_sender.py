"""Handle of a part on its traffic generator process (`ends`)."""

from __future__ import annotations

import base64
import json
import os
from contextlib import suppress
from dataclasses import astuple
from mmap import mmap
from typing import TYPE_CHECKING, Any

from pillarbox.experiments.lab.traffic.generator_process import GeneratorProcess, last_log_line
from pillarbox.experiments.lab.traffic.generator_worker import BOARD_BYTES, GeneratorTask
from pillarbox.experiments.models.workloads.flows import Flow
from pillarbox.topos.base.errors import PillarboxError, require

if TYPE_CHECKING:
    from pillarbox.experiments.lab.emulation.lab import Lab


class TrafficGeneratorHandle:
    """Starts and controls one machine's traffic generator process.

    Parameters
    ----------
    lab : Lab
        The lab's part on this machine.
    flows : list
        The fields of all flows with an end on this machine.
    how : dict
        Settings that are equal on all machines: the other fields of a `GeneratorTask`, the number
        of flows on all machines, and whether flows arrive over time.
    """

    def __init__(self, lab: Lab, flows: list[list[Any]], how: dict[str, Any]) -> None:
        self._count = how.pop("flows")
        self._board_file = os.memfd_create("flows")
        os.ftruncate(self._board_file, BOARD_BYTES * self._count)
        board = memoryview(mmap(self._board_file, BOARD_BYTES * self._count))
        self._delivered = board[: 8 * self._count].cast("Q")
        self._ended = board[8 * self._count :]
        self._known: dict[int, tuple[int, int]] = {}
        self._log = lab.folder / "generator.log"
        arrive = how.pop("arrive")
        task = self._task(lab, [Flow(*fields) for fields in flows], how)
        with self._log.open("wb") as log:
            self._process = GeneratorProcess(
                "pillarbox.experiments.apps.cluster.flow_ends", task, log
            )
        self._order = {"task": task, "arrive": arrive}

    def _task(self, lab: Lab, flows: list[Flow], how: dict[str, Any]) -> GeneratorTask:
        ends = sorted({end for flow in flows for end in (flow.source, flow.destination)})
        here = set(lab.here())
        log = lab.folder / "events.jsonl"
        # size of the log of server deaths before namespaces are opened: later deaths follow it
        known_bytes = log.stat().st_size
        task: GeneratorTask = {
            "flows": [list(astuple(flow)) for flow in flows],
            "namespaces": {str(one): lab.namespace_of(one) for one in ends if one in here},
            "addresses": {str(one): lab.topology.ip(one) for one in ends},
            "names": {lab.topology.address(one): one for one in ends},
            "events": [str(log.resolve()), known_bytes],
            "board": self._board_file,
            **how,  # type: ignore[typeddict-item]
        }
        return task

    def listen(self) -> dict[str, Any]:
        """Open the listening sockets of all receivers; return their TCP ports by server."""
        return self._answer_to(self._order)

    def step(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send a step (such as connect) to the traffic generator process; return its answer."""
        return self._answer_to(request)

    def start(self, at_s: float) -> None:
        """Start the flows at an instant of this machine's CLOCK_MONOTONIC."""
        self._process.write_message({"at_s": at_s})

    def finish(self) -> None:
        """End all flows of this machine that have a duration, immediately."""
        self._process.write_message({"finish": True})

    def progress(self, over: list[int]) -> dict[str, Any]:
        """Return the progress of flows since the last call; end flows whose other end has ended."""
        if over and self._process.ended() is None:
            with suppress(PillarboxError):  # the traffic generator and all its flows have ended
                self._process.write_message({"over": over})
        moved = []
        for number in self._process.flows:
            now = self._delivered[number], self._ended[number]
            if self._known.get(number) != now:
                self._known[number] = now
                moved.append([number, *now])
        return {"moved": moved, "gone": self._has_failed() and last_log_line(self._log)}

    def _has_failed(self) -> bool:
        return bool(self._process.ended())  # True if the traffic generator failed

    def results(self) -> dict[str, Any]:
        """Return the outcome of every flow's ends on this machine."""
        line, _, rows = self._process.remaining_output().partition(b"\n")
        require(
            bool(line),
            f"a traffic generator was stopped before its end: {last_log_line(self._log)}",
        )
        return {**json.loads(line), "rows": base64.b64encode(rows).decode()}

    def close(self) -> None:
        """End the traffic generator's process."""
        self._process.close()
        if self._board_file >= 0:
            os.close(self._board_file)
            self._board_file = -1

    def _answer_to(self, what: dict[str, Any]) -> dict[str, Any]:
        self._process.write_message(what)
        return self._process.read_answer()
