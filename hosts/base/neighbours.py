"""Which neighbours can be reached: heart-beats, a timeout, and what the cable itself tells.

A server sends a heart-beat out of every port at each interval, to all servers that the port
reaches. Who was not heard for a timeout is down. A loss of carrier takes down all neighbours of
that port at once (Guo 2008, section 7.1); when it returns, each is up as soon as it is heard.

A heart-beat also lists whom its sender hears on that port. A neighbour that I hear, and that does
not hear me, is down for both: a link of these networks carries packets both ways or not at all.

The state of a link, and how it changes; only over one that is up go packets. `deaf` is a neighbour
that does not hear me, `unplugged` a port without carrier; a `cut` is the neighbour's word that its
own cable is::

    state      hears me   hears not  silence    no carrier  carrier    cut
    up         up         deaf       silent     unplugged   up         silent
    deaf       up         deaf       silent     unplugged   deaf       silent
    silent     up         deaf       silent     unplugged   silent     silent
    unplugged  unplugged  unplugged  unplugged  unplugged   silent     unplugged

At first every neighbour counts as heard, so that a network works from its first moment; what is
not there is noticed one timeout later.

A network can grow and shrink while it runs (`resize`): a new neighbour counts as heard as well.

Time is judged here, or by a data plane whose kernel sees every heart-beat and is never late
(`leave_silence_to_others`). Then nothing times out here, and silence is news (`silence`) like any
other. What sends heart-beats on this server's behalf sends them anew when `revision`
has changed.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from hosts.base.path import Step
from hosts.base.timers import Timers
from hosts.wire.messages import HeartBeat
from topos.base.topology import Topology


class Neighbours:
    """The state of every link of one server. Links are named by their `Step`: port and peer."""

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
        self.watched = watched  # by heart-beats; without them the carrier alone tells
        self.timeout_s = timers.neighbour_timeout_s if watched else math.inf
        self.heart_beat_s = timers.heart_beat_s
        self.peers = peers_of(topology, server)
        self._uid_of = topology.uid
        self._carrier = [True] * topology.ports
        steps = _steps(self.peers)
        self._silent_from = dict.fromkeys(steps, now + self.timeout_s)
        self._heard = set(steps)
        self._deaf: set[Step] = set()  # those who do not hear me
        self._lost_until: dict[Step, float] = {}  # who told that its cable is cut
        self._up = set(steps)
        self.revision = 0  # of what heart-beats say

    def leave_silence_to_others(self) -> None:
        """Judge no time any more: who is silent will be told by `silence`."""
        self.timeout_s = math.inf
        self._silent_from = dict.fromkeys(self._silent_from, math.inf)

    def resize(self, topology: Topology, now: float) -> None:
        """Take in who the neighbours are in a larger or smaller network."""
        self.peers, self._uid_of = peers_of(topology, self.server), topology.uid
        before, silent_from = self._silent_from, now + self.timeout_s
        self._silent_from = {step: before.get(step, silent_from) for step in _steps(self.peers)}
        for those in (self._heard, self._deaf, self._up):
            those.intersection_update(self._silent_from)
        for those in (self._heard, self._up):
            those.update(self._silent_from.keys() - before.keys())
        self.revision += 1

    def works(self, step: Step) -> bool:
        """Tell whether packets can go that way, as far as is known."""
        return step in self._up

    def fault(self, step: Step) -> str:
        """Return why a packet cannot go that way, as a reason for its drop; empty if it can."""
        if step in self._up:
            return ""
        return "next hop is down" if step in self._silent_from else "next hop is no neighbour"

    @property
    def up(self) -> frozenset[Step]:
        """Every link that works."""
        return frozenset(self._up)

    @property
    def links(self) -> Collection[Step]:
        """Every link there is, whether it works or not."""
        return self._silent_from.keys()

    def heart_beat(self, port: int) -> HeartBeat | None:
        """Return what to send out of that port, None where there is no neighbour."""
        if not self.peers[port] or not self._carrier[port]:
            return None
        heard = (peer for peer in self.peers[port] if Step(port, peer) in self._heard)
        return HeartBeat(port, tuple(self._uid_of(peer) for peer in heard))

    def hears(self, step: Step) -> bool:
        """Tell whether that neighbour was heard within the timeout."""
        return step in self._heard

    def hear(self, step: Step, hears_me: bool, now: float) -> Step | None:
        """Take in a heart-beat, which says whether its sender hears this server.

        Return its link if its state changed.
        """
        if step not in self._silent_from or not self._carrier[step.port]:
            return None
        if now < self.lost_until(step):
            return None
        self._silent_from[step] = now + self.timeout_s
        (self._deaf.discard if hears_me else self._deaf.add)(step)
        return self._judge(step, now)

    def silence(self, step: Step, now: float) -> Step | None:
        """Take in that nothing was heard for a timeout; return the link if its state changed."""
        self._silent_from[step] = -math.inf
        return self._judge(step, now)

    def excuse_silence(self, now: float) -> None:
        """Count all neighbours that are heard as heard now: for a while nobody could be."""
        for step in self._heard:
            self._silent_from[step] = max(self._silent_from[step], now + self.timeout_s)

    def set_carrier(self, port: int, up: bool, now: float) -> list[Step]:
        """Take in what the port's driver tells of its cable; return the links that changed."""
        self._carrier[port] = up
        self.revision += 1
        if self.watched and not up:
            for peer in self.peers[port]:
                self._silent_from[Step(port, peer)] = -math.inf
        return [step for peer in self.peers[port] if (step := self._judge(Step(port, peer), now))]

    def carrier(self, port: int) -> bool:
        """Tell whether the port's cable is plugged in and live."""
        return self._carrier[port]

    def lose(self, step: Step, now: float) -> Step | None:
        """Take in that the neighbour's own cable is cut; return its link if its state changed."""
        self._lost_until[step] = now + self.heart_beat_s
        return self.silence(step, now)

    def lost_until(self, step: Step) -> float:
        """Return until when heart-beats of that neighbour are those that waited on the way."""
        return self._lost_until.get(step, -math.inf)

    def time_out(self, now: float) -> list[Step]:
        """Return the links that went down because nothing was heard."""
        return [step for step in sorted(self._heard) if self._judge(step, now)]

    @property
    def next_timeout(self) -> float:
        """When the next neighbour counts as silent if nothing more is heard."""
        return min((self._silent_from[step] for step in self._heard), default=math.inf)

    def _judge(self, step: Step, now: float) -> Step | None:
        """Bring the link's state up to date; return it if that changed."""
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
    """Return a server's neighbours, port by port."""
    return [topology.peers(server, port) for port in range(topology.ports)]


def _steps(peers: list[list[int]]) -> list[Step]:
    return [Step(port, peer) for port, behind in enumerate(peers) for peer in behind]
