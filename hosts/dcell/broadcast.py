"""DCellBroadcast (Guo 2008, section 4.2): flooding with duplicate removal, within a scope.

A broadcast goes to all neighbours of its sender that are in the sender's DCell_scope, and from
each that sees it for the first time to its other neighbours. It needs no tree, and arrives as long
as the DCell_scope is connected. What was seen is remembered by sender and identification, for much
longer than a broadcast lives, in a table of fixed size.

The scope is part of the multicast address (section 7.1). Link states are spread the same way, but
know duplicates by their sequence numbers (`hosts.base.flood`).
"""

from __future__ import annotations

from hosts.base.actions import Action, Drop
from hosts.base.bounded import Seen
from hosts.base.flood import spread
from hosts.base.router import Router
from hosts.wire.dcn import DcnHeader, Protocol, broadcast, scope_of

REMEMBERED, REMEMBERED_S = 4096, 10.0  # no broadcast is under way for longer


class Broadcasts:
    """The part of a router that sends broadcasts of applications, and relays those of others."""

    def __init__(self, router: Router) -> None:
        self.router = router
        self.seen = Seen(REMEMBERED, REMEMBERED_S)

    def send(self, packet: bytes, scope: int, now: float) -> list[Action]:
        """Send a packet to every other server of this server's DCell_scope."""
        router = self.router
        header = DcnHeader(router.uid, broadcast(scope), Protocol.IPV4, router.identify())
        self.seen.is_new(header.source, header.identification, now)
        return spread(router.neighbours, range(scope + 1), header, packet)

    def heard(self, port: int, header: DcnHeader, packet: bytes, now: float) -> list[Action]:
        """Deliver and relay what is new."""
        scope = scope_of(header.destination)
        if header.destination != broadcast(scope):
            return [Drop("unknown multicast group", packet)]
        if header.protocol != Protocol.IPV4:
            return [Drop("unknown protocol", packet)]
        if scope > self.router.topology.k or not self._concerns(header.source, scope):
            return [Drop("broadcast out of its scope", packet)]
        if not self.seen.is_new(header.source, header.identification, now):
            self.router.counters["broadcasts repeated"] += 1
            return []
        relayed = spread(self.router.neighbours, range(scope + 1), header, packet, port)
        return [*self.router.delivered(packet), *relayed]

    def _concerns(self, source: int, scope: int) -> bool:
        size = self.router.topology.sizes[scope]
        return bool(source // size == self.router.uid // size)
