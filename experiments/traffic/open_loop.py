"""Sends flows that arrive, in an open loop: each begins on time, whatever became of others.

Every flow has a connection of its own, opened before the barrier. So its time has no handshake in
it, and begins with TCP's initial window (RFC 6928: ten segments) and a round trip that the
handshake has measured: a request on a connection that stands, as programs in data centers keep
them. Nothing is reused, and no flow inherits another's window.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy

from experiments.traffic.flows import Flow, FlowResult, Progress
from experiments.traffic.generator import Generator
from experiments.traffic.generator_worker import Task

TOGETHER = 64  # flows that are under way at the same time, more or less


class OpenLoop(Generator):
    """Sends flows at their moments, from one process of its own (see `generator`)."""

    name = "generator"
    worker = "experiments.traffic.open_loop_worker"
    most_processes = 1
    _counted: Any = None

    def _task(self, flows: Sequence[Flow]) -> Task:
        return {**super()._task(flows), "together": min(TOGETHER, len(self._flows))}

    def progress(self) -> Sequence[Progress]:
        """Return how far those flows are that did something since this was last asked."""
        now = numpy.array(self._delivered), numpy.array(self._ended)
        before = self._counted or tuple(map(numpy.zeros_like, now))
        moved = numpy.flatnonzero((now[0] != before[0]) | (now[1] != before[1])).tolist()
        self._counted = now
        return [Progress(at, int(now[0][at]), bool(now[1][at])) for at in moved]


def lateness_s(results: Sequence[FlowResult]) -> list[float]:
    """Return by how much each flow that began did so after its moment."""
    return [max(0.0, one.begin_s - one.flow.start_s) for one in results if one.begin_s is not None]
