"""Which neighbours can be reached: heart-beats, a timeout, and what the cable itself tells.

A server sends a heart-beat out of every port at each interval, to all servers that the port
reaches. Who was not heard for a timeout is down. A loss of carrier takes down all neighbours of
that port at once (Guo 2008, section 7.1); when it returns, each is up as soon as it is heard.

Any other frame from a neighbour that is up counts as well, but brings nobody back.

A heart-beat also lists whom its sender hears on that port. A neighbour that I hear, and that does
not hear me, is down for both: a link of these networks carries packets both ways or not at all.

A neighbour that was taken for silent and is heard a moment later was only late, as on a machine
that has too much to do. What would follow (floods, probes, other paths) makes all still later; so
it is given twice the time from then on, up to MOST_PATIENCE times, and half of that again when all
was well for a while.

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
"""

from __future__ import annotations

import math

from hosts.base.path import Step
from hosts.base.timers import Timers
from hosts.wire.messages import HeartBeat
from topos.base.topology import Topology

FALSE_ALARM_S = 1.0  # who was silent for no longer, and longer than the timeout, was late
MOST_PATIENCE = 8
CALM_S = 10.0


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
        self.timeout_s = timers.neighbour_timeout_s
        self.heart_beat_s = timers.heart_beat_s
        self.peers = [topology.peers(server, port) for port in range(topology.ports)]
        self._uid = topology.uid(server)
        self._server_of_uid = topology.server_of_uid
        self._uid_of = topology.uid
        self._carrier = [True] * topology.ports
        steps = [Step(port, peer) for port, peers in enumerate(self.peers) for peer in peers]
        self._heard = dict.fromkeys(steps, now)
        # Who was late: how many timeouts it is given, and since when.
        self._patience: dict[Step, tuple[int, float]] = {}
        self._deaf: set[Step] = set()  # those who do not hear me
        self._lost_until: dict[Step, float] = {}  # who told that its cable is cut
        self._up = set(steps)

    def works(self, step: Step) -> bool:
        """Tell whether packets can go that way, as far as is known."""
        return step in self._up

    def fault(self, step: Step) -> str:
        """Return why a packet cannot go that way, as a reason for its drop; empty if it can."""
        if step in self._up:
            return ""
        return "next hop is down" if step in self._heard else "next hop is no neighbour"

    @property
    def up(self) -> frozenset[Step]:
        """Every link that works."""
        return frozenset(self._up)

    def heart_beat(self, port: int, now: float) -> HeartBeat | None:
        """Return what to send out of that port, None where nobody is."""
        if not self.peers[port] or not self._carrier[port]:
            return None
        heard = (peer for peer in self.peers[port] if self._is_heard(Step(port, peer), now))
        return HeartBeat(port, tuple(self._uid_of(peer) for peer in heard))

    def is_silent(self, port: int, uid: int, now: float) -> bool:
        """Tell whether that neighbour has not been heard for a timeout."""
        step = Step(port, self._server_of_uid(uid))
        return step in self._heard and not self._is_heard(step, now)

    def hear(self, port: int, uid: int, message: HeartBeat, now: float) -> Step | None:
        """Take in a heart-beat; return its link if its state changed."""
        step = Step(port, self._server_of_uid(uid))
        if step not in self._heard or not self._carrier[port]:
            return None
        if now < self._lost_until.get(step, -math.inf):
            return None
        self._weigh(step, now - self._heard[step], now)
        self._heard[step] = now
        if self._uid in message.heard:
            self._deaf.discard(step)
        else:
            self._deaf.add(step)
        return self._judge(step, now)

    def notice(self, port: int, peer: int, now: float) -> None:
        """Take any frame as a sign of life: on busy servers heart-beats wait behind data."""
        step = Step(port, peer)
        if step in self._up:
            self._heard[step] = now

    def set_carrier(self, port: int, up: bool, now: float) -> list[Step]:
        """Take in what the port's driver tells of its cable; return the links that changed."""
        self._carrier[port] = up
        if not up:
            for peer in self.peers[port]:
                self._heard[Step(port, peer)] = -self.timeout_s
        return [step for peer in self.peers[port] if (step := self._judge(Step(port, peer), now))]

    def carrier(self, port: int) -> bool:
        """Tell whether the port's cable is plugged in and live."""
        return self._carrier[port]

    def lose(self, step: Step, now: float) -> Step | None:
        """Take in that the neighbour's own cable is cut; return its link if its state changed."""
        self._heard[step] = -self.timeout_s
        self._lost_until[step] = now + self.heart_beat_s
        return self._judge(step, now)

    def time_out(self, now: float) -> list[Step]:
        """Return the links that went down because nothing was heard."""
        return [step for step in sorted(self._up) if self._judge(step, now)]

    @property
    def next_timeout(self) -> float:
        """When the next link goes down if nothing more is heard."""
        return min(map(self._silent_from, self._up), default=float("inf"))

    def _weigh(self, step: Step, silence_s: float, now: float) -> None:
        """Give a neighbour more time that was late, and less that was not for a while."""
        times, since_s = self._patience.get(step, (1, now))
        if self.timeout_s * times <= silence_s < FALSE_ALARM_S:
            self._patience[step] = min(2 * times, MOST_PATIENCE), now
        elif times > 1 and now >= since_s + CALM_S:
            self._patience[step] = times // 2, now

    def _silent_from(self, step: Step) -> float:
        """Return from when on a neighbour counts as silent if nothing more is heard."""
        return self._heard[step] + self.timeout_s * self._patience.get(step, (1, 0.0))[0]

    def _is_heard(self, step: Step, now: float) -> bool:
        in_time = not self.watched or now < self._silent_from(step)
        return self._carrier[step.port] and in_time

    def _judge(self, step: Step, now: float) -> Step | None:
        """Bring the link's state up to date; return it if that changed."""
        up = self._is_heard(step, now) and step not in self._deaf
        if up == (step in self._up):
            return None
        if up:
            self._up.add(step)
        else:
            self._up.remove(step)
        return step
