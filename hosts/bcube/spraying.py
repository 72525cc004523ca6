"""Spraying in a BCube: each packet of a flow takes the next of the flow's parallel paths.

The source is that of BSR (`pillarbox.hosts.bcube.bsr`): path set, probes, replacements of failed
paths, returned packets. The source route is in each packet, so that relays need no change. A flow
that has lost a path probes immediately, since a replacement may carry the packets of that path.
Paths are not compared by bandwidth: loads of other flows have no effect.
"""

from __future__ import annotations

from typing import Any, ClassVar

from pillarbox.hosts.base.actions import Action
from pillarbox.hosts.base.path import Path
from pillarbox.hosts.base.spraying import MOST_SPRAYED, SprayedPaths, in_turn, working_paths
from pillarbox.hosts.bcube.bsr import BSR
from pillarbox.hosts.bcube.pairs import PairFlow
from pillarbox.hosts.bcube.selection import Selection
from pillarbox.hosts.wire.ipv4 import FlowKey


class SprayedSelection(Selection, SprayedPaths):
    """A flow's parallel paths, all of which carry packets while they work.

    >>> from pillarbox.hosts.base.failures import NONE
    >>> from pillarbox.topos.bcube import BCube
    >>> bcube = BCube(4, 1)
    >>> flow = SprayedSelection(bcube, bcube.server("0.0"), bcube.server("1.3"), NONE)
    >>> def servers() -> list[str]:
    ...     return [bcube.address(path.servers[1]) for path in flow.paths_in_turn()]
    >>> servers(), flow.begin_round(NONE)
    (['1.0'], [0, 1])
    >>> flow.answer(1, 0, 1e9), flow.answer(1, 1, 1e9), servers(), servers()
    (True, True, ['0.3', '1.0'], ['1.0', '0.3'])
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.changed = self._changed
        self._turn = 0

    def used_paths(self) -> list[Path]:
        """Return the paths over which the flow's packets are sent now."""
        return working_paths(self) or super().used_paths()

    @property
    def lacks_paths(self) -> bool:
        """True if fewer paths than usual carry the flow's packets."""
        return len(self.used_paths()) < min(MOST_SPRAYED, len(self._usual))

    def paths_in_turn(self) -> list[Path]:
        """Return the paths of the flow's next packets, the path of the next packet first."""
        paths = in_turn(self.used_paths(), self._turn)
        self._turn += 1
        return paths


class Spray(BSR):
    """Router of a BCube server that sprays the packets of its flows over their parallel paths."""

    selection: ClassVar[type[Selection]] = SprayedSelection

    def look_ahead(self, key: FlowKey, flow: PairFlow, now: float) -> list[Action]:
        """Do nothing: a flow that uses all paths finds no other path."""
        return []

    def lacks_paths(self, flow: PairFlow) -> bool:
        """Return True if fewer paths than usual carry a flow's packets: some may be replaced."""
        assert isinstance(flow.selection, SprayedSelection)
        return flow.selection.lacks_paths

    def flow_state(self, key: FlowKey, flow: PairFlow) -> dict[str, Any]:
        """Return a flow as plain data for display, with all paths in use in place of one."""
        state = super().flow_state(key, flow)
        del state["path"]
        address = self.topology.address
        used = [
            [address(server) for server in path.servers] for path in flow.selection.used_paths()
        ]
        return {**state, "paths": used}
