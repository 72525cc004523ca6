"""BSR, BCube's source routing (Guo 2009, section 4): the source of a flow decides its path.

This is the source's part; `hosts.bcube.forwarding` has what a server does for others. Per flow
there is a `Selection`: candidate paths, what probes found, the one in use. A flow is simplex, and
known by five fields of its packets (section 4.1). Packets are never held: a new flow uses the
default path at once, while its first round of probes is under way.

    packet of a new flow  -> default path; a round begins
    answer                -> what is free on that path
    failed link           -> another path that works, at once; in a round, a search for one more
    no answer in time     -> that path has failed; a search for one more
    all answered          -> the round ends: use the best path; the next begins after an interval
                             and a random part (section 4.3: against oscillation)

Invariants: a flow has at most one timer, for the end of its round's waiting or the begin of its
next round. A flow that sends nothing has none: it probes again with its next packet. No path that
counts as working or untried has a link that is known to have failed. Every table is bounded.

Packets to and from other networks (section 5.3) are flows as well: from the source to a gateway,
and from a gateway, which got them from outside, to their destination.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from hosts.base.actions import Action, Deliver, Drop
from hosts.base.bandwidth import Direction
from hosts.base.bounded import Bounded
from hosts.base.failures import Pair
from hosts.base.path import Path, Step
from hosts.base.probing import Pace
from hosts.bcube.forwarding import Forwarding
from hosts.bcube.gateways import Gateways, ranked
from hosts.bcube.pairs import Flow, Pairs
from hosts.bcube.selection import Selection
from hosts.wire.dcn import Protocol
from hosts.wire.ipv4 import BROADCASTS, FlowKey, Ipv4Header
from hosts.wire.messages import Probe, ProbeResponse
from topos.base.addressing import dotted_quad
from topos.bcube import BCube

MOST_FLOWS = 4096
MOST_ROUND = 2**32 - 1  # what a probe has room for
# Departs from the paper: a longer path must offer so much more for each hop, as a share of a port's
# rate. By available bandwidth alone, flows of a full network run to detours and fill it even more.
HOP_COST = 0.1
# Departs from the paper: another path must offer so much more than the one in use, as a share of a
# port's rate, and by a hop's cost besides: less is the same. Many flows see the same free port at
# once, and all that move there fill it.
MOVE_GAIN = 0.25
GATHER_S = 0.002  # short beside any timeout by which failures are noticed
QUIET_S = 1.0  # a flow without packets for so long may have ended


class BSR(Forwarding):
    """The routing of one BCube server.

    Parameters
    ----------
    gateways : mapping of text to servers, optional
        For each external prefix, such as ``0.0.0.0/0``, its gateways; the same for all servers.
    """

    def __init__(
        self,
        topology: BCube,
        server: int,
        *,
        gateways: Mapping[str, Sequence[int]] | None = None,
        now: float = 0.0,
        **common: Any,
    ) -> None:
        super().__init__(topology, server, now=now, **common)
        self.gateways = Gateways(topology, gateways or {})
        self.flows: Bounded[FlowKey, Flow] = Bounded(MOST_FLOWS, self.timers.flow_idle_s)
        self._rounds: Bounded[int, FlowKey] = Bounded(MOST_FLOWS)  # those under way
        self._last_round = 0
        self._lost: set[Pair] = set()  # links that no flow was looked through for yet
        self._gathering_until_s = now
        self._pairs = Pairs(self.flows, self.bandwidth)
        self._pace = Pace(self.timers.probe_spacing_s, now, self.random)

    # -- packets ---------------------------------------------------------------------------------

    def outgoing(self, packet: bytes, flow: FlowKey, destination: int, now: float) -> list[Action]:
        """Send a packet along its flow's path."""
        if self.server_of(flow.source) is None:
            self.counters["from external networks"] += 1
        return self._send(packet, flow, (destination,), now)

    def external(self, packet: bytes, flow: FlowKey, now: float) -> list[Action]:
        """Send a packet to everybody, or to one of its gateways, or out if this server is one."""
        if flow.destination in BROADCASTS:
            return self.broadcasts.send(packet, now)
        serving = self.gateways.serving(flow.destination)
        if not serving:
            return super().external(packet, flow, now)
        if self.server in serving:
            return self._out(packet)
        return self._send(packet, flow, serving, now)

    def arrived(self, packet: bytes) -> list[Action]:
        """Deliver a packet, here or, if this server is its gateway, to the outside."""
        destination = Ipv4Header.parse(packet)[0].destination
        if self.server_of(destination) == self.server:
            return [Deliver(packet)]
        if self.server in self.gateways.serving(destination):
            return self._out(packet)
        return [Drop("packet is for another server", packet)]

    def has_sent(self, flow: FlowKey) -> bool:
        """Tell whether the flow is one of this server's own."""
        return flow in self.flows

    def _out(self, packet: bytes) -> list[Action]:
        """Hand a packet to the outside: this server's own IP stack has the uplink."""
        self.counters["to external networks"] += 1
        return [Deliver(packet)]

    def _send(
        self, packet: bytes, key: FlowKey, targets: tuple[int, ...], now: float
    ) -> list[Action]:
        flow = self.flows.use(key, now) or self._new_flow(key, targets, now)
        actions: list[Action] = []
        if self._lost and (now >= self._gathering_until_s or self._uses_lost(flow)):
            actions = self._leave_lost(now)
        path = flow.selection.path
        if path is None:
            actions.append(Drop("no path is left", packet))
        else:
            actions += self.send_along(path, Protocol.IPV4, packet, key)
        return actions + self.used(key, len(packet), now)

    def used(self, flow: FlowKey, sent_bytes: int, now: float) -> list[Action]:
        """Count what a flow sends; one that was quiet for a while probes its paths again."""
        known = self.flows.use(flow, now)
        if known is None:
            return []
        known.sent_bytes += sent_bytes
        if _timer(flow) not in self.agenda:
            return self._adapt(flow, now)
        large = self._pairs.is_large(flow, known, now)
        if not (large and self._pairs.looks_ahead(flow, known, now)):
            return []
        known.looked_ahead = True
        self.counters["looks ahead"] += 1
        return self._begin_round(flow, known, now, alone=True)

    # -- flows -----------------------------------------------------------------------------------

    def _new_flow(self, key: FlowKey, targets: tuple[int, ...], now: float) -> Flow:
        if len(targets) > 1:
            targets = tuple(ranked(key, targets))
        flow = Flow(self._select(key, targets, now), targets, now)
        forgotten = self.flows.put(key, flow, now)
        if forgotten is not None:
            self.agenda.cancel(_timer(forgotten))
        if "idle flows" not in self.agenda:
            self.agenda.set("idle flows", now + self.timers.flow_idle_s, self._forget_idle)
        return flow

    def _select(self, key: FlowKey, targets: Sequence[int], now: float) -> Selection:
        """Return the choice of paths to the first target to which one may be left."""
        self.flow_answers_change(key)
        failures = self.failures(now)
        for target in targets:
            selection = Selection(
                self.topology,
                self.server,
                target,
                failures,
                partial(self.flow_answers_change, key),
                HOP_COST * self.bandwidth.rate_bps,
                MOVE_GAIN * self.bandwidth.rate_bps,
            )
            if selection.path:
                break
        return selection

    def _forget_idle(self, now: float) -> list[Action]:
        for key, _ in self.flows.expire(now):
            self.agenda.cancel(_timer(key))
        if len(self.flows):
            self.agenda.set("idle flows", now + self.timers.flow_idle_s, self._forget_idle)
        return []

    # -- rounds of probes ------------------------------------------------------------------------

    def _begin_round(
        self, key: FlowKey, flow: Flow, now: float, *, urgent: bool = True, alone: bool = False
    ) -> list[Action]:
        """Begin a round, now or when it is its turn."""
        turn = self._pace.turn(now, urgent=urgent)
        if turn > now:
            self.agenda.set(_timer(key), turn, lambda at: self._now_begin_round(key, at))
            return []
        return self._now_begin_round(key, now, alone=alone)

    def _now_begin_round(self, key: FlowKey, now: float, *, alone: bool = False) -> list[Action]:
        flow = self.flows.get(key)
        if flow is None:
            return []
        if flow.selection.hopeless and len(flow.targets) > 1:
            flow.selection = self._select(key, flow.targets, now)
        if now > flow.since_s:
            flow.selection.rate_bps = flow.sent_bytes * 8 / (now - flow.since_s)
        flow.since_s, flow.sent_bytes = now, 0
        # Numbered across all flows of this server, so that an answer finds its flow.
        self._last_round = self._last_round % MOST_ROUND + 1
        self._rounds.pop(flow.round)
        flow.round, flow.probing = self._last_round, True
        self._rounds.put(flow.round, key, now)
        self.counters["probe rounds"] += 1
        probes = flow.selection.begin_round(self.failures(now), alone=alone)
        return self._probe(key, flow, probes, now)

    def _probe(
        self, key: FlowKey, flow: Flow, candidates: Sequence[int], now: float
    ) -> list[Action]:
        """Probe these paths, or end the round if nothing is waited for any more."""
        actions: list[Action] = []
        for index in candidates:
            path = flow.selection.candidates[index].path
            free_bps = self.bandwidth.available_bps(path.steps[0].port, Direction.OUT)
            probe = Probe(flow.round, index, int(free_bps))
            actions += self.send_along(path, Protocol.PROBE, probe.pack())
        if candidates:
            deadline = now + self.timers.probe_timeout_s * flow.selection.patience
            self.agenda.set(_timer(key), deadline, lambda at: self._time_out(key, at))
        if flow.probing and flow.selection.finished:
            actions += self._end_round(key, flow, now)
        return actions

    def _time_out(self, key: FlowKey, now: float) -> list[Action]:
        flow = self.flows.get(key)
        if flow is None:
            return []
        return self._probe(key, flow, flow.selection.time_out(self.failures(now)), now)

    def _end_round(self, key: FlowKey, flow: Flow, now: float) -> list[Action]:
        flow.probing = False
        flow.selection.end_round()
        if flow.selection.hopeless:
            # A gateway that cannot be reached: on to those that the flow likes less.
            others = flow.targets[flow.targets.index(flow.selection.destination) + 1 :]
            if others:
                flow.selection = self._select(key, others, now)
                self.counters["gateway changes"] += 1
                return self._begin_round(key, flow, now)
        pause = self.timers.next_probe_s(self.random)
        if flow.selection.path is None:  # not in search of a better path, but of any
            pause = min(pause, self.timers.unreachable_hold_s)
        self.agenda.set(_timer(key), now + pause, lambda at: self._adapt(key, at))
        return []

    def _adapt(self, key: FlowKey, now: float) -> list[Action]:
        """Probe again, unless the flow has sent nothing since the last time (section 4.3)."""
        flow = self.flows.get(key)
        if flow is None or not flow.sent_bytes:
            return []
        return self._begin_round(key, flow, now, urgent=False)

    def answered(self, response: ProbeResponse, path: Path, now: float) -> list[Action]:
        """Take in what is free on a path."""
        key = self._rounds.get(response.round)
        flow = self.flows.get(key) if key is not None else None
        if key is None or flow is None or flow.round != response.round:
            return [Drop("answer to no probe")]
        selection = flow.selection
        free_bps = self._pairs.left_bps(key, flow, path, response.available_bps, now)
        if not selection.answer_of(response.path, path, free_bps):
            return [Drop("answer to no probe")]
        if not flow.probing:  # late
            selection.settle()
        elif selection.finished:
            return self._end_round(key, flow, now)
        return []

    # -- failures --------------------------------------------------------------------------------

    def lost(self, link: Pair, now: float) -> None:
        """Let no flow use a link that has failed (section 4.3), as soon as others are told.

        Failures come in swarms, as when a server dies: those that follow closely upon another are
        gathered for a moment, so that all flows are looked through once for all of them.
        """
        self._lost.add(link)
        if "lost links" not in self.agenda:
            self.agenda.set("lost links", max(now, self._gathering_until_s), self._leave_lost)

    def _uses_lost(self, flow: Flow) -> bool:
        path = flow.selection.path
        return path is not None and not self._lost.isdisjoint(path.links)

    def _leave_lost(self, now: float) -> list[Action]:
        """Leave every link that has failed meanwhile.

        A flow with another working path waits for its next round; in a round the failed candidate
        is replaced at once, and a flow with no path left begins a round.
        """
        self.agenda.cancel("lost links")
        lost, self._lost = self._lost, set()
        self._gathering_until_s = now + GATHER_S
        actions: list[Action] = []
        failures = self.failures(now)
        for key, flow in self.flows.items():
            if not flow.selection.lose(lost):
                continue
            if flow.probing:
                actions += self._probe(key, flow, flow.selection.replace(failures), now)
            elif not flow.selection.path:
                actions += self._search(key, flow, now)
        return actions

    def _search(self, key: FlowKey, flow: Flow, now: float) -> list[Action]:
        """Begin a round for a flow without a path; a quiet one begins anew with its next packet."""
        if self.flows.idle_for(key, now) > QUIET_S:
            self.flows.pop(key)
            self.agenda.cancel(_timer(key))
            return []
        return self._begin_round(key, flow, now)

    def link_changed(self, step: Step, up: bool, now: float) -> list[Action]:
        """Leave a link that went down; with a new one, see what stranded flows can do."""
        actions = super().link_changed(step, up, now)
        if up:
            for key, flow in self.flows.items():
                if flow.selection.path is None and not flow.probing:
                    actions += self._search(key, flow, now)
        return actions

    def resized(self, now: float) -> list[Action]:
        """Let flows keep their paths, but for those that led over servers that have left."""
        super().resized(now)
        for key, flow in list(self.flows.items()):
            flow.selection.bcube = self.topology
            if max(flow.targets) >= self.topology.servers:
                self.flows.pop(key)
                self.agenda.cancel(_timer(key))
            else:
                hops = flow.selection.links
                self._lost.update(link for link in hops if max(link) >= self.topology.servers)
        return self._leave_lost(now) if self._lost else []

    # -- for the eye -----------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return the flows as well, with their paths and candidates."""
        return {
            **super().state(),
            "flows": [self._flow_state(*item) for item in self.flows.items()],
        }

    def _flow_state(self, key: FlowKey, flow: Flow) -> dict[str, Any]:
        def addresses(path: Path | None) -> list[str]:
            return [self.topology.address(server) for server in path.servers] if path else []

        return {
            "source": f"{dotted_quad(key.source)}:{key.source_port}",
            "destination": f"{dotted_quad(key.destination)}:{key.destination_port}",
            "protocol": key.protocol,
            "path": addresses(flow.selection.path),
            "rounds": flow.selection.round,
            "path_changes": flow.selection.changes,
            "candidates": [
                {
                    "path": addresses(one.path),
                    "state": one.state.value,
                    "available_bps": one.available_bps,
                }
                for one in flow.selection.candidates
            ],
        }


def _timer(key: FlowKey) -> tuple[str, FlowKey]:
    return "flow", key
