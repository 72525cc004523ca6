"""Congestion control for the path probes of one server: a small window, and queues of flows.

Every probe costs processor time on each server that it crosses, and busy servers answer late. If a
server sent a probe for each new flow, and a further one after each timeout, probes alone could keep
the servers busy, and the network would set up no path at all. The window follows TCP's congestion
control, which solves the same problem for links:

- at most `window` probes are outstanding; other flows are queued, at no cost;
- a timely response widens the window by one probe per window, a timeout halves it, down to one;
- the timeout follows the measured round trips, late responses included, and a flow pauses longer
  before each retry (`pillarbox.hosts.ficonn.tar.PROBE_PAUSES`) without using the window.

So the number of outstanding probes of all servers together is bounded however many flows start, and
a flow costs at most `PROBE_TRIES` probes.

A flow whose packets are forwarded by TOR meanwhile is not urgent: its probes are rate-limited as
well, which leaves most of the processor time to packets. A flow that has ended when its turn comes
is not probed.
"""

from __future__ import annotations

from collections.abc import Callable

from pillarbox.hosts.base.actions import Action
from pillarbox.hosts.base.agenda import Agenda
from pillarbox.hosts.base.bandwidth import mean
from pillarbox.hosts.base.probing import Pace
from pillarbox.hosts.wire.ipv4 import FlowKey

# Initial and maximum congestion window, in outstanding path probes.
FIRST_WINDOW, MOST_WINDOW = 4.0, 16.0
MOST_ROUND_TRIP_S = 2.0  # upper bound for the measured round trip that sets timeouts, in seconds
# Delay of a probe that is not urgent: packets of flows that start together are sent first.
GATHER_S = 2e-3
NOW_S = 0.0  # timer value that means immediately: a time in the past


class Searches:
    """Congestion window of a server's outstanding path probes, with the flows that wait for it.

    Parameters
    ----------
    agenda : Agenda
        Timers of the router.
    pace : Pace
        Rate limit for flows that are not urgent.
    probe : callable
        Callback that sends the probe of a flow, or ends its turn.

    >>> from random import Random
    >>> agenda = Agenda()
    >>> began = []
    >>> pace = Pace(0.0, 0.0, Random(1))
    >>> searches = Searches(agenda, pace, lambda flow, now: began.append(flow) or [])
    >>> for flow in "abcdefgh":
    ...     _ = searches.begin(flow, 1.0)
    >>> searches.answered("b", 0.1), "".join(began), searches.window
    (None, 'abcd', 4.25)
    >>> [deed(1.1) for deed in agenda.due(1.1)], "".join(began)
    ([[]], 'abcde')
    >>> searches.silent("a"), searches.window
    (None, 2.125)
    >>> [deed(1.2) for deed in agenda.due(1.2)], "".join(began)
    ([[]], 'abcde')
    """

    def __init__(
        self, agenda: Agenda, pace: Pace, probe: Callable[[FlowKey, float], list[Action]]
    ) -> None:
        self.agenda, self.pace, self.probe = agenda, pace, probe
        self.window = FIRST_WINDOW
        # smoothed round trip of probes, in seconds; 0 before the first response
        self.round_trip_s = 0.0
        self._under_way: set[FlowKey] = set()
        self._waiting: dict[FlowKey, None] = {}  # flows whose probes wait for the window, in order
        # flows whose probes wait for the rate limit, in order
        self._rate_limited: dict[FlowKey, None] = {}

    def __len__(self) -> int:
        return len(self._under_way)

    def begin(self, flow: FlowKey, now: float, *, urgent: bool = True) -> list[Action]:
        """Send a flow's probe, or queue the flow until the probe window has room.

        The window limits the number of flows whose probe is unanswered. Flows that are not urgent
        first wait for the rate limit.
        """
        if flow in self._under_way or (urgent and self._has_room):
            return self._send_probe(flow, now)
        if urgent:
            self._rate_limited.pop(flow, None)
            self._waiting.setdefault(flow)
            return []
        if flow not in self._waiting:
            self._rate_limited.setdefault(flow)
        if "later searches" not in self.agenda:
            self.agenda.set("later searches", now + GATHER_S, self._take_turns)
        return []

    def hurry(self, flow: FlowKey, now: float) -> list[Action]:
        """Skip the probe rate limit for a waiting flow, since packets wait for its path."""
        return self.begin(flow, now) if flow in self._rate_limited else []

    def answered(self, flow: FlowKey, round_trip_s: float) -> None:
        """Process a probe response, timely or late: widen the window and update the round trip."""
        before = self.round_trip_s or round_trip_s
        self.round_trip_s = min(MOST_ROUND_TRIP_S, mean(before, round_trip_s))
        if flow in self._under_way:
            self.window = min(MOST_WINDOW, self.window + 1 / self.window)
        self.end(flow)

    def silent(self, flow: FlowKey) -> None:
        """Process a path probe's timeout: halve the window of outstanding probes."""
        self.window = max(1.0, self.window / 2)
        self.end(flow)

    def end(self, flow: FlowKey) -> None:
        """Remove a flow whose probe round has ended; probe for a waiting flow."""
        self._waiting.pop(flow, None)
        self._rate_limited.pop(flow, None)
        if flow in self._under_way:
            self._under_way.remove(flow)
            if self._waiting:
                self.agenda.set("searches", NOW_S, self._fill_window)

    @property
    def _has_room(self) -> bool:
        return len(self._under_way) < int(self.window)

    def _send_probe(self, flow: FlowKey, now: float) -> list[Action]:
        for queue in (self._waiting, self._rate_limited):
            queue.pop(flow, None)
        self._under_way.add(flow)
        return self.probe(flow, now)

    def _fill_window(self, now: float) -> list[Action]:
        actions: list[Action] = []
        while self._waiting and self._has_room:
            actions += self._send_probe(next(iter(self._waiting)), now)
        return actions

    def _take_turns(self, now: float) -> list[Action]:
        """Move flows that waited for the rate limit to the window's queue, as the limit allows."""
        while self._rate_limited:
            turn = self.pace.turn(now)
            if turn > now:
                self.agenda.set("later searches", turn, self._take_turn)
                break
            self._queue_next()
        return self._fill_window(now)

    def _take_turn(self, now: float) -> list[Action]:
        self._queue_next()
        return self._take_turns(now)

    def _queue_next(self) -> None:
        if self._rate_limited:
            flow = next(iter(self._rate_limited))
            del self._rate_limited[flow]
            self._waiting[flow] = None
