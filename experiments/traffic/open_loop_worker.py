"""The process that sends flows which arrive: the generator's, but each begins on time.

The generator lets greedy flows begin together and then keeps them going. Here a flow has a moment,
and what is measured is how long after it the last byte arrives. So what is due goes before what is
ready, between any two events; the wait for the next moment ends within the timer's slack, and not
at the next millisecond as epoll's does; and a flow's first bytes are sent in the same breath.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import Any

from experiments.traffic.generator_sockets import Connection
from experiments.traffic.generator_worker import MOST_EVENTS, Deaths, Loop, main
from hosts.linux.calls import readable, run_in_short_turns


class Arriving(Loop):
    """Sends and receives until every flow has ended; none waits for another."""

    def _step(self) -> None:
        self._do_due()
        if not self._left:
            return
        wait_s = self._agenda[0][0] - time.monotonic()
        if wait_s > 0:
            readable([self._ready], wait_s)
        for descriptor, _ in self._ready.poll(0, MOST_EVENTS):
            self._do_due()
            self._do_ready(descriptor)

    def _begin(self, one: Connection) -> None:
        super()._begin(one)
        if one.sender is not None:
            self._do(self._send, one)


def arriving(connections: list[Connection], task: Any, deaths: Deaths) -> Arriving:
    """Return the loop for a task."""
    be_on_time()
    return Arriving(connections, task, deaths)


def be_on_time() -> None:
    """Be as nice as the kernel's threads are, and have short turns.

    A trial's programs let those go first. This one sends a schedule, and needs little. With turns
    as long as the others' it waits until each forwarder that has something to do has had one.
    """
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, 0)
    run_in_short_turns()


if __name__ == "__main__":
    main(arriving)
