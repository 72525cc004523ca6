"""Forwarding of the probes that set up flows' paths (Li 2009, section IV.A).

Every server on a probe's path applies Algorithm 3 (`pillarbox.hosts.ficonn.tar`), stores previous
and next hop, and sends the probe on. The router (`pillarbox.hosts.ficonn.router`) processes the
arrival of a probe.

Departs from the paper: a probe that has no usable next hop returns to its source, over the servers
that it has crossed, and removes their entries. So the source need not wait for the timeout, and
probes to unreachable servers do not fill its window of outstanding probes.
"""

from __future__ import annotations

from typing import Any

from pillarbox.hosts.base.actions import Action, Drop, Send
from pillarbox.hosts.base.bounded import Bounded
from pillarbox.hosts.base.path import Step
from pillarbox.hosts.base.probing import NEARLY_BEST
from pillarbox.hosts.ficonn import tar
from pillarbox.hosts.ficonn.flow_table import MOST_ENTRIES, NextHopChanges, Tag, free_bps
from pillarbox.hosts.ficonn.progress import entries_of, probe_of
from pillarbox.hosts.ficonn.relay import TarRelay
from pillarbox.hosts.wire.dcn import DcnHeader, Protocol
from pillarbox.hosts.wire.ficonn import PathProbe
from pillarbox.hosts.wire.frame import ETH_DCN, Frame
from pillarbox.hosts.wire.ipv4 import FlowKey
from pillarbox.topos.ficonn import SWITCH


class ProbeRelay(TarRelay):
    """Part of TAR's router: decides on the next hop of received probes (Algorithm 3).

    Parameters
    ----------
    virtual_flows : VirtualFlows
        Whether any flow that takes the level-0 link ends a virtual flow. The next probe always
        ends it, here or, by timeout, elsewhere, which bounds the table of virtual flows.
    """

    def __init__(
        self, *network: Any, virtual_flows: tar.VirtualFlows = tar.VIRTUAL_FLOWS, **options: Any
    ) -> None:
        super().__init__(*network, **options)
        self.level_0 = virtual_flows.level_0
        two_rounds_s = 2 * self.timers.longest_probe_interval_s
        self.virtual: Bounded[FlowKey, None] = Bounded(MOST_ENTRIES, two_rounds_s)
        self.moves = NextHopChanges(
            self.settle_s, self.flow_table.next, self.flow_answers_change, self.agenda
        )

    def _probe_came(
        self, came: Step, header: DcnHeader, message: PathProbe, now: float
    ) -> list[Action]:
        """Check a received path probe, and forward it or process its arrival."""
        flow, tag = message.flow, Tag(message.round, message.returning)
        ends = self.server_of(flow.source), self.server_of(flow.destination)
        if message.previous != self.topology.uid(came.peer):
            return [Drop("bad probe")]
        if message.stuck:
            return self._returned_probe_came(came, header, message, now)
        probe = probe_of(self.topology, ends, header, message)
        if probe is None:
            return [Drop("bad probe")]
        if header.ttl <= 1 and probe.destination != self.server:
            return [Drop("TTL expired")]
        if probe.source == self.server and self.flow_table.of(flow, tag) is None:
            return [Drop("probe of a former round")]
        header = header._replace(ttl=max(0, header.ttl - 1))
        asked = self.flow_table.of(flow.reversed(), tag._replace(returning=False))
        back_to = asked.previous if asked and tag.returning and probe.back else None
        return self._decide(came, header, flow, tag, probe, now, back_to)

    def _decide(
        self,
        came: Step | None,
        header: DcnHeader,
        flow: FlowKey,
        tag: Tag,
        probe: tar.TarProbe,
        now: float,
        back_to: Step | None,
    ) -> list[Action]:
        """Apply Algorithm 3's decision to a probe, or send a response to `back_to`."""
        self.virtual.pop(flow)
        before = self.flow_table.next(flow, now)
        decision: tar.Decision
        if back_to:
            decision = tar.ForwardProbe(tar.RouteEntry(came, back_to), probe.progress)
        else:
            entry, sight = self.flow_table.of(flow, tag), self._sight(flow, now)
            decision = tar.decide(self.topology, self.server, probe, came, entry, sight)
        if isinstance(decision, tar.Arrived):
            return self._process_arrival(came, flow, tag, probe, now)
        if isinstance(decision, tar.Stuck):
            return [Drop(decision.reason), *self._return_probe(came, flow, tag, probe, now)]
        if isinstance(decision, tar.Back):
            self.flow_table.remove_probe_hops(flow, tag, now)
            if decision.virtual and not tag.returning:
                self.virtual.put(flow, None, now)
            step = decision.step
        else:
            step = decision.route_entry.next
            forgotten = self.flow_table.set_up(
                flow, tag, decision.route_entry, now, alone=probe.back
            )
            if forgotten:
                self.flow_answers_change(forgotten)
            # Departs from the paper: virtual flows are counted for flows, not for responses: that
            # to a flow that bypassed often comes by the same path, and would end the virtual flow.
            if self.level_0 and step.port == SWITCH and self.virtual and not tag.returning:
                # Algorithm 3, lines 19 and 20: the oldest virtual flow ends.
                self.virtual.pop(next(iter(self.virtual)))
        self.moves.note(flow, before, now)
        if not self.neighbours.works(step):
            return [Drop("next hop is down"), *self._return_probe(came, flow, tag, probe, now)]
        entries = entries_of(self.topology, decision.progress)
        body = PathProbe(flow, *tag, self.uid, entries, probe.tries, probe.back).pack()
        packets = self.flow_table.repeat_key_after_probe(flow, tag, step, now)
        return [Send(step.port, step.peer, Frame(ETH_DCN, header.pack(body)), packets)]

    def _return_probe(
        self, came: Step | None, flow: FlowKey, tag: Tag, probe: tar.TarProbe, now: float
    ) -> list[Action]:
        """Return a probe to its sender, since the probe or its response has no usable next hop."""
        prober = probe.destination if tag.returning else probe.source
        if prober == self.server:  # `came` is None if the probe was never sent
            return self._probe_stuck(flow, tag.round, now) if came else []
        self.remove_hops(flow, tag, now)
        asked = flow.reversed() if tag.returning else flow
        message = PathProbe(asked, tag.round, False, self.uid, (), stuck=True)
        header = DcnHeader(
            self.uid, self.topology.uid(prober), Protocol.PATH_PROBE, self.identify()
        )
        previous = [came] if came and not tag.returning else []
        return self.send_back_to(prober, previous, header, message.pack())

    def _returned_probe_came(
        self, came: Step, header: DcnHeader, message: PathProbe, now: float
    ) -> list[Action]:
        """Forward a stuck probe back to its sender, and remove the hops that the probe set up."""
        prober = self.server_of(message.flow.source)
        if prober is None or header.destination != self.topology.uid(prober):
            return [Drop("bad probe")]
        if prober == self.server:
            return self._probe_stuck(message.flow, message.round, now)
        if header.ttl <= 1:
            return [Drop("TTL expired")]
        flow, tag = message.flow, Tag(message.round, returning=False)
        entry = self.flow_table.of(flow, tag)
        previous = [entry.previous] if entry and entry.next == came and entry.previous else []
        if previous:
            self.remove_hops(flow, tag, now)
        body = message._replace(previous=self.uid).pack()
        return self.send_back_to(prober, previous, header._replace(ttl=header.ttl - 1), body)

    def _probe_stuck(self, flow: FlowKey, round_: int, now: float) -> list[Action]:
        """Process a returned probe of this server that found no path (a stuck probe)."""
        raise NotImplementedError

    def _process_arrival(
        self, came: Step | None, flow: FlowKey, tag: Tag, probe: tar.TarProbe, now: float
    ) -> list[Action]:
        """Process a path probe, or a probe response, at its destination."""
        raise NotImplementedError

    def _sight(self, flow: FlowKey, now: float) -> tar.Sight:
        """Return the server's link states for a flow; the flow's own rate counts as available."""
        self.virtual.expire(now)
        entry, step = self.flow_table.get(flow), self.flow_table.next(flow, now)
        own = (step.port, entry.rate_bps(now)) if entry and step else None
        free = free_bps(self.bandwidth, own, len(self.flow_table), len(self.virtual))
        return tar.Sight(self.neighbours.works, self.random, *free, self._switch_works, NEARLY_BEST)

    @property
    def _switch_works(self) -> bool:
        return any(step.port == SWITCH for step in self.neighbours.up)
