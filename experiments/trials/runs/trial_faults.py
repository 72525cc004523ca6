"""Faults of a trial: made when their moment comes, undone when it ends, each a row of the events.

What cannot be done (a server that is dead already) is a row with the reason, and the rest goes on.
When a fault was noticed, the servers next to it know: the first of their news of a link that it
broke is its detection; servers that are about to die are asked before. What that did to flows is
`recovery`'s to find.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from experiments.trials.plans.fault_schedule import CUTS, FORMS, failures_of, nodes_of
from hosts.base.failures import Failures
from hosts.base.faults import Fault
from hosts.base.path import Step
from topos.base.errors import PillarboxError
from topos.base.topology import Topology

if TYPE_CHECKING:
    from experiments.emulation.lab import Lab

KILL, REVIVE, HEALED = "kill", "revive", "healed"
NEVER = "the trial ended before its moment came"

Deed = Callable[[], object]


class _Due(NamedTuple):
    """What is to be done, and when; what ends does so before what begins at the same moment."""

    at_s: float
    begins: bool
    fault: Fault


@dataclass
class _Event:
    """What was done."""

    due: _Due
    at_s: float
    reason: str = ""
    until_s: float = float("inf")  # when it was undone

    @property
    def name(self) -> str:
        """What the table calls it."""
        fault, begins = self.due.fault, self.due.begins
        if fault.kind == "server":
            return KILL if begins else REVIVE
        return fault.kind if begins else HEALED


class Faulting:
    """Carries out a schedule in a lab that runs.

    Parameters
    ----------
    lab : Lab
        The network.
    schedule : sequence of Fault
        From `experiments.trials.plans.fault_schedule.schedule`.
    say : callable, optional
        Called with a line of text for each event, from a thread of its own.

    Examples
    --------
    >>> faulting = Faulting(lab, schedule)  # doctest: +SKIP
    >>> faulting.begin(barrier_s)           # by CLOCK_MONOTONIC  # doctest: +SKIP
    >>> rows = faulting.end()               # when all flows have ended  # doctest: +SKIP
    """

    def __init__(
        self,
        lab: Lab,
        schedule: Sequence[Fault],
        say: Callable[[str], object] = str,  # does nothing
    ) -> None:
        self._lab, self._say = lab, say
        begins = [_Due(fault.at_s, True, fault) for fault in schedule]
        ends = [_Due(f.until_s, False, f) for f in schedule if f.until_s is not None]
        self._due = sorted(begins + ends, key=lambda due: due[:2])
        self._undo: dict[Fault, Deed] = {}
        self._events: list[_Event] = []
        self._news: dict[int, list[dict[str, Any]]] = {}  # of servers that died since
        self._barrier_s = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def begin(self, at_s: float) -> None:
        """Begin; moments count from that instant of CLOCK_MONOTONIC."""
        self._barrier_s = at_s
        self._thread.start()

    def end(self) -> list[dict[str, Any]]:
        """Undo what is still in effect, and return the rows of schema.EVENTS.

        When flows moved and recovered is left for `recovery` to fill in.
        """
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()
        rows = [self._row(event) for event in self._events]
        for fault in list(self._undo):
            self._attempt(self._undo.pop(fault))
        return rows

    # -- doing -----------------------------------------------------------------------------------

    def _run(self) -> None:
        for number, due in enumerate(self._due):
            wait_s = self._barrier_s + due.at_s - self._lab.ahead_s - time.monotonic()
            if self._ended.wait(max(0.0, wait_s)):
                never = (left for left in self._due[number:] if left.begins)
                self._events += [_Event(left, left.at_s, NEVER) for left in never]
                return
            self._do(due)

    def _do(self, due: _Due) -> None:
        if not due.begins and due.fault not in self._undo:
            return  # it never began
        if due.begins:
            self._remember(failures_of(self._lab.topology, due.fault).nodes)
        event = _Event(due, time.monotonic() + self._lab.ahead_s - self._barrier_s)
        deed = partial(self._begin, due.fault) if due.begins else self._undo.pop(due.fault)
        event.reason = self._attempt(deed)
        if not due.begins:
            for earlier in self._events:
                if earlier.due.fault == due.fault:
                    earlier.until_s = event.at_s
        self._events.append(event)
        line = f"{event.name} {'-'.join(due.fault.what)} at {event.at_s:.2f} s"
        self._say(f"{line}: {event.reason}" if event.reason else line)

    def _begin(self, fault: Fault) -> None:
        self._undo[fault] = begun(self._lab, fault)

    def _remember(self, nodes: Iterable[int]) -> None:
        """Note what servers know that are about to die."""
        for server in nodes:
            if server < self._lab.topology.servers and server not in self._lab.dead:
                self._news.setdefault(server, []).extend(self._news_of(server))

    def _news_of(self, server: int) -> list[dict[str, Any]]:
        """Return a server's news of its links, since it was last started."""
        news: list[dict[str, Any]] = self._lab.state(server).get("news", [])
        return news

    @staticmethod
    def _attempt(deed: Deed) -> str:
        """Do it; return why it could not be done, nothing if it was."""
        try:
            deed()
        except (PillarboxError, OSError) as error:
            return str(error)
        return ""

    # -- telling ---------------------------------------------------------------------------------

    def _row(self, event: _Event) -> dict[str, Any]:
        noticed_s = None if event.reason else self._noticed(event)
        return {
            "at_s": event.at_s,
            "event": event.name,
            "what": " ".join(event.due.fault.what),
            "detected_s": None if noticed_s is None else noticed_s - event.at_s,
            "rerouted_s": None,
            "recovered_s": None,
            "stopped_flows": None,
            "reason": event.reason,
        }

    def _noticed(self, event: _Event) -> float | None:
        """Return when the first server had news of a link that the event changed."""
        topology, up = self._lab.topology, not event.due.begins
        moments = []
        for server, steps in hops_through(topology, failures_of(topology, event.due.fault)).items():
            for news in (*self._news.get(server, ()), *self._news_of(server)):
                at_s = news["at_s"] - self._barrier_s
                step = Step(news["port"], topology.server(news["peer"]))
                if news["up"] == up and step in steps and event.at_s <= at_s < event.until_s:
                    moments.append(at_s)
        return min(moments, default=None)


def begun(lab: Lab, fault: Fault) -> Deed:
    """Make a fault in a lab that runs, at once; return what undoes it."""
    nodes = nodes_of(lab.topology, fault)
    if fault.kind == "server":
        lab.kill(nodes[0])
        return partial(lab.revive, nodes[0])
    if fault.kind in CUTS:
        held = lab.cut(*nodes, silent=fault.kind == "silent cut")
    else:
        stop = lab.stop_switch if fault.kind == "switch" else lab.stop_rack
        held = stop(nodes[0] - lab.topology.servers)
    return partial(lab.heal, held)


def killed_by(topology: Topology, event: dict[str, Any]) -> set[int]:
    """Return the servers that an event, a row of schema.EVENTS, made an end of.

    >>> import topos
    >>> killed_by(topos.parse("tree,2,2"), {"event": "rack", "what": "s1"})
    {2, 3}
    >>> killed_by(topos.parse("tree,2,2"), {"event": "cut", "what": "0.0 s1"})
    set()
    """
    if event["event"] not in (KILL, "server", "rack"):
        return set()
    broken = broken_by(topology, event)
    return {node for node in broken.nodes if node < topology.servers} if broken else set()


def broken_by(topology: Topology, event: dict[str, Any]) -> Failures | None:
    """Return what an event, a row of schema.EVENTS, broke; None where it was no fault.

    >>> import topos
    >>> broken_by(topos.parse("tree,2,2"), {"event": "kill", "what": "1.1"})
    Failures(nodes=frozenset({3}), links=frozenset())
    >>> broken_by(topos.parse("tree,2,2"), {"event": "healed", "what": "0.0 s1"})
    """
    kind = "server" if event["event"] == KILL else event["event"]
    if kind not in FORMS:
        return None
    return failures_of(topology, Fault(kind, tuple(event["what"].split())))


def hops_through(topology: Topology, failures: Failures) -> dict[int, set[Step]]:
    """Return the hops that failures stop, by the server that would notice.

    >>> import topos
    >>> hops_through(topos.parse("dcell,4,1"), Failures(links=frozenset([frozenset([3, 16])])))
    {3: {Step(port=1, peer=16)}, 16: {Step(port=1, peer=3)}}
    """
    found: dict[int, set[Step]] = {}
    for server in _servers_near(topology, failures) - failures.nodes:
        for port in range(topology.ports):
            for peer in topology.peers(server, port):
                if failures.of_hop(topology, server, Step(port, peer)):
                    found.setdefault(server, set()).add(Step(port, peer))
    return found


def _servers_near(topology: Topology, failures: Failures) -> set[int]:
    """Return servers that one hop may lead over what has failed."""
    near = set(failures.nodes.union(*failures.links))
    if topology.switches_interconnect:  # a hop passes several switches
        return set(range(topology.servers)) if near else set()
    for _ in range(2):  # to a switch, and on to its servers
        near |= {plug.node for node in near for _, plug in topology.neighbours(node)}
    return {node for node in near if node < topology.servers}
