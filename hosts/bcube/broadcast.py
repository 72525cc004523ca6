"""BCube's broadcast, which the paper mentions but does not describe (Guo 2009, section 7.2).

A broadcast packet is sent over the k + 1 edge-disjoint spanning trees of section 3.5, one copy per
tree, so a server receives the packet as long as one of its k + 1 paths works. The path field of a
copy's header holds one hop, already used, whose level names the tree: a server computes the hops of
a copy from that level and the source. Servers deliver the first copy and recognise duplicates by
source and identification.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pillarbox.hosts.base.actions import Action, Drop
from pillarbox.hosts.base.bounded import Seen
from pillarbox.hosts.base.path import Step
from pillarbox.hosts.base.router import Router
from pillarbox.hosts.bcube.paths import step_to, width
from pillarbox.hosts.bcube.rules import digit, with_digit
from pillarbox.hosts.wire.bcube import BCubeHeader, Hop
from pillarbox.hosts.wire.dcn import Protocol, broadcast
from pillarbox.topos.base.digits import DigitNetwork

REMEMBERED = 4096  # capacity of the table of received broadcast packets (duplicate detection)


def onward(bcube: DigitNetwork, source: int, level: int, here: int) -> Iterator[Step]:
    """Yield the hops by which server `here` forwards a broadcast in its source's spanning tree.

    The trees are those of Fig. 5. In Part I, the hop to a server changes one digit, and the server
    forwards copies in that dimension and in the later ones. In Part II, the servers that have the
    source's digit of that level receive the copy from their neighbour with the previous digit.
    >>> from pillarbox.topos.bcube import BCube
    >>> bcube = BCube(4, 1)
    >>> [bcube.address(step.peer) for step in onward(bcube, 0, 1, bcube.server("1.0"))]
    ['2.0', '1.1']
    """

    def turned(dimension: int) -> int:
        value = (digit(bcube.weights, here, dimension) + 1) % width(bcube, dimension)
        return with_digit(bcube.weights, here, dimension, value)

    def hop_to(dimension: int) -> Step:
        return step_to(bcube, here, dimension, turned(dimension))

    def away(dimension: int) -> int:
        own, first = (digit(bcube.weights, server, dimension) for server in (here, source))
        return (own - first) % width(bcube, dimension)

    if here == source or away(level) == 0:
        if here == source and width(bcube, level) > 1:
            yield hop_to(level)  # hop to the root of the level's spanning tree
        return
    dimensions = [(level + i) % (bcube.k + 1) for i in range(bcube.k + 1)]
    last = max(i for i, dimension in enumerate(dimensions) if away(dimension))
    for dimension in dimensions[last:]:
        if away(dimension) + 1 < width(bcube, dimension):
            yield hop_to(dimension)
    if away(level) + 1 == width(bcube, level) and turned(level) != source:
        yield hop_to(level)


class BCubeBroadcasts:
    """A BCube router's broadcasts: sends and relays broadcast packets of applications."""

    def __init__(self, router: Router, send_by: Callable[[Step, bytes], Action]) -> None:
        self.router, self.send_by = router, send_by
        self.seen = Seen(REMEMBERED, router.timers.failed_link_timeout_s)

    def send(self, packet: bytes, now: float) -> list[Action]:
        """Broadcast an application's packet to all other servers."""
        router, bcube = self.router, self.router.topology
        everybody, number = broadcast(bcube.k), router.identify()
        self.seen.is_new(router.uid, number, now)
        found: list[Action] = []
        for level in range(bcube.k + 1):
            tree = (Hop(level, 0),)
            header = BCubeHeader(router.uid, everybody, Protocol.IPV4, tree, 1, number)
            found += self._tree_copies(router.server, header, packet)
        return found

    def heard(self, header: BCubeHeader, packet: bytes, now: float) -> list[Action]:
        """Relay a received broadcast packet; deliver it unless it is a duplicate."""
        bcube = self.router.topology
        source: int = bcube.server_of_uid(header.source)
        if header.destination != broadcast(bcube.k) or not 0 <= source < bcube.servers:
            return [Drop("unknown multicast group", packet)]
        if len(header.path) != 1 or header.path[0].level > bcube.k:
            return [Drop("no such tree", packet)]
        if header.protocol != Protocol.IPV4:
            return [Drop("unknown protocol", packet)]
        relayed = self._tree_copies(source, header, packet)
        if self.seen.is_new(header.source, header.identification, now):
            return [*self.router.delivered(packet), *relayed]
        self.router.counters["broadcasts repeated"] += 1
        return relayed

    def _tree_copies(self, source: int, header: BCubeHeader, packet: bytes) -> list[Action]:
        data = header.pack(packet)
        level, here = header.path[0].level, self.router.server
        steps = onward(self.router.topology, source, level, here)
        return [self.send_by(step, data) for step in steps]
