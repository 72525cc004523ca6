"""Tool for arriving flows in an open loop: each starts on time, whatever happens to the others.

Every flow has its own connection, opened before the barrier. So its completion time includes no
handshake, and it starts with TCP's initial window (RFC 6928: ten segments) and the handshake's
round-trip time: like a request on an established connection, as data center programs keep them.
Connections are not reused, and no flow inherits another's window.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy

from pillarbox.experiments.lab.traffic.generator import Generator
from pillarbox.experiments.lab.traffic.generator_worker import GeneratorTask
from pillarbox.experiments.models.workloads.flows import Flow, FlowResult, Progress

TOGETHER = 64  # assumed number of arriving flows that send simultaneously


class OpenLoop(Generator):
    """Traffic tool for arriving flows: sends each at its start time, from one process."""

    name = "generator"
    worker = "pillarbox.experiments.lab.traffic.open_loop_worker"
    most_processes = 1
    _counted: Any = None

    def _task(self, flows: Sequence[Flow]) -> GeneratorTask:
        return {**super()._task(flows), "together": min(TOGETHER, len(self._flows))}

    def progress(self) -> Sequence[Progress]:
        """Return the progress of the flows whose bytes or end have changed since the last call."""
        now = numpy.array(self._delivered), numpy.array(self._ended)
        before = self._counted or tuple(map(numpy.zeros_like, now))
        moved = numpy.flatnonzero((now[0] != before[0]) | (now[1] != before[1])).tolist()
        self._counted = now
        return [Progress(at, int(now[0][at]), bool(now[1][at])) for at in moved]


def lateness_s(results: Sequence[FlowResult]) -> list[float]:
    """Return each arriving flow's delay of its first byte after its start time, in seconds."""
    return [max(0.0, one.begin_s - one.flow.start_s) for one in results if one.begin_s is not None]
