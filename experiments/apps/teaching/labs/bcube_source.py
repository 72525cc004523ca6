"""BCube server with a student's path set and path selection: lab 5.

The server relays, answers probes and reports failures like every BCube server (`Forwarding`). For
each flow that originates at this server, it stores the paths of the student's ``path_set`` and the
latest probe results. ``choose`` selects a path at the end of each probing round and when a path
fails. A failed path is not replaced, and a flow probes once per round for its whole lifetime.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from pillarbox.experiments.apps.teaching import cabling
from pillarbox.experiments.apps.teaching.child import StudentError
from pillarbox.experiments.apps.teaching.labs.askable import Askable, SealedStudent
from pillarbox.experiments.apps.teaching.routed_packets import path_of
from pillarbox.experiments.apps.teaching.sealed_router import is_integer_below
from pillarbox.hosts.base.actions import Action, Deliver, Drop
from pillarbox.hosts.base.bandwidth import Direction
from pillarbox.hosts.base.failures import Pair
from pillarbox.hosts.base.path import Path
from pillarbox.hosts.bcube.forwarding import Forwarding
from pillarbox.hosts.wire.bcube import MOST_HOPS
from pillarbox.hosts.wire.dcn import Protocol as Carries
from pillarbox.hosts.wire.ipv4 import FlowKey, Ipv4Header
from pillarbox.hosts.wire.messages import Probe, ProbeResponse
from pillarbox.topos.bcube import BCube

MOST_PATHS = 64  # maximum number of paths in an answer of the student's `path_set`
NO_PATH = "no path is left"


def asked_paths(student: Askable, bcube: BCube, source: int, destination: int) -> list[Path]:
    """Return the paths of the student's `path_set`; raise StudentError if they are invalid."""
    answer = student.call("path_set", source, destination, network=bcube.spec)
    if not isinstance(answer, list) or not 0 < len(answer) <= MOST_PATHS:
        raise StudentError(f"path_set returned {answer!r:.60}, which is not a list of paths")
    paths, ports = [], cabling.cabling_of_sheet(student.values)
    for steps in answer:
        path, wrong = path_of(bcube, source, destination, steps, ports)
        if path is None or len(path) > MOST_HOPS:
            raise StudentError(wrong or f"a path has over {MOST_HOPS} hops: no header can hold it")
        paths.append(path)
    return paths


@dataclass
class BCubeFlow:
    """State of a BCube flow at its source server: paths, probe results and the path in use."""

    paths: list[Path]
    # available bandwidth per path; None: path failed or not probed
    free_bps: list[int | None] = field(default_factory=list)
    waiting: set[int] = field(default_factory=set)  # indices of paths that await a probe response
    using: int | None = 0  # index of the path in use; None without a working path
    round: int = 0
    since_s: float = 0.0  # start time of `sent_bytes`, in seconds
    sent_bytes: int = 0
    trouble: str = NO_PATH  # reason for dropping packets if `using` is None


class BCubeSourceRouter(Forwarding):
    """BCube's source routing; a student's file computes the paths and chooses among them."""

    def __init__(
        self, topology: BCube, server: int, *, student: Askable, now: float = 0.0, **common: Any
    ) -> None:
        super().__init__(topology, server, now=now, **common)
        self.student = student
        self.flows: dict[
            FlowKey, BCubeFlow
        ] = {}  # table without a size limit, as the grader starts few flows
        self._rounds = 0

    def outgoing(self, packet: bytes, flow: FlowKey, destination: int, now: float) -> list[Action]:
        """Send an application's packet along its flow's path; the first one also starts probes."""
        own, probes = self.flows.get(flow), []
        if own is None:
            own = self.flows[flow] = self._new_flow(destination, now)
            probes = self._probe(own, now)
        own.sent_bytes += len(packet)
        if own.using is None:
            return [Drop(own.trouble, packet), *probes]
        return [*self.send_along(own.paths[own.using], Carries.IPV4, packet), *probes]

    def arrived(self, packet: bytes) -> list[Action]:
        """Deliver a packet that is addressed to this server."""
        if self.server_of(Ipv4Header.parse(packet)[0].destination) == self.server:
            return [Deliver(packet)]
        return [Drop("packet is for another server", packet)]

    def is_own_flow(self, flow: FlowKey) -> bool:
        """Return True if this server is the source of the flow."""
        return flow in self.flows

    def _new_flow(self, destination: int, now: float) -> BCubeFlow:
        try:
            paths = asked_paths(self.student, self.topology, self.server, destination)
        except StudentError as mistake:
            return BCubeFlow([], using=None, trouble=str(mistake))
        return BCubeFlow(paths, [None] * len(paths), since_s=now)

    # -- rounds of probes ------------------------------------------------------------------------

    def _probe(self, flow: BCubeFlow, now: float) -> list[Action]:
        """Return the actions that send a probe along every path of a flow."""
        if not flow.paths:
            return []
        self._rounds += 1
        flow.round, flow.waiting = self._rounds, set(range(len(flow.paths)))
        actions: list[Action] = []
        for index, path in enumerate(flow.paths):
            free_bps = self.bandwidth.available_bps(path.steps[0].port, Direction.OUT)
            probe = Probe(flow.round, index, int(free_bps))
            actions += self.send_along(path, Carries.PROBE, probe.pack())
        deadline = now + self.timers.probe_timeout_s
        self.agenda.set(id(flow), deadline, lambda at: self._end_round(flow, at))
        return actions

    def answered(self, response: ProbeResponse, path: Path, now: float) -> list[Action]:
        """Store a path's available bandwidth from a probe response."""
        flow = next((one for one in self.flows.values() if one.round == response.round), None)
        index = response.path
        if flow is None or index not in flow.waiting or flow.paths[index] != path:
            return [Drop("answer to no probe")]
        flow.waiting.remove(index)
        flow.free_bps[index] = response.available_bps
        return [] if flow.waiting else self._end_round(flow, now)

    def _end_round(self, flow: BCubeFlow, now: float) -> list[Action]:
        """End a probing round: drop unanswered paths, choose a path, schedule the next round."""
        for index in flow.waiting:
            flow.free_bps[index] = None
        flow.waiting = set()
        self._choose(flow, now)
        flow.since_s, flow.sent_bytes = now, 0
        pause_s = self.timers.next_probe_s(self.random)
        self.agenda.set(id(flow), now + pause_s, lambda at: self._probe(flow, at))
        return []

    def lost(self, link: Pair, now: float) -> None:
        """Mark all paths over a failed link as failed, and choose another path for their flows."""
        for flow in self.flows.values():
            failed = {i for i, path in enumerate(flow.paths) if link in path.links}
            flow.waiting -= failed
            for index in failed:
                flow.free_bps[index] = None
            if flow.using in failed and not flow.waiting:
                self._choose(flow, now)

    def _choose(self, flow: BCubeFlow, now: float) -> None:
        ports = cabling.cabling_of_sheet(self.student.values)
        paths = [ports.hops_in_student_ports(self.topology, path) for path in flow.paths]
        own_bps = int(flow.sent_bytes * 8 / (now - flow.since_s)) if now > flow.since_s else 0
        try:
            chosen = self.student.call("choose", paths, flow.free_bps, flow.using, own_bps, paths=0)
            if chosen is not None and not is_integer_below(chosen, len(paths)):
                raise StudentError(
                    f"choose returned {chosen!r:.30}: not the number of a path, nor None"
                )
        except StudentError as mistake:
            chosen, flow.trouble = None, str(mistake)
        flow.using = chosen
        self.own_answers_change()


class LiveBCubeSourceRouter(BCubeSourceRouter):
    """BCube source routing of a live server, whose student's file runs in a sealed child."""

    GIVEN: ClassVar[str] = ""

    def __init__(self, topology: BCube, server: int, **options: Any) -> None:
        super().__init__(topology, server, student=SealedStudent(self.GIVEN, topology), **options)
