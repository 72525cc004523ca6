"""The neighbour status table (Guo 2009, section 7.2): 256 entries, indexed by the hop byte.

A relay forwards a packet with one look-up, by the header byte that names the next hop. An entry
holds the egress port, the neighbour (whose MAC address the data plane knows) and the neighbour's
status. Only (k + 1)(n - 1) entries are in use; all other bytes, including those with this server's
own digits, name no neighbour. Entries are fixed; only their status changes.
"""

from __future__ import annotations

from pillarbox.hosts.base.failures import Pair
from pillarbox.hosts.base.path import Step
from pillarbox.hosts.bcube.paths import width
from pillarbox.hosts.bcube.source_routes import next_server
from pillarbox.hosts.wire.bcube import HOPS, MOST_LEVEL, MOST_VALUE, Hop
from pillarbox.topos.base.digits import DigitNetwork


class Neighbour:
    """Entry of BCube's neighbour status table: `step` is the paper's OutPort and NeighborMAC."""

    __slots__ = ("step", "up")

    def __init__(self, step: Step) -> None:
        self.step = step
        self.up = True


class NeighbourTable:
    """BCube's neighbour status table of one server, indexed by the hop byte (NHA) of headers.

    >>> from pillarbox.topos.bcube import BCube
    >>> table = NeighbourTable(BCube(4, 1), server=0)
    >>> table.look_up(Hop(level=1, value=3)).step.peer
    12
    >>> table.look_up(Hop(level=1, value=0)), table.look_up(Hop(level=2, value=1)), len(table)
    (None, None, 6)
    """

    def __init__(self, bcube: DigitNetwork, server: int) -> None:
        self.server = server
        # Entries in the order of hop bytes.
        self._entries: list[Neighbour | None] = [None] * len(HOPS)
        self._by_step: dict[Step, Neighbour] = {}
        for level in range(min(bcube.k, MOST_LEVEL) + 1):
            values = range(min(width(bcube, level), MOST_VALUE + 1))
            for hop in (Hop(level, value) for value in values):
                peer = next_server(bcube, server, hop)
                if peer is not None:
                    neighbour = Neighbour(Step(bcube.port_towards(server, *hop), peer))
                    self._entries[hop.nha] = self._by_step[neighbour.step] = neighbour

    def __len__(self) -> int:
        return len(self._by_step)

    def look_up(self, hop: Hop) -> Neighbour | None:
        """Return the neighbour for a hop of a BCube header, None for a hop that leads nowhere."""
        return self._entries[hop.nha]

    def set_status(self, step: Step, up: bool) -> None:
        """Set the status, up or down, of the neighbour that is reached by `step`."""
        self._by_step[step].up = up

    def is_up(self, step: Step) -> bool:
        """Return True if the neighbour that is reached by `step` is available."""
        return self._by_step[step].up

    @property
    def failed_links(self) -> frozenset[Pair]:
        """The links to all neighbours that are down."""
        down = (step for step, neighbour in self._by_step.items() if not neighbour.up)
        return frozenset(frozenset((self.server, step.peer)) for step in down)
