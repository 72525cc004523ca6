"""Light-weight DPillarMP: a random path per connection attempt (Liao 2012, section 4.5.1).

Paths are not probed, which suits small and short-lived flows, the majority. The first packet of a
flow selects one of the disjoint paths of both directions at random, and the flow stays on it. If a
TCP connection cannot be established, the SYN is retransmitted; every SYN selects a new path, so
after a few attempts one finds a working path. (Every SYN-ACK selects a new path, too: the reverse
path is independent, and chosen by the other end.) UDP and other protocols have no such attempts,
but relays report failed links: a flow whose path is reported as failed selects another path. A
report is valid for `failed_link_timeout_s`, for all flows, or, if no other path is left, for
`unreachable_hold_s`. Paths whose first hop is down are not selected.

State: the path of each flow, at most FLOWS. A flow without packets for `flow_idle_s` is removed; a
flow evicted from the full table selects a new path. No timers.

Left out: retries below the application, except for packets that a relay returns (tunnel.py).
"""

from __future__ import annotations

from itertools import starmap
from typing import Any, NamedTuple

from pillarbox.hosts.base.actions import Action
from pillarbox.hosts.base.bounded import Bounded
from pillarbox.hosts.base.path import Path
from pillarbox.hosts.dpillar.paths import Proxies
from pillarbox.hosts.dpillar.tunnel import Tunnelling
from pillarbox.hosts.dpillar.tunnel_choices import Link, links
from pillarbox.hosts.wire.header_layout import Field, HeaderLayout
from pillarbox.hosts.wire.ipv4 import LAYOUT, TCP, FlowKey
from pillarbox.topos.dpillar import CLOCKWISE, COUNTER_CLOCKWISE

FLOWS = 4096  # upper bound for the router's flows with a selected path

TCP_BEGINNING = HeaderLayout(
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
    """A flow's path, and the proxies (tunnel ends) of its DPillarMP tunnel."""

    path: Path
    proxies: Proxies


class RandomPath(Tunnelling):
    """DPillarMP router that selects a random path for each flow."""

    directions = (CLOCKWISE, COUNTER_CLOCKWISE)
    sees_connections = True

    def __init__(self, *network: Any, **options: Any) -> None:
        super().__init__(*network, **options)
        self.flows: Bounded[FlowKey, Tunnelled] = Bounded(FLOWS, self.timers.flow_idle_s)

    def tunnel_for(
        self, packet: bytes, flow: FlowKey, destination: int, now: float
    ) -> Proxies | None:
        """Return the tunnel of the flow's path; a SYN or a failed path selects a new path."""
        self.flows.expire(now)
        self.failed_links.expire(now)
        entry = self.flows.use(flow, now)
        if entry is None or is_connection_attempt(flow, packet) or not self._tunnel_works(entry):
            entry = self._random_tunnel(destination, now)
            if entry is None:
                return None
            self.flows.put(flow, entry, now)
        return entry.proxies

    def failed(self, destination: int, flow: FlowKey, link: Link, now: float) -> list[Action]:
        """Invalidate the data plane's cached actions: the failed link may be on any flow's path."""
        self.own_answers_change()
        return []

    def is_own_flow(self, flow: FlowKey) -> bool:
        """Return True if this server has selected a path for the flow."""
        return flow in self.flows

    def used(self, flow: FlowKey, sent_bytes: int, now: float) -> list[Action]:
        """Restart a flow's idle timeout after the data plane sent packets of the flow."""
        self.flows.use(flow, now)
        return []

    def _random_tunnel(self, destination: int, now: float) -> Tunnelled | None:
        """Return a random working path to a server, else one without a recent failure report."""
        self.counters["paths drawn"] += 1
        every = starmap(Tunnelled, self.tunnels_to(destination).items())
        first = [entry for entry in every if self.first_works(entry.proxies)]
        usable = [entry for entry in first if not self.has_failed(entry.path)]
        if usable:
            return self.random.choice(usable)
        usable = [entry for entry in first if not self.has_just_failed(entry.path, now)]
        if not usable:
            return None
        drawn = self.random.choice(usable)
        for link in links(drawn.path):  # the flow stays on the path until a new report
            self.failed_links.pop(link)
        return drawn

    def _tunnel_works(self, entry: Tunnelled) -> bool:
        path, proxies = entry
        return self.first_works(proxies) and not self.has_failed(path)

    def state(self) -> dict[str, Any]:
        """Return the router's state with each flow's path."""
        flows = [self.flow_state(flow, entry.path) for flow, entry in self.flows.items()]
        return {**super().state(), "flows": flows}


def is_connection_attempt(flow: FlowKey, packet: bytes) -> bool:
    """Return True if the packet is a SYN or SYN-ACK: an attempt to establish a TCP connection."""
    # IP fragments after the first contain no TCP ports and flags.
    if flow.protocol != TCP or not flow.source_port:
        return False
    start = 4 * LAYOUT.read(packet)[0]
    if len(packet) < start + TCP_BEGINNING.size:
        return False
    *_, flags = TCP_BEGINNING.read(packet, start)
    return bool(flags & SYN)
