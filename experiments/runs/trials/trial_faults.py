"""Faults of a trial: injected and repaired at scheduled times, each an event's row in the records.

A fault that cannot be injected (a server that is already dead) gets a row with the reason, and the
trial continues. The detection time of a fault is the time at which the first neighbouring server
reports one of the broken links down; servers about to be killed are asked for their reports before.
`recovery` computes the effect of faults on flows.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from pillarbox.experiments.runs.plans.fault_schedule import failures_of, nodes_of
from pillarbox.hosts.base.failures import Failures
from pillarbox.hosts.base.fault_kinds import BY_NAME, FAULT_KINDS, SERVER, fault_kind
from pillarbox.hosts.base.faults import Fault
from pillarbox.hosts.base.path import Step
from pillarbox.topos.base.errors import PillarboxError
from pillarbox.topos.base.topology import Topology

if TYPE_CHECKING:
    from pillarbox.experiments.lab.emulation.lab import Lab

KILL, REVIVE, HEALED = "kill", "revive", "healed"
# Names of the events at which faults of any kind begin.
FAULT_EVENTS = frozenset(kind.event for kind in FAULT_KINDS)
NEVER = "the trial ended before the scheduled time"

Action = Callable[[], object]


class _ScheduledAction(NamedTuple):
    """A scheduled begin or end of a fault; at the same time, ends come before begins."""

    at_s: float
    begins: bool
    fault: Fault


@dataclass
class _Event:
    """A fault or repair that was carried out or failed, with its actual time."""

    due: _ScheduledAction
    at_s: float
    reason: str = ""
    until_s: float = float("inf")  # Time of the fault's repair.

    @property
    def name(self) -> str:
        """Name of the event in the table of events."""
        fault, begins = self.due.fault, self.due.begins
        if begins:
            return fault_kind(fault.kind).event
        return REVIVE if fault_kind(fault.kind).target == SERVER else HEALED


class FaultInjector:
    """Fault injector: carries out a fault schedule in a running lab.

    Parameters
    ----------
    lab : Lab
        Running lab of the trial.
    schedule : sequence of Fault
        Faults of `pillarbox.experiments.runs.plans.fault_schedule.schedule`.
    say : callable, optional
        Receiver of a line of text for each event, called from a separate thread.

    Examples
    --------
    >>> faulting = FaultInjector(lab, schedule)  # doctest: +SKIP
    >>> faulting.begin(barrier_s)           # Time by CLOCK_MONOTONIC.  # doctest: +SKIP
    >>> rows = faulting.end()               # When all flows have ended.  # doctest: +SKIP
    """

    def __init__(
        self,
        lab: Lab,
        schedule: Sequence[Fault],
        say: Callable[[str], object] = str,  # Receiver of event lines; the default ignores them.
    ) -> None:
        self._lab, self._say = lab, say
        for fault in schedule:
            lab.faults.prepare(fault_kind(fault.kind))
        begins = [_ScheduledAction(fault.at_s, True, fault) for fault in schedule]
        ends = [_ScheduledAction(f.until_s, False, f) for f in schedule if f.until_s is not None]
        self._due = sorted(begins + ends, key=lambda due: due[:2])
        self._repairs: dict[Fault, Action] = {}
        self._events: list[_Event] = []
        # Link-state reports of servers, saved before faults kill them.
        self._saved_reports: dict[int, list[dict[str, Any]]] = {}
        self._barrier_s = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def begin(self, at_s: float) -> None:
        """Start the fault schedule; its times count from a time of CLOCK_MONOTONIC."""
        self._barrier_s = at_s
        self._thread.start()

    def end(self) -> list[dict[str, Any]]:
        """Repair the faults still in effect, and return the rows of schema.EVENTS.

        `recovery` fills in the rerouting and recovery times.
        """
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()
        rows = [self._row(event) for event in self._events]
        for fault in list(self._repairs):
            self._carry_out(self._repairs.pop(fault))
        return rows

    # -- fault injection -------------------------------------------------------------------------

    def _run(self) -> None:
        for number, due in enumerate(self._due):
            wait_s = self._barrier_s + due.at_s - self._lab.fabric.ahead_s - time.monotonic()
            if self._ended.wait(max(0.0, wait_s)):
                never = (left for left in self._due[number:] if left.begins)
                self._events += [_Event(left, left.at_s, NEVER) for left in never]
                return
            self._process_due(due)

    def _process_due(self, due: _ScheduledAction) -> None:
        if not due.begins and due.fault not in self._repairs:
            return  # The fault could not be injected: skip its repair.
        if due.begins:
            self._save_reports(failures_of(self._lab.topology, due.fault).nodes)
        event = _Event(due, time.monotonic() + self._lab.fabric.ahead_s - self._barrier_s)
        action = partial(self._begin, due.fault) if due.begins else self._repairs.pop(due.fault)
        event.reason = self._carry_out(action)
        if not due.begins:
            for earlier in self._events:
                if earlier.due.fault == due.fault:
                    earlier.until_s = event.at_s
        self._events.append(event)
        line = f"{event.name} {'-'.join(due.fault.what)} at {event.at_s:.2f} s"
        self._say(f"{line}: {event.reason}" if event.reason else line)

    def _begin(self, fault: Fault) -> None:
        self._repairs[fault] = begun(self._lab, fault)

    def _save_reports(self, nodes: Iterable[int]) -> None:
        """Save the link reports of servers that are about to be killed."""
        for server in nodes:
            if server < self._lab.topology.servers and server not in self._lab.dead:
                self._saved_reports.setdefault(server, []).extend(self._link_reports(server))

    def _link_reports(self, server: int) -> list[dict[str, Any]]:
        """Return a server's reports of its links since its last start."""
        news: list[dict[str, Any]] = self._lab.state(server).get("news", [])
        return news

    @staticmethod
    def _carry_out(action: Action) -> str:
        """Carry out a fault or repair; return the reason if it failed, else an empty text."""
        try:
            action()
        except (PillarboxError, OSError) as error:
            return str(error)
        return ""

    # -- rows of the events ----------------------------------------------------------------------

    def _row(self, event: _Event) -> dict[str, Any]:
        noticed_s = None if event.reason else self._detection_s(event)
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

    def _detection_s(self, event: _Event) -> float | None:
        """Return the time at which the first server reported a link that an event changed."""
        topology, up = self._lab.topology, not event.due.begins
        moments = []
        for server, steps in hops_interrupted_by(
            topology, failures_of(topology, event.due.fault)
        ).items():
            for news in (*self._saved_reports.get(server, ()), *self._link_reports(server)):
                at_s = news["at_s"] - self._barrier_s
                step = Step(news["port"], topology.server(news["peer"]))
                if news["up"] == up and step in steps and event.at_s <= at_s < event.until_s:
                    moments.append(at_s)
        return min(moments, default=None)


def begun(lab: Lab, fault: Fault) -> Action:
    """Inject a fault into a running lab; return the function that repairs it."""
    nodes_of(lab.topology, fault)
    return partial(lab.end, lab.begin(fault))


def killed_by(topology: Topology, event: dict[str, Any]) -> set[int]:
    """Return the servers that an event, a row of schema.EVENTS, killed.

    >>> from pillarbox import topos
    >>> killed_by(topos.parse("tree,2,2"), {"event": "rack", "what": "s1"})
    {2, 3}
    >>> killed_by(topos.parse("tree,2,2"), {"event": "cut", "what": "0.0 s1"})
    set()
    """
    if event["event"] not in (KILL, "server", "rack"):
        return set()
    broken = failures_of_event(topology, event)
    return {node for node in broken.nodes if node < topology.servers} if broken else set()


def failures_of_event(topology: Topology, event: dict[str, Any]) -> Failures | None:
    """Return the failures of an event, a row of schema.EVENTS; None if it was a repair.

    >>> from pillarbox import topos
    >>> failures_of_event(topos.parse("tree,2,2"), {"event": "kill", "what": "1.1"})
    Failures(nodes=frozenset({3}), links=frozenset())
    >>> failures_of_event(topos.parse("tree,2,2"), {"event": "healed", "what": "0.0 s1"})
    """
    kind = "server" if event["event"] == KILL else event["event"]
    if kind not in BY_NAME:
        return None
    return failures_of(topology, Fault(kind, tuple(event["what"].split())))


def hops_interrupted_by(topology: Topology, failures: Failures) -> dict[int, set[Step]]:
    """Return the hops that failures interrupt, by the server that would detect it.

    >>> from pillarbox import topos
    >>> cut = Failures(links=frozenset([frozenset([3, 16])]))
    >>> hops_interrupted_by(topos.parse("dcell,4,1"), cut)
    {3: {Step(port=1, peer=16)}, 16: {Step(port=1, peer=3)}}
    """
    found: dict[int, set[Step]] = {}
    for server in _servers_next_to(topology, failures) - failures.nodes:
        for port in range(topology.ports):
            for peer in topology.peers(server, port):
                if failures.of_hop(topology, server, Step(port, peer)):
                    found.setdefault(server, set()).add(Step(port, peer))
    return found


def _servers_next_to(topology: Topology, failures: Failures) -> set[int]:
    """Return the servers that have a hop over failed nodes or links."""
    near = set(failures.nodes.union(*failures.links))
    if topology.switches_interconnect:  # A hop passes several switches: all servers may be near.
        return set(range(topology.servers)) if near else set()
    for _ in range(2):  # The first round adds switches, the second the servers on them.
        near |= {plug.node for node in near for _, plug in topology.neighbours(node)}
    return {node for node in near if node < topology.servers}
