"""Which flows of a server look for a path after a failure: a few at once, the others in turn."""

from __future__ import annotations

from collections.abc import Callable

from hosts.base.actions import Action
from hosts.base.agenda import Agenda
from hosts.wire.ipv4 import FlowKey

AT_ONCE = 4
AT_ONCE_S = 0.0  # a time that has come


class Searches:
    """The searches of one server.

    A cable that fails breaks many flows at once. On a busy machine the answers to as many probes
    come after the probes' time is up, so that each is sent again, and all come later still. With a
    few at once, the next begins when an answer is in, however fast the servers are. One that is not
    answered in time no longer keeps others waiting.

    Parameters
    ----------
    probe : callable
        Sends the probe of a flow.

    >>> agenda = Agenda()
    >>> began = []
    >>> searches = Searches(agenda, lambda flow, now: began.append(flow) or [])
    >>> for flow in "abcdef":
    ...     _ = searches.begin(flow, 1.0)
    >>> searches.end("b"), searches.end("e"), "".join(began)
    (None, None, 'abcd')
    >>> [deed(1.1) for deed in agenda.due(1.1)], "".join(began)
    ([[]], 'abcdf')
    """

    def __init__(
        self,
        agenda: Agenda,
        probe: Callable[[FlowKey, float], list[Action]],
        at_once: int = AT_ONCE,
    ) -> None:
        self.agenda, self.probe, self.at_once = agenda, probe, at_once
        self._under_way: set[FlowKey] = set()
        self._waiting: dict[FlowKey, None] = {}  # in order

    def __len__(self) -> int:
        return len(self._under_way)

    def begin(self, flow: FlowKey, now: float) -> list[Action]:
        """Look for the path of a flow, now or in its turn."""
        if len(self._under_way) < self.at_once or flow in self._under_way:
            self._waiting.pop(flow, None)
            self._under_way.add(flow)
            return self.probe(flow, now)
        self._waiting[flow] = None
        return []

    def end(self, flow: FlowKey) -> None:
        """Let others go on: this one has found a path, was not answered, or is not needed."""
        self._waiting.pop(flow, None)
        if flow in self._under_way:
            self._under_way.remove(flow)
            if self._waiting:
                self.agenda.set("searches", AT_ONCE_S, self._go_on)

    def _go_on(self, now: float) -> list[Action]:
        actions: list[Action] = []
        while self._waiting and len(self._under_way) < self.at_once:
            actions += self.begin(next(iter(self._waiting)), now)
        return actions
