"""Convergence of a lab: no server considers a working link down."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from hosts.base.path import Step
from topos.base.errors import require

if TYPE_CHECKING:
    from experiments.emulation.forwarders import Forwarders
    from experiments.emulation.lab import Lab

CONVERGED_S = 30.0  # upper bound for servers to detect all working links, in seconds
POLL_S = 0.02  # interval between two queries of a server, in seconds


def wait_converged(lab: Lab) -> None:
    """Wait until no server of the lab considers a working link down."""
    if not lab.forwarders:
        return
    deadline = time.monotonic() + CONVERGED_S
    waiting = [server for server in range(lab.topology.servers) if server not in lab.dead]
    while waiting and time.monotonic() < deadline:
        known = lab.forwarders.ask(waiting[-1], "down")
        if known and all(has_failed(lab, link) for link in known["down"]):
            waiting.pop()
        else:
            time.sleep(POLL_S)
    missed = missed_links(lab, lab.forwarders, waiting[-1]) if waiting else ""
    require(
        not waiting,
        f"{len(waiting)} servers still consider working links down: run `status` ({missed})",
    )


def missed_links(lab: Lab, forwarders: Forwarders, server: int) -> str:
    """Return a phrase naming the working links that a server considers down."""
    known = forwarders.ask(server, "down")
    if not known:
        return f"{lab.name(server)} does not answer"
    missed = (link for link in known["down"] if not has_failed(lab, link))
    links = ", ".join(f"{one['server']} port {one['port']} to {one['peer']}" for one in missed)
    return f"{lab.name(server)} misses {links or 'no links any more'}"


def has_failed(lab: Lab, link: dict[str, Any]) -> bool:
    """Return True if a link that a server considers down has failed."""
    step = Step(link["port"], lab.topology.server(link["peer"]))
    server = lab.topology.server(link["server"])
    return lab.failures().of_hop(lab.topology, server, step) is not None
