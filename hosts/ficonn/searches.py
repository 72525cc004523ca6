"""The probes of one server that are under way: a window of a few, and the flows that wait.

Every probe costs each server on its way, and a server whose processor is busy answers late. A
server that sent a probe for each new flow, and another for each that is not answered in time, would
keep the servers on the way busy with probes alone: the network would set up no path at all. The
window follows TCP's congestion control, which solved the same problem for links:

- at most `window` probes are under way; other flows wait in order, and what waits costs nothing;
- an answer in time widens the window by one probe per window, silence halves it, down to one;
- the timeout follows the round trips that are measured, late answers included, and a flow pauses
  longer before each further try (`hosts.ficonn.tar.PROBE_PAUSES`), without a place in the window.

So all servers together have a bounded number of probes under way, however many flows begin, and a
flow costs `PROBE_TRIES` probes at most.

A flow whose packets go by TOR meanwhile is in no hurry: such probes keep a pace as well, which
leaves most of the machine to packets. A flow that has ended when its turn comes is not probed.
"""

from __future__ import annotations

from collections.abc import Callable

from hosts.base.actions import Action
from hosts.base.agenda import Agenda
from hosts.base.bandwidth import mean
from hosts.base.probing import Pace
from hosts.wire.ipv4 import FlowKey

FIRST_WINDOW, MOST_WINDOW = 4.0, 16.0  # probes
MOST_ROUND_TRIP_S = 2.0  # upper bound for the round trip that timeouts follow
# Delay of a probe that nobody waits for. What begins together is sent before it is probed.
GATHER_S = 2e-3
NOW_S = 0.0  # a time that has come


class Searches:
    """The window of one server.

    Parameters
    ----------
    agenda : Agenda
        The router's timers.
    pace : Pace
        When flows that are in no hurry may begin.
    probe : callable
        Sends the probe of a flow, or ends its turn.

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
        self.round_trip_s = 0.0  # smoothed; 0 before the first answer
        self._under_way: set[FlowKey] = set()
        self._waiting: dict[FlowKey, None] = {}  # for a place in the window, in order
        self._later: dict[FlowKey, None] = {}  # for the pace, in order

    def __len__(self) -> int:
        return len(self._under_way)

    def begin(self, flow: FlowKey, now: float, *, urgent: bool = True) -> list[Action]:
        """Probe for a flow when it is its turn; an urgent one does not wait for the pace."""
        if flow in self._under_way or (urgent and self._has_room):
            return self._begin(flow, now)
        if urgent:
            self._later.pop(flow, None)
            self._waiting.setdefault(flow)
            return []
        if flow not in self._waiting:
            self._later.setdefault(flow)
        if "later searches" not in self.agenda:
            self.agenda.set("later searches", now + GATHER_S, self._take_turns)
        return []

    def answered(self, flow: FlowKey, round_trip_s: float) -> None:
        """Take the news that a probe was answered, in time or late."""
        before = self.round_trip_s or round_trip_s
        self.round_trip_s = min(MOST_ROUND_TRIP_S, mean(before, round_trip_s))
        if flow in self._under_way:
            self.window = min(MOST_WINDOW, self.window + 1 / self.window)
        self.end(flow)

    def silent(self, flow: FlowKey) -> None:
        """Take the news that a probe was not answered in time."""
        self.window = max(1.0, self.window / 2)
        self.end(flow)

    def end(self, flow: FlowKey) -> None:
        """Free the place of a flow, if it has one, for those that wait."""
        self._waiting.pop(flow, None)
        self._later.pop(flow, None)
        if flow in self._under_way:
            self._under_way.remove(flow)
            if self._waiting:
                self.agenda.set("searches", NOW_S, self._go_on)

    @property
    def _has_room(self) -> bool:
        return len(self._under_way) < int(self.window)

    def _begin(self, flow: FlowKey, now: float) -> list[Action]:
        for queue in (self._waiting, self._later):
            queue.pop(flow, None)
        self._under_way.add(flow)
        return self.probe(flow, now)

    def _go_on(self, now: float) -> list[Action]:
        actions: list[Action] = []
        while self._waiting and self._has_room:
            actions += self._begin(next(iter(self._waiting)), now)
        return actions

    def _take_turns(self, now: float) -> list[Action]:
        """Let flows go on that waited for the pace, until the next has to wait for it."""
        while self._later:
            turn = self.pace.turn(now)
            if turn > now:
                self.agenda.set("later searches", turn, self._take_turn)
                break
            self._go_on_later()
        return self._go_on(now)

    def _take_turn(self, now: float) -> list[Action]:
        self._go_on_later()
        return self._take_turns(now)

    def _go_on_later(self) -> None:
        if self._later:
            flow = next(iter(self._later))
            del self._later[flow]
            self._waiting[flow] = None
