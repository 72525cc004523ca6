"""The neighbour status table (Guo 2009, section 7.2): 256 entries, one for each value of a hop.

A relay decides with one look-up, by the byte in the packet's header that names the next hop. An
entry says out of which port, to whom (whose MAC address the data plane knows), and whether that
neighbour is available. Only (k + 1)(n - 1) entries are in use; every other byte leads nowhere,
this server's own digits among them. The table never changes but for the status.
"""

from __future__ import annotations

from hosts.base.failures import Pair
from hosts.base.path import Step
from hosts.bcube.source_routes import next_server
from hosts.wire.bcube import HOPS, Hop
from topos.bcube import BCube


class Neighbour:
    """One entry: OutPort and NeighborMAC are the step, StatusFlag is `up`."""

    __slots__ = ("step", "up")

    def __init__(self, step: Step) -> None:
        self.step = step
        self.up = True


class NeighbourTable:
    """The neighbours of one server.

    >>> table = NeighbourTable(BCube(4, 1), server=0)
    >>> table.look_up(Hop(level=1, value=3)).step.peer
    12
    >>> table.look_up(Hop(level=1, value=0)), table.look_up(Hop(level=2, value=1)), len(table)
    (None, None, 6)
    """

    def __init__(self, bcube: BCube, server: int) -> None:
        self.server = server
        self._entries: list[Neighbour | None] = []
        self._by_step: dict[Step, Neighbour] = {}
        for hop in HOPS:  # in the order of their bytes
            peer = next_server(bcube, server, hop)
            if peer is None:
                self._entries.append(None)
            else:
                neighbour = Neighbour(Step(hop.level, peer))
                self._entries.append(neighbour)
                self._by_step[neighbour.step] = neighbour

    def __len__(self) -> int:
        return len(self._by_step)

    def look_up(self, hop: Hop) -> Neighbour | None:
        """Return the neighbour to which a hop leads, None where it leads nowhere."""
        return self._entries[hop.nha]

    def set_status(self, step: Step, up: bool) -> None:
        """Note whether a neighbour is available."""
        self._by_step[step].up = up

    def is_up(self, step: Step) -> bool:
        """Tell whether a neighbour is available."""
        return self._by_step[step].up

    @property
    def failed_links(self) -> frozenset[Pair]:
        """The links to neighbours that are not available."""
        down = (step for step, neighbour in self._by_step.items() if not neighbour.up)
        return frozenset(frozenset((self.server, step.peer)) for step in down)
