"""Packets dropped by servers, with reasons, from the states of their forwarders."""

from __future__ import annotations

from collections import Counter
from typing import Any

DROPPED = "drop "  # prefix of the kernel program's drop counters


def drops_by_reason(state: dict[str, Any]) -> Counter[str]:
    """Return the dropped packets of a server by reason, from its forwarder's state.

    >>> kernel = {"drop for another mac": 1, "slow": 9}
    >>> drops_by_reason({"drops": {"TTL expired": 2}, "kernel": kernel})
    Counter({'TTL expired': 2, 'kernel: for another mac': 1})
    """
    drops = Counter(state.get("drops", {})) + Counter(state.get("plane_drops", {}))
    for name, number in state.get("kernel", {}).items():
        if name.startswith(DROPPED) and number:
            drops[f"kernel: {name.removeprefix(DROPPED)}"] += number
    return drops
