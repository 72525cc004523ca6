"""Traffic-aware routing as a router (Li 2009, section IV.A): probes set up one path per flow.

The packets of a new flow are forwarded by TOR (`pillarbox.hosts.ficonn.fallback`) while a probe
travels to the destination. Every server on the probe's path decides and stores previous and next
hop (`pillarbox.hosts.ficonn.probe_relay`). The destination's own probe, the response, sets up the
reverse flow in the same way. When the response arrives, the flow moves to its path, as plain IP
packets that follow routing entries (`pillarbox.hosts.ficonn.relay`). If TOR's path has a failure,
packets are queued until then.

State, all of it bounded, and removed when idle:

- ``flow_table``: a `FlowEntry` for every flow that crosses this server, including its own flows;
- ``flows``: the state of each flow of this server's own, with its queue and its timer;
- ``virtual``: the virtual flows of section IV.D, by flow;
- ``notified``: the flows whose sources were notified of a failure recently;
- ``searches``: the flows that are probed, and the flows that wait for their turn;
- ``tor_failed``: the destinations that TOR does not reach, according to returned packets.

Probes carry a round number. Every round sets up a new path next to the old one, and a flow moves
when the new path has settled, so that no packet meets a server without an entry for the flow (not
yet set up, or removed by Source ReRoute). A path-failure message notifies the source of a broken
path, along the previous hops, or by TOR if these are unknown, and removes the entries that lead to
the failure. The source immediately probes again. Probes may be lost, or late if servers are busy:
an unanswered probe is repeated after a pause, each longer than the last, and the first response
counts, however late. After `PROBE_TRIES` unanswered probes, queued packets are dropped; a flow on
TOR's path stays there until its next round. A path in use is kept, and probed again if its flow
sends.

The end whose packets come first sends the probes; the other end's responses keep the reverse
direction alive. If a path breaks, both ends are notified, and the other end waits briefly for the
first end's probe; without a probe, only the reverse direction is broken, and this end probes too.

Departs from the paper: after a failure, and if the source has only its backup link left, the
response returns over the probe's path, which is known to work, and both directions are used
immediately. A response that searched its own path could be lost while the failure is unknown:
another server's cut cable to the switch is known only when its heartbeats have timed out. A new
path that waits to settle next to a dead old one loses packets as well.

Left out: packets of a flow may be reordered when it moves to another path, as in the paper; and the
fragments of a packet, of which only the first has ports, form a flow of their own.
"""

from __future__ import annotations

import math
from itertools import chain
from typing import Any, ClassVar

from pillarbox.hosts.base.actions import Action, Drop, Pushed, Send
from pillarbox.hosts.base.bounded import Bounded
from pillarbox.hosts.base.path import Step
from pillarbox.hosts.base.probing import Pace
from pillarbox.hosts.ficonn import tar
from pillarbox.hosts.ficonn.flow_table import (
    Queues,
    SourceFlow,
    Tag,
    flows_for_display,
)
from pillarbox.hosts.ficonn.probe_relay import ProbeRelay
from pillarbox.hosts.ficonn.searches import Searches
from pillarbox.hosts.wire.dcn import DcnHeader, Protocol
from pillarbox.hosts.wire.ficonn import PathProbe
from pillarbox.hosts.wire.frame import ETH_DCN, ETH_IP, Frame
from pillarbox.hosts.wire.ipv4 import FlowKey
from pillarbox.hosts.wire.messages import PathFailure

MOST_FLOWS = 1024  # upper bound for the number of local flows
SET_UPS = 4  # probes for flows without a path, per probe for a better path of a flow
AT_REST_S = 1.0  # time without a packet after which a flow is at rest, in seconds


class Tar(ProbeRelay):
    """Router of FiConn's traffic-aware routing; `ProbeRelay` describes its parameters."""

    by_flow: ClassVar[bool] = True
    answers_outlive_links: ClassVar[bool] = True
    far_side: ClassVar[bool] = False

    def __init__(self, *network: Any, now: float = 0.0, **options: Any) -> None:
        super().__init__(*network, now=now, **options)
        idle_s = self.timers.flow_idle_s
        self.flows: Bounded[FlowKey, SourceFlow] = Bounded(MOST_FLOWS, idle_s)
        self._pace = Pace(self.timers.probe_spacing_s, 0.0, self.random)
        self.queues = Queues()
        set_ups = Pace(self.timers.probe_spacing_s / SET_UPS, now, self.random)
        self.searches = Searches(self.agenda, set_ups, self._probe_turn)
        self.agenda.set("expire", now + idle_s / 4, self._expire)

    # -- packets ---------------------------------------------------------------------------------

    def outgoing(self, packet: bytes, flow: FlowKey, destination: int, now: float) -> list[Action]:
        """Send a packet on its flow's path, or by TOR while a probe searches for a path."""
        own = self.flows.use(flow, now)
        if own and own.ready:
            sent = self.send_by_routing_entry(flow, packet, Pushed(flow), now)
            if sent:
                return [sent]
            own.ready = False
        actions: list[Action] = []
        if own is None:
            own, actions = self._new_flow(flow, destination, now)
        # Departs from the paper: there, packets of a new flow are queued until its path is set up.
        sent = self.by_tor(packet, flow, destination, now, first=not own.announced)
        if sent:
            own.announced = True
            actions.append(sent)
        else:
            actions += [*self.queues.add(own, packet), *self.searches.hurry(flow, now)]
        if not own.waiting and (sent is None or now >= own.probe_from_s):
            actions += self._queue(flow, own, now, urgent=sent is None)
        return actions

    def incoming(self, port: int, peer: int, frame: Frame, now: float) -> list[Action]:
        """Forward packets by routing entries; process path probes and path-failure messages."""
        came = Step(port, peer)
        if frame.ethertype == ETH_IP:
            return self.process_ip_packet(came, frame.data, now)
        if frame.ethertype != ETH_DCN:
            return [Drop("unknown protocol", frame.data)]
        header, body = DcnHeader.parse(frame.data)
        if header.protocol == Protocol.IPV4:
            return self.process_tor_packet(port, header, body, now)
        if header.protocol == Protocol.PATH_PROBE:
            return self._probe_came(came, header, PathProbe.parse(body), now)
        if header.protocol == Protocol.PATH_FAILURE:
            return self._failure_came(came, header, PathFailure.parse(body), now)
        if header.protocol == Protocol.RETURNED:
            return self.process_returned_packet(header, body, now)
        return [Drop("unknown protocol", body)]

    def used(self, flow: FlowKey, sent_bytes: int, now: float) -> list[Action]:
        """Restart a flow's idle timeout after the data plane sent packets, and count the bytes."""
        self.flows.use(flow, now)
        if entry := self.flow_table.use(flow, now):
            entry.bytes += sent_bytes
        return []

    # -- flows of this server --------------------------------------------------------------------

    def _new_flow(
        self, flow: FlowKey, destination: int, now: float, *, follows: bool = False
    ) -> tuple[SourceFlow, list[Action]]:
        actions: list[Action] = []
        if len(self.flows) == self.flows.limit:
            oldest, gone = self.flows.items()[0]
            self.flows.pop(oldest)
            self.flows.evicted += 1
            actions = self._remove(oldest, gone, "too many flows")
        # A random first round number, so that entries from before a restart do not match.
        own = SourceFlow(
            destination, self.random.getrandbits(32), follows=follows, announced=follows
        )
        if follows:
            own.probe_from_s = math.inf
        self.flows.put(flow, own, now)
        return own, actions

    def _remove(self, flow: FlowKey, own: SourceFlow, reason: str) -> list[Action]:
        """Remove a flow's timers and data plane entry, and drop its queued packets."""
        self.agenda.cancel(("probe", flow))
        self.searches.end(flow)
        self.flow_answers_change(flow)
        return self.queues.drop(own, reason)

    def _send_queued(self, flow: FlowKey, own: SourceFlow, now: float) -> list[Action]:
        sent = [self.outgoing(one, flow, own.destination, now) for one in self.queues.take(own)]
        return list(chain.from_iterable(sent))

    def first_packet_came(self, flow: FlowKey, source: int, now: float) -> list[Action]:
        """Create the reverse flow, for which the source of the received flow sends the probes."""
        answers = flow.reversed()
        if answers in self.flows:
            return []
        return self._new_flow(answers, source, now, follows=True)[1]

    def process_tor_failure(self, destination: int) -> None:
        """Invalidate cached actions of flows to a destination, so that their packets are queued."""
        for flow, own in self.flows.items():
            if own.destination == destination and not own.ready:
                self.flow_answers_change(flow)

    def is_own_flow(self, flow: FlowKey) -> bool:
        """Return True if an application on this server sends the flow."""
        return flow in self.flows

    # -- probes of this server -------------------------------------------------------------------

    def _queue(
        self, flow: FlowKey, own: SourceFlow, now: float, *, urgent: bool = False
    ) -> list[Action]:
        """Queue a flow's probe round, started when the window of outstanding probes allows."""
        own.waiting = own.awaits_turn = True
        return self.searches.begin(flow, now, urgent=urgent)

    def _probe(self, flow: FlowKey, own: SourceFlow, now: float) -> list[Action]:
        """Start a probe round: send a probe for a flow."""
        own.round = (own.round + 1) & 0xFFFFFFFF
        own.waiting, own.awaits_turn, own.probed_s = True, False, now
        deadline = now + tar.PROBE_TIMEOUT * self._patience_s()
        self.agenda.set(("probe", flow), deadline, lambda at: self._probe_timed_out(flow, at))
        self.counters["probes"] += 1
        tag = Tag(own.round, returning=False)
        back = own.failed or own.tries > 0 or not self._switch_works
        actions = self._launch(flow, tag, self._new_probe(own.destination, own.tries, back), now)
        if any(isinstance(action, Send) for action in actions):
            return actions
        return actions + self._stop_probing(flow, own, tar.NO_PATH, now)

    def _patience_s(self) -> float:
        """Return the time unit of probe timeouts and pauses, with a random part, in seconds."""
        round_trip_s = max(self.timers.search_timeout_s, self.searches.round_trip_s)
        return round_trip_s * (1 + tar.JITTER * self.random.random())

    def _search(self, flow: FlowKey, own: SourceFlow, now: float) -> list[Action]:
        """Probe for a flow's new path after a failure, or wait for the other end's probe."""
        own.failed, own.probe_from_s = True, now
        if self.flows.idle_for(flow, now) > AT_REST_S:
            return []
        own.waiting = own.awaits_turn = True
        if not own.follows:
            return self.searches.begin(flow, now)
        soon = now + self.timers.search_timeout_s
        self.agenda.set(("probe", flow), soon, lambda at: self.searches.begin(flow, at))
        return []

    def _probe_turn(self, flow: FlowKey, now: float) -> list[Action]:
        """Probe for a flow that has waited for the window, unless the flow has ended."""
        own = self.flows.get(flow)
        if own is None:
            self.searches.end(flow)
        elif not own.probing:
            if own.queue or self.flows.idle_for(flow, now) <= AT_REST_S:
                return self._probe(flow, own, now)
            self._end_round(flow, own, now)
        return []

    def _new_probe(self, to: int, tries: int, back: bool) -> tar.TarProbe:
        by_far_side = self.far_side and tries % 2 == 1
        probe = tar.first_probe(self.topology, self.server, to, tries, by_far_side=by_far_side)
        return probe._replace(back=back)

    def _launch(
        self, flow: FlowKey, tag: Tag, probe: tar.TarProbe, now: float, back_to: Step | None = None
    ) -> list[Action]:
        """Send a new path probe, or a probe response."""
        uid = self.topology.uid(probe.destination)
        header = DcnHeader(self.uid, uid, Protocol.PATH_PROBE, self.identify(), ttl=tar.MOST_HOPS)
        return self._decide(None, header, flow, tag, probe, now, back_to)

    def _probe_timed_out(self, flow: FlowKey, now: float) -> list[Action]:
        """Handle the timeout of a flow's probe."""
        own = self.flows.get(flow)
        if own is None:
            return []
        self.counters["probes without an answer"] += 1
        self.searches.silent(flow)
        tag = Tag(own.round, returning=False)
        route_entry = self.flow_table.of(flow, tag)
        if route_entry:
            own.unanswered[tag] = route_entry, own.probed_s
        return self._probe_failed(flow, own, tag, now)

    def _probe_stuck(self, flow: FlowKey, round_: int, now: float) -> list[Action]:
        """Handle a flow's probe that returned without a path (stuck): send another probe."""
        own, tag = self.flows.get(flow), Tag(round_, returning=False)
        if own is None or tag != own.probing:
            return [Drop("answer to no probe")]
        self.counters["probes returned"] += 1
        self.searches.end(flow)
        return self._probe_failed(flow, own, tag, now)

    def _probe_failed(self, flow: FlowKey, own: SourceFlow, tag: Tag, now: float) -> list[Action]:
        """Remove a failed probe's routing entry; retry, unless the flow has a path or gives up."""
        self.remove_hops(flow, tag, now)
        if own.ready and self.flow_table.next(flow, now):
            # The path in use is not known to have failed: the servers are too busy to answer
            # probes.
            self._end_round(flow, own, now)
            return []
        own.tries += 1
        if own.tries < tar.PROBE_TRIES:
            own.awaits_turn = True
            pause_s = tar.PROBE_PAUSES[own.tries] * self._patience_s()
            self.agenda.set(("probe", flow), now + pause_s, lambda at: self._try_again(flow, at))
            return []
        return self._stop_probing(flow, own, "no answer to the probes of the flow's path", now)

    def _try_again(self, flow: FlowKey, now: float) -> list[Action]:
        own = self.flows.get(flow)
        return self._queue(flow, own, now, urgent=bool(own.queue)) if own else []

    def _stop_probing(
        self, flow: FlowKey, own: SourceFlow, reason: str, now: float
    ) -> list[Action]:
        """Stop probing for a flow's path: the flow uses TOR, or its next packet probes again."""
        self.flow_table.pop(flow)
        self.flow_answers_change(flow)
        own.ready = False
        self._end_round(flow, own, now)
        own.probe_from_s = now + self.timers.probe_interval_s
        return self.queues.drop(own, reason, unreached=True)

    def _process_response(self, flow: FlowKey, round_: int, now: float) -> list[Action]:
        """Process a probe response: the flow's path is set up in both directions."""
        own, tag = self.flows.get(flow), Tag(round_, returning=False)
        late = own.unanswered.get(tag) if own and not own.ready else None
        if own is None or not (late or tag == own.probing):
            return [Drop("answer to no probe")]
        probed_s = own.probed_s
        if late:  # A late response sets up a path, too: the flow's current probe is not needed.
            route_entry, probed_s = late
            self.flow_table.set_up(flow, tag, route_entry, now, alone=True)
        if late or not own.ready:
            self.flow_answers_change(flow)
        own.ready = True
        self.searches.answered(flow, now - probed_s)
        self._end_round(flow, own, now)
        return self._send_queued(flow, own, now)

    def _end_round(self, flow: FlowKey, own: SourceFlow, now: float) -> None:
        """End a flow's probe round, and schedule the next."""
        own.reset_probing()
        self.searches.end(flow)
        self._refresh_later(flow, now)

    def _refresh_later(self, flow: FlowKey, now: float) -> None:
        again = now + self.timers.next_probe_s(self.random)
        self.agenda.set(("probe", flow), again, lambda at: self._refresh(flow, at))

    def _refresh(self, flow: FlowKey, now: float) -> list[Action]:
        """Probe for a better path of a flow with traffic, when the rate limit allows."""
        if self.flows.idle_for(flow, now) > AT_REST_S:
            self._refresh_later(flow, now)
            return []
        turn = self._pace.turn(now)
        self.agenda.set(("probe", flow), turn, lambda at: self._refresh_now(flow, at))
        return []

    def _refresh_now(self, flow: FlowKey, now: float) -> list[Action]:
        own = self.flows.get(flow)
        return self._queue(flow, own, now) if own and not own.waiting else []

    # -- received probes ---------------------------------------------------------------------------

    def _process_arrival(
        self, came: Step | None, flow: FlowKey, tag: Tag, probe: tar.TarProbe, now: float
    ) -> list[Action]:
        """Process a probe response, or answer a path probe; both set up the reverse flow (IV.A)."""
        answers = flow.reversed()
        if tag.returning:
            return self._process_response(answers, tag.round, now)
        own = self.flows.use(answers, now)
        actions: list[Action] = []
        if own is None:
            own, actions = self._new_flow(answers, probe.source, now, follows=True)
        if own.awaits_turn:
            self._end_round(answers, own, now)
        if not (own.ready or own.waiting):
            own.ready = True
            self.flow_answers_change(answers)
        answer = Tag(tag.round, returning=True)
        back_to = came if probe.back else None
        new = self._new_probe(probe.source, probe.tries, probe.back)
        actions += self._launch(answers, answer, new, now, back_to)
        return actions + (self._send_queued(answers, own, now) if own.ready else [])

    # -- failures --------------------------------------------------------------------------------

    def link_changed(self, step: Step, up: bool, now: float) -> list[Action]:
        """Probe for other paths of the flows whose link went down."""
        actions: list[Action] = []
        for flow, entry in [] if up else self.flow_table.items():
            leading = entry.forget_next(step)
            if not leading:
                continue
            self.tidy(flow)
            previous, own = leading[-1].previous, self.flows.get(flow)
            if previous:
                actions += self.notify_source(flow, previous, step, now)
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
        entry = self.flow_table.get(message.flow)
        removed = entry.forget_next(came) if entry else []
        if entry:
            self.tidy(message.flow)
        header = header._replace(ttl=header.ttl - 1)
        previous = [one.previous for one in removed if one.previous]
        return self.send_back_to(source, previous, header, message.pack())

    def _path_failed(self, flow: FlowKey, came: Step, now: float) -> list[Action]:
        """Probe immediately for another path of a local flow."""
        own = self.flows.get(flow)
        if own is None:
            return []
        entry, soon_s = self.flow_table.get(flow), 2 * self.timers.neighbour_timeout_s
        if entry and came != self.flow_table.next(flow, now) and now - entry.probed_s < soon_s:
            # a late report (after missed heartbeats) on a path that the flow no longer uses
            return [Drop("path failure of an earlier path")]
        self.counters["path failures"] += 1
        if entry:
            entry.forget_all_but(own.probing)
            self.tidy(flow)
        own.ready = False
        return [] if own.waiting else self._search(flow, own, now)

    # -- housekeeping ----------------------------------------------------------------------------

    def _expire(self, now: float) -> list[Action]:
        self.agenda.set("expire", now + self.timers.flow_idle_s / 4, self._expire)
        drops = [self._remove(flow, own, "flow was idle") for flow, own in self.flows.expire(now)]
        for flow, _ in self.flow_table.expire(now):
            self.flow_answers_change(flow)
        self.virtual.expire(now)
        self.notified.expire(now)
        return list(chain.from_iterable(drops))

    def state(self) -> dict[str, Any]:
        """Return the router's state with flows, routing entries and the number of virtual flows."""
        tables = flows_for_display(self.topology, self.flows, self.flow_table)
        return {**super().state(), **tables, "virtual_flows": len(self.virtual)}
