"""Correction of the computed queue lengths from which the queue `ecn` sets marks.

The marking program computes the queue of a port that always sends at its rate (`queueing`). While
the processors are busy, a port may send late. Its queue is then longer than the computed one, and
stays so until it is empty: at a port that missed 0.3 % of its rate, DCTCP's queue had twice the
length of its threshold after 10 s. So a thread reads the real lengths and raises computed ones.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from pillarbox.experiments.lab.linux import queueing
from pillarbox.experiments.lab.linux.namespaces import Namespace
from pillarbox.experiments.lab.linux.queue_counters import queues
from pillarbox.hosts.linux.calls import inside
from pillarbox.hosts.linux.netlink import Netlink, NetlinkError

SHORTEST_S, LONGEST_S = 0.05, 1.0  # bounds of the interval between two corrections
MOST_SHARE = 0.01  # upper bound for the share of a processor that corrections take


class MarkedQueues:
    """Thread that corrects the computed queue lengths of all ports in some namespaces.

    Parameters
    ----------
    namespaces : callable
        Returns the network namespaces with ports, which may come and go.
    """

    def __init__(self, namespaces: Callable[[], set[Namespace]]) -> None:
        self._namespaces = namespaces
        # By namespace and not by its descriptor, whose number the next namespace may have.
        self._kernels: dict[Namespace, Netlink] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="marked queues", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """End the thread, which keeps namespaces alive by its sockets."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        for kernel in self._kernels.values():
            kernel.close()
        self._kernels.clear()

    def _run(self) -> None:
        interval_s = SHORTEST_S
        while not self._ended.wait(interval_s):
            began_s = time.thread_time()
            self.correct()
            taken_s = time.thread_time() - began_s
            interval_s = min(LONGEST_S, max(SHORTEST_S, taken_s / MOST_SHARE))

    def correct(self) -> None:
        """Correct all computed queue lengths once."""
        there = self._namespaces()
        for gone in self._kernels.keys() - there:
            self._kernels.pop(gone).close()
        for namespace in there:
            try:
                if namespace not in self._kernels:
                    with inside(namespace.descriptor):
                        self._kernels[namespace] = Netlink()
                found = queues(self._kernels[namespace])
            except (NetlinkError, OSError):  # the namespace was removed meanwhile
                continue
            now_ns = time.monotonic_ns()
            for index, port in found.items():
                queueing.raise_computed_queue(index, port.waiting_bytes, now_ns)
