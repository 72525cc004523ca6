"""Flooding of link states between servers (Guo 2008, section 7.1).

A server floods its link state when one of its links changes, and again at each refresh, earlier by
a random jitter so that servers do not flood simultaneously. After a flood, a server sends no other
flood for one heartbeat interval, even if its links change; then it floods their current state.
So a flapping link causes at most one flood per heartbeat interval.

A new link state is forwarded out of all other ports. If a port leads to a switch, all servers on
the switch receive the same frame, and none of them forwards it back. A known link state is not
forwarded. So each link state crosses each link at most once in each direction.

A server that restarts counts sequence numbers from one, so its link states look outdated to
servers that know later ones. They reply with the newest link state they have, and the restarted
server continues from its sequence number.

A server that was disconnected or stopped has missed link states. So when a neighbour comes back, a
server sends the link states with failed links out of that port; servers that have newer ones
correct outdated link states. No more of OSPF's database exchange is needed (RFC 2328, section
10.8): servers assume that all other links work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from pillarbox.hosts.base.actions import EVERYONE, Action, Drop, Send
from pillarbox.hosts.base.linkstate import SEQUENCES, LinkStates, ReceivedLinkState, newer
from pillarbox.hosts.base.neighbours import Neighbours
from pillarbox.hosts.base.path import Step
from pillarbox.hosts.wire.dcn import DcnHeader, Protocol
from pillarbox.hosts.wire.frame import ETH_DCN, Frame
from pillarbox.hosts.wire.messages import LinkState

if TYPE_CHECKING:
    from pillarbox.hosts.base.router import Router

# pause before flooding after a resize, until all servers know the new size, in seconds
RESIZED_S = 1.0
JITTER = 0.25  # maximum fraction of the interval by which a link-state refresh is early


class Flooding:
    """Link-state flooding of a router: synchronises its `states` with those of other servers.

    Parameters
    ----------
    router : Router
        Router that reports its link changes (`changed`) and received link states (`heard`).
    members : iterable of int
        Servers that exchange link states, including the router's own server.
    ports : iterable of int
        Ports that lead to members.
    address : int
        Multicast address of the members.
    order : callable
        Sort key of equally short paths' hops (see `LinkStates`).
    """

    def __init__(
        self,
        router: Router,
        members: Iterable[int],
        ports: Iterable[int],
        address: int,
        now: float,
        order: Callable[[Step], Any] = tuple,
    ) -> None:
        self.router = router
        self.ports = tuple(ports)
        self.address = address
        self.states = LinkStates(
            router.topology,
            router.server,
            members,
            router.timers.link_state_timeout_s,
            now,
            order,
            on_change=router.link_states_change,
        )
        self._sequence = 0
        self._advertised = router.neighbours.up
        self._next_flood_s = now
        first = now + router.random.random() * router.timers.link_state_refresh_s
        router.agenda.set("link state", first, self._flood)
        router.agenda.set("link-state ageing", self.states.next_expiry, self._expire)

    def resize(self, members: Iterable[int], now: float) -> None:
        """Set the servers that exchange link states after a resize of the router's network.

        Servers learn of the new size at different times and may have ignored or assumed links
        meanwhile, so this server floods its link state again after RESIZED_S.
        """
        self.states.resize(self.router.topology, members, now)
        self._advertised = self.router.neighbours.up
        self.states.say(self._sequence, self._advertised, now)
        self.router.agenda.set("link state", now + RESIZED_S, self._flood)

    def changed(self, now: float) -> list[Action]:
        """Flood this server's link state after a change of its links."""
        links = self.router.neighbours.up
        self.states.say(self._sequence, links, now)
        return [] if links == self._advertised else self._flood_soon(now)

    def heard(
        self, port: int, peer: int, header: DcnHeader, body: bytes, now: float
    ) -> list[Action]:
        """Process a received link state, and forward it if it is new."""
        message = LinkState.parse(body)
        server_of_uid = self.router.topology.server_of_uid
        origin: int = server_of_uid(header.source)
        if origin == self.router.server:
            return self._flood_above_old_sequence(message.sequence, now)
        links = [Step(port_, server_of_uid(uid)) for port_, uid in message.links]
        heard = self.states.hear(origin, message.sequence, links, now)
        self.router.counters[f"link states {heard.value}"] += 1
        if heard is ReceivedLinkState.NEWS:
            return spread(self.router.neighbours, self.ports, header, body, port)
        if heard is ReceivedLinkState.OUTDATED:
            return self._send_newest(origin, Step(port, peer))
        if heard is ReceivedLinkState.FOREIGN:
            return [Drop("link state of a server that is no member", body)]
        return []

    def state(self) -> list[dict[str, Any]]:
        """Return the link states of all servers in the flooding area, for display to users."""
        address = self.router.topology.address
        return [
            {
                "server": address(member),
                "sequence": self.states[member].sequence,
                "links": [
                    {"port": step.port, "peer": address(step.peer)}
                    for step in sorted(self.states[member].links)
                ],
            }
            for member in self.states
        ]

    def _flood_soon(self, now: float) -> list[Action]:
        """Flood this server's link state now, or when the pause after its last flood ends."""
        if now >= self._next_flood_s:
            return self._flood(now)
        self.router.agenda.set("link state", self._next_flood_s, self._flood)
        return []

    def _flood(self, now: float) -> list[Action]:
        """Flood this server's link state and schedule the next refresh."""
        router = self.router
        self._sequence = (self._sequence + 1) % SEQUENCES
        before, self._advertised = self._advertised, router.neighbours.up
        self.states.say(self._sequence, self._advertised, now)
        self._next_flood_s = now + router.timers.heartbeat_s
        early = JITTER * router.random.random()
        again = now + router.timers.link_state_refresh_s * (1 - early)
        router.agenda.set("link state", again, self._flood)
        actions = spread(router.neighbours, self.ports, *self._message(router.server))
        back = {step.port for step in self._advertised - before}.intersection(self.ports)
        for member in self.states.members_with_failures() if back else ():
            if member != router.server:
                actions += spread(router.neighbours, back, *self._message(member))
        return actions

    def _flood_above_old_sequence(self, sequence: int, now: float) -> list[Action]:
        """Flood this server's link state with a sequence number above those before its restart."""
        if not newer(sequence, self._sequence):
            return []
        self._sequence = sequence
        return self._flood_soon(now)

    def _send_newest(self, origin: int, step: Step) -> list[Action]:
        """Answer an outdated link state: send the origin's newest one back towards the origin."""
        if not self.router.neighbours.works(step):
            return []
        header, body = self._message(origin)
        return [Send(step.port, step.peer, Frame(ETH_DCN, header.pack(body)))]

    def _message(self, origin: int) -> tuple[DcnHeader, bytes]:
        """Return the message with the newest link state of server `origin`: header and body."""
        uid = self.router.topology.uid
        state = self.states[origin]
        links = tuple((step.port, uid(step.peer)) for step in sorted(state.links))
        header = DcnHeader(uid(origin), self.address, Protocol.LINK_STATE, self.router.identify())
        return header, LinkState(state.sequence or 0, links).pack()

    def _expire(self, now: float) -> list[Action]:
        """Mark links as down whose link state is too old; set the timer for the next check."""
        self.states.expire(now)
        again = min(self.states.next_expiry, now + self.states.timeout_s)
        self.router.agenda.set("link-state ageing", again, self._expire)
        return []


def spread(
    neighbours: Neighbours,
    ports: Iterable[int],
    header: DcnHeader,
    body: bytes,
    came_by: int | None = None,
) -> list[Action]:
    """Return the actions that send a flooded packet out of these ports, except its ingress port.

    The TTL of a received packet is decremented.
    """
    if came_by is not None:
        if header.ttl <= 1:
            return [Drop("TTL expired", body)]
        header = header._replace(ttl=header.ttl - 1)
    frame = Frame(ETH_DCN, header.pack(body))
    live = {step.port for step in neighbours.up}
    return [Send(port, EVERYONE, frame) for port in ports if port != came_by and port in live]
