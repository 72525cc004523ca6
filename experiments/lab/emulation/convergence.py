"""Convergence of a lab: no server considers a working link down."""

from __future__ import annotations

import time
from collections.abc import Callable, Container
from typing import Any

from pillarbox.experiments.lab.emulation.fabric import ForwarderQueries
from pillarbox.hosts.base.failures import Failures
from pillarbox.hosts.base.path import Step
from pillarbox.topos.base.errors import PillarboxError
from pillarbox.topos.base.topology import Topology

CONVERGED_S = 30.0  # upper bound for servers to receive heartbeats on all links, in seconds
POLL_S = 0.02  # interval between queries of a server's link states, in seconds


def wait_converged(
    topology: Topology,
    forwarders: ForwarderQueries,
    dead: Container[int],
    failures: Callable[[], Failures],
) -> None:
    """Wait until no server of a lab considers a working link down.

    Parameters
    ----------
    dead : container of int
        Servers that are dead at the moment.
    failures : callable
        Returns the faults in effect.
    """
    deadline = time.monotonic() + CONVERGED_S
    waiting = [server for server in range(topology.servers) if server not in dead]
    while waiting and time.monotonic() < deadline:
        known = forwarders.ask(waiting[-1], "down")
        if known and all(link_has_failed(topology, link, failures()) for link in known["down"]):
            waiting.pop()
        else:
            time.sleep(POLL_S)
    if waiting:
        missed = _missed_links_phrase(topology, forwarders, failures(), waiting[-1])
        raise PillarboxError(
            f"{len(waiting)} servers still consider working links down: run `status` ({missed})"
        )


def _missed_links_phrase(
    topology: Topology, forwarders: ForwarderQueries, failures: Failures, server: int
) -> str:
    """Return a phrase naming the working links that a server considers down."""
    name = topology.name(server)
    known = forwarders.ask(server, "down")
    if not known:
        return f"{name} does not answer"
    missed = (link for link in known["down"] if not link_has_failed(topology, link, failures))
    links = ", ".join(f"{one['server']} port {one['port']} to {one['peer']}" for one in missed)
    return f"{name} misses {links or 'no links any more'}"


def link_has_failed(topology: Topology, link: dict[str, Any], failures: Failures) -> bool:
    """Return True if a link that a server considers down has failed."""
    step = Step(link["port"], topology.server(link["peer"]))
    return failures.of_hop(topology, topology.server(link["server"]), step) is not None
