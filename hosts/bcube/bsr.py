"""BSR, BCube's source routing (Guo 2009, section 4): the source of a flow selects its path.

This module is the source's part; `pillarbox.hosts.bcube.forwarding` is the relay's part. Each flow
has a `Selection`: candidate paths, probe results, and the path in use. Flows are unidirectional and
identified by five header fields (section 4.1). Packets are never queued: a new flow uses the
default path immediately, while its first probe round is under way.

    packet of a new flow  -> default path; a probe round starts
    probe response        -> available bandwidth of that path
    failed link           -> immediately another working path; in a round, search for a replacement
    probe timeout         -> that path has failed; search for a replacement
    all responses         -> the round ends: use the best path; the next round starts after an
                             interval plus a random part (section 4.3: to avoid oscillation)

Invariants: a flow has at most one timer, for its round's timeout or for the start of its next
round. A flow that sends nothing has no timer: its next packet starts a probe round. No path that is
marked as working or untried has a link that is known to have failed. All tables are bounded.

Packets to and from external networks (section 5.3) form flows as well: from the source to a
gateway, and from the gateway at which they entered the BCube to their destination.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from pillarbox.hosts.base.actions import Action, Deliver, Drop
from pillarbox.hosts.base.bandwidth import Direction
from pillarbox.hosts.base.bounded import Bounded
from pillarbox.hosts.base.failures import Failures, Pair
from pillarbox.hosts.base.path import Path, Step
from pillarbox.hosts.base.probing import Pace
from pillarbox.hosts.bcube.forwarding import Forwarding
from pillarbox.hosts.bcube.gateways import Gateways, ranked
from pillarbox.hosts.bcube.pairs import PairFlow, Pairs
from pillarbox.hosts.bcube.paths import path_set
from pillarbox.hosts.bcube.selection import PathSet, Selection
from pillarbox.hosts.wire.dcn import Protocol
from pillarbox.hosts.wire.ipv4 import BROADCASTS, FlowKey, Ipv4Header
from pillarbox.hosts.wire.messages import Probe, ProbeResponse
from pillarbox.topos.base.addressing import dotted_quad
from pillarbox.topos.base.digits import DigitNetwork

MOST_FLOWS = 4096
MOST_ROUND = 2**32 - 1  # maximum value of a probe message's round field
# Departs from the paper: a longer path must offer more bandwidth for each extra hop, by this share
# of a port's rate. If only available bandwidth counted, flows in a loaded network would take
# detours and add even more load.
HOP_COST = 0.1
# Departs from the paper: a flow moves only to a path that offers more bandwidth than the path in
# use, by this share of a port's rate plus the cost of a hop. Many flows see the same free port at
# the same time, and would together fill that port if they all moved there.
MOVE_GAIN = 0.25
# Time for which link failures are collected before flows leave the links, in seconds.
# The time is short compared with timeouts.
GATHER_S = 0.002
QUIET_S = 1.0  # time without packets after which a flow may have ended, in seconds


class BSR(Forwarding):
    """BCube source routing (BSR): a server's router, which selects the paths of its own flows.

    Parameters
    ----------
    gateways : mapping of text to servers, optional
        Gateways per external prefix, such as ``0.0.0.0/0``; the same for all servers.
    """

    path_set: ClassVar[PathSet] = staticmethod(path_set)  # the paths from which flows choose
    selection: ClassVar[type[Selection]] = Selection  # how a flow chooses from these paths

    def __init__(
        self,
        topology: DigitNetwork,
        server: int,
        *,
        gateways: Mapping[str, Sequence[int]] | None = None,
        now: float = 0.0,
        **common: Any,
    ) -> None:
        super().__init__(topology, server, now=now, **common)
        self.gateways = Gateways(topology, gateways or {})
        self.flows: Bounded[FlowKey, PairFlow] = Bounded(MOST_FLOWS, self.timers.flow_idle_s)
        # The flow of each probe round under way, by round number.
        self._rounds: Bounded[int, FlowKey] = Bounded(MOST_FLOWS)
        self._last_round = 0
        # Newly failed links: flows with paths over these links have not been moved yet.
        self._new_failures: set[Pair] = set()
        self._gathering_until_s = now
        self._pairs = Pairs(self.flows, self.bandwidth)
        self._pace = Pace(self.timers.probe_spacing_s, now, self.random)

    # -- packets ---------------------------------------------------------------------------------

    def outgoing(self, packet: bytes, flow: FlowKey, destination: int, now: float) -> list[Action]:
        """Send an application's packet along its flow's path."""
        if self.server_of(flow.source) is None:
            self.counters["from external networks"] += 1
        return self._send(packet, flow, (destination,), now)

    def external(self, packet: bytes, flow: FlowKey, now: float) -> list[Action]:
        """Broadcast a packet, send it to a gateway, or, as the gateway, out of the network."""
        if flow.destination in BROADCASTS:
            return self.broadcasts.send(packet, now)
        serving = self.gateways.serving(flow.destination)
        if not serving:
            return super().external(packet, flow, now)
        if self.server in serving:
            return self._send_outside(packet)
        return self._send(packet, flow, serving, now)

    def arrived(self, packet: bytes) -> list[Action]:
        """Deliver an IP packet at its source route's end, or send it to the external network."""
        destination = Ipv4Header.parse(packet)[0].destination
        if self.server_of(destination) == self.server:
            return [Deliver(packet)]
        if self.server in self.gateways.serving(destination):
            return self._send_outside(packet)
        return [Drop("packet is for another server", packet)]

    def is_own_flow(self, flow: FlowKey) -> bool:
        """Return True if an application on this server sends the flow."""
        return flow in self.flows

    def _send_outside(self, packet: bytes) -> list[Action]:
        """Pass a packet to this server's own IP stack, which has the external link."""
        self.counters["to external networks"] += 1
        return [Deliver(packet)]

    def _send(
        self, packet: bytes, key: FlowKey, targets: tuple[int, ...], now: float
    ) -> list[Action]:
        flow = self.flows.use(key, now) or self._new_flow(key, targets, now)
        actions: list[Action] = []
        if self._new_failures and (
            now >= self._gathering_until_s or self._uses_newly_failed_link(flow)
        ):
            actions = self._leave_failed_links(now)
        paths = flow.selection.paths_in_turn()
        if not paths:
            actions.append(Drop("no path is left", packet, unreached=True))
        else:
            actions += self.send_along(paths[0], Protocol.IPV4, packet, key, paths[1:])
        return actions + self.used(key, len(packet), now)

    def used(self, flow: FlowKey, sent_bytes: int, now: float) -> list[Action]:
        """Count bytes sent by the data plane; probe for a flow that was idle or is large."""
        known = self.flows.use(flow, now)
        if known is None:
            return []
        known.sent_bytes += sent_bytes
        if _timer(flow) not in self.agenda:
            return self._start_next_round(flow, now)
        return self.look_ahead(flow, known, now)

    def look_ahead(self, key: FlowKey, flow: PairFlow, now: float) -> list[Action]:
        """Probe before a large flow's interval ends if the flow may find a path with less load."""
        large = self._pairs.is_large(key, flow, now)
        if not (large and self._pairs.should_probe_early(key, flow, now)):
            return []
        flow.probed_early = True
        self.counters["looks ahead"] += 1
        return self._begin_round(key, flow, now, alone=True)

    # -- flows -----------------------------------------------------------------------------------

    def _new_flow(self, key: FlowKey, targets: tuple[int, ...], now: float) -> PairFlow:
        if len(targets) > 1:
            targets = tuple(ranked(key, targets))
        flow = PairFlow(self._new_selection(key, targets, now), targets, now)
        forgotten = self.flows.put(key, flow, now)
        if forgotten is not None:
            self.agenda.cancel(_timer(forgotten))
        if "idle flows" not in self.agenda:
            self.agenda.set("idle flows", now + self.timers.flow_idle_s, self._forget_idle)
        return flow

    def _new_selection(self, key: FlowKey, targets: Sequence[int], now: float) -> Selection:
        """Return the path selection of a new flow, to its first target (gateway) with a path.

        If failures leave no target a path, older reports are ignored: the links may work again.
        """
        self.flow_answers_change(key)
        for failures in dict.fromkeys((self.failures(now), self.fresh_failures(now))):
            for target in targets:
                selection = type(self).selection(
                    self.topology,
                    self.server,
                    target,
                    failures,
                    partial(self.flow_answers_change, key),
                    HOP_COST * self.bandwidth.slowest_bps,
                    MOVE_GAIN * self.bandwidth.slowest_bps,
                    type(self).path_set,
                )
                if selection.path:
                    return selection
        return selection

    def _forget_idle(self, now: float) -> list[Action]:
        for key, _ in self.flows.expire(now):
            self.agenda.cancel(_timer(key))
        if len(self.flows):
            self.agenda.set("idle flows", now + self.timers.flow_idle_s, self._forget_idle)
        return []

    # -- rounds of probes ------------------------------------------------------------------------

    def _begin_round(
        self, key: FlowKey, flow: PairFlow, now: float, *, urgent: bool = True, alone: bool = False
    ) -> list[Action]:
        """Start a probe round now, or at the time that the probe rate limit allows."""
        turn = self._pace.turn(now, urgent=urgent)
        if turn > now:
            self.agenda.set(_timer(key), turn, lambda at: self._now_begin_round(key, at))
            return []
        return self._now_begin_round(key, now, alone=alone)

    def _now_begin_round(self, key: FlowKey, now: float, *, alone: bool = False) -> list[Action]:
        flow = self.flows.get(key)
        if flow is None:
            return []
        if flow.selection.has_no_confirmed_path and len(flow.targets) > 1:
            flow.selection = self._new_selection(key, flow.targets, now)
        if now > flow.since_s:
            flow.selection.rate_bps = flow.sent_bytes * 8 / (now - flow.since_s)
        flow.since_s, flow.sent_bytes = now, 0
        # Round numbers are unique among this server's flows, so a response identifies its flow.
        self._last_round = self._last_round % MOST_ROUND + 1
        self._rounds.pop(flow.round)
        flow.round, flow.probing = self._last_round, True
        self._rounds.put(flow.round, key, now)
        self.counters["probe rounds"] += 1
        probes = flow.selection.begin_round(self._failures_for(flow, now), alone=alone)
        return self._probe(key, flow, probes, now)

    def _probe(
        self, key: FlowKey, flow: PairFlow, candidates: Sequence[int], now: float
    ) -> list[Action]:
        """Probe the candidate paths; end the round if no responses are outstanding."""
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
        return self._probe(key, flow, flow.selection.time_out(self._failures_for(flow, now)), now)

    def _end_round(self, key: FlowKey, flow: PairFlow, now: float) -> list[Action]:
        flow.probing = False
        flow.selection.end_round()
        if flow.selection.has_no_confirmed_path:
            # The gateway is unreachable: try the flow's next gateways in order of preference.
            others = flow.targets[flow.targets.index(flow.selection.destination) + 1 :]
            if others:
                flow.selection = self._new_selection(key, others, now)
                self.counters["gateway changes"] += 1
                return self._begin_round(key, flow, now)
        pause = self.timers.next_probe_s(self.random)
        if flow.selection.path is None:  # the flow has no path: retry sooner
            pause = min(pause, self.timers.unreachable_hold_s)
        self.agenda.set(_timer(key), now + pause, lambda at: self._start_next_round(key, at))
        return []

    def _start_next_round(self, key: FlowKey, now: float) -> list[Action]:
        """Start the next probe round if the flow has sent packets since the last (section 4.3)."""
        flow = self.flows.get(key)
        if flow is None or not flow.sent_bytes:
            return []
        flow.probed_early = False  # an early round is allowed once in each regular interval
        return self._begin_round(key, flow, now, urgent=False)

    def answered(self, response: ProbeResponse, path: Path, now: float) -> list[Action]:
        """Record the available bandwidth of a probed path from a probe response."""
        key = self._rounds.get(response.round)
        flow = self.flows.get(key) if key is not None else None
        if key is None or flow is None or flow.round != response.round:
            return [Drop("answer to no probe")]
        selection = flow.selection
        free_bps = self._pairs.left_bps(key, flow, path, response.available_bps, now)
        if not selection.process_answer(response.path, path, free_bps):
            return [Drop("answer to no probe")]
        if not flow.probing:  # response after the end of its probe round: choose the path again
            selection.settle()
        elif selection.finished:
            return self._end_round(key, flow, now)
        return []

    # -- failures --------------------------------------------------------------------------------

    def lost(self, link: Pair, now: float) -> None:
        """Record a newly failed link, which all flows are to leave soon (section 4.3).

        Failures come in bursts, for example when a server dies: failures that follow within
        GATHER_S are collected, so that all flows are checked once for all of these links.
        """
        self._new_failures.add(link)
        if "lost links" not in self.agenda:
            self.agenda.set(
                "lost links", max(now, self._gathering_until_s), self._leave_failed_links
            )

    def _uses_newly_failed_link(self, flow: PairFlow) -> bool:
        paths = flow.selection.used_paths()
        return any(not self._new_failures.isdisjoint(path.links) for path in paths)

    def _leave_failed_links(self, now: float) -> list[Action]:
        """Make flows leave all links that have failed since the last call.

        A flow with another working path waits for its next round, unless it `lacks_paths`. During a
        round the failed candidate is replaced immediately.
        """
        self.agenda.cancel("lost links")
        lost, self._new_failures = self._new_failures, set()
        self._gathering_until_s = now + GATHER_S
        actions: list[Action] = []
        for key, flow in self.flows.items():
            if not flow.selection.lose(lost):
                continue
            if flow.probing:
                others = flow.selection.replace(self._failures_for(flow, now))
                actions += self._probe(key, flow, others, now)
            elif self.lacks_paths(flow):
                actions += self._search_path(key, flow, now)
        return actions

    def lacks_paths(self, flow: PairFlow) -> bool:
        """Return True if a flow outside a probe round needs other paths immediately."""
        return flow.selection.path is None

    def _failures_for(self, flow: PairFlow, now: float) -> Failures:
        """Return the failures that a flow's paths avoid; for a flow without a path, recent ones."""
        return self.failures(now) if flow.selection.path else self.fresh_failures(now)

    def _search_path(self, key: FlowKey, flow: PairFlow, now: float) -> list[Action]:
        """Start a probe round for a flow that lacks paths; forget the flow if it is idle."""
        if self.flows.idle_for(key, now) > QUIET_S:
            self.flows.pop(key)
            self.flow_answers_change(key)
            self.agenda.cancel(_timer(key))
            return []
        return self._begin_round(key, flow, now)

    def link_changed(self, step: Step, up: bool, now: float) -> list[Action]:
        """Move flows off a link that went down; probe for those that lack paths if one came up."""
        actions = super().link_changed(step, up, now)
        if up:
            for key, flow in self.flows.items():
                if self.lacks_paths(flow) and not flow.probing:
                    actions += self._search_path(key, flow, now)
        return actions

    def resized(self, now: float) -> list[Action]:
        """Resize the router: flows keep their paths, except for paths over removed servers."""
        super().resized(now)
        for key, flow in list(self.flows.items()):
            flow.selection.bcube = self.topology
            if max(flow.targets) >= self.topology.servers:
                self.flows.pop(key)
                self.agenda.cancel(_timer(key))
            else:
                hops = flow.selection.links
                self._new_failures.update(
                    link for link in hops if max(link) >= self.topology.servers
                )
        return self._leave_failed_links(now) if self._new_failures else []

    # -- state shown to users --------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return the router's state with flows, their paths and candidates."""
        return {
            **super().state(),
            "flows": [self.flow_state(*item) for item in self.flows.items()],
        }

    def flow_state(self, key: FlowKey, flow: PairFlow) -> dict[str, Any]:
        """Return a flow as plain data for display: its ends, its paths and their states."""

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
