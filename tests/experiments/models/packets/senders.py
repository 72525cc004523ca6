"""A TCP sender's state and the ACKs that reach it, for tests of single steps."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from pillarbox.experiments.models.packets.congestion import CUBIC
from pillarbox.experiments.models.packets.state import NEVER, NONE, OPEN, TcpFlow

NO_LIMIT = 1e9


def flow_of(**state: Any) -> Any:
    """Return a TCP flow in congestion avoidance whose window is full, with this state."""
    values: dict[str, float] = dict.fromkeys(TcpFlow.__annotations__, 0)
    values.update(control=CUBIC, doing=OPEN, full=True, epoch_s=NEVER, ever_s=NEVER, round_end=NONE)
    values.update(window=10.0, threshold=2.0, round_trip_s=0.1, deviation_s=0.05)
    return SimpleNamespace(**(values | state))


def ack_of(number: int, newest: int | None = None, **fields: Any) -> Any:
    """Return an ACK of all segments below `number`."""
    values: dict[str, float] = {"number": number, "taken": number}
    values["newest"] = number if newest is None else newest
    values |= {"stamp_s": 0.0, "has_holes": False, "marked": False}
    return SimpleNamespace(**(values | fields))
