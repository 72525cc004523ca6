"""Process that sends arriving flows: the generator's loop, but with punctual starts.

The generator starts greedy flows together and keeps them going. Here each flow has a start time,
and the time until its last byte arrives is measured. So due events are handled before ready
sockets, between any two of them; the wait for the next event has the precision of the timer's slack
instead of epoll's millisecond; and a flow's first bytes are sent immediately at its start.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import Any

from pillarbox.experiments.lab.traffic.generator_sockets import FlowConnection
from pillarbox.experiments.lab.traffic.generator_worker import (
    MOST_EVENTS,
    FlowEventLoop,
    ServerDeathReader,
    main,
)
from pillarbox.hosts.linux.calls import readable, request_short_time_slices


class OpenLoopSender(FlowEventLoop):
    """Event loop for arriving flows: each starts on time, before sockets of other flows."""

    def _handle_events(self) -> None:
        self._run_due_events()
        if not self._left:
            return
        wait_s = self._agenda[0][0] - time.monotonic()
        if wait_s > 0:
            readable([self._ready], wait_s)
        for descriptor, _ in self._ready.poll(0, MOST_EVENTS):
            self._run_due_events()
            self._handle_ready_socket(descriptor)

    def _begin_flow(self, one: FlowConnection) -> None:
        super()._begin_flow(one)
        if one.sender is not None:
            self._send_or_receive(self._send, one)


def arriving(
    connections: list[FlowConnection], task: Any, deaths: ServerDeathReader
) -> OpenLoopSender:
    """Prioritize this process; return its event loop, which sends arriving flows."""
    prioritize_process()
    return OpenLoopSender(connections, task, deaths)


def prioritize_process() -> None:
    """Give this process the niceness of kernel threads (0), and short time slices.

    Other programs of a trial yield to kernel threads. This process sends on a schedule, and needs
    little processor time. With time slices as long as the others' it would wait until each busy
    forwarder has had one.
    """
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, 0)
    request_short_time_slices()


if __name__ == "__main__":
    main(arriving)
