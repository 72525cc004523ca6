"""What a BCube server does for others (Guo 2009, Fig. 7 and section 7.2): relay, answer, overhear.

A packet carries its whole path, so a relay decides with one look-up in its neighbour table
(`hosts.bcube.neighbours`), advances the next hop index and sends the packet on; it knows nothing
of flows. Five kinds of message pass it as well, each along a path that its sender names::

    source --probe--> relay --probe--> destination    min(available in, available out) at each relay
    source <-------- probe response -- destination    over the reversed path
    source <-- path failure -- relay  x               the link that is down, over the way so far
    source <-- returned packet -- relay  x            what met that link, to be sent again
    neighbour <-- cable cut -- server x               its cable to theirs, over another switch

From those it keeps the failed-link database (section 4.2): every server that a path-failure
message passes notes the link; a link is forgotten after a while, or when the answer to a probe
passes that came over it. Links of this server's own are in the neighbour table, not there.

Data passes in the kernel, so a relay would have to wait for the next packet to tell its source of a
link that has gone down: for TCP's next try but one. It remembers whose probes went where, and tells
those at once. A switch tells nobody that one of its cables is cut: those who send over it would
go on until heart-beats are missed, with TCP's acknowledgements, too. So the server at the cable's
end tells them.

Invariants: what a frame names (hops, servers, links) is used only if it exists in this network; a
message about a lost message is never sent. A path of 8 hops ends every packet, so no server counts
its TTL down.
"""

from __future__ import annotations

from typing import Any, ClassVar

from hosts.base.actions import Action, Deliver, Drop, Pushed, Relayed, Send
from hosts.base.bandwidth import Direction
from hosts.base.bounded import Bounded
from hosts.base.failures import Failures, Pair
from hosts.base.path import Path, Step
from hosts.base.router import Router
from hosts.bcube.broadcast import Broadcasts
from hosts.bcube.neighbours import NeighbourTable
from hosts.bcube.paths import path_set
from hosts.bcube.rules import corrected
from hosts.bcube.source_routes import hops_of, path_of, reverse
from hosts.wire.bcube import MOST_LEVEL, MOST_VALUE, SIZE, BCubeHeader, Hop, advance
from hosts.wire.dcn import Protocol, is_multicast
from hosts.wire.frame import ETH_DCN, Frame
from hosts.wire.ipv4 import FlowKey, flow_key
from hosts.wire.messages import CableCut, PathFailure, Probe, ProbeResponse
from topos.base.errors import require
from topos.bcube import BCube

MOST_FAILED_LINKS = 1024
MOST_PASSING = 256  # sources, each for each of the links over which it probes
NEXT_HOP_DOWN = "next hop is down"
TELL_AGAIN_S = 0.01  # a whole window of packets may meet a link that has failed


class Forwarding(Router):
    """The forwarding engine, the end of other servers' probes, and the failed-link database."""

    answers_outlive_links: ClassVar[bool] = True  # they follow paths that sources chose

    def __init__(self, topology: BCube, server: int, **common: Any) -> None:
        require(
            topology.k <= MOST_LEVEL and topology.n <= MOST_VALUE + 1,
            f"{topology.spec} is too large for BCube's header, which names digits up to "
            f"{MOST_LEVEL} and their values up to {MOST_VALUE}: choose k <= {MOST_LEVEL} and "
            f"n <= {MOST_VALUE + 1} (Guo 2009, section 7.1)",
        )
        super().__init__(topology, server, **common)
        self.table = NeighbourTable(topology, server)
        self.broadcasts = Broadcasts(self, self._sent_by)
        self.failed_links: Bounded[Pair, None] = Bounded(
            MOST_FAILED_LINKS, self.timers.failed_link_timeout_s
        )

        # Whose probes were sent on over which link, with the way by which they came.
        self.passing: Bounded[tuple[int, Step], tuple[Hop, ...]] = Bounded(
            MOST_PASSING, 2 * self.timers.longest_probe_interval_s
        )
        # Which sources were just told of which link.
        self.notified: Bounded[tuple[int, Step], None] = Bounded(MOST_PASSING, TELL_AGAIN_S)

    @classmethod
    def header_bytes(cls) -> int:
        """Return the size of a header with a whole path."""
        return SIZE

    # -- for the source's part to say ------------------------------------------------------------

    def arrived(self, packet: bytes) -> list[Action]:
        """Answer for an IPv4 packet whose path ends here."""
        raise NotImplementedError

    def answered(self, response: ProbeResponse, path: Path, now: float) -> list[Action]:
        """Answer for a probe of this server's own that came back; `path` is the one it probed."""
        raise NotImplementedError

    def lost(self, link: Pair, now: float) -> None:
        """Take in that a link has failed that was not known to have."""
        raise NotImplementedError

    def has_sent(self, flow: FlowKey) -> bool:
        """Tell whether the flow is one of this server's own."""
        raise NotImplementedError

    # -- for the source's part to use ------------------------------------------------------------

    def send_along(
        self, path: Path, protocol: Protocol, payload: bytes, flow: FlowKey | None = None
    ) -> list[Action]:
        """Send something of this server's own along a path: a message, or a packet of a flow."""
        hops = hops_of(self.topology, path)
        neighbour = self.table.look_up(hops[0])
        if neighbour is None or not neighbour.up:
            return [Drop(NEXT_HOP_DOWN, payload)]
        destination = self.topology.uid(path.destination)
        # The first hop is taken here: on the wire the index is that of the peer's next hop.
        header = BCubeHeader(self.uid, destination, protocol, hops, 1, self.identify())
        data = header.pack(payload)
        pushed = None if flow is None else Pushed(flow, data[: -len(payload)])
        return [_sent(neighbour.step, data, pushed)]

    def _sent_by(self, step: Step, data: bytes) -> Action:
        """Send to a neighbour what is to be repeated for nobody else."""
        return _sent(step, data) if self.table.is_up(step) else Drop(NEXT_HOP_DOWN, data)

    def failures(self, now: float) -> Failures:
        """Return all links that this server believes to have failed."""
        self.failed_links.expire(now)
        return Failures(links=self.table.failed_links.union(self.failed_links))

    def link_changed(self, step: Step, up: bool, now: float) -> list[Action]:
        """Note the state of a link of this server's own."""
        self.table.set_status(step, up)
        link = frozenset((self.server, step.peer))
        if up:
            self.failed_links.pop(link)
            return []
        self.lost(link, now)
        return [*self._tell_passing(step, now), *self._tell_neighbour(step, now)]

    def resized(self, now: float) -> list[Action]:
        """Look up hops in the network as it is now."""
        self.table = NeighbourTable(self.topology, self.server)
        for step in self.neighbours.links:
            self.table.set_status(step, self.neighbours.works(step))
        return []

    def state(self) -> dict[str, Any]:
        """Return what is known of failures."""
        address = self.topology.address
        own = self.table.failed_links
        return {
            **super().state(),
            "neighbours": {"known": len(self.table), "down": len(own)},
            "failed_links": [
                [address(server) for server in sorted(link)]
                for link in [*own, *(link for link in self.failed_links if link not in own)]
            ],
        }

    # -- frames ----------------------------------------------------------------------------------

    def incoming(self, port: int, peer: int, frame: Frame, now: float) -> list[Action]:
        """Send a packet on along its path, or take it where the path ends."""
        if frame.ethertype != ETH_DCN:
            return [Drop("unknown protocol", frame.data)]
        header, body = BCubeHeader.parse(frame.data)
        if header.next_hop < len(header.path):
            return self._relay(port, frame.data, header, body, now)
        if is_multicast(header.destination):
            return self.broadcasts.heard(header, body, now)
        if header.destination != self.uid:
            return [Drop("path ends at another server", body)]
        match header.protocol:
            case Protocol.IPV4:
                delivered = self.arrived(body)
                key = header.relay_key()
                return [a._replace(key=key) if isinstance(a, Deliver) else a for a in delivered]
            case Protocol.PROBE:
                return self._answer(port, header, Probe.parse(body))
            case Protocol.PROBE_RESPONSE:
                return self._take_answer(header, ProbeResponse.parse(body), now)
            case Protocol.PATH_FAILURE:
                return self._note_failure(PathFailure.parse(body), now)
            case Protocol.CABLE_CUT:
                return self._take_cut(header, CableCut.parse(body), now)
            case Protocol.RETURNED:
                return self._returned(body, now)
        return [Drop("unknown protocol", body)]

    def _relay(
        self, port: int, data: bytes, header: BCubeHeader, body: bytes, now: float
    ) -> list[Action]:
        neighbour = self.table.look_up(header.path[header.next_hop])
        if neighbour is None:
            return [Drop("hop leads nowhere", body)]
        onward = neighbour.step
        if not neighbour.up:
            return self._stopped(header, body, onward, now)
        repeat = None
        match header.protocol:
            case Protocol.IPV4:
                repeat = Relayed(header.relay_key())
            case Protocol.PROBE:
                probe = self._lowered(Probe.parse(body), port, onward.port)
                self.passing.put((header.source, onward), header.path[: header.next_hop], now)
                return [_sent(onward, header.advanced().pack(probe.pack()))]
            case Protocol.PATH_FAILURE:
                self._note_failure(PathFailure.parse(body), now)
            case Protocol.PROBE_RESPONSE:
                self._note_success(self._path_of(header))
        return [_sent(onward, advance(data), repeat)]

    # -- probes ----------------------------------------------------------------------------------

    def _lowered(self, probe: Probe, port_in: int, port_out: int | None = None) -> Probe:
        """Return the probe with what is free at this server, if that is less."""
        free_bps = self.bandwidth.available_bps(port_in, Direction.IN)
        if port_out is not None:
            free_bps = min(free_bps, self.bandwidth.available_bps(port_out, Direction.OUT))
        return probe._replace(available_bps=min(probe.available_bps, int(free_bps)))

    def _answer(self, port: int, header: BCubeHeader, probe: Probe) -> list[Action]:
        path = self._path_of(header)
        if path is None or path.destination != self.server:
            return [Drop("no such path")]
        response = ProbeResponse(*self._lowered(probe, port))
        return self.send_along(reverse(path), Protocol.PROBE_RESPONSE, response.pack())

    def _take_answer(
        self, header: BCubeHeader, response: ProbeResponse, now: float
    ) -> list[Action]:
        path = self._path_of(header)
        if path is None or path.destination != self.server:
            return [Drop("no such path")]
        self._note_success(path)
        return self.answered(response, reverse(path), now)

    # -- failures --------------------------------------------------------------------------------

    def _stopped(self, header: BCubeHeader, body: bytes, step: Step, now: float) -> list[Action]:
        """Tell the source of a packet or probe which link is down, over the way it came.

        # Departs from the paper: the packet follows the message, and the source sends it again.
        """
        path = self._path_of(header)
        asked = header.protocol in (Protocol.IPV4, Protocol.PROBE)
        if not asked or path is None or path.destination != self.server:
            return [Drop(NEXT_HOP_DOWN, body)]
        told = self._tell_source(path, step, now)
        if header.protocol == Protocol.PROBE or not self.may_return(body, now):
            return [Drop(NEXT_HOP_DOWN, body), *told]
        return [*told, *self.send_along(reverse(path), Protocol.RETURNED, body)]

    def _returned(self, packet: bytes, now: float) -> list[Action]:
        """Send a packet again; the message of the failed link came before it."""
        if not self.has_sent(flow_key(packet)):
            return [Drop("returned packet of no flow", packet)]
        return self.send_again(packet, now)

    # Departs from the paper: it tells a source when a packet of its meets the link (section 4.2).
    def _tell_passing(self, step: Step, now: float) -> list[Action]:
        """Tell those whose probes were sent that way lately."""
        self.passing.expire(now)
        actions: list[Action] = []
        for (uid, taken), hops in self.passing.items():
            if taken == step:
                self.passing.pop((uid, taken))
                actions += self._tell_source(self._way(uid, hops), step, now)
        return actions

    def _tell_source(self, path: Path | None, step: Step, now: float) -> list[Action]:
        """Tell the source of a path that led here which link is down."""
        if path is None or path.destination != self.server:
            return []
        self.notified.expire(now)
        if (path.source, step) in self.notified:
            return []
        self.notified.put((path.source, step), None, now)
        # The link says enough: whatever flow of the source uses it has to leave it.
        message = PathFailure(step.port, self.uid, self.topology.uid(step.peer), flow=None)
        return self.send_along(reverse(path), Protocol.PATH_FAILURE, message.pack())

    # Departs from the paper: heart-beats that are missed tell it.
    def _tell_neighbour(self, step: Step, now: float) -> list[Action]:
        """Tell a neighbour on a switch that this server's cable to that one is cut."""
        if self.neighbours.carrier(step.port):
            return []  # it is silent: whatever is broken is not known to be this cable
        failures = self.failures(now)
        for path in path_set(self.topology, self.server, step.peer):
            if failures.first_on(self.topology, path) is None:
                self.counters["cut cables told"] += 1
                return self.send_along(path, Protocol.CABLE_CUT, CableCut(step.port).pack())
        return []

    def _take_cut(self, header: BCubeHeader, message: CableCut, now: float) -> list[Action]:
        path = self._path_of(header)
        if path is None:
            return [Drop("no such path")]
        return self.cable_cut(path.source, message.port, now)

    def _note_failure(self, message: PathFailure, now: float) -> list[Action]:
        """Take in, or overhear, that a link has failed."""
        link = self._link_of(message)
        if link is None:
            return [Drop("no such link")]
        self.failed_links.expire(now)
        known = link in self.failed_links
        self.failed_links.put(link, None, now)
        if not known:
            self.lost(link, now)
        return []

    def _note_success(self, path: Path | None) -> None:
        """Take in, or overhear, that an answer came along that path."""
        for link in path.links if path else ():
            self.failed_links.pop(link)

    # -- what a frame says, checked --------------------------------------------------------------

    def _path_of(self, header: BCubeHeader) -> Path | None:
        """Return the way that a packet has come so far, None if it is none, or there is no such."""
        return self._way(header.source, header.path[: header.next_hop])

    def _way(self, uid: int, hops: tuple[Hop, ...]) -> Path | None:
        path = path_of(self.topology, self.topology.server_of_uid(uid), hops)
        return path if path and path.steps else None

    def _link_of(self, message: PathFailure) -> Pair | None:
        """Return the link that a message names, None if there is no such link."""
        bcube = self.topology
        server, peer = bcube.server_of_uid(message.server), bcube.server_of_uid(message.peer)
        level = message.port
        if not (0 <= server < bcube.servers and 0 <= peer < bcube.servers and level <= bcube.k):
            return None
        if server == peer or corrected(bcube.n, server, peer, level) != peer:
            return None
        return frozenset((server, peer))


def _sent(step: Step, data: bytes, repeat: Pushed | Relayed | None = None) -> Send:
    return Send(step.port, step.peer, Frame(ETH_DCN, data), repeat)
