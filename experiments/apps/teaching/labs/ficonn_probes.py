"""Path probes of FiConn whose next hops a student's file chooses: lab 6, in memory and live.

Wherever Algorithm 3 compares a server's two outgoing links, the file's ``choose`` is called. Its
answer is compared with the decision of `pillarbox.hosts.ficonn.tar`. The student may choose any
third FiConn for a bypass: the answer is compared with the decision of a server that draws the same
FiConn.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

from pillarbox.experiments.apps.teaching.child import StudentError
from pillarbox.experiments.apps.teaching.labs.askable import Askable, SealedStudent
from pillarbox.experiments.apps.teaching.sealed_router import is_integer_below
from pillarbox.hosts.base.actions import Action, Drop
from pillarbox.hosts.base.path import Step
from pillarbox.hosts.ficonn.router import Tar
from pillarbox.hosts.ficonn.rules import BYONE, BYZERO
from pillarbox.hosts.ficonn.tar import (
    MOST_HOPS,
    Arrived,
    Back,
    Decision,
    ForwardProbe,
    RouteEntry,
    Sight,
    Stuck,
    TarProbe,
    decide,
    first_probe,
)
from pillarbox.hosts.wire.dcn import DcnHeader
from pillarbox.hosts.wire.ipv4 import FlowKey
from pillarbox.topos.ficonn import BACKUP, FiConn

# Number of steps to which a live port's available bandwidth is rounded: noise must not move a flow
# from the path of FiConn's TOR.
STEPS = 10


class FreeLinkBandwidths(NamedTuple):
    """Available bandwidth of a FiConn server's outgoing links, level 0 and backup, in bit/s."""

    backup_bps: int  # the paper's hb; 0 for a failed backup link
    switch_bps: int  # zb


class ChooseArguments(NamedTuple):
    """Arguments of the student's `choose`: server, probe, previous hop and available bandwidth."""

    server: int
    probe: TarProbe
    came: Step | None
    free: FreeLinkBandwidths


class FixedDraw(random.Random):
    """Random number generator whose first number is fixed, to choose a given proxy."""

    def __init__(self, first: int | None) -> None:
        super().__init__(0)
        self.first = first

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        """Return the fixed number for the first draw if it is in range, else a random number."""
        first, self.first = self.first, None
        return first if first is not None and first < start else super().randrange(start)


def right_decision(ficonn: FiConn, asked: ChooseArguments, third: int | None = None) -> Decision:
    """Return the decision of FiConn's Algorithm 3, over the FiConn_l number `third` if possible.

    Entries above the server's own level are masked with BYONE: where the server's own level was
    already bypassed, no bypass at a higher level is asked for. A failed link is a link without
    bandwidth (section IV.A), and may be the only remaining path.
    """
    level = ficonn.level(asked.server)
    above = asked.probe.progress[level:]
    masked = tuple(BYONE if entry == BYZERO else entry for entry in above)
    probe = asked.probe._replace(progress=(*asked.probe.progress[:level], *masked))
    sight = Sight(lambda _: True, FixedDraw(third), *asked.free)
    decision = decide(ficonn, asked.server, probe, asked.came, None, sight)
    if isinstance(decision, ForwardProbe | Back):
        return decision._replace(progress=(*decision.progress[:level], *above))
    return decision


def next_hop_of(decision: ForwardProbe | Back) -> Step:
    """Return the next hop of a FiConn probe after a routing decision."""
    return decision.route_entry.next if isinstance(decision, ForwardProbe) else decision.step


def student_decision(student: Askable, ficonn: FiConn, asked: ChooseArguments) -> Decision:
    """Return the student's routing decision for a FiConn probe; raise StudentError if it is wrong.

    The student is not asked if the probe has arrived or no path around a failure exists.
    """
    if isinstance(usual := right_decision(ficonn, asked), Stuck | Arrived):
        return usual
    server, probe, came, free = asked
    given = server, probe.destination, came.peer if came else None, list(probe.progress), *free
    answer = student.call("choose", *given, network=ficonn.spec)
    decision = right_decision(ficonn, asked, proxy_number_in_answer(ficonn, asked, answer))
    assert isinstance(decision, ForwardProbe | Back)
    if answer != [next_hop_of(decision).peer, list(decision.progress)]:
        wanted = next_hop_of(decision).peer, list(decision.progress)
        texts = [answer_text(ficonn, one) for one in (answer, wanted)]
        raise StudentError("it answers {}, by Algorithm 3 {}".format(*texts))
    return decision


def proxy_number_in_answer(ficonn: FiConn, asked: ChooseArguments, answer: Any) -> int | None:
    """Return the number of the proxy's FiConn_{l-1} in a student's answer, None without a proxy."""
    level = ficonn.level(asked.server)
    try:
        entry = answer[1][level - 1] if level else None
    except (TypeError, IndexError, KeyError):
        return None
    if entry is None or not is_integer_below(entry, ficonn.servers):
        return None
    below, size = ficonn.sizes[level - 1], ficonn.sizes[level]
    return int(entry % size // below) if entry // size == asked.server // size else None


def answer_text(ficonn: FiConn, answer: Any) -> str:
    """Return a student's next hop and PR field as text; the answer may have any type."""
    try:
        peer, progress = answer
        entries = " ".join(entry_text(ficonn, entry) for entry in progress)
        return f"{ficonn.address(peer)} with PR ({entries})"
    except (TypeError, ValueError, KeyError):
        return f"{answer!r:.60}"


def entry_text(ficonn: FiConn, entry: int) -> str:
    """Return an entry of a FiConn probe's PR field as text."""
    names = {BYZERO: "BYZERO", BYONE: "BYONE"}
    return names.get(entry) or ficonn.address(entry)


def question_text(ficonn: FiConn, asked: ChooseArguments) -> str:
    """Return the arguments of the student's `choose` as text, to repeat the call."""
    server, probe, came, free = asked
    entries = " ".join(entry_text(ficonn, entry) for entry in probe.progress)
    origin = f"a probe from {ficonn.address(came.peer)}" if came else "its own probe"
    mbit = " and ".join(f"{bps / 1e6:g}" for bps in free)
    return (
        f"{ficonn.spec}, server {ficonn.address(server)}, {origin} to "
        f"{ficonn.address(probe.destination)}, PR ({entries}), {mbit} Mbit/s free on backup and "
        "level-0 link"
    )


# -- whole probes --------------------------------------------------------------------------------


class ProbeWalk(NamedTuple):
    """Walk of a FiConn probe: number of right decisions, all questions, and the first error."""

    right: int
    decisions: int
    wrong: str
    asked: tuple[ChooseArguments, ...]


def simulated_probe_walk(
    ficonn: FiConn,
    ends: tuple[int, int],
    free_of: Callable[[int], FreeLinkBandwidths],
    decide_one: Callable[[ChooseArguments], Decision],
) -> ProbeWalk:
    """Return the walk of a probe through a simulated FiConn, with a decision at each server.

    Source ReRoute needs no choice and is done here. After the first wrong decision, the walk
    continues with the right decisions.
    """
    probe = first_probe(ficonn, *ends)
    route_entries: dict[int, RouteEntry] = {}
    asked: list[ChooseArguments] = []
    at, came, good, wrong = ends[0], None, 0, ""
    for _ in range(MOST_HOPS):
        decision, came = _rerouted(ficonn, at, probe, came, route_entries.get(at), free_of(at))
        if decision is None:
            asked.append(ChooseArguments(at, probe, came, free_of(at)))
            decision = right_decision(ficonn, asked[-1])
            if not wrong:
                try:
                    decision = decide_one(asked[-1])
                    good += 1
                except StudentError as mistake:
                    wrong = f"{question_text(ficonn, asked[-1])}: {mistake}"
        if isinstance(decision, Arrived | Stuck):
            break
        route_entries.pop(at, None)
        if isinstance(decision, ForwardProbe):
            route_entries[at] = decision.route_entry
        step = next_hop_of(decision)
        probe = probe._replace(progress=decision.progress)
        at, came = step.peer, Step(step.port, at)
    return ProbeWalk(good, len(asked), wrong, tuple(asked))


def _rerouted(
    ficonn: FiConn,
    at: int,
    probe: TarProbe,
    came: Step | None,
    route_entry: RouteEntry | None,
    free: FreeLinkBandwidths,
) -> tuple[Decision | None, Step | None]:
    """Return lines 4 to 8 of Algorithm 3: the decision Back, or the original previous hop."""
    if route_entry is None or came != route_entry.next:
        return None, came
    sight = Sight(lambda _: True, random.Random(0), *free)
    decision = decide(ficonn, at, probe, came, route_entry, sight)
    if isinstance(decision, Back) and decision.progress == probe.progress:
        return decision, came
    return None, route_entry.previous


# -- servers -------------------------------------------------------------------------------------


class StudentTarRouter(Tar):
    """FiConn's traffic-aware routing by a student's decisions; a wrong decision drops the probe."""

    def __init__(self, *network: Any, student: Askable, **options: Any) -> None:
        super().__init__(*network, **options)
        self.student = student
        self.wrong = ""  # error text of the student's first wrong routing decision
        self._met: tuple[Step | None, TarProbe, RouteEntry | None] | None = None

    def by_tor(self, *_packet: object, **_options: object) -> None:
        """Send no packet by TOR: as in the paper, packets wait for the path set up by the probe."""

    def _decide(
        self,
        came: Step | None,
        header: DcnHeader,
        flow: FlowKey,
        tag: Any,
        probe: TarProbe,
        now: float,
        back_to: Step | None,
    ) -> list[Action]:
        self._met = came, probe, self.flow_table.of(flow, tag)
        try:
            return super()._decide(came, header, flow, tag, probe, now, back_to)
        except StudentError as mistake:
            self.wrong = self.wrong or str(mistake)
            return [Drop(str(mistake))]

    def _sight(self, flow: FlowKey, now: float) -> Sight:
        """Return link bandwidths from which FiConn's Algorithm 3 makes the student's decision."""
        seen = super()._sight(flow, now)
        assert self._met
        came, probe, route_entry = self._met
        free = self._free(seen)
        back, came = _rerouted(self.topology, self.server, probe, came, route_entry, free)
        if back or not seen.switch_works:
            return seen
        asked = ChooseArguments(self.server, probe, came, free)
        decision = student_decision(self.student, self.topology, asked)
        if isinstance(decision, Arrived | Stuck):
            return seen
        answer = [next_hop_of(decision).peer, list(decision.progress)]
        draws = FixedDraw(proxy_number_in_answer(self.topology, asked, answer))
        return Sight(seen.works, draws, *free, switch_works=True)

    def _free(self, seen: Sight) -> FreeLinkBandwidths:
        """Return both links' available bandwidth, rounded; 0 for a backup link that is down."""
        step_bps = self.bandwidth.rate_bps / STEPS
        plug = self.topology.server_plug(self.server, BACKUP)
        works = self.topology.level(self.server) > 0 and seen.works(Step(BACKUP, plug.node))
        backup_bps = seen.backup_bps if works else 0.0
        rounded = (int(round(bps / step_bps) * step_bps) for bps in (backup_bps, seen.switch_bps))
        return FreeLinkBandwidths(*rounded)


class LiveStudentTarRouter(StudentTarRouter):
    """Traffic-aware routing of a live server, whose student's file runs in a sealed child."""

    GIVEN: ClassVar[str] = ""

    def __init__(self, topology: FiConn, server: int, **options: Any) -> None:
        super().__init__(topology, server, student=SealedStudent(self.GIVEN, topology), **options)
