"""How a network runs live: the one record of it, from an experiment's plan to each forwarder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

UNLIMITED_BPS = 10e9  # what routers take a port without a rate for
MOST_AT_ONCE = 64  # servers that are asked for in one message


@dataclass(frozen=True, kw_only=True)
class LabSettings:
    """What a lab is made of, beside its network and its seed."""

    routing: str = ""  # the network's usual one
    plane: str = "auto"
    switches: str = "bridges"  # where servers relay; or learning, static, vlan: on Open vSwitch
    timers: str = "fast"
    rate_mbit: float | None = 100.0  # of every cable; None for as fast as the machine can
    delay: str | None = None  # of every cable
    loss: float | None = None  # of every cable, in percent
    mtu: int = 1500
    queue: str = "droptail"  # of every port; or codel, fq_codel, ecn
    queue_length: str = ""  # in packets, bytes or time: "100 packets", "150 kB", "10ms"
    # So much of its rate a port at rest lets pass at once, and a small flow is over before a cable
    # would have carried it. By half of it a port's timer may be late before its rate suffers.
    catch_up: str = "3ms"
    options: Mapping[str, Any] = field(default_factory=dict)  # of the router

    @property
    def rate_bps(self) -> float:
        """Of a port, as far as routers have to know."""
        return UNLIMITED_BPS if self.rate_mbit is None else self.rate_mbit * 1e6

    def plain(self) -> dict[str, Any]:
        """Return these values by name, without those that a subclass adds."""
        return {one.name: getattr(self, one.name) for one in fields(LabSettings)}
