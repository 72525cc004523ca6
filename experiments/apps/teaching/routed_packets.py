"""Packets through a network of sealed routers, and validation of paths in answers."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from pillarbox.experiments.apps.teaching.cabling import PLAIN, Cabling
from pillarbox.experiments.apps.teaching.child import StudentError
from pillarbox.experiments.apps.teaching.grading_engine import Work
from pillarbox.experiments.apps.teaching.sealed_router import is_integer_below
from pillarbox.hosts.base.failures import Failures, failure_texts
from pillarbox.hosts.base.path import Path, Step
from pillarbox.hosts.memory.memory_network import Trip
from pillarbox.hosts.memory.tryout import ARRIVAL_S, SETTLE_S
from pillarbox.topos.base.topology import Topology

LONGEST_TEXT = 12  # maximum number of servers in the text of a path; longer paths are shortened
MOST_HOPS = 64  # maximum number of hops in a student's path


def routed_trips(
    work: Work,
    topology: Topology,
    failures: Failures,
    pairs: Iterable[tuple[int, int]],
    settle_s: float = SETTLE_S,
) -> Iterator[Trip]:
    """Simulate a packet between each pair of servers over the student's routers; yield the trips.

    The network first runs until its routers have had time to detect the failures. It is created at
    the first packet, so that its creation is part of the first case; a `StudentError`
    during creation is raised for every packet.
    """
    return _Trips(_simulated_trips(work, topology, failures, pairs, settle_s))


class _Trips(Iterator[Trip]):
    """Iterator over trips that raises the same StudentError at each step, unlike a generator."""

    def __init__(self, carried: Iterator[Trip]) -> None:
        self._carried = carried
        self._mistake: StudentError | None = None

    def __next__(self) -> Trip:
        if self._mistake:
            raise self._mistake
        try:
            return next(self._carried)
        except StudentError as mistake:
            self._mistake = mistake
            raise


def _simulated_trips(
    work: Work,
    topology: Topology,
    failures: Failures,
    pairs: Iterable[tuple[int, int]],
    settle_s: float,
) -> Iterator[Trip]:
    with work.network(topology) as memory:
        memory.fail(failures)
        memory.run(settle_s if failures != Failures() else 0.0)
        for source, destination in pairs:
            trip = memory.send_udp(source, destination)
            memory.run_until(memory.now + ARRIVAL_S, partial(_has_ended, trip))
            yield trip


def _has_ended(trip: Trip) -> bool:
    return bool(trip.arrived_s or trip.lost)


def path_of(
    network: Topology, source: int, destination: int, steps: Any, cabling: Cabling = PLAIN
) -> tuple[Path | None, str]:
    """Return the path of a student's list of hops, or the reason why the hops are invalid."""
    if not isinstance(steps, list) or not 0 < len(steps) <= MOST_HOPS:
        return None, f"{steps!r:.60} is not a list of steps (port, peer)"
    passed, made = [source], []
    for step in steps:
        if not isinstance(step, list) or len(step) < 2:
            return None, f"{step!r:.40} is not a step (port, peer)"
        port, peer = step[:2]
        at = network.address(passed[-1])
        there = is_integer_below(port, network.ports) and is_integer_below(peer, network.servers)
        level = cabling.level(port, network.ports) if there else 0
        if not there or peer not in network.peers(passed[-1], level):
            return None, f"port {port!r:.10} of {at} does not lead to server {peer!r:.10}"
        if peer in passed:
            return None, f"a path passes {network.address(peer)} twice"
        passed.append(peer)
        made.append(Step(level, peer))
    if passed[-1] != destination:
        return None, f"a path ends at {network.address(passed[-1])}"
    return Path(source, tuple(made)), ""


def hop_text(topology: Topology, step: Any) -> str:
    """Return a student's next hop as text, whatever its type."""
    try:
        port, peer = step
        if isinstance(peer, int) and 0 <= peer < topology.servers:
            return f"{topology.address(peer)} by port {port!r:.10}"
    except (TypeError, ValueError):
        pass  # An invalid hop is shown as its repr below.
    return "nowhere (None)" if step is None else f"{step!r:.60}"


def path_text(topology: Topology, path: Path) -> str:
    """Return the addresses of a path's servers as text, shortened if the path is long."""
    names = [topology.address(server) for server in path.servers[:LONGEST_TEXT]]
    return " ".join(names + ["..."] * (len(path.servers) > LONGEST_TEXT))


def failures_text(topology: Topology, failures: Failures) -> str:
    """Return failed nodes and links as --fail options for a sentence."""
    texts = failure_texts(topology, failures)
    return f" with --fail {' --fail '.join(map(shlex.quote, texts))}" if texts else ""
