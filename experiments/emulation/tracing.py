"""Where packets go in a running lab: a marked packet is sent and followed, hop by hop.

Every forwarder remembers what it did to packets with a mark (`hosts.wire.marks`), and passes them
through its router on either plane. Where servers do not relay, whoever listens at the switches'
ports sees the mark pass (`following`).
"""

from __future__ import annotations

import select
import socket
import time
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from experiments.observe.following import Follower
from hosts.base.algorithms import route
from hosts.base.path import way
from hosts.wire.marks import TRACED, udp_payload
from topos.base.errors import require

if TYPE_CHECKING:
    from experiments.emulation.lab import Lab

TRACE_PORT = 9  # "discard": nobody has to listen
TRACE_S = 2.0


def trace(
    lab: Lab, serial: int, source: int, destination: int, source_port: int = 0
) -> dict[str, Any]:
    """Send a packet marked with that number and return the way that it took, hop by hop.

    Where servers do not relay, the hops are the switches that it came to.

    Returns
    -------
    dict
        ``path``: the addresses passed; ``delivered``: whether it arrived; ``dropped``: the
        reason if a server dropped it.
    """
    target = lab.topology.ip(destination)
    if not lab.forwarders:
        return _trace_switches(lab, serial, source, destination, source_port)
    require(source not in lab.dead, f"server {lab.name(source)} is dead: it sends nothing")
    with ExitStack() as listening:
        listeners = []
        if destination not in lab.dead:
            # Somebody listens, so that no message about a closed port takes the way back.
            listener = _udp_socket(lab, destination, target, TRACE_PORT)
            listeners.append(listening.enter_context(listener))
        with _udp_socket(lab, source, "", source_port) as sender:
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, TRACED)
            sender.sendto(udp_payload(serial), (target, TRACE_PORT))
        select.select(listeners, [], [], TRACE_S / 20)
        deadline = time.monotonic() + TRACE_S
        found = _followed(lab, serial, source)
        while not (found["delivered"] or found["dropped"]) and time.monotonic() < deadline:
            time.sleep(0.02)
            found = _followed(lab, serial, source)
    return found


def computed(lab: Lab, source: int, destination: int) -> list[str]:
    """Return the way that the routing takes when all failures are known; empty for none.

    Where servers do not relay, the switches are named as well. Which of several ways of equal
    cost a live flow takes is up to the switches' own hash.
    """
    if lab.routing.endswith(".py"):
        return []
    failures = lab.failures()
    found = route(lab.topology, lab.routing, source, destination, failures)
    passed = [source] if found.paths else []
    for path in found.paths[:1]:
        for server, step in zip(path.servers, path.steps, strict=False):
            if not lab.relays:
                passed += way(lab.topology, server, step, failures.nodes, failures.links)
            passed.append(step.peer)
    return [lab.name(node) for node in passed]


def _trace_switches(
    lab: Lab, serial: int, source: int, destination: int, source_port: int
) -> dict[str, Any]:
    target = lab.topology.ip(destination)
    with (
        Follower(lab.net, TRACE_PORT) as follower,
        _udp_socket(lab, destination, target, TRACE_PORT) as listener,
        _udp_socket(lab, source, "", source_port) as sender,
    ):
        try:
            sender.sendto(udp_payload(serial), (target, TRACE_PORT))
        except OSError as error:  # a port that is down
            dropped = f"{lab.name(source)} cannot send: {error.strerror}"
            return {"path": [lab.name(source)], "delivered": False, "dropped": dropped}
        arrived = bool(select.select([listener], [], [], TRACE_S)[0])
        path = [lab.name(source), *follower.passed(serial)]
    if arrived:
        path.append(lab.name(destination))
    return {
        "path": path,
        "delivered": arrived,
        "dropped": "" if arrived else "switches do not say why",
    }


def _udp_socket(lab: Lab, server: int, address: str, port: int) -> socket.socket:
    with lab.host(server).live_namespace():
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.bind((address, port))
    return made


def _followed(lab: Lab, serial: int, source: int) -> dict[str, Any]:
    assert lab.forwarders is not None
    at, path = source, [lab.topology.address(source)]
    seen: Counter[int] = Counter()
    found: dict[str, Any] = {"path": path, "delivered": False, "dropped": ""}
    while True:
        traces = lab.forwarders.ask(at, "trace") or []
        own = [one for one in traces if one["serial"] == serial]
        if len(own) <= seen[at]:
            return found
        what = own[seen[at]]
        seen[at] += 1
        if what["did"] != "sent":
            found["delivered"] = what["did"] == "delivered"
            found["dropped"] = what.get("reason", "")
            return found
        path.append(what["peer"])
        at = lab.topology.server(what["peer"])
