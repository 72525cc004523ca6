"""Traffic-aware routing as a router (Li 2009, section IV.A): paths set up per flow, by probes.

The packets of a new flow go by TOR (`hosts.ficonn.fallback`) while a probe goes to the destination.
Every server on its way decides (`hosts.ficonn.tar`) and notes previous and next hop for the flow.
The destination answers with a probe of its own, which sets up the flow of the answers in the same
way. When the answer comes in, the flow moves to its path: packets are plain IP then and follow the
entries (`hosts.ficonn.relay`). Where TOR has a failure, packets wait for the answer.

State, all of it bounded, and forgotten when idle:

- ``ways``: an `Entry` for every flow that passes, this server's own included;
- ``flows``: the state of each flow of this server's own, with its queue and its timer;
- ``virtual``: the virtual flows of section IV.D, by flow;
- ``notified``: of which flows a failure was told a moment ago;
- ``searches``: which flows are probed, and which wait for their turn;
- ``tor_failed``: the destinations that TOR does not reach, as far as returned packets tell.

Probes carry a round. Every round sets up a new path beside the old one, and a flow moves over when
the new way has settled, so that no packet meets a server that does not know the flow (yet, or any
more, after Source ReRoute). What breaks a path is told to the source by a path-failure message,
along the previous hops, or by TOR where they are not known; on its way it removes the entries that
lead to the failure. The source probes again at once. Probes may be lost, or late where servers are
busy: one that is not answered in time is followed by another after a pause, each longer than the
one before, and the first answer counts, however late. After `PROBE_TRIES` without any, packets that
wait are dropped; a flow that goes by TOR goes on so until its next round. A way in use stays so,
and is probed again in time, if its flow sends.

The end whose packets come first is the one that probes; the other end's answers keep its own
direction alive. Where a path breaks, both ends hear of it, and the other end waits a moment for the
first one's probe; if none comes, only its own direction is broken, and it probes as well.

Departs from the paper: after a failure, and where only the backup link is left to the source, the
answer goes back the way of the probe, which is known to work, and both ways are used at once. By an
own search it may be lost where the failure is not known yet: that another server's cable to the
switch is cut is known when its heart-beats have been missed. A new way that waits to settle beside
an old one that is dead loses packets as well.

Left out: packets of a flow may overtake each other when it moves to another path, as in the paper;
and the fragments of a packet, of which only the first has ports, are a flow of their own.
"""

from __future__ import annotations

import math
from itertools import chain
from typing import Any, ClassVar

from hosts.base.actions import Action, Drop, Pushed, Send
from hosts.base.bounded import Bounded
from hosts.base.path import Step
from hosts.base.probing import NEARLY_BEST, Pace
from hosts.ficonn import tar
from hosts.ficonn.flows import MOST_ENTRIES, Flow, Moves, Queues, Tag, described, free_bps
from hosts.ficonn.progress import entries_of, probe_of
from hosts.ficonn.relay import Relay
from hosts.ficonn.searches import Searches
from hosts.wire.dcn import DcnHeader, Protocol
from hosts.wire.ficonn import PathProbe
from hosts.wire.frame import ETH_DCN, ETH_IP, Frame
from hosts.wire.ipv4 import FlowKey
from hosts.wire.messages import PathFailure
from topos.ficonn import SWITCH

MOST_FLOWS = 1024
SET_UPS = 4  # probes that set up paths, for each probe that looks for a better one
AT_REST_S = 1.0  # without a packet; a data plane that is busy tells of those that it sends


class Tar(Relay):
    """Traffic-aware routing.

    Parameters
    ----------
    virtual_flows : VirtualFlows
        Whether flows that take the level-0 link end virtual flows; that the next probe does, here
        or, as the time tells, elsewhere, keeps their table bounded in any case.
    """

    by_flow: ClassVar[bool] = True
    answers_outlive_links: ClassVar[bool] = True
    far_side: ClassVar[bool] = False

    def __init__(
        self,
        *network: Any,
        virtual_flows: tar.VirtualFlows = tar.VIRTUAL_FLOWS,
        now: float = 0.0,
        **options: Any,
    ) -> None:
        super().__init__(*network, now=now, **options)
        idle_s = self.timers.flow_idle_s
        self.flows: Bounded[FlowKey, Flow] = Bounded(MOST_FLOWS, idle_s)
        self.level_0 = virtual_flows.level_0
        two_rounds_s = 2 * self.timers.longest_probe_interval_s
        self.virtual: Bounded[FlowKey, None] = Bounded(MOST_ENTRIES, two_rounds_s)
        self._pace = Pace(self.timers.probe_spacing_s, 0.0, self.random)
        self.queues = Queues()
        set_ups = Pace(self.timers.probe_spacing_s / SET_UPS, now, self.random)
        self.searches = Searches(self.agenda, set_ups, self._look)
        self.moves = Moves(self.settle_s, self.ways.next, self.flow_answers_change, self.agenda)
        self.agenda.set("expire", now + idle_s / 4, self._expire)

    # -- packets ---------------------------------------------------------------------------------

    def outgoing(self, packet: bytes, flow: FlowKey, destination: int, now: float) -> list[Action]:
        """Send the packet on its flow's path; by TOR while a probe finds it."""
        own = self.flows.use(flow, now)
        if own and own.ready:
            sent = self.by_entry(flow, packet, Pushed(flow), now)
            if sent:
                return [sent]
            own.ready = False
        actions: list[Action] = []
        if own is None:
            own, actions = self._new_flow(flow, destination, now)
        # Departs from the paper: the packets of a new flow wait there until its path is set up.
        sent = self.by_tor(packet, flow, destination, now, first=not own.announced)
        if sent:
            own.announced = True
            actions.append(sent)
        else:
            actions += self.queues.add(own, packet)
        if not own.waiting and (sent is None or now >= own.probe_from_s):
            actions += self._begin(flow, own, now, urgent=sent is None)
        return actions

    def incoming(self, port: int, peer: int, frame: Frame, now: float) -> list[Action]:
        """Forward packets by their flow's entry; act upon probes and path failures."""
        came = Step(port, peer)
        if frame.ethertype == ETH_IP:
            return self.packet_came(came, frame.data, now)
        if frame.ethertype != ETH_DCN:
            return [Drop("unknown protocol", frame.data)]
        header, body = DcnHeader.parse(frame.data)
        if header.protocol == Protocol.IPV4:
            return self.tor_came(port, header, body, now)
        if header.protocol == Protocol.PATH_PROBE:
            return self._probe_came(came, header, PathProbe.parse(body), now)
        if header.protocol == Protocol.PATH_FAILURE:
            return self._failure_came(came, header, PathFailure.parse(body), now)
        if header.protocol == Protocol.RETURNED:
            return self.returned_came(header, body, now)
        return [Drop("unknown protocol", body)]

    def used(self, flow: FlowKey, sent_bytes: int, now: float) -> list[Action]:
        """Keep a flow that a data plane sends by itself, and count what it sends."""
        self.flows.use(flow, now)
        if entry := self.ways.use(flow, now):
            entry.bytes += sent_bytes
        return []

    # -- flows of this server --------------------------------------------------------------------

    def _new_flow(
        self, flow: FlowKey, destination: int, now: float, *, follows: bool = False
    ) -> tuple[Flow, list[Action]]:
        actions: list[Action] = []
        if len(self.flows) == self.flows.limit:
            oldest, gone = self.flows.items()[0]
            self.flows.pop(oldest)
            self.flows.evicted += 1
            actions = self._end(oldest, gone, "too many flows")
        # A random first round: entries of a former life of this server are not mistaken for ours.
        own = Flow(destination, self.random.getrandbits(32), follows=follows, announced=follows)
        if follows:
            own.probe_from_s = math.inf
        self.flows.put(flow, own, now)
        return own, actions

    def _end(self, flow: FlowKey, own: Flow, reason: str) -> list[Action]:
        """Be done with a flow that is forgotten, and drop what waits for its path."""
        self.agenda.cancel(("probe", flow))
        self.searches.end(flow)
        self.flow_answers_change(flow)
        return self.queues.drop(own, reason)

    def _release(self, flow: FlowKey, own: Flow, now: float) -> list[Action]:
        sent = [self.outgoing(one, flow, own.destination, now) for one in self.queues.take(own)]
        return list(chain.from_iterable(sent))

    def first_packet_came(self, flow: FlowKey, source: int, now: float) -> list[Action]:
        """Leave it to the source of a flow to probe, for both directions."""
        answers = flow.reversed()
        if answers in self.flows:
            return []
        return self._new_flow(answers, source, now, follows=True)[1]

    def tor_fails(self, destination: int) -> None:
        """Let the packets to a destination wait for the answers to probes."""
        for flow, own in self.flows.items():
            if own.destination == destination and not own.ready:
                self.flow_answers_change(flow)

    def has_sent(self, flow: FlowKey) -> bool:
        """Tell whether the flow is one of this server's own."""
        return flow in self.flows

    # -- probes of this server -------------------------------------------------------------------

    def _begin(self, flow: FlowKey, own: Flow, now: float, *, urgent: bool = False) -> list[Action]:
        """Begin a round when it is the flow's turn."""
        own.waiting = own.awaits_turn = True
        return self.searches.begin(flow, now, urgent=urgent)

    def _probe(self, flow: FlowKey, own: Flow, now: float) -> list[Action]:
        """Begin a round."""
        own.round = (own.round + 1) & 0xFFFFFFFF
        own.waiting, own.awaits_turn, own.probed_s = True, False, now
        deadline = now + tar.PROBE_TIMEOUT * self._patience_s()
        self.agenda.set(("probe", flow), deadline, lambda at: self._silence(flow, at))
        self.counters["probes"] += 1
        tag = Tag(own.round, returning=False)
        back = own.failed or own.tries > 0 or not self._switch_works
        actions = self._start(flow, tag, self._new(own.destination, own.tries, back), now)
        if any(isinstance(action, Send) for action in actions):
            return actions
        return actions + self._give_up(flow, own, tar.NO_WAY, now)

    def _patience_s(self) -> float:
        """Return the unit of timeouts and pauses, a little longer each time at random."""
        round_trip_s = max(self.timers.search_timeout_s, self.searches.round_trip_s)
        return round_trip_s * (1 + tar.JITTER * self.random.random())

    def _search(self, flow: FlowKey, own: Flow, now: float) -> list[Action]:
        """Look for a path in turn; at the end that follows soon; at rest with the next packet."""
        own.failed, own.probe_from_s = True, now
        if self.flows.idle_for(flow, now) > AT_REST_S:
            return []
        own.waiting = own.awaits_turn = True
        if not own.follows:
            return self.searches.begin(flow, now)
        soon = now + self.timers.search_timeout_s
        self.agenda.set(("probe", flow), soon, lambda at: self.searches.begin(flow, at))
        return []

    def _look(self, flow: FlowKey, now: float) -> list[Action]:
        """Probe for a flow whose turn it is, unless it has ended."""
        own = self.flows.get(flow)
        if own is None:
            self.searches.end(flow)
        elif not own.probing:
            if own.queue or self.flows.idle_for(flow, now) <= AT_REST_S:
                return self._probe(flow, own, now)
            self._rest(flow, own, now)
        return []

    def _new(self, to: int, tries: int, back: bool) -> tar.Probe:
        by_far_side = self.far_side and tries % 2 == 1
        probe = tar.first_probe(self.topology, self.server, to, tries, by_far_side=by_far_side)
        return probe._replace(back=back)

    def _start(
        self, flow: FlowKey, tag: Tag, probe: tar.Probe, now: float, back_to: Step | None = None
    ) -> list[Action]:
        """Send a new probe on its way; one that answers may go back where its probe came from."""
        uid = self.topology.uid(probe.destination)
        header = DcnHeader(self.uid, uid, Protocol.PATH_PROBE, self.identify(), ttl=tar.MOST_HOPS)
        return self._decide(None, header, flow, tag, probe, now, back_to)

    def _silence(self, flow: FlowKey, now: float) -> list[Action]:
        """A probe was not answered in time."""
        own = self.flows.get(flow)
        if own is None:
            return []
        self.counters["probes without an answer"] += 1
        self.searches.silent(flow)
        tag = Tag(own.round, returning=False)
        way = self.ways.of(flow, tag)
        if way:
            own.unanswered[tag] = way, own.probed_s
            self.ways.take_back(flow, tag, now)
            self.flow_answers_change(flow)
        if own.ready and self.ways.next(flow, now):
            # No news that the path in use has failed: servers are too busy to look for another.
            self._rest(flow, own, now)
            return []
        own.tries += 1
        if own.tries < tar.PROBE_TRIES:
            own.awaits_turn = True
            pause_s = tar.PROBE_PAUSES[own.tries] * self._patience_s()
            self.agenda.set(("probe", flow), now + pause_s, lambda at: self._try_again(flow, at))
            return []
        return self._give_up(flow, own, "no answer to the probes of the flow's path", now)

    def _try_again(self, flow: FlowKey, now: float) -> list[Action]:
        own = self.flows.get(flow)
        return self._begin(flow, own, now, urgent=bool(own.queue)) if own else []

    def _give_up(self, flow: FlowKey, own: Flow, reason: str, now: float) -> list[Action]:
        """Do without a path: the flow goes by TOR, or its next packet begins a search."""
        self.ways.pop(flow)
        self.flow_answers_change(flow)
        own.ready = False
        self._rest(flow, own, now)
        own.probe_from_s = now + self.timers.probe_interval_s
        return self.queues.drop(own, reason)

    def _answered(self, flow: FlowKey, round_: int, now: float) -> list[Action]:
        """The answer to a probe came in: the path is set up, both ways."""
        own, tag = self.flows.get(flow), Tag(round_, returning=False)
        late = own.unanswered.get(tag) if own and not own.ready else None
        if own is None or not (late or tag == own.probing):
            return [Drop("answer to no probe")]
        probed_s = own.probed_s
        if late:  # and as good as one in time: the present probe is not needed any more
            way, probed_s = late
            self.ways.set_up(flow, tag, way, now, alone=True)
        if late or not own.ready:
            self.flow_answers_change(flow)
        own.ready = True
        self.searches.answered(flow, now - probed_s)
        self._rest(flow, own, now)
        return self._release(flow, own, now)

    def _rest(self, flow: FlowKey, own: Flow, now: float) -> None:
        """Be done with a round, until it is time for the next."""
        own.rest()
        self.searches.end(flow)
        self._refresh_later(flow, now)

    def _refresh_later(self, flow: FlowKey, now: float) -> None:
        again = now + self.timers.next_probe_s(self.random)
        self.agenda.set(("probe", flow), again, lambda at: self._refresh(flow, at))

    def _refresh(self, flow: FlowKey, now: float) -> list[Action]:
        """Look for a better path if the flow sends, when the refreshes of others leave it time."""
        if self.flows.idle_for(flow, now) > AT_REST_S:
            self._refresh_later(flow, now)
            return []
        turn = self._pace.turn(now)
        self.agenda.set(("probe", flow), turn, lambda at: self._refresh_now(flow, at))
        return []

    def _refresh_now(self, flow: FlowKey, now: float) -> list[Action]:
        own = self.flows.get(flow)
        return self._begin(flow, own, now) if own and not own.waiting else []

    # -- probes that pass ------------------------------------------------------------------------

    def _probe_came(
        self, came: Step, header: DcnHeader, message: PathProbe, now: float
    ) -> list[Action]:
        flow, tag = message.flow, Tag(message.round, message.returning)
        ends = self.server_of(flow.source), self.server_of(flow.destination)
        probe = probe_of(self.topology, ends, header, message)
        if probe is None or message.previous != self.topology.uid(came.peer):
            return [Drop("bad probe")]
        if header.ttl <= 1 and probe.destination != self.server:
            return [Drop("TTL expired")]
        if probe.source == self.server and self.ways.of(flow, tag) is None:
            return [Drop("probe of a former round")]
        header = header._replace(ttl=max(0, header.ttl - 1))
        asked = self.ways.of(flow.reversed(), tag._replace(returning=False))
        back_to = asked.previous if asked and tag.returning and probe.back else None
        return self._decide(came, header, flow, tag, probe, now, back_to)

    def _decide(
        self,
        came: Step | None,
        header: DcnHeader,
        flow: FlowKey,
        tag: Tag,
        probe: tar.Probe,
        now: float,
        back_to: Step | None,
    ) -> list[Action]:
        """Do with a probe what Algorithm 3 says, or send it back; and keep the tables."""
        self.virtual.pop(flow)
        before = self.ways.next(flow, now)
        decision: tar.Decision
        if back_to:
            decision = tar.Onward(tar.Way(came, back_to), probe.progress)
        else:
            way, sight = self.ways.of(flow, tag), self._sight(flow, now)
            decision = tar.decide(self.topology, self.server, probe, came, way, sight)
        if isinstance(decision, tar.Arrived):
            return self._arrived(came, flow, tag, probe, now)
        if isinstance(decision, tar.Stuck):
            return [Drop(decision.reason)]
        if isinstance(decision, tar.Back):
            self.ways.take_back(flow, tag, now)
            if decision.virtual and not tag.returning:
                self.virtual.put(flow, None, now)
            step = decision.step
        else:
            step = decision.way.next
            forgotten = self.ways.set_up(flow, tag, decision.way, now, alone=probe.back)
            if forgotten:
                self.flow_answers_change(forgotten)
            # Departs from the paper: virtual flows are about flows, not the answers to them. The
            # answer to a flow that bypassed often comes this way, and would take it off at once.
            if self.level_0 and step.port == SWITCH and self.virtual and not tag.returning:
                self.virtual.pop(next(iter(self.virtual)))  # lines 19 and 20
        self.moves.note(flow, before, now)
        if not self.neighbours.works(step):
            return [Drop("next hop is down")]
        entries = entries_of(self.topology, decision.progress)
        body = PathProbe(flow, *tag, self.uid, entries, probe.tries, probe.back).pack()
        packets = self.ways.behind(flow, tag, step, now)
        return [Send(step.port, step.peer, Frame(ETH_DCN, header.pack(body)), packets)]

    def _arrived(
        self, came: Step | None, flow: FlowKey, tag: Tag, probe: tar.Probe, now: float
    ) -> list[Action]:
        """Take an answer, or give one: both set up the other direction (section IV.A)."""
        answers = flow.reversed()
        if tag.returning:
            return self._answered(answers, tag.round, now)
        own = self.flows.use(answers, now)
        actions: list[Action] = []
        if own is None:
            own, actions = self._new_flow(answers, probe.source, now, follows=True)
        if own.awaits_turn:
            self._rest(answers, own, now)
        if not (own.ready or own.waiting):
            own.ready = True
            self.flow_answers_change(answers)
        answer = Tag(tag.round, returning=True)
        back_to = came if probe.back else None
        new = self._new(probe.source, probe.tries, probe.back)
        actions += self._start(answers, answer, new, now, back_to)
        return actions + (self._release(answers, own, now) if own.ready else [])

    def _sight(self, flow: FlowKey, now: float) -> tar.Sight:
        """Return what this server sees of its two links, as a flow that is not there yet."""
        self.virtual.expire(now)
        entry, step = self.ways.get(flow), self.ways.next(flow, now)
        own = (step.port, entry.rate_bps(now)) if entry and step else None
        free = free_bps(self.bandwidth, own, len(self.ways), len(self.virtual))
        return tar.Sight(self.neighbours.works, self.random, *free, self._switch_works, NEARLY_BEST)

    @property
    def _switch_works(self) -> bool:
        return any(step.port == SWITCH for step in self.neighbours.up)

    # -- failures --------------------------------------------------------------------------------

    def link_changed(self, step: Step, up: bool, now: float) -> list[Action]:
        """Find other paths for the flows that go over a link that is down."""
        actions: list[Action] = []
        for flow, entry in [] if up else self.ways.items():
            leading = entry.forget_next(step)
            if not leading:
                continue
            self.tidy(flow)
            previous, own = leading[-1].previous, self.flows.get(flow)
            if previous:
                actions += self.tell_source(flow, previous, step, now)
            elif own and not own.waiting:
                actions += self._search(flow, own, now)
        return actions

    def _failure_came(
        self, came: Step, header: DcnHeader, message: PathFailure, now: float
    ) -> list[Action]:
        source = self.server_of(message.flow.source) if message.flow else None
        if not message.flow or source is None or header.destination != self.topology.uid(source):
            return [Drop("bad path failure")]
        if source == self.server:
            return self._path_failed(message.flow, came, now)
        if header.ttl <= 1:
            return [Drop("TTL expired")]
        entry = self.ways.get(message.flow)
        ways = entry.forget_next(came) if entry else []
        if entry:
            self.tidy(message.flow)
        header = header._replace(ttl=header.ttl - 1)
        previous = [way.previous for way in ways if way.previous]
        return self.send_back_to(source, previous, header, message.pack())

    def _path_failed(self, flow: FlowKey, came: Step, now: float) -> list[Action]:
        """Find another path for a flow of this server's own, at once."""
        own = self.flows.get(flow)
        if own is None:
            return []
        entry, soon_s = self.ways.get(flow), 2 * self.timers.neighbour_timeout_s
        if entry and came != self.ways.next(flow, now) and now - entry.probed_s < soon_s:
            return [Drop("path failure of a former way")]  # missed heart-beats tell of it late
        self.counters["path failures"] += 1
        if entry:
            entry.forget_all_but(own.probing)
            self.tidy(flow)
        own.ready = False
        return [] if own.waiting else self._search(flow, own, now)

    # -- housekeeping ----------------------------------------------------------------------------

    def _expire(self, now: float) -> list[Action]:
        self.agenda.set("expire", now + self.timers.flow_idle_s / 4, self._expire)
        dropped = [self._end(flow, own, "flow was idle") for flow, own in self.flows.expire(now)]
        for flow, _ in self.ways.expire(now):
            self.flow_answers_change(flow)
        self.virtual.expire(now)
        self.notified.expire(now)
        return list(chain.from_iterable(dropped))

    def state(self) -> dict[str, Any]:
        """Return what a user may want to see: flows, entries, and the virtual flow counter."""
        tables = described(self.topology, self.flows, self.ways)
        return {**super().state(), **tables, "virtual_flows": len(self.virtual)}
