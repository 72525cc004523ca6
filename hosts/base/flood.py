"""How servers tell each other of their links: floods of link states (Guo 2008, section 7.1).

A server floods its link state as soon as one of its links changes, and again at each refresh, a
little earlier at random so that not all do it at once. After a flood it keeps silent for one
heart-beat interval, whatever its links do; then it tells how they are by then. So a flapping link
costs the others no more than so many floods a second.

A link state that is news goes on out of all other ports. Behind a port with a switch are all of
the switch's servers: they get one frame together, and none of them sends it back there. What is
no news goes no further. So each link state crosses each link at most once in each direction.

A server that starts anew counts from one again, and what it says looks outdated to all who have
heard more of it. They answer with the newest they know, and it goes on counting from there.

Who was cut off, or had ended, has missed what was told meanwhile. So a server whose neighbour is
back sends what it knows of links that do not work out of that port; what of this is outdated is
answered by those who know better. That much is needed of OSPF's exchange of databases (RFC 2328,
section 10.8): of all other links everybody believes that they work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from hosts.base.actions import EVERYONE, Action, Drop, Send
from hosts.base.linkstate import SEQUENCES, Heard, LinkStates, newer
from hosts.base.neighbours import Neighbours
from hosts.base.path import Step
from hosts.wire.dcn import DcnHeader, Protocol
from hosts.wire.frame import ETH_DCN, Frame
from hosts.wire.messages import LinkState

if TYPE_CHECKING:
    from hosts.base.router import Router

RESIZED_S = 1.0  # until all servers know how large the network is now
JITTER = 0.25  # a refresh comes earlier by up to this share of its interval


class Flooding:
    """The part of a router that keeps its `states` and those of others the same.

    Parameters
    ----------
    router : Router
        It hands over its link changes (`changed`) and each link state it receives (`heard`).
    members : iterable of int
        The servers that tell each other of their links, the router's own among them.
    ports : iterable of int
        The ports that lead to members.
    address : int
        The multicast address of the members.
    order : callable
        See `LinkStates`.
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
        self._said = router.neighbours.up
        self._silent_until_s = now
        first = now + router.random.random() * router.timers.link_state_refresh_s
        router.agenda.set("link state", first, self._flood)
        router.agenda.set("link-state ageing", self.states.next_expiry, self._age)

    def resize(self, members: Iterable[int], now: float) -> None:
        """Take in who the members are in the router's network, which is larger or smaller now.

        Who hears of it later has believed those who knew it already, and the other way round: so
        this server says once more how its links are.
        """
        self.states.resize(self.router.topology, members, now)
        self._said = self.router.neighbours.up
        self.states.say(self._sequence, self._said, now)
        self.router.agenda.set("link state", now + RESIZED_S, self._flood)

    def changed(self, now: float) -> list[Action]:
        """Tell of a change of this server's own links."""
        links = self.router.neighbours.up
        self.states.say(self._sequence, links, now)
        return [] if links == self._said else self._flood_soon(now)

    def heard(
        self, port: int, peer: int, header: DcnHeader, body: bytes, now: float
    ) -> list[Action]:
        """Take in a link state, and send it on if it is news."""
        message = LinkState.parse(body)
        server_of_uid = self.router.topology.server_of_uid
        origin: int = server_of_uid(header.source)
        if origin == self.router.server:
            return self._own_copy(message.sequence, now)
        links = [Step(port_, server_of_uid(uid)) for port_, uid in message.links]
        heard = self.states.hear(origin, message.sequence, links, now)
        self.router.counters[f"link states {heard.value}"] += 1
        if heard is Heard.NEWS:
            return spread(self.router.neighbours, self.ports, header, body, port)
        if heard is Heard.OUTDATED:
            return self._correct(origin, Step(port, peer))
        if heard is Heard.FOREIGN:
            return [Drop("link state of a server that is no member", body)]
        return []

    def state(self) -> list[dict[str, Any]]:
        """Return what is known, as plain data."""
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
        if now >= self._silent_until_s:
            return self._flood(now)
        self.router.agenda.set("link state", self._silent_until_s, self._flood)
        return []

    def _flood(self, now: float) -> list[Action]:
        """Say how this server's links are, and again after the refresh interval."""
        router = self.router
        self._sequence = (self._sequence + 1) % SEQUENCES
        before, self._said = self._said, router.neighbours.up
        self.states.say(self._sequence, self._said, now)
        self._silent_until_s = now + router.timers.heart_beat_s
        early = JITTER * router.random.random()
        again = now + router.timers.link_state_refresh_s * (1 - early)
        router.agenda.set("link state", again, self._flood)
        actions = spread(router.neighbours, self.ports, *self._message(router.server))
        back = {step.port for step in self._said - before}.intersection(self.ports)
        for member in self.states.hurt() if back else ():
            if member != router.server:
                actions += spread(router.neighbours, back, *self._message(member))
        return actions

    def _own_copy(self, sequence: int, now: float) -> list[Action]:
        """Go on from a sequence number of an earlier life."""
        if not newer(sequence, self._sequence):
            return []
        self._sequence = sequence
        return self._flood_soon(now)

    def _correct(self, origin: int, step: Step) -> list[Action]:
        """Answer an outdated link state with the newest known; this finds its way to the origin."""
        if not self.router.neighbours.works(step):
            return []
        header, body = self._message(origin)
        return [Send(step.port, step.peer, Frame(ETH_DCN, header.pack(body)))]

    def _message(self, origin: int) -> tuple[DcnHeader, bytes]:
        uid = self.router.topology.uid
        state = self.states[origin]
        links = tuple((step.port, uid(step.peer)) for step in sorted(state.links))
        header = DcnHeader(uid(origin), self.address, Protocol.LINK_STATE, self.router.identify())
        return header, LinkState(state.sequence or 0, links).pack()

    def _age(self, now: float) -> list[Action]:
        self.states.expire(now)
        again = min(self.states.next_expiry, now + self.states.timeout_s)
        self.router.agenda.set("link-state ageing", again, self._age)
        return []


def spread(
    neighbours: Neighbours,
    ports: Iterable[int],
    header: DcnHeader,
    body: bytes,
    came_by: int | None = None,
) -> list[Action]:
    """Return what takes a flooded packet out of these ports, except that by which it came.

    A packet that came has one hop less to live.
    """
    if came_by is not None:
        if header.ttl <= 1:
            return [Drop("TTL expired", body)]
        header = header._replace(ttl=header.ttl - 1)
    frame = Frame(ETH_DCN, header.pack(body))
    live = {step.port for step in neighbours.up}
    return [Send(port, EVERYONE, frame) for port in ports if port != came_by and port in live]
