"""Light-weight DPillarMP: a random path for each try of a connection (Liao 2012, section 4.5.1).

Nothing is probed: that suits the small and short-lived flows, which are most. A flow's first
packet draws one of the disjoint paths of both directions, and the flow stays on it. An application
whose TCP connection does not come about sends its SYN again; so every SYN draws again, and after a
few tries one finds a path that works. (So does every answer to a SYN: the way back is a path of its
own, drawn by the other end.) For UDP and others there are no tries, but relays tell of failed
links: a flow whose path is told to have failed draws among the others. What was told is believed
for `failed_link_timeout_s`, for all flows. Paths whose first hop is down are not drawn.

State: the path of each flow, at most FLOWS of them; one without packets for `flow_idle_s` is
forgotten, and one that had to make room draws again. No timers.

Left out: retries below the application, except for packets that a relay returns (tunnel.py).
"""

from __future__ import annotations

from itertools import starmap
from typing import Any, NamedTuple

from hosts.base.actions import Action
from hosts.base.bounded import Bounded
from hosts.base.path import Path
from hosts.dpillar.choices import Link
from hosts.dpillar.paths import Proxies
from hosts.dpillar.tunnel import Tunnelling
from hosts.wire.ipv4 import LAYOUT, TCP, FlowKey
from hosts.wire.layout import Field, Layout
from topos.dpillar import CLOCKWISE, COUNTER_CLOCKWISE

FLOWS = 4096

TCP_BEGINNING = Layout(
    [
        Field("ports", 32),
        Field("sequence", 32),
        Field("acknowledgement", 32),
        Field("data_offset", 8),
        Field("flags", 8),
    ]
)
SYN = 0b10


class Tunnelled(NamedTuple):
    """A path and the tunnel that makes it."""

    path: Path
    proxies: Proxies


class RandomPath(Tunnelling):
    """DPillarMP with a random path for each flow: see the module's text."""

    directions = (CLOCKWISE, COUNTER_CLOCKWISE)
    sees_connections = True

    def __init__(self, *network: Any, **options: Any) -> None:
        super().__init__(*network, **options)
        self.flows: Bounded[FlowKey, Tunnelled] = Bounded(FLOWS, self.timers.flow_idle_s)

    def tunnel_for(
        self, packet: bytes, flow: FlowKey, destination: int, now: float
    ) -> Proxies | None:
        """Return the tunnel of the flow's path, drawn anew for a SYN or where it has failed."""
        self.flows.expire(now)
        self.failed_links.expire(now)
        held = self.flows.use(flow, now)
        if held is None or is_try(flow, packet) or not self._usable(held):
            held = self._drawn(destination)
            if held is None:
                return None
            self.flows.put(flow, held, now)
        return held.proxies

    def failed(self, destination: int, flow: FlowKey, link: Link, now: float) -> list[Action]:
        """Let every flow be looked at again: the link may be on its path."""
        self.own_answers_change()
        return []

    def has_sent(self, flow: FlowKey) -> bool:
        """Tell whether the flow has a path."""
        return flow in self.flows

    def used(self, flow: FlowKey, sent_bytes: int, now: float) -> list[Action]:
        """Remember that the flow has packets."""
        self.flows.use(flow, now)
        return []

    def _drawn(self, destination: int) -> Tunnelled | None:
        self.counters["paths drawn"] += 1
        every = self.tunnels_to(destination)
        usable = [held for held in starmap(Tunnelled, every.items()) if self._usable(held)]
        return self.random.choice(usable) if usable else None

    def _usable(self, held: Tunnelled) -> bool:
        path, proxies = held
        return self.first_works(proxies) and not self.has_failed(path)

    def state(self) -> dict[str, Any]:
        """Return what a user may want to see: each flow's path besides."""
        flows = [self.flow_state(flow, held.path) for flow, held in self.flows.items()]
        return {**super().state(), "flows": flows}


def is_try(flow: FlowKey, packet: bytes) -> bool:
    """Tell whether the packet is a SYN: a try, or the answer to one, of a TCP connection."""
    if flow.protocol != TCP or not flow.source_port:  # a later fragment has no ports, and no flags
        return False
    start = 4 * LAYOUT.read(packet)[0]
    if len(packet) < start + TCP_BEGINNING.size:
        return False
    *_, flags = TCP_BEGINNING.read(packet, start)
    return bool(flags & SYN)
