"""DCellBroadcast (Guo 2008, section 4.2): flooding with duplicate removal, within a scope.

The sender floods a broadcast packet to all neighbours in its DCell_scope. Each server that receives
the packet for the first time forwards it to its other neighbours there. DCellBroadcast needs no
spanning tree, and the packet reaches every server as long as the DCell_scope is connected.
Duplicates are recognised by source and identification, in a table of fixed size whose entries are
kept for much longer than a broadcast is under way.

The scope is part of the multicast address (section 7.1). Link states are flooded the same way, but
their duplicates are recognised by sequence numbers (`pillarbox.hosts.base.flood`).
"""

from __future__ import annotations

from pillarbox.hosts.base.actions import Action, Drop
from pillarbox.hosts.base.bounded import Seen
from pillarbox.hosts.base.flood import spread
from pillarbox.hosts.base.router import Router
from pillarbox.hosts.wire.dcn import DcnHeader, Protocol, broadcast, scope_of

REMEMBERED = 4096  # capacity of the table of received broadcasts (duplicate detection)
REMEMBERED_S = 10.0  # lifetime of an entry in seconds, longer than any broadcast is under way


class DCellBroadcasts:
    """A DCell router's broadcasts: sends and relays broadcast packets of applications."""

    def __init__(self, router: Router) -> None:
        self.router = router
        self.seen = Seen(REMEMBERED, REMEMBERED_S)

    def send(self, packet: bytes, scope: int, now: float) -> list[Action]:
        """Broadcast an application's packet to all other servers of this server's DCell_scope."""
        router = self.router
        header = DcnHeader(router.uid, broadcast(scope), Protocol.IPV4, router.identify())
        self.seen.is_new(header.source, header.identification, now)
        return spread(router.neighbours, range(scope + 1), header, packet)

    def heard(self, port: int, header: DcnHeader, packet: bytes, now: float) -> list[Action]:
        """Deliver and relay a received broadcast packet, unless it is a duplicate."""
        scope = scope_of(header.destination)
        if header.destination != broadcast(scope):
            return [Drop("unknown multicast group", packet)]
        if header.protocol != Protocol.IPV4:
            return [Drop("unknown protocol", packet)]
        if scope > self.router.topology.k or not self._in_scope(header.source, scope):
            return [Drop("broadcast out of its scope", packet)]
        if not self.seen.is_new(header.source, header.identification, now):
            self.router.counters["broadcasts repeated"] += 1
            return []
        relayed = spread(self.router.neighbours, range(scope + 1), header, packet, port)
        return [*self.router.delivered(packet), *relayed]

    def _in_scope(self, source: int, scope: int) -> bool:
        size = self.router.topology.sizes[scope]
        return bool(source // size == self.router.uid // size)
