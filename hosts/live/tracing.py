"""Trace records of a server's actions on packets that carry a mark (see hosts/wire/marks.py)."""

from __future__ import annotations

import time
from typing import Any

from pillarbox.hosts.base.actions import Action, Deliver, Send
from pillarbox.hosts.wire.marks import serial_of
from pillarbox.topos.base.topology import Topology


def trace_of(action: Action, cause: bytes, topology: Topology) -> dict[str, Any] | None:
    """Return the trace record of a router's action, None if its packet carries no mark.

    Sent and delivered packets are identified by their own mark: a packet may have waited for a
    probe response, which then is the cause, but not the packet. Dropped packets use the mark of the
    cause.
    """
    if isinstance(action, Send):
        serial = serial_of(action.frame.data)
    else:
        serial = serial_of(action.packet if isinstance(action, Deliver) else cause)
    if serial is None:
        return None
    what: dict[str, Any] = {"serial": serial, "at_s": time.monotonic()}
    if isinstance(action, Send):
        peer = topology.address(action.peer) if action.peer >= 0 else "everyone"
        return what | {"did": "sent", "port": action.port, "peer": peer}
    if isinstance(action, Deliver):
        return what | {"did": "delivered"}
    return what | {"did": "dropped", "reason": action.reason}
