"""Packets through a network of sealed routers, and how their ways are told and compared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from experiments.grading.engine import Work
from hosts.base.failures import Failures, failure_texts
from hosts.base.path import Path
from hosts.memory.network import Trip
from hosts.memory.tryout import ARRIVAL_S, SETTLE_S
from topos.base.topology import Topology

LONGEST_TOLD = 12  # servers of a way


def trips(
    work: Work,
    topology: Topology,
    failures: Failures,
    pairs: Iterable[tuple[int, int]],
    settle_s: float = SETTLE_S,
) -> Iterator[Trip]:
    """Yield what becomes of a packet between each pair, sent one after the other.

    The network runs until its routers had time to notice the failures; nobody tells them. It is
    made at the first packet, so that making it is part of the first case.
    """
    with work.network(topology) as memory:
        memory.fail(failures)
        memory.run(settle_s if failures != Failures() else 0.0)
        for source, destination in pairs:
            trip = memory.send_udp(source, destination)
            memory.run_until(memory.now + ARRIVAL_S, partial(_ended, trip))
            yield trip


def _ended(trip: Trip) -> bool:
    return bool(trip.arrived_s or trip.lost)


def hop_told(topology: Topology, step: Any) -> str:
    """Return a next hop as text, whatever a stranger's answer is."""
    try:
        port, peer = step
        if isinstance(peer, int) and 0 <= peer < topology.servers:
            return f"{topology.address(peer)} by port {port!r:.10}"
    except (TypeError, ValueError):
        pass  # told as it is
    return "nowhere (None)" if step is None else f"{step!r:.60}"


def way_told(topology: Topology, path: Path) -> str:
    """Return the servers of a way as text, the first ones of a long way."""
    told = [topology.address(server) for server in path.servers[:LONGEST_TOLD]]
    return " ".join(told + ["..."] * (len(path.servers) > LONGEST_TOLD))


def faults_told(topology: Topology, failures: Failures) -> str:
    """Return what has failed as an addition to a sentence."""
    texts = failure_texts(topology, failures)
    return f" with --fail {' --fail '.join(texts)}" if texts else ""
