"""States of the links to neighbours, from heartbeats, a timeout, and the carrier of ports.

A server sends a heartbeat out of every port at each interval, to all servers that the port
reaches. A neighbour without a heartbeat for the timeout is down. A loss of carrier immediately
takes down all neighbours of the port (Guo 2008, section 7.1); when the carrier returns, each
neighbour is up after its next heartbeat.

A heartbeat also lists the servers that its sender hears on that port. A neighbour that this server
hears, but that does not hear this server, is down for both: a link carries packets in both
directions or is down.

States of a link and their transitions (only links in state `up` carry packets). `deaf` means that
the neighbour does not hear this server ("me"), `unplugged` that the port has no carrier; the event
`cut` is the neighbour's message that its own cable has no carrier::

    state      hears me   hears not  silence    no carrier  carrier    cut
    up         up         deaf       silent     unplugged   up         silent
    deaf       up         deaf       silent     unplugged   deaf       silent
    silent     up         deaf       silent     unplugged   silent     silent
    unplugged  unplugged  unplugged  unplugged  unplugged   silent     unplugged

At first every neighbour counts as heard, so that a network works immediately; a missing neighbour
is detected after one timeout.

A network can grow and shrink while it runs (`resize`): a new neighbour counts as heard as well.

Timeouts are detected here, or by a data plane whose kernel program sees every heartbeat without
delay (`leave_silence_to_others`). In that case this module has no timeouts, and the data plane
reports silent neighbours (`silence`). A data plane that sends the heartbeats updates their content
when `revision` changes.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from pillarbox.hosts.base.path import Step
from pillarbox.hosts.base.timers import Timers
from pillarbox.hosts.wire.messages import Heartbeat
from pillarbox.topos.base.topology import Topology


class Neighbours:
    """State of all links of one server, each identified by its `Step` (port and neighbour)."""

    def __init__(
        self,
        topology: Topology,
        server: int,
        timers: Timers,
        now: float,
        *,
        watched: bool = True,
    ) -> None:
        self.server = server
        self.watched = (
            watched  # False if servers send no heartbeats: only the carrier shows failures
        )
        self.timeout_s = timers.neighbour_timeout_s if watched else math.inf
        self.heartbeat_s = timers.heartbeat_s
        self.peers = peers_of(topology, server)
        self._uid_of = topology.uid
        self._carrier = [True] * topology.ports
        steps = _steps(self.peers)
        self._silent_from = dict.fromkeys(steps, now + self.timeout_s)
        self._heard = set(steps)
        self._deaf: set[Step] = set()  # neighbours that do not receive this server's heartbeats
        # A neighbour's heartbeats before this time are ignored: sent before its cable was cut.
        self._stale_until: dict[Step, float] = {}
        self._up = set(steps)
        self.revision = 0  # incremented when the content of this server's heartbeats changes

    def leave_silence_to_others(self) -> None:
        """Disable this table's timeouts: the data plane calls `silence` for silent neighbours."""
        self.timeout_s = math.inf
        self._silent_from = dict.fromkeys(self._silent_from, math.inf)

    def resize(self, topology: Topology, now: float) -> None:
        """Update the list of neighbours after the network has grown or shrunk."""
        self.peers, self._uid_of = peers_of(topology, self.server), topology.uid
        before, silent_from = self._silent_from, now + self.timeout_s
        self._silent_from = {step: before.get(step, silent_from) for step in _steps(self.peers)}
        for links in (self._heard, self._deaf, self._up):
            links.intersection_update(self._silent_from)
        for links in (self._heard, self._up):
            links.update(self._silent_from.keys() - before.keys())
        self.revision += 1

    def works(self, step: Step) -> bool:
        """Return True if this server has detected no failure of its link `step`."""
        return step in self._up

    def fault(self, step: Step) -> str:
        """Return the drop reason of packets on a link; empty if the link is up."""
        if step in self._up:
            return ""
        return "next hop is down" if step in self._silent_from else "next hop is no neighbour"

    @property
    def up(self) -> frozenset[Step]:
        """All links of this server that are up."""
        return frozenset(self._up)

    @property
    def links(self) -> Collection[Step]:
        """All links of the server, up or down."""
        return self._silent_from.keys()

    def heartbeat(self, port: int) -> Heartbeat | None:
        """Return the heartbeat to send out of a port, None without neighbour or carrier."""
        if not self.peers[port] or not self._carrier[port]:
            return None
        heard = (peer for peer in self.peers[port] if Step(port, peer) in self._heard)
        return Heartbeat(port, tuple(self._uid_of(peer) for peer in heard))

    def hears(self, step: Step) -> bool:
        """Return True if the neighbour's heartbeats were received within the timeout."""
        return step in self._heard

    def hear(self, step: Step, hears_me: bool, now: float) -> Step | None:
        """Process a neighbour's heartbeat, which says if it receives this server's (`hears_me`).

        Return the link if its state changed.
        """
        if step not in self._silent_from or not self._carrier[step.port]:
            return None
        if now < self.lost_until(step):
            return None
        self._silent_from[step] = now + self.timeout_s
        (self._deaf.discard if hears_me else self._deaf.add)(step)
        return self._update(step, now)

    def silence(self, step: Step, now: float) -> Step | None:
        """Mark a neighbour as silent after the timeout; return the link if its state changed."""
        self._silent_from[step] = -math.inf
        return self._update(step, now)

    def restart_timeouts(self, now: float) -> None:
        """Restart all neighbours' timeouts, after this server received nothing for a while."""
        for step in self._heard:
            self._silent_from[step] = max(self._silent_from[step], now + self.timeout_s)

    def set_carrier(self, port: int, up: bool, now: float) -> list[Step]:
        """Process a change of a port's carrier; return the links whose state changed."""
        self._carrier[port] = up
        self.revision += 1
        if self.watched and not up:
            for peer in self.peers[port]:
                self._silent_from[Step(port, peer)] = -math.inf
        return [step for peer in self.peers[port] if (step := self._update(Step(port, peer), now))]

    def carrier(self, port: int) -> bool:
        """Return True if the port has carrier."""
        return self._carrier[port]

    def lose(self, step: Step, now: float) -> Step | None:
        """Process a neighbour's message that its cable is cut; return the link if it changed."""
        self._stale_until[step] = now + self.heartbeat_s
        return self.silence(step, now)

    def lost_until(self, step: Step) -> float:
        """Return the time until which a neighbour's heartbeats may predate its cable cut."""
        return self._stale_until.get(step, -math.inf)

    def time_out(self, now: float) -> list[Step]:
        """Mark links as down whose neighbour was silent for the timeout, and return these links."""
        return [step for step in sorted(self._heard) if self._update(step, now)]

    @property
    def next_timeout(self) -> float:
        """Time of the next neighbour timeout if no further heartbeat arrives."""
        return min((self._silent_from[step] for step in self._heard), default=math.inf)

    def _update(self, step: Step, now: float) -> Step | None:
        """Recompute a link's state, up or down; return the link if its state changed."""
        heard = self._carrier[step.port] and now < self._silent_from[step]
        if heard != (step in self._heard):
            self._heard ^= {step}
            self.revision += 1
        up = heard and step not in self._deaf
        if up == (step in self._up):
            return None
        self._up ^= {step}
        return step


def peers_of(topology: Topology, server: int) -> list[list[int]]:
    """Return the list of a server's neighbours for each port."""
    return [topology.peers(server, port) for port in range(topology.ports)]


def _steps(peers: list[list[int]]) -> list[Step]:
    """Return the links of a server whose neighbours are listed by port."""
    return [Step(port, peer) for port, of_port in enumerate(peers) for peer in of_port]
